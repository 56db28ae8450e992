//! A Merkle tree that grows to the right (RFC 6962 section 2.1), kept as its peaks: a few hashes, however long the log.

use super::hash::Hash;

/// The roots of the complete subtrees, the largest first: one for each bit that is set in the number of leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    size: u64,
    peaks: Vec<Hash>,
}

impl Tree {
    /// A tree of `size` leaves from its peaks; `None` if there are too few or too many of them.
    pub fn from_peaks(size: u64, peaks: Vec<Hash>) -> Option<Self> {
        (u32::try_from(peaks.len()) == Ok(size.count_ones())).then_some(Self { size, peaks })
    }

    /// Adds a leaf at the right.
    pub fn push(&mut self, leaf: Hash) {
        let mut hash = leaf;
        for _ in 0..self.size.trailing_ones() {
            let left = self.peaks.pop().expect("a bit that is set has its peak");
            hash = Hash::node(left, hash);
        }
        self.peaks.push(hash);
        self.size += 1;
    }

    /// How many leaves there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What [`Tree::from_peaks`] takes.
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// The hash over all leaves.
    pub fn root(&self) -> Hash {
        let joined = self.peaks.iter().rev().copied().reduce(|right, left| Hash::node(left, right));
        joined.unwrap_or_else(Hash::empty)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Leaves and roots of the test data that Certificate Transparency implementations share.
    pub(in super::super) const LEAVES: [&str; 8] =
        ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
    pub(in super::super) const ROOTS: [&str; 8] = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];

    pub(in super::super) fn leaf(index: usize) -> Hash {
        Hash::leaf(&hex::decode(LEAVES[index]).unwrap())
    }

    #[test]
    fn roots_are_those_of_rfc_6962() {
        let mut tree = Tree::default();
        assert_eq!(
            tree.root().to_string(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        for (index, root) in ROOTS.iter().enumerate() {
            tree.push(leaf(index));
            assert_eq!(tree.root().to_string(), *root, "{} leaves", index + 1);
            let again = Tree::from_peaks(tree.size(), tree.peaks().to_vec()).unwrap();
            assert_eq!(again, tree);
        }
        assert_eq!(Tree::from_peaks(7, tree.peaks().to_vec()), None);
    }
}
