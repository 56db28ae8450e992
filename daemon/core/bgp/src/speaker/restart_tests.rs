//! The receiving speaker: what becomes of a peer's routes when its session ends (RFC 4724 section 4.2, RFC 8538).

use std::time::Duration;

use super::{net::*, played::*, *};
use crate::{
    Families, Policy,
    rib::Ineligible,
    wire::{Capability, code},
};

const NONE: [String; 0] = [];

/// Peers 5 and 6 are up; 5 has announced TWO and SIX and said that this is all.
fn kept_by(capability: Capability) -> Stage {
    let mut stage = Stage::new(playing(&[5, 6]));
    stage.connect(5, std::slice::from_ref(&capability)).unwrap();
    stage.connect(6, &[capability]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.announce(5, SIX, &[]);
    Family::ALL.into_iter().for_each(|family| stage.end_of_rib(5, family));
    stage.events();
    stage
}

fn stage() -> Stage {
    kept_by(steady())
}

fn gone(stage: &mut Stage) -> Vec<(Family, u32)> {
    let gone = |event| match event {
        Event::StaleGone { family, paths, .. } => Some((family, paths)),
        _ => None,
    };
    stage.events().into_iter().filter_map(gone).collect()
}

#[test]
fn a_lost_peer_is_the_last_choice() {
    let mut stage = stage();
    stage.close(5);
    assert_eq!((stage.through(TWO), stage.kept("node5")), (vec!["node5".into()], (2, 2)));
    stage.announce(6, TWO, &[70_000, 70_001, 70_002]);
    assert_eq!(stage.through(TWO), ["node6"], "longer, but alive");
    stage.announce(6, SIX, &[70_000]);
    assert_eq!(stage.through(SIX), ["node6"]);
    assert_eq!(stage.kept("node5"), (2, 2), "not the best, and kept all the same");
}

#[test]
fn who_comes_back_keeps_what_it_announces_again() {
    let mut stage = stage();
    stage.close(5);
    stage.pass(59);
    stage.connect(5, &[graceful(true, Families::ALL, true)]).unwrap();
    assert_eq!(stage.kept("node5"), (2, 2));
    stage.announce(5, TWO, &[]);
    assert_eq!(stage.kept("node5"), (2, 1));
    stage.pass(60);
    assert_eq!(stage.kept("node5"), (2, 1), "its restart time is over, and does not count any more");
    stage.end_of_rib(5, V4);
    stage.end_of_rib(5, V6);
    assert_eq!((stage.kept("node5"), stage.through(SIX)), ((1, 0), NONE.to_vec()));
    assert_eq!(gone(&mut stage), [(V6, 1)]);
    stage.announce(5, TWO, &[]);
    assert_eq!(stage.through(TWO), ["node5"]);
}

#[test]
fn a_family_that_was_not_forwarded_goes_at_once() {
    let mut stage = stage();
    stage.close(5);
    stage.connect(5, &[graceful(true, Families::from_iter([V6]), true)]).unwrap();
    assert_eq!((stage.through(TWO), stage.through(SIX)), (NONE.to_vec(), vec!["node5".into()]));
    assert_eq!(gone(&mut stage), [(V4, 1)]);
    stage.close(5);
    stage.connect(5, &[]).unwrap();
    assert_eq!(stage.kept("node5"), (0, 0), "it does not do graceful restart any more");
}

#[test]
fn who_stays_away_is_forgotten_in_time() {
    let mut stage = stage();
    stage.close(5);
    assert!(
        stage.speaker.poll_timeout().is_some_and(|(at, what)| {
            (at, what) == (stage.now + Duration::from_secs(60), "stale routes")
        })
    );
    stage.pass(59);
    assert_eq!(stage.kept("node5"), (2, 2));
    stage.pass(1);
    assert_eq!((stage.kept("node5"), stage.through(TWO)), ((0, 0), NONE.to_vec()));
    assert_eq!(gone(&mut stage), [(V4, 1), (V6, 1)]);
}

#[test]
fn who_never_says_that_it_is_done_is_not_waited_for() {
    let mut stage = stage();
    stage.close(5);
    stage.connect(5, &[graceful(true, Families::ALL, true)]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.pass(359);
    assert_eq!(stage.kept("node5"), (2, 1));
    stage.pass(1);
    assert_eq!(stage.kept("node5"), (1, 0));
}

#[test]
fn what_was_stale_gets_no_second_chance() {
    let mut stage = stage();
    stage.close(5);
    stage.connect(5, &[graceful(true, Families::ALL, true)]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.close(5);
    assert_eq!((stage.through(TWO), stage.through(SIX)), (vec!["node5".into()], NONE.to_vec()));
    assert_eq!(stage.kept("node5"), (1, 1));
}

#[test]
fn without_graceful_restart_nothing_is_kept_and_nobody_hears_of_stale_routes() {
    let mut stage = Stage::new(playing(&[5]));
    stage.connect(5, &[]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.events();
    stage.close(5);
    assert_eq!((stage.kept("node5"), gone(&mut stage)), ((0, 0), vec![]));
}

#[test]
fn a_notification_keeps_routes_where_both_sides_said_so() {
    let reset = Notification::new(code::CEASE, code::cease::RESET);
    let shutdown = Notification::shutdown(code::cease::SHUTDOWN, "");
    let hard = Notification::hard_reset(&shutdown);
    let bare = Notification::new(code::CEASE, code::cease::HARD_RESET);
    let cases =
        [(true, &reset, 2), (true, &shutdown, 2), (true, &hard, 0), (true, &bare, 0), (false, &reset, 0)];
    for (notification, said, kept) in cases {
        let mut stage = kept_by(graceful(false, Families::ALL, notification));
        stage.notify(5, said);
        stage.close(5);
        assert_eq!(stage.kept("node5"), (kept, kept), "{said}, {notification}");
    }
}

/// FRR #21822: a Hard Reset counts for the session that it ended, a reset of TCP behind it changes nothing, and the next session starts
/// without any of that.
#[test]
fn a_hard_reset_does_not_reach_into_the_next_session() {
    let mut stage = stage();
    stage.notify(5, &Notification::new(code::CEASE, code::cease::HARD_RESET));
    stage.close(5);
    assert_eq!(stage.kept("node5"), (0, 0));
    stage.connect(5, &[steady()]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.close(5);
    assert_eq!(stage.kept("node5"), (1, 1));
}

#[test]
fn a_helper_keeps_and_asks_for_nothing() {
    let mut stage = Stage::new(playing(&[5]));
    stage.apply(|config| config.peers[0].restart = RestartMode::Helper);
    let ours = stage.connect(5, &[steady()]).unwrap();
    let said = ours.capabilities.iter().find_map(|capability| match capability {
        Capability::GracefulRestart { restarting, notification, families, .. } => {
            Some((*restarting, *notification, families.len()))
        }
        _ => None,
    });
    assert_eq!(said, Some((false, true, 0)));
    stage.announce(5, TWO, &[]);
    stage.close(5);
    assert_eq!(stage.kept("node5"), (1, 1));

    stage.apply(|config| config.peers[0].restart = RestartMode::Off);
    assert_eq!(stage.kept("node5"), (0, 0), "a kept route goes with the setting that kept it");
    let ours = stage.connect(5, &[steady()]).unwrap();
    assert!(!ours.capabilities.iter().any(|one| matches!(one, Capability::GracefulRestart { .. })));
    stage.announce(5, TWO, &[]);
    stage.close(5);
    assert_eq!(stage.kept("node5"), (0, 0));
}

/// FRR PR #21742, sonic-buildimage #28648.
#[test]
fn a_stale_route_whose_next_hop_is_gone_does_not_come_back() {
    let mut stage = stage();
    let behind = |address: IpAddr, name: &'static str| (IpNet::from(address), name.into());
    let all = [
        behind(v4(5).into(), "five"),
        behind(v6(5).into(), "five"),
        behind(v4(6).into(), "six"),
        behind(v6(6).into(), "six"),
    ];
    let around = |known: &[(IpNet, Arc<str>)]| Topology::new([], [], known.to_vec());
    stage.speaker.set_topology(around(&all));
    stage.announce(6, TWO, &[]);
    stage.close(5);
    assert_eq!((stage.through(TWO), stage.kept("node5")), (vec!["node6".into()], (2, 2)));
    stage.speaker.set_topology(around(&[all[0].clone(), all[2].clone(), all[3].clone()]));
    assert_eq!(
        (stage.kept("node5"), stage.through(SIX)),
        ((1, 1), NONE.to_vec()),
        "the one not used is kept"
    );
    stage.speaker.set_topology(around(&all));
    assert_eq!((stage.kept("node5"), stage.through(SIX)), ((1, 1), NONE.to_vec()));
    stage.speaker.set_topology(Topology::default());
    assert_eq!(stage.kept("node5"), (0, 0), "it came over the tunnel, and nobody is behind it any more");
    assert_eq!(stage.speaker.paths(&net(TWO))[0].verdict().ineligible(), Some(Ineligible::LostTunnel));
}

/// rustbgpd PR #688.
#[test]
fn a_refresh_does_not_sweep_what_a_restart_keeps() {
    let mut stage = stage();
    let able = [graceful(true, Families::ALL, true), Capability::EnhancedRouteRefresh];
    stage.close(5);
    stage.connect(5, &able).unwrap();
    stage.refresh(5, 1);
    stage.refresh(5, 2);
    assert_eq!(stage.kept("node5"), (2, 2), "they wait for End-of-RIB");
    stage.announce(5, TWO, &[]);
    stage.end_of_rib(5, V4);
    stage.refresh(5, 1);
    stage.close(5);
    stage.connect(5, &able).unwrap();
    stage.refresh(5, 2);
    assert_eq!(stage.kept("node5"), (1, 1), "a refresh ends with its session");
}

#[test]
fn a_dead_path_ends_what_is_kept_unless_it_is_to_stay() {
    for (keep, kept) in [(false, 0), (true, 2)] {
        let mut stage = stage();
        stage.apply(|config| config.restart.keeper.keep_when_path_down = keep);
        stage.speaker.handle_path_down("node5", "BFD: no packet for 900 ms", stage.now);
        assert_eq!(stage.kept("node5"), (kept, kept), "of a session that stood");
        let words = stage.last_words();
        assert!(matches!(&words[..], [Some(n)] if (n.code, n.subcode) == (6, 10)), "{words:?}");

        let mut stage = self::stage();
        stage.apply(|config| config.restart.keeper.keep_when_path_down = keep);
        stage.close(5);
        stage.speaker.handle_path_down("node5", "BFD: no packet for 900 ms", stage.now);
        assert_eq!(stage.kept("node5"), (kept, kept), "of one that was gone");
    }
}

#[test]
fn a_link_that_is_down_carries_nothing() {
    let mut stage = stage();
    stage.speaker.handle_link_down("node5", "eth1 has no carrier", stage.now);
    assert_eq!((stage.kept("node5"), stage.last_words()), ((0, 0), vec![None]));
    assert!(stage.status("node5").last_error.is_some_and(|why| why.contains("carrier")));
}

#[test]
fn another_configuration_of_a_peer_that_is_away() {
    type Case = (fn(&mut Config), u32);
    let cases: [Case; 8] = [
        (|config| config.peers[0].hold_time = 30, 0),
        (|config| config.peers[0].asn = 64_999, 0),
        (|config| config.peers[0].shutdown = Some("maintenance".into()), 0),
        (|config| drop(config.peers.remove(0)), 0),
        (|config| config.router_id = v4(9), 0),
        (|config| config.peers[0].port = 1179, 2),
        (|config| config.peers[0].export = Policy::none(), 2),
        (|config| config.restart.time = 30, 2),
    ];
    for (number, (change, kept)) in cases.into_iter().enumerate() {
        let mut stage = stage();
        stage.close(5);
        assert!(!stage.apply(change).is_empty() || number == 7, "case {number}");
        let found = stage.speaker.paths(&net(TWO)).len() + stage.speaker.paths(&net(SIX)).len();
        assert_eq!(found, kept as usize, "case {number}");
    }
    let mut stage = stage();
    stage.close(5);
    stage.apply(|config| config.peers[0].import = Policy::none());
    assert_eq!(
        (stage.kept("node5"), stage.through(TWO)),
        ((2, 2), NONE.to_vec()),
        "judged by the new policy"
    );
}

#[test]
fn another_restart_time_is_told_in_the_next_session() {
    let mut stage = stage();
    stage.apply(|config| config.restart.time = 30);
    assert!(stage.events().is_empty(), "no session notices");
    stage.close(5);
    let ours = stage.connect(5, &[steady()]).unwrap();
    let time = |one: &Capability| match one {
        Capability::GracefulRestart { time, .. } => Some(*time),
        _ => None,
    };
    assert_eq!(ours.capabilities.iter().find_map(time), Some(30));
}

#[test]
fn details_of_a_restart_are_shown() {
    let mut stage = stage();
    let detail = stage.speaker.detail_of("node5").unwrap();
    assert!(detail.restart.agreed && detail.restart.notification && detail.restart.stale.is_empty());
    assert_eq!((detail.restart.time, detail.restart.families), (Duration::from_secs(60), Families::ALL));
    assert_eq!((detail.messages_in.open, detail.messages_in.update, detail.messages_in.keepalive), (1, 4, 1));
    stage.notify(5, &Notification::shutdown(code::cease::RESET, "upgrade"));
    let detail = stage.speaker.detail_of("node5").unwrap();
    assert_eq!((detail.restart.agreed, detail.restart.stale), (false, Families::ALL));
    assert!(detail.timers.contains(&(stage.now + Duration::from_secs(60), "stale routes")));
    assert_eq!(detail.families[0].stale_until, Some(stage.now + Duration::from_secs(60)));
    let error = detail.last_error.unwrap();
    assert_eq!((error.at, error.sent, error.fault().to_string()), (stage.now, false, "an operator".into()));
    assert_eq!((detail.status.flaps, detail.messages_in.notification), (1, 1));
}
