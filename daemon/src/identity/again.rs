//! What was refused for a reason that may pass is heard again: a CA that no charter pins yet, a guard that a slow node holds up, a clock
//! that is late or ahead. With every change of trust, when the clock was set, and every minute; for as long as anything is refused.
//!
//! Whoever said it says it no second time: an issuer or a peer is heard when what it says changes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{enroll::TrustState, handle::Handle};

/// Longest wait.
const EVERY: Duration = Duration::from_secs(60);
/// Least wait: who brings one change of trust after the other must not keep us busy with what others said.
const PAUSE: Duration = Duration::from_secs(1);

/// Who said something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// One of the issuers of the own site.
    Issuer,
    /// From `[fabric] peers`.
    Peer(String),
}

/// Of each source the last thing that it said, if any of it was refused.
#[derive(Default)]
pub(super) struct Again {
    refused: Mutex<BTreeMap<Source, Arc<TrustState>>>,
    /// What was refused may hold now.
    pub(super) wake: Notify,
}

impl Again {
    /// Notes what came of something that was just said.
    pub(super) fn heard(&self, source: Source, state: &Arc<TrustState>, whole: bool) {
        let mut refused = self.lock();
        if whole {
            refused.remove(&source);
        } else {
            refused.insert(source, state.clone());
        }
    }

    /// It holds now, unless its source has said something else meanwhile.
    fn settled(&self, source: &Source, state: &Arc<TrustState>) {
        let mut refused = self.lock();
        if refused.get(source).is_some_and(|last| Arc::ptr_eq(last, state)) {
            refused.remove(source);
        }
    }

    /// All of it, without those who are asked no more.
    fn refused(&self, peers: &[String]) -> Vec<(Source, Arc<TrustState>)> {
        let mut refused = self.lock();
        refused.retain(|source, _| match source {
            Source::Issuer => true,
            Source::Peer(address) => peers.contains(address),
        });
        refused.iter().map(|(source, state)| (source.clone(), state.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Source, Arc<TrustState>>> {
        // Each change is complete before anything can panic.
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    /// Hears again what was refused.
    pub(super) async fn hear_again(&self) {
        let peers = self.loaded().config.as_ref().map(|config| config.peers.clone()).unwrap_or_default();
        for (source, state) in self.0.again.refused(&peers) {
            if self.take(&source, &state, true).await {
                self.0.again.settled(&source, &state);
            }
        }
    }
}

/// Until the shutdown.
pub(super) async fn run(handle: Handle, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = handle.0.again.wake.notified() => {}
            () = tokio::time::sleep(EVERY) => {}
            () = shutdown.cancelled() => return,
        }
        handle.hear_again().await;
        if shutdown.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_that_is_asked_the_last_word_is_kept_while_it_is_refused() {
        let (again, said) = (Again::default(), || Arc::new(TrustState::default()));
        let peer = |name: &str| Source::Peer(name.into());
        let [first, second, third] = [said(), said(), said()];
        again.heard(peer("a"), &first, false);
        again.heard(peer("gone"), &first, false);
        again.heard(Source::Issuer, &third, false);
        again.heard(peer("a"), &second, false);
        // Heard again too late: another word has come since.
        again.settled(&peer("a"), &first);
        let asked = ["a".to_owned()];
        let kept = again.refused(&asked);
        assert!(
            kept.len() == 2 && kept[0].0 == Source::Issuer && Arc::ptr_eq(&kept[1].1, &second),
            "{kept:?}"
        );
        again.settled(&peer("a"), &second);
        again.heard(Source::Issuer, &first, true);
        assert_eq!(again.refused(&asked), []);
    }
}
