//! Certificates of anybody's making: what our profiles never issue, and what rcgen can't express.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyUsagePurpose, RevocationReason, RevokedCertParams, SanType, SerialNumber,
    SigningKey as _,
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

use super::NOW;
use crate::key::{Curve, Key};

/// A certificate with its key and what it was made of.
pub(crate) struct Forged {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) key: Key,
    pub(crate) params: CertificateParams,
}

/// Sound parameters of a CA by that name, to be spoiled.
pub(crate) fn ca_params(name: &str, path_len: Option<u8>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = NOW - Duration::hours(1);
    params.not_after = NOW + Duration::days(90);
    params.serial_number = Some(SerialNumber::from_slice(&serial_bytes()));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = vec![uri("spiffe://td")];
    params.is_ca = IsCa::Ca(path_len.map_or(BasicConstraints::Unconstrained, BasicConstraints::Constrained));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    params.key_identifier_method = KeyIdMethod::Sha256;
    params
}

/// Sound parameters of a leaf.
pub(crate) fn leaf_params(id: &str) -> CertificateParams {
    let mut params = ca_params("leaf", None);
    params.not_before = NOW - Duration::minutes(1);
    params.not_after = NOW + Duration::hours(24);
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![uri(id)];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

pub(crate) fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn serial_bytes() -> Vec<u8> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).unwrap();
    bytes[0] = bytes[0] & 0x3f | 0x40;
    bytes.to_vec()
}

impl Forged {
    pub(crate) fn root(params: CertificateParams) -> Self {
        let key = Key::generate(Curve::P256).unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { der, key, params }
    }

    pub(crate) fn issue(&self, params: CertificateParams) -> Self {
        let key = Key::generate(Curve::P256).unwrap();
        let der = params.signed_by(&key, &self.issuer()).unwrap().der().clone();
        Self { der, key, params }
    }

    fn issuer(&self) -> Issuer<'_, &Key> {
        Issuer::from_params(&self.params, &self.key)
    }

    pub(crate) fn crl(&self, revoked: &[&CertificateDer<'_>], now: OffsetDateTime) -> Vec<u8> {
        let revoked = revoked.iter().map(|der| RevokedCertParams {
            serial_number: SerialNumber::from_slice(
                &hex::decode(crate::Facts::parse(der).unwrap().serial).unwrap(),
            ),
            revocation_time: now,
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        });
        let params = rcgen::CertificateRevocationListParams {
            this_update: now,
            next_update: now + Duration::days(30),
            crl_number: SerialNumber::from_slice(&[1]),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer()).unwrap().der().to_vec()
    }

    /// The same certificate with a negative serial number, signed again by `signer`: rcgen writes positive ones only.
    pub(crate) fn with_negative_serial(&self, signer: &Key) -> CertificateDer<'static> {
        resign(&self.der, signer, |tbs| {
            // [0] version (5 bytes), then INTEGER of 16 bytes.
            let at = tbs.windows(2).position(|w| w == [0x02, 0x10]).unwrap() + 2;
            tbs[at] |= 0x80;
        })
    }
}

/// A critical or plain extension with URI subtrees (RFC 5280 section 4.2.1.10), which rcgen can't express.
pub(crate) fn uri_constraint(host: &str) -> CustomExtension {
    let name = [&[0x86, u8::try_from(host.len()).unwrap()], host.as_bytes()].concat();
    let subtree = tlv(0x30, &name);
    let content = tlv(0x30, &tlv(0xa0, &subtree));
    let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], content);
    extension.set_criticality(true);
    extension
}

/// DER of one element.
pub(crate) fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let header = match u8::try_from(length) {
        Ok(short) if short < 0x80 => vec![tag, short],
        Ok(byte) => vec![tag, 0x81, byte],
        Err(_) => [&[tag, 0x82], &u16::try_from(length).unwrap().to_be_bytes()[..]].concat(),
    };
    [header, content.to_vec()].concat()
}

fn resign(der: &[u8], signer: &Key, change: impl FnOnce(&mut [u8])) -> CertificateDer<'static> {
    let (_, parsed) = x509_parser::parse_x509_certificate(der).unwrap();
    let mut tbs = parsed.tbs_certificate.as_ref().to_vec();
    let start = der.windows(tbs.len()).position(|w| w == tbs).unwrap();
    let rest = &der[start + tbs.len()..];
    // AlgorithmIdentifier of ECDSA with SHA-256: a short SEQUENCE.
    let algorithm = &rest[..usize::from(rest[1]) + 2];
    change(&mut tbs);
    let signature = tlv(0x03, &[vec![0], signer.sign(&tbs).unwrap()].concat());
    CertificateDer::from(tlv(0x30, &[tbs, algorithm.to_vec(), signature].concat()))
}
