//! Revocation lists (RFC 5280 section 5): which of a CA's certificates are not to be believed, although they have not expired.

use rcgen::{
    CertificateRevocationListParams, KeyIdMethod, RevocationReason, RevokedCertParams, SerialNumber,
};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use time::OffsetDateTime;
use x509_parser::{prelude::FromDer as _, revocation_list::CertificateRevocationList};

use super::{Authority, Error, whole_second};

/// Longest serial number, in bytes (RFC 5280 section 4.1.2.2).
const MAX_SERIAL_LEN: usize = 20;

/// Why a certificate is revoked (RFC 5280 section 5.3.1), as far as it makes sense for a CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Not said.
    Unspecified,
    /// Somebody else may have the key.
    KeyCompromise,
    /// Somebody else may have the CA's key.
    CaCompromise,
    /// A new one took its place.
    Superseded,
    /// The site is gone.
    CessationOfOperation,
}

impl Reason {
    /// By its name, as RFC 5280 writes it but with underscores: "ca_compromise".
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "unspecified" => Self::Unspecified,
            "key_compromise" => Self::KeyCompromise,
            "ca_compromise" => Self::CaCompromise,
            "superseded" => Self::Superseded,
            "cessation_of_operation" => Self::CessationOfOperation,
            _ => return None,
        })
    }

    /// One that we never write counts as unspecified: it is revoked all the same.
    fn from_code(code: u8) -> Self {
        match code {
            1 => Self::KeyCompromise,
            2 => Self::CaCompromise,
            4 => Self::Superseded,
            5 => Self::CessationOfOperation,
            _ => Self::Unspecified,
        }
    }

    fn code(self) -> RevocationReason {
        match self {
            Self::Unspecified => RevocationReason::Unspecified,
            Self::KeyCompromise => RevocationReason::KeyCompromise,
            Self::CaCompromise => RevocationReason::CaCompromise,
            Self::Superseded => RevocationReason::Superseded,
            Self::CessationOfOperation => RevocationReason::CessationOfOperation,
        }
    }
}

/// One certificate that is not to be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Its serial number, big-endian, as in the certificate.
    pub serial: Vec<u8>,
    /// Since when.
    pub at: OffsetDateTime,
    /// Why.
    pub reason: Reason,
}

/// Number of the `index`th of the lists signed together at `signed_at`. A list of a later signing has a higher number than any of an
/// earlier one, whichever periods they are for: so lists that were signed ahead lose against one that was signed since.
pub fn crl_number(signed_at: OffsetDateTime, index: u16) -> u64 {
    u64::try_from(signed_at.unix_timestamp()).unwrap_or(0) << 16 | u64::from(index)
}

impl Authority {
    /// Signs a list of everything revoked so far; an empty one is worth having, because verifiers ask for one.
    ///
    /// Lists may be signed ahead of their time: `this_update` says when one begins to hold. It must be within the CA's own validity.
    pub fn sign_crl(
        &self,
        revoked: &[Revoked],
        number: u64,
        this_update: OffsetDateTime,
        next_update: OffsetDateTime,
    ) -> Result<CertificateRevocationListDer<'static>, Error> {
        if !self.facts.key_usage.is_some_and(|usage| usage.crl_sign) {
            return Err(Error::NotCrlSigner);
        }
        if next_update <= this_update {
            return Err(Error::CrlDates);
        }
        if let Some(reason) = self.facts.out_of_date(this_update) {
            return Err(Error::OutOfDate(reason));
        }
        let params = CertificateRevocationListParams {
            this_update: whole_second(this_update),
            next_update: whole_second(next_update),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect::<Result<_, _>>()?,
            key_identifier_method: self.key_identifier(),
        };
        params.signed_by(&self.issuer).map(Into::into).map_err(|e| self.failed(&e))
    }

    /// The list names its signer's key as the signer's certificate does.
    fn key_identifier(&self) -> KeyIdMethod {
        let id = self.facts.subject_key_id.as_deref().and_then(|id| hex::decode(id).ok());
        id.map_or(KeyIdMethod::Sha256, KeyIdMethod::PreSpecified)
    }
}

/// What an earlier list of this CA revoked, so that the next one does not forget it. DER or PEM.
pub fn revoked_before(ca: &CertificateDer<'_>, crl: &[u8]) -> Result<Vec<Revoked>, Error> {
    let bad = |reason: &str| Error::Crl(reason.to_owned());
    let pem = (crl.first() != Some(&0x30)).then(|| pem::parse(crl));
    let pem =
        pem.transpose().map_err(|e| Error::Crl(format!("{e}; give the last list that this CA signed")))?;
    if let Some(other) = pem.as_ref().filter(|pem| pem.tag() != "X509 CRL") {
        let what = other.tag();
        return Err(Error::Crl(format!(
            "it is a {what:?}, not an \"X509 CRL\"; give the last list that this CA signed"
        )));
    }
    let der = pem.as_ref().map_or(crl, |pem| pem.contents());
    let damaged = "it is no list in DER: it is damaged, cut off, or something else";
    let (rest, list) = CertificateRevocationList::from_der(der).map_err(|_| bad(damaged))?;
    let (_, own) = x509_parser::parse_x509_certificate(ca).map_err(|_| bad("the CA"))?;
    if !rest.is_empty() || list.verify_signature(own.public_key()).is_err() {
        return Err(bad("this CA did not sign it"));
    }
    let entries = list.iter_revoked_certificates().map(|entry| {
        let code = entry.reason_code().map_or(0, |(_, code)| code.0);
        Some(Revoked {
            serial: entry.raw_serial().to_vec(),
            at: OffsetDateTime::from_unix_timestamp(entry.revocation_date.timestamp()).ok()?,
            reason: Reason::from_code(code),
        })
    });
    entries.collect::<Option<_>>().ok_or_else(|| bad("a date is out of range"))
}

