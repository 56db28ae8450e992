//! Trust bundles and chains: PEM or DER in, certificates out, strictly. One bad certificate is an error that says which one.

mod document;
mod store;

use std::time::Duration;

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::{
    facts::{self, Facts},
    id::{SpiffeId, TrustDomain},
    jwt,
    key::sha256_hex,
};
pub use document::{Document, Error as DocumentError, MAX_DOCUMENT_LEN, MAX_KEYS, Skipped};
pub use store::TrustStore;

/// Most certificates in one bundle or chain.
pub const MAX_CERTIFICATES: usize = 64;

/// Why a bundle or chain can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing in it.
    #[error("no certificate in it")]
    Empty,
    /// Beyond [`MAX_CERTIFICATES`].
    #[error("more than {MAX_CERTIFICATES} certificates in it")]
    TooMany,
    /// PEM that can't be read.
    #[error("PEM can't be read: {0}")]
    Pem(String),
    /// A block that is not a certificate.
    #[error("PEM block {number} is {label:?}, only CERTIFICATE belongs here")]
    Label {
        /// From 1.
        number: usize,
        /// What the block says it is.
        label: String,
    },
    /// A certificate that can't be read.
    #[error("certificate {number}: {reason}")]
    Certificate {
        /// From 1.
        number: usize,
        /// What is wrong with it.
        reason: facts::Error,
    },
    /// A certificate that can't be an anchor.
    #[error("certificate {number} ({subject}): {reason}")]
    NotAnAnchor {
        /// From 1.
        number: usize,
        /// Whose it is.
        subject: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Roots of several trust domains in one file: pooled roots let one domain vouch for another.
    #[error("roots of two trust domains in one bundle: {0} and {1}; give each its own file")]
    Mixed(TrustDomain, TrustDomain),
}

/// Reads PEM with CERTIFICATE blocks only, or one or several concatenated DER certificates.
pub fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let list = if bytes.first() == Some(&0x30) { from_der(bytes)? } else { from_pem(bytes)? };
    match list.len() {
        0 => Err(Error::Empty),
        1..=MAX_CERTIFICATES => check(list),
        _ => Err(Error::TooMany),
    }
}

fn check(list: Vec<CertificateDer<'static>>) -> Result<Vec<CertificateDer<'static>>, Error> {
    for (index, der) in list.iter().enumerate() {
        Facts::parse(der).map_err(|reason| Error::Certificate { number: index + 1, reason })?;
    }
    Ok(list)
}

fn from_pem(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let blocks = pem::parse_many(bytes).map_err(|e| Error::Pem(e.to_string()))?;
    if let Some(damage) = damaged_blocks(bytes, blocks.len()) {
        return Err(Error::Pem(damage));
    }
    let certificate = |(index, block): (usize, pem::Pem)| match block.tag() {
        "CERTIFICATE" => Ok(CertificateDer::from(block.into_contents())),
        label => Err(Error::Label { number: index + 1, label: label.to_owned() }),
    };
    blocks.into_iter().enumerate().map(certificate).collect()
}

/// What a parser that found `read` blocks left out without a word: it stops at a block that does not end.
pub(crate) fn damaged_blocks(bytes: &[u8], read: usize) -> Option<String> {
    let marks = bytes.windows(10).filter(|window| window == b"-----BEGIN").count();
    (marks != read).then(|| format!("{} of {marks} blocks are damaged", marks.saturating_sub(read)))
}

fn from_der(mut bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let length = der_length(bytes).filter(|l| *l <= bytes.len()).ok_or(Error::Certificate {
            number: list.len() + 1,
            reason: facts::Error::Der("its length does not fit".into()),
        })?;
        let (one, rest) = bytes.split_at(length);
        list.push(CertificateDer::from(one.to_vec()));
        if list.len() > MAX_CERTIFICATES {
            return Err(Error::TooMany);
        }
        bytes = rest;
    }
    Ok(list)
}

/// Length of the DER SEQUENCE at the start, header included.
fn der_length(bytes: &[u8]) -> Option<usize> {
    let first = usize::from(*bytes.get(1)?);
    if bytes[0] != 0x30 || first < 0x80 {
        return (bytes[0] == 0x30).then_some(first + 2);
    }
    let count = first & 0x7f;
    let digits = bytes.get(2..2 + count).filter(|_| (1..=3).contains(&count))?;
    Some(digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)) + 2 + count)
}

/// PEM of certificates, one after another.
pub fn to_pem<'a>(list: impl IntoIterator<Item = &'a CertificateDer<'a>>) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    let block =
        |der: &CertificateDer<'_>| pem::encode_config(&pem::Pem::new("CERTIFICATE", der.to_vec()), config);
    list.into_iter().map(block).collect()
}

/// What one trust domain is verified with: its roots, and the keys that its JWT-SVIDs are signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    trust_domain: TrustDomain,
    anchors: Vec<CertificateDer<'static>>,
    jwt_authorities: Vec<jwt::Authority>,
    sequence: Option<u64>,
    refresh_hint: Option<Duration>,
}

