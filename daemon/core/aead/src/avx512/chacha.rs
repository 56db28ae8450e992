//! ChaCha20 (RFC 8439 section 2.4), 16 blocks at once: a vector holds the same word of 16 states.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_cmpge_epu32_mask, _mm512_mask_add_epi32, _mm512_mask_sub_epi32,
    _mm512_permutexvar_epi32, _mm512_rol_epi32, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_xor_si512,
};

use zeroize::Zeroizing;

use super::{
    MAX,
    lanes::{WIDTH, load, load_some, store, store_some, transpose_words, words},
};

/// "expand 32-byte k"
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// By number of packets: which packet and which of its blocks each lane begins with.
const FIRST_ROUNDS: [([u32; 16], [u32; 16]); MAX + 1] = first_rounds();

/// What makes the states of up to 16 packets under one key.
pub(super) struct States {
    /// Words 0 to 11: constants and key.
    fixed: Zeroizing<[u32; 12]>,
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
        let mut fixed = Zeroizing::new([0; 12]);
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
        let (packet, block) = &FIRST_ROUNDS[self.packets.min(MAX)];
        let mut round = Round { packet: words(packet), block: words(block) };
        let (mut packet, mut at) = (0, 0);
        while at < length {
            let nonce = [
                _mm512_permutexvar_epi32(round.packet, self.nonce[0]),
                _mm512_permutexvar_epi32(round.packet, self.nonce[1]),
            ];
            for stream in &self.blocks(round.block, nonce) {
                if let Some(bytes) = packets[packet].get_mut(at..) {
                    xor(bytes, *stream);
                }
                packet += 1;
                if packet == self.packets {
                    (packet, at) = (0, at + WIDTH);
                }
            }
            self.next(&mut round);
        }
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
        for (word, fixed) in state.iter_mut().zip(*self.fixed) {
            *word = splat(fixed);
        }
        (state[12], state[14], state[15]) = (block, nonce[0], nonce[1]);
        for _ in 0..10 {
            state = double_round(state);
        }
        for (word, fixed) in state.iter_mut().zip(*self.fixed) {
            *word = _mm512_add_epi32(*word, splat(fixed));
        }
        state[12] = _mm512_add_epi32(state[12], block);
        state[14] = _mm512_add_epi32(state[14], nonce[0]);
        state[15] = _mm512_add_epi32(state[15], nonce[1]);
        transpose_words(&state)
    }
}

const fn first_rounds() -> [([u32; 16], [u32; 16]); MAX + 1] {
    let mut rounds = [([0; 16], [1; 16]); MAX + 1];
    let mut packets = 1;
    while packets <= MAX {
        let mut lane = 1;
        while lane < 16 {
            let (packet, block) = (rounds[packets].0[lane - 1] + 1, rounds[packets].1[lane - 1]);
            let over = packet as usize == packets;
            rounds[packets].0[lane] = if over { 0 } else { packet };
            rounds[packets].1[lane] = if over { block + 1 } else { block };
            lane += 1;
        }
        packets += 1;
    }
    rounds
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::avx512::{Kernel, lanes::numbers};

    /// Key, counter in the nonce, first block number, block: RFC 8439, appendix A.1, where every nonce begins with four zeros.
    const BLOCKS: [(&str, u64, u32, &str); 5] = [
        (
            "0000000000000000000000000000000000000000000000000000000000000000",
            0,
            0,
            "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7\
             da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
        ),
        (
            "0000000000000000000000000000000000000000000000000000000000000000",
            0,
            1,
            "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed\
             29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
        ),
        (
            "0000000000000000000000000000000000000000000000000000000000000001",
            0,
            1,
            "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a\
             8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
        ),
        (
            "00ff000000000000000000000000000000000000000000000000000000000000",
            0,
            2,
            "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca\
             13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
        ),
        (
            "0000000000000000000000000000000000000000000000000000000000000000",
            2 << 56,
            0,
            "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7\
             8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
        ),
    ];

    #[test]
    fn rfc_8439_blocks() {
        if Kernel::detect().is_none() {
            return;
        }
        for (key, counter, block, expected) in BLOCKS {
            let key: Vec<u8> = hex::decode(key).unwrap();
            let words: Vec<u32> = key.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            let key: [u32; 8] = words.try_into().unwrap();
            for lane in 0..MAX {
                let (mut counters, mut blocks) = ([99; MAX], [98; MAX]);
                (counters[lane], blocks[lane]) = (counter, block);
                // SAFETY: the kernel was found to run here.
                let stream = unsafe { blocks_of(&key, &counters, &blocks) };
                assert_eq!(hex::encode(&stream[64 * lane..64 * (lane + 1)]), expected, "lane {lane}");
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
    fn blocks_of(key: &[u32; 8], counters: &[u64; MAX], numbers_of_blocks: &[u32; MAX]) -> Vec<u8> {
        let states = States::new(key, counters, MAX);
        let mut bytes = Vec::new();
        for block in states.blocks(words(numbers_of_blocks), states.nonce) {
            for number in numbers(block) {
                bytes.extend(number.to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn blocks_go_round_the_packets() {
        for (packets, (packet, block)) in FIRST_ROUNDS.iter().enumerate().skip(1) {
            for lane in 0..16 {
                assert_eq!(packet[lane] as usize, lane % packets);
                assert_eq!(block[lane] as usize, 1 + lane / packets);
            }
        }
    }
}
