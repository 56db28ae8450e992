//! The pure half of the board: candidates in, resolved routes out.
//!
//! Rules, in order:
//! 1. A prefix that the configuration gives to a tunnel peer (`allowed_ips`) belongs to that peer; BGP does not override it.
//! 2. Otherwise BGP's candidates count. A next hop resolves by longest prefix over the peers' `allowed_ips`; inside one: the hop
//!    is that tunnel peer. Outside all: the hop is a gateway for the kernel to find.
//! 3. A next hop never resolves through another BGP route: that is how a session ends up inside its own tunnel.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;
use prefix_trie::joint::JointPrefixMap;

use super::{Candidate, Hop, NextHop, Path, PeerName, Route, Source};

/// All candidates, and the routes that follow from them.
#[derive(Default)]
pub(super) struct Table {
    statics: JointPrefixMap<IpNet, PeerName>,
    bgp: JointPrefixMap<IpNet, Vec<Candidate>>,
    resolved: JointPrefixMap<IpNet, Arc<Route>>,
}

impl Table {
    /// Replaces every static prefix. Returns the prefixes whose route changed.
    pub(super) fn set_static(&mut self, prefixes: Vec<(IpNet, PeerName)>) -> Vec<IpNet> {
        self.statics.clear();
        for (prefix, peer) in prefixes {
            self.statics.insert(prefix.trunc(), peer);
        }
        let all: Vec<IpNet> =
            self.statics.keys().chain(self.bgp.keys()).chain(self.resolved.keys()).collect();
        all.into_iter().filter(|prefix| self.resolve(*prefix)).collect()
    }

    /// Replaces BGP's candidates for each prefix; none means withdrawn. Returns the prefixes whose route changed.
    pub(super) fn update_bgp(&mut self, changes: Vec<(IpNet, Vec<Candidate>)>) -> Vec<IpNet> {
        let mut changed = Vec::with_capacity(changes.len());
        for (prefix, candidates) in changes {
            let prefix = prefix.trunc();
            if candidates.is_empty() {
                self.bgp.remove(&prefix);
            } else {
                self.bgp.insert(prefix, candidates);
            }
            if self.resolve(prefix) {
                changed.push(prefix);
            }
        }
        changed
    }

    pub(super) fn get(&self, prefix: &IpNet) -> Option<Arc<Route>> {
        self.resolved.get(prefix).cloned()
    }

    pub(super) fn lookup(&self, address: IpAddr) -> Option<Arc<Route>> {
        self.resolved.get_lpm(&IpNet::from(address)).map(|(_, route)| Arc::clone(route))
    }

    pub(super) fn all(&self) -> Vec<Arc<Route>> {
        self.resolved.values().cloned().collect()
    }

    /// Recomputes one prefix; true if its route is another one than before.
    fn resolve(&mut self, prefix: IpNet) -> bool {
        let Some(route) = self.route(prefix) else {
            return self.resolved.remove(&prefix).is_some();
        };
        if self.resolved.get(&prefix).is_some_and(|old| **old == route) {
            return false;
        }
        self.resolved.insert(prefix, Arc::new(route));
        true
    }

    fn route(&self, prefix: IpNet) -> Option<Route> {
        if let Some(peer) = self.statics.get(&prefix) {
            let candidate = Candidate {
                next_hop: NextHop::Peer(Arc::clone(peer)),
                neighbor: None,
                selected: true,
                reason: "configured in allowed_ips".into(),
                as_path: String::new(),
            };
            let hop = Hop::Peer(Arc::clone(peer));
            return Some(Route { prefix, source: Source::Static, paths: vec![Path { hop, candidate }] });
        }
        let paths = self.bgp.get(&prefix)?.iter().map(|c| self.path(c)).collect();
        Some(Route { prefix, source: Source::Bgp, paths })
    }

    fn path(&self, candidate: &Candidate) -> Path {
        let hop = match &candidate.next_hop {
            NextHop::Peer(peer) => Hop::Peer(Arc::clone(peer)),
            NextHop::Address(address) => match self.statics.get_lpm(&IpNet::from(*address)) {
                Some((_, peer)) => Hop::Peer(Arc::clone(peer)),
                None => Hop::Gateway(*address),
            },
        };
        Path { hop, candidate: candidate.clone() }
    }
}
