//! What an operator, or another part of this node, orders about one peer.

use std::time::Instant;

use super::{PeerId, Speaker};
use crate::Family;

/// Kinds of reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The session ends with Cease/Administrative Reset and starts over; a hold-down ends, too.
    Hard,
    /// What the peer sent is judged again, and it is asked to send it again where it can.
    SoftIn,
    /// The peer is sent everything again.
    SoftOut,
}

impl Speaker {
    /// Resets the peer of this name. False: there is none.
    pub fn reset(&mut self, peer: &str, reset: Reset, now: Instant) -> bool {
        let Some(id) = self.id_of(peer) else { return false };
        match reset {
            Reset::Hard => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.session.clear("reset by an operator", now);
                }
            }
            Reset::SoftIn => {
                self.judge_again(id);
                self.ask_again(id);
            }
            Reset::SoftOut => Family::ALL.into_iter().for_each(|family| self.refresh_exports(id, family)),
        }
        self.settle(id, now);
        true
    }

    /// The path to the peer of this name is dead, as BFD found (RFC 5882): its session ends with Cease/BFD Down (RFC 9384), and what
    /// was kept of it over a restart goes, too, unless it is configured to stay.
    pub fn handle_path_down(&mut self, peer: &str, why: &str, now: Instant) {
        let Some(id) = self.id_of(peer) else { return };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.session.handle_path_down(why, now);
        self.settle_actions(id, now);
        let orders = self.peers.get_mut(&id).map(|peer| peer.keeper.handle_path_down());
        self.keep(id, orders.unwrap_or_default());
        self.trim();
    }

    /// The link to the peer of this name is down: nothing can be said on it any more.
    pub fn handle_link_down(&mut self, peer: &str, why: &str, now: Instant) {
        let Some(id) = self.id_of(peer) else { return };
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.session.handle_link_down(why, now);
        }
        self.settle_actions(id, now);
        self.abandon(id);
        self.trim();
    }

    fn ask_again(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(up) = &peer.up else { return };
        let requests: Vec<_> = Family::ALL.into_iter().filter_map(|family| up.refresh.ask(family)).collect();
        let connection = up.connection;
        let Some(link) = peer.link(connection) else { return };
        for request in requests {
            let encoded = request.encode(&mut link.control);
            debug_assert!(encoded.is_ok(), "four octets always fit");
        }
    }

    pub(super) fn id_of(&self, name: &str) -> Option<PeerId> {
        self.peers.values().find(|peer| *peer.config.name == *name).map(|peer| peer.id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::net::*;
    use super::*;
    use crate::{Event, fsm::State};

    #[test]
    fn a_reset_session_comes_back_and_the_peer_knows_why_it_went() {
        let mut net = pair();
        net.seconds(5);
        let now = net.now;
        assert!(net.nodes[0].speaker.reset("node1", Reset::Hard, now));
        net.seconds(5);
        let told = |event: &Event| matches!(event, Event::Notified { sent: false, notification, .. } if (notification.code, notification.subcode) == (6, 4));
        assert!(net.nodes[1].events.iter().any(told), "{:?}", net.nodes[1].events);
        let status = net.status(0, 1);
        assert_eq!((status.state, status.established_count), (State::Established, 2));
        assert_eq!(net.through(1, ONE), ["node0"]);
    }

    #[test]
    fn soft_orders_leave_the_session_alone() {
        let mut net = pair();
        net.seconds(5);
        let heard = |net: &Net| net.status(1, 0).messages_received;
        let before = heard(&net);
        let now = net.now;
        net.nodes[0].speaker.reset("node1", Reset::SoftOut, now);
        net.nodes[0].speaker.reset("node1", Reset::SoftIn, now);
        net.run(std::time::Duration::from_millis(100));
        // One UPDATE with the one prefix that it was told, and around both families the marks of RFC 7313; and our two requests.
        assert_eq!(heard(&net), before + 7);
        assert_eq!(net.status(0, 1).established_count, 1);
        assert_eq!(net.through(1, ONE), ["node0"]);
    }
}
