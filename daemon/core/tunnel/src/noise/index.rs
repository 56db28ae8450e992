//! Receiver indices as strangers see them. Inside, an index says whose it is, so that the look-up needs no table that changes; outside
//! it must say nothing, not even that two sessions are of one peer.

use crate::packet::mix;

/// A permutation of all 32-bit numbers under a secret key: four Feistel rounds over halves of 16 bits.
pub(crate) struct Mask([u64; ROUNDS]);

const ROUNDS: usize = 4;

impl Mask {
    /// From 32 secret bytes.
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let (words, _) = key.as_chunks::<8>();
        Self(std::array::from_fn(|round| u64::from_le_bytes(words[round])))
    }

    /// What goes onto the wire.
    pub(crate) fn hide(&self, index: u32) -> u32 {
        let (left, right) =
            self.0.iter().fold(halves(index), |(left, right), key| (right, left ^ blend(*key, right)));
        whole(left, right)
    }

    /// What came from the wire.
    pub(crate) fn reveal(&self, hidden: u32) -> u32 {
        let rounds = self.0.iter().rev();
        let (left, right) =
            rounds.fold(halves(hidden), |(left, right), key| (right ^ blend(*key, left), left));
        whole(left, right)
    }
}

fn blend(key: u64, half: u16) -> u16 {
    let [a, b, ..] = mix(mix(key ^ u64::from(half)) ^ key.rotate_left(32)).to_le_bytes();
    u16::from_le_bytes([a, b])
}

fn halves(number: u32) -> (u16, u16) {
    let [a, b, c, d] = number.to_be_bytes();
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

fn whole(left: u16, right: u16) -> u32 {
    u32::from(left) << 16 | u32::from(right)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sessions_of_one_peer_have_nothing_in_common() {
        let mask = Mask::new(&std::array::from_fn(|n| u8::try_from(n).unwrap()));
        let hidden: Vec<u32> = (0..256).map(|low| mask.hide(0x1234_5600 | low)).collect();
        let heads: HashSet<u32> = hidden.iter().map(|index| index >> 8).collect();
        assert!(heads.len() > 250, "{} different heads of 256", heads.len());
        for bit in 0..32 {
            let ones = hidden.iter().filter(|index| **index >> bit & 1 == 1).count();
            assert!((80..176).contains(&ones), "bit {bit} is set in {ones} of 256");
        }
    }

    proptest! {
        #[test]
        fn what_is_hidden_can_be_revealed(key: [u8; 32], index: u32) {
            let mask = Mask::new(&key);
            prop_assert_eq!(mask.reveal(mask.hide(index)), index);
            prop_assert_eq!(mask.hide(mask.reveal(index)), index);
        }
    }
}
