//! JWT-SVIDs: made with ES256, and validated by the letter of the JWT-SVID standard.
//!
//! [`sign`] makes a token with a [`SigningKey`]. [`validate`] decides about one, in this order, and stops at the first fault:
//! 1. size, three parts, canonical base64url, a JSON header without a key twice;
//! 2. `alg` is one of RS, ES, PS with 256, 384, 512; the header has `alg`, `kid`, `typ` and nothing else; `typ` is `JWT` or `JOSE`;
//! 3. `sub` is a SPIFFE ID with a path; its trust domain's bundle has the key `kid`;
//! 4. of those who endorsed the key one may still vouch for `sub` (not tainted, not revoked, its site's paths), and none is tainted that
//!    had endorsed it before that one;
//! 5. the key is of the kind that `alg` takes, and the signature holds;
//! 6. `exp`, `nbf`, `iat` fit the clock within [`LEEWAY`], and the audience is among `aud`.
//!
//! A token is not remembered: `jti` is not looked at, and replay within its life is the bearer's risk (JWT-SVID section 7.3).
//!
//! A key of our own trust domain gets into a bundle only with an [`Endorsement`] by a live site CA.

pub(crate) mod algorithm;
pub(crate) mod base64url;
mod claims;
mod endorsement;
pub(crate) mod jwk;
mod jws;
mod signing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::{
    bundle::TrustStore,
    facts::{Facts, utc},
    id::{self, SpiffeId, TrustDomain},
    json,
    keyhash::KeyHash,
    statement, verify,
};
pub use endorsement::{ENDORSEMENT_TYPE, Endorsed, Endorsement, endorse};
pub use jwk::{EcCurve, Error as KeyError, PublicKey};
use jws::{Jws, shown};
pub use signing::{Claims, SigningKey, sign};

/// Longest token that is looked at, in bytes.
pub const MAX_TOKEN_LEN: usize = 16 << 10;
/// Most audiences of one token.
pub const MAX_AUDIENCES: usize = 32;
/// Longest key ID, in bytes.
pub const MAX_KEY_ID_LEN: usize = 256;
/// By how many seconds clocks may differ before a token counts as expired or as not valid yet. Half of what certificates are
/// backdated: nodes keep time by NTP, and a token lives for minutes.
pub const LEEWAY: i64 = 30;

/// Why a token can't be made or is refused. Nothing of a token but short, escaped names is repeated: it is a secret while it lives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Beyond the limit.
    #[error("the token has {length} bytes; more than {longest} are refused")]
    TooLong {
        /// Of the token, in bytes.
        length: usize,
        /// What is allowed.
        longest: usize,
    },
    /// Not three parts.
    #[error("the token is not a JWS in compact serialisation: HEADER.PAYLOAD.SIGNATURE")]
    NotCompact,
    /// A part that is not base64url, or not the one spelling of it.
    #[error("the token's {0} is not canonical base64url without padding")]
    Base64(&'static str),
    /// A part that is not a JSON object, or has a key twice.
    #[error("the token's {part} can't be read: {reason}")]
    Json {
        /// Which.
        part: &'static str,
        /// Why.
        reason: json::Error,
    },
    /// Not one of the nine.
    #[error("algorithm {0:?} is refused: a JWT-SVID is signed with RS, ES or PS 256, 384 or 512")]
    Algorithm(String),
    /// A header member that could steer the validation.
    #[error("the token's header has {0:?}, which is refused: only alg, kid and typ belong there")]
    HeaderMember(String),
    /// A header member that is missing or no string.
    #[error("the token's header must have {0:?}, as a string")]
    HeaderType(&'static str),
    /// Something else than a JWT.
    #[error("the token's type {0:?} is refused: JWT or JOSE")]
    Type(String),
    /// A claim that is missing, mistyped or out of range.
    #[error("the token's {0:?} {1}")]
    Claim(&'static str, &'static str),
    /// `sub` is no SPIFFE ID.
    #[error("the token's \"sub\" {subject:?} is not a SPIFFE ID: {reason}")]
    Subject {
        /// Its beginning.
        subject: String,
        /// What is wrong with it.
        reason: id::Error,
    },
    /// Nobody here vouches for the domain.
    #[error("no trust bundle for trust domain {0}")]
    UnknownTrustDomain(TrustDomain),
    /// The domain's bundle has no such key.
    #[error(
        "trust domain {trust_domain} has no JWT key {key_id:?}: the key is gone, or its bundle has not arrived yet"
    )]
    UnknownKey {
        /// Whose keys were looked at.
        trust_domain: TrustDomain,
        /// From the header.
        key_id: String,
    },
    /// The key is of another kind than the algorithm takes.
    #[error("the token's algorithm does not fit the key that it names")]
    KeyMismatch,
    /// The key has ended.
    #[error("the JWT key {key_id:?} expired at {at}")]
    KeyExpired {
        /// Which key.
        key_id: String,
        /// When.
        at: String,
    },
    /// The site CA that endorsed the key does not vouch any more, or not for this ID or key.
    #[error("{0}")]
    Refused(#[from] Box<verify::Error>),
    /// The CA that endorsed the key is believed; one that had done so before is not.
    #[error(
        "the site CA with key {0} is tainted, and it had endorsed this JWT key too: whoever has the one may have the other; wait for the site's next key"
    )]
    EarlierTainted(KeyHash),
    /// The signature does not hold.
    #[error("the token's signature does not hold")]
    Signature,
    /// Over.
    #[error("the token expired at {at}, this node's clock says {clock}")]
    Expired {
        /// When.
        at: String,
        /// When we looked.
        clock: String,
    },
    /// From the future.
    #[error("the token's {claim:?} is {from}, this node's clock says {clock}: check the clocks")]
    NotYet {
        /// `nbf` or `iat`.
        claim: &'static str,
        /// What it says.
        from: String,
        /// When we looked.
        clock: String,
    },
    /// Meant for others.
    #[error("the token is not meant for audience {0:?}")]
    Audience(String),
    /// A key that can't sign, or can't be endorsed.
    #[error("the key can't be used: {0}")]
    Key(#[from] KeyError),
    /// A CA that can't endorse.
    #[error("{0}")]
    Endorser(String),
    /// An endorsement that is none, or that nobody could sign.
    #[error(transparent)]
    Statement(#[from] statement::Error),
    /// Signing failed.
    #[error("the cryptographic library failed to sign")]
    Sign,
}

/// A public key that JWT-SVIDs of a trust domain may be signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// `kid`, 1 to [`MAX_KEY_ID_LEN`] bytes.
    pub key_id: String,
    /// The key.
    pub key: PublicKey,
    /// When it ends; `None` where its bundle does not say.
    pub expires_at: Option<OffsetDateTime>,
    /// The site CA that vouches for it, in our own trust domain; other domains' keys are vouched for by their bundle alone.
    endorser: Option<Arc<Facts>>,
    /// Site CAs that have endorsed it before that one.
    earlier: Arc<[KeyHash]>,
}

