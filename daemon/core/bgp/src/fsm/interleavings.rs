//! A model check: two sessions, the connections between them, and every order in which things can happen.
//!
//! A world is two sessions and what is in flight between them. From the first one the search takes every step that is possible: a side
//! learns of a connection, reads the next thing on it, or its retry timer runs out; and, as often as the case allows, the network
//! loses a connection, or a side is restarted. In every world that can be reached no side has two sessions and none is displaced; and
//! from every one of them, once the troubles end, both sides soon stand on the same connection, and stay there.

use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    time::Instant,
};

use super::{tests::config, *};
use crate::{ConnectionId, Families, wire::Capability};

#[derive(Clone)]
enum Flight {
    Message(Input),
    Closed,
}

impl Hash for Flight {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Closed => 0.hash(state),
            Self::Message(input) => input.name().hash(state),
        }
        // Of an OPEN only this differs within a search.
        if let Self::Message(Input::Open(open)) = self {
            let restarting =
                |c: &Capability| matches!(c, Capability::GracefulRestart { restarting: true, .. });
            open.capabilities.iter().any(restarting).hash(state);
        }
    }
}

/// A connection between the sides, as the network sees it.
#[derive(Clone)]
struct Wire {
    dialer: usize,
    /// Each side has heard of it.
    known: [bool; 2],
    /// Each side's end is open.
    open: [bool; 2],
    /// By receiving side.
    flight: [VecDeque<Flight>; 2],
}

#[derive(Clone, Copy)]
struct Case {
    asns: [u32; 2],
    ids: [u8; 2],
    /// Both keep routes over a restart.
    graceful: bool,
    /// The most connections that the search makes; dialing fails after that.
    connections: usize,
    /// Connections that the network loses.
    losses: usize,
    /// Restarts of side 0.
    restarts: usize,
}

#[derive(Clone)]
struct World {
    case: Case,
    now: Instant,
    sessions: [Session; 2],
    wires: Vec<Wire>,
    losses: usize,
    restarts: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A side learns of a connection, or reads the next thing on it.
    Read(usize, usize),
    /// A side's retry timer runs out.
    Retry(usize),
    /// The network loses a connection: both sides find it closed after what is in flight.
    Lose(usize),
    /// Side 0's process dies and starts again.
    Restart,
}

fn session(case: &Case, n: usize, restarting: bool, now: Instant) -> Session {
    let mut config = config(case.asns[n], case.ids[n], case.asns[1 - n]);
    config.hold_time = 0;
    let offer = RestartOffer { time: 120, restarting, forwarding: Families::ALL, preserving: true };
    config.offer.restart = case.graceful.then_some(offer);
    let mut session = Session::new(config, Jitter::new(1), now);
    session.start(now);
    session
}

impl World {
    fn new(case: Case, now: Instant) -> Self {
        let sessions = [0, 1].map(|n| session(&case, n, case.graceful, now));
        let mut world =
            Self { case, now, sessions, wires: Vec::new(), losses: case.losses, restarts: case.restarts };
        [0, 1].into_iter().for_each(|side| world.carry(side));
        world
    }

    /// What happens by itself, and what goes wrong.
    fn steps(&self) -> Vec<Step> {
        let lost = (0..self.wires.len()).filter(|_| self.losses > 0);
        let lost = lost.filter(|wire| self.wires[*wire].open == [true; 2]).map(Step::Lose);
        let restart = (self.restarts > 0 && self.sessions[0].established_count > 0).then_some(Step::Restart);
        self.natural().into_iter().chain(lost).chain(restart).collect()
    }

    fn natural(&self) -> Vec<Step> {
        let reads = (0..self.wires.len()).flat_map(|wire| [(0, wire), (1, wire)]);
        let reads = reads.filter(|(side, wire)| self.can_read(*side, *wire));
        let reads = reads.map(|(side, wire)| Step::Read(side, wire));
        let retries = [0, 1].into_iter().filter(|side| self.retry(*side).is_some()).map(Step::Retry);
        reads.chain(retries).collect()
    }

