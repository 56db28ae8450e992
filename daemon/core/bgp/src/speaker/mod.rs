//! The façade: peers, their connections, the RIB, and what each peer is told.
//!
//! How to drive it:
//! 1. [`Speaker::new`], then [`Speaker::set_topology`], then and at every change. Sessions start at once.
//! 2. Feed what happens: [`Speaker::handle_connected`] or [`Speaker::handle_dial_failed`] in answer to [`Event::Dial`],
//!    [`Speaker::handle_accepted`], [`Speaker::handle_bytes`], [`Speaker::handle_closed`], and [`Speaker::handle_timeout`] at
//!    [`Speaker::poll_timeout`].
//! 3. After each of these: [`Speaker::poll_event`] until `None`, [`Speaker::take_changed`] for the prefixes whose paths changed, and
//!    [`Speaker::poll_transmit`] for each connection whose transport has room, until it writes nothing.
//!
//! Orders come in between: [`Speaker::apply`] and [`Speaker::reset`]; [`Speaker::handle_path_down`] and
//! [`Speaker::handle_link_down`] from whoever watches the ways; at the end [`Speaker::drain`] and, at [`Event::Drained`], the end of the
//! process, or [`Speaker::suspend`] for a restart, or [`Speaker::shut_down`]. After these no session starts again.
//!
//! Nothing blocks and nothing fails: a peer's misbehaviour ends that peer's session and no more.

mod apply;
mod change;
mod config;
mod departure;
mod detail;
mod dynamic;
mod event;
mod group;
mod import;
mod messages;
mod orders;
mod peer;
mod receive;
mod restart;
mod routes;
mod show;
mod tables;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use ipnet::IpNet;
use isthmus_prefix::Seed;

pub use crate::rib::Multipath;
use crate::{
    adj_out::Changes,
    dynamic::Members,
    fsm::{Action, Jitter, State},
    restart::{Deferral, Departure},
    rib::{NextHops, Path, Rib, Topology},
    wire::{Notification, encode_keepalive},
};
pub use config::{
    AddPathSelection, Config, DynamicPeers, Guards, NextHopMode, PeerConfig, RestartConfig, RestartMode,
};
pub use detail::{FamilyDetail, PeerDetail, RestartDetail};
pub use event::{Event, Refused};
pub use group::Member;
pub use messages::Messages;
pub use orders::Reset;
pub use peer::PeerStatus;
use peer::{Link, Peer, Up};
use routes::Snapshot;
pub use show::{ExportReport, PathReport};
pub use tables::{Entry, Question, Shown, Table};

/// Names a peer between the driver and the speaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// Names a connection between the driver and the speaker; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// The BGP speaker. See the module for the order of calls.
#[derive(Debug)]
pub struct Speaker {
    config: Config,
    peers: BTreeMap<PeerId, Peer>,
    owners: HashMap<ConnectionId, PeerId>,
    rib: Rib,
    topology: Arc<Topology>,
    events: VecDeque<Event>,
    /// What the peers have not been told about yet.
    changes: Changes,
    snapshot: Snapshot,
    /// Prefixes that the driver has not been told about yet, and how many different ones they were when that was last looked at.
    changed: Vec<IpNet>,
    changed_distinct: usize,
    /// How far we are on the way out (RFC 8326).
    departure: Departure,
    /// Whether this node is still coming back from a restart.
    deferral: Deferral,
    /// Peers that are not configured one by one.
    members: Members,
    seed: Seed,
    jitter: Jitter,
    next_connection: u64,
    next_peer: u32,
}

