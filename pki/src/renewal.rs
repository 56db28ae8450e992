//! When an SVID that renews itself is renewed, tried again, and worth an alarm. Pure: the clock and the jitter are arguments.
//!
//! ```text
//! issued       25 %    33.3 %         50 %                                       100 %
//!   |-----------|xxxxxxxx|-------------|-------------------------------------------|
//!      fresh      renewed   tried again   tried again, and somebody should look       expired
//! ```
//!
//! The first attempt is at a random moment between a quarter and a third of the life. So whenever every issuer dies, even in the
//! second before that attempt, two thirds of the life are left: 16 of 24 hours.

use std::collections::BTreeSet;

use crate::{keyhash::KeyHash, profile};

/// Least part of the life before the first attempt, in parts of [`WHOLE`].
const FIRST: i64 = 3_000;
/// Most of it: a third.
const LAST: i64 = 4_000;
/// From here on a failure is an alarm: half the life.
const ALARM: i64 = 6_000;
const WHOLE: i64 = 12_000;

/// Wait after the first failure, in seconds.
const RETRY_MIN: i64 = 2;
/// Longest wait between two attempts, in seconds; a short life has shorter ones.
const RETRY_MAX: i64 = 300;

/// Validity of a certificate, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// First valid second.
    pub not_before: i64,
    /// When it was made: certificates are valid from a while before, for clocks that are late. Its life is counted from here.
    pub made_at: i64,
    /// Last valid second.
    pub not_after: i64,
}

/// How a renewal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing to do yet.
    Fresh,
    /// Renewal has begun.
    Due,
    /// Half the life is over and nobody renewed it: somebody should look.
    Overdue,
    /// Not valid any more.
    Expired,
}

impl Life {
    /// Of an SVID made by this library, from what the certificate says.
    pub fn of_svid(not_before: i64, not_after: i64) -> Self {
        let made_at = not_before.saturating_add(profile::SVID_BACKDATE.whole_seconds()).min(not_after);
        Self { not_before, made_at: made_at.max(not_before), not_after }
    }

    /// When it is renewed: `jitter` of 0 is the earliest moment, of `u16::MAX` the latest.
    pub fn renew_at(self, jitter: u16) -> i64 {
        self.at(FIRST + (LAST - FIRST) * i64::from(jitter) / i64::from(u16::MAX))
    }

    /// From when on a missing renewal is worth an alarm.
    pub fn alarm_at(self) -> i64 {
        self.at(ALARM)
    }

    fn length(self) -> i64 {
        self.not_after.saturating_sub(self.made_at).max(0)
    }

    fn at(self, part: i64) -> i64 {
        let length = self.length();
        // In this order nothing overflows, and less than a second is lost for each part.
        self.made_at.saturating_add(length / WHOLE * part + length % WHOLE * part / WHOLE)
    }
}

/// Longest span that an issuer may ask for, in seconds: an hour of every outage's sixteen at most.
const MAX_SPAN: u32 = 3600;

/// An issuer's word of site CAs that issue no longer: what they issued is renewed soon, and not when its time comes. It may be said again
/// and again: what was renewed is of another CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewWithin {
    /// The keys of those CAs.
    pub cas: Vec<KeyHash>,
    /// Over how many seconds those who hold something of them are spread, from when they hear of it.
    pub seconds: u32,
}

impl RenewWithin {
    /// Is what this CA issued meant? By the hash of its key.
    pub fn concerns(&self, ca: &str) -> bool {
        self.cas.iter().any(|left| left.as_str() == ca)
    }

    /// Does whoever follows this follow the other too? Then it names the same CAs, in whatever order, and leaves no more time.
    pub fn says_all_of(&self, other: &Self) -> bool {
        let set = |order: &Self| order.cas.iter().cloned().collect::<BTreeSet<_>>();
        self.seconds <= other.seconds && set(self) == set(other)
    }

    /// When somebody who hears of it at `now` renews: `jitter` of 0 is at once, of `u16::MAX` the end of the span.
    pub fn moment(&self, now: i64, jitter: u16) -> i64 {
        let span = i64::from(self.seconds.min(MAX_SPAN));
        now.saturating_add(span * i64::from(jitter) / i64::from(u16::MAX))
    }
}

/// One SVID's renewal. Ask [`Renewal::due_at`] when to act and try then; report a failure with [`Renewal::failed`]; a success makes a
/// new `Renewal` of the new certificate's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    life: Life,
    renew_at: i64,
    retry_at: Option<i64>,
    failures: u32,
}

impl Renewal {
    /// For a certificate; `jitter` as for [`Life::renew_at`].
    pub fn new(life: Life, jitter: u16) -> Self {
        Self { life, renew_at: life.renew_at(jitter), retry_at: None, failures: 0 }
    }

