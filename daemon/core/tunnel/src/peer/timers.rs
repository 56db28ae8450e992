//! When something is due (WireGuard paper, section 6). Kept as the times of what happened; what is due follows from them.

use std::time::{Duration, Instant};

/// REKEY_AFTER_TIME: the initiator renews a session of this age when it sends.
pub(super) const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
/// REJECT_AFTER_TIME - KEEPALIVE_TIMEOUT - REKEY_TIMEOUT: the initiator renews a session of this age also when it only receives.
pub(super) const REKEY_ON_RECEIVE: Duration = Duration::from_secs(165);
/// REKEY_TIMEOUT: an initiation is answered within this time, or repeated.
pub(super) const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
/// REKEY_ATTEMPT_TIME: initiations are repeated for so long.
const REKEY_ATTEMPT_TIME: Duration = Duration::from_secs(90);
/// KEEPALIVE_TIMEOUT: received data is answered within this time, if only with a keepalive.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// After a series was given up, a peer that has ever answered is tried again after this long, then after twice that, and so on, ...
const FIRST_REST: Duration = Duration::from_secs(60);
/// ... but not more seldom than this: flows go to others while it is down, so nothing else would find out that it is back.
const LONGEST_REST: Duration = Duration::from_secs(600);
/// Up to so much is added at random, so that two peers do not stay in step.
const JITTER_MILLISECONDS: u16 = 333;

/// What happened, as far as something will follow from it.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// The first initiation of the series that is under way.
    series: Option<Instant>,
    /// The last initiation.
    initiated: Option<Instant>,
    /// The first data sent since anything was heard.
    unanswered: Option<Instant>,
    /// The first data received since anything was sent.
    owed: Option<Instant>,
    /// The last authentic message either way.
    traffic: Option<Instant>,
    /// Something is sent after this much silence.
    persistent: Option<Duration>,
    /// Added to the next repetition.
    jitter: Duration,
    /// When a series was given up, and how long until the next one.
    rest: Option<(Instant, Duration)>,
    /// The peer has answered at some time.
    known: bool,
}

/// What an initiation that was not answered leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Wait,
    Repeat,
    GiveUp,
}

impl Timers {
    pub(super) fn set_persistent(&mut self, interval: Option<Duration>) {
        self.persistent = interval.filter(|interval| !interval.is_zero());
    }

    /// No stamp may be in the future, which happens when the clock goes back: what hangs on it would never be due.
    pub(super) fn rebase(&mut self, now: Instant) {
        let stamps =
            [&mut self.series, &mut self.initiated, &mut self.unanswered, &mut self.owed, &mut self.traffic];
        let rest = self.rest.as_mut().map(|(at, _)| at);
        stamps.into_iter().flatten().chain(rest).for_each(|at| *at = now.min(*at));
    }

    /// An initiation was sent; `random` decides how long until the next one.
    pub(super) fn initiated(&mut self, now: Instant, random: [u8; 2]) {
        self.series.get_or_insert(now);
        self.initiated = Some(now);
        let milliseconds = u16::from_le_bytes(random) % (JITTER_MILLISECONDS + 1);
        self.jitter = Duration::from_millis(milliseconds.into());
        self.sent(now);
    }

    /// A handshake is complete.
    pub(super) fn series_over(&mut self) {
        self.series = None;
        (self.known, self.rest) = (true, None);
    }

    /// A handshake is given up.
    pub(super) fn gave_up(&mut self, now: Instant) {
        self.series = None;
        let wait = self.rest.map_or(FIRST_REST, |(_, wait)| (wait * 2).min(LONGEST_REST));
        self.rest = self.known.then_some((now, wait));
    }

    /// True, once, if it is time to try a peer that did not answer again.
    pub(super) fn take_rest(&mut self, now: Instant) -> bool {
        let due = is_due(self.rest_end(), now);
        if let (true, Some((at, _))) = (due, &mut self.rest) {
            *at = now;
        }
        due
    }

    fn rest_end(&self) -> Option<Instant> {
        let (at, wait) = self.rest.filter(|_| self.series.is_none())?;
        after(Some(at), wait)
    }

    pub(super) fn data_sent(&mut self, now: Instant) {
        self.unanswered.get_or_insert(now);
        self.sent(now);
    }

