//! The table of one family.

use std::collections::{
    HashMap,
    hash_map::{self, Entry},
};

use foldhash::fast::SeedableRandomState;
use ipnet::IpNet;

use crate::{Seed, key::Key};

/// A table this small is not worth shrinking.
const SMALL: usize = 64;
/// Memory is given back when fewer than one in so many places is used.
const SPARSE: usize = 4;

pub(crate) struct Half<K, V> {
    entries: HashMap<K, V, SeedableRandomState>,
    /// How many prefixes there are of each length, so that a search probes only lengths that occur.
    lengths: Box<[usize]>,
}

impl<K: Key, V> Half<K, V> {
    pub(crate) fn new(seed: Seed) -> Self {
        Self::with_capacity(0, seed)
    }

    pub(crate) fn with_capacity(capacity: usize, seed: Seed) -> Self {
        Self {
            entries: HashMap::with_capacity_and_hasher(capacity, seed.hasher()),
            lengths: vec![0; usize::from(K::BITS) + 1].into(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.entries.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.entries.get_mut(&key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let old = self.entries.insert(key, value);
        self.lengths[usize::from(key.length())] += usize::from(old.is_none());
        old
    }

    pub(crate) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        match self.entries.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.lengths[usize::from(key.length())] += 1;
                entry.insert(make())
            }
        }
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let old = self.entries.remove(&key);
        self.lengths[usize::from(key.length())] -= usize::from(old.is_some());
        old
    }

    /// See [`crate::PrefixTable::take_if`].
    pub(crate) fn take_if(&mut self, key: K, goes: impl FnOnce(&mut V) -> bool) -> Option<V> {
        let Entry::Occupied(mut entry) = self.entries.entry(key) else { return None };
        if !goes(entry.get_mut()) {
            return None;
        }
        self.lengths[usize::from(key.length())] -= 1;
        Some(entry.remove())
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(IpNet, &mut V) -> bool) {
        let lengths = &mut self.lengths;
        self.entries.retain(|key, value| {
            let kept = keep((*key).into(), value);
            lengths[usize::from(key.length())] -= usize::from(!kept);
            kept
        });
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.lengths.fill(0);
    }

    pub(crate) fn shrink(&mut self) {
        let capacity = self.entries.capacity();
        if capacity > SMALL && self.entries.len() < capacity / SPARSE {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    pub(crate) fn iter(&self) -> hash_map::Iter<'_, K, V> {
        self.entries.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> hash_map::IterMut<'_, K, V> {
        self.entries.iter_mut()
    }

    /// Entries that contain `key`, itself included, the longest first.
    pub(crate) fn covering(&self, key: K) -> impl Iterator<Item = (IpNet, &V)> {
        let lengths = (0..=key.length()).rev().filter(|length| self.lengths[usize::from(*length)] > 0);
        lengths.filter_map(move |length| {
            self.entries.get_key_value(&key.parent(length)).map(|(key, value)| ((*key).into(), value))
        })
    }
}
