//! Path groups: who carries the traffic of a prefix, and who may send from it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{Member, Slot};
use crate::packet::mix;

/// Prefixes with equal members share one group.
#[derive(Debug)]
pub(super) struct Group {
    /// Who carries traffic.
    pub(super) selected: Box<[Slot]>,
    /// Who may send from here; sorted.
    feasible: Box<[Slot]>,
}

impl Group {
    pub(super) fn is_feasible(&self, peer: Slot) -> bool {
        self.feasible.binary_search(&peer).is_ok()
    }
}

/// Collects groups, each once.
#[derive(Debug, Default)]
pub(super) struct Interner {
    groups: Vec<Group>,
    /// The number of selected members, these, and the feasible ones; so that a look-up allocates nothing.
    known: HashMap<Box<[Slot]>, u32>,
    wanted: Vec<Slot>,
}

impl Interner {
    /// The number of the group with these members. Who is selected is feasible too.
    pub(super) fn intern(&mut self, selected: &[Slot], feasible: &[Slot]) -> u32 {
        let feasible = self.want(selected, feasible);
        if let Some(index) = self.known.get(&*self.wanted) {
            return *index;
        }
        let index = u32::try_from(self.groups.len()).expect("fewer groups than IPv4 addresses");
        self.groups.push(Group { selected: selected.into(), feasible: self.wanted[feasible..].into() });
        self.known.insert(self.wanted.as_slice().into(), index);
        index
    }

    pub(super) fn finish(self) -> Vec<Group> {
        self.groups
    }

    /// Writes the key, and says where in it the feasible members are.
    fn want(&mut self, selected: &[Slot], feasible: &[Slot]) -> usize {
        self.wanted.clear();
        self.wanted.push(Slot::try_from(selected.len()).expect("fewer members than slots"));
        self.wanted.extend_from_slice(selected);
        let start = self.wanted.len();
        let mut all: Vec<Slot> = feasible.iter().chain(selected).copied().collect();
        all.sort_unstable();
        all.dedup();
        self.wanted.append(&mut all);
        start
    }
}

/// The members by slot, ready to choose among.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<Ready>);

/// A member whose key is mixed already.
#[derive(Debug)]
struct Ready {
    key: u64,
    live: Arc<AtomicBool>,
}

impl Members {
    pub(super) fn new(members: Vec<Member>) -> Self {
        let ready = |member: Member| Ready { key: mix(member.key), live: member.live };
        Self(members.into_iter().map(ready).collect())
    }

    /// Highest random weight: a flow belongs to the live member with the highest score, so a member that goes takes only its own
    /// flows along, and one that comes takes only the flows where it scores highest. If none is live, all count.
    pub(super) fn choose(&self, group: &[Slot], flow: u64) -> Option<Slot> {
        if let [] | [_] = group {
            return group.first().copied();
        }
        let score = |slot: &Slot| self.get(*slot).map_or(0, |member| mix(flow ^ member.key));
        let is_live =
            |slot: &&Slot| self.get(**slot).is_some_and(|member| member.live.load(Ordering::Relaxed));
        let live = group.iter().filter(is_live).max_by_key(|slot| score(slot));
        live.or_else(|| group.iter().max_by_key(|slot| score(slot))).copied()
    }

    fn get(&self, slot: Slot) -> Option<&Ready> {
        self.0.get(slot as usize)
    }
}
