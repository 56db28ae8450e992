//! What each kind of certificate holds. Every field is set here; nothing is left to a library's default.
//!
//! | kind | key | path length | key usage | extended key usage | URI SAN | backdated |
//! |---|---|---|---|---|---|---|
//! | root | P-384 | 1 | keyCertSign, cRLSign | none | trust domain | 1 h |
//! | site CA | P-256 | 0 | keyCertSign, cRLSign | none | trust domain | 1 h |
//! | SVID | P-256 | – | digitalSignature | serverAuth, clientAuth | SPIFFE ID | 1 min |
//!
//! The subject of a CA is unique per certificate; that of a site CA holds the site's whole name as its organizational unit, and
//! [`crate::Facts::site`] reads it. CAs carry no name constraints: rustls and Istio's ambient mode refuse chains that constrain URIs.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyIdMethod, KeyUsagePurpose, SanType, SerialNumber, string::Ia5String,
};
use time::{Duration, OffsetDateTime};

use crate::id::{self, SpiffeId, TrustDomain};

/// Air-gapped clocks drift: certificates of CAs are valid from an hour before they were made.
pub const CA_BACKDATE: Duration = Duration::hours(1);
/// SVIDs are valid from a minute before they were made.
pub const SVID_BACKDATE: Duration = Duration::minutes(1);
/// What [`site_ca_name`] puts before the site.
pub const SITE_CA_NAME: &str = "Isthmus site CA ";
/// Upper bounds of the X.520 attributes that we write (RFC 5280 appendix A).
const MAX_NAME_LEN: usize = 64;

/// What to issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A self-signed root.
    Root {
        /// How long, from now.
        lifetime: Duration,
    },
    /// A site's CA, which issues SVIDs only.
    SiteCa {
        /// The site's name, one path segment.
        site: String,
        /// How long, from now.
        lifetime: Duration,
    },
    /// An X.509-SVID of a node or a workload.
    Svid {
        /// Whose it is; its path is not empty.
        id: SpiffeId,
        /// DNS names beside the ID.
        dns_names: Vec<String>,
        /// How long, from now.
        lifetime: Duration,
    },
}

/// Why a profile can't be issued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Lifetime of zero, less, or beyond the calendar.
    #[error("the lifetime must be positive and end before the year 10000")]
    Lifetime,
    /// A site name that can't be in an ID.
    #[error("site name {0:?}: {1}")]
    Site(String, id::Error),
    /// A site name that does not fit whole into the subject.
    #[error("site name {0:?} has more than {MAX_NAME_LEN} bytes")]
    SiteTooLong(String),
    /// The trust domain's own ID as a leaf.
    #[error("an SVID needs an ID with a path, not {0}")]
    TrustDomainId(SpiffeId),
    /// Not a DNS name.
    #[error("{0:?} is not a DNS name")]
    DnsName(String),
}

/// A certificate's serial number: positive, 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serial([u8; 16]);

impl Serial {
    /// From random bytes. 126 of their bits count: the first two are fixed so that the number is positive and of full length.
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[0] = bytes[0] & 0x3f | 0x40;
        Self(bytes)
    }
}

