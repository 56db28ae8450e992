//! The restarting speaker: nothing is told or published before the peers have told what they know (RFC 4724 section 4.1).

use std::time::Duration;

use super::{net::*, played::*, *};
use crate::{Families, wire::Capability};

/// A node that comes back and whose kernel goes on forwarding.
fn returning(peers: &[usize]) -> Stage {
    let config = playing(peers);
    Stage::new(Config { restart: RestartConfig { forwarding: Families::ALL, ..config.restart }, ..config })
}

fn said(open: &crate::wire::Open) -> (bool, bool) {
    let said = open.capabilities.iter().find_map(|capability| match capability {
        Capability::GracefulRestart { restarting, families, .. } => {
            Some((*restarting, families.iter().all(|family| family.forwarding)))
        }
        _ => None,
    });
    said.unwrap()
}

fn is_over(stage: &mut Stage) -> bool {
    stage.events().contains(&Event::RestartOver)
}

#[test]
fn nothing_is_told_before_every_peer_has_told_all() {
    let mut stage = returning(&[5, 6]);
    stage.connect(5, &[steady()]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.end_of_rib(5, V4);
    stage.end_of_rib(5, V6);
    assert!(stage.speaker.defers() && !is_over(&mut stage));
    assert_eq!(stage.speaker.waiting_for(), ["node6".into()]);
    assert!(stage.speaker.detail_of("node6").unwrap().restart.waiting);
    assert_eq!((stage.told(5), stage.speaker.take_changed()), ((vec![], Families::NONE), vec![]));
    assert!(stage.speaker.pending_connections().is_empty());

    stage.connect(6, &[steady()]).unwrap();
    stage.end_of_rib(6, V4);
    assert!(stage.told(6).1.is_empty() && stage.speaker.defers());
    stage.end_of_rib(6, V6);
    assert!(!stage.speaker.defers() && is_over(&mut stage));
    let changed = stage.speaker.take_changed();
    assert!(changed.contains(&net(ONE)) && changed.contains(&net(TWO)), "{changed:?}");
    assert_eq!(stage.told(5), (vec![ONE.into()], Families::ALL));
    let (mut told, ends) = stage.told(6);
    told.sort();
    assert_eq!((told, ends), (vec![ONE.to_string(), TWO.to_string()], Families::ALL));
}

#[test]
fn only_the_first_session_says_that_we_have_restarted() {
    let mut stage = returning(&[5, 6]);
    assert_eq!(said(&stage.connect(5, &[steady()]).unwrap()), (true, true));
    stage.close(5);
    assert_eq!(said(&stage.connect(5, &[steady()]).unwrap()), (false, true), "not in its second");
    stage.pass(120);
    assert!(is_over(&mut stage));
    assert_eq!(said(&stage.connect(6, &[steady()]).unwrap()), (false, true), "not when it is over");
}

/// GoBGP #1632: nodes that restart together do not wait for each other.
#[test]
fn peers_that_have_restarted_too_are_not_waited_for() {
    let mut stage = returning(&[5, 6]);
    stage.connect(5, &[graceful(true, Families::ALL, true)]).unwrap();
    stage.connect(6, &[graceful(true, Families::ALL, true)]).unwrap();
    assert!(is_over(&mut stage));

    let mut net = mesh(&[65_001, 65_002, 65_003]);
    for n in 0..3 {
        let mut config = net.nodes[n].speaker.config().clone();
        config.restart.forwarding = Families::ALL;
        config.peers.iter_mut().for_each(|peer| peer.restart = RestartMode::Full);
        net.nodes[n].speaker = Speaker::new(config, n as u64, net.now);
    }
    net.seconds(10);
    for n in 0..3 {
        assert!(
            !net.nodes[n].speaker.defers(),
            "node {n} waits for {:?}",
            net.nodes[n].speaker.waiting_for()
        );
        assert_eq!(net.nodes[n].events.iter().filter(|event| **event == Event::RestartOver).count(), 1);
    }
    assert_eq!(net.through(0, TWO), ["node1"]);
}

#[test]
fn a_peer_that_never_comes_is_waited_for_no_longer_than_allowed() {
    let mut stage = returning(&[5, 6]);
    stage.connect(5, &[steady()]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.pass(119);
    assert!(stage.speaker.defers());
    stage.pass(1);
    assert!(!stage.speaker.defers() && is_over(&mut stage));
    stage.pass(600);
    assert!(!is_over(&mut stage), "once");
}

#[test]
fn a_peer_that_is_lost_meanwhile_counts_again() {
    let mut stage = returning(&[5]);
    stage.connect(5, &[steady()]).unwrap();
    stage.end_of_rib(5, V4);
    stage.close(5);
    stage.connect(5, &[steady()]).unwrap();
    stage.end_of_rib(5, V6);
    assert!(stage.speaker.defers(), "IPv4 has to be told again");
    stage.end_of_rib(5, V4);
    assert!(!stage.speaker.defers());
}

#[test]
fn who_is_not_to_come_is_not_waited_for() {
    type Change = fn(&mut Config);
    let changes: [Change; 2] =
        [|config| drop(config.peers.remove(0)), |config| config.peers[0].shutdown = Some("".into())];
    for change in changes {
        let mut stage = returning(&[5]);
        stage.apply(change);
        assert!(!stage.speaker.defers() && is_over(&mut stage));
    }
    let mut config = playing(&[5]);
    config.restart.forwarding = Families::ALL;
    config.peers[0].shutdown = Some("".into());
    assert!(!Stage::new(config).speaker.defers());
}

#[test]
fn a_peer_that_is_added_meanwhile_is_not_waited_for() {
    let mut stage = returning(&[5]);
    stage.apply(|config| config.peers.push(PeerConfig { passive: true, ..peer(6, asn(6)) }));
    assert_eq!(stage.speaker.waiting_for(), ["node5".into()]);
    stage.apply(|config| config.peers[0].hold_time = 30);
    assert_eq!(stage.speaker.waiting_for(), ["node5".into()], "its new session owes the same");
}

#[test]
fn a_first_start_keeps_nothing_back() {
    let mut stage = Stage::new(playing(&[5, 6]));
    assert!(!stage.speaker.defers());
    assert_eq!(said(&stage.connect(5, &[steady()]).unwrap()), (true, false), "R says so, F does not");
    assert_eq!(stage.told(5), (vec![ONE.into()], Families::ALL));
    assert_eq!(stage.speaker.poll_timeout().map(|(at, _)| at), Some(stage.now + Duration::from_secs(120)));
}
