use std::{collections::HashSet, net::Ipv4Addr};

use super::*;
use crate::{Families, wire::RouteRefresh};

fn config(local: u32, id: u8, remote: u32) -> SessionConfig {
    SessionConfig {
        local_asn: local,
        router_id: Ipv4Addr::new(10, 0, 0, id),
        remote_asn: remote,
        hold_time: 9,
        families: Families::ALL,
        offer: Offer::default(),
    }
}

const A: ConnectionId = ConnectionId(1);
const B: ConnectionId = ConnectionId(2);

fn peer_open(hold_time: u16) -> Open {
    Open::new(65_002, hold_time, Ipv4Addr::new(10, 0, 0, 2), Families::ALL)
}

fn started(now: Instant) -> Session {
    let mut session = Session::new(config(65_001, 1, 65_002), Jitter::new(1), now);
    session.start(now);
    session
}

fn established(now: Instant) -> Session {
    let mut session = started(now);
    assert!(session.handle_connected(A, now));
    session.handle_input(A, Input::Open(peer_open(9)), now);
    session.handle_input(A, Input::Keepalive, now);
    assert_eq!(session.state(), State::Established);
    session.actions.clear();
    session
}

fn closed_with(session: &mut Session) -> Option<(u8, u8)> {
    std::iter::from_fn(|| session.poll_action())
        .find_map(|action| match action {
            Action::Close(_, notification) => Some(notification.map(|n| (n.code, n.subcode))),
            _ => None,
        })
        .flatten()
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn openings_that_are_refused() {
    let id = Ipv4Addr::new(10, 0, 0, 2);
    let good = || peer_open(9);
    let cases: Vec<(Open, Option<u8>)> = vec![
        (good(), None),
        (peer_open(0), None),
        (peer_open(3), None),
        (peer_open(1), Some(6)),
        (peer_open(2), Some(6)),
        (Open::new(65_003, 9, id, Families::ALL), Some(2)),
        (Open::new(0, 9, id, Families::ALL), Some(2)),
        (Open { my_as: 0, ..good() }, Some(2)),
        (Open { router_id: Ipv4Addr::UNSPECIFIED, ..good() }, Some(3)),
        (Open { router_id: Ipv4Addr::new(10, 0, 0, 1), ..good() }, None),
        (Open { capabilities: vec![], ..good() }, None),
        (Open { capabilities: vec![Capability::MultiProtocol { afi: 25, safi: 70 }], ..good() }, Some(7)),
    ];
    use crate::wire::Capability;
    for (open, refused) in cases {
        let now = Instant::now();
        let mut session = started(now);
        session.handle_connected(A, now);
        session.handle_input(A, Input::Open(open.clone()), now);
        assert_eq!(closed_with(&mut session), refused.map(|subcode| (2, subcode)), "{open:?}");
        let expected = if refused.is_some() { State::Idle } else { State::OpenConfirm };
        assert_eq!(session.state(), expected);
    }
}

#[test]
fn own_identifier_is_refused_inside_the_as_only() {
    let now = Instant::now();
    let mut session = Session::new(config(65_001, 2, 65_001), Jitter::new(1), now);
    session.start(now);
    session.handle_connected(A, now);
    let open = Open::new(65_001, 9, Ipv4Addr::new(10, 0, 0, 2), Families::ALL);
    session.handle_input(A, Input::Open(open), now);
    assert_eq!(closed_with(&mut session), Some((2, 3)));
}

#[test]
fn hold_time_is_the_smaller_offer() {
    for (offer, hold, keepalive) in [(0, 0, 0), (3, 3, 1), (9, 9, 3), (180, 9, 3)] {
        let now = Instant::now();
        let mut session = started(now);
        session.handle_connected(A, now);
        session.handle_input(A, Input::Open(peer_open(offer)), now);
        session.handle_input(A, Input::Keepalive, now);
        let (_, negotiated) = session.established().unwrap();
        assert_eq!((negotiated.hold_time, negotiated.keepalive), (seconds(hold), seconds(keepalive)));
    }
}

#[test]
fn without_hold_time_nothing_expires() {
    let now = Instant::now();
    let mut session = started(now);
    session.handle_connected(A, now);
    session.handle_input(A, Input::Open(peer_open(0)), now);
    session.handle_input(A, Input::Keepalive, now);
    assert_eq!(session.poll_timeout(), None);
}

#[test]
fn silence_ends_the_session_and_says_so() {
    let now = Instant::now();
    let mut session = established(now);
    session.handle_heard(A, now + seconds(5));
    session.handle_timeout(now + seconds(13));
    assert_eq!(session.state(), State::Established);
    session.handle_timeout(now + seconds(14));
    assert_eq!(closed_with(&mut session), Some((4, 0)));
    assert_eq!(session.state(), State::Active);
    assert!(session.reason().starts_with("hold timer expired: nothing heard for 9 s; next try after 1."));
}

#[test]
fn keepalives_are_paced_and_do_not_pile_up() {
    let now = Instant::now();
    let mut session = established(now);
    let mut sent = 0;
    for second in 1..=8 {
        session.handle_heard(A, now + seconds(second));
        session.handle_timeout(now + seconds(second));
        sent += std::iter::from_fn(|| session.poll_action())
            .filter(|a| matches!(a, Action::SendKeepalive(_)))
            .count();
        session.handle_sent(A);
    }
    assert_eq!(sent, 2);
    for second in 9..=18 {
        session.handle_heard(A, now + seconds(second));
        session.handle_timeout(now + seconds(second));
    }
    let queued =
        std::iter::from_fn(|| session.poll_action()).filter(|a| matches!(a, Action::SendKeepalive(_)));
    assert_eq!(queued.count(), 1, "nothing was taken, so one waits");
}

#[test]
fn peer_that_reads_nothing_is_dropped() {
    let now = Instant::now();
    let mut session = established(now);
    session.handle_sent(A);
    let mut clock = now;
    while session.state() == State::Established {
        clock += seconds(1);
        assert!(clock < now + seconds(500), "RFC 9687: the send hold timer must have run out");
        session.handle_heard(A, clock);
        session.handle_timeout(clock);
    }
    assert_eq!(closed_with(&mut session), Some((8, 0)));
    assert!(clock >= now + seconds(480));
}

#[test]
fn unexpected_messages() {
    let now = Instant::now();
    let refresh = || Input::RouteRefresh(RouteRefresh { afi: 1, subtype: 0, safi: 1 });
    let reach = |state: State| {
        let mut session = started(now);
        session.handle_connected(A, now);
        if state > State::OpenSent {
            session.handle_input(A, Input::Open(peer_open(9)), now);
        }
        if state > State::OpenConfirm {
            session.handle_input(A, Input::Keepalive, now);
        }
        session.actions.clear();
        session
    };
    let cases = [
        (State::OpenSent, Input::Keepalive, Some(1)),
        (State::OpenSent, Input::Update, Some(1)),
        (State::OpenSent, refresh(), Some(1)),
        (State::OpenConfirm, Input::Open(peer_open(9)), Some(2)),
        (State::OpenConfirm, Input::Update, Some(2)),
        (State::OpenConfirm, refresh(), Some(2)),
        (State::Established, Input::Open(peer_open(9)), Some(3)),
        (State::Established, Input::Keepalive, None),
        (State::Established, Input::Update, None),
        (State::Established, refresh(), None),
    ];
    for (state, input, subcode) in cases {
        let mut session = reach(state);
        session.handle_input(A, input.clone(), now);
        assert_eq!(closed_with(&mut session), subcode.map(|s| (5, s)), "{state}: {input:?}");
    }
}

#[test]
fn every_refusal_is_paced() {
    let now = Instant::now();
    let mut session = started(now);
    let mut clock = now;
    let mut dials = 0;
    while clock < now + seconds(600) {
        while let Some(action) = session.poll_action() {
            if action == Action::Dial {
                dials += 1;
                session.handle_connected(A, clock);
                session.handle_input(
                    A,
                    Input::Open(Open::new(1, 9, Ipv4Addr::new(9, 9, 9, 9), Families::ALL)),
                    clock,
                );
                assert!(session.handle_accepted(B, clock).is_err(), "held down means accepting nothing");
            }
        }
        clock = session.poll_timeout().unwrap().0;
        session.handle_timeout(clock);
    }
    assert!(dials <= 9, "{dials} attempts in ten minutes");
}

#[test]
fn max_prefixes_from_the_peer_is_not_hammered() {
    let now = Instant::now();
    let mut session = established(now);
    let cease = Notification::max_prefixes(crate::Family::Ipv4Unicast, 100);
    session.handle_input(A, Input::Notification(cease), now);
    assert_eq!(session.state(), State::Idle);
    assert!(session.reason().contains("limit 100 of ipv4-unicast"));
    assert!(session.poll_timeout().unwrap().0 >= now + seconds(60));
}

#[test]
fn a_stable_session_clears_the_record() {
    let now = Instant::now();
    let mut session = started(now);
    for _ in 0..5 {
        session.dialing = Dialing::InProgress;
        session.handle_dial_failed("connection refused", now);
    }
    assert!(session.poll_timeout().unwrap().0 >= now + seconds(16));
    session.handle_timeout(now + seconds(30));
    let now = now + seconds(30);
    session.handle_connected(A, now);
    session.handle_input(A, Input::Open(peer_open(0)), now);
    session.handle_input(A, Input::Keepalive, now);
    session.handle_closed(A, "peer closed the connection", now + seconds(61));
    assert!(session.poll_timeout().unwrap().0 < now + seconds(63));
}

#[test]
fn short_sessions_do_not_lengthen_the_first_hold_down() {
    let mut now = Instant::now();
    let mut session = started(now);
    session.handle_dial_failed("connection refused", now);
    for n in 0..40 {
        let id = ConnectionId(n);
        assert_eq!(session.handle_accepted(id, now), Ok(()), "back-off refuses nobody");
        session.handle_input(id, Input::Open(peer_open(9)), now);
        session.handle_input(id, Input::Keepalive, now);
        assert_eq!(session.state(), State::Established);
        now += seconds(2);
        session.handle_closed(id, "peer closed the connection", now);
    }
    let id = ConnectionId(40);
    session.handle_accepted(id, now).unwrap();
    session.handle_input(id, Input::Open(Open::new(1, 9, Ipv4Addr::new(9, 9, 9, 9), Families::ALL)), now);
    let (until, what) = session.poll_timeout().unwrap();
    assert_eq!(what, "hold-down");
    assert!(until >= now + seconds(15) && until < now + seconds(19), "{:?}", until - now);
}

#[test]
fn stop_is_final_until_started() {
    let now = Instant::now();
    let mut session = established(now);
    session.stop(&Notification::shutdown(2, "bye"), "administratively down", now);
    assert_eq!(closed_with(&mut session), Some((6, 2)));
    assert_eq!((session.state(), session.poll_timeout()), (State::Idle, None));
    assert!(session.handle_accepted(B, now).is_err());
    session.start(now);
    assert_eq!(session.state(), State::Connect);
}

#[test]
fn established_is_never_displaced() {
    let now = Instant::now();
    let mut session = established(now);
    assert!(session.handle_accepted(B, now).is_err());
    assert!(!session.handle_connected(B, now));
    assert_eq!(session.established().unwrap().0, A);
}

/// Two sessions, two connections, four queues of messages in flight.
#[derive(Clone)]
struct World {
    sessions: [Session; 2],
    /// Indexed by receiving side and connection.
    flight: [[VecDeque<Flight>; 2]; 2],
    /// Each side has heard of each connection.
    known: [[bool; 2]; 2],
}

#[derive(Clone)]
enum Flight {
    Message(Input),
    Closed,
}

impl World {
    /// Connection `n` was dialed by side `n`.
    fn new(now: Instant, asns: [u32; 2], ids: [u8; 2]) -> Self {
        let session = |n: usize| {
            let mut session = Session::new(config(asns[n], ids[n], asns[1 - n]), Jitter::new(1), now);
            session.start(now);
            session.actions.clear();
            session
        };
        Self { sessions: [session(0), session(1)], flight: Default::default(), known: Default::default() }
    }

    fn steps(&self) -> Vec<(usize, usize)> {
        let sides = [(0, 0), (0, 1), (1, 0), (1, 1)];
        sides.into_iter().filter(|(s, c)| !self.known[*s][*c] || !self.flight[*s][*c].is_empty()).collect()
    }

    /// Side `side` learns of connection `c`, or of the next thing on it.
    fn step(&mut self, (side, c): (usize, usize), now: Instant) {
        let id = ConnectionId(c as u64 + 1);
        if !std::mem::replace(&mut self.known[side][c], true) {
            let wanted = if side == c {
                self.sessions[side].handle_connected(id, now)
            } else {
                self.sessions[side].handle_accepted(id, now).is_ok()
            };
            if !wanted {
                self.flight[1 - side][c].push_back(Flight::Closed);
            }
        } else {
            match self.flight[side][c].pop_front().unwrap() {
                Flight::Message(input) => self.sessions[side].handle_input(id, input, now),
                Flight::Closed => self.sessions[side].handle_closed(id, "closed", now),
            }
        }
        self.carry(side);
    }

    fn carry(&mut self, side: usize) {
        while let Some(action) = self.sessions[side].poll_action() {
            let (id, messages) = match action {
                Action::SendOpen(id, open) => (id, vec![Flight::Message(Input::Open(open))]),
                Action::SendKeepalive(id) => (id, vec![Flight::Message(Input::Keepalive)]),
                Action::Up(id, _) => (id, vec![Flight::Message(Input::Update)]),
                Action::Close(id, Some(n)) => {
                    (id, vec![Flight::Message(Input::Notification(n)), Flight::Closed])
                }
                Action::Close(id, None) => (id, vec![Flight::Closed]),
                _ => continue,
            };
            self.flight[1 - side][usize::try_from(id.0).unwrap() - 1].extend(messages);
        }
    }

    /// What decides the future: states, and what is in flight.
    fn key(&self) -> String {
        let sessions = self.sessions.iter().map(|session| {
            let connections: Vec<_> =
                session.connections.iter().map(|c| (c.id, c.phase.state(), c.confirmed)).collect();
            format!("{connections:?} {:?}", std::mem::discriminant(&session.dialing))
        });
        let flight = self.flight.iter().flatten().map(|queue| {
            let names = queue.iter().map(|item| match item {
                Flight::Message(input) => input.name(),
                Flight::Closed => "closed",
            });
            names.collect::<Vec<_>>().join(",")
        });
        sessions.chain(flight).chain([format!("{:?}", self.known)]).collect::<Vec<_>>().join(";")
    }
}

#[test]
fn every_interleaving_of_two_connections_ends_in_one_session() {
    for (asns, ids) in
        [([65_001, 65_002], [1, 2]), ([65_001, 65_002], [2, 1]), ([65_001, 65_002], [5, 5]), ([7, 7], [1, 2])]
    {
        let now = Instant::now();
        let mut seen = HashSet::new();
        let mut todo = vec![World::new(now, asns, ids)];
        let mut ended = 0;
        while let Some(world) = todo.pop() {
            for session in &world.sessions {
                let standing = session.connections.iter().filter(|c| c.phase.state() == State::Established);
                assert!(standing.count() <= 1, "double session");
            }
            if !seen.insert(world.key()) {
                continue;
            }
            let steps = world.steps();
            if steps.is_empty() {
                let ends = world.sessions.each_ref().map(|s| s.established().map(|(id, _)| id));
                assert!(ends[0].is_some() && ends[0] == ends[1], "no common session: {ends:?}");
                ended += 1;
                continue;
            }
            for step in steps {
                let mut next = world.clone();
                let seen = |s: &Session| (s.established().map(|(id, _)| id), s.established_count);
                let before = next.sessions.each_ref().map(seen);
                next.step(step, now);
                let after = next.sessions.each_ref().map(seen);
                for ((before, counted), (after, counts)) in before.into_iter().zip(after) {
                    assert!(
                        before.is_none() || after.is_none() || before == after,
                        "Established was displaced"
                    );
                    let entered = u64::from(before.is_none() && after.is_some());
                    assert_eq!(counts - counted, entered, "each session is counted once");
                }
                todo.push(next);
            }
        }
        assert!(ended > 1 && seen.len() > 100, "the search was cut short");
    }
}

#[test]
fn collision_keeps_the_connection_of_the_higher_identifier() {
    for (ids, asns, winner) in
        [([1, 2], [65_001, 65_002], 1), ([2, 1], [65_001, 65_002], 0), ([5, 5], [65_001, 65_002], 1)]
    {
        let now = Instant::now();
        let mut world = World::new(now, asns, ids);
        // both sides know both connections before any message is read, then everything is read in turn
        for step in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            world.step(step, now);
        }
        for step in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            world.step(step, now);
        }
        while let Some(step) = world.steps().pop() {
            world.step(step, now);
        }
        for session in &world.sessions {
            assert_eq!(session.established().unwrap().0, ConnectionId(winner + 1), "{ids:?}");
        }
    }
}
