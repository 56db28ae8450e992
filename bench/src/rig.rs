//! Two hosts on one cable, and what each of them is to be told about the other.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context, Result};
use ipnet::IpNet;
use isthmus_lab::{link::veth, netns::Netns};

use crate::key::KeyPair;

/// The largest inner packet, for every program.
pub(crate) const INNER_MTU: u32 = 1420;
/// The UDP port of every daemon.
pub(crate) const TUNNEL_PORT: u16 = 51820;
/// Addresses within the tunnel: near, far.
pub(crate) const INNER: [&str; 2] = ["10.99.0.1", "10.99.0.2"];
/// Prefix length of the overlay.
pub(crate) const INNER_LENGTH: u8 = 16;

/// Addresses on the cable: near, far.
pub(crate) const OUTER: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const NAMES: [&str; 2] = ["near", "far"];

/// Two network namespaces joined by one pair of interfaces; they end with this value.
#[derive(Debug)]
pub(crate) struct Rig {
    ends: [Netns; 2],
}

impl Rig {
    /// Builds it.
    ///
    /// # Errors
    /// When the kernel refuses: which step.
    pub(crate) fn build() -> Result<Self> {
        let rig = Self { ends: [Netns::create(NAMES[0])?, Netns::create(NAMES[1])?] };
        let [near, far] = &rig.ends;
        veth((near, "eth0"), (far, "eth0"))?;
        for (netns, address) in rig.ends.iter().zip(OUTER) {
            netns.add_address("eth0", IpNet::new(address.parse()?, 24)?)?;
        }
        // The far end does not forward: what is sent elsewhere gets no answer at all.
        near.add_default_route(OUTER[1].parse()?)?;
        Ok(rig)
    }

    /// Near and far.
    pub(crate) fn ends(&self) -> &[Netns; 2] {
        &self.ends
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for netns in &self.ends {
            // It may have been taken away by hand; the sandbox takes the rest.
            let _ = netns.clone().delete();
        }
    }
}

/// What one end has to know of another.
#[derive(Clone)]
pub(crate) struct Peer {
    /// Its public key, in base64.
    pub(crate) public: String,
    /// Where it is.
    pub(crate) endpoint: SocketAddr,
    /// Its only address within the tunnel.
    pub(crate) address: IpAddr,
    /// Whether it is to be sent a keepalive every 25 s.
    pub(crate) keepalive: bool,
    /// Whether BFD watches the path to it, and how often.
    pub(crate) bfd: Option<Duration>,
}

/// One end's share of the configuration.
#[derive(Clone)]
pub(crate) struct Side {
    /// 0 is near, 1 far.
    pub(crate) index: usize,
    /// Its address within the tunnel.
    pub(crate) address: IpAddr,
    /// Its own key.
    pub(crate) key: KeyPair,
    /// All others.
    pub(crate) peers: Vec<Peer>,
}

impl Side {
    /// Both ends, each other's only peers but for `strangers` more of the near one.
    ///
    /// # Errors
    /// When no keys can be made.
    pub(crate) fn pair(strangers: u32) -> Result<[Self; 2]> {
        let keys = [KeyPair::random()?, KeyPair::random()?];
        let peer = |index: usize| -> Result<Peer> {
            let endpoint = SocketAddr::new(OUTER[index].parse()?, TUNNEL_PORT);
            let public = keys[index].public.clone();
            Ok(Peer { public, endpoint, address: INNER[index].parse()?, keepalive: false, bfd: None })
        };
        let (to_far, to_near) = (peer(1)?, peer(0)?);
        let mut peers = vec![to_far.clone()];
        for number in 0..strangers {
            peers.push(stranger(number)?);
        }
        let [near, far] = keys;
        let [near_address, far_address] = [to_near.address, to_far.address];
        Ok([
            Self { index: 0, address: near_address, key: near, peers },
            Self { index: 1, address: far_address, key: far, peers: vec![to_near] },
        ])
    }
}

/// A peer that never answers; every other one is kept alive.
///
/// # Errors
/// When no key can be made.
pub(crate) fn stranger(number: u32) -> Result<Peer> {
    let offset = number.checked_add(1).context("too many peers")?;
    // RFC 2544 gives 198.18.0.0/15 to benchmarks.
    let endpoint = Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + offset);
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 99, 1, 0).to_bits() + offset);
    Ok(Peer {
        public: KeyPair::random()?.public,
        endpoint: SocketAddr::new(endpoint.into(), TUNNEL_PORT),
        address: address.into(),
        keepalive: number.is_multiple_of(2),
        bfd: None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn strangers_are_distinct_and_half_of_them_kept_alive() {
        let [near, far] = Side::pair(1000).unwrap();
        assert_eq!((near.peers.len(), far.peers.len()), (1001, 1));
        assert_eq!(near.peers.iter().filter(|peer| peer.keepalive).count(), 500);
        assert_eq!(near.peers.iter().map(|peer| &peer.public).collect::<HashSet<_>>().len(), 1001);
        assert_eq!(near.peers.iter().map(|peer| peer.endpoint).collect::<HashSet<_>>().len(), 1001);
        let overlay = IpNet::new(INNER[0].parse().unwrap(), INNER_LENGTH).unwrap();
        let inside: HashSet<_> =
            near.peers.iter().map(|peer| peer.address).filter(|ip| overlay.contains(ip)).collect();
        assert_eq!(inside.len(), 1001);
    }

    #[test]
    fn the_ends_know_each_other() {
        let [near, far] = Side::pair(0).unwrap();
        assert_eq!(near.peers[0].public, far.key.public);
        assert_eq!(far.peers[0].public, near.key.public);
        assert_eq!(near.peers[0].address.to_string(), INNER[1]);
    }
}
