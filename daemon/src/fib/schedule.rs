//! When everything is read again, and when what others removed is put back.

use std::time::Duration;

use tokio::time::Instant;

/// Everything is read again at least this often, whatever events say.
const INTERVAL: Duration = Duration::from_secs(30);
/// What others did is answered once they have done nothing for so long, or for a quarter of the time that they have been at it: whoever
/// removes a hundred thousand routes makes longer pauses, and looks for what came back in between.
const QUIET: Duration = Duration::from_millis(50);
const PART: u32 = 4;
/// The kernel is read again once others have been changing things for so long.
const PATIENCE: Duration = Duration::from_millis(500);
/// Our routes are put back once others have been removing them for so long.
const REPAIR_PATIENCE: Duration = Duration::from_secs(5);
/// After the kernel was read this many times as long belongs to others, so that a flood of events cannot occupy a core.
const REST: u32 = 4;
/// But no more than so long.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// What the kernel refused is tried again first after this time, then after twice as long, up to [`INTERVAL`].
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Read everything, decide about everything.
    Read,
    /// Put back the routes that others removed.
    Repair,
}

/// Others did something, first and last at these times, and it has not been answered.
#[derive(Clone, Copy)]
struct Storm {
    first: Instant,
    last: Instant,
}

/// When to read everything again, and when to put back what others removed.
pub(super) struct Schedule {
    next: Instant,
    /// Others changed things that only reading tells.
    disturbed: Option<Storm>,
    /// Others removed routes of ours, and said which.
    robbed: Option<Storm>,
    /// Nothing is read before, even for an event.
    rested: Instant,
    retry: Duration,
}

impl Storm {
    /// It goes on.
    fn grow(storm: &mut Option<Self>, now: Instant) {
        storm.get_or_insert(Self { first: now, last: now }).last = now;
    }

    /// When it is over.
    fn end(self, patience: Duration) -> Instant {
        let quiet = QUIET.max((self.last - self.first) / PART);
        (self.last + quiet).min(self.first + patience)
    }
}

impl Schedule {
    /// At once.
    pub(super) fn new(now: Instant) -> Self {
        Self { next: now, disturbed: None, robbed: None, rested: now, retry: FIRST_RETRY }
    }

    /// The next work, and when.
    pub(super) fn next(&self) -> (Instant, Work) {
        let repair = self.robbed.map(|storm| storm.end(REPAIR_PATIENCE));
        // What is read while our routes go is soon wrong.
        let read = self
            .disturbed
            .map(|storm| storm.end(PATIENCE).max(self.rested).max(repair.unwrap_or(self.rested)));
        let read = read.map_or(self.next, |read| read.min(self.next));
        match repair {
            Some(repair) if repair < read => (repair, Work::Repair),
            _ => (read, Work::Read),
        }
    }

    /// Reading everything took so long. What happens from now on is not in it.
    pub(super) fn read(&mut self, took: Duration, now: Instant) {
        self.rested = now + (took * REST).min(LONGEST_REST);
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

    /// Others changed something that only reading tells.
    pub(super) fn disturbed(&mut self, now: Instant) {
        Storm::grow(&mut self.disturbed, now);
    }

    /// Others removed a route of ours.
    pub(super) fn robbed(&mut self, now: Instant) {
        Storm::grow(&mut self.robbed, now);
    }

    /// What others have removed up to now is about to be decided.
    pub(super) fn repaired(&mut self) {
        self.robbed = None;
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
        assert_eq!(schedule.next().0, start + INTERVAL);
        schedule.disturbed(start);
        assert_eq!(schedule.next().0, start + QUIET);
        for step in 1..100 {
            schedule.disturbed(start + step * 10 * MS);
        }
        assert_eq!(schedule.next().0, start + PATIENCE);
        schedule.read(100 * MS, start + PATIENCE);
        assert_eq!(schedule.next().0, start + INTERVAL, "it has been looked at");
        schedule.disturbed(start + PATIENCE);
        assert_eq!(schedule.next().0, start + PATIENCE + 400 * MS, "others have their time");
    }

    #[test]
    fn a_removed_route_is_put_back_without_reading() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.finished(start, false);
        schedule.robbed(start);
        assert_eq!(schedule.next(), (start + QUIET, Work::Repair));
        schedule.repaired();
        assert_eq!(schedule.next(), (start + INTERVAL, Work::Read));
    }

    #[test]
    fn a_flush_is_answered_once_at_its_end() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.finished(start, false);
        for step in 0..200 {
            let now = start + step * 10 * MS;
            assert!(schedule.next().0 > now, "nothing is done in the middle: {step}");
            schedule.robbed(now);
            if step == 100 {
                // The queue of events was too short.
                schedule.disturbed(now);
            }
        }
        let last = start + 1990 * MS;
        assert_eq!(schedule.next(), (last + 1990 * MS / PART, Work::Read), "one look tells all");
        schedule.repaired();
        schedule.read(MS, last);
        assert_eq!(schedule.next().0, start + INTERVAL);
    }

    #[test]
    fn who_never_stops_removing_is_not_waited_for() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.finished(start, false);
        for step in 0..200 {
            schedule.robbed(start + step * 40 * MS);
        }
        assert_eq!(schedule.next(), (start + REPAIR_PATIENCE, Work::Repair));
    }

    #[test]
    fn a_long_read_does_not_hold_up_a_repair() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.read(Duration::from_secs(60), start);
        schedule.finished(start, false);
        schedule.disturbed(start);
        schedule.robbed(start);
        assert_eq!(schedule.next(), (start + QUIET, Work::Repair));
        schedule.repaired();
        assert_eq!(schedule.next(), (start + LONGEST_REST, Work::Read));
    }

    #[test]
    fn refusals_are_tried_again_less_and_less_often() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            schedule.finished(start, true);
            assert_eq!(schedule.next().0, start + Duration::from_secs(seconds));
        }
        schedule.finished(start, false);
        schedule.refused(start);
        assert_eq!(schedule.next().0, start + FIRST_RETRY);
    }
}
