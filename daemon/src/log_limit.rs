//! A limit on log lines that outsiders can cause: whoever sends nonsense without end must not fill the log.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Least time between two lines of the same kind.
pub(crate) const LOG_EVERY: Duration = Duration::from_secs(10);

/// Lets the first line through, then one every [`LOG_EVERY`].
#[derive(Debug, Default)]
pub(crate) struct Limit {
    last: Option<Instant>,
    held_back: u64,
}

impl Limit {
    /// `Some`: it may pass, and so many were held back since the last that did.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < LOG_EVERY) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}

/// A [`Limit`] for each configured name.
#[derive(Debug, Default)]
pub(crate) struct Limits(HashMap<Arc<str>, Limit>);

impl Limits {
    /// As [`Limit::pass`], for this name alone.
    pub(crate) fn pass(&mut self, name: &Arc<str>, now: Instant) -> Option<u64> {
        self.0.entry(Arc::clone(name)).or_default().pass(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_ten_seconds_for_each_name() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        let (one, two) = ("one".into(), "two".into());
        assert_eq!(limits.pass(&one, now), Some(0));
        for second in 0..10 {
            assert_eq!(limits.pass(&one, now + Duration::from_secs(second)), None);
        }
        assert_eq!(limits.pass(&two, now), Some(0));
        assert_eq!(limits.pass(&one, now + LOG_EVERY), Some(10));
        assert_eq!(limits.pass(&one, now + 2 * LOG_EVERY), Some(0));
    }
}
