//! Readiness and shutdown as values that are held or dropped; whether the node is in service.

mod service;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;
pub use tokio_util::sync::CancellationToken;

pub use service::{Service, Stage};

/// What the node still waits for before it calls itself ready.
#[derive(Clone)]
pub struct Readiness {
    pending: Arc<Mutex<BTreeMap<u64, String>>>,
    changed: watch::Sender<u64>,
}

/// Readiness waits as long as this is held; dropping it says "this part is done".
pub struct Pending {
    id: u64,
    readiness: Readiness,
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// Nothing to wait for yet.
    pub fn new() -> Self {
        Self { pending: Arc::default(), changed: watch::Sender::new(0) }
    }

    /// Registers something to wait for: "bgp: first routes from azure-gw1".
    pub fn wait_for(&self, what: impl Into<String>) -> Pending {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let id = pending.last_key_value().map_or(0, |(id, _)| id + 1);
        pending.insert(id, what.into());
        Pending { id, readiness: self.clone() }
    }

    /// What is still waited for, in the order of registration.
    pub fn waiting(&self) -> Vec<String> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// True when nothing is waited for.
    pub fn is_ready(&self) -> bool {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns once nothing is waited for.
    pub async fn ready(&self) {
        let mut changed = self.changed.subscribe();
        while !self.is_ready() {
            // We hold the sender: this cannot fail.
            let _ = changed.changed().await;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.readiness.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        self.readiness.changed.send_modify(|n| *n = n.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_when_the_last_guard_drops() {
        let readiness = Readiness::new();
        let tunnel = readiness.wait_for("tunnel");
        let bgp = readiness.wait_for("bgp");
        assert_eq!(readiness.waiting(), ["tunnel", "bgp"]);
        drop(tunnel);
        assert!(!readiness.is_ready());
        let waiter = tokio::spawn({
            let readiness = readiness.clone();
            async move { readiness.ready().await }
        });
        drop(bgp);
        waiter.await.unwrap();
        assert!(readiness.is_ready());
    }
}
