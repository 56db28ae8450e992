//! What passes between the engine and its sockets: inner packets, datagrams, and reused memory for batches of them.

use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
};

pub use crate::plaintext::Plaintext;

use crate::ecn::Ecn;

/// The two ends of an outer path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OuterPath {
    /// The far end.
    pub remote: SocketAddr,
    /// Our address on this path; `None`: the kernel chooses.
    pub local: Option<IpAddr>,
}

impl From<SocketAddr> for OuterPath {
    /// A path whose near end the kernel chooses.
    fn from(remote: SocketAddr) -> Self {
        Self { remote, local: None }
    }
}

/// A datagram as received.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// What was in it; the engine decrypts in place.
    pub bytes: &'a mut [u8],
    /// Where it came from, and the address of ours that it came to.
    pub path: OuterPath,
    /// The ECN field of its outer header.
    pub ecn: Ecn,
}

/// An inner packet as it came out of the tunnel: authentic, not yet looked at, and still padded.
#[derive(Debug)]
pub struct Opened<'a> {
    /// The packet and its padding, within the memory of the datagram.
    pub bytes: &'a mut [u8],
    /// The ECN field of the outer header.
    pub ecn: Ecn,
}

/// A datagram in an [`Outbox`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where its bytes are in [`Outbox::bytes`].
    pub range: Range<usize>,
    /// Where it goes.
    pub path: OuterPath,
    /// The ECN field for its outer header.
    pub ecn: Ecn,
}

