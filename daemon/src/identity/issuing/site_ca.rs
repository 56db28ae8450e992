//! Reads and checks the site CA. Nothing is written, nothing begins: `isthmusd --check` does the same.

use std::{sync::Arc, time::SystemTime};

use isthmus_pki::{
    Authority, Bundle, Curve, Facts, Key, Profile, Serial, TrustStore, authority,
    verify::{self, Purpose},
};
use time::Duration;

use super::{Error, key};
use crate::identity::{
    certificates::{CertificateInfo, Kind},
    config::IssuerConfig,
    files,
};

/// A site CA that was checked against the fabric's bundle.
#[derive(Clone)]
pub struct SiteCa {
    pub(super) authority: Arc<Authority>,
    pub(super) info: CertificateInfo,
    pub(super) site: Option<String>,
}

impl SiteCa {
    /// Reads and checks the files of `[issuer]`; `site` is from `[node]`.
    pub fn load(
        config: &IssuerConfig,
        bundle: &Bundle,
        site: Option<&str>,
        now: SystemTime,
    ) -> Result<Self, Error> {
        let authority = load_authority(config)?;
        if let Some(site) = site.filter(|site| !authority.serves_site(site)) {
            let subject = authority.facts().subject.clone();
            let certificate = config.certificate.clone();
            return Err(Error::OtherSite { certificate, site: site.into(), subject });
        }
        check(&authority, config, bundle, now)?;
        let info = CertificateInfo::new(Kind::SiteCa, authority.facts(), Some(config.certificate.clone()));
        Ok(Self { authority: Arc::new(authority), info, site: site.map(str::to_owned) })
    }

    /// What its certificate says.
    pub fn facts(&self) -> &Facts {
        self.authority.facts()
    }
}

/// Reads certificate and key, which belong together; whether anybody believes them is another question.
pub(in crate::identity) fn load_authority(config: &IssuerConfig) -> Result<Authority, Error> {
    let certificate = files::certificates(&config.certificate)?.swap_remove(0);
    let key = key::load(&config.key, key::credentials_directory().as_deref())?;
    Authority::load(certificate, key).map_err(|reason| not_a_ca(config, reason))
}

/// A pair that was replaced half-way is told by both names.
fn not_a_ca(config: &IssuerConfig, reason: authority::Error) -> Error {
    let (certificate, key) = (config.certificate.clone(), config.key.place());
    Error::Authority { certificate, key, reason: Box::new(reason) }
}

/// A probe that never leaves this function goes through the verifier that every peer of ours uses.
fn check(
    authority: &Authority,
    config: &IssuerConfig,
    bundle: &Bundle,
    now: SystemTime,
) -> Result<(), Error> {
    let id = authority.trust_domain().member("/probe").expect("a path of one segment");
    let profile = Profile::Svid { id, dns_names: Vec::new(), lifetime: Duration::MINUTE };
    let serial = Serial::from_random(rand::random());
    let probe = authority
        .issue(&profile, &Key::generate(Curve::P256)?.public(), serial, now.into())
        .map_err(|reason| not_a_ca(config, reason))?;
    let chain = [probe.certificate, authority.certificate().clone()];
    verify::verify(&chain, &TrustStore::from(bundle.clone()), Purpose::Server, now.into())
        .map(|_| ())
        .map_err(|reason| Error::Refused {
            certificate: config.certificate.clone(),
            reason: Box::new(reason),
        })
}