    /// The moment of the next attempt.
    pub fn due_at(&self) -> i64 {
        self.retry_at.unwrap_or(self.renew_at)
    }

    /// The moment of the first attempt.
    pub fn renew_at(&self) -> i64 {
        self.renew_at
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Notes a failed attempt: the next follows after twice the last wait, at most five minutes and a 48th of the life, of which
    /// `jitter` takes off up to half.
    pub fn failed(&mut self, now: i64, jitter: u16) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now.saturating_add(wait(self.failures, self.longest_wait(), jitter)));
    }

    /// There is reason to renew earlier: the first attempt is made at `at`, unless it was to be made before that.
    pub fn hasten(&mut self, at: i64) {
        self.renew_at = self.renew_at.min(at);
    }

    /// Somebody has changed something: what is due, for whatever reason, is tried at once and as if for the first time.
    pub fn again(&mut self) {
        (self.retry_at, self.failures) = (None, 0);
    }

    fn longest_wait(&self) -> i64 {
        (self.life.length() / 48).clamp(RETRY_MIN, RETRY_MAX)
    }

    /// How it stands at `now`. A clock set back before the certificate's first second makes it due: it is worth nothing now.
    pub fn standing(&self, now: i64) -> Standing {
        match now {
            now if now > self.life.not_after => Standing::Expired,
            now if now >= self.life.alarm_at() => Standing::Overdue,
            now if now >= self.renew_at || now < self.life.not_before => Standing::Due,
            _ => Standing::Fresh,
        }
    }

    /// True if an attempt should be made at `now`.
    pub fn is_due(&self, now: i64) -> bool {
        match self.retry_at {
            // A clock set far back must not silence the attempts.
            Some(at) => now >= at || now.saturating_add(RETRY_MAX) < at,
            None => self.standing(now) != Standing::Fresh,
        }
    }
}

