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
//! Nothing blocks and nothing fails: a peer's misbehaviour ends that peer's session and no more.

mod apply;
mod bfd;
mod config;
mod peer;
mod receive;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use ipnet::IpNet;

pub use crate::rib::Multipath;
use crate::{
    Family,
    adj_out::AdjOut,
    fsm::{Action, Jitter, Negotiated, State},
    rib::{Ineligible, Neighbor, NextHops, Path, Rib, Source, Topology, export},
    wire::{Attributes, Fault, Notification, Peering, code, encode_keepalive},
};
pub use config::{Config, PeerConfig, Policy};
pub use peer::PeerStatus;
use peer::{Link, Peer, Up};

/// Names a peer between the driver and the speaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// Names a connection between the driver and the speaker; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Bytes after which [`Speaker::poll_transmit`] leaves the rest for the next call.
const TRANSMIT_BATCH: usize = 16 * 1024;

/// What the driver has to do or may want to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Connect to the peer; answer with [`Speaker::handle_connected`] or [`Speaker::handle_dial_failed`].
    Dial {
        /// Whom.
        peer: PeerId,
        /// Its address.
        address: IpAddr,
        /// Its TCP port.
        port: u16,
    },
    /// Write the last words if the transport takes them soon, then close. The speaker has forgotten the connection.
    Close {
        /// Which.
        connection: ConnectionId,
        /// Whole messages, perhaps none.
        last_words: Vec<u8>,
    },
    /// A session changed its state.
    StateChanged {
        /// Its name.
        peer: Arc<str>,
        /// Before.
        from: State,
        /// Now.
        to: State,
        /// Why, for a person.
        reason: String,
    },
    /// A NOTIFICATION was sent or received.
    Notified {
        /// The peer's name.
        peer: Arc<str>,
        /// True: by us.
        sent: bool,
        /// It.
        notification: Notification,
    },
    /// An UPDATE had a fault that did not end the session (RFC 7606).
    UpdateFault {
        /// The peer's name.
        peer: Arc<str>,
        /// The worst fault of the message, and what was done about it.
        fault: Fault,
    },
    /// A path is not used because of its next hop. One event for each UPDATE, or for each look at all of a peer's paths.
    NextHopRefused {
        /// The peer's name.
        peer: Arc<str>,
        /// The first such prefix.
        prefix: IpNet,
        /// Its next hop.
        next_hop: IpAddr,
        /// The rule.
        why: Ineligible,
    },
    /// Prefixes could not be announced: their attributes fit into no message.
    Unsendable {
        /// The peer's name.
        peer: Arc<str>,
        /// Why.
        error: String,
    },
}

impl Event {
    /// The event, if that is why the path is not used.
    fn next_hop_refused(
        peer: &Arc<str>,
        prefix: IpNet,
        attributes: &Attributes,
        ineligible: Option<Ineligible>,
    ) -> Option<Self> {
        let why = ineligible.filter(|why| why.is_next_hop())?;
        Some(Self::NextHopRefused { peer: Arc::clone(peer), prefix, next_hop: attributes.next_hop, why })
    }
}

/// Why an incoming connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The address is no configured peer's.
    Unknown,
    /// The peer's session does not want it now.
    Unwanted(&'static str),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no neighbor is configured with this address"),
            Self::Unwanted(why) => f.write_str(why),
        }
    }
}

/// The BGP speaker. See the module for the order of calls.
#[derive(Debug)]
pub struct Speaker {
    config: Config,
    peers: BTreeMap<PeerId, Peer>,
    owners: HashMap<ConnectionId, PeerId>,
    rib: Rib,
    topology: Arc<Topology>,
    events: VecDeque<Event>,
    /// Prefixes that the peers have not been told about yet.
    dirty: BTreeSet<IpNet>,
    /// Prefixes that the driver has not been told about yet.
    changed: BTreeSet<IpNet>,
    jitter: Jitter,
    next_connection: u64,
    next_peer: u32,
}

