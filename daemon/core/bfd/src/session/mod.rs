//! The machine of one session (RFC 5880 section 6).
//!
//! ```text
//!                              +--+
//!                              |  | UP, ADMIN DOWN, TIMER
//!                              |  V
//!                      DOWN  +------+  INIT
//!               +------------|      |------------+
//!               |            | DOWN |            |
//!               |  +-------->|      |<--------+  |
//!               |  |         +------+         |  |
//!               |  | ADMIN DOWN,       DOWN,  |  |
//!               |  | TIMER      ADMIN DOWN,   |  |
//!               V  |                   TIMER  |  V
//!             +------+                      +------+
//!        +----| INIT |--------------------->|  UP  |----+
//!   DOWN |    |      |      INIT, UP        |      |    | INIT, UP
//!        +--->+------+                      +------+<---+
//! ```
//! The words on the arrows are the state that the peer says it is in; TIMER is a detection time without a packet from it.

mod receive;
mod timing;
mod transmit;

use std::{
    collections::VecDeque,
    num::{NonZeroU8, NonZeroU32},
    time::{Duration, Instant},
};

use crate::{Diagnostic, Interval, State, random::Random};
use timing::{Poll, Timing};

/// What is wanted of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Not more often than this is sent while Up.
    pub desired_min_tx: Interval,
    /// Not more often than this the peer may send; at least a millisecond is taken.
    pub required_min_rx: Interval,
    /// Packets in a row that the peer has to miss before it takes the path for down.
    pub multiplier: NonZeroU8,
}

/// One session. Drive it by
/// - [`Session::handle_packet`] with every packet that is its own, [`Session::handle_timeout`] when [`Session::poll_timeout`] is due,
///   [`Session::alter`] and [`Session::set_admin_down`] when its administrator says so; after each of these by
/// - [`Session::poll_transmit`] and [`Session::poll_event`] until they have nothing more.
///
/// A driver that was late hands over what has arrived before it looks at timers: then being late is never taken for a dead path.
#[derive(Debug)]
pub struct Session {
    config: Config,
    discriminator: NonZeroU32,
    state: State,
    diagnostic: Diagnostic,
    since: Instant,
    /// What the peer last said; forgotten when it is silent for a detection time (bfd.RemoteDiscr, section 6.8.1).
    remote: Option<Remote>,
    timing: Timing,
    poll: Poll,
    /// The peer polls: answer at once.
    answer: bool,
    /// Something in the packet differs from what was sent last, or its time has come.
    due: bool,
    sent: Option<Instant>,
    /// Part of the interval that the next packet waits, in thousandths.
    jitter: u32,
    random: Random,
    events: VecDeque<Change>,
}

/// What the peer said in its last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its name for the session.
    pub discriminator: NonZeroU32,
    /// Its state.
    pub state: State,
    /// Why it is in it.
    pub diagnostic: Diagnostic,
    /// How many packets in a row we may miss.
    pub multiplier: NonZeroU8,
    /// It does not want to send more often.
    pub desired_min_tx: Interval,
    /// It cannot take packets more often; zero: it wants none.
    pub required_min_rx: Interval,
    /// It wants no periodic packets while both sides are Up.
    pub demand: bool,
    /// When it was heard.
    pub heard: Instant,
}

/// A change of state, of ours or of whether the peer is held down by its administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// State before.
    pub from: State,
    /// State now.
    pub to: State,
    /// Why.
    pub diagnostic: Diagnostic,
    /// What the peer said last; `None`: it is silent.
    pub remote: Option<State>,
    /// When.
    pub at: Instant,
}

impl Change {
    /// The path was there and is gone. A peer whose administrator ends BFD says nothing about the path, nor does one that never
    /// answered, nor our own administrator (RFC 5882 sections 3.2 and 4.2).
    pub fn is_failure(&self) -> bool {
        self.from == State::Up && self.to == State::Down && self.remote != Some(State::AdminDown)
    }

