//! ChaCha20 (RFC 8439 section 2.4), 16 blocks at once: a vector holds the same word of 16 states.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_cmpge_epu32_mask, _mm512_mask_add_epi32, _mm512_mask_sub_epi32,
    _mm512_permutexvar_epi32, _mm512_rol_epi32, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_xor_si512,
};

use super::{
    MAX,
    lanes::{WIDTH, load, load_some, store, store_some, transpose_words, words},
};

/// "expand 32-byte k"
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// What makes the states of up to 16 packets under one key.
pub(super) struct States {
    /// Words 0 to 11: constants and key.
    fixed: [u32; 12],
    /// Words 14 and 15 by packet: the nonce, whose first word is zero.
    nonce: [__m512i; 2],
    packets: usize,
}

/// Which packet and which of its blocks each lane works on. Blocks go round the packets: the first of each, then the second of each.
struct Round {
    packet: __m512i,
    block: __m512i,
}

impl States {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
    pub(super) fn new(key: &[u32; 8], counters: &[u64; MAX], packets: usize) -> Self {
        let mut fixed = [0; 12];
        fixed[..4].copy_from_slice(&CONSTANTS);
        fixed[4..].copy_from_slice(key);
        let mut nonce = [[0; MAX]; 2];
        for (lane, counter) in counters.iter().enumerate() {
            let bytes = counter.to_le_bytes();
            let [a, b, c, d, e, f, g, h] = bytes;
            nonce[0][lane] = u32::from_le_bytes([a, b, c, d]);
            nonce[1][lane] = u32::from_le_bytes([e, f, g, h]);
        }
        Self { fixed, nonce: [words(&nonce[0]), words(&nonce[1])], packets }
    }

    /// Block 0 of each packet: it begins with the one-time key (RFC 8439 section 2.6).
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
    pub(super) fn first_blocks(&self) -> [__m512i; MAX] {
        self.blocks(_mm512_setzero_si512(), self.nonce)
    }

    /// Encrypts or decrypts the packets, all of them of the same length, from block 1 on.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
    pub(super) fn crypt(&self, packets: &mut [&mut [u8]]) {
        let length = packets.first().map_or(0, |packet| packet.len());
        let mut round = self.first_round();
        let (mut packet, mut at) = (0, 0);
        while at < length {
            let nonce = [
                _mm512_permutexvar_epi32(round.packet, self.nonce[0]),
                _mm512_permutexvar_epi32(round.packet, self.nonce[1]),
            ];
            for stream in self.blocks(round.block, nonce) {
                if let Some(bytes) = packets[packet].get_mut(at..) {
                    xor(bytes, stream);
                }
                packet += 1;
                if packet == self.packets {
                    (packet, at) = (0, at + WIDTH);
                }
            }
            self.next(&mut round);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
    fn first_round(&self) -> Round {
        let (mut packet, mut block) = ([0; 16], [1; 16]);
        let (mut p, mut b) = (0, 1);
        for lane in 0..16 {
            (packet[lane], block[lane]) = (p, b);
            p += 1;
            if p == self.count() {
                (p, b) = (0, b + 1);
            }
        }
        Round { packet: words(&packet), block: words(&block) }
    }

    /// 16 blocks on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
    fn next(&self, round: &mut Round) {
        let packets = splat(self.count());
        let packet = _mm512_add_epi32(round.packet, splat(16 % self.count()));
        let block = _mm512_add_epi32(round.block, splat(16 / self.count()));
        let over = _mm512_cmpge_epu32_mask(packet, packets);
        round.packet = _mm512_mask_sub_epi32(packet, over, packet, packets);
        round.block = _mm512_mask_add_epi32(block, over, block, splat(1));
    }

    fn count(&self) -> u32 {
        u32::try_from(self.packets.clamp(1, MAX)).expect("at most 16")
    }

    /// The key stream blocks of 16 lanes with these block numbers and nonces.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
    fn blocks(&self, block: __m512i, nonce: [__m512i; 2]) -> [__m512i; 16] {
        let mut state = [_mm512_setzero_si512(); 16];
        for word in 0..12 {
            state[word] = splat(self.fixed[word]);
        }
        (state[12], state[14], state[15]) = (block, nonce[0], nonce[1]);
        for _ in 0..10 {
            state = double_round(state);
        }
        for word in 0..12 {
            state[word] = _mm512_add_epi32(state[word], splat(self.fixed[word]));
        }
        state[12] = _mm512_add_epi32(state[12], block);
        state[14] = _mm512_add_epi32(state[14], nonce[0]);
        state[15] = _mm512_add_epi32(state[15], nonce[1]);
        transpose_words(&state)
    }
}

/// By value, so that the states stay in registers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn double_round(state: [__m512i; 16]) -> [__m512i; 16] {
    let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3] = state;
    let [a0, b0, c0, d0] = quarter_round([a0, b0, c0, d0]);
    let [a1, b1, c1, d1] = quarter_round([a1, b1, c1, d1]);
    let [a2, b2, c2, d2] = quarter_round([a2, b2, c2, d2]);
    let [a3, b3, c3, d3] = quarter_round([a3, b3, c3, d3]);
    let [a0, b1, c2, d3] = quarter_round([a0, b1, c2, d3]);
    let [a1, b2, c3, d0] = quarter_round([a1, b2, c3, d0]);
    let [a2, b3, c0, d1] = quarter_round([a2, b3, c0, d1]);
    let [a3, b0, c1, d2] = quarter_round([a3, b0, c1, d2]);
    [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn quarter_round([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let a = _mm512_add_epi32(a, b);
    let d = _mm512_rol_epi32::<16>(_mm512_xor_si512(d, a));
    let c = _mm512_add_epi32(c, d);
    let b = _mm512_rol_epi32::<12>(_mm512_xor_si512(b, c));
    let a = _mm512_add_epi32(a, b);
    let d = _mm512_rol_epi32::<8>(_mm512_xor_si512(d, a));
    let c = _mm512_add_epi32(c, d);
    let b = _mm512_rol_epi32::<7>(_mm512_xor_si512(b, c));
    [a, b, c, d]
}

/// Applies a block of the key stream to the first 64 bytes, or to fewer if there are fewer.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn xor(bytes: &mut [u8], stream: __m512i) {
    match bytes.first_chunk_mut() {
        Some(whole) => store(_mm512_xor_si512(load(whole), stream), whole),
        None => store_some(_mm512_xor_si512(load_some(bytes), stream), bytes),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn splat(word: u32) -> __m512i {
    _mm512_set1_epi32(word.cast_signed())
}
