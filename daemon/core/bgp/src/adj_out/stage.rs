//! What is about to be sent: a window of prefixes, compared with what the peer holds and sorted for packing.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use ipnet::IpNet;

use super::Cursor;
use crate::{
    Family,
    wire::{Attributes, Nlri},
};

/// Paths with the same attributes.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) attributes: Arc<Attributes>,
    pub(super) nlri: Vec<Nlri>,
}

#[derive(Debug, Default)]
pub(super) struct Stage {
    /// By family.
    pub(super) withdrawals: [Vec<Nlri>; 2],
    pub(super) groups: VecDeque<Group>,
    /// Groups ever made in this window, and where each set of attributes is among them. A group keeps its attributes alive, so that
    /// their address means nothing else.
    made: usize,
    by_attributes: HashMap<(usize, Family), usize>,
    /// Paths among these that the peer does not hold yet, by family.
    pub(super) new: [usize; 2],
    /// They come from a dump.
    pub(super) dumped: bool,
    /// What the window was compared with.
    pub(super) at: Cursor,
}

impl Stage {
    pub(super) fn new(at: Cursor) -> Self {
        Self { at, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.withdrawals.iter().all(Vec::is_empty)
    }

    pub(super) fn withdraw(&mut self, nlri: Nlri) {
        self.withdrawals[Family::of(&nlri.prefix).index()].push(nlri);
    }

    pub(super) fn announce(&mut self, nlri: Nlri, attributes: &Arc<Attributes>, new: bool) {
        let family = Family::of(&nlri.prefix);
        self.new[family.index()] += usize::from(new);
        let key = (Arc::as_ptr(attributes).addr(), family);
        let number = *self.by_attributes.entry(key).or_insert(self.made);
        if number == self.made {
            self.made += 1;
            self.groups.push_back(Group { attributes: Arc::clone(attributes), nlri: Vec::new() });
        }
        // Nothing is taken out while a window is filled, so that numbers are places.
        self.groups[number].nlri.push(nlri);
    }

    /// The first group is through.
    pub(super) fn finish_group(&mut self) {
        self.groups.pop_front();
    }

    /// Every prefix of the window, which is given up.
    pub(super) fn prefixes(self) -> impl Iterator<Item = IpNet> {
        let announced = self.groups.into_iter().flat_map(|group| group.nlri);
        self.withdrawals.into_iter().flatten().chain(announced).map(|nlri| nlri.prefix)
    }
}
