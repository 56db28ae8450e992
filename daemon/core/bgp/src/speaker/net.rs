//! Speakers on one virtual clock, joined by wires that carry bytes: no sockets, no sleeping.

use std::{
    collections::{BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use ipnet::IpNet;

use super::*;
use crate::Policy;

/// A network of speakers.
pub(super) struct Net {
    pub(super) now: Instant,
    pub(super) nodes: Vec<Node>,
    wires: Vec<Wire>,
    /// Pairs of nodes between which packets vanish.
    pub(super) cut: Vec<(usize, usize)>,
    /// Bytes are delivered in pieces of at most this length.
    pub(super) piece: usize,
}

/// A speaker and its log.
pub(super) struct Node {
    pub(super) speaker: Speaker,
    pub(super) alive: bool,
    pub(super) events: Vec<Event>,
    pub(super) changed: BTreeSet<IpNet>,
}

struct Wire {
    ends: [(usize, ConnectionId); 2],
    /// Toward each end.
    flight: [VecDeque<Flight>; 2],
}

enum Flight {
    Bytes(Vec<u8>),
    Closed,
}

pub(super) fn v4(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, u8::try_from(n + 1).unwrap())
}

pub(super) fn v6(n: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::try_from(n + 1).unwrap())
}

pub(super) fn own(n: usize) -> NextHops {
    NextHops { v4: Some(v4(n)), v6: Some(v6(n)), link_local: None }
}

/// Node `n`'s view of its peer `other`.
pub(super) fn peer(other: usize, asn: u32) -> PeerConfig {
    let standard = PeerConfig::new(format!("node{other}"), v4(other).into(), asn);
    PeerConfig { hold_time: 3, import: Policy::all(), export: Policy::all(), ..standard }
}

pub(super) fn config(n: usize, asn: u32, announce: &[&str], peers: Vec<PeerConfig>) -> Config {
    let announce = announce.iter().map(|prefix| prefix.parse().unwrap()).collect();
    Config { announce, peers, ..Config::new(asn, v4(n)) }
}

pub(super) const ONE: &str = "10.1.0.0/16";
pub(super) const TWO: &str = "10.2.0.0/16";
pub(super) const SIX: &str = "2001:db8:2::/48";

/// Two external peers; node 0 announces ONE, node 1 TWO and SIX.
pub(super) fn pair() -> Net {
    Net::new(vec![
        config(0, 65_001, &[ONE], vec![peer(1, 4_200_000_002)]),
        config(1, 4_200_000_002, &[TWO, SIX], vec![peer(0, 65_001)]),
    ])
}

/// A full mesh with these AS numbers; node n announces 10.(n+1).0.0/16.
pub(super) fn mesh(asns: &[u32]) -> Net {
    let node = |n: usize| {
        let peers =
            (0..asns.len()).filter(|other| *other != n).map(|other| peer(other, asns[other])).collect();
        config(n, asns[n], &[&format!("10.{}.0.0/16", n + 1)], peers)
    };
    Net::new((0..asns.len()).map(node).collect())
}

impl Net {
    pub(super) fn new(configs: Vec<Config>) -> Self {
        let now = Instant::now();
        let node = |(n, config)| Node {
            speaker: Speaker::new(config, n as u64, now),
            alive: true,
            events: Vec::new(),
            changed: BTreeSet::new(),
        };
        let nodes = configs.into_iter().enumerate().map(node).collect();
        Self { now, nodes, wires: Vec::new(), cut: Vec::new(), piece: usize::MAX }
    }

