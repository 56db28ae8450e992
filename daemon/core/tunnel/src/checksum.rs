//! The internet checksum (RFC 1071): one's complement sums over 16-bit words in network order.
//!
//! A *sum* here is folded to 16 bits and not complemented; sums of parts add up as plain integers and are folded once more. A part
//! must begin at an even distance from the start of what is summed. A sum is 0 only over zero bytes, else 1 to 0xffff.

/// Bytes per round of the loop over long slices: eight independent lanes keep the adders of a core busy.
const BLOCK: usize = 64;
const LANES: usize = BLOCK / 8;
/// Below, setting up the lanes costs more than they save.
const SHORT: usize = 256;

/// Sum over `bytes`; an odd last byte counts as if a zero followed.
pub fn sum(bytes: &[u8]) -> u16 {
    if bytes.len() < SHORT {
        return u16::from_be(fold(words(bytes)));
    }
    let (blocks, tail) = bytes.as_chunks::<BLOCK>();
    let mut lanes = Lanes::default();
    for block in blocks {
        lanes.add(block);
    }
    u16::from_be(fold(lanes.total() + words(tail)))
}

/// Copies `src` to `dst` and returns the sum over it. The sum reads what the copy has just brought into the nearest cache, and a copy
/// by itself moves wider words than a loop that does both: measured, two passes over a packet take two thirds of the time of one.
///
/// # Panics
/// When the lengths differ.
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> u16 {
    dst.copy_from_slice(src);
    sum(src)
}

/// Folds a sum of sums to 16 bits with end-around carries.
pub fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    u16::try_from(sum)
        .expect("2^33, 3 * 2^16, 2^16 + 2, 2^16 bound the steps, and the last carry leaves no second one")
}

/// Sum of the IPv4 pseudo header (RFC 9293 section 3.1): `addresses` are source and destination as they stand in the IP header,
/// `length` is that of transport header and payload in bytes.
pub fn pseudo_v4(addresses: &[u8; 8], protocol: u8, length: u16) -> u64 {
    u64::from(sum(addresses)) + u64::from(protocol) + u64::from(length)
}

/// Sum of the IPv6 pseudo header (RFC 8200 section 8.1): `addresses` are source and final destination, `length` is that of transport
/// header and payload in bytes.
pub fn pseudo_v6(addresses: &[u8; 32], protocol: u8, length: u32) -> u64 {
    u64::from(sum(addresses)) + u64::from(protocol) + u64::from(length)
}

/// The checksum after the 16-bit word `old` of what it covers became `new` (RFC 1624, equation 3). A checksum that was wrong stays
/// wrong by the same amount. For a word at an odd offset, swap the bytes of both.
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// Sums 32-bit halves of native 64-bit words without looking at carries: `whole` wraps, but `high` does not, and with the exact sum of
/// the high halves the exact sum of the low halves follows from `whole`. That is one shift and two additions per word.
#[derive(Default)]
struct Lanes {
    whole: [u64; LANES],
    high: [u64; LANES],
}

impl Lanes {
    #[inline(always)]
    fn add(&mut self, block: &[u8; BLOCK]) {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in words.iter().enumerate() {
            let word = u64::from_ne_bytes(*word);
            self.whole[lane] = self.whole[lane].wrapping_add(word);
            self.high[lane] = self.high[lane].wrapping_add(word >> 32);
        }
    }

    /// At most 2^36 per block, so it is exact for slices up to 2^34 bytes. Inlined, it would make the compiler keep the lanes in a form
    /// that suits this function instead of the loop, at half the speed.
    #[inline(never)]
    fn total(&self) -> u64 {
        let lanes = self.whole.iter().zip(&self.high);
        lanes.map(|(whole, high)| whole.wrapping_sub(high << 32).wrapping_add(*high)).sum()
    }
}

