//! Proofs over the tree: that a record is under a head (RFC 6962 section 2.1.1), that a head continues an earlier one (2.1.2).
//!
//! A proof is a list of roots of ranges of leaves. [`inclusion`] and [`consistency`] say which ranges, [`Gather`] computes them while
//! the log is read once from its start, so that no proof needs the log in memory.

use std::ops::Range;

use super::{hash::Hash, tree::Tree};

/// The ranges whose roots prove that leaf `index` is one of `size`, from the leaf upwards; `None` if it is not.
pub fn inclusion(index: u64, size: u64) -> Option<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let (mut start, mut end) = (0, size);
    if index >= size {
        return None;
    }
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            ranges.push(middle..end);
            end = middle;
        } else {
            ranges.push(start..middle);
            start = middle;
        }
    }
    ranges.reverse();
    Some(ranges)
}

/// The ranges whose roots prove that a tree of `size` leaves continues the one of its first `first`; `None` if it is shorter.
pub fn consistency(first: u64, size: u64) -> Option<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let (mut start, mut end) = (0, size);
    if first == 0 || first > size {
        return None;
    }
    while end > first {
        let middle = start + split(end - start);
        if first <= middle {
            ranges.push(middle..end);
            end = middle;
        } else {
            ranges.push(start..middle);
            start = middle;
        }
    }
    // A left edge that reaches down to the first leaf is the earlier head itself, which the verifier has.
    if start > 0 {
        ranges.push(start..end);
    }
    ranges.reverse();
    Some(ranges)
}

/// The largest power of two below `size`, for a size of at least two.
fn split(size: u64) -> u64 {
    1 << (63 - (size - 1).leading_zeros())
}

/// Computes the roots of ranges of leaves. Give it every leaf from the first on.
#[derive(Debug)]
pub struct Gather {
    at: u64,
    ranges: Vec<(Range<u64>, Tree)>,
}

impl Gather {
    /// For ranges from [`inclusion`] or [`consistency`].
    pub fn new(ranges: Vec<Range<u64>>) -> Self {
        Self { at: 0, ranges: ranges.into_iter().map(|range| (range, Tree::default())).collect() }
    }

    /// Takes the next leaf.
    pub fn push(&mut self, leaf: Hash) {
        let at = self.at;
        self.ranges.iter_mut().filter(|(range, _)| range.contains(&at)).for_each(|(_, tree)| tree.push(leaf));
        self.at += 1;
    }

    /// The proof; `None` if leaves are missing.
    pub fn finish(self) -> Option<Vec<Hash>> {
        let root =
            |(range, tree): (Range<u64>, Tree)| (tree.size() == range.end - range.start).then(|| tree.root());
        self.ranges.into_iter().map(root).collect()
    }
}

/// Does `path` prove that `leaf` is leaf `index` of the `size` under `root`? (RFC 9162 section 2.1.3.2)
pub fn verify_inclusion(leaf: Hash, index: u64, size: u64, path: &[Hash], root: Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last, mut hash) = (index, size - 1, leaf);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            hash = Hash::node(*sibling, hash);
            let skip = at.trailing_zeros().min(63);
            if at != 0 {
                (at, last) = (at >> skip, last >> skip);
            }
        } else {
            hash = Hash::node(hash, *sibling);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    last == 0 && hash == root
}

