//! The session state machine of one peer over at most two connections (RFC 4271 section 8).
//!
//! ```text
//!            start                  dialed or accepted          OPEN                KEEPALIVE
//!   Idle ───────────► Connect ──────────────────────► OpenSent ───────► OpenConfirm ───────────► Established
//!    ▲ ▲                │  ▲                             │                  │                        │
//!    │ │    dial failed ▼  │ retry                       │  NOTIFICATION, timer, close, collision    │
//!    │ │              Active ◄──────────────────────────-┴──────────────────┴────────────────────────┘
//!    │ └── hold-down after an OPEN error or Cease/1, ended by time or `clear`
//!    └──── stop; a passive session goes from Idle to Active and never dials
//! ```
//! A peer dials and listens at once, so two connections may exist; each one has its own state and timers, and [`Session::state`] is
//! that of the more advanced. Retry and hold-down belong to the peer. Beside an established connection another one stands only where
//! graceful restart was negotiated, and it takes over only if its OPEN proves that the peer has restarted.
//!
//! Call `start` once, feed `handle_*` and [`Session::handle_timeout`], and after each call drain [`Session::poll_action`]. Wake at
//! [`Session::poll_timeout`]. `handle_*` and `clear` may be called in every state; what makes no sense there does nothing.

mod asn_set;
mod cause;
mod collision;
mod common;
mod connection;
mod events;
mod offer;
mod open;
mod retry;
mod types;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    ConnectionId,
    wire::{Capability, Notification, code},
};
pub use asn_set::AsnSet;
use cause::Cause;
pub use cause::{Ending, Fault, LastError};
pub use connection::send_hold_time;
use connection::{Connection, Phase};
use offer::Wording;
pub use retry::Jitter;
use retry::{Failure, Retry};
pub use types::{
    Action, AddPath, Direction, Input, Negotiated, Offer, PeerRestart, RestartOffer, SessionConfig, State,
};

/// How long to wait for the peer's OPEN (RFC 4271 section 8.2.2 suggests four minutes; a peer that has none after this has none).
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// A session that stood this long clears what failed before it.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// What stands between connections.
#[derive(Clone, Debug)]
enum Dialing {
    /// Not started, or stopped for good.
    Stopped,
    /// Passive: the peer connects when it likes.
    Listening,
    /// Next try at this time.
    Waiting(Instant),
    /// The owner is dialing.
    InProgress,
    /// Nothing, not even accepting, until this time.
    HoldDown(Instant),
}

/// One peer's session. See the module for the order of calls.
#[derive(Clone, Debug)]
pub struct Session {
    config: SessionConfig,
    /// What our OPENs say.
    wording: Wording,
    /// At most one for each direction, and at most one beside an established one.
    connections: Vec<Connection>,
    dialing: Dialing,
    retry: Retry,
    actions: VecDeque<Action>,
    state: State,
    /// Why there is no connection, when there is none.
    idle_reason: String,
    since: Instant,
    last_error: Option<LastError>,
    established_count: u64,
}

impl Session {
    /// A session that does nothing before [`Session::start`].
    pub fn new(config: SessionConfig, jitter: Jitter, now: Instant) -> Self {
        Self {
            config,
            wording: Wording::Full,
            connections: Vec::new(),
            dialing: Dialing::Stopped,
            retry: Retry::new(jitter),
            actions: VecDeque::new(),
            state: State::Idle,
            idle_reason: "not started".into(),
            since: now,
            last_error: None,
            established_count: 0,
        }
    }

    /// Starts accepting, and dialing unless it is passive.
    pub fn start(&mut self, now: Instant) {
        if matches!(self.dialing, Dialing::Stopped) {
            self.begin("dialing", now);
        }
    }

    /// Closes every connection with this NOTIFICATION and stays idle.
    pub fn stop(&mut self, notification: &Notification, why: &str, now: Instant) {
        for connection in std::mem::take(&mut self.connections) {
            self.forget(&connection, Some(notification.clone()), Ending::Stopped);
        }
        self.dialing = Dialing::Stopped;
        self.report(why, now);
    }

    /// Closes every connection with this NOTIFICATION and starts over at once, under the configuration that was set last.
    pub fn restart(&mut self, notification: &Notification, why: &str, now: Instant) {
        self.stop(notification, why, now);
        self.wording = Wording::Full;
        self.retry.reset();
        self.start(now);
    }

    /// An operator's order: ends the session with Cease/Administrative Reset and this text (RFC 9003), ends a hold-down, forgets what
    /// failed, and starts over at once. A stopped session stays stopped.
    pub fn clear(&mut self, text: &str, now: Instant) {
        if !matches!(self.dialing, Dialing::Stopped) {
            let notification = Notification::shutdown(code::cease::RESET, text);
            self.restart(&notification, "cleared by an operator", now);
        }
    }

    /// Ends every connection so that a peer that keeps our routes over a restart does (RFC 4724, RFC 8538): without a word, or with a
    /// Cease that is no Hard Reset. A peer that does not is told that we shut down. Stays idle.
    pub fn suspend(&mut self, text: &str, now: Instant) {
        for connection in std::mem::take(&mut self.connections) {
            let restart = connection.phase.negotiated().map(|negotiated| negotiated.restart);
            let words = match restart.flatten() {
                Some(restart) if restart.notification => Some(code::cease::RESET),
                Some(_) => None,
                None => Some(code::cease::SHUTDOWN),
            };
            let words = words.map(|subcode| Notification::shutdown(subcode, text));
            self.forget(&connection, words, Ending::Stopped);
        }
        self.dialing = Dialing::Stopped;
        self.report(text, now);
    }

    /// The configuration for the next connections; one that stands does not notice.
    pub fn set_config(&mut self, config: SessionConfig) {
        self.config = config;
    }

