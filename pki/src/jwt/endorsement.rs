//! Who may add a JWT key to the trust domain: a live site CA, by its signature.
//!
//! A JWT key has no chain: being in the bundle is all that it needs, so whoever could append one would own the trust domain. An
//! endorsement closes that gap. It is a JWS, made by the site CA's key:
//!
//! ```text
//! header  {"alg": "ES256"|"ES384", "typ": "isthmus-jwt-authority", "x5c": [the site CA's certificate, base64 DER]}
//! payload {"trust_domain": "...", "jwk": {the public key}, "kid": "...", "iat": seconds, "exp": seconds}
//! ```
//!
//! The CA is verified against the domain's roots, its revocations and the policy; the key then ends with the endorsement, which never
//! outlives the CA, and speaks only for the IDs that the CA may issue.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rcgen::SigningKey as _;
use rustls_pki_types::CertificateDer;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::{
    Authority, Error, MAX_KEY_ID_LEN, base64url, claims,
    jwk::{EcCurve, PublicKey},
    jws::{self, Jws},
};
use crate::{authority, bundle::TrustStore, facts::Facts, id::TrustDomain, verify};

/// `typ` of an endorsement: no JWT-SVID, and refused as one.
pub const ENDORSEMENT_TYPE: &str = "isthmus-jwt-authority";
/// Longest endorsement that is looked at, in bytes.
const MAX_LEN: usize = 16 << 10;

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

/// Endorses a JWT key with a site CA until `expires_at`, or until the CA's own end if that is earlier.
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
    let (name, curve) = match PublicKey::from_spki(&facts.spki)? {
        PublicKey::Ec { curve: EcCurve::P256, .. } => ("ES256", EcCurve::P256),
        PublicKey::Ec { curve: EcCurve::P384, .. } => ("ES384", EcCurve::P384),
        _ => return Err(Error::Endorser("the site CA's key is not ECDSA P-256 or P-384".into())),
    };
    let header =
        json!({ "alg": name, "typ": ENDORSEMENT_TYPE, "x5c": [BASE64_STANDARD.encode(ca.certificate())] });
    let payload = json!({
        "trust_domain": ca.trust_domain().as_str(),
        "jwk": key.key.to_jwk(),
        "kid": key.key_id,
        "iat": now.unix_timestamp(),
        "exp": exp,
    });
    let input =
        jws::signing_input(&base64url::encode(header.to_string().as_bytes()), payload.to_string().as_bytes());
    let der = ca.key().sign(input.as_bytes()).map_err(|_| Error::Sign)?;
    let raw = raw_signature(&der, curve.coordinate_len()).ok_or(Error::Sign)?;
    Ok(Endorsement(format!("{input}.{}", base64url::encode(&raw))))
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
        let jws = Jws::parse(&self.0, MAX_LEN, &["typ", "x5c"])?;
        match jws.text("typ")? {
            Some(ENDORSEMENT_TYPE) => {}
            other => return Err(Error::Type(jws::shown(other.unwrap_or_default()))),
        }
        let payload = jws.payload()?;
        let trust_domain = trust_domain(&payload)?;
        let (ca, root) =
            verify::verify_ca(&certificate(&jws)?, store, &trust_domain, now).map_err(Box::new)?;
        let ca_key = PublicKey::from_spki(&ca.spki)?;
        if !jws.algorithm.fits(&ca_key) {
            return Err(Error::KeyMismatch);
        }
        jws.verify(&ca_key)?;
        let authority = authority(&payload, ca, now)?;
        Ok(Endorsed { trust_domain, root_sha256: root.sha256, authority })
    }
}

pub(super) fn certificate(jws: &Jws<'_>) -> Result<CertificateDer<'static>, Error> {
    let wrong = || Error::Endorser("\"x5c\" must hold one certificate, that of the site CA".into());
    let Some([Value::String(text)]) = jws.header.get("x5c").and_then(Value::as_array).map(Vec::as_slice)
    else {
        return Err(wrong());
    };
    BASE64_STANDARD.decode(text).map(CertificateDer::from).map_err(|_| wrong())
}

fn trust_domain(payload: &Map<String, Value>) -> Result<TrustDomain, Error> {
    let name = payload.get("trust_domain").and_then(Value::as_str);
    name.and_then(|name| TrustDomain::parse(name).ok())
        .ok_or(Error::Claim("trust_domain", "must name a trust domain"))
}

fn authority(payload: &Map<String, Value>, ca: Facts, now: OffsetDateTime) -> Result<Authority, Error> {
    let members = ["trust_domain", "jwk", "kid", "iat", "exp"];
    if payload.keys().any(|name| !members.contains(&name.as_str())) {
        return Err(Error::Claim("endorsement", "has members that this version does not know"));
    }
    let ends = claims::times(payload, now)?;
    if ends.unix_timestamp() > ca.not_after {
        return Err(Error::Claim("exp", "is after the end of the site CA"));
    }
    let key_id =
        payload.get("kid").and_then(Value::as_str).filter(|id| (1..=MAX_KEY_ID_LEN).contains(&id.len()));
    let key_id = key_id.ok_or(Error::Claim("kid", "must be a string of 1 to 256 bytes"))?.to_owned();
    let jwk =
        payload.get("jwk").and_then(Value::as_object).ok_or(Error::Claim("jwk", "must be an object"))?;
    let key = PublicKey::from_jwk(jwk)?;
    Ok(Authority { key_id, key, expires_at: Some(ends), endorser: Some(Arc::new(ca)) })
}

/// r and s of a DER ECDSA-Sig-Value (RFC 3279 section 2.2.3), side by side at full length as JOSE has them.
pub(super) fn raw_signature(der: &[u8], length: usize) -> Option<Vec<u8>> {
    let (_, sequence) = x509_parser::der_parser::parse_der(der).ok()?;
    let [r, s] = sequence.as_sequence().ok()?.as_slice() else { return None };
    let mut raw = Vec::with_capacity(2 * length);
    for number in [r, s] {
        let digits = number.as_slice().ok()?;
        let digits = digits.strip_prefix(&[0]).unwrap_or(digits);
        raw.resize(raw.len() + length.checked_sub(digits.len())?, 0);
        raw.extend_from_slice(digits);
    }
    Some(raw)
}
