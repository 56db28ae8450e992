//! What changed lately, for readers that have not seen it yet.

use std::collections::{HashMap, VecDeque};

use ipnet::IpNet;

/// Changes remembered for readers; one that is further behind gets the whole table.
pub(super) const LENGTH: usize = 65_536;

/// Numbered changes, and how far each reader is.
#[derive(Default)]
pub(super) struct Log {
    /// (version, the prefixes that it changed), oldest first.
    batches: VecDeque<(u64, Box<[IpNet]>)>,
    /// Prefixes in all batches.
    length: usize,
    version: u64,
    /// The last version no longer here.
    forgotten: u64,
    /// What each reader has seen.
    readers: HashMap<u64, u64>,
    next_reader: u64,
}

impl Log {
    /// The last version.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Adds a version.
    pub(super) fn push(&mut self, changed: Vec<IpNet>) {
        self.version += 1;
        self.length += changed.len();
        self.batches.push_back((self.version, changed.into()));
        let seen = self.readers.values().min().copied().unwrap_or(self.version);
        while self.batches.front().is_some_and(|(version, _)| *version <= seen || self.length > LENGTH) {
            self.forget_oldest();
        }
    }

    /// Prefixes changed since `seen`, each once; `None` if that is too long ago.
    pub(super) fn since(&self, seen: u64) -> Option<Vec<IpNet>> {
        if seen < self.forgotten {
            return None;
        }
        let first = self.batches.partition_point(|(version, _)| *version <= seen);
        let mut prefixes: Vec<IpNet> =
            self.batches.range(first..).flat_map(|(_, changed)| changed).copied().collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        Some(prefixes)
    }

    /// The number of a reader; nothing is kept for it before it has seen something.
    pub(super) fn add_reader(&mut self) -> u64 {
        self.next_reader += 1;
        self.next_reader
    }

    /// A reader has seen everything up to now. What all have seen is forgotten.
    pub(super) fn read(&mut self, reader: u64) {
        self.readers.insert(reader, self.version);
        self.trim();
    }

    /// A reader is gone.
    pub(super) fn remove_reader(&mut self, reader: u64) {
        self.readers.remove(&reader);
        self.trim();
    }

    fn trim(&mut self) {
        let seen = self.readers.values().min().copied().unwrap_or(self.version);
        while self.batches.front().is_some_and(|(version, _)| *version <= seen) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((version, changed)) = self.batches.pop_front() {
            self.forgotten = version;
            self.length -= changed.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(count: usize) -> Vec<IpNet> {
        vec!["10.0.0.0/8".parse().unwrap(); count]
    }

    #[test]
    fn nothing_is_kept_that_all_have_seen() {
        let mut log = Log::default();
        log.push(nets(1));
        assert_eq!(log.length, 0, "nobody reads");
        let (one, two) = (log.add_reader(), log.add_reader());
        log.read(one);
        log.read(two);
        log.push(nets(1));
        log.read(one);
        assert_eq!((log.length, log.since(1)), (1, Some(nets(1))));
        log.read(two);
        assert_eq!((log.length, log.batches.len()), (0, 0));
        log.push(nets(1));
        log.remove_reader(one);
        assert_eq!(log.length, 1, "the other has not seen it");
        log.remove_reader(two);
        assert_eq!(log.length, 0);
    }

    #[test]
    fn a_reader_that_sleeps_costs_a_bounded_memory() {
        let mut log = Log::default();
        let reader = log.add_reader();
        log.read(reader);
        for _ in 0..10 {
            log.push(nets(LENGTH / 4));
        }
        assert!(log.length <= LENGTH);
        assert_eq!(log.since(0), None);
        assert!(log.since(9).is_some());
    }
}
