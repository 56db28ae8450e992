//! What is in a file: certificates, lists, requests, keys, bundles, tokens, Kubernetes objects, with the reasons why they would be
//! refused. No secret is ever shown: of a key the hash of its public half, of a key's share its number, of a token everything but its signature.

mod jwks;
mod lines;
mod problems;
mod token;

use serde::Serialize;
use time::OffsetDateTime;

pub use jwks::Jwk;
pub use lines::lines;

use crate::{
    blocks::{Block, blocks},
    csr,
    facts::Facts,
    key::Key,
    kubernetes::{self, Object},
    share::{self, Share},
    x509::{Crl, KeyFacts, KeyFault},
};

/// Longest file that is looked at, in bytes.
pub const MAX_LEN: usize = 1 << 20;
/// How deep objects within objects are looked at.
const MAX_DEPTH: usize = 2;

/// One thing found in a file.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Item {
    /// A certificate.
    Certificate {
        /// "root", "ca", "svid" or "other".
        kind: &'static str,
        /// What it says.
        #[serde(flatten)]
        facts: Box<Facts>,
        /// Why it would be refused; empty: by itself it is sound.
        problems: Vec<String>,
    },
    /// A revocation list.
    Crl {
        /// What it says.
        #[serde(flatten)]
        list: Box<Crl>,
        /// Why it would be refused.
        problems: Vec<String>,
    },
    /// A signing request whose signature holds.
    Request {
        /// What the requester calls itself.
        subject: String,
        /// URI names it asks for.
        uris: Vec<String>,
        /// Hex SHA-256 of its public key.
        key_sha256: String,
    },
    /// A private key; nothing secret is shown.
    Key {
        /// True: the passphrase is needed for more.
        encrypted: bool,
        /// Hex SHA-256 of its public half, if it can be read.
        key_sha256: Option<String>,
    },
    /// A share of the key that opens a root; what it holds is not shown.
    Share {
        /// Its set.
        set: String,
        /// Which of the set it is, from 1.
        index: u8,
        /// How many open the root.
        threshold: u8,
        /// How many there are.
        total: u8,
    },
    /// A JWK set: a SPIFFE bundle document, or keys of tokens alone.
    Bundle {
        /// `spiffe_sequence`.
        sequence: Option<u64>,
        /// `spiffe_refresh_hint`, in seconds.
        refresh_hint: Option<u64>,
        /// Its keys.
        keys: Vec<Jwk>,
        /// Why it would be refused.
        problems: Vec<String>,
    },
    /// A JWT-SVID. Its signature is neither checked, which takes the bundle, nor shown.
    Token {
        /// `alg`.
        algorithm: String,
        /// `kid`.
        key_id: Option<String>,
        /// `sub`.
        subject: Option<String>,
        /// `aud`.
        audience: Vec<String>,
        /// `exp`, seconds since the Unix epoch.
        expires_at: Option<i64>,
        /// Why it would be refused.
        problems: Vec<String>,
    },
    /// A Kubernetes object with data.
    Object {
        /// Such as "Secret istio-system/cacerts".
        object: String,
        /// What each key of its data holds.
        entries: Vec<Entry>,
    },
    /// Something we can't read.
    Unknown {
        /// What the PEM block says it is, or "DER".
        label: String,
        /// Why it can't be read.
        reason: String,
    },
}

/// One key of an object's data.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The key.
    pub name: String,
    /// What is in it.
    pub items: Vec<Item>,
}

/// Looks at every PEM block of a file, or at one DER object, JSON document, token or Kubernetes manifest.
pub fn inspect(bytes: &[u8], now: OffsetDateTime) -> Vec<Item> {
    look(bytes, now, 0)
}

fn look(bytes: &[u8], now: OffsetDateTime, depth: usize) -> Vec<Item> {
    if bytes.len() > MAX_LEN {
        return unknown("file", format!("{} bytes; more than {MAX_LEN} are not looked at", bytes.len()));
    }
    if bytes.first() == Some(&0x30) {
        return vec![der(bytes, now)];
    }
    let parts = blocks(bytes);
    if parts.iter().any(|block| block.label == share::LABEL) {
        return vec![key_share(bytes)];
    }
    let found: Vec<Item> = parts.iter().map(|block| pem_block(block, now)).collect();
    // A manifest may hold PEM within its text; it is the object that is meant then.
    if kubernetes::seems(bytes) && depth < MAX_DEPTH {
        return document(bytes, now, depth);
    }
    match token::seems(bytes) {
        true => vec![token::inspect(bytes, now)],
        false if found.is_empty() => {
            unknown("file", "neither PEM, DER, a JWK set, a token nor a Kubernetes object".into())
        }
        false => found,
    }
}