    /// Runs until everything up to that time has happened.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            while self.turn() {}
            let alive = self.nodes.iter().filter(|node| node.alive);
            let next = alive.filter_map(|node| node.speaker.poll_timeout()).map(|(at, _)| at).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            for node in self.nodes.iter_mut().filter(|node| node.alive) {
                node.speaker.handle_timeout(self.now);
            }
        }
        self.now = end;
    }

    /// The process is gone; its kernel closes its connections.
    pub(super) fn kill(&mut self, n: usize) {
        self.nodes[n].alive = false;
        for wire in &mut self.wires {
            for side in 0..2 {
                if wire.ends[side].0 == n {
                    wire.flight[1 - side].push_back(Flight::Closed);
                }
            }
        }
    }

    pub(super) fn seconds(&mut self, n: u64) {
        self.run(Duration::from_secs(n));
    }

    /// Names of the peers that a prefix is learned from and used through.
    pub(super) fn through(&self, n: usize, prefix: &str) -> Vec<String> {
        let speaker = &self.nodes[n].speaker;
        let selected =
            speaker.paths(&prefix.parse().unwrap()).iter().filter(|path| path.verdict().selected());
        let mut names: Vec<_> = selected
            .map(|path| match path.source().peer() {
                Some(peer) => speaker.peer_name(peer).unwrap().to_string(),
                None => "local".into(),
            })
            .collect();
        names.sort();
        names
    }

    pub(super) fn status(&self, n: usize, other: usize) -> PeerStatus {
        let name = format!("node{other}");
        self.nodes[n].speaker.status().into_iter().find(|status| *status.name == *name).unwrap()
    }

    fn turn(&mut self) -> bool {
        let mut busy = false;
        for n in 0..self.nodes.len() {
            if self.nodes[n].alive {
                busy |= self.events(n) | self.transmit(n);
            }
        }
        busy | self.deliver()
    }

    fn events(&mut self, n: usize) -> bool {
        let changed = self.nodes[n].speaker.take_changed();
        self.nodes[n].changed.extend(changed);
        let mut busy = false;
        while let Some(event) = self.nodes[n].speaker.poll_event() {
            busy = true;
            match &event {
                Event::Dial { peer, address, .. } => self.dial(n, *peer, *address),
                Event::Close { connection, last_words } => self.close(n, *connection, last_words.clone()),
                _ => {}
            }
            self.nodes[n].events.push(event);
        }
        busy
    }

    fn dial(&mut self, n: usize, peer: PeerId, address: IpAddr) {
        let other = (0..self.nodes.len()).find(|other| IpAddr::from(v4(*other)) == address);
        let other = other.filter(|other| self.nodes[*other].alive && !self.is_cut(n, *other));
        let Some(other) = other else {
            return self.nodes[n].speaker.handle_dial_failed(peer, "peer refused the connection", self.now);
        };
        let Some(here) = self.nodes[n].speaker.handle_connected(peer, own(n), self.now) else { return };
        match self.nodes[other].speaker.handle_accepted(v4(n).into(), None, own(other), self.now) {
            Ok(there) => {
                self.wires.push(Wire { ends: [(n, here), (other, there)], flight: Default::default() });
            }
            Err(_) => self.nodes[n].speaker.handle_closed(here, "peer closed the connection", self.now),
        }
    }

    fn close(&mut self, n: usize, connection: ConnectionId, last_words: Vec<u8>) {
        for wire in &mut self.wires {
            if let Some(side) = wire.ends.iter().position(|end| *end == (n, connection)) {
                wire.flight[1 - side].extend([Flight::Bytes(last_words.clone()), Flight::Closed]);
            }
        }
    }

    fn transmit(&mut self, n: usize) -> bool {
        let mut busy = false;
        for connection in self.nodes[n].speaker.pending_connections() {
            let mut bytes = Vec::new();
            if !self.nodes[n].speaker.poll_transmit(connection, &mut bytes) {
                continue;
            }
            busy = true;
            for wire in &mut self.wires {
                if let Some(side) = wire.ends.iter().position(|end| *end == (n, connection)) {
                    let pieces = bytes.chunks(self.piece.min(bytes.len()));
                    wire.flight[1 - side].extend(pieces.map(|piece| Flight::Bytes(piece.to_vec())));
                }
            }
        }
        busy
    }

    fn deliver(&mut self) -> bool {
        let mut busy = false;
        for index in 0..self.wires.len() {
            let [(a, _), (b, _)] = self.wires[index].ends;
            if self.is_cut(a, b) {
                continue;
            }
            for side in 0..2 {
                let (n, connection) = self.wires[index].ends[side];
                while let Some(flight) = self.wires[index].flight[side].pop_front() {
                    busy = true;
                    if !self.nodes[n].alive {
                        continue;
                    }
                    let speaker = &mut self.nodes[n].speaker;
                    match flight {
                        Flight::Bytes(bytes) => speaker.handle_bytes(connection, &bytes, self.now),
                        Flight::Closed => {
                            speaker.handle_closed(connection, "peer closed the connection", self.now)
                        }
                    }
                }
            }
        }
        busy
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a, b)) || self.cut.contains(&(b, a))
    }
}
