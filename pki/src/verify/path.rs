//! The way from a leaf up to a root: webpki builds it, and each of its CAs is then held to what webpki leaves open.

use std::{cell::RefCell, time::Duration};

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use time::OffsetDateTime;
use webpki::{
    EndEntityCert, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
    VerifiedPath,
};

use super::{Error, Purpose, check_ca};
use crate::{
    bundle::TrustStore,
    facts::Facts,
    id::{SpiffeId, TrustDomain},
};

/// The roots of a trust domain that may be gone by now.
pub(super) struct Anchors<'a> {
    usable: Vec<TrustAnchor<'a>>,
    /// Of each of them.
    facts: Vec<Facts>,
}

impl<'a> Anchors<'a> {
    /// Those that are valid now and not tainted: webpki looks at neither dates nor path length nor key usage of an anchor.
    pub(super) fn of(
        store: &'a TrustStore,
        trust_domain: &TrustDomain,
        now: OffsetDateTime,
    ) -> Result<Self, Error> {
        let bundle =
            store.bundle(trust_domain).ok_or_else(|| Error::UnknownTrustDomain(trust_domain.clone()))?;
        let mut anchors = Self { usable: Vec::new(), facts: Vec::new() };
        let mut reason = "the bundle is empty".to_owned();
        for der in bundle.anchors() {
            match anchor(der, store, trust_domain, now) {
                Ok((usable, facts)) => {
                    anchors.usable.push(usable);
                    anchors.facts.push(facts);
                }
                Err(why) => reason = why,
            }
        }
        if anchors.usable.is_empty() {
            return Err(Error::AnchorsOutOfDate { trust_domain: trust_domain.clone(), reason });
        }
        Ok(anchors)
    }

    pub(super) fn facts(&self) -> &[Facts] {
        &self.facts
    }
}

fn anchor<'a>(
    der: &'a CertificateDer<'_>,
    store: &TrustStore,
    trust_domain: &TrustDomain,
    now: OffsetDateTime,
) -> Result<(TrustAnchor<'a>, Facts), String> {
    let facts = Facts::parse(der).map_err(|e| e.to_string())?;
    if let Some(why) = facts.out_of_date(now) {
        return Err(why);
    }
    if let Some(policy) = store.policy_of(trust_domain) {
        policy.check_ca(&facts).map_err(|e| e.to_string())?;
    }
    let usable = webpki::anchor_from_trusted_cert(der).map_err(|e| e.to_string())?;
    Ok((usable, facts))
}

/// What is to be shown, and with what.
pub(super) struct Path<'a> {
    pub(super) chain: &'a [CertificateDer<'a>],
    pub(super) anchors: &'a Anchors<'a>,
    pub(super) store: &'a TrustStore,
    pub(super) id: &'a SpiffeId,
    pub(super) purpose: Purpose,
    pub(super) now: OffsetDateTime,
}

impl Path<'_> {
    pub(super) fn check(&self) -> Result<(), Error> {
        let (leaf, intermediates) = self.chain.split_first().ok_or(Error::Empty)?;
        let leaf = EndEntityCert::try_from(leaf).map_err(|e| Error::Path(explain(&e)))?;
        let since_epoch = Duration::from_secs(u64::try_from(self.now.unix_timestamp()).unwrap_or(0));
        let usage = match self.purpose {
            Purpose::Server => KeyUsage::server_auth(),
            Purpose::Client => KeyUsage::client_auth(),
        };
        let lists: Vec<_> = self.store.crls_of(self.id.trust_domain()).map(|crl| crl.lookup()).collect();
        // A list here is complete for its issuer (`crl`), so "unknown" can only mean that the issuer has none.
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Allow)
                .build()
        });
        let refusal = RefCell::new(None);
        let sound = |path: &VerifiedPath<'_>| {
            self.check_cas(path).map_err(|error| {
                *refusal.borrow_mut() = Some(error);
                webpki::Error::UnknownIssuer
            })
        };
        leaf.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &self.anchors.usable,
            intermediates,
            UnixTime::since_unix_epoch(since_epoch),
            usage,
            revocation,
            Some(&sound),
        )
        .map(|_| ())
        .map_err(|error| refusal.take().unwrap_or_else(|| self.explain(&error)))
    }

    fn check_cas(&self, path: &VerifiedPath<'_>) -> Result<(), Error> {
        let cas: Vec<Facts> = path
            .intermediate_certificates()
            .map(|ca| Facts::parse(&ca.der()).map_err(|e| Error::Path(e.to_string())))
            .collect::<Result<_, _>>()?;
        cas.iter().try_for_each(|ca| check_ca(ca, self.store, self.id))?;
        self.check_length(path, &cas)
    }

    /// pathLenConstraint of the root (RFC 5280 section 6.1.4 step m): a CA with the same issuer and subject does not count.
    fn check_length(&self, path: &VerifiedPath<'_>, cas: &[Facts]) -> Result<(), Error> {
        let below = cas.iter().filter(|ca| !ca.self_issued).count();
        let root = self.anchors.usable.iter().position(|anchor| anchor == path.anchor());
        let most = root.and_then(|at| self.anchors.facts[at].basic_constraints).and_then(|b| b.path_len);
        match most {
            Some(most) if usize::try_from(most).is_ok_and(|most| below > most) => {
                Err(Error::PathLength { most, below })
            }
            _ => Ok(()),
        }
    }

    fn explain(&self, error: &webpki::Error) -> Error {
        let constrained = || {
            self.chain.iter().skip(1).filter_map(|der| Facts::parse(der).ok()).find(|ca| ca.uri_constraints)
        };
        match error {
            webpki::Error::NameConstraintViolation => match constrained() {
                Some(ca) => Error::UriConstraints { ca: ca.subject },
                None => Error::Path(explain(error)),
            },
            _ => Error::Path(explain(error)),
        }
    }
}

fn explain(error: &webpki::Error) -> String {
    let remedy = match error {
        webpki::Error::UnknownIssuer => {
            "an intermediate is missing from the chain, or it comes from another root"
        }
        webpki::Error::CertExpired { .. } => "a CA on the path has expired",
        webpki::Error::CertNotValidYet { .. } => "a CA on the path is not valid yet: check the clock",
        webpki::Error::CertRevoked => "a certificate on the path is revoked by a CRL of its issuer",
        webpki::Error::EndEntityUsedAsCa => "a certificate on the path may not sign certificates",
        webpki::Error::NameConstraintViolation => "name constraints of a CA on the path forbid it",
        webpki::Error::PathLenConstraintViolated => "a CA on the path allows fewer CAs below it",
        webpki::Error::RequiredEkuNotFoundContext(_) => {
            "extKeyUsage on the path lacks serverAuth or clientAuth"
        }
        _ => return error.to_string(),
    };
    format!("{remedy} ({error})")
}
