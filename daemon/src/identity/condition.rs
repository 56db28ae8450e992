//! How the subsystem is, in a word and a line.

use std::time::SystemTime;

use isthmus_pki::{facts::utc, verify};
use time::OffsetDateTime;

use super::{
    certificates::{CertificateInfo, Kind},
    handle::Handle,
    own::Own,
    standing::Standing,
};

/// How the subsystem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// All is well.
    Well,
    /// It works, and somebody should look before it does not.
    Degraded,
    /// The node has no identity that a peer would believe.
    Failed,
}

impl Handle {
    /// One line for `isthmusctl status`.
    pub fn summary(&self) -> (Condition, String) {
        // A copy: whoever hands out waits for those who look, and is waited for further down.
        let (standing, now) = (self.0.standing.borrow().clone(), SystemTime::now());
        match standing {
            None => (Condition::Well, "no identity configured".into()),
            Some(standing) => match believed(&standing, now) {
                Ok(own) => self.summary_of(own, &standing, now),
                Err(reason) => (Condition::Failed, self.with_reasons(reason, &standing, now)),
            },
        }
    }

    /// What keeps the node from getting another SVID stands beside what is wrong with the one it has.
    fn with_reasons(&self, reason: String, standing: &Standing, now: SystemTime) -> String {
        let issuer = standing.issuer.as_ref().and_then(|issuer| issuer.trouble(now));
        let renewal = Some(self.0.renewal.borrow().last_error.clone()).filter(|error| !error.is_empty());
        [Some(reason), issuer, renewal].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    fn summary_of(&self, own: &Own, standing: &Standing, now: SystemTime) -> (Condition, String) {
        let certificates = self.certificates();
        let (until, renewal) = (utc(own.life.not_after), self.0.renewal.borrow().clone());
        let issued = certificates.iter().filter(|c| c.kind == Kind::WorkloadSvid).count();
        let fine = format!("{} until {until}, {issued} workload SVIDs in use", own.id);
        let renewal = renewal
            .overdue
            .then(|| format!("{} until {until}, and it can't be renewed: {}", own.id, renewal.last_error));
        let pods = || self.0.supply.borrow().as_ref().and_then(|supply| supply.attestor.trouble());
        let issuer = || standing.issuer.as_ref().and_then(|issuer| issuer.trouble(now));
        let trouble = self
            .audit_trouble()
            .or(renewal)
            .or_else(|| issuer().map(|trouble| format!("{fine}; {trouble}")))
            .or_else(|| expired(&certificates, now))
            .or_else(|| pods().map(|trouble| format!("{fine}; pods can't be attested: {trouble}")));
        match trouble {
            Some(trouble) => (Condition::Degraded, trouble),
            None => (Condition::Well, fine),
        }
    }

    fn audit_trouble(&self) -> Option<String> {
        self.loaded().audit.as_ref().and_then(|log| log.trouble())
    }
}

fn believed(standing: &Standing, now: SystemTime) -> Result<&Own, String> {
    let own = standing.own.as_deref().ok_or("this node has no SVID yet")?;
    match own.believed(standing.trust.store(), now) {
        Ok(()) => Ok(own),
        Err(reason) => {
            let remedy = remedy(&reason);
            Err(format!("the SVID of {} is not believed: {reason}{remedy}", own.id))
        }
    }
}

/// Nobody but a person can bring a root.
fn remedy(reason: &verify::Error) -> &'static str {
    match reason {
        verify::Error::AnchorsOutOfDate { .. } => {
            "; put the fabric's new root into the file of [identity] trust_bundle and reload"
        }
        _ => "",
    }
}

/// The node itself is believed: what has ended is an old root, say, that nobody took away. What partners let end is for them to mend, and
/// is listed with the rest.
fn expired(certificates: &[CertificateInfo], now: SystemTime) -> Option<String> {
    let now = OffsetDateTime::from(now).unix_timestamp();
    let ours = certificates.iter().filter(|c| c.kind != Kind::FederatedRoot);
    let first = ours.min_by_key(|c| c.not_after).filter(|first| first.not_after < now)?;
    let CertificateInfo { kind, spiffe_id, not_after, .. } = first;
    Some(format!("the {} {spiffe_id} expired at {}", kind.as_str(), utc(*not_after)))
}
