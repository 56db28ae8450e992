//! What the data plane needs to know of a prefix.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{PeerId, Speaker};
use crate::rib::Path;

/// One way to a prefix, without anything that is not for forwarding: most prefixes have equal ways, and a driver that keeps each kind
/// once (`Member`s are keys) has little to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Where packets go.
    pub next_hop: IpAddr,
    /// The interface, where the next hop is a link-local address.
    pub interface: Option<u32>,
    /// The peer that told us.
    pub peer: PeerId,
    /// It carries traffic. The others could, and packets from there are believed.
    pub selected: bool,
}

impl Speaker {
    /// The ways to a prefix that peers told us and that may be used. A prefix that starts here has none of its own.
    pub fn members(&self, prefix: IpNet) -> impl Iterator<Item = Member> {
        let usable = self.rib.paths(prefix).iter().filter(|path| path.verdict().ineligible().is_none());
        usable.filter_map(|path| self.member(path))
    }

    fn member(&self, path: &Path) -> Option<Member> {
        let (next_hop, peer) = (path.attributes().next_hop, path.source().peer()?);
        let link_local = matches!(next_hop, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let scope = self.peers.get(&peer).and_then(|peer| peer.config.scope);
        let interface = scope.filter(|_| link_local);
        Some(Member { next_hop, interface, peer, selected: path.verdict().selected() })
    }
}
