//! Bytes that must not leak: zeroized on drop, never printed.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// A 32-byte secret (WireGuard private key, preshared key). Cloning is explicit at the call site.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Secret32([u8; 32]);

impl Secret32 {
    /// Wraps key bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the one place that feeds them to the cipher.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret32(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Secret32::new([7; 32])), "Secret32(..)");
    }
}
