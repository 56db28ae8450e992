use std::net::Ipv4Addr;

use super::*;
use crate::{
    Families,
    wire::{Capability, Open, RouteRefresh},
};

pub(super) fn config(local: u32, id: u8, remote: u32) -> SessionConfig {
    SessionConfig {
        local_asn: local,
        router_id: Ipv4Addr::new(10, 0, 0, id),
        remote_asn: remote.into(),
        passive: false,
        hold_time: 9,
        families: Families::ALL,
        offer: Offer::default(),
    }
}

pub(super) const A: ConnectionId = ConnectionId(1);
pub(super) const B: ConnectionId = ConnectionId(2);

pub(super) fn peer_open(hold_time: u16) -> Open {
    Open::new(65_002, hold_time, Ipv4Addr::new(10, 0, 0, 2), Families::ALL)
}

pub(super) fn started(now: Instant) -> Session {
    let mut session = Session::new(config(65_001, 1, 65_002), Jitter::new(1), now);
    session.start(now);
    session
}

pub(super) fn established(now: Instant) -> Session {
    let mut session = started(now);
    assert!(session.handle_connected(A, now));
    session.handle_input(A, Input::Open(peer_open(9)), now);
    session.handle_input(A, Input::Keepalive, now);
    assert_eq!(session.state(), State::Established);
    session.actions.clear();
    session
}

pub(super) fn closed_with(session: &mut Session) -> Option<(u8, u8)> {
    std::iter::from_fn(|| session.poll_action())
        .find_map(|action| match action {
            Action::Close(_, notification) => Some(notification.map(|n| (n.code, n.subcode))),
            _ => None,
        })
        .flatten()
}

