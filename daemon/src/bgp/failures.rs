//! Neighbors whose path has failed, until the driver has looked: at most one entry each, so that whoever tells never waits.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Failures {
    /// Name -> why.
    failed: Mutex<BTreeMap<String, String>>,
    told: Notify,
}

impl Failures {
    pub(super) fn tell(&self, neighbor: &str, why: String) {
        self.lock().insert(neighbor.to_owned(), why);
        self.told.notify_one();
    }

    /// Waits until somebody has told something. Cancel-safe.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }

    pub(super) fn take(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        // The map is whole after every insertion.
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
