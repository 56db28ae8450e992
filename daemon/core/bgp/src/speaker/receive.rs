//! Bytes from a peer: cut into messages, judged by the session, applied to the RIB.

use std::{sync::Arc, time::Instant};

use super::{
    ConnectionId, Event, PeerId, Speaker,
    import::{Known, Refusals},
};
use crate::{
    Families, Family,
    fsm::Input,
    refresh,
    rib::{ImportRules, TooManyPaths},
    wire::{Announcement, Frame, MessageType, Nlri, Notification, Open, RouteRefresh, Update, frame},
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
        self.answer_requests(id);
        self.settle(id, now);
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
                Err(notification) => {
                    self.fail(id, connection, notification, now);
                    break;
                }
            }
        }
        used
    }

    fn handle_frame(&mut self, id: PeerId, connection: ConnectionId, message: Frame<'_>, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.received.add(message.kind);
        let input = match message.kind {
            MessageType::Open => Open::decode(message.body).map(Input::Open),
            MessageType::Keepalive => Ok(Input::Keepalive),
            MessageType::Update => Ok(Input::Update),
            MessageType::RouteRefresh => {
                let up = peer.up.as_ref().filter(|up| up.connection == connection);
                let enhanced = up.is_some_and(|up| up.negotiated.enhanced_refresh);
                RouteRefresh::decode(message.body, enhanced).map(Input::RouteRefresh)
            }
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
        // What comes next, this message's content too, is judged by what the message changed.
        self.settle_actions(id, now);
        match message.kind {
            MessageType::Update => self.handle_update(id, connection, message.body, now),
            MessageType::RouteRefresh => self.handle_refresh(id, connection, message.body, now),
            _ => {}
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

    /// A request, or a mark around an answer to ours. Families and subtypes that we do not know are ignored (RFC 2918 section 4, RFC
    /// 7313 section 5).
    fn handle_refresh(&mut self, id: PeerId, connection: ConnectionId, body: &[u8], now: Instant) {
        let up = self.peers.get_mut(&id).and_then(|peer| peer.up.as_mut());
        let Some(up) = up.filter(|up| up.connection == connection) else { return };
        let Ok(message) = RouteRefresh::decode(body, up.negotiated.enhanced_refresh) else { return };
        match up.refresh.handle_message(message, now) {
            Some(refresh::Order::SendAll(family)) => up.asked.insert(family),
            Some(refresh::Order::Mark(family)) => self.rib.begin_refresh(id, family),
            Some(refresh::Order::Sweep(family)) => self.sweep_refresh(id, family),
            None => {}
        }
    }

    /// Sends what was asked for, once however often it was: an answer begins with a look at the whole table.
    fn answer_requests(&mut self, id: PeerId) {
        let up = self.peers.get_mut(&id).and_then(|peer| peer.up.as_mut());
        let asked = up.map_or(Families::NONE, |up| std::mem::replace(&mut up.asked, Families::NONE));
        asked.iter().for_each(|family| self.refresh_exports(id, family));
    }

    fn sweep_refresh(&mut self, id: PeerId, family: Family) {
        let gone = self.rib.end_refresh(id, family);
        self.note_all(gone);
    }

    /// The peer did not end a refresh in time: what it has not announced again is gone.
    pub(super) fn refresh_timeout(&mut self, id: PeerId, now: Instant) {
        let up = self.peers.get_mut(&id).and_then(|peer| peer.up.as_mut());
        let due = up.map_or(Families::NONE, |up| up.refresh.handle_timeout(now));
        due.iter().for_each(|family| self.sweep_refresh(id, family));
    }

    fn apply_update(&mut self, id: PeerId, update: Update, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let name = Arc::clone(&peer.config.name);
        let Some(rules) = peer.rules.clone() else { return };
        // One event for each message, however many faults it is stuffed with.
        if let Some(fault) = update.faults.into_iter().max_by_key(|fault| fault.disposition) {
            peer.update_faults += 1;
            self.events.push_back(Event::UpdateFault { peer: Arc::clone(&name), fault });
        }
        for Nlri { prefix, path_id } in update.withdrawn {
            let change = self.rib.withdraw(prefix, Some(id), path_id);
            self.note(prefix, change);
        }
        let mut refused = Refusals::new(name);
        for announcement in update.announced {
            self.announce(&rules, announcement, &mut refused);
        }
        self.events.extend(refused.events());
        if let Some(family) = update.end_of_rib {
            self.end_of_rib(id, family);
        }
        self.check_prefix_limit(id, now);
    }

    /// Imports prefixes that came together. What the first of a class becomes the others of it become.
    fn announce(&mut self, rules: &ImportRules, announcement: Announcement, refused: &mut Refusals) {
        let received = self.rib.intern(announcement.attributes);
        let mut known = Known::default();
        for Nlri { prefix, path_id } in announcement.prefixes {
            let (bundle, ineligible) = known.import(&mut self.rib, rules, prefix, &received);
            let ineligible = rules.judge_prefix(prefix).or(ineligible);
            refused.look_at(prefix, &bundle, ineligible);
            match self.rib.announce(prefix, path_id, &bundle, ineligible) {
                Ok(change) => self.note(prefix, change),
                Err(TooManyPaths) => refused.too_many(prefix),
            }
        }
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
        self.settle_actions(id, now);
    }
}
