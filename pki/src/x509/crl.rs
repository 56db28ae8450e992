//! Revocation lists (RFC 5280 section 5) as far as advice needs them: what the CAs of others make is shown and explained here, also where
//! our verifier would not go by it. What we go by is [`crate::crl::Crl`], which takes only a complete list that says when the next is due.

use serde::Serialize;
use time::OffsetDateTime;
use x509_parser::{
    extensions::ParsedExtension, prelude::FromDer as _, revocation_list::CertificateRevocationList,
    x509::SubjectPublicKeyInfo,
};

use super::Certificate;
use crate::facts::utc;

/// Longest list that is looked at, in bytes.
const MAX_LEN: usize = 1 << 20;

/// A revocation list. Times are seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crl {
    /// Issuer, RFC 4514 style.
    pub issuer: String,
    /// CRL number in decimal, if present (RFC 5280 section 5.2.3).
    pub number: Option<String>,
    /// When it was made.
    pub this_update: i64,
    /// When the next one is due, if it says so.
    pub next_update: Option<i64>,
    /// Serial numbers of what is revoked, lower-case hex.
    pub revoked: Vec<String>,
    /// Authority key identifier, lower-case hex.
    pub authority_key_id: Option<String>,
    /// DER Name of the issuer.
    #[serde(skip)]
    pub issuer_der: Vec<u8>,
    /// The bytes.
    #[serde(skip)]
    pub der: Vec<u8>,
}

impl Crl {
    /// Reads DER; the error says why it is not a list.
    pub fn parse(der: &[u8]) -> Result<Self, String> {
        if der.len() > MAX_LEN {
            return Err(format!("{} bytes; more than {MAX_LEN} are refused", der.len()));
        }
        let (rest, list) = CertificateRevocationList::from_der(der)
            .map_err(|e| format!("not a certificate revocation list in DER: {e}"))?;
        if !rest.is_empty() {
            return Err(format!("{} bytes follow the list", rest.len()));
        }
        let key_id = list.extensions().iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                id.key_identifier.as_ref().map(|id| hex::encode(id.0))
            }
            _ => None,
        });
        Ok(Self {
            issuer: list.issuer().to_string(),
            number: list.crl_number().map(ToString::to_string),
            this_update: list.last_update().timestamp(),
            next_update: list.next_update().map(|t| t.timestamp()),
            revoked: list.iter_revoked_certificates().map(|r| hex::encode(r.raw_serial())).collect(),
            authority_key_id: key_id,
            issuer_der: list.issuer().as_raw().to_vec(),
            der: der.to_vec(),
        })
    }

    /// True if that CA signed it: name and signature.
    pub fn is_signed_by(&self, issuer: &Certificate) -> bool {
        let Ok((_, list)) = CertificateRevocationList::from_der(&self.der) else { return false };
        let Ok((_, key)) = SubjectPublicKeyInfo::from_der(&issuer.facts.spki) else { return false };
        self.issuer_der == issuer.facts.subject_der && list.verify_signature(&key).is_ok()
    }

    /// Why it is not in force at `now`; `None` if it is.
    pub fn out_of_date(&self, now: OffsetDateTime) -> Option<String> {
        let clock = now.unix_timestamp();
        if clock < self.this_update {
            return Some(format!("it was made at {}, the clock says {}", utc(self.this_update), utc(clock)));
        }
        let due = self.next_update.filter(|due| *due < clock)?;
        Some(format!("its successor was due at {}, the clock says {}", utc(due), utc(clock)))
    }

    /// True if it revokes that certificate.
    pub fn revokes(&self, certificate: &Certificate) -> bool {
        let serial = certificate.facts.serial.trim_start_matches("00");
        self.issuer_der == certificate.facts.issuer_der
            && self.revoked.iter().any(|revoked| revoked.trim_start_matches("00") == serial)
    }
}
