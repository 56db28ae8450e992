//! A stream of octets in which each place has its own value, so that one that is lost, doubled, moved or changed shows.

const WORD: u64 = 8;

/// A stream and a place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    seed: u64,
    offset: u64,
}

impl Pattern {
    /// From the beginning; streams with different seeds differ everywhere.
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, offset: 0 }
    }

    /// How far it was taken.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// What comes next, without going on.
    pub(super) fn fill(&self, into: &mut [u8]) {
        let mut at = self.offset;
        let mut rest = into;
        while !rest.is_empty() {
            let word = word(self.seed, at / WORD);
            let skip = usize::try_from(at % WORD).unwrap_or_default();
            let length = (word.len() - skip).min(rest.len());
            let (now, later) = rest.split_at_mut(length);
            now.copy_from_slice(&word[skip..skip + length]);
            (rest, at) = (later, at + length as u64);
        }
    }

    /// Goes on by this many octets.
    pub(super) fn advance(&mut self, octets: usize) {
        self.offset += octets as u64;
    }

    /// Goes on over `received`; `Err`: the place of the first octet that is another one. `scratch` is as long or longer.
    pub(super) fn check(&mut self, received: &[u8], scratch: &mut [u8]) -> Result<(), u64> {
        let expected = &mut scratch[..received.len()];
        self.fill(expected);
        if *expected != *received {
            let differs = expected.iter().zip(received).position(|(a, b)| a != b).unwrap_or_default();
            return Err(self.offset + differs as u64);
        }
        self.advance(received.len());
        Ok(())
    }
}

/// A counter, spread over all of its bits by an odd factor (the golden ratio's).
fn word(seed: u64, number: u64) -> [u8; 8] {
    (number ^ seed.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(seed: u64, length: usize) -> Vec<u8> {
        let mut octets = vec![0; length];
        Pattern::new(seed).fill(&mut octets);
        octets
    }

    #[test]
    fn pieces_of_any_length_make_the_same_stream() {
        let whole = stream(7, 1000);
        for size in [1, 3, 8, 13, 999] {
            let (mut pattern, mut scratch) = (Pattern::new(7), [0; 1000]);
            for piece in whole.chunks(size) {
                assert_eq!(pattern.check(piece, &mut scratch), Ok(()));
            }
            assert_eq!(pattern.offset(), 1000);
        }
    }

    #[test]
    fn every_kind_of_damage_shows() {
        let good = stream(7, 4096);
        let check = |octets: &[u8]| Pattern::new(7).check(octets, &mut [0; 8192]);
        let mut flipped = good.clone();
        flipped[1234] ^= 1;
        assert_eq!(check(&flipped), Err(1234));
        let mut lost = good.clone();
        lost.drain(1024..2048);
        assert!(matches!(check(&lost), Err(1024..1032)));
        let mut swapped = good.clone();
        swapped[1024..3072].rotate_left(1024);
        assert!(check(&swapped).is_err());
        let mut doubled = good.clone();
        doubled.splice(1024..1024, good[0..1024].iter().copied());
        assert!(check(&doubled).is_err());
        assert!(check(&stream(8, 4096)).is_err(), "that of another connection");
    }
}
