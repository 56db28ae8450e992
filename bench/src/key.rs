//! Keys of a run, that nobody else will ever use.

use anyhow::{Result, anyhow};
use aws_lc_rs::agreement::{PrivateKey, X25519};
use base64::{Engine, prelude::BASE64_STANDARD};

/// A pair in the form of `wg genkey` and `wg pubkey`.
#[derive(Clone)]
pub(crate) struct KeyPair {
    /// Half that goes into a file only its owner can read.
    pub(crate) private: String,
    /// Half for the other end.
    pub(crate) public: String,
}

impl KeyPair {
    /// A new one.
    ///
    /// # Errors
    /// When the library fails to compute it.
    pub(crate) fn random() -> Result<Self> {
        Self::from_octets(rand::random())
    }

    fn from_octets(mut octets: [u8; 32]) -> Result<Self> {
        // RFC 7748 section 5.
        octets[0] &= 248;
        octets[31] = (octets[31] & 127) | 64;
        let key = PrivateKey::from_private_key(&X25519, &octets).map_err(|_| anyhow!("no private key"))?;
        let public = key.compute_public_key().map_err(|_| anyhow!("no public key"))?;
        Ok(Self { private: BASE64_STANDARD.encode(octets), public: BASE64_STANDARD.encode(public.as_ref()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_half_is_what_wg_prints() {
        let private = "aEzMQL3Yf5l4G9ZFgB91ZT+ZKjvMk3sKd4JYonwNzXA=";
        let octets = BASE64_STANDARD.decode(private).unwrap().try_into().unwrap();
        let pair = KeyPair::from_octets(octets).unwrap();
        assert_eq!(pair.private, private, "it was clamped before");
        assert_eq!(pair.public, "n4SsnkXuA+BMeptA3LtsavWiQxpKLaQHvjfisrBwsWI=");
        assert_ne!(KeyPair::random().unwrap().public, KeyPair::random().unwrap().public);
    }
}