/// The wait after so many failures in a row: doubled each time up to `longest`, less up to half of it by `jitter`. In seconds.
pub fn wait(failures: u32, longest: i64, jitter: u16) -> i64 {
    let doubled = RETRY_MIN << failures.saturating_sub(1).min(16);
    let whole = doubled.min(longest.max(1));
    whole - whole / 2 * i64::from(jitter) / i64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3600;
    /// A node's: 24 hours, and valid from a minute before it was made.
    const NODE: Life = Life { not_before: -60, made_at: 0, not_after: 24 * HOUR };

    /// A node on a virtual clock whose issuers are dead from `dead_from` until `back_at`: the end of what it holds at `back_at`, and
    /// when it was renewed after that.
    fn outage(jitter: u16, dead_from: i64, back_at: i64) -> (i64, i64) {
        let (mut life, mut now) = (NODE, 0);
        let mut renewal = Renewal::new(life, jitter);
        loop {
            now = renewal.due_at().max(now);
            if (dead_from..back_at).contains(&now) {
                renewal.failed(now, jitter);
                continue;
            }
            if now >= back_at {
                return (life.not_after, now);
            }
            life = Life { not_before: now - 60, made_at: now, not_after: now + 24 * HOUR };
            renewal = Renewal::new(life, jitter);
        }
    }

    #[test]
    fn whenever_the_issuers_die_an_identity_lasts_sixteen_hours() {
        for jitter in [0, 1, 9_999, 32_768, u16::MAX] {
            // The worst moment is the second before a renewal; the others are there to show that it is.
            let first = NODE.renew_at(jitter);
            for dead_from in [1, 5 * HOUR, first - 1, first, first + 1, 2 * first + 59, 3 * first] {
                let (end, _) = outage(jitter, dead_from, dead_from + 40 * HOUR);
                let budget = end - dead_from;
                assert!(budget >= 16 * HOUR, "jitter {jitter}, dead from {dead_from}: {budget} s");
                assert!(budget <= 24 * HOUR);
            }
        }
        let tightest = NODE.not_after - NODE.renew_at(u16::MAX);
        assert_eq!(tightest, 16 * HOUR);
        assert_eq!(Life::of_svid(-60, 24 * HOUR), NODE);
    }

    #[test]
    fn an_issuer_that_comes_back_renews_within_five_minutes() {
        for back_after in [60, HOUR, 12 * HOUR, 15 * HOUR, 16 * HOUR] {
            let dead_from = NODE.renew_at(u16::MAX) - 1;
            let (end, renewed) = outage(u16::MAX, dead_from, dead_from + back_after);
            assert!(renewed - (dead_from + back_after) <= RETRY_MAX, "{back_after}: {renewed}");
            // Up to six minutes before its end the old one served until the new one came.
            assert!(back_after > 15 * HOUR || renewed < end);
        }
    }

    #[test]
    fn standing_follows_the_clock() {
        let mut renewal = Renewal::new(NODE, u16::MAX);
        let table = [
            (-61, Standing::Due, true),
            (0, Standing::Fresh, false),
            (8 * HOUR - 1, Standing::Fresh, false),
            (8 * HOUR, Standing::Due, true),
            (12 * HOUR, Standing::Overdue, true),
            (24 * HOUR, Standing::Overdue, true),
            (24 * HOUR + 1, Standing::Expired, true),
        ];
        for (now, standing, due) in table {
            assert_eq!((renewal.standing(now), renewal.is_due(now)), (standing, due), "{now}");
        }
        renewal.failed(8 * HOUR, 0);
        assert_eq!(renewal.due_at(), 8 * HOUR + RETRY_MIN);
        assert!(!renewal.is_due(8 * HOUR) && renewal.is_due(8 * HOUR + RETRY_MIN));
        // The clock was an hour fast when it failed.
        assert!(renewal.is_due(7 * HOUR));
        renewal.again();
        assert!(renewal.is_due(8 * HOUR) && !renewal.is_due(7 * HOUR) && renewal.failures() == 0);
    }

    #[test]
    fn waits_grow_and_are_bounded() {
        let waits: Vec<i64> = (1..12).map(|failures| wait(failures, RETRY_MAX, 0)).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(wait(u32::MAX, RETRY_MAX, u16::MAX), 150);
        let short = Renewal::new(Life { not_before: 0, made_at: 0, not_after: 60 }, 0);
        assert_eq!(short.longest_wait(), RETRY_MIN);
    }

    #[test]
    fn a_word_is_the_same_in_any_order() {
        let word = |digits: &str, seconds| RenewWithin {
            cas: digits.chars().map(|d| KeyHash::parse(&d.to_string().repeat(64)).unwrap()).collect(),
            seconds,
        };
        let said = word("ab", 5);
        for (other, known) in [
            (word("ab", 5), true),
            (word("ba", 5), true),
            (word("bab", 60), true),
            (word("ab", 4), false),
            (word("a", 5), false),
            (word("abc", 5), false),
        ] {
            assert_eq!(said.says_all_of(&other), known, "{other:?}");
        }
    }

    #[test]
    fn an_issuers_word_is_followed_by_a_thousand_nodes_one_after_the_other() {
        let key = |digit: &str| KeyHash::parse(&digit.repeat(64)).unwrap();
        let order = RenewWithin { cas: vec![key("a")], seconds: 60 };
        assert!(
            order.concerns(key("a").as_str()) && !order.concerns(key("b").as_str()) && !order.concerns("")
        );
        let mut seconds = [0; 61];
        for n in 0..1000u32 {
            // As evenly as random numbers are.
            let jitter = u16::try_from(n * 65_535 / 999).unwrap();
            let mut renewal = Renewal::new(NODE, 0);
            renewal.hasten(order.moment(HOUR, jitter));
            let due = renewal.due_at();
            assert!((HOUR..=HOUR + 60).contains(&due) && renewal.is_due(due) && !renewal.is_due(due - 1));
            seconds[usize::try_from(due - HOUR).unwrap()] += 1;
        }
        assert!(seconds.iter().all(|count| *count <= 17), "{seconds:?}");
        // Never later than it would be anyway, and never later than an hour.
        let mut renewal = Renewal::new(NODE, 0);
        renewal.hasten(order.moment(7 * HOUR, u16::MAX));
        assert_eq!(renewal.due_at(), 6 * HOUR);
        let forever = RenewWithin { seconds: u32::MAX, ..order };
        assert_eq!(forever.moment(0, u16::MAX), HOUR);
        assert_eq!(forever.moment(i64::MAX, u16::MAX), i64::MAX);
        // A failure is tried again as always.
        renewal.failed(6 * HOUR, 0);
        assert_eq!(renewal.due_at(), 6 * HOUR + RETRY_MIN);
    }

    proptest! {
        #[test]
        fn the_order_of_moments_holds_for_every_life(
            not_before in -1_000_000_000i64..4_000_000_000,
            length in 0i64..1_000_000_000,
            jitter in any::<u16>(),
        ) {
            let life = Life { not_before: not_before - 60, made_at: not_before, not_after: not_before + length };
            let renew_at = life.renew_at(jitter);
            prop_assert!(not_before <= renew_at && renew_at <= life.alarm_at());
            prop_assert!(life.alarm_at() <= life.not_after);
            // Two thirds are left, whatever the jitter.
            prop_assert!((life.not_after - renew_at) * 3 >= length * 2);
        }

        #[test]
        fn nothing_overflows(not_before: i64, made_at: i64, not_after: i64, now: i64, jitter: u16, failures in 0u32..40) {
            let mut renewal = Renewal::new(Life { not_before, made_at, not_after }, jitter);
            for _ in 0..failures {
                renewal.failed(now, jitter);
            }
            let _ = (renewal.due_at(), renewal.standing(now), renewal.is_due(now), Life::of_svid(not_before, not_after));
        }
    }
}
