//! A fabric of one root and one site CA in a directory that vanishes, and a request as an agent makes it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use isthmus_pki::{Authority, Bundle, Curve, Key, Profile, Serial, TrustDomain, bundle, csr};
use isthmusd::identity::{Identity, Issuer, IssuerConfig, Requester, SiteCa, Sync, Trust, audit::Log};
use rustls_pki_types::CertificateSigningRequestDer;
use tempfile::TempDir;

/// An issuer with everything that it has in a daemon.
pub(crate) struct Site {
    issuer: Arc<Issuer>,
    request: CertificateSigningRequestDer<'static>,
    identity: Identity,
    audience: Vec<String>,
    _directory: TempDir,
}

const WORKLOAD: Requester = Requester::Workload { uid: 1000, pid: 4242 };

impl Site {
    /// # Errors
    /// When the directory can't be written.
    pub(crate) fn new(parent: &Path, sync: Sync) -> Result<Self> {
        let directory = tempfile::tempdir_in(parent).context("making a directory for the audit log")?;
        let domain = TrustDomain::parse("fabric.example")?;
        let (config, roots) = files(directory.path(), &domain)?;
        let config = limitless(config, sync);
        let (trust, now) = (Trust::new(roots), SystemTime::now());
        let ca = SiteCa::load(&config, &trust, Some("bench"), now)?;
        let issuer = Issuer::new(ca, &config, Log::open(&config.audit, now)?)?;
        issuer.publish(&trust, now)?;
        let id = domain.member("/ns/payments/sa/api")?;
        let request = csr::to_der(&csr::create(&Key::generate(Curve::P256)?, "api", &id)?)?;
        let identity = Identity {
            id,
            ttl: Duration::from_secs(3600),
            jwt_ttl: Duration::from_secs(300),
            dns_names: vec!["api.payments.example".into()],
            hint: String::new(),
            federates_with: Vec::new(),
        };
        Ok(Self { issuer, request, identity, audience: vec!["db.example".into()], _directory: directory })
    }

    /// For a key that the agent made.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) fn certify(&self) -> Result<()> {
        self.issuer.certify(&self.request, &self.identity, &WORKLOAD, SystemTime::now())?;
        Ok(())
    }

    /// With a key made here.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) fn issue(&self) -> Result<()> {
        self.issuer.issue(&self.identity, &WORKLOAD, SystemTime::now())?;
        Ok(())
    }

    /// A token.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) fn mint(&self) -> Result<()> {
        self.issuer.mint(&self.identity, &self.audience, &WORKLOAD, SystemTime::now())?;
        Ok(())
    }
}

/// What is measured is the work, not a limit.
fn limitless(config: IssuerConfig, sync: Sync) -> IssuerConfig {
    let mut config = IssuerConfig { rate: None, requester_rate: None, ..config };
    config.audit.sync = sync;
    config
}

fn files(directory: &Path, domain: &TrustDomain) -> Result<(IssuerConfig, Bundle)> {
    let now = SystemTime::now().into();
    let serial = || Serial::from_random(rand::random());
    let day = time::Duration::DAY;
    let root = Authority::root(domain, Key::generate(Curve::P384)?, 3650 * day, serial(), now)?;
    let key = Key::generate(Curve::P256)?;
    let profile = Profile::SiteCa { site: "bench".into(), lifetime: 90 * day };
    let issued = root.issue(&profile, &key.public(), serial(), now)?;
    let (certificate, path) = (directory.join("ca.pem"), directory.join("ca.key"));
    fs::write(&certificate, bundle::to_pem([&issued.certificate]))?;
    fs::write(&path, "")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    fs::write(&path, key.to_pem().as_bytes())?;
    Ok((IssuerConfig::new(certificate, path, directory), Bundle::parse(root.certificate())?))
}