fn key_share(bytes: &[u8]) -> Item {
    match Share::parse(bytes) {
        Ok(share) => Item::Share {
            set: share.set().to_string(),
            index: share.index(),
            threshold: share.quorum().threshold(),
            total: share.quorum().total(),
        },
        Err(e) => Item::Unknown { label: "key share".into(), reason: e.to_string() },
    }
}

fn unknown(label: &str, reason: String) -> Vec<Item> {
    vec![Item::Unknown { label: label.into(), reason }]
}

fn document(bytes: &[u8], now: OffsetDateTime, depth: usize) -> Vec<Item> {
    if let Some(bundle) = jwks::inspect(bytes, now) {
        return vec![bundle];
    }
    match kubernetes::objects(bytes) {
        Ok(objects) if objects.is_empty() => {
            unknown("JSON", "neither a JWK set nor a Kubernetes object".into())
        }
        Ok(objects) => objects.iter().map(|object| entries(object, now, depth)).collect(),
        Err(why) => unknown("document", why),
    }
}

fn entries(object: &Object, now: OffsetDateTime, depth: usize) -> Item {
    let readable = object.data.iter().map(|(name, bytes)| {
        // An empty value is a mark, such as istio-generated.
        let items = if bytes.is_empty() { Vec::new() } else { look(bytes, now, depth + 1) };
        Entry { name: name.clone(), items }
    });
    let damaged = object
        .undecodable
        .iter()
        .map(|name| Entry { name: name.clone(), items: unknown("data", "not base64".into()) });
    Item::Object { object: object.place(), entries: readable.chain(damaged).collect() }
}

/// True if nothing in it would be refused.
pub fn is_sound(items: &[Item]) -> bool {
    items.iter().all(|item| match item {
        Item::Certificate { problems, .. }
        | Item::Crl { problems, .. }
        | Item::Bundle { problems, .. }
        | Item::Token { problems, .. } => problems.is_empty(),
        Item::Object { entries, .. } => entries.iter().all(|entry| is_sound(&entry.items)),
        Item::Unknown { .. } => false,
        Item::Request { .. } | Item::Key { .. } | Item::Share { .. } => true,
    })
}

fn pem_block(block: &Block, now: OffsetDateTime) -> Item {
    let label = block.label.as_str();
    let bad = |reason: String| Item::Unknown { label: label.into(), reason };
    let bytes = match &block.contents {
        _ if label.ends_with("PRIVATE KEY") => return private_key(label, KeyFacts::from_block(block)),
        Ok(bytes) => bytes,
        Err(why) => return bad(format!("{}: {why}", block.place())),
    };
    match label {
        "CERTIFICATE" => match Facts::parse(bytes) {
            Ok(facts) => problems::certificate(facts, now),
            Err(e) => bad(e.to_string()),
        },
        "X509 CRL" => Crl::parse(bytes).map_or_else(bad, |list| problems::list(list, now)),
        "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST" => request(bytes, label),
        _ => bad("not a certificate, list, request or private key".into()),
    }
}

fn der(bytes: &[u8], now: OffsetDateTime) -> Item {
    match (Facts::parse(bytes), csr::parse(bytes), Key::from_pkcs8(bytes), Crl::parse(bytes)) {
        (Ok(facts), ..) => problems::certificate(facts, now),
        (_, Ok(_), ..) => request(bytes, "DER"),
        (_, _, Ok(key), _) => Item::Key { encrypted: false, key_sha256: Some(key.public().sha256()) },
        (.., Ok(list)) => problems::list(list, now),
        (Err(e), ..) => Item::Unknown { label: "DER".into(), reason: e.to_string() },
    }
}

fn request(bytes: &[u8], label: &str) -> Item {
    match csr::parse(bytes) {
        Ok(r) => Item::Request { subject: r.subject, uris: r.uris, key_sha256: r.public_key.sha256() },
        Err(e) => Item::Unknown { label: label.into(), reason: e.to_string() },
    }
}

fn private_key(label: &str, key: Result<KeyFacts, KeyFault>) -> Item {
    match key {
        Ok(key) => Item::Key { encrypted: false, key_sha256: Some(key.key_sha256) },
        Err(KeyFault::Encrypted) => Item::Key { encrypted: true, key_sha256: None },
        Err(e) => Item::Unknown { label: label.into(), reason: e.to_string() },
    }
}

#[cfg(test)]
mod tests;