/// Does `path` prove that the tree of `size` leaves under `root` continues the one of `first` leaves under `first_root`?
/// (RFC 9162 section 2.1.4.2)
pub fn verify_consistency(first: u64, first_root: Hash, size: u64, root: Hash, path: &[Hash]) -> bool {
    if first == 0 || first > size {
        return false;
    }
    if first == size {
        return path.is_empty() && first_root == root;
    }
    let known = first.is_power_of_two().then_some(first_root);
    let mut path = known.into_iter().chain(path.iter().copied());
    let Some(start) = path.next() else { return false };
    let skip = (first - 1).trailing_ones();
    let shift = |value: u64| value.checked_shr(skip).unwrap_or(0);
    let (mut at, mut last) = (shift(first - 1), shift(size - 1));
    let (mut old, mut new) = (start, start);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            (old, new) = (Hash::node(sibling, old), Hash::node(sibling, new));
            if at != 0 {
                let skip = at.trailing_zeros();
                (at, last) = (at >> skip, last >> skip);
            }
        } else {
            new = Hash::node(new, sibling);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    last == 0 && old == first_root && new == root
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaves(size: u64) -> Vec<Hash> {
        (0..size).map(|index| Hash::leaf(&index.to_be_bytes())).collect()
    }

    fn root(leaves: &[Hash]) -> Hash {
        let mut tree = Tree::default();
        leaves.iter().for_each(|leaf| tree.push(*leaf));
        tree.root()
    }

    fn gather(ranges: Vec<Range<u64>>, leaves: &[Hash]) -> Vec<Hash> {
        let mut gather = Gather::new(ranges);
        leaves.iter().for_each(|leaf| gather.push(*leaf));
        gather.finish().unwrap()
    }

    #[test]
    fn paths_are_those_of_rfc_6962_section_2_1_3() {
        // The tree of seven leaves that the RFC draws: PATH(0), PATH(3), PATH(4), PATH(6); PROOF(3), PROOF(4), PROOF(6).
        assert_eq!(inclusion(0, 7).unwrap(), [1..2, 2..4, 4..7]);
        assert_eq!(inclusion(3, 7).unwrap(), [2..3, 0..2, 4..7]);
        assert_eq!(inclusion(4, 7).unwrap(), [5..6, 6..7, 0..4]);
        assert_eq!(inclusion(6, 7).unwrap(), [4..6, 0..4]);
        assert_eq!(consistency(3, 7).unwrap(), [2..3, 3..4, 0..2, 4..7]);
        assert_eq!(consistency(4, 7).unwrap(), vec![4..7]);
        assert_eq!(consistency(6, 7).unwrap(), [4..6, 6..7, 0..4]);
        assert_eq!((inclusion(7, 7), consistency(0, 7), consistency(8, 7)), (None, None, None));
    }

    #[test]
    fn every_proof_up_to_forty_leaves_holds_and_no_other() {
        for size in 1..40 {
            let all = leaves(size);
            let head = root(&all);
            for index in 0..size {
                let leaf = all[usize::try_from(index).unwrap()];
                let path = gather(inclusion(index, size).unwrap(), &all);
                assert!(verify_inclusion(leaf, index, size, &path, head), "{index} of {size}");
                assert!(!verify_inclusion(leaf, index + 1, size, &path, head), "{index} of {size}");
                assert!(!verify_inclusion(Hash::leaf(b"other"), index, size, &path, head));
                let longer: Vec<Hash> = path.iter().copied().chain([head]).collect();
                assert!(!verify_inclusion(leaf, index, size, &longer, head));

                let (first, earlier) = (index + 1, root(&all[..=usize::try_from(index).unwrap()]));
                let path = gather(consistency(first, size).unwrap(), &all);
                assert!(verify_consistency(first, earlier, size, head, &path), "{first} to {size}");
                assert!(!verify_consistency(first, Hash::empty(), size, head, &path), "{first} to {size}");
                assert!(!verify_consistency(first, earlier, size, Hash::empty(), &path), "{first} to {size}");
            }
        }
    }

    #[test]
    fn missing_leaves_make_no_proof() {
        let mut gather = Gather::new(inclusion(0, 2).unwrap());
        gather.push(Hash::empty());
        assert_eq!(gather.finish(), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(a: u64, b: u64, count in 0usize..70) {
            let path = vec![Hash::empty(); count];
            verify_inclusion(Hash::empty(), a, b, &path, Hash::NONE);
            verify_consistency(a, Hash::empty(), b, Hash::NONE, &path);
            prop_assert!(inclusion(a, b).is_none_or(|ranges| ranges.len() <= 64));
            prop_assert!(consistency(a, b).is_none_or(|ranges| ranges.len() <= 65));
        }
    }
}