/// Datagrams on their way out, in sending order and back to back: the end of one is the start of the next, so that neighbours of equal
/// length can leave as one piece of memory. One allocation that grows to the largest batch seen, then none.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Its length is what was ever needed; [`Outbox::used`] says how much is filled.
    arena: Vec<u8>,
    entries: Vec<Entry>,
    /// What lies behind the last entry and is no datagram yet, so that nobody can send it.
    drafts: Vec<Entry>,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `write` put a datagram of up to `capacity` bytes; it returns the length used, or `None` for no datagram. The slot holds
    /// anything before.
    pub(crate) fn write(
        &mut self,
        capacity: usize,
        path: OuterPath,
        ecn: Ecn,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        self.drafts.clear();
        let start = self.used();
        let Some(length) = write(self.room(start, capacity)) else { return false };
        self.entries.push(Entry { range: start..start + length.min(capacity), path, ecn });
        true
    }

    /// Lets `write` put what becomes a datagram of `length` bytes with [`Outbox::finish`]; any other datagram instead of that forgets it.
    /// The slot holds anything before.
    pub(crate) fn draft(&mut self, length: usize, path: OuterPath, ecn: Ecn, write: impl FnOnce(&mut [u8])) {
        let start = self.drafts.last().map_or(self.used(), |draft| draft.range.end);
        write(self.room(start, length));
        self.drafts.push(Entry { range: start..start + length, path, ecn });
    }

    /// Forgets the drafts.
    pub(crate) fn forget_drafts(&mut self) {
        self.drafts.clear();
    }

    /// How many drafts there are.
    pub(crate) fn drafts(&self) -> usize {
        self.drafts.len()
    }

    /// Lets `finish` complete the drafts in their order. If it says true they are datagrams, else they are forgotten.
    pub(crate) fn finish(
        &mut self,
        finish: impl FnOnce(&mut dyn Iterator<Item = &mut [u8]>) -> bool,
    ) -> bool {
        let mut rest = &mut self.arena[self.entries.last().map_or(0, |entry| entry.range.end)..];
        let mut slots = self.drafts.iter().map(|draft| {
            let (slot, behind) = std::mem::take(&mut rest).split_at_mut(draft.range.len());
            rest = behind;
            slot
        });
        let finished = finish(&mut slots);
        if finished {
            self.entries.append(&mut self.drafts);
        }
        self.drafts.clear();
        finished
    }

    /// So many bytes of the arena.
    fn room(&mut self, start: usize, length: usize) -> &mut [u8] {
        let end = start + length;
        if self.arena.len() < end {
            self.arena.resize(end, 0);
        }
        &mut self.arena[start..end]
    }

    /// Appends a datagram.
    pub fn push(&mut self, datagram: &[u8], path: OuterPath, ecn: Ecn) {
        self.write(datagram.len(), path, ecn, |slot| {
            slot.copy_from_slice(datagram);
            Some(datagram.len())
        });
    }

    /// The datagrams in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], OuterPath, Ecn)> {
        self.entries.iter().map(|entry| (&self.arena[entry.range.clone()], entry.path, entry.ecn))
    }

    /// Where each datagram lies and where it goes, in order and without gaps.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// All datagrams, one behind the other.
    pub fn bytes(&self) -> &[u8] {
        &self.arena[..self.used()]
    }

    /// Number of datagrams.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets the datagrams, keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.drafts.clear();
    }

    fn used(&self) -> usize {
        self.entries.last().map_or(0, |entry| entry.range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_lie_back_to_back_and_memory_is_reused() {
        let to: SocketAddr = "192.0.2.1:1".parse().unwrap();
        let mut outbox = Outbox::new();
        for round in 0..3 {
            outbox.write(100, to.into(), Ecn::Ect0, |slot| {
                slot[..3].copy_from_slice(b"one");
                Some(3)
            });
            assert!(!outbox.write(100, to.into(), Ecn::NotEct, |_| None));
            outbox.write(100, to.into(), Ecn::NotEct, |slot| {
                slot[0] = round;
                Some(1)
            });
            let sent: Vec<Vec<u8>> = outbox.iter().map(|(bytes, _, _)| bytes.to_vec()).collect();
            assert_eq!(sent, [b"one".to_vec(), vec![round]]);
            assert_eq!(outbox.bytes(), [b"one".as_slice(), &[round]].concat());
            let ranges: Vec<Range<usize>> =
                outbox.entries().iter().map(|entry| entry.range.clone()).collect();
            assert_eq!(ranges, [0..3, 3..4]);
            assert_eq!(outbox.entries()[0].ecn, Ecn::Ect0);
            assert_eq!(outbox.arena.len(), 103);
            outbox.clear();
            assert!(outbox.is_empty() && outbox.bytes().is_empty());
        }
    }

    #[test]
    fn drafts_are_no_datagrams_before_they_are_finished() {
        let to: SocketAddr = "192.0.2.1:1".parse().unwrap();
        let mut outbox = Outbox::new();
        let draft = |outbox: &mut Outbox| {
            for (length, ecn) in [(2, Ecn::Ect0), (3, Ecn::Ce)] {
                outbox.draft(length, to.into(), ecn, |slot| slot.fill(b'-'));
            }
        };
        outbox.push(b"one", to.into(), Ecn::NotEct);
        draft(&mut outbox);
        assert_eq!((outbox.drafts(), outbox.len(), outbox.bytes()), (2, 1, b"one".as_slice()));
        assert!(!outbox.finish(|slots| slots.count() > 2));
        assert_eq!((outbox.drafts(), outbox.len()), (0, 1), "not finished, so forgotten");
        draft(&mut outbox);
        assert!(outbox.finish(|slots| {
            slots.zip(*b"ab").for_each(|(slot, name)| slot[0] = name);
            true
        }));
        assert_eq!(outbox.bytes(), b"onea-b--");
        let entries: Vec<_> = outbox.entries().iter().map(|entry| (entry.range.clone(), entry.ecn)).collect();
        assert_eq!(entries[1..], [(3..5, Ecn::Ect0), (5..8, Ecn::Ce)]);
        draft(&mut outbox);
        outbox.push(b"two", to.into(), Ecn::NotEct);
        assert_eq!((outbox.drafts(), outbox.bytes()), (0, b"onea-b--two".as_slice()));
        draft(&mut outbox);
        outbox.clear();
        assert!(outbox.finish(|slots| slots.next().is_none()));
        assert!(outbox.is_empty());
    }
}
