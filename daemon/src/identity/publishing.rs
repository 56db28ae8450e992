//! Keeps the bundle up to date as time goes by: keys for tokens are made, come into use and go, and so do those of other nodes. What
//! could not be loaded is tried again.

use std::time::{Duration, SystemTime};

use super::handle::Handle;

/// Longest sleep, where nobody tells that the wall clock was set (`clock.rs`).
const MAX_SLEEP: Duration = Duration::from_secs(60);
const MIN_SLEEP: Duration = Duration::from_secs(1);

/// Until the shutdown.
pub(super) async fn run(handle: Handle) {
    let shutdown = handle.shutdown().clone();
    loop {
        let now = SystemTime::now();
        handle.mend().await;
        handle.review_keys(now).await;
        let due = handle.republish(now).await.and_then(|due| due.duration_since(now).ok());
        let sleep = tokio::time::sleep(due.unwrap_or(MAX_SLEEP).clamp(MIN_SLEEP, MAX_SLEEP));
        if shutdown.run_until_cancelled(sleep).await.is_none() {
            return;
        }
    }
}