    /// A listener hands out connections in the order in which they were made; else any order goes.
    fn can_read(&self, side: usize, n: usize) -> bool {
        let wire = &self.wires[n];
        let unknown = |other: &Wire| other.dialer == wire.dialer && !other.known[side];
        match wire.known[side] {
            true => wire.open[side] && !wire.flight[side].is_empty(),
            false => !self.wires[..n].iter().any(unknown),
        }
    }

    fn retry(&self, side: usize) -> Option<Instant> {
        self.sessions[side].timers().find(|(_, what)| *what == "connect retry").map(|(at, _)| at)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Read(side, wire) => self.read(side, wire),
            Step::Retry(side) => {
                self.now = self.retry(side).map_or(self.now, |at| at.max(self.now));
                self.sessions[side].handle_timeout(self.now);
                self.carry(side);
            }
            Step::Lose(wire) => {
                self.losses -= 1;
                self.wires[wire].flight.iter_mut().for_each(|flight| flight.push_back(Flight::Closed));
            }
            Step::Restart => self.restart(),
        }
    }

    fn read(&mut self, side: usize, n: usize) {
        let id = ConnectionId(n as u64);
        let wire = &mut self.wires[n];
        if !std::mem::replace(&mut wire.known[side], true) {
            let session = &mut self.sessions[side];
            let wanted = if side == wire.dialer {
                session.handle_connected(id, self.now)
            } else {
                session.handle_accepted(id, self.now).is_ok()
            };
            if wanted {
                wire.open[side] = true;
            } else {
                wire.flight[1 - side].push_back(Flight::Closed);
            }
        } else {
            match wire.flight[side].pop_front().unwrap() {
                Flight::Message(input) => self.sessions[side].handle_input(id, input, self.now),
                Flight::Closed => {
                    wire.open[side] = false;
                    self.sessions[side].handle_closed(id, "closed", self.now);
                }
            }
        }
        self.carry(side);
    }

    /// What side 0 had said may still arrive; its new process knows nothing of the old connections.
    fn restart(&mut self) {
        self.restarts -= 1;
        for wire in &mut self.wires {
            let dialed = wire.dialer == 0 && !wire.known[0];
            if wire.open[0] || dialed {
                wire.flight[1].push_back(Flight::Closed);
            }
            wire.open[0] = false;
            wire.known[0] |= dialed;
        }
        self.sessions[0] = session(&self.case, 0, self.case.graceful, self.now);
        self.carry(0);
    }

    fn carry(&mut self, side: usize) {
        while let Some(action) = self.sessions[side].poll_action() {
            let (id, messages) = match action {
                Action::Dial => {
                    self.dial(side);
                    continue;
                }
                Action::SendOpen(id, open) => (id, vec![Flight::Message(Input::Open(open))]),
                Action::SendKeepalive(id) => {
                    self.sessions[side].handle_sent(id);
                    (id, vec![Flight::Message(Input::Keepalive)])
                }
                Action::Up(id, _) => (id, vec![Flight::Message(Input::Update)]),
                Action::Close(id, words) => {
                    self.wires[usize::try_from(id.0).unwrap()].open[side] = false;
                    let words = words.map(|n| Flight::Message(Input::Notification(n)));
                    (id, words.into_iter().chain([Flight::Closed]).collect())
                }
                Action::Down(..) | Action::Changed { .. } => continue,
            };
            self.wires[usize::try_from(id.0).unwrap()].flight[1 - side].extend(messages);
        }
    }

    fn dial(&mut self, side: usize) {
        if self.wires.len() == self.case.connections {
            return self.sessions[side].handle_dial_failed("connection refused", self.now);
        }
        let (known, open, flight) = Default::default();
        self.wires.push(Wire { dialer: side, known, open, flight });
    }

    /// What decides the future, as a number: states, and what is in flight.
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for session in &self.sessions {
            (session.established_count == 0, std::mem::discriminant(&session.dialing)).hash(&mut hasher);
            for c in &session.connections {
                let restarting =
                    c.phase.negotiated().and_then(|n| n.restart).map(|restart| restart.restarting);
                (c.id, c.phase.state() as u8, c.confirmed, restarting).hash(&mut hasher);
            }
        }
        for wire in &self.wires {
            (wire.dialer, wire.known, wire.open).hash(&mut hasher);
            for flight in &wire.flight {
                flight.len().hash(&mut hasher);
                flight.iter().for_each(|item| item.hash(&mut hasher));
            }
        }
        (self.losses, self.restarts).hash(&mut hasher);
        hasher.finish()
    }

    fn ends(&self) -> [Option<ConnectionId>; 2] {
        self.sessions.each_ref().map(|session| session.established().map(|(id, _)| id))
    }

    /// Nothing goes wrong any more: everything in flight is read, then timers run out. Stops at a world of which the end is known.
    fn settle(mut self, ending_well: &mut HashSet<u64>) {
        for turn in 0.. {
            let steps = self.natural();
            let reads = steps.iter().find(|step| matches!(step, Step::Read(..)));
            let Some(step) = reads.or(steps.first()).copied() else { break };
            // No new connection can be made in this world: what would have become of it is not to be seen.
            let exhausted = self.wires.len() == self.case.connections && matches!(step, Step::Retry(_));
            if exhausted || !ending_well.insert(self.key()) {
                return;
            }
            assert!(turn < 400, "no end: {:?}", self.ends());
            self.step(step);
        }
        let ends = self.ends();
        assert!(ends[0].is_some() && ends[0] == ends[1], "no common session: {ends:?}");
    }
}