/// Lower-case hex, as [`crate::Facts`] has it.
impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl Profile {
    /// Lifetime, from now.
    pub fn lifetime(&self) -> Duration {
        match self {
            Self::Root { lifetime } | Self::SiteCa { lifetime, .. } | Self::Svid { lifetime, .. } => {
                *lifetime
            }
        }
    }

    fn backdate(&self) -> Duration {
        match self {
            Self::Root { .. } | Self::SiteCa { .. } => CA_BACKDATE,
            Self::Svid { .. } => SVID_BACKDATE,
        }
    }

    /// Every field of the certificate, its end not after `latest`.
    pub(crate) fn params(
        &self,
        trust_domain: &TrustDomain,
        serial: Serial,
        now: OffsetDateTime,
        latest: Option<OffsetDateTime>,
    ) -> Result<CertificateParams, Error> {
        let end = now
            .checked_add(self.lifetime())
            .filter(|end| *end > now && end.year() < 10_000)
            .ok_or(Error::Lifetime)?;
        let mut params = CertificateParams::default();
        params.not_before = now.checked_sub(self.backdate()).ok_or(Error::Lifetime)?;
        params.not_after = latest.map_or(end, |latest| end.min(latest));
        params.serial_number = Some(SerialNumber::from_slice(&serial.0));
        params.distinguished_name = self.subject(trust_domain, serial);
        params.subject_alt_names = self.names(trust_domain)?;
        params.is_ca = self.constraints();
        params.key_usages = self.key_usages();
        params.extended_key_usages = self.extended_key_usages();
        params.name_constraints = None;
        params.crl_distribution_points = Vec::new();
        params.custom_extensions = Vec::new();
        params.use_authority_key_identifier_extension = true;
        params.key_identifier_method = KeyIdMethod::Sha256;
        Ok(params)
    }

    /// Unique per certificate: many CAs of one name exhaust a verifier's signature budget.
    fn subject(&self, trust_domain: &TrustDomain, serial: Serial) -> DistinguishedName {
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, shorten(trust_domain.as_str()));
        match self {
            Self::Root { .. } => name.push(DnType::CommonName, "Isthmus root CA"),
            Self::SiteCa { site, .. } => {
                // Whole, and what verifiers go by; the common name is for people and may be cut.
                name.push(DnType::OrganizationalUnitName, site.as_str());
                name.push(DnType::CommonName, shorten(&site_ca_name(site)));
            }
            Self::Svid { .. } => {}
        }
        // serialNumber, X.520 section 6.2.9.
        name.push(DnType::CustomDnType(vec![2, 5, 4, 5]), hex::encode(serial.0));
        name
    }

    fn names(&self, trust_domain: &TrustDomain) -> Result<Vec<SanType>, Error> {
        match self {
            Self::Root { .. } => Ok(vec![uri(&trust_domain.id())]),
            Self::SiteCa { site, .. } => {
                id::check_segment(site).map_err(|e| Error::Site(site.clone(), e))?;
                if site.len() > MAX_NAME_LEN {
                    return Err(Error::SiteTooLong(site.clone()));
                }
                Ok(vec![uri(&trust_domain.id())])
            }
            Self::Svid { id, .. } if id.is_trust_domain() => Err(Error::TrustDomainId(id.clone())),
            Self::Svid { id, dns_names, .. } => {
                std::iter::once(Ok(uri(id))).chain(dns_names.iter().map(|name| dns(name))).collect()
            }
        }
    }

    fn constraints(&self) -> IsCa {
        match self {
            Self::Root { .. } => IsCa::Ca(BasicConstraints::Constrained(1)),
            Self::SiteCa { .. } => IsCa::Ca(BasicConstraints::Constrained(0)),
            Self::Svid { .. } => IsCa::ExplicitNoCa,
        }
    }

    fn key_usages(&self) -> Vec<KeyUsagePurpose> {
        match self {
            Self::Root { .. } | Self::SiteCa { .. } => {
                vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]
            }
            Self::Svid { .. } => vec![KeyUsagePurpose::DigitalSignature],
        }
    }

    fn extended_key_usages(&self) -> Vec<ExtendedKeyUsagePurpose> {
        match self {
            Self::Root { .. } | Self::SiteCa { .. } => Vec::new(),
            Self::Svid { .. } => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
        }
    }
}

fn uri(id: &SpiffeId) -> SanType {
    SanType::URI(Ia5String::try_from(id.to_string()).expect("a SPIFFE ID is ASCII"))
}

/// True for a name that a certificate may hold beside its SPIFFE ID: labels of letters, digits, `-` and `_`, without a dot at the end.
pub fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn dns(name: &str) -> Result<SanType, Error> {
    let bad = || Error::DnsName(name.to_owned());
    if !is_dns_name(name) {
        return Err(bad());
    }
    Ia5String::try_from(name).map(SanType::DnsName).map_err(|_| bad())
}

/// What a site's CA is called: by its request in full, by its certificate's common name as far as that goes.
pub fn site_ca_name(site: &str) -> String {
    format!("{SITE_CA_NAME}{site}")
}

/// Subject of an SVID as people read it, in the words of [`crate::Facts`].
pub fn svid_subject(trust_domain: &TrustDomain, serial: Serial) -> String {
    format!("O={}, serialNumber={serial}", shorten(trust_domain.as_str()))
}

/// Names here are ASCII, so a byte is a character.
fn shorten(name: &str) -> &str {
    name.get(..MAX_NAME_LEN).unwrap_or(name)
}
