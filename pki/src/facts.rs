//! What a certificate says, as owned values. For checks beside path building and for people; never a proof of anything.

use serde::Serialize;
use time::OffsetDateTime;
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer as _,
    x509::AttributeTypeAndValue,
};

use crate::key::sha256_hex;

/// Longest certificate that is looked at, in bytes.
pub const MAX_CERTIFICATE_LEN: usize = 64 << 10;

/// Why bytes are not a certificate that we are willing to read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Beyond [`MAX_CERTIFICATE_LEN`].
    #[error("the certificate has {0} bytes; more than {MAX_CERTIFICATE_LEN} are refused")]
    TooLong(usize),
    /// Not DER of an X.509 certificate.
    #[error("not an X.509 certificate in DER: {0}")]
    Der(String),
    /// Bytes after the certificate.
    #[error("{0} bytes follow the certificate")]
    Trailing(usize),
    /// An extension whose content can't be read.
    #[error("extension {0} can't be parsed")]
    Extension(String),
    /// An extension that is there twice (RFC 5280 section 4.2).
    #[error("extension {0} is there twice")]
    Duplicate(String),
}

/// The facts of one certificate. Times are seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Subject, RFC 4514 style.
    pub subject: String,
    /// Issuer, RFC 4514 style.
    pub issuer: String,
    /// Organizational units of the subject; one that is not text counts and is shown as hex.
    pub organizational_units: Vec<String>,
    /// Serial number, lower-case hex.
    pub serial: String,
    /// First valid second.
    pub not_before: i64,
    /// Last valid second.
    pub not_after: i64,
    /// URI subject alternative names; one that is not UTF-8 counts and is shown as hex.
    pub uris: Vec<String>,
    /// DNS subject alternative names.
    pub dns_names: Vec<String>,
    /// basicConstraints, if present.
    pub basic_constraints: Option<BasicConstraints>,
    /// keyUsage, if present.
    pub key_usage: Option<KeyUsage>,
    /// extKeyUsage, if present: "serverAuth", "clientAuth" or an OID.
    pub extended_key_usage: Option<Vec<String>>,
    /// True if it holds name constraints.
    pub name_constraints: bool,
    /// True if they constrain URIs, which rustls and Istio ambient refuse.
    pub uri_constraints: bool,
    /// Subject key identifier, lower-case hex.
    pub subject_key_id: Option<String>,
    /// Authority key identifier, lower-case hex.
    pub authority_key_id: Option<String>,
    /// Lower-case hex SHA-256 of the DER.
    pub sha256: String,
    /// Lower-case hex SHA-256 of the SubjectPublicKeyInfo.
    pub key_sha256: String,
    /// Issuer and subject are the same name.
    pub self_issued: bool,
    /// Serial number is negative, which RFC 5280 forbids and Go refuses.
    pub negative_serial: bool,
    /// DER SubjectPublicKeyInfo.
    #[serde(skip)]
    pub spki: Vec<u8>,
    /// DER Name of the subject.
    #[serde(skip)]
    pub subject_der: Vec<u8>,
    /// DER Name of the issuer.
    #[serde(skip)]
    pub issuer_der: Vec<u8>,
}

/// basicConstraints (RFC 5280 section 4.2.1.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BasicConstraints {
    /// cA
    pub ca: bool,
    /// pathLenConstraint
    pub path_len: Option<u32>,
    /// Marked critical.
    pub critical: bool,
}

/// The keyUsage bits that SPIFFE speaks of (RFC 5280 section 4.2.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KeyUsage {
    /// digitalSignature
    pub digital_signature: bool,
    /// keyEncipherment
    pub key_encipherment: bool,
    /// keyAgreement
    pub key_agreement: bool,
    /// keyCertSign
    pub key_cert_sign: bool,
    /// cRLSign
    pub crl_sign: bool,
    /// Marked critical.
    pub critical: bool,
}

