//! Reads and checks the site CA. Nothing is written, nothing begins: `isthmusd --check` does the same.

use std::{sync::Arc, time::SystemTime};

use isthmus_pki::{
    Authority, Curve, Facts, Key, Profile, Serial, TrustStore, authority,
    verify::{self, Purpose},
};
use time::{Duration, OffsetDateTime};

use super::{Error, key};
use crate::identity::{
    certificates::{CertificateInfo, Kind},
    config::IssuerConfig,
    files,
    trust::Trust,
};

/// A site CA that was checked against what the fabric trusts.
#[derive(Clone)]
pub struct SiteCa {
    pub(super) authority: Arc<Authority>,
    pub(super) info: CertificateInfo,
    /// Hash of its key: one text for all that it issues.
    pub(super) key: Arc<str>,
    pub(super) site: Option<String>,
    /// Why nobody believes what it issues, though it is the fabric's: it is revoked, say. Nor does it issue, then.
    pub(super) refused: Option<String>,
}

impl SiteCa {
    /// Reads and checks the files of `[issuer]`; `site` is from `[node]`. One that is out of its time, or revoked, is taken: the node's
    /// tunnels do not depend on it, and it issues nothing.
    pub fn load(
        config: &IssuerConfig,
        trust: &Trust,
        site: Option<&str>,
        now: SystemTime,
    ) -> Result<Self, Error> {
        let authority = load_authority(config)?;
        if let Some(site) = site.filter(|site| !authority.serves_site(site)) {
            let subject = authority.facts().subject.clone();
            let certificate = config.certificate.clone();
            return Err(Error::OtherSite { certificate, site: site.into(), subject });
        }
        let refused = check(&authority, config, trust, now.into())?;
        let info = CertificateInfo::new(Kind::SiteCa, authority.facts(), Some(config.certificate.clone()));
        let (key, site) = (authority.facts().key_sha256.as_str().into(), site.map(str::to_owned));
        Ok(Self { authority: Arc::new(authority), info, key, site, refused })
    }

    /// Why it can't issue now, and the remedy; `None`: it can.
    pub fn trouble(&self, now: SystemTime) -> Option<String> {
        let reason = self.refused.clone().or_else(|| self.facts().out_of_date(now.into()))?;
        Some(format!(
            "nothing is issued: the site CA {}: {reason}; have a new one signed with `isthmus-ca site sign`",
            self.info.subject
        ))
    }

    /// What its certificate says.
    pub fn facts(&self) -> &Facts {
        self.authority.facts()
    }
}

/// Reads certificate and key, which belong together; whether anybody believes them is another question.
pub(in crate::identity) fn load_authority(config: &IssuerConfig) -> Result<Authority, Error> {
    let certificate = files::certificates(&config.certificate)?.swap_remove(0);
    let key = key::open(&config.key)?;
    Authority::load(certificate, key).map_err(|reason| not_a_ca(config, reason))
}

/// A pair that was replaced half-way is told by both names.
fn not_a_ca(config: &IssuerConfig, reason: authority::Error) -> Error {
    let (certificate, key) = (config.certificate.clone(), config.key.place());
    Error::Authority { certificate, key, reason: Box::new(reason) }
}

/// A root of the fabric must have signed it, now, or at the end or the beginning of its own life: what is wrong beside the time does not
/// go away with it. Revocations and rules are no reason not to start; the answer is what they say.
fn check(
    authority: &Authority,
    config: &IssuerConfig,
    trust: &Trust,
    now: OffsetDateTime,
) -> Result<Option<String>, Error> {
    let roots = TrustStore::from(trust.own().clone());
    let facts = authority.facts();
    let probe = |store: &TrustStore, moment| probe(authority, config, store, moment);
    let Err(reason) = probe(&roots, now) else {
        return Ok(probe(trust.store(), now).err().map(|reason| tell(config, &reason)));
    };
    let life = [facts.not_after, facts.not_before].map(OffsetDateTime::from_unix_timestamp);
    if life.into_iter().flatten().any(|moment| probe(&roots, moment).is_ok()) {
        tell(config, &reason);
        return Ok(None);
    }
    Err(reason)
}

fn tell(config: &IssuerConfig, reason: &Error) -> String {
    tracing::warn!(certificate = %config.certificate.display(), %reason, "the site CA issues nothing");
    match reason {
        Error::Refused { reason, .. } => reason.to_string(),
        other => other.to_string(),
    }
}

/// A probe that never leaves this function goes through the verifier that every peer of ours uses. Its ID is one that the site owns: the
/// rest is the policy's to give.
fn probe(
    authority: &Authority,
    config: &IssuerConfig,
    store: &TrustStore,
    moment: OffsetDateTime,
) -> Result<(), Error> {
    let domain = authority.trust_domain();
    let own = authority.facts().site().and_then(|site| domain.member(&format!("/site/{site}/probe")).ok());
    let id = own.unwrap_or_else(|| domain.member("/probe").expect("a path of one segment"));
    let profile = Profile::Svid { id, dns_names: Vec::new(), lifetime: Duration::MINUTE };
    let serial = Serial::from_random(rand::random());
    let probe = authority
        .issue(&profile, &Key::generate(Curve::P256)?.public(), serial, moment)
        .map_err(|reason| not_a_ca(config, reason))?;
    let chain = [probe.certificate, authority.certificate().clone()];
    let verdict = verify::verify(&chain, store, Purpose::Server, moment);
    verdict.map(drop).map_err(|reason| Error::Refused {
        certificate: config.certificate.clone(),
        reason: Box::new(reason),
    })
}