impl Authority {
    /// A key as a foreign bundle or a private key has it: nobody has endorsed it.
    pub(crate) fn new(key_id: String, key: PublicKey) -> Self {
        Self { key_id, key, expires_at: None, endorser: None, earlier: Arc::default() }
    }

    /// The same key; these site CAs have endorsed it, so that it falls with each of them.
    pub fn endorsed_before_by(self, cas: impl IntoIterator<Item = KeyHash>) -> Self {
        Self { earlier: cas.into_iter().collect(), ..self }
    }

    fn check_earlier(&self, store: &TrustStore, trust_domain: &TrustDomain) -> Result<(), Error> {
        let Some(policy) = store.policy_of(trust_domain) else { return Ok(()) };
        let tainted = self.earlier.iter().find(|ca| policy.is_tainted(ca.as_str()));
        tainted.map_or(Ok(()), |ca| Err(Error::EarlierTainted(ca.clone())))
    }

    /// The site CA that endorsed it.
    pub fn endorser(&self) -> Option<&Facts> {
        self.endorser.as_deref()
    }
}

/// A token that passed.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// Whose it is.
    pub id: SpiffeId,
    /// All that it is meant for.
    pub audience: Vec<String>,
    /// When it ends, without leeway.
    pub expires_at: OffsetDateTime,
    /// Every claim.
    pub claims: Map<String, Value>,
}

/// Validates a token for `audience`, which is the name that its receiver goes by.
pub fn validate(
    token: &str,
    audience: &str,
    store: &TrustStore,
    now: OffsetDateTime,
) -> Result<Validated, Error> {
    let jws = Jws::parse(token, MAX_TOKEN_LEN, &["kid", "typ"])?;
    check_type(&jws)?;
    let key_id = key_id(&jws)?;
    let claims = jws.payload()?;
    let id = claims::subject(&claims)?;
    let authority = find_key(store, &id, key_id, now)?;
    if !jws.algorithm.fits(&authority.key) {
        return Err(Error::KeyMismatch);
    }
    jws.verify(&authority.key)?;
    let expires_at = claims::times(&claims, now)?;
    let list = claims::audience(&claims)?;
    if audience.is_empty() || !list.iter().any(|one| one == audience) {
        return Err(Error::Audience(shown(audience)));
    }
    Ok(Validated { id, audience: list, expires_at, claims })
}

fn check_type(jws: &Jws<'_>) -> Result<(), Error> {
    match jws.text("typ")? {
        None | Some("JWT" | "JOSE") => Ok(()),
        Some(other) => Err(Error::Type(shown(other))),
    }
}

fn key_id<'a>(jws: &'a Jws<'_>) -> Result<&'a str, Error> {
    let usable = |id: &&str| (1..=MAX_KEY_ID_LEN).contains(&id.len());
    jws.text("kid")?.filter(usable).ok_or(Error::HeaderType("kid"))
}

/// Only among the keys of the subject's own trust domain: no key of one domain ever speaks for another. A key that several site CAs have
/// endorsed is good if one of them may vouch for the subject: so no site can spoil another's key by endorsing it too.
fn find_key<'a>(
    store: &'a TrustStore,
    id: &SpiffeId,
    key_id: &str,
    now: OffsetDateTime,
) -> Result<&'a Authority, Error> {
    let trust_domain = id.trust_domain();
    let bundle = store.bundle(trust_domain).ok_or_else(|| Error::UnknownTrustDomain(trust_domain.clone()))?;
    let mut refused = None;
    for authority in bundle.jwt_authorities().iter().filter(|authority| authority.key_id == key_id) {
        match check_authority(authority, store, id, now) {
            Ok(()) => return Ok(authority),
            Err(reason) => refused = refused.or(Some(reason)),
        }
    }
    Err(refused
        .unwrap_or_else(|| Error::UnknownKey { trust_domain: trust_domain.clone(), key_id: shown(key_id) }))
}

fn check_authority(
    authority: &Authority,
    store: &TrustStore,
    id: &SpiffeId,
    now: OffsetDateTime,
) -> Result<(), Error> {
    if let Some(end) = authority.expires_at.filter(|end| *end < now) {
        return Err(Error::KeyExpired { key_id: shown(&authority.key_id), at: utc(end.unix_timestamp()) });
    }
    authority.check_earlier(store, id.trust_domain())?;
    match &authority.endorser {
        Some(ca) => verify::check_ca(ca, store, id).map_err(|reason| Box::new(reason).into()),
        None => Ok(()),
    }
}
