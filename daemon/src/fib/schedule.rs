//! When everything is read again.

use std::time::Duration;

use tokio::time::Instant;

/// Everything is read again at least this often, whatever events say.
const INTERVAL: Duration = Duration::from_secs(30);
/// The kernel is read again once others have changed nothing for so long.
const QUIET: Duration = Duration::from_millis(50);
/// Or once they have been changing things for so long.
const PATIENCE: Duration = Duration::from_millis(500);
/// After the kernel was read this many times as long belongs to others, so that a flood of events cannot occupy a core.
const REST: u32 = 4;
/// What the kernel refused is tried again first after this time, then after twice as long, up to [`INTERVAL`].
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// When to read everything again.
pub(super) struct Schedule {
    next: Instant,
    /// Others changed things, first and last at these times, and it has not been looked at.
    disturbed: Option<(Instant, Instant)>,
    /// No earlier than this, even for an event.
    rested: Instant,
    retry: Duration,
}

impl Schedule {
    /// At once.
    pub(super) fn new(now: Instant) -> Self {
        Self { next: now, disturbed: None, rested: now, retry: FIRST_RETRY }
    }

    pub(super) fn next(&self) -> Instant {
        let Some((first, last)) = self.disturbed else { return self.next };
        self.next.min((last + QUIET).min(first + PATIENCE).max(self.rested))
    }

    /// Reading everything took so long. What happens from now on is not in it.
    pub(super) fn read(&mut self, took: Duration, now: Instant) {
        self.rested = now + (took * REST).min(INTERVAL);
        self.disturbed = None;
    }

    /// A pass over everything ended.
    pub(super) fn finished(&mut self, now: Instant, refused: bool) {
        self.next = now + if refused { self.retry } else { INTERVAL };
        self.retry = if refused { (self.retry * 2).min(INTERVAL) } else { FIRST_RETRY };
    }

    pub(super) fn no_later_than(&mut self, when: Instant) {
        self.next = self.next.min(when);
    }

    /// Others changed something.
    pub(super) fn disturbed(&mut self, now: Instant) {
        let first = self.disturbed.map_or(now, |(first, _)| first);
        self.disturbed = Some((first, now));
    }

    /// The kernel refused something outside a pass over everything.
    pub(super) fn refused(&mut self, now: Instant) {
        self.no_later_than(now + self.retry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_flood_is_waited_out_but_not_for_ever() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.finished(start, false);
        assert_eq!(schedule.next(), start + INTERVAL);
        schedule.disturbed(start);
        assert_eq!(schedule.next(), start + QUIET);
        for step in 1..100 {
            schedule.disturbed(start + step * 10 * MS);
        }
        assert_eq!(schedule.next(), start + PATIENCE);
        schedule.read(100 * MS, start + PATIENCE);
        assert_eq!(schedule.next(), start + INTERVAL, "it has been looked at");
        schedule.disturbed(start + PATIENCE);
        assert_eq!(schedule.next(), start + PATIENCE + 400 * MS, "others have their time");
    }

    #[test]
    fn refusals_are_tried_again_less_and_less_often() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            schedule.finished(start, true);
            assert_eq!(schedule.next(), start + Duration::from_secs(seconds));
        }
        schedule.finished(start, false);
        schedule.refused(start);
        assert_eq!(schedule.next(), start + FIRST_RETRY);
    }
}
