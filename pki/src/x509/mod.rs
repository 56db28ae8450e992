//! Certificates, revocation lists and keys of anybody's making, read for advice: what `doctor`, `families` and `istio` judge.
//!
//! [`crate::verify`] decides whom to believe; nothing here does. RSA and keys in older containers are read too, because the CAs of
//! others have them.

mod crl;
mod key;
mod read;

pub use crl::Crl;
pub use key::{KeyFacts, KeyFault};
pub use read::{PemFile, Rejected, read, read_crls, to_pem};

use rustls_pki_types::CertificateDer;
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, GeneralSubtree, ParsedExtension},
    prelude::FromDer as _,
    x509::SubjectPublicKeyInfo,
};

use crate::facts::{self, Facts};

/// A certificate with what validators differ over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The bytes.
    pub der: CertificateDer<'static>,
    /// What it says.
    pub facts: Facts,
    /// Its name constraints (RFC 5280 section 4.2.1.10), if any.
    pub constraints: Option<Constraints>,
    /// OIDs of critical extensions that hardly anybody handles.
    pub unknown_critical: Vec<String>,
    /// Subject alternative names are there and marked critical.
    pub critical_names: bool,
    /// The subject has no attribute.
    pub empty_subject: bool,
}

/// The part of name constraints that matters for SPIFFE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints {
    /// Hosts that URIs must have.
    pub permitted_uris: Vec<String>,
    /// Hosts that URIs must not have.
    pub excluded_uris: Vec<String>,
}

impl Constraints {
    /// Constrains URIs at all.
    pub fn on_uris(&self) -> bool {
        !self.permitted_uris.is_empty() || !self.excluded_uris.is_empty()
    }
}

impl Certificate {
    /// Reads one, as strictly as [`Facts::parse`] does.
    pub fn parse(der: &[u8]) -> Result<Self, facts::Error> {
        let facts = Facts::parse(der)?;
        let (_, parsed) = X509Certificate::from_der(der).map_err(|e| facts::Error::Der(e.to_string()))?;
        let extensions = parsed.extensions();
        let unknown = extensions.iter().filter(|e| e.critical && !is_handled(e.parsed_extension()));
        let constraints = extensions.iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::NameConstraints(found) => Some(Constraints {
                permitted_uris: uris(found.permitted_subtrees.as_deref()),
                excluded_uris: uris(found.excluded_subtrees.as_deref()),
            }),
            _ => None,
        });
        Ok(Self {
            unknown_critical: unknown.map(|e| e.oid.to_id_string()).collect(),
            critical_names: extensions.iter().any(|e| {
                e.critical && matches!(e.parsed_extension(), ParsedExtension::SubjectAlternativeName(_))
            }),
            empty_subject: parsed.subject().iter_rdn().next().is_none(),
            der: CertificateDer::from(der.to_vec()),
            constraints,
            facts,
        })
    }

    /// True if its signature verifies with that certificate's key. Names are not compared.
    pub fn is_signed_by(&self, issuer: &Self) -> bool {
        let Ok((_, this)) = X509Certificate::from_der(&self.der) else { return false };
        let Ok((_, key)) = SubjectPublicKeyInfo::from_der(&issuer.facts.spki) else { return false };
        this.verify_signature(Some(&key)).is_ok()
    }

    /// True if it names that one as its issuer and the key identifiers, where both are there, agree.
    pub fn names_as_issuer(&self, issuer: &Self) -> bool {
        self.facts.issuer_der == issuer.facts.subject_der && self.key_ids_agree(issuer) != Some(false)
    }

    /// Authority key identifier against the issuer's subject key identifier; `None` if one of them is missing.
    pub fn key_ids_agree(&self, issuer: &Self) -> Option<bool> {
        Some(self.facts.authority_key_id.as_ref()? == issuer.facts.subject_key_id.as_ref()?)
    }

    /// Issuer and subject are the same, and its own key signed it.
    pub fn is_self_signed(&self) -> bool {
        self.facts.self_issued && self.is_signed_by(self)
    }

    /// Has that extended key usage, any, or no such extension.
    pub fn allows_usage(&self, usage: &str) -> bool {
        self.facts.extended_key_usage.as_ref().is_none_or(|all| all.iter().any(|u| u == usage || u == "any"))
    }

    /// "CN=... (serial 4f...)", for messages.
    pub fn label(&self) -> String {
        let subject = if self.empty_subject { "no subject" } else { &self.facts.subject };
        match self.facts.uris.first() {
            Some(uri) if !self.facts.is_ca() => format!("{uri} (serial {})", self.facts.serial),
            _ => format!("{subject} (serial {})", self.facts.serial),
        }
    }
}

fn uris(subtrees: Option<&[GeneralSubtree<'_>]>) -> Vec<String> {
    let uri = |subtree: &GeneralSubtree<'_>| match &subtree.base {
        GeneralName::URI(host) => Some((*host).to_owned()),
        GeneralName::Invalid(tag, bytes) if tag.0 == 6 => Some(hex::encode(bytes)),
        _ => None,
    };
    subtrees.into_iter().flatten().filter_map(uri).collect()
}

/// Extensions that Go, OpenSSL, BoringSSL and webpki all handle.
fn is_handled(extension: &ParsedExtension<'_>) -> bool {
    matches!(
        extension,
        ParsedExtension::BasicConstraints(_)
            | ParsedExtension::KeyUsage(_)
            | ParsedExtension::ExtendedKeyUsage(_)
            | ParsedExtension::SubjectAlternativeName(_)
            | ParsedExtension::NameConstraints(_)
            | ParsedExtension::SubjectKeyIdentifier(_)
            | ParsedExtension::AuthorityKeyIdentifier(_)
            | ParsedExtension::CRLDistributionPoints(_)
    )
}
