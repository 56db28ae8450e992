//! The session state machine of one peer over at most two connections (RFC 4271 section 8).
//!
//! ```text
//!            start                  dialed or accepted          OPEN                KEEPALIVE
//!   Idle ───────────► Connect ──────────────────────► OpenSent ───────► OpenConfirm ───────────► Established
//!    ▲                  │  ▲                             │                  │                        │
//!    │      dial failed ▼  │ retry                       │  NOTIFICATION, timer, close, collision    │
//!    │                Active ◄──────────────────────────-┴──────────────────┴────────────────────────┘
//!    └── hold-down after an OPEN error or Cease/1
//! ```
//! A peer dials and listens at once, so two connections may exist; each one has its own state and timers, and [`Session::state`] is
//! that of the more advanced. Retry and hold-down belong to the peer.
//!
//! Call `start` once, feed `handle_*` and [`Session::handle_timeout`], and after each call drain [`Session::poll_action`]. Wake at
//! [`Session::poll_timeout`].

mod connection;
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
    wire::{Capability, Notification, Open, code},
};
use connection::{Connection, Phase};
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
    /// At most one for each direction.
    connections: Vec<Connection>,
    dialing: Dialing,
    retry: Retry,
    actions: VecDeque<Action>,
    state: State,
    /// Why there is no connection, when there is none.
    idle_reason: String,
    since: Instant,
    last_error: Option<String>,
    established_count: u64,
}

