//! The handshake of WireGuard (paper, section 5.4): Noise `IKpsk2` over Curve25519, ChaCha20-Poly1305 and BLAKE2s, with the MACs and
//! cookies that keep strangers from costing us anything.
//!
//! Nothing here keeps time or state of a peer: a message goes in, keys or the next message come out.

pub(crate) mod aead;
pub(crate) mod cookie;
pub(crate) mod handshake;
pub(crate) mod hash;
mod identity;
mod index;
pub(crate) mod message;
pub(crate) mod random;
pub(crate) mod tai64n;

pub use identity::Identity;
pub(crate) use identity::Remote;
