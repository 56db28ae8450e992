//! SPIFFE bundle documents (Trust Domain and Bundle, section 4): a JWK set with an entry for each root and each JWT key.
//!
//! What we write has every member that the standard wants. What we read comes from strangers, so it is bounded, and read the other way
//! round from our own files: an entry that can't be used is left out and told of, and the others count. Trust can only become less by it.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustls_pki_types::CertificateDer;
use serde_json::{Map, Value, json};

use super::{Bundle, MAX_CERTIFICATES};
use crate::{
    facts::Facts,
    id::TrustDomain,
    json,
    jwt::{self, MAX_KEY_ID_LEN, PublicKey},
};

/// Longest document that is read, in bytes.
pub const MAX_DOCUMENT_LEN: usize = 1 << 20;
/// Most entries of a document, those that are ignored included.
pub const MAX_KEYS: usize = 256;

/// Why a document is refused as a whole; the bundle known before stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Beyond [`MAX_DOCUMENT_LEN`].
    #[error("the document has {0} bytes; more than {MAX_DOCUMENT_LEN} are refused")]
    TooLong(usize),
    /// Not a JSON object, or one with a key twice.
    #[error("the document can't be read: {0}")]
    Json(#[from] json::Error),
    /// No `keys`, or not an array of objects.
    #[error("the document has no \"keys\", which must be an array of objects and may be empty")]
    Keys,
    /// Beyond [`MAX_KEYS`] or [`MAX_CERTIFICATES`].
    #[error(
        "the document has too many keys: at most {MAX_KEYS}, and {MAX_CERTIFICATES} certificates among them"
    )]
    TooManyKeys,
    /// A member that is no whole number, or beyond 64 bits.
    #[error("{0:?} must be a whole number from 0, of 64 bits")]
    Number(&'static str),
    /// PEM that can't be read.
    #[error("neither a SPIFFE bundle document nor PEM: {0}")]
    Pem(String),
}

/// What became of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// What can be used of it. Without any key the trust domain is untrusted: nothing of it verifies.
    pub bundle: Bundle,
    /// What can't, with the reason.
    pub skipped: Vec<Skipped>,
}

/// An entry that was left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {number}: {reason}")]
pub struct Skipped {
    /// Of the entry, from 1.
    pub number: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl Bundle {
    /// The SPIFFE bundle document: roots and JWT keys, sequence and refresh hint.
    pub fn to_jwks(&self) -> String {
        let roots = self.anchors.iter().filter_map(|der| root_entry(der));
        let keys: Vec<Value> = roots.chain(self.jwt_keys().map(jwt_entry)).collect();
        let mut document = Map::new();
        document.insert("keys".into(), keys.into());
        if let Some(sequence) = self.sequence {
            document.insert("spiffe_sequence".into(), sequence.into());
        }
        if let Some(hint) = self.refresh_hint {
            document.insert("spiffe_refresh_hint".into(), hint.as_secs().into());
        }
        Value::from(document).to_string()
    }

    /// The JWT keys as a plain JWK set (RFC 7517), as `FetchJWTBundles` sends it: no members of SPIFFE's own.
    pub fn jwt_jwks(&self) -> String {
        json!({ "keys": self.jwt_keys().map(plain_entry).collect::<Vec<_>>() }).to_string()
    }

    /// Each once, whoever endorsed it.
    fn jwt_keys(&self) -> impl Iterator<Item = &jwt::Authority> {
        let mut seen = BTreeSet::new();
        self.jwt_authorities.iter().filter(move |key| seen.insert(key.key_id.as_str()))
    }

    /// Reads another trust domain's bundle document. Which domain it is of was configured, never inferred from the document.
    pub fn from_jwks(trust_domain: &TrustDomain, bytes: &[u8]) -> Result<Document, Error> {
        if bytes.len() > MAX_DOCUMENT_LEN {
            return Err(Error::TooLong(bytes.len()));
        }
        let document = json::object(bytes)?;
        let keys = document.get("keys").and_then(Value::as_array).ok_or(Error::Keys)?;
        if keys.len() > MAX_KEYS {
            return Err(Error::TooManyKeys);
        }
        let mut bundle = Self::empty(trust_domain.clone());
        bundle.sequence = number(&document, "spiffe_sequence")?;
        bundle.refresh_hint = number(&document, "spiffe_refresh_hint")?.map(Duration::from_secs);
        let mut skipped = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let key = key.as_object().ok_or(Error::Keys)?;
            if let Err(reason) = bundle.take(key) {
                skipped.push(Skipped { number: index + 1, reason });
            }
        }
        bundle.bounded(skipped)
    }

