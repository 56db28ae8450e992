//! What changed in the table, written once, read by every peer at its own pace.

use std::collections::VecDeque;

use ipnet::IpNet;

use crate::rib::Change;

/// Prefixes in the order in which they changed, those that lost their last path apart: peers hear of these first.
#[derive(Debug, Default)]
pub struct Changes {
    lost: Journal,
    other: Journal,
}

/// A reader's place in [`Changes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub(super) lost: u64,
    pub(super) other: u64,
}

impl Changes {
    /// Writes down that a prefix changed.
    pub fn push(&mut self, prefix: IpNet, change: Change) {
        match change {
            Change::None => {}
            Change::Lost => self.lost.entries.push_back(prefix),
            Change::Paths | Change::Best => self.other.entries.push_back(prefix),
        }
    }

    /// The place of a reader that knows everything.
    pub fn end(&self) -> Cursor {
        Cursor { lost: self.lost.end(), other: self.other.end() }
    }

    /// How much a reader at this place has not read.
    pub fn unread(&self, cursor: Cursor) -> usize {
        self.lost.unread(cursor.lost) + self.other.unread(cursor.other)
    }

    /// Forgets what all of these readers have read.
    pub fn forget(&mut self, readers: impl Iterator<Item = Cursor>) {
        let end = self.end();
        let min = |a: Cursor, b: Cursor| Cursor { lost: a.lost.min(b.lost), other: a.other.min(b.other) };
        let read = readers.fold(end, min);
        self.lost.forget(read.lost);
        self.other.forget(read.other);
    }

    /// True if a reader at this place has not read of all prefixes that were lost.
    pub(super) fn any_lost(&self, cursor: Cursor) -> bool {
        self.lost.unread(cursor.lost) > 0
    }

    /// Moves a place over the next lost prefixes, at most `count`; returns them.
    pub(super) fn read_lost<'a>(
        &'a self,
        place: &mut u64,
        count: usize,
    ) -> impl Iterator<Item = IpNet> + use<'a> {
        self.lost.read(place, count)
    }

    /// Moves a place over the next others.
    pub(super) fn read_other<'a>(
        &'a self,
        place: &mut u64,
        count: usize,
    ) -> impl Iterator<Item = IpNet> + use<'a> {
        self.other.read(place, count)
    }
}

#[derive(Debug, Default)]
struct Journal {
    entries: VecDeque<IpNet>,
    /// Entries forgotten: the place of the first that is left.
    start: u64,
}

impl Journal {
    fn end(&self) -> u64 {
        self.start + self.entries.len() as u64
    }

    fn unread(&self, place: u64) -> usize {
        self.entries.len() - self.index(place)
    }

    fn index(&self, place: u64) -> usize {
        usize::try_from(place.saturating_sub(self.start))
            .map_or(usize::MAX, |index| index.min(self.entries.len()))
    }

    fn read<'a>(&'a self, place: &mut u64, count: usize) -> impl Iterator<Item = IpNet> + use<'a> {
        let first = self.index(*place);
        let last = self.entries.len().min(first.saturating_add(count));
        *place = self.start + last as u64;
        self.entries.range(first..last).copied()
    }

    fn forget(&mut self, place: u64) {
        let read = self.index(place);
        self.entries.drain(..read);
        self.start += read as u64;
        if self.entries.is_empty() {
            // A burst should not keep its memory.
            self.entries = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_keep_their_places() {
        let net = |n: u8| IpNet::new([10, n, 0, 0].into(), 16).unwrap();
        let mut changes = Changes::default();
        let mut early = changes.end();
        (0..5).for_each(|n| changes.push(net(n), Change::Best));
        changes.push(net(9), Change::Lost);
        let late = changes.end();
        assert_eq!((changes.unread(early), changes.unread(late)), (6, 0));
        assert_eq!(changes.read_other(&mut early.other, 2).collect::<Vec<_>>(), [net(0), net(1)]);
        changes.forget([early, late].into_iter());
        assert_eq!(changes.unread(early), 4);
        assert_eq!(changes.read_other(&mut early.other, 99).collect::<Vec<_>>(), [net(2), net(3), net(4)]);
        assert_eq!(changes.read_lost(&mut early.lost, 99).collect::<Vec<_>>(), [net(9)]);
        assert_eq!(early, late);
        changes.forget([early].into_iter());
        assert_eq!((changes.lost.entries.capacity(), changes.end()), (0, late));
    }
}
