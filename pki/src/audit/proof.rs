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
    use crate::audit::tree::tests::{LEAVES, ROOTS, leaf};

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

    const A: &str = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d";
    const B: &str = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7";
    const AB: &str = "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125";
    const CD: &str = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e";
    const ABCD: &str = "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7";
    const E: &str = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b";
    const EF: &str = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a";
    const GH: &str = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0";
    const EFGH: &str = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4";

    fn hashes(texts: &[&str]) -> Vec<Hash> {
        texts.iter().map(|text| Hash::from_hex(text.as_bytes()).unwrap()).collect()
    }

    /// The leaves are those of the tree that Certificate Transparency implementations share, and so are the proofs.
    #[test]
    fn proofs_are_those_of_certificate_transparency() {
        let all: Vec<Hash> = (0..LEAVES.len()).map(leaf).collect();
        let root = |size: u64| hashes(&[ROOTS[usize::try_from(size).unwrap() - 1]])[0];
        let head = |size: u64| &all[..usize::try_from(size).unwrap()];
        // Index from 0, size, path.
        for (index, size, path) in [
            (0, 1, &[][..]),
            (0, 8, &[B, CD, EFGH]),
            (5, 8, &[E, GH, ABCD]),
            (2, 3, &[AB]),
            (1, 5, &[A, CD, E]),
        ] {
            let path = hashes(path);
            assert_eq!(gather(inclusion(index, size).unwrap(), head(size)), path, "{index} of {size}");
            let leaf = all[usize::try_from(index).unwrap()];
            assert!(verify_inclusion(leaf, index, size, &path, root(size)), "{index} of {size}");
        }
        for (first, size, path) in
            [(1, 1, &[][..]), (1, 8, &[B, CD, EFGH]), (6, 8, &[EF, GH, ABCD]), (2, 5, &[CD, E])]
        {
            let path = hashes(path);
            assert_eq!(gather(consistency(first, size).unwrap(), head(size)), path, "{first} to {size}");
            assert!(verify_consistency(first, root(first), size, root(size), &path), "{first} to {size}");
        }
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