    /// Nothing is known against the path any more: it is proved, or BFD is given up on it by an administrator.
    pub fn is_relief(&self) -> bool {
        let given_up = self.to == State::AdminDown || self.remote == Some(State::AdminDown);
        self.to == State::Up || given_up
    }
}

/// A session as commands show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// What is wanted of it.
    pub config: Config,
    /// Our name for it.
    pub discriminator: NonZeroU32,
    /// Its state.
    pub state: State,
    /// Why it is in it.
    pub diagnostic: Diagnostic,
    /// Since when.
    pub since: Instant,
    /// What the peer said last.
    pub remote: Option<Remote>,
    /// How often is sent, before jitter; `None`: nothing is sent.
    pub transmit_interval: Option<Duration>,
    /// After this silence the path is down; `None`: the peer has not been heard.
    pub detection_time: Option<Duration>,
}

impl Session {
    /// A session that starts in state Down and sends at once. `discriminator` is unique among the sessions of this system.
    pub fn new(config: Config, discriminator: NonZeroU32, seed: u64, now: Instant) -> Self {
        Self {
            config,
            discriminator,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            since: now,
            remote: None,
            timing: Timing::new(timing::wanted(&config, State::Down)),
            poll: Poll::Idle,
            answer: false,
            due: true,
            sent: None,
            jitter: 1000,
            random: Random::new(seed),
            events: VecDeque::new(),
        }
    }

    /// Takes another configuration; a running session goes on, and the peer hears of it by a Poll Sequence (section 6.8.3).
    pub fn alter(&mut self, config: Config) {
        let said_otherwise = self.config.multiplier != config.multiplier;
        self.config = config;
        self.due |= said_otherwise;
        self.retime();
    }

    /// The administrator ends the session; the peer is told at once, and as long as the session is there (section 6.8.16).
    pub fn set_admin_down(&mut self, now: Instant) {
        self.enter(State::AdminDown, Diagnostic::ADMINISTRATIVE, now);
    }

    /// The administrator lets the session come up again.
    pub fn set_admin_up(&mut self, now: Instant) {
        if self.state == State::AdminDown {
            self.enter(State::Down, Diagnostic::NONE, now);
        }
    }

    /// Does what its time has come for.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.detection_deadline().is_some_and(|at| at <= now) {
            self.forget(now);
        }
        if self.transmit_deadline().is_some_and(|at| at <= now) {
            self.due = true;
        }
    }

    /// When [`Session::handle_timeout`] has something to do, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.detection_deadline(), self.transmit_deadline()].into_iter().flatten().min()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<Change> {
        self.events.pop_front()
    }

    /// As it is now.
    pub fn status(&self) -> Status {
        Status {
            config: self.config,
            discriminator: self.discriminator,
            state: self.state,
            diagnostic: self.diagnostic,
            since: self.since,
            remote: self.remote,
            transmit_interval: self.may_send_periodically().then(|| self.transmit_interval().duration()),
            detection_time: self.detection_time(),
        }
    }

    /// Nothing was heard for a detection time: the path is down, and what the peer said is void (sections 6.8.1 and 6.8.4).
    fn forget(&mut self, now: Instant) {
        self.remote = None;
        self.poll = Poll::Idle;
        self.timing.settle();
        if matches!(self.state, State::Init | State::Up) {
            self.enter(State::Down, Diagnostic::TIME_EXPIRED, now);
        }
    }

    fn enter(&mut self, state: State, diagnostic: Diagnostic, now: Instant) {
        let from = std::mem::replace(&mut self.state, state);
        if from == state {
            return;
        }
        (self.diagnostic, self.since, self.due) = (diagnostic, now, true);
        self.retime();
        self.tell(from, now);
    }

    fn tell(&mut self, from: State, at: Instant) {
        let remote = self.remote.map(|remote| remote.state);
        self.events.push_back(Change { from, to: self.state, diagnostic: self.diagnostic, remote, at });
    }
}

#[cfg(test)]
mod tests;
