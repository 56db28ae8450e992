//! What happens to a session, and what it does then.

use std::{sync::Arc, time::Instant};

use super::{
    Action, Cause, Connection, Dialing, Direction, Ending, Failure, Input, LastError, Phase, Session,
    offer::offer, open::negotiate,
};
use crate::{
    ConnectionId,
    wire::{Notification, Open, code},
};

impl Session {
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
            let text = why.to_string();
            self.last_error = Some(LastError { at: now, sent: false, notification: None, text });
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
            Dialing::Listening | Dialing::Waiting(_) | Dialing::InProgress => {}
        }
        self.admit_beside_established(now)?;
        // A peer has one outgoing connection: another one means that it has given up the one before.
        let given_up = |c: &Connection| c.direction == Direction::Incoming && !c.is_established();
        if let Some(index) = self.connections.iter().position(given_up) {
            let old = self.connections.remove(index);
            let words = Notification::new(code::CEASE, code::cease::COLLISION);
            self.forget(&old, Some(words), Ending::Transport);
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
        self.fail(id, Cause::Transport(why.to_string()), now);
    }

    /// The peer broke the protocol, or a limit was passed: send this and close.
    pub fn handle_error(&mut self, id: ConnectionId, notification: Notification, now: Instant) {
        self.fail(id, Cause::sent(notification), now);
    }

    /// BFD, or whoever else watches the path, says that it is dead; `why` is for a person. Ends every connection with Cease/BFD Down
    /// (RFC 9384) and tries again as after any failure of the network.
    pub fn handle_path_down(&mut self, why: &str, now: Instant) {
        let notification = Notification::new(code::CEASE, code::cease::BFD_DOWN);
        self.fail_all(Cause::Sent(notification, why.to_string()), now);
    }

    /// The interface to the peer lost its carrier: nothing can be said any more, and waiting for the hold timer only loses packets.
    pub fn handle_link_down(&mut self, why: &str, now: Instant) {
        self.fail_all(Cause::Transport(why.to_string()), now);
    }

    /// A message arrived.
    pub fn handle_input(&mut self, id: ConnectionId, input: Input, now: Instant) {
        let Some(connection) = self.connection(id) else { return };
        match (&connection.phase, input) {
            (_, Input::Notification(notification)) => self.fail(id, Cause::Received(notification), now),
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
                self.fail(id, Cause::Sent(notification, why), now);
            }
        }
    }

    /// Does what [`Session::poll_timeout`] announced, if it is time.
    pub fn handle_timeout(&mut self, now: Instant) {
        let expired: Vec<_> = self.connections.iter().filter_map(|c| c.expired(now)).collect();
        for (id, notification, why) in expired {
            self.fail(id, Cause::Sent(notification, why), now);
        }
        for connection in &mut self.connections {
            if connection.keepalive_due(now) {
                self.actions.push_back(Action::SendKeepalive(connection.id));
            }
        }
        match self.dialing {
            Dialing::HoldDown(at) if at <= now => self.try_again(now),
            Dialing::Waiting(at) if at <= now && self.connections.is_empty() => self.try_again(now),
            _ => {}
        }
    }

    fn try_again(&mut self, now: Instant) {
        let error = self.last_error.as_ref().map(|error| &error.text);
        let why = error.map_or("dialing".into(), |text| format!("dialing again after: {text}"));
        self.begin(&why, now);
    }

    /// Ends every connection at once: none may win because the other one is gone a moment earlier.
    fn fail_all(&mut self, cause: Cause, now: Instant) {
        let advanced = self.connections.iter().max_by_key(|connection| connection.phase.state());
        let Some(last) = advanced.map(|connection| connection.id) else { return };
        let others: Vec<_> = self.connections.extract_if(.., |connection| connection.id != last).collect();
        for other in others {
            self.forget(&other, cause.to_send(), cause.ending());
        }
        self.fail(last, cause, now);
    }

    fn open(&mut self, id: ConnectionId, direction: Direction, now: Instant) {
        let ours = offer(&self.config, self.wording, self.established_count == 0);
        let mut connection = Connection::new(id, direction, ours, now);
        connection.reserved = self.established().is_some();
        self.connections.push(connection);
        if self.established().is_none() {
            self.send_open(id);
        }
        self.report("", now);
    }

    pub(super) fn send_open(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connection(id) {
            connection.reserved = false;
            let open = connection.ours.clone();
            self.actions.push_back(Action::SendOpen(id, open));
        }
    }

    fn handle_open(&mut self, id: ConnectionId, open: &Open, now: Instant) {
        let Some(connection) = self.connection(id) else { return };
        let ours = connection.ours.clone();
        let negotiated = match negotiate(&self.config, &ours, open) {
            Ok(negotiated) => Arc::new(negotiated),
            Err(refusal) => return self.fail(id, Cause::Sent(refusal.0, refusal.1), now),
        };
        if !self.survives_collision(id, &negotiated, now) {
            return;
        }
        if self.connection(id).is_some_and(|connection| connection.reserved) {
            self.send_open(id);
        }
        if let Some(connection) = self.connection(id) {
            connection.confirm(negotiated, now);
            self.actions.push_back(Action::SendKeepalive(id));
        }
        self.report("", now);
    }
}
