//! Certificates that our profiles never issue, for tests of those who must refuse them.

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SanType, SerialNumber, SigningKey as _,
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

/// A certificate with its key and what it was made of.
pub struct Forged {
    /// DER.
    pub der: CertificateDer<'static>,
    /// Its key, P-256.
    pub key: KeyPair,
    /// What it was made of.
    pub params: CertificateParams,
}

/// Sound parameters of a CA, valid from an hour before `now` for 90 days; `None`: any number of CAs below it.
///
/// # Errors
/// Never for a name of ASCII.
pub fn ca_params(name: &str, path_len: Option<u8>, now: OffsetDateTime) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::days(90);
    params.serial_number = Some(SerialNumber::from_slice(&serial()));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = vec![uri("spiffe://test.example")?];
    params.is_ca = IsCa::Ca(path_len.map_or(BasicConstraints::Unconstrained, BasicConstraints::Constrained));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    params.key_identifier_method = KeyIdMethod::Sha256;
    Ok(params)
}

/// Sound parameters of an SVID, valid from a minute before `now` for a day.
///
/// # Errors
/// Never for an ID of ASCII.
pub fn leaf_params(id: &str, now: OffsetDateTime) -> Result<CertificateParams> {
    let mut params = ca_params("", None, now)?;
    params.not_before = now - Duration::minutes(1);
    params.not_after = now + Duration::hours(24);
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![uri(id)?];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// A URI name.
///
/// # Errors
/// When it is not ASCII.
pub fn uri(text: &str) -> Result<SanType> {
    Ok(SanType::URI(text.try_into()?))
}

fn serial() -> [u8; 16] {
    let mut bytes: [u8; 16] = rand::random();
    bytes[0] = bytes[0] & 0x3f | 0x40;
    bytes
}

impl Forged {
    /// Self-signed.
    ///
    /// # Errors
    /// When the library refuses the parameters.
    pub fn root(params: CertificateParams) -> Result<Self> {
        let key = KeyPair::generate()?;
        let der = params.self_signed(&key)?.der().clone();
        Ok(Self { der, key, params })
    }

    /// Below this one, whatever its rights are.
    ///
    /// # Errors
    /// When the library refuses the parameters.
    pub fn issue(&self, params: CertificateParams) -> Result<Self> {
        let key = KeyPair::generate()?;
        let der = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key))?.der().clone();
        Ok(Self { der, key, params })
    }

    /// A list in DER that revokes those, in force for 30 days from `now`.
    ///
    /// # Errors
    /// When the library refuses it.
    pub fn crl(&self, revoked: &[&Self], now: OffsetDateTime) -> Result<Vec<u8>> {
        let revoked = revoked.iter().filter_map(|forged| {
            let serial_number = forged.params.serial_number.clone()?;
            Some(RevokedCertParams {
                serial_number,
                revocation_time: now,
                reason_code: None,
                invalidity_date: None,
            })
        });
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: now + Duration::days(30),
            crl_number: SerialNumber::from_slice(&[1]),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(params.signed_by(&Issuer::from_params(&self.params, &self.key))?.der().to_vec())
    }

    /// The same certificate with a negative serial number, signed again by `signer`: rcgen writes positive ones only.
    ///
    /// # Errors
    /// When it was not made by this module.
    pub fn with_negative_serial(&self, signer: &KeyPair) -> Result<CertificateDer<'static>> {
        // Certificate: SEQUENCE with a length of two bytes; so is what is signed.
        let length = usize::from(u16::from_be_bytes([self.der[6], self.der[7]])) + 4;
        let (mut signed, rest) = (self.der[4..4 + length].to_vec(), &self.der[4 + length..]);
        let at = signed.windows(2).position(|w| w == [0x02, 0x10]).context("no serial number of 16 bytes")?;
        signed[at + 2] |= 0x80;
        let algorithm = &rest[..usize::from(rest[1]) + 2];
        let signature = tlv(0x03, &[vec![0], signer.sign(&signed)?].concat());
        Ok(tlv(0x30, &[signed, algorithm.to_vec(), signature].concat()).into())
    }
}

/// A critical extension that permits URIs of one host (RFC 5280 section 4.2.1.10), which rcgen can't express.
pub fn uri_constraint(host: &str) -> CustomExtension {
    let name = tlv(0x86, host.as_bytes());
    let content = tlv(0x30, &tlv(0xa0, &tlv(0x30, &name)));
    let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], content);
    extension.set_criticality(true);
    extension
}

/// DER of one element of up to 65,535 bytes.
pub fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let header = match (u8::try_from(content.len()), u16::try_from(content.len())) {
        (Ok(short), _) if short < 0x80 => vec![tag, short],
        (Ok(byte), _) => vec![tag, 0x81, byte],
        (_, Ok(word)) => [&[tag, 0x82], &word.to_be_bytes()[..]].concat(),
        _ => vec![tag, 0x80],
    };
    [header, content.to_vec()].concat()
}
