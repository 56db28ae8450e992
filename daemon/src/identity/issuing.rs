//! A site CA in the hands of a node: issues X.509-SVIDs to workloads, with keys made here.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use isthmus_pki::{
    Authority, Bundle, Curve, Key, Profile, PublicKey, Serial, SpiffeId, TrustDomain, TrustStore, authority,
    csr, key,
    verify::{self, Purpose},
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

use super::{
    certificates::{CertificateInfo, Kind},
    config::IssuerConfig,
    files::{self, FileError},
    registration::Identity,
};

/// Why a site CA can't be used or can't issue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Certificate and key are no CA.
    #[error("{certificate} and {key}: {reason}")]
    Authority {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// What is wrong with them.
        reason: Box<authority::Error>,
    },
    /// What it would issue is refused by our own verifier.
    #[error(
        "{certificate}: what this CA issues would be refused: {reason}; have it signed by the fabric's root with `isthmus-ca site sign`"
    )]
    Refused {
        /// File of the certificate.
        certificate: PathBuf,
        /// The verifier's verdict.
        reason: verify::Error,
    },
    /// The CA of another site.
    #[error("{certificate}: not the CA of site {site:?} that [node] names, but {subject}")]
    OtherSite {
        /// File of the certificate.
        certificate: PathBuf,
        /// From [node].
        site: String,
        /// From the certificate.
        subject: String,
    },
    /// Signing failed.
    #[error("{id}: {reason}")]
    Issue {
        /// For whom.
        id: SpiffeId,
        /// Why.
        reason: Box<authority::Error>,
    },
    /// A request that asks for nothing that can be certified.
    #[error("the request is refused: {0}")]
    Request(#[from] csr::Error),
    /// No key, or no random bytes.
    #[error("the cryptographic library failed: {0}")]
    Library(#[from] key::Error),
}

/// A site CA that was checked against the fabric's bundle.
pub struct Issuer {
    authority: Authority,
    info: CertificateInfo,
}

/// A certificate just issued for a key that is elsewhere.
pub(super) struct Certified {
    /// Leaf, then the site CA.
    pub(super) chain: [CertificateDer<'static>; 2],
    pub(super) not_after: OffsetDateTime,
}

/// An SVID just issued. The key exists here and in the message to the workload.
pub(super) struct Svid {
    pub(super) id: SpiffeId,
    /// Leaf, then the site CA.
    pub(super) chain: [CertificateDer<'static>; 2],
    pub(super) key: Key,
    pub(super) info: CertificateInfo,
    pub(super) not_after: OffsetDateTime,
    /// When its half life is over, give or take the jitter.
    pub(super) renew_at: OffsetDateTime,
}

impl Issuer {
    /// Reads and checks the files of `[issuer]`; `site` is from `[node]`.
    pub fn load(
        config: &IssuerConfig,
        bundle: &Bundle,
        site: Option<&str>,
        now: SystemTime,
    ) -> Result<Arc<Self>, Error> {
        let certificate = files::certificates(&config.certificate)?.swap_remove(0);
        let key = files::key(&config.key)?;
        let authority = Authority::load(certificate, key).map_err(|reason| Error::Authority {
            certificate: config.certificate.clone(),
            key: config.key.clone(),
            reason: Box::new(reason),
        })?;
        if let Some(site) = site.filter(|site| !authority.serves_site(site)) {
            let subject = authority.facts().subject.clone();
            return Err(Error::OtherSite {
                certificate: config.certificate.clone(),
                site: site.into(),
                subject,
            });
        }
        let info = CertificateInfo::new(Kind::SiteCa, authority.facts(), Some(config.certificate.clone()));
        let issuer = Self { authority, info };
        issuer.check(config, bundle, now)?;
        Ok(Arc::new(issuer))
    }

    /// A probe that never leaves this function goes through the verifier that every peer of ours uses.
    fn check(&self, config: &IssuerConfig, bundle: &Bundle, now: SystemTime) -> Result<(), Error> {
        let probe = Identity {
            id: self.authority.trust_domain().member("/probe").expect("a path of one segment"),
            ttl: std::time::Duration::from_secs(60),
            jwt_ttl: std::time::Duration::from_secs(60),
            dns_names: Vec::new(),
            hint: String::new(),
            federates_with: Vec::new(),
        };
        let probe = match self.issue(&probe, now) {
            Err(Error::Issue { reason, .. }) => {
                let (certificate, key) = (config.certificate.clone(), config.key.clone());
                return Err(Error::Authority { certificate, key, reason });
            }
            other => other?,
        };
        verify::verify(&probe.chain, &TrustStore::from(bundle.clone()), Purpose::Server, now.into())
            .map(|_| ())
            .map_err(|reason| Error::Refused { certificate: config.certificate.clone(), reason })
    }

    /// The trust domain that it issues in.
    pub fn trust_domain(&self) -> &TrustDomain {
        self.authority.trust_domain()
    }

    /// Issues an SVID with a new key.
    pub(super) fn issue(&self, identity: &Identity, now: SystemTime) -> Result<Svid, Error> {
        let key = Key::generate(Curve::P256)?;
        let Certified { chain, not_after } = self.sign(&key.public(), identity, now)?;
        let id = identity.id.clone();
        let reject = |reason| Error::Issue { id: id.clone(), reason: Box::new(reason) };
        let facts = isthmus_pki::Facts::parse(&chain[0]).map_err(|e| reject(e.into()))?;
        let now = OffsetDateTime::from(now);
        let renew_at = now + half_life(not_after - now);
        let info = CertificateInfo {
            renew_at: Some(renew_at.unix_timestamp()),
            ..CertificateInfo::new(Kind::WorkloadSvid, &facts, None)
        };
        Ok(Svid { id, chain, key, info, not_after, renew_at })
    }

    /// Certifies the key of a request for an identity that the caller has decided on: of the request only the key counts.
    pub(super) fn certify(
        &self,
        csr: &[u8],
        identity: &Identity,
        now: SystemTime,
    ) -> Result<Certified, Error> {
        self.sign(&csr::parse(csr)?.public_key, identity, now)
    }

    fn sign(&self, key: &PublicKey, identity: &Identity, now: SystemTime) -> Result<Certified, Error> {
        let id = identity.id.clone();
        let lifetime = Duration::try_from(identity.ttl).unwrap_or(Duration::MAX);
        let profile = Profile::Svid { id: id.clone(), dns_names: identity.dns_names.clone(), lifetime };
        let serial = Serial::from_random(rand::random());
        let reject = |reason| Error::Issue { id: id.clone(), reason: Box::new(reason) };
        let issued = self.authority.issue(&profile, key, serial, now.into()).map_err(reject)?;
        if let Some(cut) = issued.clamped {
            tracing::warn!(%id, shorter_by = %cut, "SVID cut short: the site CA expires first; renew the site CA");
        }
        let chain = [issued.certificate, self.authority.certificate().clone()];
        Ok(Certified { chain, not_after: issued.not_after })
    }

    /// Facts of the site CA's certificate.
    pub fn certificate(&self) -> &CertificateInfo {
        &self.info
    }
}

/// Half of what is left, give or take 5 %: what was issued together is not renewed together.
fn half_life(left: Duration) -> Duration {
    left * rand::random_range(0.45..0.55)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_life_has_jitter_within_bounds() {
        let hour = Duration::hours(1);
        let all: Vec<Duration> = (0..200).map(|_| half_life(hour)).collect();
        assert!(all.iter().all(|d| (Duration::minutes(27)..=Duration::minutes(33)).contains(d)));
        assert!(all.iter().any(|d| *d != all[0]));
    }
}
