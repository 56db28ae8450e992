//! The table of both families.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

use crate::{
    Seed,
    half::Half,
    key::{Either, V4, V6},
};

/// A map from prefixes to values. Host bits of a prefix don't count: `10.1.2.3/16` is `10.1.0.0/16`.
pub struct PrefixTable<V> {
    v4: Half<V4, V>,
    v6: Half<V6, V>,
}

impl<V> PrefixTable<V> {
    /// An empty table.
    pub fn new(seed: Seed) -> Self {
        Self { v4: Half::new(seed), v6: Half::new(seed) }
    }

    /// An empty table with room for this many IPv4 prefixes, so that it does not grow while they come.
    pub fn with_capacity(capacity: usize, seed: Seed) -> Self {
        Self { v4: Half::with_capacity(capacity, seed), v6: Half::new(seed) }
    }

    /// How many prefixes it holds.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// True if it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of exactly this prefix.
    pub fn get(&self, prefix: IpNet) -> Option<&V> {
        match prefix.into() {
            Either::V4(key) => self.v4.get(key),
            Either::V6(key) => self.v6.get(key),
        }
    }

    /// The value of exactly this prefix, to be changed.
    pub fn get_mut(&mut self, prefix: IpNet) -> Option<&mut V> {
        match prefix.into() {
            Either::V4(key) => self.v4.get_mut(key),
            Either::V6(key) => self.v6.get_mut(key),
        }
    }

    /// True if exactly this prefix is there.
    pub fn contains(&self, prefix: IpNet) -> bool {
        self.get(prefix).is_some()
    }

    /// Sets the value of a prefix; returns the one that it had.
    pub fn insert(&mut self, prefix: IpNet, value: V) -> Option<V> {
        match prefix.into() {
            Either::V4(key) => self.v4.insert(key, value),
            Either::V6(key) => self.v6.insert(key, value),
        }
    }

    /// The value of a prefix, made now if it has none.
    pub fn get_or_insert_with(&mut self, prefix: IpNet, make: impl FnOnce() -> V) -> &mut V {
        match prefix.into() {
            Either::V4(key) => self.v4.get_or_insert_with(key, make),
            Either::V6(key) => self.v6.get_or_insert_with(key, make),
        }
    }

    /// Takes a prefix out; returns the value that it had. Memory stays until [`PrefixTable::shrink`].
    pub fn remove(&mut self, prefix: IpNet) -> Option<V> {
        match prefix.into() {
            Either::V4(key) => self.v4.remove(key),
            Either::V6(key) => self.v6.remove(key),
        }
    }

    /// Takes a prefix out if `goes` says so, who may change its value otherwise; one search for both.
    pub fn take_if(&mut self, prefix: IpNet, goes: impl FnOnce(&mut V) -> bool) -> Option<V> {
        match prefix.into() {
            Either::V4(key) => self.v4.take_if(key, goes),
            Either::V6(key) => self.v6.take_if(key, goes),
        }
    }

    /// Takes out every prefix for which `keep` says false.
    pub fn retain(&mut self, mut keep: impl FnMut(IpNet, &mut V) -> bool) {
        self.v4.retain(&mut keep);
        self.v6.retain(&mut keep);
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.v4.clear();
        self.v6.clear();
    }

    /// Gives memory back if little of it is used. Costs next to nothing if there is nothing to give: call it after every batch of removals.
    pub fn shrink(&mut self) {
        self.v4.shrink();
        self.v6.shrink();
    }

    /// Every entry, IPv4 before IPv6, otherwise in no order.
    pub fn iter(&self) -> impl Iterator<Item = (IpNet, &V)> {
        let v4 = self.v4.iter().map(|(key, value)| (IpNet::from(*key), value));
        v4.chain(self.v6.iter().map(|(key, value)| (IpNet::from(*key), value)))
    }

    /// Every entry, its value to be changed; same order as [`PrefixTable::iter`].
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (IpNet, &mut V)> {
        let v4 = self.v4.iter_mut().map(|(key, value)| (IpNet::from(*key), value));
        v4.chain(self.v6.iter_mut().map(|(key, value)| (IpNet::from(*key), value)))
    }

    /// Every prefix; same order as [`PrefixTable::iter`].
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.iter().map(|(prefix, _)| prefix)
    }

    /// Every entry in the order of prefixes, IPv4 before IPv6: for people.
    pub fn sorted(&self) -> Vec<(IpNet, &V)> {
        let mut entries: Vec<_> = self.iter().collect();
        entries.sort_unstable_by_key(|(prefix, _)| *prefix);
        entries
    }

    /// The longest prefix that contains the address.
    pub fn lookup(&self, address: IpAddr) -> Option<(IpNet, &V)> {
        match address.into() {
            Either::V4(key) => self.v4.covering(key).next(),
            Either::V6(key) => self.v6.covering(key).next(),
        }
    }

    /// Every entry whose prefix contains `prefix`, itself included, the longest first: at most 33 or 129.
    pub fn covering(&self, prefix: IpNet) -> Vec<(IpNet, &V)> {
        match prefix.into() {
            Either::V4(key) => self.v4.covering(key).collect(),
            Either::V6(key) => self.v6.covering(key).collect(),
        }
    }
}

impl<V: fmt::Debug> fmt::Debug for PrefixTable<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.sorted()).finish()
    }
}
