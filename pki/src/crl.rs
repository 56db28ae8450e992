//! Certificate revocation lists (RFC 5280 section 5): the root's word on which site CAs are no longer to be believed.
//!
//! Only whole lists count here: one that covers a part of what its issuer signed (issuing distribution point, delta) is refused, so
//! where there is a list for an issuer, what it does not name is known to be good.

use std::{fmt, sync::Arc};

use time::OffsetDateTime;
use webpki::{CertRevocationList, OwnedCertRevocationList};
use x509_parser::{prelude::FromDer as _, revocation_list::CertificateRevocationList};

use crate::{
    facts::{Facts, utc},
    signed_by,
};

/// Longest list that is read, in bytes.
pub const MAX_LEN: usize = 1 << 20;

/// Why bytes are not a revocation list that we can go by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrlError {
    /// Beyond [`MAX_LEN`].
    #[error("the CRL has {0} bytes; more than {MAX_LEN} are refused")]
    TooLong(usize),
    /// PEM that can't be read, or of something else.
    #[error("not one PEM block \"X509 CRL\": {0}")]
    Pem(String),
    /// Not DER of a CRL.
    #[error("not a CRL in DER: {0}")]
    Der(String),
    /// Covers a part only.
    #[error("the CRL is partial (it has an issuing distribution point); issue a complete one")]
    Partial,
    /// RFC 5280 section 5.1.2.5 wants it, and without it nobody knows when a newer one is due.
    #[error("the CRL does not say when the next one is due (nextUpdate)")]
    NoNextUpdate,
    /// Signed by nobody whom we trust.
    #[error(
        "the CRL of {issuer} is not signed by a root of a trust bundle here; give the bundle of its trust domain first"
    )]
    UnknownIssuer {
        /// Whose it claims to be.
        issuer: String,
    },
}

/// A complete revocation list. Parsing believes nothing: [`crate::TrustStore::with_crls`] checks who signed it.
#[derive(Clone)]
pub struct Crl {
    der: Vec<u8>,
    issuer: String,
    issuer_der: Vec<u8>,
    number: Vec<u8>,
    this_update: i64,
    next_update: i64,
    lookup: Arc<CertRevocationList<'static>>,
}

impl Crl {
    /// Reads one list, in DER or as one PEM block.
    pub fn parse(bytes: &[u8]) -> Result<Self, CrlError> {
        if bytes.len() > MAX_LEN {
            return Err(CrlError::TooLong(bytes.len()));
        }
        if bytes.first() == Some(&0x30) {
            Self::from_der(bytes.to_vec())
        } else {
            Self::from_der(from_pem(bytes)?)
        }
    }

    fn from_der(der: Vec<u8>) -> Result<Self, CrlError> {
        let lookup = OwnedCertRevocationList::from_der(&der).map_err(|e| CrlError::Der(e.to_string()))?;
        let lookup = CertRevocationList::from(lookup);
        if lookup.issuing_distribution_point().is_some() {
            return Err(CrlError::Partial);
        }
        let (_, parsed) =
            CertificateRevocationList::from_der(&der).map_err(|e| CrlError::Der(e.to_string()))?;
        let next_update = parsed.next_update().ok_or(CrlError::NoNextUpdate)?.timestamp();
        Ok(Self {
            issuer: parsed.issuer().to_string(),
            issuer_der: parsed.issuer().as_raw().to_vec(),
            number: parsed.crl_number().map(|number| number.to_bytes_be()).unwrap_or_default(),
            this_update: parsed.last_update().timestamp(),
            next_update,
            lookup: Arc::new(lookup),
            der,
        })
    }

    /// DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whose list it is, RFC 4514 style.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// When it was made, in seconds since 1970.
    pub fn this_update(&self) -> i64 {
        self.this_update
    }

    /// When a newer one is due, in seconds since 1970.
    pub fn next_update(&self) -> i64 {
        self.next_update
    }

    /// Why somebody should bring a newer one; `None` if it is fresh. A stale list still revokes what it names: who could keep the
    /// newer one away must not be able to bring a revoked CA back, nor to stop the fabric by it.
    pub fn stale(&self, now: OffsetDateTime) -> Option<String> {
        let (clock, due) = (now.unix_timestamp(), self.next_update);
        (clock > due).then(|| {
            let (due, clock) = (utc(due), utc(clock));
            format!(
                "the CRL of {} should have been replaced by {due}, this node's clock says {clock}",
                self.issuer
            )
        })
    }

    /// True if it names this certificate. The issuer must be the list's own.
    pub(crate) fn revokes(&self, certificate: &Facts) -> bool {
        let Ok(serial) = hex::decode(&certificate.serial) else { return true };
        certificate.issuer_der == self.issuer_der && !matches!(self.lookup.find_serial(&serial), Ok(None))
    }

    /// True if the key of this certificate signed the list, in its name.
    pub(crate) fn is_signed_by(&self, root: &[u8], facts: &Facts) -> bool {
        facts.key_usage.is_none_or(|usage| usage.crl_sign) && signed_by::crl(&self.der, root)
    }

    /// True if whoever has this list needs `other` no more: of the same issuer, and this one is newer.
    pub fn replaces(&self, other: &Self) -> bool {
        self.issuer_der == other.issuer_der && self.is_newer_than(other)
    }

    /// True if it replaces `other`, of the same issuer: a higher number (RFC 5280 section 5.2.3), or made later.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        let age = |crl: &Self| (crl.number.len(), crl.number.clone(), crl.this_update);
        age(self) > age(other)
    }

    pub(crate) fn lookup(&self) -> &CertRevocationList<'static> {
        &self.lookup
    }
}

fn from_pem(bytes: &[u8]) -> Result<Vec<u8>, CrlError> {
    let mut blocks = pem::parse_many(bytes).map_err(|e| CrlError::Pem(e.to_string()))?;
    match (blocks.pop(), blocks.is_empty()) {
        (Some(block), true) if block.tag() == "X509 CRL" => Ok(block.into_contents()),
        (Some(block), true) => Err(CrlError::Pem(format!("it is {:?}", block.tag()))),
        (None, _) => Err(CrlError::Pem("there is none".into())),
        (Some(_), false) => Err(CrlError::Pem("there are several".into())),
    }
}

impl fmt::Debug for Crl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crl")
            .field("issuer", &self.issuer)
            .field("next_update", &self.next_update)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Crl {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Crl {}

#[cfg(test)]
mod tests;