    /// What our next OPENs say about graceful restart; the session that stands does not notice.
    pub fn set_restart_offer(&mut self, restart: Option<RestartOffer>) {
        self.config.offer.restart = restart;
    }

    /// State of the most advanced connection, or of the wait for one.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it is in this state, for a person.
    pub fn reason(&self) -> String {
        let advanced = self.connections.iter().map(|connection| &connection.phase).max_by_key(|p| p.state());
        advanced.map_or_else(|| self.idle_reason.clone(), Phase::describe)
    }

    /// When it entered this state.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// What last ended or prevented a session.
    pub fn last_error(&self) -> Option<&LastError> {
        self.last_error.as_ref()
    }

    /// What we said in our OPEN, or would say now.
    pub fn capabilities(&self) -> Vec<Capability> {
        let said = self.connections.first().map(|connection| connection.ours.clone());
        let open =
            said.unwrap_or_else(|| offer::offer(&self.config, self.wording, self.established_count == 0));
        open.capabilities
    }

    /// How often it reached Established.
    pub fn established_count(&self) -> u64 {
        self.established_count
    }

    /// The established connection and what was agreed for it.
    pub fn established(&self) -> Option<(ConnectionId, &Arc<Negotiated>)> {
        self.connections.iter().find_map(|connection| match &connection.phase {
            Phase::Established(negotiated) => Some((connection.id, negotiated)),
            _ => None,
        })
    }

    /// Next thing for the owner to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`Session::handle_timeout`], and what for.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.timers().min_by_key(|(at, _)| *at)
    }

    /// Every timer that runs: when it ends, and its name.
    pub fn timers(&self) -> impl Iterator<Item = (Instant, &'static str)> {
        let dialing = match self.dialing {
            Dialing::Waiting(at) if self.connections.is_empty() => Some((at, "connect retry")),
            Dialing::HoldDown(at) => Some((at, "hold-down")),
            _ => None,
        };
        self.connections.iter().flat_map(Connection::timers).chain(dialing)
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.id == id)
    }

    fn begin(&mut self, why: &str, now: Instant) {
        if self.config.passive {
            self.dialing = Dialing::Listening;
            return self.report("waiting for the peer to connect", now);
        }
        self.dialing = Dialing::InProgress;
        self.actions.push_back(Action::Dial);
        self.report(why, now);
    }

    /// Ends a connection because of an error, and decides when to try again.
    fn fail(&mut self, id: ConnectionId, cause: Cause, now: Instant) {
        let Some(index) = self.connections.iter().position(|c| c.id == id) else { return };
        let connection = self.connections.remove(index);
        if connection.established_at.is_some_and(|at| now.saturating_duration_since(at) >= STABLE_AFTER) {
            self.retry.reset();
        }
        self.forget(&connection, cause.to_send(), cause.ending());
        let why = cause.text();
        let failure = self.reword(&connection, &cause);
        if connection.is_established() || self.connections.is_empty() {
            self.last_error = Some(cause.into_error(now));
        }
        if !self.connections.is_empty() {
            self.report(&why, now);
            return self.promote(now);
        }
        match self.dialing {
            Dialing::InProgress | Dialing::Stopped => self.report(&why, now),
            Dialing::Listening | Dialing::Waiting(_) | Dialing::HoldDown(_) => self.wait(failure, &why, now),
        }
    }

    /// A peer that refused our capabilities gets a try without the optional ones, at once; if it refuses that as well, it was not
    /// them. What worked is kept until the configuration changes.
    fn reword(&mut self, connection: &Connection, cause: &Cause) -> Failure {
        use code::open::{CAPABILITY, PARAMETER};
        let refused = matches!(cause, Cause::Received(n) if n.code == code::OPEN
            && matches!(n.subcode, CAPABILITY | PARAMETER));
        if !refused || connection.is_established() {
            return cause.failure();
        }
        match std::mem::replace(&mut self.wording, Wording::Full) {
            Wording::Full => {
                self.wording = Wording::Plain;
                Failure::Transport
            }
            Wording::Plain => Failure::Open,
        }
    }

    fn forget(&mut self, connection: &Connection, notification: Option<Notification>, ending: Ending) {
        let last_words = notification.map(|notification| connection.last_words(notification));
        self.actions.push_back(Action::Close(connection.id, last_words));
        if connection.is_established() {
            self.actions.push_back(Action::Down(connection.id, ending));
        }
    }

    fn wait(&mut self, failure: Failure, why: &str, now: Instant) {
        let delay = self.retry.next(failure, self.established_count > 0);
        let (at, seconds) = (now + delay, delay.as_secs_f32());
        if failure.holds_down() {
            self.dialing = Dialing::HoldDown(at);
            self.report(&format!("{why}; next try after {seconds:.1} s"), now);
        } else if self.config.passive {
            self.dialing = Dialing::Listening;
            self.report(&format!("{why}; waiting for the peer to connect"), now);
        } else {
            self.dialing = Dialing::Waiting(at);
            self.report(&format!("{why}; next try after {seconds:.1} s"), now);
        }
    }

    /// Recomputes the reported state; the reason counts while there is no connection.
    fn report(&mut self, idle_reason: &str, now: Instant) {
        let advanced = self.connections.iter().map(|connection| connection.phase.state()).max();
        let to = advanced.unwrap_or(match self.dialing {
            Dialing::Stopped | Dialing::HoldDown(_) => State::Idle,
            Dialing::Listening | Dialing::Waiting(_) => State::Active,
            Dialing::InProgress => State::Connect,
        });
        self.idle_reason = idle_reason.to_string();
        let from = std::mem::replace(&mut self.state, to);
        if from != to {
            self.since = now;
            self.actions.push_back(Action::Changed { from, to });
        }
    }
}

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;
