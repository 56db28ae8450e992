//! A join token: 256 random bits that let one node in, once, at the issuer that it names. Pure.
//!
//! ```text
//! isthmus-join_Zm9v...YmFy.fabric.example/aws-use1/gw1.5d41402a
//!              |           |                           +-- the first digits of the SHA-256 of all before the last dot
//!              |           +-- trust domain, site and name of the issuer's node: what its certificate must say
//!              +-- the secret, base64url
//! ```
//!
//! A token works on the issuer that made it and nowhere else, so it says which that is: a node shows the secret to whoever proves to be
//! that issuer, under a root that the node trusts, and to nobody else. The name is the issuer's SPIFFE ID and no pin of a key, since site
//! CAs and roots change hands while tokens wait to be used. What was cut off or mistyped on its way is known by the digits at the end,
//! and is told apart from a token that the issuer does not know.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use isthmus_pki::{
    SpiffeId, TrustDomain,
    id::{self, MAX_ID_LEN},
    key::sha256_hex,
};
use zeroize::Zeroizing;

/// What every token starts with, so that a person or a scanner of leaked secrets knows it for what it is.
const PREFIX: &str = "isthmus-join_";
/// Random bytes in a token.
pub(super) const BYTES: usize = 32;
/// Characters of the secret: the alphabet has 6 bits a character.
const SECRET_LEN: usize = (BYTES * 8).div_ceil(6);
/// Digits at the end: one mistake in four billion goes unnoticed here, and is refused by the issuer.
const CHECK_LEN: usize = 8;
/// Longest text that is looked at.
const MAX_LEN: usize = PREFIX.len() + SECRET_LEN + MAX_ID_LEN + CHECK_LEN + 2;
/// Characters of [`Hash::id`].
const ID_LEN: usize = 12;

/// Why a text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAToken {
    /// Something else.
    #[error(
        "not a join token; `isthmusctl token create` on the issuer makes one that starts with \"{PREFIX}\""
    )]
    Other,
    /// A token that lost something on its way.
    #[error(
        "a join token that is cut off or has a mistake in it: the digits at its end don't fit the rest; copy all of it again, it was not used"
    )]
    Damaged,
    /// Whole, and still not of this form.
    #[error(
        "a join token of a form that is not known here; is the isthmusd of the issuer of another version?"
    )]
    Form,
}

/// The secret, and whom it may be shown to. Zeroized on drop, never shown by `Debug`.
#[derive(Clone)]
pub struct Token {
    secret: Zeroizing<[u8; BYTES]>,
    issuer: SpiffeId,
}

impl Token {
    /// From random bytes, for the issuer's own node. `None`: that is no node's ID.
    pub fn new(secret: Zeroizing<[u8; BYTES]>, issuer: SpiffeId) -> Option<Self> {
        issuer.node().is_some().then_some(Self { secret, issuer })
    }

    /// Reads what [`Token::reveal`] wrote; blanks around it are a file's.
    pub fn parse(text: &str) -> Result<Self, NotAToken> {
        let text = text.trim();
        let rest = text.strip_prefix(PREFIX).ok_or(NotAToken::Other)?;
        if text.len() > MAX_LEN {
            return Err(NotAToken::Damaged);
        }
        let (checked, check) = text.rsplit_once('.').ok_or(NotAToken::Damaged)?;
        if check_of(checked) != check {
            return Err(NotAToken::Damaged);
        }
        let whole = &rest[..rest.len() - check.len() - 1];
        let (secret, issuer) = whole.split_once('.').ok_or(NotAToken::Form)?;
        let (secret, issuer) = parse_secret(secret).zip(parse_issuer(issuer)).ok_or(NotAToken::Form)?;
        Ok(Self { secret, issuer })
    }

    /// The text to hand to the node.
    pub fn reveal(&self) -> Zeroizing<String> {
        // Room for all of it at once: a growing text leaves copies of a secret behind.
        let mut text = Zeroizing::new(String::with_capacity(MAX_LEN));
        text.push_str(PREFIX);
        BASE64_URL_SAFE_NO_PAD.encode_string(*self.secret, &mut text);
        let (site, name) = self.issuer.node().unwrap_or_default();
        for part in [".", self.issuer.trust_domain().as_str(), "/", site, "/", name] {
            text.push_str(part);
        }
        let check = check_of(&text);
        text.push('.');
        text.push_str(&check);
        text
    }

    /// The node that made it: whom it may be shown to.
    pub fn issuer(&self) -> &SpiffeId {
        &self.issuer
    }

    /// What the issuer keeps of it. The secret is uniformly random, so a plain hash can't be searched.
    pub fn hash(&self) -> Hash {
        Hash(sha256_hex(&*self.secret))
    }
}

/// Before it is decoded its length is looked at; two bits more than the secret has must be zero, or two texts were one token.
fn parse_secret(text: &str) -> Option<Zeroizing<[u8; BYTES]>> {
    if text.len() != SECRET_LEN {
        return None;
    }
    let bytes = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?);
    let mut secret = Zeroizing::new([0; BYTES]);
    (bytes.len() == BYTES).then(|| secret.copy_from_slice(&bytes))?;
    Some(secret)
}

fn parse_issuer(text: &str) -> Option<SpiffeId> {
    let (domain, node) = text.split_once('/')?;
    let (site, name) = node.split_once('/')?;
    id::node_id(&TrustDomain::parse(domain).ok()?, site, name).ok()
}