/// Established goes only when its connection does, or when the peer's end of it has gone already.
fn check_step(before: &World, after: &World, step: Step) {
    for side in 0..2 {
        let standing = after.sessions[side].connections.iter().filter(|c| c.is_established()).count();
        assert!(standing <= 1, "double session");
        let (Some(was), now) = (before.ends()[side], after.ends()[side]) else { continue };
        let wire = usize::try_from(was.0).unwrap();
        let closed = matches!(step, Step::Read(reader, read) if (reader, read) == (side, wire));
        let restarted = matches!(step, Step::Restart) && side == 0;
        let alive = before.wires[wire].open[1 - side];
        assert!(now == Some(was) || closed || restarted || !alive, "Established was displaced by {step:?}");
    }
}

/// Every world that can come of this one; returns how many there are.
fn explore(case: Case) -> usize {
    let (mut seen, mut ending_well) = (HashSet::new(), HashSet::new());
    let mut todo = vec![World::new(case, Instant::now())];
    while let Some(world) = todo.pop() {
        if !seen.insert(world.key()) {
            continue;
        }
        for step in world.steps() {
            let mut next = world.clone();
            next.step(step);
            check_step(&world, &next, step);
            todo.push(next);
        }
        world.settle(&mut ending_well);
    }
    seen.len()
}

const PAIRS: [([u32; 2], [u8; 2]); 4] =
    [([65_001, 65_002], [1, 2]), ([65_001, 65_002], [2, 1]), ([65_001, 65_002], [5, 5]), ([7, 7], [1, 2])];

impl Case {
    fn new(pair: ([u32; 2], [u8; 2]), graceful: bool) -> Self {
        Self { asns: pair.0, ids: pair.1, graceful, connections: 4, losses: 0, restarts: 0 }
    }
}

#[test]
fn simultaneous_opening_ends_in_one_session() {
    for (pair, graceful) in PAIRS.into_iter().flat_map(|pair| [(pair, false), (pair, true)]) {
        let seen = explore(Case::new(pair, graceful));
        assert!(seen > 300, "the search was cut short: {seen}");
    }
}

#[test]
fn a_lost_connection_ends_in_one_session() {
    for (pair, graceful) in PAIRS.into_iter().flat_map(|pair| [(pair, false), (pair, true)]) {
        let seen = explore(Case { connections: 3, losses: 1, ..Case::new(pair, graceful) });
        assert!(seen > 1000, "the search was cut short: {seen}");
    }
}

#[test]
fn a_restarted_peer_ends_in_one_session() {
    for (pair, graceful) in PAIRS.into_iter().flat_map(|pair| [(pair, false), (pair, true)]) {
        let seen = explore(Case { connections: 3, restarts: 1, ..Case::new(pair, graceful) });
        assert!(seen > 1000, "the search was cut short: {seen}");
    }
}
