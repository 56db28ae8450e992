//! What a rule changes on a route.

use std::net::IpAddr;

use super::{CommunityPattern, LargeCommunityPattern, community::Pattern};
use crate::wire::{AsPath, Attributes, Community, LargeCommunity};

/// Changes, made in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Change {
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC.
    pub med: Option<MedChange>,
    /// ASes put in front of AS_PATH.
    pub prepend: Option<Prepend>,
    /// Communities.
    pub communities: ListChange<CommunityPattern, Community>,
    /// Large communities.
    pub large_communities: ListChange<LargeCommunityPattern, LargeCommunity>,
    /// The next hop.
    pub next_hop: Option<NextHopChange>,
}

/// A change of MULTI_EXIT_DISC. Absent counts as 0; it never leaves the range of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MedChange {
    /// To this.
    Set(u32),
    /// Up by this.
    Add(u32),
    /// Down by this.
    Subtract(u32),
    /// Away.
    Remove,
}

/// One AS, several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prepend {
    /// Which; `None`: our own.
    pub asn: Option<u32>,
    /// How often, at most [`Prepend::MAX_COUNT`]. On export our own AS comes in front once more, as always.
    pub count: u8,
}

impl Prepend {
    /// Longer paths are dropped by many networks.
    pub const MAX_COUNT: u8 = 32;
}

/// A change of a list. To replace it, remove everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListChange<P, T> {
    /// These go first.
    pub remove: Vec<P>,
    /// These come to the end, where they are not yet.
    pub add: Vec<T>,
}

impl<P, T> Default for ListChange<P, T> {
    fn default() -> Self {
        Self { remove: Vec::new(), add: Vec::new() }
    }
}

/// Where packets are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextHopChange {
    /// To our own end of the session.
    SelfAddress,
    /// To the neighbor's end of the session.
    PeerAddress,
    /// To this address, where its family fits the route.
    Address(IpAddr),
    /// Where they went before, also towards an external neighbor.
    Unchanged,
}

impl<P: Pattern<Value = T>, T: Copy + PartialEq> ListChange<P, T> {
    fn entries(&self) -> usize {
        self.remove.len() + self.add.len()
    }

    fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    fn apply(&self, list: &[T]) -> Vec<T> {
        let stays = |value: &&T| !self.remove.iter().any(|pattern| pattern.matches(value));
        let mut changed: Vec<T> = list.iter().filter(stays).copied().collect();
        for value in &self.add {
            if !changed.contains(value) {
                changed.push(*value);
            }
        }
        changed
    }
}

impl Change {
    pub(super) fn entries(&self) -> usize {
        self.communities.entries() + self.large_communities.entries()
    }

    pub(super) fn prepended(&self) -> usize {
        self.prepend.map_or(0, |prepend| usize::from(prepend.count))
    }

    /// True if [`Change::apply`] would leave every route as it is. The next hop is not its concern.
    pub(super) fn is_empty(&self) -> bool {
        let Self { local_pref, med, prepend, communities, large_communities, next_hop: _ } = self;
        let lists = communities.is_empty() && large_communities.is_empty();
        lists && local_pref.is_none() && med.is_none() && prepend.is_none()
    }

    pub(super) fn apply(&self, attributes: &mut Attributes, local_asn: u32) {
        if let Some(local_pref) = self.local_pref {
            attributes.local_pref = Some(local_pref);
        }
        if let Some(med) = self.med {
            attributes.med = med.of(attributes.med);
        }
        if let Some(Prepend { asn, count }) = self.prepend {
            let in_front = std::iter::repeat_n(asn.unwrap_or(local_asn), usize::from(count));
            let path = in_front.chain(attributes.as_path.asns().iter().copied());
            attributes.as_path = AsPath::new(path.collect());
        }
        if !self.communities.is_empty() {
            attributes.communities = self.communities.apply(&attributes.communities).into();
        }
        if !self.large_communities.is_empty() {
            attributes.change_rare(|rare| {
                rare.large_communities = self.large_communities.apply(&rare.large_communities);
            });
        }
    }
}

impl MedChange {
    pub(super) fn of(self, med: Option<u32>) -> Option<u32> {
        let before = med.unwrap_or(0);
        match self {
            Self::Set(med) => Some(med),
            Self::Add(more) => Some(before.saturating_add(more)),
            Self::Subtract(less) => Some(before.saturating_sub(less)),
            Self::Remove => None,
        }
    }
}
