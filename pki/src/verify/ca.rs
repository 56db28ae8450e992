//! CAs looked at one by one: on a path, and by themselves where a CA vouches for something that is no certificate.

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::{Error, path::Anchors};
use crate::{
    bundle::TrustStore,
    facts::Facts,
    id::{SpiffeId, TrustDomain},
    signed_by,
};

/// Checks what webpki leaves open about a CA that vouches for `id`: its keyCertSign, trust domain and constraints, and for our own domain
/// taint, pins and path rules. Neither signature nor dates.
pub(crate) fn check_ca(ca: &Facts, store: &TrustStore, id: &SpiffeId) -> Result<(), Error> {
    check_alone(ca, store, id.trust_domain())?;
    match store.policy_of(id.trust_domain()) {
        Some(policy) => policy.check(ca, id).map_err(|reason| refused(ca, reason)),
        None => Ok(()),
    }
}

fn refused(ca: &Facts, reason: super::Refusal) -> Error {
    Error::Policy { ca: ca.subject.clone(), reason: Box::new(reason) }
}

fn check_alone(ca: &Facts, store: &TrustStore, trust_domain: &TrustDomain) -> Result<(), Error> {
    if !ca.is_ca() || !ca.may_sign_certificates() {
        return Err(Error::NotCa { ca: ca.subject.clone() });
    }
    if ca.uris.iter().any(|uri| *uri != trust_domain.id().to_string()) {
        return Err(Error::OtherDomain { ca: ca.subject.clone(), uris: ca.uris.clone() });
    }
    if ca.uri_constraints {
        return Err(Error::UriConstraints { ca: ca.subject.clone() });
    }
    if store.crls_of(trust_domain).any(|crl| crl.revokes(ca)) {
        return Err(Error::Revoked { ca: ca.subject.clone() });
    }
    Ok(())
}

/// Verifies that a certificate is that of a live site CA right below a root of the trust domain, and says what it and the root are.
pub fn verify_ca(
    der: &CertificateDer<'_>,
    store: &TrustStore,
    trust_domain: &TrustDomain,
    now: OffsetDateTime,
) -> Result<(Facts, Facts), Error> {
    let ca = Facts::parse(der).map_err(|reason| Error::Certificate { number: 1, reason })?;
    if let Some(reason) = ca.out_of_date(now) {
        return Err(Error::OutOfDate(reason));
    }
    check_alone(&ca, store, trust_domain)?;
    if let Some(policy) = store.policy_of(trust_domain) {
        policy.check_ca(&ca).map_err(|reason| refused(&ca, reason))?;
    }
    let anchors = Anchors::of(store, trust_domain, now)?;
    let bundle = store.bundle(trust_domain).ok_or_else(|| Error::UnknownTrustDomain(trust_domain.clone()))?;
    let root = anchors.facts().iter().find(|root| {
        root.subject_der == ca.issuer_der
            && ca.key_sha256 != root.key_sha256
            && bundle.anchors().iter().any(|anchor| {
                crate::key::sha256_hex(anchor) == root.sha256 && signed_by::certificate(der, anchor)
            })
    });
    match root {
        Some(root) => Ok((ca, root.clone())),
        None => {
            Err(Error::Path(format!("{} is not signed by a root of trust domain {trust_domain}", ca.subject)))
        }
    }
}
