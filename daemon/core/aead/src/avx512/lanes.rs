//! Vectors from memory and back, and their transposition. The only unsafe code here beside the call of the kernel: loads and
//! stores, each of memory that a reference covers.

use std::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_shuffle_i64x2,
    _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64,
};

/// Bytes of a vector, and of a ChaCha20 block.
pub(super) const WIDTH: usize = 64;

/// A vector of 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
pub(super) fn load(bytes: &[u8; WIDTH]) -> __m512i {
    // SAFETY: the reference covers the 64 bytes read, and this load asks for no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// The first 64 bytes, or fewer with zeros behind them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
pub(super) fn load_some(bytes: &[u8]) -> __m512i {
    // SAFETY: the mask selects no byte behind the slice; bytes that it leaves out are not accessed.
    unsafe { _mm512_maskz_loadu_epi8(mask(bytes.len()), bytes.as_ptr().cast()) }
}

/// Overwrites 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
pub(super) fn store(vector: __m512i, bytes: &mut [u8; WIDTH]) {
    // SAFETY: the reference covers the 64 bytes written, and this store asks for no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
}

/// Overwrites the first 64 bytes, or fewer if there are fewer.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
pub(super) fn store_some(vector: __m512i, bytes: &mut [u8]) {
    // SAFETY: the mask selects no byte behind the slice; bytes that it leaves out are not accessed.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask(bytes.len()), vector) }
}

/// A vector of 16 words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
pub(super) fn words(words: &[u32; 16]) -> __m512i {
    // SAFETY: the reference covers the 64 bytes read, and this load asks for no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// The eight numbers of a vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
pub(super) fn numbers(vector: __m512i) -> [u64; 8] {
    let mut numbers = [0; 8];
    // SAFETY: the array covers the 64 bytes written, and this store asks for no alignment.
    unsafe { _mm512_storeu_si512(numbers.as_mut_ptr().cast(), vector) };
    numbers
}

/// One bit for each of the first `length` bytes of a vector.
fn mask(length: usize) -> u64 {
    match length {
        0 => 0,
        1..WIDTH => u64::MAX >> (WIDTH - length),
        _ => u64::MAX,
    }
}

/// Rows of 16 words to columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
pub(super) fn transpose_words(rows: &[__m512i; 16]) -> [__m512i; 16] {
    let mut columns = *rows;
    for four in 0..4 {
        let [a, b, c, d] = [rows[4 * four], rows[4 * four + 1], rows[4 * four + 2], rows[4 * four + 3]];
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        columns[four] = _mm512_unpacklo_epi64(ab, cd);
        columns[4 + four] = _mm512_unpackhi_epi64(ab, cd);
        let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        columns[8 + four] = _mm512_unpacklo_epi64(ab, cd);
        columns[12 + four] = _mm512_unpackhi_epi64(ab, cd);
    }
    let mut out = columns;
    for column in 0..4 {
        let at = 4 * column;
        let quarters = [columns[at], columns[at + 1], columns[at + 2], columns[at + 3]];
        let [a, b, c, d] = transpose_quarters(quarters);
        (out[column], out[4 + column], out[8 + column], out[12 + column]) = (a, b, c, d);
    }
    out
}

/// Rows of 8 numbers to columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
pub(super) fn transpose_numbers(rows: &[__m512i; 8]) -> [__m512i; 8] {
    let [a, b, c, d, e, f, g, h] = *rows;
    let even = transpose_quarters([
        _mm512_unpacklo_epi64(a, b),
        _mm512_unpacklo_epi64(c, d),
        _mm512_unpacklo_epi64(e, f),
        _mm512_unpacklo_epi64(g, h),
    ]);
    let odd = transpose_quarters([
        _mm512_unpackhi_epi64(a, b),
        _mm512_unpackhi_epi64(c, d),
        _mm512_unpackhi_epi64(e, f),
        _mm512_unpackhi_epi64(g, h),
    ]);
    [even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3]]
}

/// Rows of 4 quarters of 128 bits to columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn transpose_quarters([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    let (even, even_below) = (_mm512_shuffle_i64x2::<EVEN>(a, b), _mm512_shuffle_i64x2::<EVEN>(c, d));
    let (odd, odd_below) = (_mm512_shuffle_i64x2::<ODD>(a, b), _mm512_shuffle_i64x2::<ODD>(c, d));
    [
        _mm512_shuffle_i64x2::<EVEN>(even, even_below),
        _mm512_shuffle_i64x2::<EVEN>(odd, odd_below),
        _mm512_shuffle_i64x2::<ODD>(even, even_below),
        _mm512_shuffle_i64x2::<ODD>(odd, odd_below),
    ]
}
