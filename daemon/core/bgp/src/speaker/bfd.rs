//! What somebody who watches the path tells the speaker.

use std::time::Instant;

use super::Speaker;
use crate::wire::{Notification, code};

impl Speaker {
    /// BFD says that the path to the peer of this name has failed: an established session ends with Cease/BFD Down (RFC 9384), its routes
    /// go, and it is tried again as after any failure of the network. One that is not established has nothing to lose.
    pub fn handle_bfd_down(&mut self, name: &str, now: Instant) {
        let Some(peer) = self.peers.values_mut().find(|peer| *peer.config.name == *name) else { return };
        let Some((connection, _)) = peer.session.established() else { return };
        let notification = Notification::new(code::CEASE, code::cease::BFD_DOWN);
        let id = peer.id;
        peer.session.handle_error(connection, notification, now);
        self.settle(id);
    }
}