impl Bundle {
    /// Reads a bundle; every root names its trust domain by a URI SAN without a path, and all name the same.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let anchors = certificates(bytes)?;
        let mut domains = anchors.iter().enumerate().map(|(index, der)| anchor_domain(index + 1, der));
        let first = domains.next().unwrap_or(Err(Error::Empty))?;
        for other in domains {
            let other = other?;
            if other != first {
                return Err(Error::Mixed(first, other));
            }
        }
        Ok(Self { anchors, ..Self::empty(first) })
    }

    /// A bundle that vouches for nobody.
    fn empty(trust_domain: TrustDomain) -> Self {
        Self {
            trust_domain,
            anchors: Vec::new(),
            jwt_authorities: Vec::new(),
            sequence: None,
            refresh_hint: None,
        }
    }

    /// The trust domain that all of it vouches for.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// The roots, in the file's order.
    pub fn anchors(&self) -> &[CertificateDer<'static>] {
        &self.anchors
    }

    /// Concatenated DER, as the Workload API sends it.
    pub fn to_der(&self) -> Vec<u8> {
        self.anchors.iter().flat_map(|der| der.iter().copied()).collect()
    }

    /// The keys that JWT-SVIDs may be signed with. One that several site CAs have endorsed is there for each of them.
    pub fn jwt_authorities(&self) -> &[jwt::Authority] {
        &self.jwt_authorities
    }

    /// Replaces the JWT keys by endorsed ones, as [`Bundle::and_jwt_authorities`] adds them.
    #[must_use]
    pub fn with_jwt_authorities(mut self, keys: impl IntoIterator<Item = jwt::Endorsed>) -> Self {
        self.jwt_authorities.clear();
        self.and_jwt_authorities(keys)
    }

    /// Adds endorsed JWT keys. One endorsed under a root that is not in this bundle, or by the same CA as one that is there, is left out:
    /// when a root goes, so does all that it vouched for.
    #[must_use]
    pub fn and_jwt_authorities(mut self, keys: impl IntoIterator<Item = jwt::Endorsed>) -> Self {
        let same = |a: &jwt::Authority, b: &jwt::Authority| {
            let ca = |key: &jwt::Authority| key.endorser().map(|ca| ca.key_sha256.clone());
            a.key_id == b.key_id && ca(a) == ca(b)
        };
        for key in keys {
            let rooted = key.trust_domain() == &self.trust_domain
                && self.anchors.iter().any(|root| sha256_hex(root) == key.root_sha256());
            let authority = key.into_authority();
            if rooted && !self.jwt_authorities.iter().any(|known| same(known, &authority)) {
                self.jwt_authorities.push(authority);
            }
        }
        self
    }

    /// `spiffe_sequence`: grows with each change. `None` where the domain does not say.
    pub fn sequence(&self) -> Option<u64> {
        self.sequence
    }

    /// Sets the sequence.
    #[must_use]
    pub fn with_sequence(self, sequence: u64) -> Self {
        Self { sequence: Some(sequence), ..self }
    }

    /// `spiffe_refresh_hint`: how often readers should look for a newer one, in whole seconds.
    pub fn refresh_hint(&self) -> Option<Duration> {
        self.refresh_hint
    }

    /// Sets the refresh hint; fractions of a second are cut.
    #[must_use]
    pub fn with_refresh_hint(self, hint: Duration) -> Self {
        Self { refresh_hint: Some(Duration::from_secs(hint.as_secs())), ..self }
    }

    /// True if it vouches for nobody: its domain published an empty set, which means that everything is revoked (Trust Domain and Bundle
    /// section 4.2).
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty() && self.jwt_authorities.is_empty()
    }

    /// True if it has roots and none of them is valid now: it is too old to go by, its JWT keys included.
    pub fn is_out_of_date(&self, now: OffsetDateTime) -> bool {
        let current = |der| Facts::parse(der).is_ok_and(|facts| facts.out_of_date(now).is_none());
        !self.anchors.is_empty() && !self.anchors.iter().any(|der| current(der))
    }
}

fn anchor_domain(number: usize, der: &CertificateDer<'_>) -> Result<TrustDomain, Error> {
    let facts = Facts::parse(der).map_err(|reason| Error::Certificate { number, reason })?;
    let refuse = |reason| Err(Error::NotAnAnchor { number, subject: facts.subject.clone(), reason });
    if !facts.self_issued {
        return refuse("not a root: issuer and subject differ");
    }
    if !facts.is_ca() || !facts.may_sign_certificates() {
        return refuse("not a CA: cA and keyCertSign must be set");
    }
    if facts.negative_serial {
        return refuse("its serial number is negative");
    }
    if jwt::PublicKey::from_spki(&facts.spki).is_err() {
        return refuse("its key is neither ECDSA on a NIST curve nor RSA of 2048 to 8192 bits");
    }
    match facts.uris.as_slice() {
        [uri] => match SpiffeId::parse(uri) {
            Ok(id) if id.is_trust_domain() => Ok(id.trust_domain().clone()),
            _ => refuse("its URI SAN is not a trust domain's SPIFFE ID"),
        },
        _ => refuse("it must name its trust domain in exactly one URI SAN"),
    }
}

#[cfg(test)]
mod tests;
