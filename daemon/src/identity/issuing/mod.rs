//! A site CA in the hands of a node: issues SVIDs to those who may have them, as fast as they may, and writes down each one.
//!
//! `site_ca` reads and checks it, `key` fetches its key, `x509` and `jwt` issue, `limits` says how fast, `requester` who asks. Whatever
//! is issued is in the audit log before it leaves; if it can't be written, it does not leave.

mod error;
mod jwt;
mod key;
mod latency;
mod limits;
mod requester;
mod site_ca;
#[cfg(test)]
pub(super) mod tests;
mod x509;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime},
};

use isthmus_pki::{
    SpiffeId, TrustDomain,
    audit::{Entry, Kind},
};
use time::Duration;

use super::{
    audit::Log,
    certificates::CertificateInfo,
    config::{AuditConfig, IssuerConfig, Paths},
    trust::Trust,
};

pub use error::Error;
pub use jwt::JwtSvid;
pub use limits::Limited;

pub(super) use key::{open as open_key, passphrase, token_location};
pub use requester::Requester;
pub use site_ca::SiteCa;
pub(super) use site_ca::load_authority;
pub use x509::{Certified, Svid};

use limits::Limits;

/// A site CA that issues.
pub struct Issuer {
    ca: SiteCa,
    paths: Paths,
    settings: AuditConfig,
    audit: Arc<Log>,
    keys: Arc<jwt::Keys>,
    limits: Mutex<Limits>,
    /// It was said that this CA ends before what it issues should.
    cut_told: AtomicBool,
}

impl Issuer {
    /// Takes a checked CA into service, with the keys for tokens that an earlier run left in the state directory.
    pub fn new(ca: SiteCa, config: &IssuerConfig, audit: Arc<Log>) -> Result<Arc<Self>, Error> {
        Ok(Self::with_keys(ca, config, audit, jwt::Keys::open(&config.state_dir)?))
    }

    /// Takes over from the one before: what both have the same is not begun anew.
    pub(super) fn after(
        before: Option<&Self>,
        ca: SiteCa,
        config: &IssuerConfig,
        audit: Arc<Log>,
    ) -> Result<Arc<Self>, Error> {
        match before.filter(|before| before.keys.are_of(&config.state_dir)) {
            Some(before) => Ok(Self::with_keys(ca, config, audit, before.keys.clone())),
            None => Self::new(ca, config, audit),
        }
    }

    fn with_keys(ca: SiteCa, config: &IssuerConfig, audit: Arc<Log>, keys: Arc<jwt::Keys>) -> Arc<Self> {
        let limits = Mutex::new(Limits::new(config.rate, config.requester_rate));
        let (paths, settings) = (config.paths.clone(), config.audit.clone());
        Arc::new(Self { ca, paths, settings, audit, keys, limits, cut_told: AtomicBool::new(false) })
    }

    /// Issuing begins: heads of the audit log are signed by this CA from now on, and its log takes the settings of the configuration.
    pub(super) fn begin(&self, before: Option<&Self>) {
        if let Some(before) = before.filter(|before| before.ca.info.sha256 == self.ca.info.sha256) {
            self.cut_told.store(before.cut_told.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.audit.adjust(&self.settings);
        let authority = self.ca.authority.clone();
        self.audit.set_signer(Arc::new(move |head| head.sign(&authority).ok()));
    }

    /// The trust domain that it issues in.
    pub fn trust_domain(&self) -> &TrustDomain {
        self.ca.authority.trust_domain()
    }

    /// Facts of the site CA's certificate.
    pub fn certificate(&self) -> &CertificateInfo {
        &self.ca.info
    }

    /// Why it can't issue now, and the remedy; `None`: it can.
    pub fn trouble(&self, now: SystemTime) -> Option<String> {
        self.ca.trouble(now)
    }

    /// False: whoever goes by this trust refuses what this CA issues.
    pub(super) fn is_believed(&self, trust: &Trust) -> bool {
        trust.store().policy().check_ca(self.ca.facts()).is_ok()
    }

    /// Where it writes what it did.
    pub fn audit(&self) -> &Arc<Log> {
        &self.audit
    }

    /// May this requester have this ID, now?
    fn admit(&self, id: &SpiffeId, requester: &Requester, now: SystemTime) -> Result<(), Error> {
        if let Some(reason) = self.trouble(now) {
            return Err(Error::Idle { id: id.clone(), reason });
        }
        self.check_id(id, requester).map_err(|reason| Error::NotAllowed { id: id.clone(), reason })?;
        // A bucket that was left half-changed lets one more or one less through.
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits
            .take(requester.account(), Instant::now())
            .map_err(|limit| Error::Limited { id: id.clone(), limit })
    }

    fn check_id(&self, id: &SpiffeId, requester: &Requester) -> Result<(), &'static str> {
        let mut segments = id.path().split('/').skip(1);
        let site = (segments.next() == Some("site")).then(|| segments.next()).flatten();
        let own = self.ca.site.as_deref();
        if site.is_some_and(|site| own.is_some_and(|own| own != site)) {
            return Err("it belongs to another site");
        }
        match id.node() {
            Some(_) if !requester.may_be_node(id) => Err("it is a node's own, and not this requester's"),
            None if !self.paths.allow(id) => Err("it is not one of [issuer] paths"),
            _ => Ok(()),
        }
    }

    /// Does the work, measures it, and writes down a refusal. What was issued wrote itself down before it came back.
    fn settle<T>(
        &self,
        kind: &'static str,
        id: &SpiffeId,
        requester: &Requester,
        now: SystemTime,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let result = work();
        match &result {
            Ok(_) => {
                latency::observe(kind, started.elapsed());
                metrics::counter!("isthmus_svid_issued_total", "kind" => kind).increment(1);
            }
            Err(error) => {
                let reason = error.reason();
                metrics::counter!("isthmus_svid_refused_total", "kind" => kind, "reason" => reason)
                    .increment(1);
                self.write_refusal(id, requester, now, error);
            }
        }
        result
    }

    fn write_refusal(&self, id: &SpiffeId, requester: &Requester, now: SystemTime, error: &Error) {
        // Counted by the log itself, which says so as soon as it can be written.
        if matches!(error, Error::Audit(_)) {
            return;
        }
        self.audit.refuse(&Entry {
            time: now.into(),
            kind: Kind::Refused,
            id: &id.to_string(),
            serial: "",
            not_after: None,
            requester: &requester.to_string(),
            reason: &error.to_string(),
        });
    }

    /// Once for each CA: all that it issues from then on is cut.
    fn tell_of_cut(&self, cut: Option<Duration>) {
        if let Some(cut) = cut
            && !self.cut_told.swap(true, Ordering::Relaxed)
        {
            let (subject, serial) = (&self.ca.info.subject, &self.ca.info.serial);
            tracing::warn!(subject, serial, shorter_by = %cut, "SVIDs are cut short: the site CA expires before they should; renew the site CA");
        }
    }
}
