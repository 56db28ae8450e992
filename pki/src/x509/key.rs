//! What can be said of a private key file without showing anything of it.

use aws_lc_rs::{
    encoding::AsDer as _,
    rsa,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde::Serialize;

use crate::{
    blocks::{Block, blocks},
    key::sha256_hex,
};

/// A private key's public half.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyFacts {
    /// "ECDSA P-256", "ECDSA P-384" or "RSA 2048".
    pub kind: String,
    /// Lower-case hex SHA-256 of the SubjectPublicKeyInfo.
    pub key_sha256: String,
    /// DER SubjectPublicKeyInfo.
    #[serde(skip)]
    pub spki: Vec<u8>,
}

/// Why a key file can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// No private key in it.
    #[error("no private key in it")]
    None,
    /// It needs a passphrase.
    #[error("the key is encrypted, and whoever reads this file has no passphrase for it")]
    Encrypted,
    /// Damaged, or of a kind that is not read.
    #[error("not an ECDSA P-256, P-384 or RSA key of 2048 to 8192 bits: {0}")]
    Unreadable(String),
}

impl KeyFacts {
    /// Reads the first private key of a PEM file: PKCS#8, SEC 1 or PKCS#1.
    pub fn read(pem: &[u8]) -> Result<Self, KeyFault> {
        let blocks = blocks(pem);
        let block = blocks.iter().find(|b| b.label.ends_with("PRIVATE KEY")).ok_or(KeyFault::None)?;
        Self::from_block(block)
    }

    /// Reads one PEM block.
    pub fn from_block(block: &Block) -> Result<Self, KeyFault> {
        if block.has_headers || block.label == "ENCRYPTED PRIVATE KEY" {
            return Err(KeyFault::Encrypted);
        }
        match &block.contents {
            Ok(der) => Self::from_der(der),
            Err(why) => Err(KeyFault::Unreadable(why.clone())),
        }
    }

    fn from_der(der: &[u8]) -> Result<Self, KeyFault> {
        if let Ok(pair) = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der) {
            return Self::new("ECDSA P-256", pair.public_key().as_der().map(|d| d.as_ref().to_vec()));
        }
        if let Ok(pair) = EcdsaKeyPair::from_private_key_der(&ECDSA_P384_SHA384_ASN1_SIGNING, der) {
            return Self::new("ECDSA P-384", pair.public_key().as_der().map(|d| d.as_ref().to_vec()));
        }
        let pair = rsa::KeyPair::from_pkcs8(der).or_else(|_| rsa::KeyPair::from_der(der));
        let pair = pair.map_err(|e| KeyFault::Unreadable(e.to_string()))?;
        let bits = pair.public_modulus_len() * 8;
        Self::new(&format!("RSA {bits}"), pair.public_key().as_der().map(|d| d.as_ref().to_vec()))
    }

    fn new<E>(kind: &str, spki: Result<Vec<u8>, E>) -> Result<Self, KeyFault> {
        let spki = spki.map_err(|_| KeyFault::Unreadable("its public half can't be made".to_owned()))?;
        Ok(Self { kind: kind.to_owned(), key_sha256: sha256_hex(&spki), spki })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Curve, Key};

    #[test]
    fn the_public_half_is_that_of_the_certificate() {
        for curve in [Curve::P256, Curve::P384] {
            let key = Key::generate(curve).unwrap();
            let facts = KeyFacts::read(key.to_pem().as_bytes()).unwrap();
            assert_eq!(facts.spki, key.public().spki());
            let sealed = key.to_encrypted_pem(b"secret", &[1; 16], &[2; 16]).unwrap();
            assert_eq!(KeyFacts::read(sealed.as_bytes()), Err(KeyFault::Encrypted));
        }
        assert_eq!(KeyFacts::read(b"hello"), Err(KeyFault::None));
        let junk = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(KeyFacts::read(junk.as_bytes()), Err(KeyFault::Unreadable(_))));
        let old =
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----\n";
        assert_eq!(KeyFacts::read(old.as_bytes()), Err(KeyFault::Encrypted));
    }
}
