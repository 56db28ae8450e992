//! Intervals: what is wanted, what the peer was told, what holds (RFC 5880 sections 6.5 and 6.8.2 to 6.8.4).

use std::time::{Duration, Instant};

use super::{Config, Session};
use crate::{Interval, State};

/// Shorter intervals between packets of the peer are not asked for: a detection time of nothing would always be over.
const SHORTEST: Interval = Interval::from_millis(1);

/// Our two intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// bfd.DesiredMinTxInterval.
    pub(super) tx: Interval,
    /// bfd.RequiredMinRxInterval.
    pub(super) rx: Interval,
}

/// The intervals that the peer is told, and those that hold until it has confirmed them.
#[derive(Debug)]
pub(super) struct Timing {
    pub(super) told: Pair,
    pub(super) in_force: Pair,
}

/// A Poll Sequence (section 6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poll {
    Idle,
    /// Packets carry the Poll bit.
    Running {
        /// One with the Poll bit has left: only then a Final bit can be its answer.
        asked: bool,
        /// What is asked changed after it had left, so the answer may be to the question before: it is asked again.
        again: bool,
    },
}

/// What a session in this state wants. While it is not Up it sends slowly (section 6.8.3).
pub(super) fn wanted(config: &Config, state: State) -> Pair {
    let slowest = if state == State::Up { Interval::default() } else { Interval::SECOND };
    Pair { tx: config.desired_min_tx.max(slowest), rx: config.required_min_rx.max(SHORTEST) }
}

impl Timing {
    pub(super) fn new(pair: Pair) -> Self {
        Self { told: pair, in_force: pair }
    }

    /// Tells the peer other intervals. In an Up session the peer is not surprised: we send more slowly, or expect it to send faster,
    /// only when it has confirmed (section 6.8.3).
    fn set(&mut self, new: Pair, state: State) {
        self.told = new;
        if state == State::Up {
            self.in_force.tx = self.in_force.tx.min(new.tx);
            self.in_force.rx = self.in_force.rx.max(new.rx);
        } else {
            self.settle();
        }
    }

    /// The peer knows what it was told, or there is none that could be surprised.
    pub(super) fn settle(&mut self) {
        self.in_force = self.told;
    }
}

impl Session {
    /// Wants what configuration and state ask for now; begins a Poll Sequence where that differs.
    pub(super) fn retime(&mut self) {
        let wanted = wanted(&self.config, self.state);
        if self.timing.told == wanted {
            return;
        }
        self.timing.set(wanted, self.state);
        self.due = true;
        // A peer that does not know us yet learns it all from the first packet.
        if self.remote.is_some() {
            self.poll = match self.poll {
                Poll::Running { asked: true, .. } => Poll::Running { asked: true, again: true },
                _ => Poll::Running { asked: false, again: false },
            };
        }
    }

    /// The peer has answered a poll.
    pub(super) fn confirmed(&mut self) {
        match self.poll {
            Poll::Running { asked: true, again: true } => {
                self.poll = Poll::Running { asked: false, again: false };
                self.due = true;
            }
            Poll::Running { asked: true, again: false } => {
                self.poll = Poll::Idle;
                self.timing.settle();
                // A packet that the question has overtaken must not be the last that the peer hears for a long interval.
                self.due = true;
            }
            Poll::Running { asked: false, .. } | Poll::Idle => {}
        }
    }

    /// Not more often than we want and not more often than the peer takes (section 6.8.2).
    pub(super) fn transmit_interval(&self) -> Interval {
        let required = self.remote.map_or(Interval::default(), |remote| remote.required_min_rx);
        self.timing.in_force.tx.max(required)
    }

    /// The peer's multiplier times what it sends at most, as far as we allow it (section 6.8.4).
    pub(super) fn detection_time(&self) -> Option<Duration> {
        let remote = self.remote?;
        let agreed = self.timing.in_force.rx.max(remote.desired_min_tx);
        Some(agreed.duration() * u32::from(remote.multiplier.get()))
    }

    pub(super) fn detection_deadline(&self) -> Option<Instant> {
        self.remote?.heard.checked_add(self.detection_time()?)
    }

    /// Nothing is sent unasked to a peer that wants none, or none while both are Up; a poll goes out all the same (section 6.8.7).
    pub(super) fn may_send_periodically(&self) -> bool {
        let Some(remote) = self.remote else { return true };
        let both_up = self.state == State::Up && remote.state == State::Up;
        let on_demand = remote.demand && both_up && self.poll == Poll::Idle;
        !remote.required_min_rx.is_zero() && !on_demand
    }

    /// When the next packet leaves, unless one waits already.
    pub(super) fn transmit_deadline(&self) -> Option<Instant> {
        if self.due || !self.may_send_periodically() {
            return None;
        }
        let wait = self.transmit_interval().duration() * self.jitter / 1000;
        self.sent.and_then(|sent| sent.checked_add(wait))
    }
}
