//! ChaCha20-Poly1305 (RFC 8439) as WireGuard's data messages use it: no associated data, and nonces of four zero bytes and a counter,
//! little-endian.
//!
//! Many packets at once are the point. Where the processor can, packets of one length are worked on side by side, each in its own lanes
//! of the vectors; everything else goes to AWS-LC packet by packet. Both give the same bytes.
//!
//! No secret decides over a branch or an address, except whether a tag was right.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(not(target_arch = "x86_64"))]
mod portable;

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

#[cfg(target_arch = "x86_64")]
use avx512::{Kernel, MAX};
#[cfg(not(target_arch = "x86_64"))]
use portable::{Kernel, MAX};

/// Length of an authentication tag in bytes.
pub const TAG: usize = 16;

/// Packets that are worked on side by side: batches of as many, all of one length, are fastest.
pub const LANES: usize = MAX;

/// With fewer packets of one length the vectors would be too empty to pay.
const MIN: usize = 3;
/// Longer packets are their own batch, and 16 of them would not stay in the cache.
const LONGEST: usize = 1 << 16;

/// A packet to seal or open in place.
#[derive(Default)]
pub struct Packet<'a> {
    /// The number in its nonce.
    pub counter: u64,
    /// The packet, and behind it the [`TAG`] or room for one.
    pub bytes: &'a mut [u8],
    /// What became of it: it was sealed, or it was opened and is authentic. If not, its bytes are worthless.
    pub ok: bool,
}

impl<'a> Packet<'a> {
    /// A packet not yet sealed or opened.
    pub fn new(counter: u64, bytes: &'a mut [u8]) -> Self {
        Self { counter, bytes, ok: false }
    }
}

/// A key for one direction of a session. Its memory is overwritten when it is dropped (AWS-LC does that with its own, `OPENSSL_free`).
pub struct Key {
    words: Zeroizing<[u32; 8]>,
    single: LessSafeKey,
    kernel: Option<Kernel>,
}

impl Key {
    /// Uses the best that this processor has.
    pub fn new(key: &[u8; 32]) -> Self {
        Self { kernel: Kernel::detect(), ..Self::portable(key) }
    }

    /// Leaves every packet to AWS-LC, whatever the processor has.
    pub fn portable(key: &[u8; 32]) -> Self {
        let mut words = Zeroizing::new([0; 8]);
        for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let single =
            UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has the length of the algorithm's");
        Self { words, single: LessSafeKey::new(single), kernel: None }
    }

    /// Encrypts all of `packet` but the last [`TAG`] bytes, which become the tag. No counter may be used twice. False: there is no room
    /// for a tag.
    #[must_use]
    pub fn seal(&self, counter: u64, packet: &mut [u8]) -> bool {
        let Some((plain, tag)) = packet.split_last_chunk_mut::<TAG>() else { return false };
        let sealed = self.single.seal_in_place_separate_tag(nonce(counter), Aad::empty(), plain);
        let Ok(sealed) = sealed else { return false };
        tag.copy_from_slice(sealed.as_ref());
        true
    }

    /// Decrypts; the plaintext is in front of the last [`TAG`] bytes. False: not authentic, and what is in `packet` is worthless.
    #[must_use]
    pub fn open(&self, counter: u64, packet: &mut [u8]) -> bool {
        self.single.open_in_place(nonce(counter), Aad::empty(), packet).is_ok()
    }

    /// Seals each packet, and is fastest where neighbours have one length. No counter may be used twice.
    pub fn seal_batch(&self, packets: &mut [Packet<'_>]) {
        self.batch(packets, Kernel::seal, |packet| self.seal(packet.counter, packet.bytes));
    }

    /// Opens each packet, whatever becomes of the others, and is fastest where neighbours have one length.
    pub fn open_batch(&self, packets: &mut [Packet<'_>]) {
        self.batch(packets, Kernel::open, |packet| self.open(packet.counter, packet.bytes));
    }

    fn batch<'a>(
        &self,
        packets: &mut [Packet<'a>],
        several: impl Fn(Kernel, &[u32; 8], &mut [Packet<'a>]),
        single: impl Fn(&mut Packet<'a>) -> bool,
    ) {
        for run in packets.chunk_by_mut(|a, b| a.bytes.len() == b.bytes.len()) {
            for lot in run.chunks_mut(MAX) {
                match self.kernel {
                    Some(kernel) if lot.len() >= MIN && (TAG..=LONGEST).contains(&lot[0].bytes.len()) => {
                        several(kernel, &self.words, lot);
                    }
                    _ => lot.iter_mut().for_each(|packet| packet.ok = single(packet)),
                }
            }
        }
    }
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}
