//! Bytes from a peer: cut into messages, judged by the session, applied to the RIB.

use std::{sync::Arc, time::Instant};

use super::{ConnectionId, Event, PeerId, Speaker};
use crate::{
    Family,
    fsm::Input,
    rib::Source,
    wire::{Frame, MessageType, Nlri, Notification, Open, RouteRefresh, Update, frame},
};

impl Speaker {
    /// Bytes arrived on a connection. Hand over chunks of bounded size: between two of them timers are served.
    pub fn handle_bytes(&mut self, connection: ConnectionId, bytes: &[u8], now: Instant) {
        let Some(id) = self.owners.get(&connection).copied() else { return };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.session.handle_heard(connection, now);
        let Some(link) = peer.link(connection) else { return };
        let mut input = std::mem::take(&mut link.input);
        input.extend_from_slice(bytes);
        let used = self.handle_stream(id, connection, &input, now);
        input.drain(..used);
        if let Some(link) = self.peers.get_mut(&id).and_then(|peer| peer.link(connection)) {
            link.input = input;
        }
        self.settle(id);
    }

    /// Handles every complete message, as long as the connection stands; returns how many bytes that were.
    fn handle_stream(&mut self, id: PeerId, connection: ConnectionId, stream: &[u8], now: Instant) -> usize {
        let mut used = 0;
        while self.owners.contains_key(&connection) {
            match frame(&stream[used..]) {
                Ok(Some(message)) => {
                    used += message.wire_length();
                    self.handle_frame(id, connection, message, now);
                }
                Ok(None) => break,
                Err(notification) => self.fail(id, connection, notification, now),
            }
        }
        used
    }

    fn handle_frame(&mut self, id: PeerId, connection: ConnectionId, message: Frame<'_>, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.messages_received += 1;
        let input = match message.kind {
            MessageType::Open => Open::decode(message.body).map(Input::Open),
            MessageType::Keepalive => Ok(Input::Keepalive),
            MessageType::Update => Ok(Input::Update),
            MessageType::RouteRefresh => RouteRefresh::decode(message.body).map(Input::RouteRefresh),
            MessageType::Notification => Notification::decode(message.body).map(Input::Notification),
        };
        match input {
            Err(notification) => return self.fail(id, connection, notification, now),
            Ok(Input::Notification(notification)) => {
                let peer_name = Arc::clone(&peer.config.name);
                let event =
                    Event::Notified { peer: peer_name, sent: false, notification: notification.clone() };
                self.events.push_back(event);
                peer.session.handle_input(connection, Input::Notification(notification), now);
            }
            Ok(input) => peer.session.handle_input(connection, input, now),
        }
        // What comes next, this UPDATE's content too, is judged by what the message changed.
        self.settle_actions(id);
        if message.kind == MessageType::Update {
            self.handle_update(id, connection, message.body, now);
        }
    }

    fn handle_update(&mut self, id: PeerId, connection: ConnectionId, body: &[u8], now: Instant) {
        let Some(peer) = self.peers.get(&id) else { return };
        let Some(up) = peer.up.as_ref().filter(|up| up.connection == connection) else { return };
        match Update::decode(body, &up.negotiated.update_context()) {
            Ok(update) => self.apply_update(id, update, now),
            Err(notification) => self.fail(id, connection, notification, now),
        }
    }

    fn apply_update(&mut self, id: PeerId, update: Update, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let rules = peer.import_rules(self.config.asn, self.config.router_id, &self.topology);
        let Some(rules) = rules else { return };
        let name = Arc::clone(&peer.config.name);
        let Some(up) = &mut peer.up else { return };
        // One event for each message, however many faults it is stuffed with.
        if let Some(fault) = update.faults.into_iter().max_by_key(|fault| fault.disposition) {
            self.events.push_back(Event::UpdateFault { peer: Arc::clone(&name), fault });
        }
        if let Some(family) = update.end_of_rib {
            up.end_of_rib.insert(family);
        }
        for Nlri { prefix, .. } in update.withdrawn {
            if self.rib.withdraw(prefix, Some(id)) {
                self.dirty.insert(prefix);
            }
        }
        let source = Source::Peer(Arc::clone(&up.neighbor));
        let mut refused = None;
        for announcement in update.announced {
            let attributes = self.rib.intern(announcement.attributes);
            for Nlri { prefix, .. } in announcement.prefixes {
                let ineligible = rules.judge(&prefix, &attributes);
                refused = refused.or_else(|| Event::next_hop_refused(&name, prefix, &attributes, ineligible));
                if self.rib.announce(prefix, source.clone(), Arc::clone(&attributes), ineligible) {
                    self.dirty.insert(prefix);
                }
            }
        }
        self.events.extend(refused);
        self.check_prefix_limit(id, now);
    }

    /// Ends the session of a peer that announced more than it may (RFC 4486 section 4).
    pub(super) fn check_prefix_limit(&mut self, id: PeerId, now: Instant) {
        let Some(peer) = self.peers.get(&id) else { return };
        let (limit, counts) = (peer.config.prefix_limit(), self.rib.counts(id));
        let Some(up) = &peer.up else { return };
        let over = Family::ALL.into_iter().find(|family| counts.received[family.index()] > limit);
        if let Some(family) = over {
            self.fail(id, up.connection, Notification::max_prefixes(family, limit), now);
        }
    }

    fn fail(&mut self, id: PeerId, connection: ConnectionId, notification: Notification, now: Instant) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.session.handle_error(connection, notification, now);
        }
        self.settle_actions(id);
    }
}
