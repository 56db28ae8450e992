//! A join token: 256 random bits that let one node in, once. Pure.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use isthmus_pki::key::sha256_hex;
use zeroize::Zeroizing;

/// What every token starts with, so that a person or a scanner of leaked secrets knows it for what it is.
const PREFIX: &str = "isthmus-join_";
/// Random bytes in a token.
pub(super) const BYTES: usize = 32;
/// Characters of [`Hash::id`].
const ID_LEN: usize = 12;

/// Why a text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a join token; `isthmusctl token create` on the issuer makes one that starts with \"{PREFIX}\"")]
pub struct NotAToken;

/// The secret itself: zeroized on drop, never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<[u8; BYTES]>);

impl Token {
    /// From random bytes.
    pub fn from_random(bytes: [u8; BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads what [`Token::reveal`] wrote; blanks around it are a file's.
    pub fn parse(text: &str) -> Result<Self, NotAToken> {
        let text = text.trim().strip_prefix(PREFIX).ok_or(NotAToken)?;
        // Bounded before it is decoded: the alphabet has 6 bits a character.
        if text.len() != (BYTES * 8).div_ceil(6) {
            return Err(NotAToken);
        }
        let bytes = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| NotAToken)?);
        let mut token = Zeroizing::new([0; BYTES]);
        if bytes.len() != BYTES {
            return Err(NotAToken);
        }
        token.copy_from_slice(&bytes);
        Ok(Self(token))
    }

    /// The text to hand to the node.
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + BYTES * 2));
        text.push_str(PREFIX);
        BASE64_URL_SAFE_NO_PAD.encode_string(*self.0, &mut text);
        text
    }

    /// What the issuer keeps of it. The bytes are uniformly random, so a plain hash can't be searched.
    pub fn hash(&self) -> Hash {
        Hash(sha256_hex(&*self.0))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Lower-case hex SHA-256 of a token: names it and admits nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hash(String);

impl Hash {
    /// Reads what a file holds; `None` if it is no hash.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (text.len() == 64 && text.bytes().all(hex)).then(|| Self(text.to_owned()))
    }

    /// All of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its first characters, for people.
    pub fn id(&self) -> &str {
        &self.0[..ID_LEN]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_revealed_is_read_and_debug_shows_nothing() {
        let token = Token::from_random([0xfb; BYTES]);
        let text = token.reveal();
        assert_eq!(text.len(), PREFIX.len() + 43);
        assert_eq!(Token::parse(&format!("  {}\n", *text)).unwrap(), token);
        assert_eq!(format!("{token:?}"), "Token(..)");
        let hash = token.hash();
        assert_eq!(Hash::parse(hash.as_str()), Some(hash.clone()));
        assert!(hash.as_str().starts_with(hash.id()) && hash.id().len() == ID_LEN);
        assert!(!text.contains(hash.id()));
    }

    #[test]
    fn other_texts_are_none() {
        let good = Token::from_random([7; BYTES]).reveal();
        let body = good.strip_prefix(PREFIX).unwrap();
        for text in [
            "",
            PREFIX,
            body,
            &good[..good.len() - 1],
            &format!("{}A", *good),
            &format!("{}=", *good),
            &good.replace("BwcH", "Bw+H"),
            // 43 characters hold two bits more than 32 bytes: those must be zero, or two texts were one token.
            &format!("{}d", &good[..good.len() - 1]),
        ] {
            assert_eq!(Token::parse(text), Err(NotAToken), "{text}");
        }
        assert_eq!(Hash::parse(&"A".repeat(64)), None);
        assert_eq!(Hash::parse(&"a".repeat(63)), None);
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in "(isthmus-join_)?\\PC{0,80}") {
            let _ = (Token::parse(&text), Hash::parse(&text));
        }

        #[test]
        fn every_token_survives(bytes: [u8; BYTES]) {
            let token = Token::from_random(bytes);
            prop_assert_eq!(Token::parse(&token.reveal()).unwrap(), token);
        }
    }
}
