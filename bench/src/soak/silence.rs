//! How long nothing came, and whether there was a reason.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Shorter ones need no reason, and are not kept.
const SHORT: Duration = Duration::from_secs(1);

/// When the cable was down.
#[derive(Debug, Default)]
pub(super) struct Outages {
    over: Mutex<Vec<(Instant, Instant)>>,
    down: AtomicBool,
}

impl Outages {
    /// One that lasts as long as `work`.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        self.down.store(true, Ordering::Relaxed);
        let done = work();
        self.down.store(false, Ordering::Relaxed);
        self.add(from, Instant::now());
        done
    }

    fn add(&self, from: Instant, to: Instant) {
        self.all().push((from, to));
    }

    /// Is it down now?
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// How long it was down in all.
    pub(super) fn total(&self) -> Duration {
        self.all().iter().map(|(down, up)| *up - *down).sum()
    }

    /// How much of this time the cable was down; outages do not overlap.
    fn within(&self, from: Instant, to: Instant) -> Duration {
        let overlap =
            |(down, up): &(Instant, Instant)| (*up).min(to).saturating_duration_since((*down).max(from));
        self.all().iter().map(overlap).sum()
    }

    fn all(&self) -> MutexGuard<'_, Vec<(Instant, Instant)>> {
        // Nothing panics while it is held.
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pauses of one flow.
#[derive(Clone, Debug)]
pub(super) struct Silences {
    last: Instant,
    longest: Duration,
    long: Vec<(Instant, Instant)>,
}

impl Silences {
    /// From now on.
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now, longest: Duration::ZERO, long: Vec::new() }
    }

    /// Something came. Also to be called at the end, when what should have come did not.
    pub(super) fn heard(&mut self, now: Instant) {
        let silence = now.saturating_duration_since(self.last);
        self.longest = self.longest.max(silence);
        if silence > SHORT {
            self.long.push((self.last, now));
        }
        self.last = now;
    }

    /// The longest one.
    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// The longest one, without the time in it when the cable was down.
    pub(super) fn longest_unexplained(&self, outages: &Outages) -> Duration {
        let rest = |(from, to): &(Instant, Instant)| (*to - *from).saturating_sub(outages.within(*from, *to));
        self.long.iter().map(rest).max().unwrap_or_default().max(self.longest.min(SHORT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_explains_its_own_length() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let outages = Outages::default();
        outages.add(at(10), at(13));
        outages.add(at(20), at(22));
        for (silences, longest, unexplained) in [
            (&[(9, 14)][..], 5, 2),
            (&[(9, 14), (30, 34)], 4 + 1, 4),
            (&[(11, 12)], 1, 1),
            (&[(9, 23)], 14, 9),
            (&[(40, 52)], 12, 12),
        ] {
            let mut heard = Silences::new(at(0));
            for second in 0..60 {
                if !silences.iter().any(|(from, to)| second > *from && second < *to) {
                    heard.heard(at(second));
                }
            }
            assert_eq!(heard.longest(), Duration::from_secs(longest), "{silences:?}");
            assert_eq!(heard.longest_unexplained(&outages), Duration::from_secs(unexplained), "{silences:?}");
        }
    }
}
