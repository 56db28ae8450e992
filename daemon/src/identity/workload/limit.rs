//! A limit on log lines that callers can cause: any local user may connect and call as often as he likes.

use std::time::{Duration, Instant};

/// Least time between two lines of the same kind.
pub(super) const LOG_EVERY: Duration = Duration::from_secs(10);

/// Lets the first through, then one every [`LOG_EVERY`].
#[derive(Default)]
pub(super) struct Limit {
    last: Option<Instant>,
    held_back: u64,
}

impl Limit {
    /// `Some`: it may pass, and so many were held back since the last that did.
    pub(super) fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < LOG_EVERY) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}
