//! Graceful restart in the speaker: what the pure machines of [`crate::restart`] decide is done to routes and sessions.
//!
//! While this node comes back and its kernel goes on forwarding, nothing is selected for others to see: neither the driver nor the
//! peers are told of routes before all peers have told theirs, or the time is over (RFC 4724 section 4.1).

use std::{sync::Arc, time::Instant};

use super::{Event, PeerConfig, PeerId, RestartMode, Speaker};
use crate::{
    Families, Family,
    fsm::{Ending, RestartOffer},
    restart::Order,
};

impl Speaker {
    /// True while routes are kept back because this node has just come back and its peers have not told all.
    pub fn defers(&self) -> bool {
        self.deferral.defers()
    }

    /// Names of the peers that are waited for.
    pub fn waiting_for(&self) -> Vec<Arc<str>> {
        self.deferral.waiting_for().filter_map(|id| self.peer_name(id).cloned()).collect()
    }

    /// The session is gone: its routes go, or stay for as long as graceful restart says.
    pub(super) fn down(&mut self, id: PeerId, ending: Ending, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(up) = peer.up.take() else { return };
        peer.away = Some(up.origin());
        let orders = peer.keeper.handle_down(ending, &up.negotiated, now);
        let remote = peer.remote();
        self.keep(id, orders);
        self.deferral.handle_down(id);
        self.members.handle_down(remote, now);
    }

    pub(super) fn end_of_rib(&mut self, id: PeerId, family: Family) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(up) = &mut peer.up {
            up.end_of_rib.insert(family);
            up.refresh.handle_end_of_rib(family);
        }
        let orders = peer.keeper.handle_end_of_rib(family);
        self.keep(id, orders);
        if self.deferral.handle_end_of_rib(id, family) {
            self.release();
        }
    }

    pub(super) fn restart_timeout(&mut self, id: PeerId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let orders = peer.keeper.handle_timeout(now);
        self.keep(id, orders);
        self.refresh_timeout(id, now);
    }

    pub(super) fn deferral_timeout(&mut self, now: Instant) {
        if self.deferral.handle_timeout(now) {
            self.release();
        }
        self.renew_restart_offers();
    }

    /// Does to a peer's routes what its keeper ordered.
    pub(super) fn keep(&mut self, id: PeerId, orders: Vec<Order>) {
        for order in orders {
            let before = self.rib.counts(id).stale;
            let (family, changed) = match order {
                Order::Mark(family) => (family, self.rib.mark_stale(id, Families::from_iter([family]))),
                Order::Sweep(family) => (family, self.rib.sweep_stale(id, Families::from_iter([family]))),
                Order::Drop(family) => (family, self.rib.withdraw_peer(id, Families::from_iter([family]))),
            };
            self.note_all(changed);
            let of_family = |stale: [u32; 2]| stale[family.index()];
            let paths = of_family(before).saturating_sub(of_family(self.rib.counts(id).stale));
            let Some(peer) = self.peers.get_mut(&id) else { return };
            if paths > 0 {
                self.events.push_back(Event::StaleGone {
                    peer: Arc::clone(&peer.config.name),
                    family,
                    paths,
                });
            }
            if peer.up.is_none() && peer.keeper.stale().is_empty() {
                (peer.away, peer.rules) = (None, None);
            }
        }
    }

    /// Nothing of what is kept of a peer is worth keeping any more.
    pub(super) fn abandon(&mut self, id: PeerId) {
        let orders = self.peers.get_mut(&id).map(|peer| peer.keeper.abandon());
        self.keep(id, orders.unwrap_or_default());
    }

    /// A peer is not to have a session: nothing is kept of it, and nobody waits for it.
    pub(super) fn give_up(&mut self, id: PeerId) {
        self.abandon(id);
        if self.deferral.remove(id) {
            self.release();
        }
    }

    /// This node has come back: everything that was kept back is told.
    pub(super) fn release(&mut self) {
        self.events.push_back(Event::RestartOver);
        self.renew_restart_offers();
    }

    /// What the next OPENs say about our restart depends on whether it is over.
    pub(super) fn renew_restart_offers(&mut self) {
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            let Some(peer) = self.peers.get(&id) else { continue };
            let offer = self.restart_offer(&peer.config);
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.session.set_restart_offer(offer);
            }
        }
    }

    pub(super) fn restart_offer(&self, peer: &PeerConfig) -> Option<RestartOffer> {
        match peer.restart {
            RestartMode::Off => None,
            RestartMode::Helper => Some(RestartOffer::HELPER),
            RestartMode::Full => Some(self.deferral.offer(self.config.restart.time)),
        }
    }
}
