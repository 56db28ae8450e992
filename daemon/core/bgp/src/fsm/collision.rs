//! Which of two connections stays (RFC 4271 section 6.8, RFC 6286 section 2.3, RFC 4724 section 5).
//!
//! | the other connection | the newcomer's OPEN | stays |
//! |---|---|---|
//! | OpenSent | any | both, for now |
//! | OpenConfirm | any | that of the higher (identifier, AS number) |
//! | Established | does not prove that the peer has restarted | the established one |
//! | Established | proves it | both, until a KEEPALIVE confirms the newcomer; then the newcomer |
//!
//! The loser is closed when the winner's OPEN has been accepted, never before. Beside an established connection our OPEN is held back
//! until the peer's has proved the restart, so that a peer which only dialed late never takes the newcomer for the winner; and the
//! KEEPALIVE tells a living newcomer from one of which only the first words have arrived, late.

use std::{sync::Arc, time::Instant};

use super::{Action, Connection, Direction, Ending, Negotiated, Phase, Session};
use crate::{
    ConnectionId,
    wire::{Notification, code},
};

impl Session {
    /// May another connection stand beside an established one? Only where its OPEN can prove a restart.
    pub(super) fn admit_beside_established(&mut self, now: Instant) -> Result<(), &'static str> {
        let Some(old) = self.connections.iter_mut().find(|connection| connection.is_established()) else {
            return Ok(());
        };
        if old.phase.negotiated().is_some_and(|negotiated| negotiated.restart.is_some()) {
            return Ok(());
        }
        // A peer that lost its end does not know ours: our KEEPALIVE is answered with a reset, and its next try finds us waiting.
        if old.probe(now) {
            self.actions.push_back(Action::SendKeepalive(old.id));
        }
        Err("a session with this peer is established")
    }

    /// Decides between `id`, whose OPEN has been accepted, and the other one. Closes the loser; true if `id` goes on.
    pub(super) fn survives_collision(
        &mut self,
        id: ConnectionId,
        negotiated: &Negotiated,
        now: Instant,
    ) -> bool {
        let Some(other) = self.connections.iter().find(|c| c.id != id && !matches!(c.phase, Phase::OpenSent))
        else {
            return true;
        };
        let other_id = other.id;
        let newcomer_wins = match &other.phase {
            Phase::Established(before) if proves_restart(other, before, negotiated) => return true,
            Phase::Established(_) => false,
            _ => other.direction != self.collision_winner(negotiated),
        };
        let loser = if newcomer_wins { other_id } else { id };
        self.close(loser, now);
        newcomer_wins
    }

    fn collision_winner(&self, negotiated: &Negotiated) -> Direction {
        let ours = (self.config.router_id, self.config.local_asn);
        let theirs = (negotiated.remote_router_id, negotiated.remote_asn);
        if ours > theirs { Direction::Outgoing } else { Direction::Incoming }
    }

    /// Establishes the confirmed connection, unless another one may still beat it. Without this wait one side could settle on a
    /// connection that the other side, whose view is a message older, is just closing; both would be lost.
    pub(super) fn promote(&mut self, now: Instant) {
        self.open_reserved();
        let confirmed = self.connections.iter().find_map(|connection| match &connection.phase {
            Phase::OpenConfirm(negotiated) if connection.confirmed => {
                Some((connection.id, connection.direction, Arc::clone(negotiated)))
            }
            _ => None,
        });
        let Some((id, direction, negotiated)) = confirmed else { return };
        let displaces = self.established().is_some();
        if self.connections.len() == 1 || displaces || direction == self.collision_winner(&negotiated) {
            self.establish(id, negotiated, now);
        }
    }

    /// What stood beside an established connection is on its own now.
    fn open_reserved(&mut self) {
        if self.established().is_none() {
            let reserved = self.connections.iter().filter(|connection| connection.reserved);
            reserved
                .map(|connection| connection.id)
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|id| self.send_open(id));
        }
    }

    pub(super) fn establish(&mut self, id: ConnectionId, negotiated: Arc<Negotiated>, now: Instant) {
        // Not by `close`, which would promote the one that is being established.
        let losers: Vec<_> = self.connections.extract_if(.., |connection| connection.id != id).collect();
        for loser in losers {
            // For a peer that has restarted, the established one has long been gone.
            self.forget(&loser, (!loser.is_established()).then(collision), Ending::Transport);
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
    fn close(&mut self, id: ConnectionId, now: Instant) {
        if let Some(index) = self.connections.iter().position(|c| c.id == id) {
            let connection = self.connections.remove(index);
            self.forget(&connection, Some(collision()), Ending::Transport);
            self.report("collision", now);
            self.promote(now);
        }
    }
}

fn collision() -> Notification {
    Notification::new(code::CEASE, code::cease::COLLISION)
}

/// Only in the first session after a start does a peer say R. So it has started anew if it says so now and did not before; or if it
/// dialed before and dials again, for it has one outgoing connection at a time. Anything else may be the other half of a simultaneous
/// opening, late.
fn proves_restart(old: &Connection, before: &Negotiated, now: &Negotiated) -> bool {
    let (Some(before), Some(now)) = (before.restart, now.restart) else { return false };
    now.restarting && (!before.restarting || old.direction == Direction::Incoming)
}
