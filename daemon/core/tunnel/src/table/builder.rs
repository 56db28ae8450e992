//! From routes to a snapshot.

use ipnet::IpNet;

use super::{
    Member, Slot, Table, Underlay,
    group::{Interner, Members},
    trie::{Route, Trie},
};

/// Collects routes for a [`Table`].
#[derive(Debug)]
pub struct Builder {
    members: Vec<Member>,
    groups: Interner,
    v4: Vec<Route<u32>>,
    v6: Vec<Route<u128>>,
    underlay: Underlay,
}

impl Builder {
    pub(super) fn new(members: Vec<Member>) -> Self {
        Self {
            members,
            groups: Interner::default(),
            v4: Vec::new(),
            v6: Vec::new(),
            underlay: Underlay::default(),
        }
    }

    /// Adds a prefix (host bits are ignored), or replaces what was added for it. `selected` carry its traffic; they and `feasible` may
    /// send from it. A prefix without peers is no waste: it keeps its packets from falling through to a shorter prefix.
    pub fn route(&mut self, prefix: IpNet, selected: &[Slot], feasible: &[Slot]) {
        let group = self.groups.intern(selected, feasible);
        match prefix {
            IpNet::V4(net) => self.v4.push(Route::new(net.network().to_bits(), net.prefix_len(), group)),
            IpNet::V6(net) => self.v6.push(Route::new(net.network().to_bits(), net.prefix_len(), group)),
        }
    }

    /// Says what [`Table::captures`] needs to know beside the prefixes.
    pub fn underlay(&mut self, underlay: Underlay) {
        self.underlay = underlay;
    }

    /// The snapshot.
    pub fn build(mut self) -> Table {
        self.underlay.endpoints.iter_mut().for_each(|endpoint| *endpoint = endpoint.to_canonical());
        self.underlay.endpoints.sort_unstable();
        Table {
            members: Members::new(self.members),
            groups: self.groups.finish(),
            v4: Trie::build(self.v4),
            v6: Trie::build(self.v6),
            underlay: self.underlay,
        }
    }
}
