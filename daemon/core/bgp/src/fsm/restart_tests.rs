//! Graceful restart, as the session sees it: how it ends, and who takes over.

use super::{tests::*, *};
use crate::{
    Families,
    wire::{Capability, Open, RestartFamily},
};

fn graceful(notification: bool) -> Open {
    let mut open = peer_open(9);
    let families = vec![RestartFamily { afi: 1, safi: 1, forwarding: true }];
    let (restarting, time) = (false, 120);
    open.capabilities.push(Capability::GracefulRestart { restarting, notification, time, families });
    open
}

/// Established with a peer that keeps routes over a restart, as we do.
fn gracefully_established(notification: bool, now: Instant) -> Session {
    let mut config = config(65_001, 1, 65_002);
    config.offer.restart =
        Some(RestartOffer { time: 120, restarting: true, forwarding: Families::ALL, preserving: true });
    let mut session = Session::new(config, Jitter::new(1), now);
    session.start(now);
    session.handle_connected(A, now);
    session.handle_input(A, Input::Open(graceful(notification)), now);
    session.handle_input(A, Input::Keepalive, now);
    session.actions.clear();
    session
}

fn ending(session: &mut Session) -> Option<Ending> {
    std::iter::from_fn(|| session.poll_action()).find_map(|action| match action {
        Action::Down(_, ending) => Some(ending),
        _ => None,
    })
}

#[test]
fn how_a_session_ended_is_told() {
    type End = fn(&mut Session, Instant);
    let cases: [(End, Ending); 12] = [
        (|s, now| s.handle_closed(A, "reset", now), Ending::Transport),
        (|s, now| s.handle_link_down("no carrier", now), Ending::Transport),
        (|s, now| s.handle_path_down("BFD: no packet for 900 ms", now), Ending::PathDown),
        (|s, now| received(s, 6, 10, now), Ending::PathDown),
        (|s, now| received(s, 6, 4, now), Ending::Notification { hard: false }),
        (|s, now| received(s, 6, 2, now), Ending::Notification { hard: false }),
        (|s, now| received(s, 4, 0, now), Ending::Notification { hard: false }),
        // RFC 8538: a Hard Reset without anything inside is one too.
        (|s, now| received(s, 6, 9, now), Ending::Notification { hard: true }),
        (|s, now| s.handle_timeout(now + seconds(9)), Ending::Notification { hard: false }),
        (|s, now| s.handle_error(A, Notification::new(6, 1), now), Ending::Notification { hard: true }),
        (|s, now| s.stop(&Notification::new(6, 2), "down", now), Ending::Stopped),
        (|s, now| s.clear("again", now), Ending::Stopped),
    ];
    for (end, expected) in cases {
        let now = Instant::now();
        let mut session = gracefully_established(true, now);
        end(&mut session, now);
        assert_eq!(ending(&mut session), Some(expected));
    }
}

#[test]
fn a_hard_reset_does_not_leak_into_the_next_session() {
    let now = Instant::now();
    let mut session = gracefully_established(true, now);
    received(&mut session, 6, 9, now);
    // The reset races it, and comes second.
    session.handle_closed(A, "connection reset", now);
    assert_eq!(ending(&mut session), Some(Ending::Notification { hard: true }));
    session.handle_accepted(B, now).unwrap();
    session.handle_input(B, Input::Open(graceful(true)), now);
    session.handle_input(B, Input::Keepalive, now);
    assert_eq!(session.state(), State::Established);
    session.handle_closed(B, "connection reset", now);
    assert_eq!(ending(&mut session), Some(Ending::Transport));
}

#[test]
fn what_ends_for_good_is_a_hard_reset_where_the_peer_knows_it() {
    for (notification, expected) in [(true, (6, 9)), (false, (6, 2))] {
        let now = Instant::now();
        let mut session = gracefully_established(notification, now);
        session.stop(&Notification::shutdown(2, "bye"), "administratively down", now);
        let sent = session.actions.iter().find_map(|action| match action {
            Action::Close(_, Some(sent)) => Some(sent.clone()),
            _ => None,
        });
        let sent = sent.unwrap();
        assert_eq!((sent.code, sent.subcode), expected);
        assert!(sent.data.ends_with(b"bye"));
        assert!(!notification || sent.data.starts_with(&[6, 2, 3]), "the cause is inside");
    }
}

#[test]
fn a_suspended_session_leaves_the_peer_with_our_routes() {
    for (mut session, expected) in [
        (gracefully_established(true, Instant::now()), Some((6, 4))),
        (gracefully_established(false, Instant::now()), None),
        (established(Instant::now()), Some((6, 2))),
    ] {
        session.suspend("isthmusd is restarting", Instant::now());
        assert_eq!(closed_with(&mut session), expected);
        assert_eq!((session.state(), session.poll_timeout()), (State::Idle, None));
    }
}

fn restarted(mut open: Open) -> Open {
    for capability in &mut open.capabilities {
        if let Capability::GracefulRestart { restarting, .. } = capability {
            *restarting = true;
        }
    }
    open
}

#[test]
fn a_peer_that_proves_its_restart_takes_over() {
    let now = Instant::now();
    let mut session = gracefully_established(true, now);
    session.handle_accepted(B, now).unwrap();
    assert_eq!(session.poll_action(), None, "nothing is said before the proof");
    session.handle_input(B, Input::Open(restarted(graceful(true))), now);
    assert_eq!(session.established().unwrap().0, A, "and nothing is given up before the newcomer lives");
    session.handle_input(B, Input::Keepalive, now);
    assert_eq!(session.established().unwrap().0, B);
    let closed: Vec<_> =
        session.actions.iter().filter(|a| matches!(a, Action::Close(..) | Action::Down(..))).collect();
    assert_eq!(closed, [&Action::Close(A, None), &Action::Down(A, Ending::Transport)]);
}

#[test]
fn a_peer_that_does_not_prove_it_does_not() {
    let now = Instant::now();
    let mut session = gracefully_established(true, now);
    session.handle_accepted(B, now).unwrap();
    session.handle_input(B, Input::Open(graceful(true)), now);
    assert_eq!(closed_with(&mut session), Some((6, 7)));
    assert_eq!(session.established().unwrap().0, A);
    // The old one goes while the new one waits: now it is wanted.
    session.handle_accepted(B, now).unwrap();
    session.handle_closed(A, "reset", now);
    assert!(session.actions.iter().any(|action| matches!(action, Action::SendOpen(id, _) if *id == B)));
    session.handle_input(B, Input::Open(graceful(true)), now);
    session.handle_input(B, Input::Keepalive, now);
    assert_eq!(session.established().unwrap().0, B);
}
