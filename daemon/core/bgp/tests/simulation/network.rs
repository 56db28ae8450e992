//! Speakers on one virtual clock. Between them are streams like TCP's: bytes arrive late but in order, wait while the way is cut, stay
//! unsent while the reader is slow, and a stream of which one end is gone is reset when something is sent on it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use isthmus_bgp::{Config, ConnectionId, Event, PeerId, Speaker, rib::NextHops};

use crate::chance::Chance;

/// Bytes that a stream takes before its reader has read some.
const WINDOW: usize = 64 * 1024;
/// A dial over a cut way fails after this.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest way of a packet, in milliseconds.
const LATENCY: usize = 40;

pub(crate) fn v4(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, u8::try_from(n + 1).unwrap())
}

fn own(n: usize) -> NextHops {
    let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::try_from(n + 1).unwrap());
    NextHops { v4: Some(v4(n)), v6: Some(v6), link_local: None }
}

fn node_at(address: IpAddr) -> Option<usize> {
    (0..250).find(|n| IpAddr::from(v4(*n)) == address)
}

pub(crate) struct Network {
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node>,
    pub(crate) chance: Chance,
    /// Pairs between which nothing arrives, lower number first.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    streams: BTreeMap<u64, Stream>,
    /// Number of streams made.
    made: u64,
    /// What happens when; the number keeps the order of equal times.
    agenda: BinaryHeap<Reverse<(Instant, u64, Task)>>,
    planned: u64,
}

pub(crate) struct Node {
    pub(crate) config: Config,
    /// `None` while its process is dead.
    pub(crate) speaker: Option<Speaker>,
    /// It reads nothing until then.
    pub slow_until: Instant,
    /// When it dialed whom.
    pub(crate) dials: Vec<(Instant, IpAddr)>,
    seed: u64,
    streams: BTreeMap<ConnectionId, (u64, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// The front of what is in flight toward an end arrives.
    Arrive(u64, usize),
    /// A dial comes to its end: by whom, for which of its peers, whom.
    Dial(usize, u32, usize),
}

struct Stream {
    nodes: [usize; 2],
    /// `None`: that end is closed.
    ends: [Option<ConnectionId>; 2],
    /// Toward each end, with the time of arrival.
    flight: [VecDeque<(Instant, Flight)>; 2],
}

enum Flight {
    Bytes(Vec<u8>),
    Closed(&'static str),
}

impl Stream {
    fn waiting(&self, side: usize) -> usize {
        let lengths = self.flight[side].iter().map(|(_, flight)| match flight {
            Flight::Bytes(bytes) => bytes.len(),
            Flight::Closed(_) => 0,
        });
        lengths.sum()
    }
}

impl Network {
    pub(crate) fn new(configs: Vec<Config>, seed: u64) -> Self {
        let now = Instant::now();
        let mut chance = Chance::new(seed);
        let node = |config: Config| Node {
            speaker: None,
            config,
            slow_until: now,
            dials: Vec::new(),
            seed: chance.draw(),
            streams: BTreeMap::new(),
        };
        let nodes: Vec<_> = configs.into_iter().map(node).collect();
        let (cut, streams, agenda) = Default::default();
        let mut network = Self { now, nodes, chance, cut, streams, made: 0, agenda, planned: 0 };
        (0..network.nodes.len()).for_each(|n| network.start(n));
        network
    }

    pub(crate) fn speakers(&self) -> impl Iterator<Item = (usize, &Speaker)> {
        self.nodes.iter().enumerate().filter_map(|(n, node)| Some((n, node.speaker.as_ref()?)))
    }

    pub(crate) fn start(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if node.speaker.is_none() {
            node.seed = node.seed.wrapping_add(1);
            node.speaker = Some(Speaker::new(node.config.clone(), node.seed, self.now));
            self.carry(n);
        }
    }

    /// The process dies. Its kernel closes its streams, unless the whole machine goes with it.
    pub(crate) fn kill(&mut self, n: usize, machine: bool) {
        self.nodes[n].speaker = None;
        for (stream, side) in std::mem::take(&mut self.nodes[n].streams).into_values() {
            if let Some(ends) = self.streams.get_mut(&stream) {
                ends.ends[side] = None;
            }
            if !machine {
                self.send(stream, side, Flight::Closed("connection reset"));
            }
        }
    }

