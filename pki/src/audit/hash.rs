//! SHA-256 as RFC 6962 uses it: leaves and nodes can't be taken for one another.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A SHA-256 hash; written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl Hash {
    /// What the first record of a log names as its predecessor.
    pub const NONE: Self = Self([0; 32]);

    /// Hash of a leaf, RFC 6962 section 2.1: prefix 0x00.
    pub fn leaf(bytes: &[u8]) -> Self {
        Self::of(&[&[0], bytes])
    }

    /// Hash of a node, RFC 6962 section 2.1: prefix 0x01.
    pub fn node(left: Self, right: Self) -> Self {
        Self::of(&[&[1], &left.0, &right.0])
    }

    /// Hash of a tree without leaves.
    pub fn empty() -> Self {
        Self::of(&[])
    }

    fn of(parts: &[&[u8]]) -> Self {
        let mut context = Context::new(&SHA256);
        parts.iter().for_each(|part| context.update(part));
        Self(context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// From 64 lower-case hexadecimal digits; nothing else.
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        let lower = text.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(Self(bytes))
    }

    pub(super) fn to_hex(self) -> [u8; 64] {
        let mut text = [0; 64];
        hex::encode_to_slice(self.0, &mut text).expect("two digits for each byte");
        text
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_hex()).expect("hexadecimal digits are ASCII"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.to_hex()).expect("hexadecimal digits are ASCII"))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(text.as_bytes()).ok_or_else(|| D::Error::custom("a hash has 64 lower-case hex digits"))
    }
}