    /// Any authenticated message was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        self.owed = None;
        self.traffic = Some(now);
    }

    pub(super) fn data_received(&mut self, now: Instant) {
        self.owed.get_or_insert(now);
    }

    /// Any authentic message but a cookie was received.
    pub(super) fn received(&mut self, now: Instant) {
        self.unanswered = None;
        self.traffic = Some(now);
        self.rest = None;
    }

    /// True while initiations are repeated until one is answered.
    pub(super) fn in_series(&self) -> bool {
        self.series.is_some()
    }

    /// True if the last initiation is so recent that the next one must wait.
    pub(super) fn just_initiated(&self, now: Instant) -> bool {
        self.initiated.is_some() && !is_due(after(self.initiated, REKEY_TIMEOUT), now)
    }

    pub(super) fn attempt(&self, now: Instant) -> Attempt {
        match (is_due(self.giving_up(), now), is_due(self.repetition(), now)) {
            (true, _) => Attempt::GiveUp,
            (false, true) => Attempt::Repeat,
            (false, false) => Attempt::Wait,
        }
    }

    /// True, once, if data was sent and nothing came for so long that the session must be dead.
    pub(super) fn take_unanswered(&mut self, now: Instant) -> bool {
        let due = is_due(self.new_handshake(), now);
        if due {
            self.unanswered = None;
        }
        due
    }

    /// True, once, if the peer waits for a sign that its data arrived.
    pub(super) fn take_owed(&mut self, now: Instant) -> bool {
        let due = is_due(after(self.owed, KEEPALIVE_TIMEOUT), now);
        if due {
            self.owed = None;
        }
        due
    }

    /// True, once, if it was silent for the persistent interval, or always.
    pub(super) fn take_silence(&mut self, now: Instant) -> bool {
        let silent = self.persistent.is_some() && self.silence_end().is_none_or(|at| at <= now);
        if silent {
            self.traffic = Some(now);
        }
        silent
    }

    /// When the first of it is due. A peer with an interval but without traffic is due at once, from `now`.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let persistent = self.persistent.and_then(|_| self.silence_end().or(Some(now)));
        let owed = after(self.owed, KEEPALIVE_TIMEOUT);
        [self.repetition(), self.giving_up(), self.new_handshake(), self.rest_end(), owed, persistent]
            .into_iter()
            .flatten()
            .min()
    }

    fn repetition(&self) -> Option<Instant> {
        self.series.and_then(|_| after(self.initiated, REKEY_TIMEOUT + self.jitter))
    }

    fn giving_up(&self) -> Option<Instant> {
        after(self.series, REKEY_ATTEMPT_TIME)
    }

    fn new_handshake(&self) -> Option<Instant> {
        after(self.unanswered, KEEPALIVE_TIMEOUT + REKEY_TIMEOUT + self.jitter)
    }

    fn silence_end(&self) -> Option<Instant> {
        after(self.traffic, self.persistent?)
    }
}

/// `None` also if that is beyond the end of time.
fn after(at: Option<Instant>, wait: Duration) -> Option<Instant> {
    at?.checked_add(wait)
}

fn is_due(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| at <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_series_of_initiations_is_repeated_and_given_up() {
        let (mut timers, start) = (Timers::default(), Instant::now());
        assert_eq!((timers.deadline(start), timers.attempt(start)), (None, Attempt::Wait));
        timers.initiated(start, 333_u16.to_le_bytes());
        let repeat = start + Duration::from_millis(5333);
        assert_eq!(timers.deadline(start), Some(repeat));
        assert!(timers.just_initiated(start + Duration::from_millis(4999)));
        assert!(!timers.just_initiated(start + seconds(5)));
        assert_eq!(timers.attempt(start + seconds(5)), Attempt::Wait);
        assert_eq!(timers.attempt(repeat), Attempt::Repeat);
        timers.initiated(start + seconds(88), 334_u16.to_le_bytes());
        assert_eq!(timers.deadline(start), Some(start + seconds(90)));
        assert_eq!(timers.attempt(start + seconds(90)), Attempt::GiveUp);
        timers.series_over();
        assert_eq!(timers.deadline(start), None);
    }

    #[test]
    fn data_is_answered_by_either_side() {
        let (mut timers, start) = (Timers::default(), Instant::now());
        timers.data_received(start);
        timers.data_received(start + seconds(9));
        assert!(!timers.take_owed(start + seconds(9)) && timers.take_owed(start + seconds(10)));
        assert_eq!(timers.deadline(start), None);
        timers.data_received(start + seconds(10));
        timers.sent(start + seconds(11));
        assert_eq!(timers.deadline(start), None);
        timers.data_sent(start + seconds(20));
        timers.data_sent(start + seconds(30));
        assert_eq!(timers.deadline(start), Some(start + seconds(35)));
        assert!(timers.take_unanswered(start + seconds(35)) && !timers.take_unanswered(start + seconds(36)));
        timers.data_sent(start + seconds(40));
        timers.received(start + seconds(41));
        assert!(!timers.take_unanswered(start + seconds(100)));
    }

    #[test]
    fn silence_is_broken_at_once_and_then_after_the_interval() {
        let (mut timers, start) = (Timers::default(), Instant::now());
        timers.set_persistent(Some(seconds(25)));
        assert_eq!(timers.deadline(start), Some(start));
        assert!(timers.take_silence(start) && !timers.take_silence(start));
        timers.received(start + seconds(5));
        assert_eq!(timers.deadline(start), Some(start + seconds(30)));
        for none in [None, Some(Duration::ZERO), Some(Duration::MAX)] {
            timers.set_persistent(none);
            assert!(timers.deadline(start).is_none_or(|at| at == start));
        }
    }

    #[test]
    fn a_clock_that_goes_back_leaves_nothing_in_the_future() {
        let (mut timers, start) = (Timers::default(), Instant::now());
        timers.initiated(start + seconds(3600), [0; 2]);
        timers.rebase(start);
        assert_eq!(timers.deadline(start), Some(start + seconds(5)));
    }

    #[test]
    fn who_answered_once_is_tried_again_ever_more_seldom() {
        let (mut timers, start) = (Timers::default(), Instant::now());
        timers.initiated(start, [0; 2]);
        timers.gave_up(start + seconds(90));
        assert_eq!(timers.deadline(start), None, "a stranger is left alone");
        timers.series_over();
        let mut now = start + seconds(1000);
        for wait in [60, 120, 240, 480, 600, 600] {
            timers.initiated(now, [0; 2]);
            assert!(!timers.take_rest(now + seconds(90)));
            timers.gave_up(now + seconds(90));
            now += seconds(90 + wait);
            assert_eq!(timers.deadline(start), Some(now));
            assert!(!timers.take_rest(now - seconds(1)) && timers.take_rest(now));
        }
        timers.received(now);
        assert_eq!(timers.deadline(now), None);
    }
}
