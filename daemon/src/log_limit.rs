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
        if self.is_closed(now) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }

    fn is_closed(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.saturating_duration_since(last) < LOG_EVERY)
    }
}

/// Names beyond which those that hold nothing back any more are forgotten: neighbors of a template come under any number of them.
const NAMES: usize = 1024;

/// A [`Limit`] for each name.
#[derive(Debug, Default)]
pub(crate) struct Limits(HashMap<Arc<str>, Limit>);

impl Limits {
    /// As [`Limit::pass`], for this name alone.
    pub(crate) fn pass(&mut self, name: &Arc<str>, now: Instant) -> Option<u64> {
        if self.0.len() >= NAMES && !self.0.contains_key(name) {
            self.0.retain(|_, limit| limit.is_closed(now));
        }
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

    #[test]
    fn names_that_come_and_go_leave_nothing_behind() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        for n in 0..10 * NAMES {
            let now = start + LOG_EVERY / 100 * u32::try_from(n).unwrap();
            assert_eq!(limits.pass(&format!("guest{n}").into(), now), Some(0));
        }
        assert!(limits.0.len() <= NAMES);
    }
}
