//! What rotations have put in force is loaded, or tried again until it is. Whoever is not to be believed any more is refused before that.
//!
//! ```text
//! load_again --ok----> installed
//!     |
//!     +-- a file can't be read, a disk is full --> stale: `narrow` at once, and again with every hearing and every minute
//! ```

use std::{
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use super::{
    changing::blocking, error::Error, handle::Handle, loaded::Loaded, loading, supplier::Supplier,
    trust::Trust,
};

impl Handle {
    /// The sections that were applied last, under what is in force now. On an error what runs goes on, but for whom it believes.
    pub(super) fn load_again(&self) -> Result<(), Error> {
        self.0.stale.store(true, Ordering::Relaxed);
        let (sections, now) = (self.sections().clone(), SystemTime::now());
        let loaded = self.load(&sections, now).and_then(|prepared| self.keep(&sections, prepared, now));
        let loaded = loaded.inspect_err(|_| self.narrow(now))?;
        self.install_and_tell(loaded);
        self.mark_fresh();
        Ok(())
    }

    /// All that is in force is loaded.
    pub(super) fn mark_fresh(&self) {
        self.0.stale.store(false, Ordering::Relaxed);
    }

    /// Something in force is not loaded yet.
    pub(super) fn is_stale(&self) -> bool {
        self.0.stale.load(Ordering::Relaxed)
    }

    /// Another attempt at what could not be obeyed or loaded when it came.
    pub(super) async fn mend(&self) {
        let Some(rotation) = self.0.rotation.clone() else { return };
        let _servers = self.0.servers.lock().await;
        let obey = move || rotation.obey_again(SystemTime::now());
        let news = blocking("obeying taints that are known", obey).await;
        if let Err(error) = news.and_then(|news| self.load_if(news)) {
            tracing::warn!(%error, "what is in force can't be loaded; it is tried again within a minute");
        }
    }

    /// Loads if there is news, or if the last attempt failed.
    pub(super) fn load_if(&self, news: bool) -> Result<(), Error> {
        if news || self.is_stale() { self.load_again() } else { Ok(()) }
    }

    /// Trust alone, which needs no file: roots, taints and revocations that are in force. A CA of ours that falls by it issues no more.
    fn narrow(&self, now: SystemTime) {
        let Some(trust) = self.0.rotation.as_ref().and_then(|rotation| rotation.believed(now)) else {
            return;
        };
        let mut loaded = self.loaded();
        if loaded.base.as_deref().is_none_or(|base| *base == trust) {
            return;
        }
        loaded.believe(Arc::new(trust));
        loading::publish(&mut loaded, now);
        self.hand_out(&loaded);
        drop(loaded);
        self.publish();
    }
}

impl Loaded {
    fn believe(&mut self, trust: Arc<Trust>) {
        if self.issuer.as_ref().is_some_and(|issuer| !issuer.is_believed(&trust)) {
            self.issuer = None;
            // Callers are told to come again.
            self.supply.take_if(|supply| matches!(supply.issuer, Supplier::Local(_)));
        }
        (self.base, self.trust) = (Some(trust.clone()), Some(trust));
    }
}
