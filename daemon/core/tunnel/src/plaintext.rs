//! What the tunnel encrypts.

use crate::ecn::Ecn;

/// One inner packet that can write itself where it is to be encrypted.
pub trait Plaintext {
    /// Its length in bytes.
    fn len(&self) -> usize;

    /// Writes the packet.
    ///
    /// # Panics
    /// When `into` is not exactly [`Plaintext::len`] bytes.
    fn write(&self, into: &mut [u8]);

    /// The ECN field of its IP header, which the outer header repeats (RFC 6040 section 4.1, normal mode).
    fn ecn(&self) -> Ecn;

    /// True if there is nothing to write.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Plaintext for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn write(&self, into: &mut [u8]) {
        into.copy_from_slice(self);
    }

    fn ecn(&self) -> Ecn {
        Ecn::of(self)
    }
}
