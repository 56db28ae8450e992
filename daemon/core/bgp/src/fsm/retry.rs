//! When to try again.

use std::time::Duration;

use crate::wire::{Notification, code};

/// A small deterministic generator (SplitMix64) behind the jitter; all its randomness is the seed.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// From a seed that should differ between nodes.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator, as good as independent.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(self.draw())
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The duration and up to a quarter more: never less, so that a pace is kept.
    fn stretch(&mut self, duration: Duration) -> Duration {
        let thousandths = u32::try_from(self.draw() % 251).unwrap_or(0);
        duration + duration / 1000 * thousandths
    }
}

/// Kinds of failure, by how soon another try makes sense.
///
/// | failure | first try after | at most | the peer may connect meanwhile |
/// |---|---|---|---|
/// | network, timer, path down | 1 s | 30 s; 4 s once the peer was Established | yes |
/// | broken message; Cease/4, 6, 7, 9 | 1 s | 30 s | yes |
/// | OPEN not acceptable | 15 s | 120 s | no |
/// | Cease/1: too many prefixes | 60 s | 600 s | no |
/// | Cease/2, 3: the peer's operator took the session away | 30 s | 120 s | yes |
/// | Cease/5, 8: the peer has no room for us | 15 s | 120 s | yes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The network or a timer.
    Transport,
    /// A broken message, or a Cease.
    Protocol,
    /// The two configurations do not fit: trying again soon cannot help.
    Open,
    /// Too many prefixes: the peer would only send them again.
    MaxPrefixes,
    /// An operator took the session away and will bring it back, or a peer that is reinstalled does.
    Away,
    /// The peer refuses for want of something.
    NoRoom,
}

impl Failure {
    const KINDS: usize = 6;

    pub(super) fn of(notification: &Notification) -> Self {
        use code::cease::{BFD_DOWN, DECONFIGURED, MAX_PREFIXES, OUT_OF_RESOURCES, REJECTED, SHUTDOWN};
        match (notification.code, notification.subcode) {
            (code::OPEN, _) => Self::Open,
            (code::CEASE, MAX_PREFIXES) => Self::MaxPrefixes,
            (code::CEASE, SHUTDOWN | DECONFIGURED) => Self::Away,
            (code::CEASE, REJECTED | OUT_OF_RESOURCES) => Self::NoRoom,
            // Nothing was heard, or taken, or BFD says so: that was the network.
            (code::HOLD_TIMER | code::SEND_HOLD_TIMER, _) | (code::CEASE, BFD_DOWN) => Self::Transport,
            _ => Self::Protocol,
        }
    }

    /// True if the peer's connections are refused meanwhile.
    pub(super) fn holds_down(self) -> bool {
        matches!(self, Self::Open | Self::MaxPrefixes)
    }

    /// First delay, and the longest; jitter adds up to a quarter. `known`: the peer has been Established, so a network that failed is
    /// expected back, and then the session should be back within seconds.
    fn delays(self, known: bool) -> (Duration, Duration) {
        let (first, longest) = match self {
            Self::Transport if known => (1, 4),
            Self::Transport | Self::Protocol => (1, 30),
            Self::Open | Self::NoRoom => (15, 120),
            Self::MaxPrefixes => (60, 600),
            Self::Away => (30, 120),
        };
        (Duration::from_secs(first), Duration::from_secs(longest))
    }
}

/// Delays that double until a session was stable. Each kind of failure has a count of its own: a link that flaps says nothing about
/// how long a wrong AS number will stay wrong.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    /// Indexed by [`Failure`].
    failures: [u32; Failure::KINDS],
    jitter: Jitter,
}

impl Retry {
    pub(super) fn new(jitter: Jitter) -> Self {
        Self { failures: [0; Failure::KINDS], jitter }
    }

    pub(super) fn reset(&mut self) {
        self.failures = [0; Failure::KINDS];
    }

    /// Delay before the next try; `known`: the peer has been Established before.
    pub(super) fn next(&mut self, failure: Failure, known: bool) -> Duration {
        let (first, longest) = failure.delays(known);
        let failures = &mut self.failures[failure as usize];
        let delay = first.saturating_mul(1 << (*failures).min(8)).min(longest);
        *failures = failures.saturating_add(1);
        self.jitter.stretch(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_about(seconds: u64, delay: Duration) {
        let expected = Duration::from_secs(seconds);
        assert!(delay >= expected && delay <= expected * 5 / 4, "{delay:?} for {expected:?}");
    }

    #[test]
    fn doubles_to_the_limit_and_never_hurries() {
        let mut retry = Retry::new(Jitter::new(7));
        for expected in [1, 2, 4, 8, 16, 30, 30, 30] {
            assert_about(expected, retry.next(Failure::Transport, false));
        }
        retry.reset();
        assert!(retry.next(Failure::Transport, false) < Duration::from_secs(2));
    }

    #[test]
    fn a_known_peer_is_tried_every_few_seconds() {
        let mut retry = Retry::new(Jitter::new(7));
        for expected in [1, 2, 4, 4, 4, 4, 4, 4, 4, 4] {
            assert_about(expected, retry.next(Failure::Transport, true));
        }
    }

    #[test]
    fn kinds_of_failure_do_not_add_up() {
        let mut retry = Retry::new(Jitter::new(7));
        for _ in 0..20 {
            retry.next(Failure::Transport, true);
            retry.next(Failure::Protocol, true);
        }
        for expected in [15, 30, 60, 120, 120] {
            assert_about(expected, retry.next(Failure::Open, true));
        }
        for expected in [60, 120, 240, 480, 600] {
            assert_about(expected, retry.next(Failure::MaxPrefixes, true));
        }
    }

    #[test]
    fn what_a_notification_means_for_the_next_try() {
        let cases = [
            ((1, 1), 1, false),
            ((2, 2), 15, true),
            ((2, 11), 15, true),
            ((3, 1), 1, false),
            ((4, 0), 1, false),
            ((5, 3), 1, false),
            ((6, 0), 1, false),
            ((6, 1), 60, true),
            ((6, 2), 30, false),
            ((6, 3), 30, false),
            ((6, 4), 1, false),
            ((6, 5), 15, false),
            ((6, 6), 1, false),
            ((6, 7), 1, false),
            ((6, 8), 15, false),
            ((6, 9), 1, false),
            ((6, 10), 1, false),
            ((7, 1), 1, false),
            ((8, 0), 1, false),
            ((99, 0), 1, false),
        ];
        for ((code, subcode), first, held_down) in cases {
            let failure = Failure::of(&Notification::new(code, subcode));
            assert_about(first, Retry::new(Jitter::new(3)).next(failure, false));
            assert_eq!(failure.holds_down(), held_down, "{code}/{subcode}");
        }
    }

    #[test]
    fn jitter_differs_between_seeds() {
        let draw = |seed| Retry::new(Jitter::new(seed)).next(Failure::Transport, false);
        assert!((1..20).any(|seed| draw(seed) != draw(0)));
    }
}
