//! What an operator orders without changing the configuration.

use std::time::Instant;

use super::{PeerId, Speaker};

impl Speaker {
    /// Ends the session with Cease/Administrative Reset, and any hold-down; it starts again at once.
    pub fn reset(&mut self, id: PeerId, now: Instant) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.session.clear("", now);
        }
        self.settle(id);
    }

    /// Judges every path of the peer again by the rules in force.
    pub fn import_again(&mut self, id: PeerId) {
        self.judge_again(id);
        self.settle(id);
    }

    /// Sends the peer everything again that it was told, even though it should have it.
    pub fn export_again(&mut self, id: PeerId) {
        let Some(up) = self.peers.get(&id).and_then(|peer| peer.up.as_ref()) else { return };
        for family in up.negotiated.families.iter() {
            self.refresh_exports(id, family);
        }
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
        net.nodes[0].speaker.reset(PeerId(0), now);
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
        net.nodes[0].speaker.export_again(PeerId(0));
        net.nodes[0].speaker.import_again(PeerId(0));
        net.run(std::time::Duration::from_millis(100));
        // One UPDATE with the one prefix that it was told, and around both families the marks of RFC 7313.
        assert_eq!(heard(&net), before + 5);
        assert_eq!(net.status(0, 1).established_count, 1);
        assert_eq!(net.through(1, ONE), ["node0"]);
    }
}
