//! Warnings about neighbors: one that sends nonsense without end must not fill the log.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// At most one warning of a kind about a neighbor in this time.
const INTERVAL: Duration = Duration::from_secs(10);

/// One kind of warning: when each neighbor's was last written, and how many were not since.
#[derive(Debug, Default)]
pub(super) struct Limiter(HashMap<Arc<str>, (Option<Instant>, u64)>);

impl Limiter {
    /// How many warnings were left out before this one, if this one may be written.
    pub(super) fn admit(&mut self, neighbor: &Arc<str>, now: Instant) -> Option<u64> {
        let (last, left_out) = self.0.entry(Arc::clone(neighbor)).or_default();
        if last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            *left_out += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_ten_seconds_for_each_neighbor() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let (one, two) = ("one".into(), "two".into());
        assert_eq!(limiter.admit(&one, now), Some(0));
        for second in 0..10 {
            assert_eq!(limiter.admit(&one, now + Duration::from_secs(second)), None);
        }
        assert_eq!(limiter.admit(&two, now), Some(0));
        assert_eq!(limiter.admit(&one, now + INTERVAL), Some(10));
        assert_eq!(limiter.admit(&one, now + 2 * INTERVAL), Some(0));
    }
}