    /// Something in the middle forgets every stream of a pair.
    pub(crate) fn lose(&mut self, a: usize, b: usize) {
        let of_pair = |stream: &Stream| stream.nodes == [a, b] || stream.nodes == [b, a];
        let lost: Vec<_> = self.streams.iter().filter(|(_, s)| of_pair(s)).map(|(id, _)| *id).collect();
        for id in lost {
            for side in 0..2 {
                self.streams.get_mut(&id).unwrap().flight[side].clear();
                self.send(id, 1 - side, Flight::Closed("connection reset"));
            }
        }
    }

    /// Another configuration, as on a reload; a dead node finds it when it starts.
    pub(crate) fn configure(&mut self, n: usize, config: Config) {
        self.nodes[n].config = config.clone();
        if let Some(speaker) = &mut self.nodes[n].speaker {
            speaker.apply(config, self.now);
            self.carry(n);
        }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let arrival = self.agenda.peek().map(|Reverse((at, ..))| *at);
            let timers = self.speakers().filter_map(|(_, speaker)| speaker.poll_timeout());
            let next = timers.map(|(at, _)| at).chain(arrival).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            self.turn();
        }
        self.now = end;
    }

    fn turn(&mut self) {
        let now = self.now;
        let due = self.agenda.peek().is_some_and(|Reverse((at, ..))| *at <= now);
        if let Some(Reverse((_, _, task))) = if due { self.agenda.pop() } else { None } {
            return self.perform(task);
        }
        for n in 0..self.nodes.len() {
            let due = |speaker: &&mut Speaker| speaker.poll_timeout().is_some_and(|(at, _)| at <= now);
            if let Some(speaker) = self.nodes[n].speaker.as_mut().filter(due) {
                speaker.handle_timeout(now);
                self.carry(n);
            }
        }
    }

    fn plan(&mut self, at: Instant, task: Task) {
        self.planned += 1;
        self.agenda.push(Reverse((at, self.planned, task)));
    }

    fn perform(&mut self, task: Task) {
        match task {
            Task::Arrive(stream, side) => self.arrive(stream, side),
            Task::Dial(n, peer, other) => self.dialed(n, PeerId(peer), other),
        }
    }

    /// Tells a node's neighbors what it has to say.
    fn carry(&mut self, n: usize) {
        while let Some(event) = self.nodes[n].speaker.as_mut().and_then(Speaker::poll_event) {
            match event {
                Event::Dial { peer, address, .. } => self.dial(n, peer, address),
                Event::Close { connection, last_words } => self.close(n, connection, last_words),
                _ => {}
            }
        }
        let Some(speaker) = &mut self.nodes[n].speaker else { return };
        speaker.take_changed();
        for connection in speaker.pending_connections() {
            self.transmit(n, connection);
        }
    }

    fn transmit(&mut self, n: usize, connection: ConnectionId) {
        let Some((stream, side)) = self.nodes[n].streams.get(&connection).copied() else { return };
        while self.streams[&stream].waiting(1 - side) < WINDOW {
            let mut bytes = Vec::new();
            let Some(speaker) = &mut self.nodes[n].speaker else { return };
            if !speaker.poll_transmit(connection, &mut bytes) {
                break;
            }
            self.send(stream, side, Flight::Bytes(bytes));
        }
    }

    /// From an end of a stream toward the other.
    fn send(&mut self, id: u64, side: usize, flight: Flight) {
        let delay = Duration::from_millis(u64::try_from(self.chance.below(LATENCY)).unwrap());
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let queue = &mut stream.flight[1 - side];
        let at = queue.back().map_or(self.now + delay, |(last, _)| (self.now + delay).max(*last));
        queue.push_back((at, flight));
        self.plan(at, Task::Arrive(id, 1 - side));
    }

    fn dial(&mut self, n: usize, peer: PeerId, address: IpAddr) {
        self.nodes[n].dials.push((self.now, address));
        let other = node_at(address).filter(|other| *other < self.nodes.len()).expect("nodes dial nodes");
        let delay = if self.is_cut(n, other) {
            DIAL_TIMEOUT
        } else {
            Duration::from_millis(u64::try_from(self.chance.below(2 * LATENCY)).unwrap())
        };
        self.plan(self.now + delay, Task::Dial(n, peer.0, other));
    }

