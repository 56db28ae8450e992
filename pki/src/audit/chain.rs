//! The end of a log: what the next line must say.

use super::{
    hash::Hash,
    record::{self, Entry, Record},
    tree::Tree,
    verify::Reason,
};

/// Cheap to clone: a writer appends to a clone, writes the bytes, and keeps the clone once they are in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    last: Hash,
    tree: Tree,
}

impl Default for Chain {
    /// Before the first record.
    fn default() -> Self {
        Self { last: Hash::NONE, tree: Tree::default() }
    }
}

impl Chain {
    /// How many records there are; the sequence number of the last one.
    pub fn size(&self) -> u64 {
        self.tree.size()
    }

    /// The tree over all records.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Appends the line of the next record to `out`.
    pub fn append(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let hash = record::write(entry, self.size() + 1, None, self.last, out);
        self.take(hash);
    }

    /// As [`Chain::append`], for the first line of a file: with all that is needed to go on from there.
    pub fn open(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let hash = record::write(entry, self.size() + 1, Some(self.tree.peaks()), self.last, out);
        self.take(hash);
    }

    /// The chain before a file's first record; `None` if it is not one.
    pub fn before(first: &Record) -> Option<Self> {
        let size = first.seq.checked_sub(1)?;
        let chain = Self { last: first.prev, tree: Tree::from_peaks(size, first.peaks.clone()?)? };
        (size > 0 || chain.last == Hash::NONE).then_some(chain)
    }

    /// Takes a record that was read, if it is the next one.
    pub fn follow(&mut self, record: &Record) -> Result<(), Reason> {
        let expected = self.size() + 1;
        if record.seq != expected {
            return Err(Reason::Sequence { expected, found: record.seq });
        }
        if record.prev != self.last {
            return Err(Reason::Previous { expected: self.last, found: record.prev });
        }
        if record.peaks.as_ref().is_some_and(|peaks| peaks != self.tree.peaks()) {
            return Err(Reason::Peaks);
        }
        self.take(record.hash);
        Ok(())
    }

    fn take(&mut self, hash: Hash) {
        self.last = hash;
        self.tree.push(hash);
    }
}
