//! One host between two, and 100,000 prefixes behind both of them.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, Result};
use ipnet::{IpNet, Ipv4Net};
use isthmus_lab::{link::veth, netns::Netns, node::Node};
use isthmusd::{
    routes::{Board, Candidate, Group, NextHop},
    tunnel,
};

use super::{PREFIXES, flow::Receiver, watch};
use crate::{
    contender::Contender,
    key::KeyPair,
    rig::{Peer, Side, TUNNEL_PORT},
    tunnel::ours,
};

/// How the near end's configuration calls its peers.
pub(super) const PEERS: [&str; 2] = ["p0", "p1"];

const NEAR_INNER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const FAR: [Place; 2] = [
    Place {
        name: "far-a",
        link: "eth0",
        outer: [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)],
        inner: Ipv4Addr::new(10, 99, 0, 2),
    },
    Place {
        name: "far-b",
        link: "eth1",
        outer: [Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(198, 51, 100, 2)],
        inner: Ipv4Addr::new(10, 99, 0, 3),
    },
];
/// All prefixes are inside of it (RFC 6598 keeps it free).
const COVER: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);
/// Addresses of a prefix.
const STEP: u32 = 32;
const PREFIX_LENGTH: u8 = 27;
/// Where the flows go: behind a prefix in the middle. Both far ends have the address.
pub(super) const DESTINATION: SocketAddr = SocketAddr::new(IpAddr::V4(BEHIND), 7000);
const BEHIND: Ipv4Addr = Ipv4Addr::from_bits(COVER.addr().to_bits() + PREFIXES / 2 * STEP + 1);
/// Where they come from.
pub(super) const SOURCE: IpAddr = IpAddr::V4(NEAR_INNER);

/// Where a far end is.
struct Place {
    name: &'static str,
    /// The near end's interface towards it.
    link: &'static str,
    /// On the cable: near, far.
    outer: [Ipv4Addr; 2],
    inner: Ipv4Addr,
}

/// The three hosts; the daemons run on the far ones.
pub(super) struct Rig {
    near: Netns,
    far: [Netns; 2],
    far_nodes: Vec<Node>,
    near_node: Node,
}

impl Rig {
    /// Builds it and starts both daemons.
    ///
    /// # Errors
    /// When the kernel refuses a step, or a daemon does not start.
    pub(super) fn build(contender: &Contender, config: &[String], dir: &Path) -> Result<Self> {
        let near = Netns::create("near")?;
        let far = [Netns::create(FAR[0].name)?, Netns::create(FAR[1].name)?];
        for (place, netns) in FAR.iter().zip(&far) {
            cable(&near, place, netns)?;
        }
        let (near_side, far_sides) = sides()?;
        let mut far_nodes = Vec::new();
        for (side, netns) in far_sides.iter().zip(&far) {
            far_nodes.push(ours::start(contender, &[], netns, side, dir)?);
        }
        let near_node = ours::prepare(contender, config, &near, &near_side, dir)?;
        Ok(Self { near, far, far_nodes, near_node })
    }

    /// The namespace of the near end.
    pub(super) fn near(&self) -> &Netns {
        &self.near
    }

    /// What the near end's configuration file says about the tunnel.
    ///
    /// # Errors
    /// When it says something wrong.
    pub(super) fn config(&self) -> Result<tunnel::Config> {
        let config = isthmusd::config::load(&self.near_node.config());
        let config = config.map_err(|error| anyhow::Error::msg(error.one_line()))?;
        config.tunnel.context("no section [tunnel]")
    }

    /// One route of the kernel for all of the prefixes.
    ///
    /// # Errors
    /// When the tunnel's interface is not up.
    pub(super) fn lead_prefixes_into_tunnel(&self) -> Result<()> {
        self.near.add_route(COVER.into(), FAR[0].inner.into())
    }

    /// What listens there, at both far ends.
    ///
    /// # Errors
    /// When the address is not there.
    pub(super) fn receivers(&self) -> Result<[Receiver; 2]> {
        let [a, b] = &self.far;
        Ok([Receiver::start(a, DESTINATION)?, Receiver::start(b, DESTINATION)?])
    }

