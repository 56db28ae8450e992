//! Poly1305 (RFC 8439 section 2.5) over eight packets at once, a packet in each 64-bit lane.
//!
//! Numbers modulo p = 2^130 - 5 have three limbs of 44, 44 and 42 bits, so that the 52-bit multiplier of AVX-512 IFMA takes a limb with
//! bits to spare. Four blocks are multiplied by r^4, r^3, r^2 and r, summed, and carried once.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64,
    _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srli_epi64,
};

use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, Zeroizing};

use super::lanes::{WIDTH, load, load_some, numbers, transpose_numbers};

/// Packets that are authenticated at once.
pub(super) const LANES: usize = 8;

const LOW_44: i64 = (1 << 44) - 1;
const LOW_42: i64 = (1 << 42) - 1;
/// 2^128 in the last limb: the bit that every block of 16 bytes has behind it.
const PAD: i64 = 1 << 40;
/// The bits of r that count (RFC 8439 section 2.5).
const CLAMP: [i64; 2] = [0x0fff_fffc_0fff_ffff, 0x0fff_fffc_0fff_fffc];

/// Eight numbers. After a carry the limbs are below 2^44, 2^44 + 2^16 and 2^42.
#[derive(Clone, Copy)]
struct Limbs([__m512i; 3]);

/// A factor: its limbs, and 20 times the upper two, since 2^132 = 4 * 2^130 = 20 modulo p.
#[derive(Clone, Copy)]
struct Factor {
    limbs: [__m512i; 3],
    wrapped: [__m512i; 2],
}

/// A sum of products, not carried: limb k is `low[k] + 2^8 * high[k - 1]`. Twelve products of limbs below 2^46 and 2^49 make at most
/// 12 * 2^52 < 2^56 in `low` and 12 * 2^43 < 2^47 in `high`.
struct Sum {
    low: [__m512i; 3],
    high: [__m512i; 3],
}

/// The tags of eight messages of the same length, from the block of each whose first 32 bytes are its one-time key. Messages that
/// aren't there are like empty ones.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
pub(super) fn tags(keys: &[__m512i; LANES], messages: &[&[u8]; LANES], length: usize) -> [u128; LANES] {
    let mut key = transpose_numbers(keys);
    let mut powers = powers(key[0], key[1]);
    let mut sum = Limbs([_mm512_setzero_si512(); 3]);
    let mut at = 0;
    while at < length {
        let blocks = (length - at).div_ceil(16).min(4);
        let stripe = stripe(messages, at);
        sum = match blocks {
            1 => absorb::<1>(sum, &stripe, &powers),
            2 => absorb::<2>(sum, &stripe, &powers),
            3 => absorb::<3>(sum, &stripe, &powers),
            _ => absorb::<4>(sum, &stripe, &powers),
        };
        at += WIDTH;
    }
    let tags = finish(close(sum, length, &powers), key[2], key[3]);
    key.zeroize();
    powers.iter_mut().for_each(Factor::wipe);
    tags
}

/// r, r^2, r^3 and r^4.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn powers(low: __m512i, high: __m512i) -> [Factor; 4] {
    let r = split(
        _mm512_and_si512(low, _mm512_set1_epi64(CLAMP[0])),
        _mm512_and_si512(high, _mm512_set1_epi64(CLAMP[1])),
    );
    let first = factor(r);
    let square = multiply(r, &first);
    let second = factor(square);
    [first, second, factor(multiply(square, &first)), factor(multiply(square, &second))]
}

/// The same 64 bytes of all messages, as eight numbers one behind the other; zeros where a message has ended.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn stripe(messages: &[&[u8]; LANES], at: usize) -> [__m512i; 8] {
    let mut rows = [_mm512_setzero_si512(); LANES];
    for lane in 0..LANES {
        let rest = messages[lane].get(at..).unwrap_or_default();
        rows[lane] = match rest.first_chunk() {
            Some(whole) => load(whole),
            // A masked load of nothing is right, but slow where its address is none.
            None if rest.is_empty() => continue,
            None => load_some(rest),
        };
    }
    transpose_numbers(&rows)
}

/// Takes the first N blocks of a stripe.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn absorb<const N: usize>(sum: Limbs, stripe: &[__m512i; 8], powers: &[Factor; 4]) -> Limbs {
    let mut products = Sum { low: [_mm512_setzero_si512(); 3], high: [_mm512_setzero_si512(); 3] };
    // The first block last: it alone has to wait for the sum before.
    for block in (1..N).rev() {
        let number = padded(stripe[2 * block], stripe[2 * block + 1]);
        add_product(&mut products, number, &powers[N - 1 - block]);
    }
    add_product(&mut products, add(sum, padded(stripe[0], stripe[1])), &powers[N - 1]);
    carry(products)
}

/// Takes the last block: the lengths of the associated data, none, and of the message.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn close(sum: Limbs, length: usize, powers: &[Factor; 4]) -> Limbs {
    let length = i64::try_from(length).expect("slices are not longer");
    multiply(add(sum, padded(_mm512_setzero_si512(), _mm512_set1_epi64(length))), &powers[0])
}

