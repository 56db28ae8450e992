//! The two static keys of a tunnel, with what follows from them.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicUsize},
};

use zeroize::Zeroizing;

use super::{
    hash::{Secret, hash, kdf},
    index::Mask,
};
use crate::x25519::{PublicKey, SharedSecret, StaticSecret};

/// This node's static key pair, with what follows from it.
pub struct Identity {
    private: StaticSecret,
    public: PublicKey,
    pub(crate) macs: MacKeys,
    /// What our receiver indices look like to others.
    pub(crate) indices: Mask,
    /// Bytes that wait for sessions at all peers of this node.
    pub(crate) waiting: Arc<AtomicUsize>,
}

/// What the static public key of a message's receiver decides about the message's MACs.
pub(crate) struct MacKeys {
    /// Key of MAC1.
    pub(crate) mac1: [u8; 32],
    /// Key that the receiver encrypts cookies with.
    pub(crate) cookie: [u8; 32],
}

/// A peer's static public key, with what follows from it and from ours.
pub(crate) struct Remote {
    pub(crate) public: PublicKey,
    /// Zeros if there is none (WireGuard paper, section 5.2).
    pub(crate) preshared: Secret,
    /// The Diffie-Hellman product of the two static keys.
    pub(crate) static_static: SharedSecret,
    pub(crate) macs: MacKeys,
}

impl Identity {
    /// For the owner of this private key.
    pub fn new(private: StaticSecret) -> Self {
        let public = PublicKey::from(&private);
        let [indices] = kdf(&Zeroizing::new(private.to_bytes()), b"receiver indices");
        let (macs, indices) = (MacKeys::new(&public), Mask::new(&indices));
        Self { private, public, macs, indices, waiting: Arc::default() }
    }

    /// The public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn diffie_hellman(&self, public: &PublicKey) -> SharedSecret {
        self.private.diffie_hellman(public)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Identity").field("public", &self.public).finish_non_exhaustive()
    }
}

impl Remote {
    pub(crate) fn new(identity: &Identity, public: PublicKey, preshared: Option<Secret>) -> Self {
        Self {
            public,
            preshared: preshared.unwrap_or_default(),
            static_static: identity.diffie_hellman(&public),
            macs: MacKeys::new(&public),
        }
    }
}

impl MacKeys {
    fn new(receiver: &PublicKey) -> Self {
        Self {
            mac1: hash(&[b"mac1----", receiver.as_bytes()]),
            cookie: hash(&[b"cookie--", receiver.as_bytes()]),
        }
    }
}
