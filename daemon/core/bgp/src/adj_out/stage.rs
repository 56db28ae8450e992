//! What is about to be sent: a window of prefixes, compared with what the peer holds and sorted for packing.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use ipnet::IpNet;

use super::{Cursor, told::Told};
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

impl Group {
    fn takes(&self, attributes: &Arc<Attributes>, family: Family) -> bool {
        let same_family = self.nlri.first().is_some_and(|first| Family::of(&first.prefix) == family);
        same_family && Arc::ptr_eq(&self.attributes, attributes)
    }
}

/// What is to be withdrawn. It is no longer among what the peer holds, so that it costs one look there and not three.
#[derive(Debug, Default)]
pub(super) struct Withdrawals {
    pub(super) nlri: Vec<Nlri>,
    /// What the peer holds of each until it hears of it.
    attributes: Vec<Arc<Attributes>>,
}

impl Withdrawals {
    /// The first `count` are on their way.
    pub(super) fn sent(&mut self, count: usize) {
        self.nlri.drain(..count);
        self.attributes.drain(..count);
    }
}

#[derive(Debug, Default)]
pub(super) struct Stage {
    /// By family.
    pub(super) withdrawals: [Withdrawals; 2],
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
        self.groups.is_empty() && !self.has_withdrawals()
    }

    pub(super) fn has_withdrawals(&self) -> bool {
        self.withdrawals.iter().any(|family| !family.nlri.is_empty())
    }

    /// `attributes`: what the peer holds, and is not [`Told`] any more.
    pub(super) fn withdraw(&mut self, nlri: Nlri, attributes: Arc<Attributes>) {
        let family = &mut self.withdrawals[Family::of(&nlri.prefix).index()];
        family.nlri.push(nlri);
        family.attributes.push(attributes);
    }

    pub(super) fn announce(&mut self, nlri: Nlri, attributes: &Arc<Attributes>, new: bool) {
        let family = Family::of(&nlri.prefix);
        self.new[family.index()] += usize::from(new);
        // Prefixes with the same attributes come together.
        if let Some(last) = self.groups.back_mut().filter(|last| last.takes(attributes, family)) {
            return last.nlri.push(nlri);
        }
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

    /// Gives the window up: the peer holds what it did. Returns every prefix of it.
    pub(super) fn give_up(self, told: &mut Told) -> Vec<IpNet> {
        let announced = self.groups.into_iter().flat_map(|group| group.nlri);
        let mut prefixes: Vec<_> = announced.map(|nlri| nlri.prefix).collect();
        for Withdrawals { nlri, attributes } in self.withdrawals {
            for (Nlri { prefix, path_id }, attributes) in nlri.into_iter().zip(attributes) {
                told.insert(prefix, path_id, attributes);
                prefixes.push(prefix);
            }
        }
        prefixes
    }
}