    /// Lets nothing of a far end's get through the cable any more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn silence(&self, end: usize) -> Result<()> {
        self.far[end].swallow(FAR[end].outer[0].into())
    }

    /// Undoes [`Rig::silence`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn heal(&self, end: usize) -> Result<()> {
        self.far[end].spare(FAR[end].outer[0].into())
    }

    /// `error` with the end of both logs.
    pub(super) fn blame(&self, error: &anyhow::Error) -> anyhow::Error {
        let logs =
            self.far_nodes.iter().map(|node| format!("--- {}:\n{}", node.log().display(), node.log_tail()));
        anyhow::Error::msg(format!("{error:#}\n{}", logs.collect::<Vec<_>>().join("\n")))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for netns in self.far.iter().chain([&self.near]) {
            // It may have been taken away by hand; the sandbox takes the rest.
            let _ = netns.clone().delete();
        }
    }
}

/// The far ends' addresses inside of the tunnel.
pub(super) fn far_inner() -> [IpAddr; 2] {
    FAR.each_ref().map(|place| place.inner.into())
}

/// A board on which each of the prefixes has two selected ways.
///
/// # Errors
/// None in practice.
pub(super) fn board() -> Result<Board> {
    let board = Board::new();
    let ways = PEERS.map(|peer| Candidate {
        next_hop: NextHop::Peer(peer.into()),
        neighbor: Some(peer.into()),
        selected: true,
    });
    let ways: Group = ways.into();
    let prefix = |number: u32| -> Result<(IpNet, Group)> {
        let address = Ipv4Addr::from_bits(COVER.addr().to_bits() + number * STEP);
        Ok((IpNet::new(address.into(), PREFIX_LENGTH)?, Arc::clone(&ways)))
    };
    board.update_bgp((0..PREFIXES).map(prefix).collect::<Result<_>>()?);
    Ok(board)
}

fn cable(near: &Netns, place: &Place, far: &Netns) -> Result<()> {
    veth((near, place.link), (far, "eth0"))?;
    near.add_address(place.link, IpNet::new(place.outer[0].into(), 24)?)?;
    far.add_address("eth0", IpNet::new(place.outer[1].into(), 24)?)?;
    far.add_address("lo", IpNet::new(BEHIND.into(), 32)?)
}

/// The near end's side, and those of both far ends.
fn sides() -> Result<(Side, Vec<Side>)> {
    let near = KeyPair::random()?;
    let (mut peers, mut far) = (Vec::new(), Vec::new());
    for (number, place) in FAR.iter().enumerate() {
        let key = KeyPair::random()?;
        peers.push(peer(&key, place.outer[1], place.inner));
        let to_near = vec![peer(&near, place.outer[0], NEAR_INNER)];
        far.push(Side { index: number + 1, address: place.inner.into(), key, peers: to_near });
    }
    Ok((Side { index: 0, address: SOURCE, key: near, peers }, far))
}

/// Kept alive, so that there is a session before the first packet; and watched.
fn peer(key: &KeyPair, outer: Ipv4Addr, inner: Ipv4Addr) -> Peer {
    let endpoint = SocketAddr::new(outer.into(), TUNNEL_PORT);
    Peer {
        public: key.public.clone(),
        endpoint,
        address: inner.into(),
        keepalive: true,
        bfd: Some(watch::INTERVAL),
    }
}

#[cfg(test)]
mod tests {
    use isthmusd::routes::Hop;

    use super::*;

    #[test]
    fn both_ends_can_reach_each_of_the_prefixes() {
        let routes = board().unwrap().snapshot();
        assert_eq!(routes.len(), usize::try_from(PREFIXES).unwrap());
        let both = PEERS.map(|peer| Hop::Peer(peer.into()));
        assert!(routes.iter().all(|route| route.selected().eq(&both)));
        assert!(routes.iter().all(|route| IpNet::V4(COVER).contains(&route.prefix)));
        let behind = routes.iter().filter(|route| route.prefix.contains(&DESTINATION.ip()));
        assert_eq!(behind.count(), 1);
    }
}