impl Session {
    /// A session that does nothing before [`Session::start`].
    pub fn new(config: SessionConfig, jitter: Jitter, now: Instant) -> Self {
        Self {
            config,
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

    /// Starts dialing and accepting.
    pub fn start(&mut self, now: Instant) {
        if matches!(self.dialing, Dialing::Stopped) {
            self.dialing = Dialing::InProgress;
            self.actions.push_back(Action::Dial);
            self.report("dialing", now);
        }
    }

    /// Closes every connection with this NOTIFICATION and stays idle.
    pub fn stop(&mut self, notification: &Notification, why: &str, now: Instant) {
        for connection in std::mem::take(&mut self.connections) {
            self.forget(&connection, Some(notification.clone()));
        }
        self.dialing = Dialing::Stopped;
        self.report(why, now);
    }

    /// Closes every connection with this NOTIFICATION and starts over at once, under this configuration.
    pub fn restart(&mut self, config: SessionConfig, notification: &Notification, why: &str, now: Instant) {
        self.stop(notification, why, now);
        self.config = config;
        self.retry.reset();
        self.start(now);
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

    /// The last NOTIFICATION, timer or transport error that ended or prevented a session.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// What we say in our OPEN.
    pub fn capabilities(&self) -> Vec<Capability> {
        self.own_open().capabilities
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

    /// Dialing worked: this is the connection. False: it is not wanted any more, close it.
    pub fn handle_connected(&mut self, id: ConnectionId, now: Instant) -> bool {
        let wanted = matches!(self.dialing, Dialing::InProgress);
        if wanted {
            self.dialing = Dialing::Waiting(now);
        }
        if !wanted || self.established().is_some() {
            return false;
        }
        self.open(id, Direction::Outgoing, now);
        true
    }

    /// Dialing failed; `why` is for a person: "connection refused".
    pub fn handle_dial_failed(&mut self, why: &str, now: Instant) {
        if !matches!(self.dialing, Dialing::InProgress) {
            return;
        }
        if self.connections.is_empty() {
            self.last_error = Some(why.to_string());
        }
        self.wait(Failure::Transport, why, now);
    }

    /// The peer connected.
    ///
    /// # Errors
    /// Why the connection is not wanted: close it without a word.
    pub fn handle_accepted(&mut self, id: ConnectionId, now: Instant) -> Result<(), &'static str> {
        match self.dialing {
            Dialing::Stopped => return Err("the session is stopped"),
            Dialing::HoldDown(_) => return Err("the session is held down after an error"),
            Dialing::Waiting(_) | Dialing::InProgress => {}
        }
        if self.established().is_some() {
            return Err("a session with this peer is established");
        }
        // A peer has one outgoing connection: another one means that it has given up the one before.
        if let Some(index) = self.connections.iter().position(|c| c.direction == Direction::Incoming) {
            let old = self.connections.remove(index);
            self.forget(&old, Some(Notification::new(code::CEASE, code::cease::COLLISION)));
        }
        self.open(id, Direction::Incoming, now);
        Ok(())
    }

    /// Bytes arrived: the peer lives, whatever they say.
    pub fn handle_heard(&mut self, id: ConnectionId, now: Instant) {
        if let Some(connection) = self.connection(id) {
            connection.last_heard = now;
        }
    }

    /// The transport took everything that waited to be sent on this connection.
    pub fn handle_sent(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connection(id) {
            connection.stalled_since = None;
            connection.keepalive_queued = false;
        }
    }

    /// The transport is gone.
    pub fn handle_closed(&mut self, id: ConnectionId, why: &str, now: Instant) {
        self.fail(id, None, Failure::Transport, why, now);
    }

    /// The peer broke the protocol, or a limit was passed: send this and close.
    pub fn handle_error(&mut self, id: ConnectionId, notification: Notification, now: Instant) {
        let failure = Failure::of(&notification);
        let why = format!("we sent {notification}");
        self.fail(id, Some(notification), failure, &why, now);
    }

    /// A message arrived.
    pub fn handle_input(&mut self, id: ConnectionId, input: Input, now: Instant) {
        let Some(connection) = self.connection(id) else { return };
        match (&connection.phase, input) {
            (_, Input::Notification(notification)) => {
                let why = format!("peer sent {notification}");
                self.fail(id, None, Failure::of(&notification), &why, now);
            }
            (Phase::OpenSent, Input::Open(open)) => self.handle_open(id, &open, now),
            (Phase::OpenConfirm(_), Input::Keepalive) => {
                connection.confirmed = true;
                self.promote(now);
            }
            // While we wait for the other connection to lose, the peer has made up its mind for this one.
            (Phase::OpenConfirm(negotiated), Input::Update | Input::RouteRefresh(_))
                if connection.confirmed =>
            {
                let negotiated = Arc::clone(negotiated);
                self.establish(id, negotiated, now);
            }
            (Phase::Established(_), Input::Keepalive | Input::Update | Input::RouteRefresh(_)) => {}
            (phase, input) => {
                let notification = Notification::new(code::FSM, phase.unexpected_message());
                let why = format!("unexpected {} in {}", input.name(), phase.state());
                self.fail(id, Some(notification), Failure::Protocol, &why, now);
            }
        }
    }

    /// Does what [`Session::poll_timeout`] announced, if it is time.
    pub fn handle_timeout(&mut self, now: Instant) {
        for (id, notification, why) in
            self.connections.iter().filter_map(|c| c.expired(now)).collect::<Vec<_>>()
        {
            self.fail(id, Some(notification), Failure::Transport, &why, now);
        }
        for connection in &mut self.connections {
            if connection.keepalive_due(now) {
                self.actions.push_back(Action::SendKeepalive(connection.id));
            }
        }
        match self.dialing {
            Dialing::Waiting(at) if at <= now && self.connections.is_empty() => {
                self.dialing = Dialing::InProgress;
                self.actions.push_back(Action::Dial);
                let why = self
                    .last_error
                    .as_ref()
                    .map_or("dialing".into(), |e| format!("dialing again after: {e}"));
                self.report(&why, now);
            }
            Dialing::HoldDown(at) if at <= now => {
                self.dialing = Dialing::Waiting(now);
                self.handle_timeout(now);
            }
            _ => {}
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.id == id)
    }

    fn own_open(&self) -> Open {
        let SessionConfig { local_asn, router_id, hold_time, families, .. } = self.config;
        Open::new(local_asn, hold_time, router_id, families)
    }

    fn open(&mut self, id: ConnectionId, direction: Direction, now: Instant) {
        self.connections.push(Connection::new(id, direction, now));
        self.actions.push_back(Action::SendOpen(id, self.own_open()));
        self.report("", now);
    }

    fn handle_open(&mut self, id: ConnectionId, open: &Open, now: Instant) {
        let negotiated = match open::negotiate(&self.config, open) {
            Ok(negotiated) => Arc::new(negotiated),
            Err((notification, why)) => {
                let failure = Failure::of(&notification);
                return self.fail(id, Some(notification), failure, &why, now);
            }
        };
        if !self.survives_collision(id, &negotiated, now) {
            return;
        }
        if let Some(connection) = self.connection(id) {
            connection.confirm(negotiated, now);
            self.actions.push_back(Action::SendKeepalive(id));
        }
        self.report("", now);
    }

    /// RFC 4271 section 6.8: of two connections whose OPENs are known, that of the higher identifier stays; RFC 6286: with equal
    /// identifiers, that of the higher AS number. Closes the loser; true if `id` goes on.
    fn survives_collision(&mut self, id: ConnectionId, negotiated: &Negotiated, now: Instant) -> bool {
        let Some(other) = self.connections.iter().find(|c| c.id != id && !matches!(c.phase, Phase::OpenSent))
        else {
            return true;
        };
        let winner = self.collision_winner(negotiated);
        let newcomer_wins = matches!(other.phase, Phase::OpenConfirm(_)) && other.direction != winner;
        let loser = if newcomer_wins { other.id } else { id };
        self.close(loser, Some(Notification::new(code::CEASE, code::cease::COLLISION)), now);
        newcomer_wins
    }

    fn collision_winner(&self, negotiated: &Negotiated) -> Direction {
        let ours = (self.config.router_id, self.config.local_asn);
        let theirs = (negotiated.remote_router_id, self.config.remote_asn);
        if ours > theirs { Direction::Outgoing } else { Direction::Incoming }
    }

    /// Establishes the confirmed connection, unless another one may still beat it. Without this wait one side could settle on a
    /// connection that the other side, whose view is a message older, is just closing; both would be lost.
    fn promote(&mut self, now: Instant) {
        let confirmed = self.connections.iter().find_map(|connection| match &connection.phase {
            Phase::OpenConfirm(negotiated) if connection.confirmed => {
                Some((connection.id, connection.direction, Arc::clone(negotiated)))
            }
            _ => None,
        });
        let Some((id, direction, negotiated)) = confirmed else { return };
        if self.connections.len() == 1 || direction == self.collision_winner(&negotiated) {
            self.establish(id, negotiated, now);
        }
    }

    fn establish(&mut self, id: ConnectionId, negotiated: Arc<Negotiated>, now: Instant) {
        // Not by `close`, which would promote the one that is being established.
        let losers: Vec<_> = self.connections.extract_if(.., |connection| connection.id != id).collect();
        for loser in losers {
            self.forget(&loser, Some(Notification::new(code::CEASE, code::cease::COLLISION)));
        }
        if let Some(connection) = self.connection(id) {
            connection.phase = Phase::Established(Arc::clone(&negotiated));
            connection.established_at = Some(now);
        }
        self.established_count += 1;
        self.actions.push_back(Action::Up(id, negotiated));
        self.report("", now);
    }

    /// Closes a connection that lost a collision: nothing is wrong, nothing is retried because of it.
    fn close(&mut self, id: ConnectionId, notification: Option<Notification>, now: Instant) {
        if let Some(index) = self.connections.iter().position(|c| c.id == id) {
            let connection = self.connections.remove(index);
            self.forget(&connection, notification);
            self.report("collision", now);
            self.promote(now);
        }
    }

    /// Ends a connection because of an error, and decides when to try again.
    fn fail(
        &mut self,
        id: ConnectionId,
        notification: Option<Notification>,
        failure: Failure,
        why: &str,
        now: Instant,
    ) {
        let Some(index) = self.connections.iter().position(|c| c.id == id) else { return };
        let connection = self.connections.remove(index);
        if connection.established_at.is_some_and(|at| now.saturating_duration_since(at) >= STABLE_AFTER) {
            self.retry.reset();
        }
        self.forget(&connection, notification);
        if !self.connections.is_empty() {
            self.report(why, now);
            return self.promote(now);
        }
        self.last_error = Some(why.to_string());
        match self.dialing {
            Dialing::InProgress | Dialing::Stopped => self.report(why, now),
            Dialing::Waiting(_) | Dialing::HoldDown(_) => self.wait(failure, why, now),
        }
    }

    fn forget(&mut self, connection: &Connection, notification: Option<Notification>) {
        self.actions.push_back(Action::Close(connection.id, notification));
        if matches!(connection.phase, Phase::Established(_)) {
            self.actions.push_back(Action::Down(connection.id));
        }
    }

    fn wait(&mut self, failure: Failure, why: &str, now: Instant) {
        let delay = self.retry.next(failure, self.established_count > 0);
        let at = now + delay;
        let held_down = failure.holds_down();
        self.dialing = if held_down { Dialing::HoldDown(at) } else { Dialing::Waiting(at) };
        self.report(&format!("{why}; next try after {:.1} s", delay.as_secs_f32()), now);
    }

    /// Recomputes the reported state; the reason counts while there is no connection.
    fn report(&mut self, idle_reason: &str, now: Instant) {
        let advanced = self.connections.iter().map(|connection| connection.phase.state()).max();
        let to = advanced.unwrap_or(match self.dialing {
            Dialing::Stopped | Dialing::HoldDown(_) => State::Idle,
            Dialing::Waiting(_) => State::Active,
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
mod tests;