/// Sum over native words with carries, not quite folded. Its bytes are in native order: in memory, it is the sum in network order.
#[inline]
fn words(bytes: &[u8]) -> u64 {
    let (words, mut rest) = bytes.as_chunks::<8>();
    let (mut total, mut carries) = (0_u64, 0_u64);
    for word in words {
        let (next, carry) = total.overflowing_add(u64::from_ne_bytes(*word));
        total = next;
        carries += u64::from(carry);
    }
    let mut total = (total >> 32) + (total & 0xffff_ffff) + carries;
    if let Some((word, after)) = rest.split_first_chunk() {
        total += u64::from(u32::from_ne_bytes(*word));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk() {
        total += u64::from(u16::from_ne_bytes(*word));
        rest = after;
    }
    total + rest.first().map_or(0, |last| u64::from(u16::from_ne_bytes([*last, 0])))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::naive_sum;

    #[test]
    fn known_sums() {
        // The example of RFC 1071 section 3.
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[0; 1000]), 0);
        assert_eq!(sum(&[0xff; 65_536]), 0xffff);
        assert_eq!(sum(&[0x12]), 0x1200);
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(fold(0), 0);
    }

    #[test]
    fn known_update() {
        // The example of RFC 1624 section 4: no negative zero.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn sum_is_that_of_the_naive_model(bytes in proptest::collection::vec(any::<u8>(), 0..3000), skip in 0_usize..64) {
            let bytes = &bytes[skip.min(bytes.len())..];
            prop_assert_eq!(sum(bytes), naive_sum(bytes));
        }

        #[test]
        fn sum_of_extremes(length in 0_usize..3000, byte in prop_oneof![Just(0_u8), Just(1), Just(0xfe), Just(0xff)]) {
            let bytes = vec![byte; length];
            prop_assert_eq!(sum(&bytes), naive_sum(&bytes));
        }

        #[test]
        fn copy_is_a_copy_with_a_sum(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000), skip in 0_usize..64, shift in 0_usize..64,
        ) {
            let source = &bytes[skip.min(bytes.len())..];
            let mut copy = vec![0xaa; shift + source.len()];
            prop_assert_eq!(copy_and_sum(&mut copy[shift..], source), naive_sum(source));
            prop_assert_eq!(&copy[shift..], source);
            prop_assert!(copy[..shift].iter().all(|byte| *byte == 0xaa));
        }

        #[test]
        fn sums_of_even_parts_add_up(bytes in proptest::collection::vec(any::<u8>(), 0..500), cut in 0_usize..250) {
            let cut = (cut * 2).min(bytes.len() / 2 * 2);
            let (front, back) = bytes.split_at(cut);
            prop_assert_eq!(fold(u64::from(sum(front)) + u64::from(sum(back))), naive_sum(&bytes));
        }

        #[test]
        fn update_is_a_new_sum(mut bytes in proptest::collection::vec(any::<u8>(), 4..200), at in any::<usize>(), new in any::<u16>()) {
            // The last two bytes keep the sum from being zero, which no header that has a version is.
            bytes.extend([0x45, 0]);
            if bytes.len() % 2 == 1 {
                bytes.push(0);
            }
            let checksum = !naive_sum(&bytes);
            let at = at % (bytes.len() - 4);
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            let updated = match at % 2 {
                0 => update(checksum, old, new),
                _ => update(checksum, old.swap_bytes(), new.swap_bytes()),
            };
            prop_assert_eq!(updated, !naive_sum(&bytes));
        }

        #[test]
        fn pseudo_headers_are_sums_of_their_layout(four: [u8; 8], six: [u8; 32], protocol: u8, short: u16, long: u32) {
            let layout = [&four[..], &[0, protocol], &short.to_be_bytes()].concat();
            prop_assert_eq!(fold(pseudo_v4(&four, protocol, short)), naive_sum(&layout));
            let layout = [&six[..], &long.to_be_bytes(), &[0, 0, 0, protocol]].concat();
            prop_assert_eq!(fold(pseudo_v6(&six, protocol, long)), naive_sum(&layout));
        }
    }
}