fn check_of(text: &str) -> String {
    let mut digits = sha256_hex(text.as_bytes());
    digits.truncate(CHECK_LEN);
    digits
}

/// In a time that says nothing of the secret.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(&*self.secret, &*other.secret).is_ok() && self.issuer == other.issuer
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(.., {})", self.issuer)
    }
}

/// Lower-case hex SHA-256 of a token's secret: names it and admits nobody.
#[derive(Clone, Debug)]
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

    /// Is it the one that is kept? In a time that says nothing of how far they agree.
    pub fn is(&self, kept: &str) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), kept.as_bytes()).is_ok()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn issuer(domain: &str, site: &str, name: &str) -> SpiffeId {
        id::node_id(&TrustDomain::parse(domain).unwrap(), site, name).unwrap()
    }

    /// A token of gw1 at site s1.
    pub(in crate::identity::enroll) fn token(secret: [u8; BYTES]) -> Token {
        Token::new(Zeroizing::new(secret), issuer("td.example", "s1", "gw1")).unwrap()
    }

    /// The text with digits that fit it.
    fn sealed(text: &str) -> String {
        format!("{text}.{}", check_of(text))
    }

    #[test]
    fn what_is_revealed_is_read_and_debug_shows_nothing() {
        let token = token([0xfb; BYTES]);
        let text = token.reveal();
        assert!(text.contains(".td.example/s1/gw1."), "a person can read whose it is: {}", *text);
        let read = Token::parse(&format!("  {}\n", *text)).unwrap();
        assert_eq!((&read, read.issuer()), (&token, token.issuer()));
        assert_eq!(format!("{token:?}"), "Token(.., spiffe://td.example/site/s1/node/gw1)");
        let hash = token.hash();
        assert!(Hash::parse(hash.as_str()).unwrap().is(hash.as_str()));
        assert!(hash.as_str().starts_with(hash.id()) && hash.id().len() == ID_LEN);
        assert!(!text.contains(hash.id()));
        assert!(!hash.is(&hash.as_str()[1..]) && !hash.is(&"0".repeat(64)));
        let workload = TrustDomain::parse("td").unwrap().member("/w").unwrap();
        assert!(Token::new(Zeroizing::new([1; BYTES]), workload).is_none());
    }

    /// Each place of it, changed or cut off there, is told apart from a wrong token.
    #[test]
    fn what_was_cut_off_or_mistyped_is_damaged() {
        let good = token([7; BYTES]).reveal();
        for at in PREFIX.len()..good.len() {
            assert_eq!(Token::parse(&good[..at]), Err(NotAToken::Damaged), "{at}");
            let mut typo = good.as_bytes().to_vec();
            typo[at] = if typo[at] == b'x' { b'y' } else { b'x' };
            let typo = String::from_utf8(typo).unwrap();
            assert_eq!(Token::parse(&typo), Err(NotAToken::Damaged), "{typo}");
        }
        let upper = good.rsplit_once('.').map(|(a, b)| format!("{a}.{}", b.to_uppercase() + "A")).unwrap();
        let (twice, more) = (format!("{}{}", *good, *good), format!("{}0", *good));
        for text in [upper, twice, more, format!("{PREFIX}{}", "A".repeat(1 << 20))] {
            assert_eq!(Token::parse(&text), Err(NotAToken::Damaged));
        }
        for text in ["", "password", &good[1..], &good.replace('_', "-")] {
            assert_eq!(Token::parse(text), Err(NotAToken::Other), "{text}");
        }
    }

    #[test]
    fn what_is_whole_and_no_token_is_refused() {
        let secret = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";
        assert!(Token::parse(&sealed(&format!("{PREFIX}{secret}.td/s1/gw1"))).is_ok());
        for body in [
            "",
            secret,
            &format!("{secret}.td"),
            &format!("{secret}.td/s1"),
            &format!("{secret}.td/s1/gw1/gw2"),
            &format!("{secret}.TD/s1/gw1"),
            &format!("{secret}.td/../gw1"),
            &format!("{secret}.td//gw1"),
            &format!("{secret}./s1/gw1"),
            &format!("{}.td/s1/gw1", &secret[1..]),
            &format!("{secret}A.td/s1/gw1"),
            &format!("{}=.td/s1/gw1", &secret[1..]),
            &format!("{}+.td/s1/gw1", &secret[1..]),
            // 43 characters hold two bits more than 32 bytes: those must be zero, or two texts were one token.
            &format!("{}d.td/s1/gw1", &secret[..SECRET_LEN - 1]),
        ] {
            assert_eq!(Token::parse(&sealed(&format!("{PREFIX}{body}"))), Err(NotAToken::Form), "{body}");
        }
        assert!(Hash::parse(&"A".repeat(64)).is_none() && Hash::parse(&"a".repeat(63)).is_none());
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in "(isthmus-join_)?\\PC{0,80}") {
            let _ = (Token::parse(&text), Hash::parse(&text));
            if let Ok(token) = Token::parse(&sealed(&text)) {
                prop_assert_eq!(sealed(&text).trim().to_owned(), (*token.reveal()).clone());
            }
        }

        #[test]
        fn every_token_survives(
            secret: [u8; BYTES], domain in "[a-z0-9._-]{1,40}", site in "[a-z0-9]{1,63}", name in "[a-z0-9-]{1,63}",
        ) {
            let token = Token::new(Zeroizing::new(secret), issuer(&domain, &site, &name)).unwrap();
            prop_assert_eq!(Token::parse(&token.reveal()).unwrap(), token);
        }
    }
}
