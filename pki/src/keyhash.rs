//! The name of a key: SHA-256 of its SubjectPublicKeyInfo. CAs are pinned, tainted and spoken about by it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{facts::Facts, key::sha256_hex};

/// 64 lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyHash(String);

/// Not the SHA-256 of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a SHA-256 in 64 lower-case hex digits")]
pub struct Error(String);

impl KeyHash {
    /// Reads the 64 digits.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let digits = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if digits { Ok(Self(text.to_owned())) } else { Err(Error(text.chars().take(80).collect())) }
    }

    /// Of a DER SubjectPublicKeyInfo.
    pub fn of_spki(spki: &[u8]) -> Self {
        Self(sha256_hex(spki))
    }

    /// Of the key in a certificate.
    pub fn of(facts: &Facts) -> Self {
        Self(facts.key_sha256.clone())
    }

    /// All 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 16 digits: enough for people and file names within one site.
    pub fn short(&self) -> &str {
        &self.0[..16]
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for KeyHash {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<KeyHash> for String {
    fn from(hash: KeyHash) -> Self {
        hash.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_lower_case_digits_will_do() {
        let good = "0123456789abcdef".repeat(4);
        assert_eq!(KeyHash::parse(&good).unwrap().short(), "0123456789abcdef");
        for bad in ["", "00", &good.to_uppercase(), &good[1..], &format!("{good}0"), &"é".repeat(32)] {
            assert!(KeyHash::parse(bad).is_err(), "{bad:?}");
        }
    }
}