    /// Reads another trust domain's bundle from a file that an operator brought: a bundle document, or its roots in PEM.
    pub fn foreign(trust_domain: &TrustDomain, bytes: &[u8]) -> Result<Document, Error> {
        if bytes.trim_ascii_start().first() == Some(&b'{') {
            return Self::from_jwks(trust_domain, bytes);
        }
        if bytes.len() > MAX_DOCUMENT_LEN {
            return Err(Error::TooLong(bytes.len()));
        }
        let blocks = pem::parse_many(bytes).map_err(|e| Error::Pem(e.to_string()))?;
        if blocks.is_empty() {
            return Err(Error::Pem("no PEM block in it".into()));
        }
        let mut bundle = Self::empty(trust_domain.clone());
        let mut skipped = Vec::new();
        for (index, block) in blocks.into_iter().enumerate() {
            let label = block.tag().to_owned();
            let taken = match label.as_str() {
                "CERTIFICATE" => bundle.take_root(block.into_contents()),
                _ => Err(format!("it is {label:?}, not a certificate")),
            };
            if let Err(reason) = taken {
                skipped.push(Skipped { number: index + 1, reason });
            }
        }
        bundle.bounded(skipped)
    }

    fn bounded(self, skipped: Vec<Skipped>) -> Result<Document, Error> {
        if self.anchors.len() > MAX_CERTIFICATES {
            return Err(Error::TooManyKeys);
        }
        Ok(Document { bundle: self, skipped })
    }

    /// An unknown `kty` or `use`, or none, is no fault: the standard says to pass over such an entry.
    fn take(&mut self, key: &Map<String, Value>) -> Result<(), String> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        match (text("kty"), text("use")) {
            (Some("EC" | "RSA"), Some("x509-svid")) => self.take_x509(key),
            (Some("EC" | "RSA"), Some("jwt-svid")) => self.take_jwt(key),
            _ => Ok(()),
        }
    }

    /// `x5c` alone counts, and of that the first value: without it the entry is passed over.
    fn take_x509(&mut self, key: &Map<String, Value>) -> Result<(), String> {
        let Some(first) = key.get("x5c").and_then(Value::as_array).and_then(|list| list.first()) else {
            return Ok(());
        };
        let der = first.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        self.take_root(der.ok_or("\"x5c\" is not base64 (RFC 4648 section 4) of a certificate")?)
    }

    fn take_root(&mut self, der: Vec<u8>) -> Result<(), String> {
        let facts = Facts::parse(&der).map_err(|e| e.to_string())?;
        check_root(&facts, &self.trust_domain).map_err(|reason| format!("{}: {reason}", facts.subject))?;
        let der = CertificateDer::from(der);
        if !self.anchors.contains(&der) {
            self.anchors.push(der);
        }
        Ok(())
    }

    fn take_jwt(&mut self, key: &Map<String, Value>) -> Result<(), String> {
        let id = key.get("kid").and_then(Value::as_str).unwrap_or_default();
        if !(1..=MAX_KEY_ID_LEN).contains(&id.len()) {
            return Err(format!("a JWT key needs \"kid\", of 1 to {MAX_KEY_ID_LEN} bytes"));
        }
        let public = PublicKey::from_jwk(key).map_err(|e| e.to_string())?;
        match self.jwt_authorities.iter().find(|known| known.key_id == id) {
            Some(known) if known.key != public => Err(format!("another key has the ID {id:?} too")),
            Some(_) => Ok(()),
            None => {
                self.jwt_authorities.push(jwt::Authority::new(id.to_owned(), public));
                Ok(())
            }
        }
    }
}

/// Other CAs make other roots: neither a URI SAN nor a self-signature is demanded (X509-SVID section 6 says "should"). But a root that
/// names another trust domain was made for that one.
fn check_root(facts: &Facts, trust_domain: &TrustDomain) -> Result<(), String> {
    if !facts.is_ca() || !facts.may_sign_certificates() {
        return Err("not a CA: cA and keyCertSign must be set".into());
    }
    if facts.negative_serial {
        return Err("its serial number is negative".into());
    }
    let own = trust_domain.id().to_string();
    match facts.uris.iter().find(|uri| uri.starts_with("spiffe://") && **uri != own) {
        Some(uri) => Err(format!("it was made for {uri:?}, not for {own:?}")),
        None => Ok(()),
    }
}

fn number(document: &Map<String, Value>, name: &'static str) -> Result<Option<u64>, Error> {
    let number = |value: &Value| value.as_u64().ok_or(Error::Number(name));
    document.get(name).map(number).transpose()
}

/// `use` and `x5c`, no `kid` (X509-SVID section 6.1). A root whose key JWK can't express is not among our anchors.
fn root_entry(der: &CertificateDer<'_>) -> Option<Value> {
    let facts = Facts::parse(der).ok()?;
    let mut entry = PublicKey::from_spki(&facts.spki).ok()?.to_jwk();
    entry.insert("use".into(), "x509-svid".into());
    entry.insert("x5c".into(), json!([BASE64_STANDARD.encode(der)]));
    Some(entry.into())
}

fn plain_entry(authority: &jwt::Authority) -> Value {
    let mut entry = authority.key.to_jwk();
    entry.insert("kid".into(), authority.key_id.as_str().into());
    entry.into()
}

fn jwt_entry(authority: &jwt::Authority) -> Value {
    let mut entry = plain_entry(authority);
    entry["use"] = "jwt-svid".into();
    entry
}

#[cfg(test)]
mod tests;