impl Speaker {
    /// Starts every session. `seed` is random, and nobody else knows it: it spreads retries, and places in hash tables.
    pub fn new(config: Config, seed: u64, now: Instant) -> Self {
        let tables = Seed::new(seed);
        let nothing =
            Config { announce: Vec::new(), peers: Vec::new(), dynamic: Vec::new(), ..config.clone() };
        let mut speaker = Self {
            rib: Rib::new(config.multipath, tables),
            topology: Arc::default(),
            config: nothing,
            peers: BTreeMap::new(),
            owners: HashMap::new(),
            events: VecDeque::new(),
            changes: Changes::default(),
            snapshot: Snapshot::default(),
            changed: Vec::new(),
            changed_distinct: 0,
            departure: Departure::default(),
            deferral: Deferral::settled(),
            members: Members::default(),
            seed: tables,
            jitter: Jitter::new(seed),
            next_connection: 0,
            next_peer: 0,
        };
        speaker.deferral = deferral(&config, now);
        speaker.apply(config, now);
        speaker
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Dialing worked. `None`: the connection is not wanted any more, close it.
    pub fn handle_connected(&mut self, peer: PeerId, own: NextHops, now: Instant) -> Option<ConnectionId> {
        let id = self.new_connection();
        let owner = self.peers.get_mut(&peer)?;
        if !owner.session.handle_connected(id, now) {
            self.settle(peer, now);
            return None;
        }
        self.attach(peer, id, own, now);
        Some(id)
    }

    /// Dialing failed; `why` is for a person: "peer refused the connection".
    pub fn handle_dial_failed(&mut self, peer: PeerId, why: &str, now: Instant) {
        if let Some(owner) = self.peers.get_mut(&peer) {
            owner.session.handle_dial_failed(why, now);
            self.settle(peer, now);
        }
    }

    /// Somebody connected; `scope` is the index of the interface, where the address is link-local.
    ///
    /// # Errors
    /// Why the connection should be closed without a word.
    pub fn handle_accepted(
        &mut self,
        remote: IpAddr,
        scope: Option<u32>,
        own: NextHops,
        now: Instant,
    ) -> Result<ConnectionId, Refused> {
        let peer = self.peer_at(remote, scope, now)?;
        let id = self.new_connection();
        let owner = self.peers.get_mut(&peer).ok_or(Refused::Unknown)?;
        owner.session.handle_accepted(id, now).map_err(Refused::Unwanted)?;
        self.attach(peer, id, own, now);
        Ok(id)
    }

    /// The transport is gone; `why` is for a person.
    pub fn handle_closed(&mut self, connection: ConnectionId, why: &str, now: Instant) {
        let Some(peer) = self.owners.get(&connection).copied() else { return };
        if let Some(owner) = self.peers.get_mut(&peer) {
            owner.session.handle_closed(connection, why, now);
            self.settle(peer, now);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.session.handle_timeout(now);
            }
            self.settle_actions(id, now);
            self.restart_timeout(id, now);
        }
        self.deferral_timeout(now);
        self.departure_timeout(now);
        self.dynamic_timeout(now);
        self.trim();
    }

