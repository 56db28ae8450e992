//! The batch kernel for processors with AVX-512 F, BW, DQ, VL and IFMA: up to 16 packets of the same length side by side.

mod chacha;
mod lanes;
mod poly;

use std::arch::x86_64::__m512i;

use chacha::States;
use poly::LANES;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use crate::{Packet, TAG};

/// Packets of one call.
pub(crate) const MAX: usize = 16;

/// That this processor has what the kernel needs.
#[derive(Clone, Copy)]
pub(crate) struct Kernel(());

impl Kernel {
    /// `None`: this processor can't.
    pub(crate) fn detect() -> Option<Self> {
        let able = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512ifma");
        able.then_some(Self(()))
    }

    /// Encrypts 1 to 16 packets of one length, which have room for the tag.
    pub(crate) fn seal(self, key: &[u32; 8], packets: &mut [Packet<'_>]) {
        // SAFETY: a `Kernel` exists only where `detect` found the features that the function is compiled for.
        unsafe { seal(key, packets) }
    }

    /// Decrypts 1 to 16 packets of one length with a tag at their end; what is not authentic is overwritten with zeros.
    pub(crate) fn open(self, key: &[u32; 8], packets: &mut [Packet<'_>]) {
        // SAFETY: a `Kernel` exists only where `detect` found the features that the function is compiled for.
        unsafe { open(key, packets) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn seal(key: &[u32; 8], packets: &mut [Packet<'_>]) {
    let mut lot = Lot::new(packets);
    let states = States::new(key, &lot.counters, lot.count);
    let mut keys = states.first_blocks();
    states.crypt(&mut lot.bodies);
    let tags = lot.authenticate(&keys);
    for (tag, value) in lot.tags.iter_mut().flatten().zip(tags) {
        **tag = value.to_le_bytes();
    }
    keys.zeroize();
    packets.iter_mut().for_each(|packet| packet.ok = true);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
fn open(key: &[u32; 8], packets: &mut [Packet<'_>]) {
    let mut lot = Lot::new(packets);
    let states = States::new(key, &lot.counters, lot.count);
    let mut keys = states.first_blocks();
    let mut good = [false; MAX];
    for ((tag, value), good) in lot.tags.iter().flatten().zip(lot.authenticate(&keys)).zip(&mut good) {
        *good = value.to_le_bytes().ct_eq(*tag).into();
    }
    states.crypt(&mut lot.bodies);
    keys.zeroize();
    for (packet, good) in packets.iter_mut().zip(good) {
        packet.ok = good;
        if !good {
            packet.bytes.fill(0);
        }
    }
}

/// Packets of one length, taken apart.
struct Lot<'a> {
    counters: [u64; MAX],
    bodies: [&'a mut [u8]; MAX],
    tags: [Option<&'a mut [u8; TAG]>; MAX],
    count: usize,
}

impl<'a> Lot<'a> {
    fn new(packets: &'a mut [Packet<'_>]) -> Self {
        let mut lot =
            Self { counters: [0; MAX], bodies: Default::default(), tags: Default::default(), count: 0 };
        for (lane, packet) in packets.iter_mut().take(MAX).enumerate() {
            lot.counters[lane] = packet.counter;
            if let Some((body, tag)) = packet.bytes.split_last_chunk_mut() {
                (lot.bodies[lane], lot.tags[lane]) = (body, Some(tag));
            }
            lot.count = lane + 1;
        }
        lot
    }

    /// The tag of each body.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
    fn authenticate(&self, keys: &[__m512i; MAX]) -> [u128; MAX] {
        let mut tags = [0; MAX];
        let length = self.bodies[0].len();
        let halves = keys.as_chunks().0.iter().zip(self.bodies.as_chunks().0).zip(tags.as_chunks_mut().0);
        for ((keys, bodies), tags) in halves.take(self.count.div_ceil(LANES)) {
            let mut messages: [&[u8]; LANES] = Default::default();
            for (message, body) in messages.iter_mut().zip(bodies as &[&mut [u8]; LANES]) {
                *message = body;
            }
            *tags = poly::tags(keys, &messages, length);
        }
        tags
    }
}