pub(super) fn seconds(n: u64) -> Duration {
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

pub(super) fn received(session: &mut Session, code: u8, subcode: u8, now: Instant) {
    session.handle_input(A, Input::Notification(Notification::new(code, subcode)), now);
}

#[test]
fn a_peer_that_refuses_capabilities_is_asked_again_without_them() {
    for subcode in [4, 7] {
        let now = Instant::now();
        let mut session = started(now);
        session.handle_connected(A, now);
        assert!(offers_refresh(&mut session));
        received(&mut session, 2, subcode, now);
        assert_eq!(session.state(), State::Active, "not held down");
        let now = session.poll_timeout().unwrap().0;
        session.handle_timeout(now);
        session.handle_connected(B, now);
        assert!(!offers_refresh(&mut session));
        session.handle_input(B, Input::Open(peer_open(9)), now);
        session.handle_input(B, Input::Keepalive, now);
        assert!(!session.established().unwrap().1.route_refresh);
        session.handle_closed(B, "closed", now);
        session.handle_accepted(A, now).unwrap();
        assert!(!offers_refresh(&mut session), "what worked is remembered");
        session.restart(&Notification::new(6, 6), "changed", now);
        session.handle_connected(B, now);
        assert!(offers_refresh(&mut session), "until the configuration changes");
    }
}

#[test]
fn a_peer_that_refuses_the_plain_open_as_well_means_something_else() {
    let mut now = Instant::now();
    let mut session = started(now);
    session.handle_connected(A, now);
    received(&mut session, 2, 7, now);
    now = session.poll_timeout().unwrap().0;
    session.handle_timeout(now);
    session.actions.clear();
    session.handle_connected(A, now);
    assert!(!offers_refresh(&mut session));
    received(&mut session, 2, 7, now);
    assert_eq!(session.poll_timeout().unwrap().1, "hold-down");
    now = session.poll_timeout().unwrap().0;
    session.handle_timeout(now);
    session.handle_connected(A, now);
    assert!(offers_refresh(&mut session));
}

fn offers_refresh(session: &mut Session) -> bool {
    let open = std::iter::from_fn(|| session.poll_action()).find_map(|action| match action {
        Action::SendOpen(_, open) => Some(open),
        _ => None,
    });
    open.unwrap().capabilities.contains(&Capability::RouteRefresh)
}

#[test]
fn passive_sessions_never_dial() {
    let now = Instant::now();
    let config = SessionConfig { passive: true, ..config(65_001, 1, 65_002) };
    let mut session = Session::new(config, Jitter::new(1), now);
    session.start(now);
    assert_eq!((session.state(), session.poll_timeout()), (State::Active, None));
    session.handle_accepted(A, now).unwrap();
    session.handle_input(A, Input::Open(peer_open(9)), now);
    session.handle_input(A, Input::Keepalive, now);
    assert_eq!(session.state(), State::Established);
    session.handle_closed(A, "closed", now);
    assert_eq!((session.state(), session.poll_timeout()), (State::Active, None));
    // Held down it refuses, and then waits again.
    session.handle_accepted(A, now).unwrap();
    received(&mut session, 6, 1, now);
    assert!(session.handle_accepted(B, now).is_err());
    session.handle_timeout(session.poll_timeout().unwrap().0);
    assert_eq!((session.state(), session.poll_timeout()), (State::Active, None));
    assert!(!session.actions.contains(&Action::Dial));
}

#[test]
fn clear_ends_a_hold_down() {
    let now = Instant::now();
    let mut session = established(now);
    session.handle_error(A, Notification::max_prefixes(crate::Family::Ipv4Unicast, 100), now);
    assert_eq!(session.state(), State::Idle);
    session.clear("", now);
    assert_eq!(
        (session.state(), session.actions.back()),
        (State::Connect, Some(&Action::Changed { from: State::Idle, to: State::Connect }))
    );
    assert!(session.actions.contains(&Action::Dial));
    session.stop(&Notification::new(6, 2), "down", now);
    session.clear("", now);
    assert_eq!(session.state(), State::Idle, "stopped is stopped");
}

#[test]
fn a_dead_path_ends_both_connections_and_establishes_none() {
    let now = Instant::now();
    let mut session = started(now);
    session.handle_connected(A, now);
    session.handle_accepted(B, now).unwrap();
    session.handle_input(B, Input::Open(peer_open(9)), now);
    session.handle_input(B, Input::Keepalive, now);
    session.actions.clear();
    session.handle_path_down("BFD: no packet for 900 ms", now);
    assert!(!session.actions.iter().any(|action| matches!(action, Action::Up(..))));
    assert_eq!(session.state(), State::Active);
    let (retry, what) = session.poll_timeout().unwrap();
    assert!(what == "connect retry" && retry < now + seconds(2), "as soon as after any loss");
    let error = session.last_error().unwrap();
    assert_eq!((error.sent, error.fault()), (true, Fault::Network));
    assert_eq!(error.text, "BFD: no packet for 900 ms");
}

#[test]
fn errors_say_whose_fault_they_are() {
    let error = |sent, code, subcode| LastError {
        at: Instant::now(),
        sent,
        notification: Some(Notification::new(code, subcode)),
        text: String::new(),
    };
    let cases = [
        (error(true, 2, 2), Fault::Configuration),
        (error(false, 6, 1), Fault::Configuration),
        (error(true, 3, 1), Fault::Peer),
        (error(false, 3, 1), Fault::Here),
        (error(false, 6, 2), Fault::Operator),
        (error(true, 4, 0), Fault::Network),
        (error(true, 8, 0), Fault::Network),
        (LastError { notification: None, ..error(false, 0, 0) }, Fault::Network),
    ];
    for (error, fault) in cases {
        assert_eq!(error.fault(), fault, "{error:?}");
    }
}

#[test]
fn a_peer_that_lost_its_end_is_found_out_by_a_keepalive() {
    let now = Instant::now();
    let mut session = established(now);
    session.handle_sent(A);
    assert!(session.handle_accepted(B, now).is_err());
    assert!(session.handle_accepted(B, now).is_err());
    let probes = session.actions.iter().filter(|action| **action == Action::SendKeepalive(A));
    assert_eq!(probes.count(), 1);
}
