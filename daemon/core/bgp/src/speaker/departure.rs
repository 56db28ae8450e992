//! How this node goes: at once, for a restart, or drained.

use std::time::Instant;

use super::{Event, PeerId, Speaker};
use crate::{
    restart::Parting,
    wire::{Notification, code},
};

impl Speaker {
    /// Ends every session for good: Cease/Administrative Shutdown with this text (RFC 9003).
    pub fn shut_down(&mut self, text: &str, now: Instant) {
        let notification = Notification::shutdown(code::cease::SHUTDOWN, text);
        self.departure.leave();
        self.stop_all(&notification, "administratively shut down", now);
    }

    /// Ends every session for a restart of this node: peers that keep our routes meanwhile do, the others are told that we shut down.
    /// Nothing changes for the kernel: [`Speaker::take_changed`] is silent from now on.
    pub fn suspend(&mut self, text: &str, now: Instant) {
        self.departure.suspend();
        for id in self.ids() {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.session.suspend(text, now);
            }
            self.settle(id, now);
        }
    }

    /// Asks every peer to prefer other ways (RFC 8326); at `until` every session ends with a Hard Reset, and [`Event::Drained`] says so.
    pub fn drain(&mut self, until: Instant) {
        if self.departure.drain(until).is_some() {
            self.review_all_exports();
        }
    }

    /// Takes a drain back that is not through.
    pub fn resume(&mut self) {
        if self.departure.resume().is_some() {
            self.review_all_exports();
        }
    }

    /// True between [`Speaker::drain`] and the end of the sessions.
    pub fn is_draining(&self) -> bool {
        self.departure.is_draining()
    }

    pub(super) fn departure_timeout(&mut self, now: Instant) {
        match self.departure.handle_timeout(now) {
            Some(Parting::HardReset) => {
                // A Hard Reset to those that would keep our routes otherwise; the others would not know the word.
                let notification = Notification::shutdown(code::cease::SHUTDOWN, "drained");
                self.stop_all(&notification, "drained", now);
                self.events.push_back(Event::Drained);
            }
            Some(Parting::Lower | Parting::Restore) | None => {}
        }
    }

    fn stop_all(&mut self, notification: &Notification, why: &str, now: Instant) {
        for id in self.ids() {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.session.stop(notification, why, now);
            }
            self.settle(id, now);
        }
    }

    fn review_all_exports(&mut self) {
        self.ids().into_iter().for_each(|id| self.review_exports(id));
    }

    pub(super) fn ids(&self) -> Vec<PeerId> {
        self.peers.keys().copied().collect()
    }
}