    fn dialed(&mut self, n: usize, peer: PeerId, other: usize) {
        let reached = self.nodes[other].speaker.is_some() && !self.is_cut(n, other);
        let Some(speaker) = &mut self.nodes[n].speaker else { return };
        let here = if reached { speaker.handle_connected(peer, own(n), self.now) } else { None };
        if !reached {
            speaker.handle_dial_failed(peer, "connection refused", self.now);
        }
        if let Some(here) = here {
            self.connect([n, other], here);
        }
        self.carry(n);
        self.carry(other);
    }

    fn connect(&mut self, nodes: [usize; 2], here: ConnectionId) {
        let [n, other] = nodes;
        self.made += 1;
        let id = self.made;
        let there = self.nodes[other].speaker.as_mut().unwrap().handle_accepted(
            v4(n).into(),
            None,
            own(other),
            self.now,
        );
        let there = there.ok();
        self.streams.insert(id, Stream { nodes, ends: [Some(here), there], flight: Default::default() });
        self.nodes[n].streams.insert(here, (id, 0));
        match there {
            Some(there) => drop(self.nodes[other].streams.insert(there, (id, 1))),
            None => self.send(id, 1, Flight::Closed("peer closed the connection")),
        }
    }

    fn close(&mut self, n: usize, connection: ConnectionId, last_words: Vec<u8>) {
        let Some((stream, side)) = self.nodes[n].streams.remove(&connection) else { return };
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.ends[side] = None;
        }
        self.send(stream, side, Flight::Bytes(last_words));
        self.send(stream, side, Flight::Closed("peer closed the connection"));
        self.forget_if_gone(stream);
    }

    fn arrive(&mut self, id: u64, side: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let [a, b] = stream.nodes;
        let n = stream.nodes[side];
        let later = if self.is_cut(a, b) {
            // TCP sends it again.
            Some(self.now + Duration::from_millis(500))
        } else {
            Some(self.nodes[n].slow_until).filter(|until| *until > self.now)
        };
        if let Some(later) = later {
            return self.plan(later, Task::Arrive(id, side));
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let (end, from) = (stream.ends[side], stream.nodes[1 - side]);
        let Some((_, flight)) = stream.flight[side].pop_front() else { return };
        match (end, flight) {
            (Some(end), Flight::Bytes(bytes)) => {
                let speaker = self.nodes[n].speaker.as_mut().expect("an open end has a process");
                speaker.handle_bytes(end, &bytes, self.now);
            }
            (Some(end), Flight::Closed(why)) => {
                stream.ends[side] = None;
                self.nodes[n].streams.remove(&end);
                let speaker = self.nodes[n].speaker.as_mut().expect("an open end has a process");
                speaker.handle_closed(end, why, self.now);
            }
            // Nobody is there: the answer is a reset, at once.
            (None, Flight::Bytes(bytes)) if !bytes.is_empty() && stream.ends[1 - side].is_some() => {
                self.send(id, side, Flight::Closed("connection reset"));
            }
            (None, _) => {}
        }
        self.carry(n);
        // There is room again for what the sender held back.
        self.carry(from);
        self.forget_if_gone(id);
    }

    fn forget_if_gone(&mut self, id: u64) {
        let gone = |stream: &Stream| stream.ends == [None, None];
        if self.streams.get(&id).is_some_and(gone) {
            self.streams.remove(&id);
        }
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Bytes in flight, and the most streams that a pair of nodes has open.
    pub(crate) fn load(&self) -> (usize, usize) {
        let bytes = self.streams.values().flat_map(|stream| [stream.waiting(0), stream.waiting(1)]).sum();
        let mut pairs = BTreeMap::new();
        for stream in self.streams.values().filter(|stream| stream.ends.iter().all(Option::is_some)) {
            let [a, b] = stream.nodes;
            *pairs.entry((a.min(b), a.max(b))).or_insert(0) += 1;
        }
        (bytes, pairs.into_values().max().unwrap_or(0))
    }
}
