//! What a packet of the peer does (RFC 5880 section 6.8.6, from where the session has been found).

use std::time::Instant;

use super::{Remote, Session};
use crate::{Diagnostic, Packet, State};

impl Session {
    /// Takes a packet that was found to be this session's.
    pub fn handle_packet(&mut self, packet: &Packet, now: Instant) {
        let was = self.remote.map(|remote| remote.state);
        self.remote = Some(remote(packet, now));
        if packet.fin {
            self.confirmed();
        }
        // A session that is held down by its administrator does not answer.
        self.answer |= packet.poll && self.state != State::AdminDown;
        let (from, to) = (self.state, next(self.state, packet.state));
        if to != from {
            self.enter(to, reason(to, self.diagnostic), now);
        } else if (was == Some(State::AdminDown)) != (packet.state == State::AdminDown) {
            self.tell(from, now);
        }
    }
}

fn remote(packet: &Packet, now: Instant) -> Remote {
    Remote {
        discriminator: packet.mine,
        state: packet.state,
        diagnostic: packet.diagnostic,
        multiplier: packet.multiplier,
        desired_min_tx: packet.desired_min_tx,
        required_min_rx: packet.required_min_rx,
        demand: packet.demand,
        heard: now,
    }
}

/// The table behind the diagram.
fn next(own: State, peer: State) -> State {
    use State::{AdminDown, Down, Init, Up};
    match (own, peer) {
        (AdminDown, _) => AdminDown,
        (_, AdminDown) | (Up, Down) | (Down, Up) => Down,
        (Down | Init, Down) => Init,
        (_, Init) | (Init | Up, Up) => Up,
    }
}

/// On the way up the peer may still read why it went down.
fn reason(to: State, before: Diagnostic) -> Diagnostic {
    match to {
        State::Up => Diagnostic::NONE,
        State::Down => Diagnostic::NEIGHBOR_DOWN,
        State::Init | State::AdminDown => before,
    }
}
