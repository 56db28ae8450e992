//! Who may add a JWT key to the trust domain: a live site CA, by its signature.
//!
//! A JWT key has no chain: being in the bundle is all that it needs, so whoever could append one would own the trust domain. An
//! endorsement closes that gap. It is a [statement](crate::statement) of the site CA, of type "isthmus-jwt-authority":
//!
//! ```text
//! payload {"trust_domain": "...", "jwk": {the public key}, "kid": "...", "iat": seconds, "exp": seconds,
//!          "cas": [SHA-256 of the key of each CA that had endorsed the key before; left out where there is none]}
//! ```
//!
//! The CA is verified against the domain's roots, its revocations and the policy; the key then ends with the endorsement, which never
//! outlives the CA, and speaks only for the IDs that the CA may issue. `kid` is the key's thumbprint (RFC 7638): so no site can give its
//! key the name of another's.
//!
//! A key that outlives a change of the site CA lay on one disk with each of those CAs: it falls with any of them that is tainted, wherever
//! the later CA's endorsement is held. So that endorsement names them.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::{Authority, Error, LEEWAY, claims, jwk::PublicKey};
use crate::{
    authority,
    bundle::TrustStore,
    facts::Facts,
    id::TrustDomain,
    keyhash::KeyHash,
    statement::{self, Kind},
    verify,
};

/// `typ` of an endorsement: no JWT-SVID, and refused as one.
pub const ENDORSEMENT_TYPE: &str = "isthmus-jwt-authority";
/// Longest endorsement that is looked at, in bytes.
const MAX_LEN: usize = 16 << 10;
/// Most CAs that have endorsed a key before: it lives for a day, and each was signed by the root in between.
const MAX_EARLIER: usize = 16;
const KIND: Kind = Kind { typ: ENDORSEMENT_TYPE, longest: MAX_LEN };

/// An endorsement as text; [`Endorsement::verify`] says whether it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endorsement(String);

/// A key that a live site CA vouches for. Only [`Endorsement::verify`] makes one, and only these enter our own bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endorsed {
    trust_domain: TrustDomain,
    root_sha256: String,
    authority: Authority,
}

impl Endorsed {
    /// The key.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The trust domain that it may sign for.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// Lower-case hex SHA-256 of the root (DER) that its site CA hangs on.
    pub fn root_sha256(&self) -> &str {
        &self.root_sha256
    }

    pub(crate) fn into_authority(self) -> Authority {
        self.authority
    }
}

/// Endorses a JWT key with a site CA until `expires_at`, or until the CA's own end if that is earlier. CAs that have endorsed it before
/// are named with [`Authority::endorsed_before_by`].
pub fn endorse(
    ca: &authority::Authority,
    key: &Authority,
    expires_at: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<Endorsement, Error> {
    let facts = ca.facts();
    if facts.self_issued {
        return Err(Error::Endorser("a root endorses no JWT key: it stays offline; a site CA does".into()));
    }
    if let Some(reason) = facts.out_of_date(now) {
        return Err(Error::Endorser(format!("the site CA's {reason}")));
    }
    let exp = expires_at.unix_timestamp().min(facts.not_after);
    if exp <= now.unix_timestamp() {
        return Err(Error::Claim("exp", "must be in the future"));
    }
    let mut payload = json!({
        "trust_domain": ca.trust_domain().as_str(),
        "jwk": key.key.to_jwk(),
        "kid": key.key_id,
        "iat": now.unix_timestamp(),
        "exp": exp,
    });
    match key.earlier.len() {
        0 => {}
        1..=MAX_EARLIER => payload["cas"] = json!(*key.earlier),
        more => {
            return Err(Error::Endorser(format!(
                "{more} site CAs have endorsed the JWT key before; more than {MAX_EARLIER} can't be named: wait for the next key"
            )));
        }
    }
    Ok(Endorsement(statement::seal(KIND, payload.to_string().as_bytes(), ca)?))
}

impl Endorsement {
    /// Takes the text; nothing is checked yet but its length.
    pub fn from_text(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        if text.len() > MAX_LEN {
            return Err(Error::TooLong { length: text.len(), longest: MAX_LEN });
        }
        Ok(Self(text))
    }

    /// The text, for a file or a wire. It is no secret.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Verifies that a live site CA of the store vouches for the key now.
    pub fn verify(&self, store: &TrustStore, now: OffsetDateTime) -> Result<Endorsed, Error> {
        let opened = statement::open(&self.0, KIND)?;
        let payload = opened.object()?;
        let trust_domain = trust_domain(&payload)?;
        let (ca, root) = verify::verify_ca(&opened.signer, store, &trust_domain, now).map_err(Box::new)?;
        let authority = authority(&payload, ca, now)?;
        authority.check_earlier(store, &trust_domain)?;
        Ok(Endorsed { trust_domain, root_sha256: root.sha256, authority })
    }

    /// Was it made after this moment? Then the clock is wrong more likely than the endorsement, and it is not to be forgotten yet.
    pub fn is_early(&self, now: OffsetDateTime) -> bool {
        let payload = statement::open(&self.0, KIND).and_then(|opened| opened.object());
        let made = payload.ok().and_then(|payload| payload.get("iat").and_then(Value::as_i64));
        made.is_some_and(|iat| iat > now.unix_timestamp().saturating_add(LEEWAY))
    }
}

fn trust_domain(payload: &Map<String, Value>) -> Result<TrustDomain, Error> {
    let name = payload.get("trust_domain").and_then(Value::as_str);
    name.and_then(|name| TrustDomain::parse(name).ok())
        .ok_or(Error::Claim("trust_domain", "must name a trust domain"))
}

fn authority(payload: &Map<String, Value>, ca: Facts, now: OffsetDateTime) -> Result<Authority, Error> {
    let members = ["trust_domain", "jwk", "kid", "iat", "exp", "cas"];
    if payload.keys().any(|name| !members.contains(&name.as_str())) {
        return Err(Error::Claim("endorsement", "has members that this version does not know"));
    }
    let ends = claims::times(payload, now)?;
    if ends.unix_timestamp() > ca.not_after {
        return Err(Error::Claim("exp", "is after the end of the site CA"));
    }
    let jwk =
        payload.get("jwk").and_then(Value::as_object).ok_or(Error::Claim("jwk", "must be an object"))?;
    let key = PublicKey::from_jwk(jwk)?;
    let key_id = key.thumbprint();
    if payload.get("kid").and_then(Value::as_str) != Some(&key_id) {
        return Err(Error::Claim("kid", "must be the thumbprint (RFC 7638) of \"jwk\""));
    }
    let earlier = earlier(payload)?;
    Ok(Authority { key_id, key, expires_at: Some(ends), endorser: Some(Arc::new(ca)), earlier })
}

fn earlier(payload: &Map<String, Value>) -> Result<Arc<[KeyHash]>, Error> {
    let Some(value) = payload.get("cas") else { return Ok(Arc::default()) };
    let hashes = |list: &Vec<Value>| -> Option<Arc<[KeyHash]>> {
        list.iter().map(|ca| KeyHash::parse(ca.as_str()?).ok()).collect()
    };
    let list = value.as_array().filter(|list| (1..=MAX_EARLIER).contains(&list.len()));
    list.and_then(hashes).ok_or(Error::Claim("cas", "must be 1 to 16 SHA-256 in lower-case hex digits"))
}