impl Facts {
    /// Reads one certificate; bytes after it, unreadable or repeated extensions are errors.
    pub fn parse(der: &[u8]) -> Result<Self, Error> {
        if der.len() > MAX_CERTIFICATE_LEN {
            return Err(Error::TooLong(der.len()));
        }
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|e| Error::Der(e.to_string()))?;
        if !rest.is_empty() {
            return Err(Error::Trailing(rest.len()));
        }
        let mut facts = Self::without_extensions(der, &certificate);
        let mut seen = Vec::new();
        for extension in certificate.extensions() {
            if seen.contains(&&extension.oid) {
                return Err(Error::Duplicate(extension.oid.to_id_string()));
            }
            seen.push(&extension.oid);
            if extension.parsed_extension().error().is_some() {
                return Err(Error::Extension(extension.oid.to_id_string()));
            }
            facts.take(extension.parsed_extension(), extension.critical);
        }
        Ok(facts)
    }

    fn without_extensions(der: &[u8], certificate: &X509Certificate<'_>) -> Self {
        let (subject, issuer) = (certificate.subject(), certificate.issuer());
        Self {
            subject: subject.to_string(),
            issuer: issuer.to_string(),
            organizational_units: subject.iter_organizational_unit().map(unit).collect(),
            serial: hex::encode(certificate.raw_serial()),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            uris: Vec::new(),
            dns_names: Vec::new(),
            basic_constraints: None,
            key_usage: None,
            extended_key_usage: None,
            name_constraints: false,
            uri_constraints: false,
            subject_key_id: None,
            authority_key_id: None,
            sha256: sha256_hex(der),
            key_sha256: sha256_hex(certificate.public_key().raw),
            self_issued: subject.as_raw() == issuer.as_raw(),
            negative_serial: certificate.raw_serial().first().is_some_and(|b| b & 0x80 != 0),
            spki: certificate.public_key().raw.to_vec(),
            subject_der: subject.as_raw().to_vec(),
            issuer_der: issuer.as_raw().to_vec(),
        }
    }

    fn take(&mut self, extension: &ParsedExtension<'_>, critical: bool) {
        match extension {
            ParsedExtension::SubjectAlternativeName(names) => self.take_names(&names.general_names),
            ParsedExtension::BasicConstraints(b) => {
                self.basic_constraints =
                    Some(BasicConstraints { ca: b.ca, path_len: b.path_len_constraint, critical });
            }
            ParsedExtension::KeyUsage(usage) => {
                self.key_usage = Some(KeyUsage {
                    digital_signature: usage.digital_signature(),
                    key_encipherment: usage.key_encipherment(),
                    key_agreement: usage.key_agreement(),
                    key_cert_sign: usage.key_cert_sign(),
                    crl_sign: usage.crl_sign(),
                    critical,
                });
            }
            ParsedExtension::ExtendedKeyUsage(usage) => {
                let known = [
                    ("any", usage.any),
                    ("serverAuth", usage.server_auth),
                    ("clientAuth", usage.client_auth),
                ];
                let known = known.into_iter().filter(|(_, set)| *set).map(|(name, _)| name.to_owned());
                let other = usage.other.iter().map(|oid| oid.to_id_string());
                self.extended_key_usage = Some(known.chain(other).collect());
            }
            ParsedExtension::NameConstraints(names) => {
                self.name_constraints = true;
                let subtrees = [&names.permitted_subtrees, &names.excluded_subtrees];
                let mut bases = subtrees.into_iter().flatten().flatten().map(|subtree| &subtree.base);
                self.uri_constraints = bases.any(is_uri);
            }
            ParsedExtension::SubjectKeyIdentifier(id) => self.subject_key_id = Some(hex::encode(id.0)),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                self.authority_key_id = id.key_identifier.as_ref().map(|id| hex::encode(id.0));
            }
            _ => {}
        }
    }

    fn take_names(&mut self, names: &[GeneralName<'_>]) {
        for name in names {
            match name {
                GeneralName::URI(uri) => self.uris.push((*uri).to_owned()),
                // Context tag 6 is the URI: an unreadable one still counts as one.
                GeneralName::Invalid(tag, bytes) if tag.0 == 6 => self.uris.push(hex::encode(bytes)),
                GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
                _ => {}
            }
        }
    }

    /// The site that a site CA was signed for: its subject's organizational unit, if it has exactly one.
    pub fn site(&self) -> Option<&str> {
        match self.organizational_units.as_slice() {
            [site] if self.is_ca() && !self.self_issued => Some(site),
            _ => None,
        }
    }

    /// basicConstraints with cA set.
    pub fn is_ca(&self) -> bool {
        self.basic_constraints.is_some_and(|b| b.ca)
    }

    /// May sign certificates: keyUsage with keyCertSign. Absent keyUsage does not do (X509-SVID section 4.3).
    pub fn may_sign_certificates(&self) -> bool {
        self.key_usage.is_some_and(|u| u.key_cert_sign)
    }

    /// Why it is not valid at `now`, in words; `None` if it is.
    pub fn out_of_date(&self, now: OffsetDateTime) -> Option<String> {
        let clock = now.unix_timestamp();
        (clock < self.not_before || clock > self.not_after).then(|| {
            format!(
                "certificate is valid from {} to {}, this node's clock says {}: {}",
                utc(self.not_before),
                utc(self.not_after),
                utc(clock),
                if clock < self.not_before {
                    "check the clock"
                } else {
                    "it has expired; check the clock, then renew it"
                },
            )
        })
    }
}

fn unit(attribute: &AttributeTypeAndValue<'_>) -> String {
    attribute.as_str().map_or_else(|_| hex::encode(attribute.as_slice()), str::to_owned)
}

/// Context tag 6 is the URI, one that can't be read included.
fn is_uri(name: &GeneralName<'_>) -> bool {
    matches!(name, GeneralName::URI(_)) || matches!(name, GeneralName::Invalid(tag, _) if tag.0 == 6)
}

/// RFC 3339 in UTC, to the second: "2026-01-02T03:04:05Z".
pub fn utc(timestamp: i64) -> String {
    let format = time::macros::format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    OffsetDateTime::from_unix_timestamp(timestamp)
        .ok()
        .and_then(|t| t.format(format).ok())
        .unwrap_or_else(|| format!("{timestamp} s since 1970"))
}