    /// When to call [`Speaker::handle_timeout`], and what for.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let of_peers = self.peers.values().flat_map(Peer::timers);
        of_peers
            .chain(self.deferral.poll_timeout().map(|at| (at, "deferred selection")))
            .chain(self.departure.poll_timeout().map(|at| (at, "drain")))
            .chain(self.members.poll_timeout().map(|at| (at, "dynamic peers")))
            .min_by_key(|(at, _)| *at)
    }

    /// Next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Connections that have something to send.
    pub fn pending_connections(&self) -> Vec<ConnectionId> {
        let changes = (!self.deferral.defers()).then_some(&self.changes);
        self.peers.values().flat_map(|peer| peer.pending(changes)).collect()
    }

    /// Every path to a prefix, with its verdict.
    pub fn paths(&self, prefix: &IpNet) -> &[Path] {
        self.rib.paths(*prefix)
    }

    /// Every prefix of the table.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.rib.prefixes()
    }

    /// A peer's name.
    pub fn peer_name(&self, peer: PeerId) -> Option<&Arc<str>> {
        self.peers.get(&peer).map(|peer| &peer.config.name)
    }

    /// State of every peer, by name.
    pub fn status(&self) -> Vec<PeerStatus> {
        let mut all: Vec<_> = self.peers.values().map(|peer| peer.status(self.rib.counts(peer.id))).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// True when every peer that is to have a session is established and has sent End-of-RIB for every family: what is not here now is
    /// really gone. Peers of a template count while they are there.
    pub fn synchronized(&self) -> bool {
        self.peers.values().filter(|peer| peer.is_expected()).all(Peer::synchronized)
    }

    fn new_connection(&mut self) -> ConnectionId {
        self.next_connection += 1;
        ConnectionId(self.next_connection)
    }

    fn attach(&mut self, peer: PeerId, id: ConnectionId, own: NextHops, now: Instant) {
        self.owners.insert(id, peer);
        if let Some(owner) = self.peers.get_mut(&peer) {
            owner.links.push(Link::new(id, own));
        }
        self.settle(peer, now);
    }

    /// Carries out what a peer's session decided, until it wants nothing more.
    fn settle(&mut self, id: PeerId, now: Instant) {
        self.settle_actions(id, now);
        self.trim();
    }

    fn settle_actions(&mut self, id: PeerId, now: Instant) {
        while let Some(action) = self.peers.get_mut(&id).and_then(|peer| peer.session.poll_action()) {
            self.carry_out(id, action, now);
        }
    }

    fn carry_out(&mut self, id: PeerId, action: Action, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        match action {
            Action::Dial => {
                let PeerConfig { address, port, .. } = peer.config;
                self.events.push_back(Event::Dial { peer: id, address, port });
            }
            Action::SendOpen(connection, open) => {
                if let Some(link) = peer.link(connection) {
                    // Our own OPEN has a handful of capabilities and always fits.
                    let encoded = open.encode(&mut link.control);
                    debug_assert!(encoded.is_ok());
                }
            }
            Action::SendKeepalive(connection) => {
                if let Some(link) = peer.link(connection) {
                    encode_keepalive(&mut link.control);
                }
            }
            Action::Close(connection, notification) => self.close(id, connection, notification),
            Action::Up(connection, negotiated) => self.up(id, connection, negotiated, now),
            Action::Down(_, ending) => self.down(id, ending, now),
            Action::Changed { from, to } => {
                let (name, session) = (Arc::clone(&peer.config.name), &peer.session);
                // Whatever comes next, a session that has just ended did so for this reason.
                let ended =
                    session.last_error().filter(|error| from == State::Established && error.at == now);
                let reason = ended.map_or_else(|| session.reason(), |error| error.text.clone());
                self.events.push_back(Event::StateChanged { peer: name, from, to, reason });
            }
        }
    }

    fn close(&mut self, id: PeerId, connection: ConnectionId, notification: Option<Notification>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        self.owners.remove(&connection);
        let link = peer.links.iter().position(|link| link.id == connection).map(|at| peer.links.remove(at));
        let mut last_words = link.map(|link| link.control).unwrap_or_default();
        let name = Arc::clone(&peer.config.name);
        if let Some(notification) = notification {
            // Its data is bounded where it is made; without room for it the connection just closes.
            let encoded = notification.encode(&mut last_words);
            debug_assert!(encoded.is_ok());
            self.events.push_back(Event::Notified { peer: name, sent: true, notification });
        }
        peer.sent.count(&last_words);
        self.events.push_back(Event::Close { connection, last_words });
    }
}

/// Whom a process that starts waits for; peers are numbered in their order.
fn deferral(config: &Config, now: Instant) -> Deferral {
    let RestartConfig { forwarding, deferral, .. } = config.restart;
    let peers = (0..).zip(&config.peers).filter(|(_, peer)| peer.shutdown.is_none());
    let peers: Vec<_> = peers.map(|(id, _)| PeerId(id)).collect();
    if peers.is_empty() && !config.dynamic.is_empty() {
        return Deferral::of_strangers(forwarding, now + deferral);
    }
    Deferral::new(forwarding, peers, now + deferral)
}

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod deferral_tests;
#[cfg(test)]
mod departure_tests;
#[cfg(test)]
mod dynamic_tests;
#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod net;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod played;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;