impl Speaker {
    /// Starts every session. `seed` should differ between nodes: it spreads their retries.
    pub fn new(config: Config, seed: u64, now: Instant) -> Self {
        let nothing = Config { announce: Vec::new(), peers: Vec::new(), ..config.clone() };
        let mut speaker = Self {
            rib: Rib::new(config.multipath),
            topology: Arc::default(),
            config: nothing,
            peers: BTreeMap::new(),
            owners: HashMap::new(),
            events: VecDeque::new(),
            dirty: BTreeSet::new(),
            changed: BTreeSet::new(),
            jitter: Jitter::new(seed),
            next_connection: 0,
            next_peer: 0,
        };
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
            self.settle(peer);
            return None;
        }
        self.attach(peer, id, own);
        Some(id)
    }

    /// Dialing failed; `why` is for a person: "peer refused the connection".
    pub fn handle_dial_failed(&mut self, peer: PeerId, why: &str, now: Instant) {
        if let Some(owner) = self.peers.get_mut(&peer) {
            owner.session.handle_dial_failed(why, now);
            self.settle(peer);
        }
    }

    /// Somebody connected.
    ///
    /// # Errors
    /// Why the connection should be closed without a word.
    pub fn handle_accepted(
        &mut self,
        remote: IpAddr,
        own: NextHops,
        now: Instant,
    ) -> Result<ConnectionId, Refused> {
        let id = self.new_connection();
        let found = self.peers.values_mut().find(|peer| peer.config.address == remote);
        let owner = found.ok_or(Refused::Unknown)?;
        owner.session.handle_accepted(id, now).map_err(Refused::Unwanted)?;
        let peer = owner.id;
        self.attach(peer, id, own);
        Ok(id)
    }

    /// The transport is gone; `why` is for a person.
    pub fn handle_closed(&mut self, connection: ConnectionId, why: &str, now: Instant) {
        let Some(peer) = self.owners.get(&connection).copied() else { return };
        if let Some(owner) = self.peers.get_mut(&peer) {
            owner.session.handle_closed(connection, why, now);
            self.settle(peer);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.session.handle_timeout(now);
            }
            self.settle(id);
        }
    }

    /// When to call [`Speaker::handle_timeout`], and what for.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.peers.values().filter_map(|peer| peer.session.poll_timeout()).min_by_key(|(at, _)| *at)
    }

    /// Next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Prefixes whose paths changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<IpNet> {
        std::mem::take(&mut self.changed)
    }

    /// Connections that have something to send.
    pub fn pending_connections(&self) -> Vec<ConnectionId> {
        self.peers.values().flat_map(Peer::pending).collect()
    }

    /// Appends whole messages for a connection whose transport has room; false: nothing to send.
    pub fn poll_transmit(&mut self, connection: ConnectionId, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let Some(peer) = self.owners.get(&connection).and_then(|peer| self.peers.get_mut(peer)) else {
            return false;
        };
        if let Some(error) = peer.transmit(connection, TRANSMIT_BATCH, out) {
            self.events.push_back(Event::Unsendable { peer: Arc::clone(&peer.config.name), error });
        }
        out.len() > before
    }

    /// Every path to a prefix, with its verdict.
    pub fn paths(&self, prefix: &IpNet) -> &[Path] {
        self.rib.paths(prefix)
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

    /// True when every peer is established and has sent End-of-RIB for every family: what is not here now is really gone.
    pub fn synchronized(&self) -> bool {
        self.peers.values().all(Peer::synchronized)
    }

    /// Ends every session with Cease/Administrative Shutdown and this text (RFC 9003).
    pub fn shut_down(&mut self, text: &str, now: Instant) {
        let notification = Notification::shutdown(code::cease::SHUTDOWN, text);
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.session.stop(&notification, "administratively shut down", now);
            }
            self.settle(id);
        }
    }

    fn new_connection(&mut self) -> ConnectionId {
        self.next_connection += 1;
        ConnectionId(self.next_connection)
    }

    fn attach(&mut self, peer: PeerId, id: ConnectionId, own: NextHops) {
        self.owners.insert(id, peer);
        if let Some(owner) = self.peers.get_mut(&peer) {
            owner.links.push(Link::new(id, own));
        }
        self.settle(peer);
    }

    /// Carries out what a peer's session decided, until it wants nothing more; then tells the other peers what changed.
    fn settle(&mut self, id: PeerId) {
        self.settle_actions(id);
        self.propagate();
    }

    fn settle_actions(&mut self, id: PeerId) {
        while let Some(action) = self.peers.get_mut(&id).and_then(|peer| peer.session.poll_action()) {
            self.carry_out(id, action);
        }
    }

    fn carry_out(&mut self, id: PeerId, action: Action) {
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
                    peer.messages_sent += 1;
                }
            }
            Action::SendKeepalive(connection) => {
                if let Some(link) = peer.link(connection) {
                    encode_keepalive(&mut link.control);
                    peer.messages_sent += 1;
                }
            }
            Action::Close(connection, notification) => self.close(id, connection, notification),
            Action::Up(connection, negotiated) => self.up(id, connection, negotiated),
            Action::Down(_) => self.down(id),
            Action::Changed { from, to } => {
                let (name, reason) = (Arc::clone(&peer.config.name), peer.session.reason());
                self.events.push_back(Event::StateChanged { peer: name, from, to, reason });
            }
        }
    }

    fn close(&mut self, id: PeerId, connection: ConnectionId, notification: Option<Notification>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        self.owners.remove(&connection);
        let link = peer.links.iter().position(|link| link.id == connection).map(|at| peer.links.remove(at));
        let mut last_words = link.map(|link| link.control).unwrap_or_default();
        if let Some(notification) = notification {
            // Its data is bounded where it is made; without room for it the connection just closes.
            if notification.encode(&mut last_words).is_ok() {
                peer.messages_sent += 1;
            }
            let peer = Arc::clone(&peer.config.name);
            self.events.push_back(Event::Notified { peer, sent: true, notification });
        }
        self.events.push_back(Event::Close { connection, last_words });
    }

    fn up(&mut self, id: PeerId, connection: ConnectionId, negotiated: Arc<Negotiated>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let own = peer.link(connection).map(|link| link.own).unwrap_or_default();
        let neighbor = Arc::new(Neighbor {
            id,
            address: peer.config.address,
            router_id: negotiated.remote_router_id,
            external: negotiated.peering != Peering::Internal,
        });
        peer.out = AdjOut::new(negotiated.families);
        let over_tunnel = self.topology.tunnel_peer(peer.config.address).is_some();
        let end_of_rib = Default::default();
        peer.up = Some(Up { connection, neighbor, negotiated, own, end_of_rib, over_tunnel });
        for prefix in self.rib.prefixes().collect::<Vec<_>>() {
            self.tell(id, prefix);
        }
    }

    fn down(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.up = None;
        peer.out = AdjOut::default();
        self.dirty.extend(self.rib.withdraw_peer(id));
    }

    fn propagate(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        let told: Vec<PeerId> =
            self.peers.values().filter(|peer| peer.up.is_some()).map(|peer| peer.id).collect();
        for prefix in &dirty {
            for id in &told {
                self.tell(*id, *prefix);
            }
        }
        self.changed.extend(dirty);
    }

    /// Queues for a peer what it should know about a prefix now.
    fn tell(&mut self, id: PeerId, prefix: IpNet) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(target) = peer.export_target(self.config.asn) else { return };
        let sent = self.rib.best(&prefix).and_then(|best| export(&prefix, best, &target).ok());
        let sent = sent.map(|attributes| self.rib.intern(attributes));
        peer.out.set(prefix, sent);
    }

    fn originate(&mut self, prefix: IpNet) {
        let unspecified = match Family::of(&prefix) {
            Family::Ipv4Unicast => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            Family::Ipv6Unicast => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        };
        let attributes = self.rib.intern(Attributes::originated(unspecified));
        if self.rib.announce(prefix, Source::Local, attributes, None) {
            self.dirty.insert(prefix);
        }
    }
}

#[cfg(test)]
mod net;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;
