//! What BFD says of neighbors' paths, until the driver has looked: at most one entry each, so that whoever tells never waits.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Watched {
    /// By the neighbor's name.
    news: Mutex<BTreeMap<String, News>>,
    told: Notify,
}

/// What happened to one path since the driver last looked. A failure that is over already still has ended the session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Why it failed, if it did.
    pub(super) failed: Option<String>,
    /// It is proved again, as the last that happened.
    pub(super) proved: bool,
}

impl Watched {
    pub(super) fn failed(&self, neighbor: &str, why: String) {
        *self.lock().entry(neighbor.to_owned()).or_default() = News { failed: Some(why), proved: false };
        self.told.notify_one();
    }

    pub(super) fn proved(&self, neighbor: &str) {
        self.lock().entry(neighbor.to_owned()).or_default().proved = true;
        self.told.notify_one();
    }

    /// Waits until somebody has told something. Cancel-safe.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }

    pub(super) fn take(&self) -> BTreeMap<String, News> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, News>> {
        // The map is whole after every insertion.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_outlives_the_proof_after_it_but_not_the_other_way_round() {
        let watched = Watched::default();
        watched.proved("a");
        watched.failed("a", "silence".into());
        watched.failed("b", "silence".into());
        watched.proved("b");
        let news = watched.take();
        let failed = Some("silence".to_owned());
        assert_eq!(news["a"], News { failed: failed.clone(), proved: false });
        assert_eq!(news["b"], News { failed, proved: true });
        assert!(watched.take().is_empty());
    }
}
