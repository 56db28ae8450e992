//! The verifier behind every TLS connection and every file that is loaded.
//!
//! Path building is webpki's. Beside it, because webpki leaves it open:
//! 1. the leaf is an X.509-SVID (X509-SVID section 5.2): one URI SAN, an ID with a path, cA false, no keyCertSign or cRLSign;
//! 2. anchors are those of the leaf's own trust domain, chosen before a path is built, valid now, and with room for the path's CAs;
//! 3. every CA on the path has keyCertSign, no URI name constraint, and a URI SAN, if it has one, of the same trust domain;
//! 4. none of them is revoked by a CRL of its issuer;
//! 5. in our own trust domain each may vouch for the leaf's ID ([`Policy`]).

mod ca;
mod path;
mod policy;

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::{
    bundle::TrustStore,
    facts::{self, Facts},
    id::{self, SpiffeId, TrustDomain},
};
pub(crate) use ca::check_ca;
pub use ca::verify_ca;
use path::{Anchors, Path};
pub use policy::{Policy, Refusal};

/// Most certificates that a peer may send.
pub const MAX_CHAIN: usize = 16;

/// What the certificate is presented for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The peer is a TLS server.
    Server,
    /// The peer is a TLS client.
    Client,
}

/// Why a chain is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No certificate.
    #[error("the chain is empty")]
    Empty,
    /// Beyond [`MAX_CHAIN`].
    #[error("the chain has {0} certificates; more than {MAX_CHAIN} are refused")]
    TooLong(usize),
    /// One that can't be read.
    #[error("certificate {number} of the chain: {reason}")]
    Certificate {
        /// From 1, the leaf.
        number: usize,
        /// What is wrong with it.
        reason: facts::Error,
    },
    /// None, or two: two identities in one certificate is the confused deputy's tool.
    #[error("an X.509-SVID has exactly one URI SAN, this certificate has these: {0:?}")]
    UriSans(Vec<String>),
    /// The URI SAN is not a SPIFFE ID.
    #[error("the URI SAN {0:?} is not a SPIFFE ID: {1}")]
    Id(String, id::Error),
    /// A CA, or a certificate with a CA's rights, as the leaf.
    #[error("the leaf {0}; a CA certificate never authenticates anyone")]
    LeafIsCa(&'static str),
    /// keyUsage missing or without digitalSignature.
    #[error("the leaf's keyUsage must be present and hold digitalSignature")]
    LeafKeyUsage,
    /// Nobody here vouches for the domain.
    #[error("no trust bundle for trust domain {0}")]
    UnknownTrustDomain(TrustDomain),
    /// The leaf is out of date.
    #[error("{0}")]
    OutOfDate(String),
    /// Every anchor of the domain is out of date.
    #[error("no root of trust domain {trust_domain} is valid now: {reason}")]
    AnchorsOutOfDate {
        /// Whose roots.
        trust_domain: TrustDomain,
        /// Dates of the last one looked at.
        reason: String,
    },
    /// webpki's verdict.
    #[error("no valid path from the certificate to a root of its trust domain: {0}")]
    Path(String),
    /// A CA on the path that is none.
    #[error("{ca} on the path may not sign certificates: cA and keyCertSign must be set")]
    NotCa {
        /// Its subject.
        ca: String,
    },
    /// A CA made for others.
    #[error("{ca} on the path serves another trust domain: {uris:?}")]
    OtherDomain {
        /// Its subject.
        ca: String,
        /// What its URI SANs say.
        uris: Vec<String>,
    },
    /// What no chain may have (RUSTSEC-2026-0098).
    #[error(
        "{ca} on the path has a name constraint on URIs, and every chain with one is refused, by rustls and Istio's ambient mode too; have the CA signed again without name constraints"
    )]
    UriConstraints {
        /// Its subject.
        ca: String,
    },
    /// Taken back by its issuer.
    #[error("{ca} is revoked by a CRL of its issuer")]
    Revoked {
        /// Its subject.
        ca: String,
    },
    /// Our own policy forbids it.
    #[error("{ca} may not vouch for this: {reason}")]
    Policy {
        /// Subject of the CA.
        ca: String,
        /// Which rule.
        reason: Box<Refusal>,
    },
    /// More CAs than the root allows.
    #[error(
        "there are {below} CAs between the certificate and a root that allows {most} below it (pathLenConstraint)"
    )]
    PathLength {
        /// From the root.
        most: u32,
        /// Found.
        below: usize,
    },
}

/// A peer or a file that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Who it is.
    pub id: SpiffeId,
    /// What the leaf says.
    pub leaf: Facts,
}

/// Verifies a chain, leaf first, at a time. Says who it is; whether that one is welcome is the caller's decision.
pub fn verify(
    chain: &[CertificateDer<'_>],
    store: &TrustStore,
    purpose: Purpose,
    now: OffsetDateTime,
) -> Result<Verified, Error> {
    let facts = read(chain)?;
    let leaf = facts.into_iter().next().ok_or(Error::Empty)?;
    let id = check_leaf(&leaf)?;
    let anchors = Anchors::of(store, id.trust_domain(), now)?;
    if let Some(reason) = leaf.out_of_date(now) {
        return Err(Error::OutOfDate(reason));
    }
    Path { chain, anchors: &anchors, store, id: &id, purpose, now }.check()?;
    Ok(Verified { id, leaf })
}

fn read(chain: &[CertificateDer<'_>]) -> Result<Vec<Facts>, Error> {
    if chain.len() > MAX_CHAIN {
        return Err(Error::TooLong(chain.len()));
    }
    let facts = |(index, der): (usize, &CertificateDer<'_>)| {
        Facts::parse(der).map_err(|reason| Error::Certificate { number: index + 1, reason })
    };
    chain.iter().enumerate().map(facts).collect()
}

/// X509-SVID section 5.2.
pub fn check_leaf(leaf: &Facts) -> Result<SpiffeId, Error> {
    let [uri] = leaf.uris.as_slice() else { return Err(Error::UriSans(leaf.uris.clone())) };
    let id = SpiffeId::parse(uri).map_err(|e| Error::Id(uri.clone(), e))?;
    if leaf.is_ca() {
        return Err(Error::LeafIsCa("has cA set"));
    }
    if id.is_trust_domain() {
        return Err(Error::LeafIsCa("carries the trust domain's own ID"));
    }
    match leaf.key_usage {
        Some(usage) if usage.key_cert_sign || usage.crl_sign => {
            Err(Error::LeafIsCa("has keyCertSign or cRLSign"))
        }
        Some(usage) if usage.digital_signature => Ok(id),
        _ => Err(Error::LeafKeyUsage),
    }
}

#[cfg(test)]
mod tests;
