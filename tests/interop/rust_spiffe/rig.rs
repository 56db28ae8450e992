//! One issuer whose files and entries change while a client watches.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use isthmus_lab::{
    bins::Bins,
    issuer::{Issuer, entry},
    netns::Netns,
};

pub(crate) struct Rig {
    issuer: Arc<Mutex<Issuer>>,
    endpoint: String,
    netns: Netns,
}

impl Rig {
    pub(crate) fn start(bins: &Bins) -> Self {
        let issuer = Issuer::start(&entry("/ns/payments/sa/api", "unix:uid:0"), bins).unwrap();
        let endpoint = format!("unix://{}", issuer.socket().display());
        let netns = issuer.netns().clone();
        Self { issuer: Arc::new(Mutex::new(issuer)), endpoint, netns }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(crate) fn netns(&self) -> Netns {
        self.netns.clone()
    }

    /// In a thread of its own: the lab has runtimes of its own, and the caller is a future.
    pub(crate) async fn change(&self, change: impl FnOnce(&mut Issuer) -> Result<()> + Send + 'static) {
        let issuer = Arc::clone(&self.issuer);
        let changed = tokio::task::spawn_blocking(move || change(&mut issuer.lock().unwrap())).await;
        changed.unwrap().unwrap();
    }
}
