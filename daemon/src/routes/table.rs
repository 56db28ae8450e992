//! The pure half of the board: candidates in, resolved routes out.
//!
//! Rules, in order:
//! 1. A prefix that the configuration gives to a tunnel peer (`allowed_ips`) belongs to that peer; BGP does not override it.
//! 2. Otherwise BGP's candidates count. A next hop resolves by longest prefix over the peers' `allowed_ips`; inside one: the hop
//!    is that tunnel peer. Outside all: the hop is a gateway for the kernel to find.
//! 3. A next hop never resolves through another BGP route: that is how a session ends up inside its own tunnel.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use isthmus_prefix::PrefixTable;

use super::{Candidate, Group, Hop, NextHop, Path, PathGroup, PeerName, Route, Source, groups::Groups};
use crate::prefixes;

/// The peers' own prefixes, and BGP's.
pub(super) struct Table {
    statics: PrefixTable<Arc<PathGroup>>,
    bgp: PrefixTable<Arc<PathGroup>>,
    groups: Groups,
}

impl Default for Table {
    fn default() -> Self {
        Self { statics: prefixes::table(), bgp: prefixes::table(), groups: Groups::default() }
    }
}

impl Table {
    /// Replaces every static prefix. Returns the prefixes whose route changed.
    pub(super) fn set_static(&mut self, prefixes: Vec<(IpNet, PeerName)>) -> Vec<IpNet> {
        let mut new = prefixes::table();
        for (prefix, peer) in prefixes {
            new.insert(prefix, static_group(&peer));
        }
        let old = std::mem::replace(&mut self.statics, new);
        let mut changed: Vec<IpNet> = differing(&old, &self.statics);
        changed.extend(self.resolve_again());
        changed
    }

    /// Replaces BGP's candidates for each prefix; none means withdrawn. Returns the prefixes whose route changed.
    pub(super) fn update_bgp(&mut self, changes: Vec<(IpNet, Group)>) -> Vec<IpNet> {
        let mut changed = Vec::with_capacity(changes.len());
        for (prefix, candidates) in changes {
            let prefix = prefix.trunc();
            if self.set(prefix, candidates) && !self.statics.contains(prefix) {
                changed.push(prefix);
            }
        }
        self.bgp.shrink();
        self.groups.sweep();
        changed
    }

    pub(super) fn len(&self) -> usize {
        let both = self.statics.prefixes().filter(|prefix| self.bgp.contains(*prefix)).count();
        self.statics.len() + self.bgp.len() - both
    }

    pub(super) fn get(&self, prefix: IpNet) -> Option<Route> {
        let group = self.statics.get(prefix).or_else(|| self.bgp.get(prefix))?;
        Some(route(prefix, group))
    }

    pub(super) fn lookup(&self, address: IpAddr) -> Option<Route> {
        let found = self.statics.lookup(address).into_iter().chain(self.bgp.lookup(address));
        // The first of equals wins, and that is the static one.
        let longest =
            found.reduce(|best, other| if other.0.prefix_len() > best.0.prefix_len() { other } else { best });
        longest.map(|(prefix, group)| route(prefix, group))
    }

    /// Every route, in no order.
    pub(super) fn all(&self) -> Vec<Route> {
        let learned = self.bgp.iter().filter(|(prefix, _)| !self.statics.contains(*prefix));
        self.statics.iter().chain(learned).map(|(prefix, group)| route(prefix, group)).collect()
    }

    /// True if BGP's candidates are others than before.
    fn set(&mut self, prefix: IpNet, candidates: Group) -> bool {
        if candidates.is_empty() {
            return self.bgp.remove(prefix).is_some();
        }
        let group = self.groups.of(candidates, |candidate| hop(&self.statics, candidate));
        let old = self.bgp.insert(prefix, Arc::clone(&group));
        old.is_none_or(|old| !Arc::ptr_eq(&old, &group))
    }

    /// Next hops may lie elsewhere now. Returns the prefixes of BGP's whose paths changed by that.
    fn resolve_again(&mut self) -> Vec<IpNet> {
        let moved: HashMap<_, _> = self.groups.resolve(|candidate| hop(&self.statics, candidate));
        if moved.is_empty() {
            return Vec::new();
        }
        let mut changed = Vec::new();
        for (prefix, group) in self.bgp.iter_mut() {
            if let Some(new) = moved.get(&Arc::as_ptr(group)) {
                *group = Arc::clone(new);
                changed.push(prefix);
            }
        }
        changed.retain(|prefix| !self.statics.contains(*prefix));
        changed
    }
}

fn route(prefix: IpNet, group: &Arc<PathGroup>) -> Route {
    Route { prefix, group: Arc::clone(group) }
}

fn static_group(peer: &PeerName) -> Arc<PathGroup> {
    let next_hop = NextHop::Peer(Arc::clone(peer));
    let candidate = Candidate { next_hop, neighbor: None, selected: true };
    let path = Path { hop: Hop::Peer(Arc::clone(peer)), candidate };
    Arc::new(PathGroup { source: Source::Static, paths: [path].into() })
}

/// Prefixes that are in one of the tables only, or belong to others.
fn differing(old: &PrefixTable<Arc<PathGroup>>, new: &PrefixTable<Arc<PathGroup>>) -> Vec<IpNet> {
    let gone = old.prefixes().filter(|prefix| !new.contains(*prefix));
    let set = new.iter().filter(|(prefix, group)| old.get(*prefix) != Some(group));
    gone.chain(set.map(|(prefix, _)| prefix)).collect()
}

fn hop(statics: &PrefixTable<Arc<PathGroup>>, candidate: &Candidate) -> Hop {
    match &candidate.next_hop {
        NextHop::Peer(peer) => Hop::Peer(Arc::clone(peer)),
        NextHop::LinkLocal { address, interface } => {
            Hop::LinkLocal { address: *address, interface: *interface }
        }
        NextHop::Address(address) => {
            let owner = statics.lookup(*address).and_then(|(_, group)| group.selected().next());
            owner.cloned().unwrap_or(Hop::Gateway(*address))
        }
    }
}
