//! Rotation and incidents on this node: the pure machine of `isthmus_pki::rotation` with its files, keys and journal.
//!
//! [`Rotation::reconcile`] holds the configuration against what was written down and says what is in force; [`Rotation::order`] plans a
//! command and carries it out; [`Rotation::due`] does what time alone brings. After each of them whoever holds the subsystem's state
//! loads again from the [`InForce`] that results. Under `state_dir/identity/rotation/`:
//!
//! ```text
//! state.json     the machine, the fleet, taint statements    replaced whole after every step
//! charter.jws    the charter in force                        written before the step that puts it in force
//! ca-KEY.{key,csr,pem}, crl-KEY.der                          keys 0600, kept as the one of [issuer] is
//! journal.jsonl  every order, refusal and override           appended and synced before anything is done
//! ```

mod carry;
mod charter;
mod condemned;
mod disk;
mod error;
mod hear;
mod in_force;
mod journal;
mod keys;
mod lists;
mod order;
mod statements;
mod store;
#[cfg(test)]
mod tests;
mod timer;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use isthmus_pki::{
    KeyHash,
    renewal::RenewWithin,
    rotation::{Fleet, Line, Phase, Report, State, progress},
};
use time::OffsetDateTime;
use tokio::sync::Notify;

pub use error::Error;
pub use hear::Heard;
use hear::Taken;
pub(super) use in_force::{InForce, Inputs, ReissueOrder};
pub use order::{Outcome, Request, Verb};
pub use statements::Full;
use store::Store;
pub(super) use timer::run;
#[cfg(test)]
pub(super) use {lists::MAX_CRL_BYTES, statements::MAX_TAINTS};

use super::{certificates::CertificateInfo, trust::Trust};

/// `[fabric]`, as far as identity goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The signed charter; `None`: the trust bundle alone says whom to trust.
    pub charter: Option<PathBuf>,
    /// How long what a site CA issued may live, and so how long one that issues no longer stays believed.
    pub longest_leaf: Duration,
    /// Where all of this is kept.
    pub dir: PathBuf,
}

/// The running machine. Clones share it.
#[derive(Clone)]
pub struct Rotation(Arc<Inner>);

struct Inner {
    store: Mutex<Store>,
    wake: Notify,
}

impl Rotation {
    /// Reads what was written down; an empty directory is a beginning.
    pub(super) fn open(dir: &std::path::Path) -> Result<Self, Error> {
        Ok(Self(Arc::new(Inner { store: Mutex::new(Store::open(dir)?), wake: Notify::new() })))
    }

    /// What the configuration and what was written down come to, together. With `keep` it is written down, else nothing is changed.
    pub(super) fn reconcile(
        &self,
        inputs: &Inputs<'_>,
        now: SystemTime,
        keep: bool,
    ) -> Result<InForce, Error> {
        let mut store = self.lock();
        let mut next = store.clone();
        let in_force = in_force::reconcile(&mut next, inputs, now, keep)?;
        if keep {
            if next != *store || next.unwritten {
                next.save()?;
                next.unwritten = false;
            }
            *store = next;
            self.0.wake.notify_one();
        }
        Ok(in_force)
    }

    /// What is due may be due now: the clock was set.
    pub(super) fn look_again(&self) {
        self.0.wake.notify_one();
    }

    /// Plans a command; unless `dry_run`, carries it out. A refusal is an outcome, not an error.
    pub(super) fn order(&self, request: &Request, dry_run: bool, now: SystemTime) -> Result<Outcome, Error> {
        let outcome = order::order(&mut self.lock(), request, dry_run, seconds(now));
        self.0.wake.notify_one();
        outcome
    }

    /// Takes what another node says the fabric trusts, as far as it proves itself.
    pub(super) fn hear(&self, heard: &Heard, now: SystemTime) -> Taken {
        let taken = hear::hear(&mut self.lock(), heard, now.into());
        if taken.news {
            self.0.wake.notify_one();
        }
        taken
    }

    /// Taints of our own CAs that could not be obeyed when they were heard, as on a full disk; true if any is now.
    pub(super) fn obey_again(&self, now: SystemTime) -> bool {
        let news = hear::obey_again(&mut self.lock(), seconds(now));
        if news {
            self.0.wake.notify_one();
        }
        news
    }

    /// Whom to believe by what is written down alone; `None`: nothing was loaded yet.
    pub(super) fn believed(&self, now: SystemTime) -> Option<Trust> {
        let believed = in_force::believed(&self.lock(), now.into());
        believed.map(|(bundle, policy, crls)| Trust::under(bundle, policy, crls)).ok()
    }

    /// Notes what a node says of itself.
    pub fn report(&self, node: &str, report: Report) {
        let mut store = self.lock();
        match store.fleet.report(node, report) {
            // The time alone is not worth a write.
            Ok(false) => {}
            Ok(true) => {
                store.save_or_later("a node's report");
                self.0.wake.notify_one();
            }
            Err(error) => tracing::warn!(%error, node, "a node's report was refused"),
        }
    }

    /// Where every rotation stands.
    pub fn progress(&self, now: SystemTime) -> Vec<Line> {
        let store = self.lock();
        let mut lines = progress(&store.state, &store.fleet, seconds(now));
        lines.extend(condemned::lines(&store));
        lines
    }

    /// The machine as it is.
    pub fn state(&self) -> State {
        self.lock().state.clone()
    }

    /// What nodes are told that hold something of a CA of this site that issues no longer.
    pub(super) fn renew_within(&self) -> Option<RenewWithin> {
        let store = self.lock();
        store.state.renew_within(store.fleet.nodes().count())
    }

    /// The nodes that are known.
    pub fn fleet(&self) -> Fleet {
        self.lock().fleet.clone()
    }

    /// The key that a person means by its first digits; `None`: no one key.
    pub(super) fn find_key(&self, digits: &str) -> Option<KeyHash> {
        find_key(&self.lock().state, digits).ok()
    }

    /// The charter in force as it was signed; `None`: none.
    pub fn charter(&self) -> Option<String> {
        self.lock().charter.as_ref().map(|charter| charter.file.clone())
    }

    /// Taint statements, own and heard.
    pub fn taints(&self) -> Vec<String> {
        self.lock().taints.texts().map(str::to_owned).collect()
    }

    /// CRLs that are in force, DER.
    pub fn crls(&self) -> Vec<Vec<u8>> {
        self.lock().crls()
    }

    /// Facts of the certificates of this site's CAs, whatever they do now, as far as their files are there.
    pub(super) fn certificates(&self) -> Vec<CertificateInfo> {
        let store = self.lock();
        let installed =
            store.state.cas.iter().filter(|ca| ca.certificate.is_some() && ca.phase != Phase::Gone);
        installed.filter_map(|ca| store.certificate(&ca.key)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        // Every change is made on a copy, or written down step by step: a panic leaves nothing half done.
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key that a person means by the first digits of its hash, at least eight.
fn find_key(state: &State, digits: &str) -> Result<KeyHash, Error> {
    const LEAST: usize = 8;
    let fits = |key: &&KeyHash| digits.len() >= LEAST && key.as_str().starts_with(digits);
    let mut found = state.cas.iter().map(|ca| &ca.key).filter(fits);
    match (found.next(), found.next()) {
        (Some(key), None) => Ok(key.clone()),
        _ => Err(Error::Key(digits.chars().take(64).collect())),
    }
}

/// Seconds since the Unix epoch.
fn seconds(now: SystemTime) -> i64 {
    OffsetDateTime::from(now).unix_timestamp()
}
