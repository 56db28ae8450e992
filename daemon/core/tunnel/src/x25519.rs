//! Curve25519 (RFC 7748): the keys of both sides, and the secret that they share. The arithmetic is AWS-LC's.

use std::fmt;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use zeroize::Zeroizing;

/// A private key. Both copies of it are overwritten when it is dropped: ours, and by `OPENSSL_free` that of AWS-LC. What moving it about
/// left on the stack is beyond our reach.
pub struct StaticSecret {
    bytes: Zeroizing<[u8; 32]>,
    key: PrivateKey,
}

/// A public key: any 32 bytes, as RFC 7748 section 5 has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

/// What the owners of two keys share and nobody else knows; `None` if it is all zero, as with a public key of small order: then it is
/// no secret (RFC 7748 section 6.1).
pub(crate) type SharedSecret = Option<Zeroizing<[u8; 32]>>;

impl StaticSecret {
    /// The key's bytes.
    pub fn to_bytes(&self) -> [u8; 32] {
        *self.bytes
    }

    pub(crate) fn diffie_hellman(&self, public: &PublicKey) -> SharedSecret {
        let public = UnparsedPublicKey::new(&X25519, public.0);
        agreement::agree(&self.key, public, (), |secret| {
            secret.try_into().map(|secret: [u8; 32]| Zeroizing::new(secret)).map_err(|_| ())
        })
        .ok()
    }
}

impl From<[u8; 32]> for StaticSecret {
    fn from(bytes: [u8; 32]) -> Self {
        let bytes = Zeroizing::new(bytes);
        let key = PrivateKey::from_private_key(&X25519, bytes.as_slice());
        Self { bytes, key: key.expect("any 32 bytes are a private key (RFC 7748 section 5)") }
    }
}

impl Clone for StaticSecret {
    fn clone(&self) -> Self {
        Self::from(*self.bytes)
    }
}

impl fmt::Debug for StaticSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StaticSecret")
    }
}

impl PublicKey {
    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key's bytes.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }
}

impl From<[u8; 32]> for PublicKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl From<&StaticSecret> for PublicKey {
    fn from(private: &StaticSecret) -> Self {
        let public = private.key.compute_public_key().ok();
        let bytes = public.and_then(|public| public.as_ref().try_into().ok());
        Self(bytes.expect("every private key has a public key of 32 bytes"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use boringtun::x25519 as other;
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> [u8; 32] {
        std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
    }

    /// RFC 7748 section 6.1.
    #[test]
    fn alice_and_bob_agree() {
        let alice =
            StaticSecret::from(key("77076d0a7318a57d3c16c17251b26645df4c50dad7f0ed5d4b8b9f0a1d2c3b4e"));
        let bob = StaticSecret::from(key("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"));
        let [a, b] = [&alice, &bob].map(PublicKey::from);
        assert_eq!(b.to_bytes(), key("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
        let shared = alice.diffie_hellman(&b);
        assert!(shared.is_some());
        assert_eq!(shared, bob.diffie_hellman(&a));
    }

    /// The points of small order, whose product with any key is zero.
    #[test]
    fn a_key_of_small_order_shares_nothing() {
        let private = StaticSecret::from([7; 32]);
        for point in [
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000000",
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ] {
            assert_eq!(private.diffie_hellman(&PublicKey::from(key(point))), None, "{point}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        assert_eq!(format!("{:?}", StaticSecret::from([0xab; 32])), "StaticSecret");
    }

    proptest! {
        #[test]
        fn another_implementation_agrees(private: [u8; 32], public: [u8; 32]) {
            let (ours, theirs) = (StaticSecret::from(private), other::StaticSecret::from(private));
            prop_assert_eq!(PublicKey::from(&ours).to_bytes(), other::PublicKey::from(&theirs).to_bytes());
            prop_assert_eq!(ours.to_bytes(), private);
            let product = theirs.diffie_hellman(&other::PublicKey::from(public));
            let expected = product.was_contributory().then(|| product.to_bytes());
            prop_assert_eq!(ours.diffie_hellman(&PublicKey::from(public)).map(|shared| *shared), expected);
        }
    }
}