/// Limbs of a 128-bit number.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn split(low: __m512i, high: __m512i) -> Limbs {
    let mask = _mm512_set1_epi64(LOW_44);
    let middle = _mm512_or_si512(_mm512_srli_epi64::<44>(low), _mm512_slli_epi64::<20>(high));
    Limbs([_mm512_and_si512(low, mask), _mm512_and_si512(middle, mask), _mm512_srli_epi64::<24>(high)])
}

/// Limbs of a block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn padded(low: __m512i, high: __m512i) -> Limbs {
    let Limbs([a, b, c]) = split(low, high);
    Limbs([a, b, _mm512_or_si512(c, _mm512_set1_epi64(PAD))])
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn add(Limbs(a): Limbs, Limbs(b): Limbs) -> Limbs {
    Limbs([_mm512_add_epi64(a[0], b[0]), _mm512_add_epi64(a[1], b[1]), _mm512_add_epi64(a[2], b[2])])
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn factor(Limbs(limbs): Limbs) -> Factor {
    Factor { limbs, wrapped: [times_20(limbs[1]), times_20(limbs[2])] }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn times_20(limb: __m512i) -> __m512i {
    _mm512_add_epi64(_mm512_slli_epi64::<4>(limb), _mm512_slli_epi64::<2>(limb))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn multiply(number: Limbs, by: &Factor) -> Limbs {
    let mut products = Sum { low: [_mm512_setzero_si512(); 3], high: [_mm512_setzero_si512(); 3] };
    add_product(&mut products, number, by);
    carry(products)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn add_product(sum: &mut Sum, Limbs(number): Limbs, by: &Factor) {
    let Factor { limbs: [r0, r1, r2], wrapped: [w1, w2] } = *by;
    for (limb, factors) in [[r0, w2, w1], [r1, r0, w2], [r2, r1, r0]].into_iter().enumerate() {
        for part in 0..3 {
            sum.low[limb] = _mm512_madd52lo_epu64(sum.low[limb], number[part], factors[part]);
            sum.high[limb] = _mm512_madd52hi_epu64(sum.high[limb], number[part], factors[part]);
        }
    }
}

/// What is above a limb goes into the next, and what is above 2^130 five times into the first.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn carry(Sum { low, high }: Sum) -> Limbs {
    let mask = _mm512_set1_epi64(LOW_44);
    let first = low[0];
    let second = _mm512_add_epi64(low[1], _mm512_slli_epi64::<8>(high[0]));
    let second = _mm512_add_epi64(second, _mm512_srli_epi64::<44>(first));
    let third = _mm512_add_epi64(low[2], _mm512_slli_epi64::<8>(high[1]));
    let third = _mm512_add_epi64(third, _mm512_srli_epi64::<44>(second));
    let over = _mm512_add_epi64(_mm512_slli_epi64::<10>(high[2]), _mm512_srli_epi64::<42>(third));
    let over = _mm512_add_epi64(over, _mm512_slli_epi64::<2>(over));
    let first = _mm512_add_epi64(_mm512_and_si512(first, mask), over);
    Limbs([
        _mm512_and_si512(first, mask),
        _mm512_add_epi64(_mm512_and_si512(second, mask), _mm512_srli_epi64::<44>(first)),
        _mm512_and_si512(third, _mm512_set1_epi64(LOW_42)),
    ])
}

/// The sums modulo p, plus s.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn finish(Limbs(sum): Limbs, low: __m512i, high: __m512i) -> [u128; LANES] {
    let limbs = [numbers(sum[0]), numbers(sum[1]), numbers(sum[2])];
    let (low, high) = (Zeroizing::new(numbers(low)), Zeroizing::new(numbers(high)));
    let mut tags = [0; LANES];
    for lane in 0..LANES {
        let sum = reduce([limbs[0][lane], limbs[1][lane], limbs[2][lane]]);
        tags[lane] = sum.wrapping_add(u128::from(low[lane]) | u128::from(high[lane]) << 64);
    }
    tags
}

/// The lower 128 bits of a number modulo p, from limbs as a carry leaves them.
fn reduce(mut limbs: [u64; 3]) -> u128 {
    const MASK: u64 = LOW_44.cast_unsigned();
    // The second limb carries only if it is above 2^44, and then less than 2^16 stays of it: that stops what the first limb carries.
    limbs[2] += limbs[1] >> 44;
    limbs[1] &= MASK;
    limbs[0] += 5 * (limbs[2] >> 42);
    limbs[2] &= LOW_42.cast_unsigned();
    limbs[1] += limbs[0] >> 44;
    limbs[0] &= MASK;
    // Below 2^130 now; if adding 5 reaches that, then p has to go once.
    let first = limbs[0] + 5;
    let second = limbs[1] + (first >> 44);
    let third = limbs[2] + (second >> 44);
    let less = [first & MASK, second & MASK, third & LOW_42.cast_unsigned()];
    let reaches = Choice::from(u8::from(third >> 42 != 0));
    let limb = |i: usize| u128::from(u64::conditional_select(&limbs[i], &less[i], reaches));
    limb(0) | limb(1) << 44 | limb(2) << 88
}

impl Factor {
    fn wipe(&mut self) {
        self.limbs.zeroize();
        self.wrapped.zeroize();
    }
}

#[cfg(test)]
mod tests;