/// Refuses what no certificate has as its serial number: empty, too long, negative or zero.
pub fn check_serial(serial: &[u8]) -> Result<(), Error> {
    let sound =
        (1..=MAX_SERIAL_LEN).contains(&serial.len()) && serial[0] < 0x80 && serial.iter().any(|b| *b != 0);
    if sound { Ok(()) } else { Err(Error::Serial(hex::encode(serial))) }
}

fn entry(revoked: &Revoked) -> Result<RevokedCertParams, Error> {
    let serial = &revoked.serial;
    check_serial(serial)?;
    Ok(RevokedCertParams {
        serial_number: SerialNumber::from_slice(serial),
        revocation_time: whole_second(revoked.at),
        reason_code: Some(revoked.reason.code()),
        invalidity_date: None,
    })
}

/// PEM of a list.
pub fn crl_to_pem(crl: &CertificateRevocationListDer<'_>) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("X509 CRL", crl.to_vec()), config)
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;
    use crate::testing::{Fabric, NOW};

    fn site_serial(fabric: &Fabric) -> Vec<u8> {
        hex::decode(&fabric.site.facts().serial).unwrap()
    }

    #[test]
    fn every_field_is_set() {
        let fabric = Fabric::new("td");
        let revoked = Revoked { serial: site_serial(&fabric), at: NOW, reason: Reason::CaCompromise };
        let number = crl_number(NOW, 3);
        let der = fabric.root.sign_crl(&[revoked], number, NOW, NOW + Duration::days(30)).unwrap();
        let (rest, crl) = CertificateRevocationList::from_der(&der).unwrap();
        assert!(rest.is_empty());
        assert_eq!(crl.issuer().as_raw(), fabric.root.facts().subject_der);
        assert_eq!(crl.last_update().timestamp(), NOW.unix_timestamp());
        assert_eq!(crl.next_update().unwrap().timestamp(), NOW.unix_timestamp() + 30 * 86_400);
        assert_eq!(crl.crl_number().unwrap().to_string(), number.to_string());
        let entry = crl.iter_revoked_certificates().next().unwrap();
        assert_eq!(entry.raw_serial(), site_serial(&fabric));
        assert_eq!(entry.reason_code().unwrap().1.0, 2);
        let root = fabric.root_certificate();
        let (_, root) = x509_parser::parse_x509_certificate(&root).unwrap();
        crl.verify_signature(root.public_key()).unwrap();
    }

    #[test]
    fn the_next_list_can_take_over_what_was_revoked() {
        let (fabric, other) = (Fabric::new("td"), Fabric::new("td"));
        let revoked = vec![
            Revoked { serial: site_serial(&fabric), at: NOW, reason: Reason::Superseded },
            Revoked { serial: vec![7], at: NOW - Duration::DAY, reason: Reason::Unspecified },
        ];
        let der = fabric.root.sign_crl(&revoked, 1, NOW, NOW + Duration::DAY).unwrap();
        assert_eq!(revoked_before(&fabric.root_certificate(), &der), Ok(revoked.clone()));
        assert_eq!(revoked_before(&fabric.root_certificate(), crl_to_pem(&der).as_bytes()), Ok(revoked));
        assert!(matches!(revoked_before(&other.root_certificate(), &der), Err(Error::Crl(_))));
        for bad in [&b""[..], b"0", b"hello", &der[..der.len() - 1]] {
            assert!(matches!(revoked_before(&fabric.root_certificate(), bad), Err(Error::Crl(_))));
        }
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        let fabric = Fabric::shared();
        let sign = |serial: &[u8], from, to| {
            let revoked = Revoked { serial: serial.to_vec(), at: NOW, reason: Reason::Unspecified };
            fabric.root.sign_crl(&[revoked], 1, NOW + from, NOW + to)
        };
        let (zero, day) = (Duration::ZERO, Duration::DAY);
        assert_eq!(sign(&[1], day, day), Err(Error::CrlDates));
        assert!(matches!(sign(&[1], Duration::days(4000), Duration::days(4001)), Err(Error::OutOfDate(_))));
        for bad in [&[][..], &[0], &[0x80], &[1; 21]] {
            assert_eq!(sign(bad, zero, day), Err(Error::Serial(hex::encode(bad))));
        }
        assert!(sign(&[1; 20], zero, day).is_ok());
    }

    #[test]
    fn a_later_signing_wins() {
        let ahead = crl_number(NOW, u16::MAX);
        assert!(crl_number(NOW + Duration::SECOND, 0) > ahead);
        assert!(crl_number(NOW, 1) > crl_number(NOW, 0));
    }
}
