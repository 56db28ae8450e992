//! The verifier behind every TLS connection and every file that is loaded.
//!
//! Path building is webpki's. Beside it, because webpki leaves it open:
//! 1. the leaf is an X.509-SVID (X509-SVID section 5.2): one URI SAN, an ID with a path, cA false, no keyCertSign or cRLSign;
//! 2. anchors are those of the leaf's own trust domain, chosen before a path is built, and valid now;
//! 3. every CA on the path has keyCertSign, and a URI SAN, if it has one, of the same trust domain.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use time::OffsetDateTime;
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use crate::{
    bundle::TrustStore,
    facts::{self, Facts},
    id::{self, SpiffeId, TrustDomain},
};

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
    let anchors = anchors(store, id.trust_domain(), now)?;
    if let Some(reason) = leaf.out_of_date(now) {
        return Err(Error::OutOfDate(reason));
    }
    check_path(chain, &anchors, id.trust_domain(), purpose, now)?;
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

/// Anchors of the domain that are valid now: webpki looks at neither dates nor key usage of an anchor.
fn anchors<'a>(
    store: &'a TrustStore,
    trust_domain: &TrustDomain,
    now: OffsetDateTime,
) -> Result<Vec<TrustAnchor<'a>>, Error> {
    let bundle = store.bundle(trust_domain).ok_or_else(|| Error::UnknownTrustDomain(trust_domain.clone()))?;
    let mut usable = Vec::new();
    let mut reason = "the bundle is empty".to_owned();
    for der in bundle.anchors() {
        let dates = Facts::parse(der).map(|facts| facts.out_of_date(now));
        match (dates, webpki::anchor_from_trusted_cert(der)) {
            (Ok(None), Ok(anchor)) => usable.push(anchor),
            (Ok(Some(why)), _) => reason = why,
            (Err(e), _) => reason = e.to_string(),
            (_, Err(e)) => reason = e.to_string(),
        }
    }
    if usable.is_empty() {
        return Err(Error::AnchorsOutOfDate { trust_domain: trust_domain.clone(), reason });
    }
    Ok(usable)
}

fn check_path(
    chain: &[CertificateDer<'_>],
    anchors: &[TrustAnchor<'_>],
    trust_domain: &TrustDomain,
    purpose: Purpose,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let path = |e: webpki::Error| Error::Path(explain(&e));
    let (leaf, intermediates) = chain.split_first().ok_or(Error::Empty)?;
    let leaf = EndEntityCert::try_from(leaf).map_err(path)?;
    let since_epoch = Duration::from_secs(u64::try_from(now.unix_timestamp()).unwrap_or(0));
    let usage = match purpose {
        Purpose::Server => KeyUsage::server_auth(),
        Purpose::Client => KeyUsage::client_auth(),
    };
    let cas_are_sound = |path: &VerifiedPath<'_>| check_cas(path, trust_domain);
    leaf.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        anchors,
        intermediates,
        UnixTime::since_unix_epoch(since_epoch),
        usage,
        None,
        Some(&cas_are_sound),
    )
    .map(|_| ())
    .map_err(path)
}

fn check_cas(path: &VerifiedPath<'_>, trust_domain: &TrustDomain) -> Result<(), webpki::Error> {
    for ca in path.intermediate_certificates() {
        let facts = Facts::parse(&ca.der()).map_err(|_| webpki::Error::BadDer)?;
        if !facts.may_sign_certificates() {
            return Err(webpki::Error::EndEntityUsedAsCa);
        }
        if facts.uris.iter().any(|uri| *uri != trust_domain.id().to_string()) {
            return Err(webpki::Error::NameConstraintViolation);
        }
    }
    Ok(())
}

fn explain(error: &webpki::Error) -> String {
    let remedy = match error {
        webpki::Error::UnknownIssuer => {
            "an intermediate is missing from the chain, or it comes from another root"
        }
        webpki::Error::CertExpired { .. } => "a CA on the path has expired",
        webpki::Error::CertNotValidYet { .. } => "a CA on the path is not valid yet: check the clock",
        webpki::Error::EndEntityUsedAsCa => "a certificate on the path may not sign certificates",
        webpki::Error::NameConstraintViolation => {
            "a CA on the path serves another trust domain, or its name constraints forbid it"
        }
        webpki::Error::PathLenConstraintViolated => "a CA on the path allows fewer CAs below it",
        webpki::Error::RequiredEkuNotFoundContext(_) => {
            "extKeyUsage on the path lacks serverAuth or clientAuth"
        }
        _ => return error.to_string(),
    };
    format!("{remedy} ({error})")
}

#[cfg(test)]
mod tests;
