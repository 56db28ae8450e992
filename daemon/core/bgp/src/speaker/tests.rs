use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;

use super::{net::*, *};
use crate::{
    Policy,
    fsm::State,
    rib::{Ineligible, Topology},
};

fn notified(net: &Net, n: usize, sent: bool) -> Vec<(u8, u8)> {
    let found = net.nodes[n].events.iter().filter_map(|event| match event {
        Event::Notified { sent: by_us, notification, .. } if *by_us == sent => {
            Some((notification.code, notification.subcode))
        }
        _ => None,
    });
    found.collect()
}

fn dials(net: &Net, n: usize) -> usize {
    net.nodes[n].events.iter().filter(|event| matches!(event, Event::Dial { .. })).count()
}

#[test]
fn prefixes_of_both_families_cross() {
    let mut net = pair();
    net.seconds(5);
    assert_eq!(net.through(0, TWO), ["node1"]);
    assert_eq!(net.through(0, SIX), ["node1"]);
    assert_eq!(net.through(1, ONE), ["node0"]);
    let attributes = &net.nodes[1].speaker.paths(&ONE.parse().unwrap())[0].attributes();
    assert_eq!(attributes.as_path.asns(), [65_001]);
    assert_eq!(attributes.next_hop, IpAddr::from(v4(0)));
    let attributes = &net.nodes[0].speaker.paths(&SIX.parse().unwrap())[0].attributes();
    assert_eq!(attributes.next_hop, IpAddr::from(v6(1)));
    for (n, other) in [(0, 1), (1, 0)] {
        assert!(net.nodes[n].speaker.synchronized());
        let status = net.status(n, other);
        assert_eq!((status.state, status.hold_time), (State::Established, Duration::from_secs(3)));
        assert_eq!(status.established_count, 1);
    }
    let status = net.status(0, 1);
    assert_eq!((status.prefixes_received, status.prefixes_accepted, status.prefixes_sent), (2, 2, 1));
}

/// RFC 9384: the far side reads why, and the routes go at once.
#[test]
fn a_dead_path_ends_the_session_and_it_is_tried_again() {
    let mut net = pair();
    net.seconds(5);
    net.nodes.iter_mut().for_each(|node| node.events.clear());
    let now = net.now;
    net.nodes[0].speaker.handle_path_down("node1", "BFD: test", now);
    net.run(Duration::from_millis(100));
    assert_eq!(notified(&net, 0, true), [(6, 10)]);
    assert_eq!(notified(&net, 1, false), [(6, 10)]);
    assert!(net.through(0, TWO).is_empty() && net.through(1, ONE).is_empty());
    // Not established, it has nothing to lose; and nobody has that name.
    net.nodes[0].speaker.handle_path_down("node1", "BFD: test", now);
    net.nodes[0].speaker.handle_path_down("stranger", "BFD: test", now);
    assert_eq!(notified(&net, 0, true).len(), 1);
    net.seconds(5);
    assert_eq!(net.status(0, 1).state, State::Established, "the network is expected back within seconds");
}

#[test]
fn a_quiet_hour_changes_nothing() {
    let mut net = pair();
    net.seconds(5);
    net.nodes.iter_mut().for_each(|node| node.events.clear());
    net.seconds(3600);
    assert!(net.nodes.iter().all(|node| node.events.is_empty()));
}

#[test]
fn silence_withdraws_after_the_hold_time() {
    let mut net = pair();
    net.seconds(10);
    net.cut.push((0, 1));
    net.run(Duration::from_millis(1900));
    assert_eq!(net.through(0, TWO), ["node1"]);
    net.run(Duration::from_millis(1200));
    assert!(net.through(0, TWO).is_empty());
    let status = net.status(0, 1);
    assert_eq!(status.last_error.as_deref(), Some("hold timer expired: nothing heard for 3 s"));
    net.cut.clear();
    net.seconds(5);
    assert_eq!(net.through(0, TWO), ["node1"], "and comes back by itself");
}

#[test]
fn after_an_outage_the_session_is_back_within_seconds() {
    for tenths in 0..60 {
        let mut net = pair();
        net.seconds(10);
        net.cut.push((0, 1));
        net.run(Duration::from_secs(60) + Duration::from_millis(100 * tenths));
        assert!(net.through(0, TWO).is_empty());
        net.cut.clear();
        net.seconds(6);
        for (n, other) in [(0, 1), (1, 0)] {
            assert_eq!(net.status(n, other).state, State::Established, "{}", net.status(n, other).reason);
        }
        assert_eq!(net.through(0, TWO), ["node1"]);
    }
}

#[test]
fn a_death_is_passed_on_at_once() {
    let mut net = mesh(&[65_001, 65_002, 65_003]);
    net.cut.push((0, 2));
    net.seconds(5);
    assert_eq!(net.through(2, ONE), ["node1"], "0 reaches 2 through 1");
    net.kill(0);
    net.run(Duration::ZERO);
    assert!(net.through(1, ONE).is_empty());
    assert!(net.through(2, ONE).is_empty());
}

#[test]
fn own_routes_do_not_come_back() {
    let mut net = mesh(&[65_001, 65_002, 65_003]);
    net.seconds(5);
    for n in 0..3 {
        let own = format!("10.{}.0.0/16", n + 1);
        let paths = net.nodes[n].speaker.paths(&own.parse().unwrap());
        let loops = paths.iter().filter(|path| path.verdict().ineligible() == Some(Ineligible::OwnAsn));
        assert_eq!(loops.count(), paths.len() - 1, "every foreign path to it has our AS on it");
        assert_eq!(net.through(n, &own), ["local"]);
    }
}

/// Node 0 reaches 1 and 2 over the tunnel, each behind a peer of its own.
fn tunnels(of_one: &[IpAddr], of_two: &[IpAddr]) -> Topology {
    let behind = |name: &'static str| move |address: &IpAddr| (IpNet::from(*address), name.into());
    Topology::new([], [], of_one.iter().map(behind("one")).chain(of_two.iter().map(behind("two"))))
}

#[test]
fn a_better_path_does_not_win_with_a_next_hop_that_is_not_the_peers() {
    let mut net = mesh(&[65_001, 65_002, 65_003]);
    let (one, two) = ([v4(1).into(), v6(1).into()], [v4(2).into(), v6(2).into()]);
    net.nodes[0].speaker.set_topology(tunnels(&one, &two));
    let now = net.now;
    let mut with_six = net.nodes[1].speaker.config().clone();
    with_six.announce.push(SIX.parse().unwrap());
    net.nodes[1].speaker.apply(with_six, now);
    net.seconds(5);
    assert_eq!(net.through(0, SIX), ["node1"], "the direct way is the shorter");
    let all = net.status(0, 1).prefixes_accepted;

    let verdicts = |net: &Net| {
        let paths = net.nodes[0].speaker.paths(&SIX.parse().unwrap());
        paths.iter().filter_map(|path| path.verdict().ineligible()).collect::<Vec<_>>()
    };
    for (topology, why) in [
        (tunnels(&one[..1], &two), Ineligible::OtherPeerNextHop),
        (tunnels(&one[..1], &[two[0], two[1], one[1]]), Ineligible::OtherPeerNextHop),
        (tunnels(&[], &two), Ineligible::LostTunnel),
    ] {
        net.nodes[0].changed.clear();
        net.nodes[0].speaker.set_topology(topology);
        net.seconds(1);
        assert_eq!(net.through(0, SIX), ["node2"], "{why}");
        assert_eq!(verdicts(&net), [why]);
        assert!(net.nodes[0].changed.contains(&SIX.parse().unwrap()), "the driver knows");
        assert!(net.status(0, 1).prefixes_accepted < all, "{why}");
        net.nodes[0].speaker.set_topology(tunnels(&one, &two));
        net.seconds(1);
        assert_eq!(net.through(0, SIX), ["node1"], "judged again, without a word from the peer");
    }
    net.nodes[0].speaker.set_topology(Topology::default());
    assert!(net.through(0, SIX).is_empty(), "both came over the tunnel, and nobody is behind it any more");
    assert_eq!(net.status(0, 1).established_count, 1);
}

#[test]
fn internal_routes_stay_between_two() {
    let mut net = mesh(&[65_001, 65_001, 65_001]);
    net.cut.push((0, 2));
    net.seconds(5);
    assert_eq!(net.through(1, ONE), ["node0"]);
    assert!(net.through(2, ONE).is_empty(), "1 is no route reflector");
    net.cut.clear();
    net.seconds(60);
    assert_eq!(net.through(2, ONE), ["node0"]);
    let attributes = &net.nodes[2].speaker.paths(&ONE.parse().unwrap())[0].attributes();
    assert_eq!((attributes.local_pref, attributes.as_path.len()), (Some(100), 0));
}

#[test]
fn equal_paths_are_used_together() {
    // 0 and 1 are two gateways of one site with one prefix; 2 is elsewhere.
    let mut net = mesh(&[65_001, 65_001, 65_003]);
    for n in 0..2 {
        let mut changed = net.nodes[n].speaker.config().clone();
        changed.announce = vec!["10.50.0.0/16".parse().unwrap()];
        let now = net.now;
        net.nodes[n].speaker.apply(changed, now);
    }
    net.seconds(5);
    assert_eq!(net.through(2, "10.50.0.0/16"), ["node0", "node1"]);
    net.kill(0);
    net.run(Duration::ZERO);
    assert_eq!(net.through(2, "10.50.0.0/16"), ["node1"]);
}

#[test]
fn external_peers_without_policy_exchange_nothing() {
    let mut net = pair();
    let quiet = PeerConfig { import: Policy::none(), export: Policy::none(), ..peer(1, 4_200_000_002) };
    let now = net.now;
    net.nodes[0].speaker.apply(config(0, 65_001, &[ONE], vec![quiet]), now);
    net.seconds(5);
    assert!(net.through(0, TWO).is_empty());
    assert!(net.through(1, ONE).is_empty());
    let status = net.status(0, 1);
    assert_eq!((status.prefixes_received, status.prefixes_accepted, status.prefixes_sent), (2, 0, 0));
}

#[test]
fn too_many_prefixes_end_the_session_for_a_while() {
    let mut net = pair();
    let now = net.now;
    let strict = PeerConfig {
        guards: Guards { max_prefixes: Some(2), ..Guards::default() },
        ..peer(1, 4_200_000_002)
    };
    net.nodes[0].speaker.apply(config(0, 65_001, &[ONE], vec![strict]), now);
    net.seconds(5);
    assert_eq!(net.through(0, TWO), ["node1"], "two prefixes of two families are within a limit of two each");
    let more = [TWO, "10.3.0.0/16", "10.4.0.0/16"];
    let now = net.now;
    net.nodes[1].speaker.apply(config(1, 4_200_000_002, &more, vec![peer(0, 65_001)]), now);
    net.run(Duration::ZERO);
    assert_eq!(notified(&net, 0, true).last(), Some(&(6, 1)));
    assert_eq!(notified(&net, 1, false).last(), Some(&(6, 1)));
    assert!(net.through(0, TWO).is_empty());
    assert_eq!(net.status(0, 1).state, State::Idle);
    assert!(net.status(1, 0).reason.contains("limit 2 of ipv4-unicast"), "{}", net.status(1, 0).reason);
    net.seconds(600);
    let established = net.status(0, 1).established_count;
    assert!((2..=5).contains(&established), "{established} sessions in ten minutes");
    assert!(dials(&net, 0) + dials(&net, 1) < 40);
}

#[test]
fn reload_touches_only_what_differs() {
    let mut net = mesh(&[65_001, 65_002, 65_003]);
    net.seconds(5);
    net.nodes.iter_mut().for_each(|node| node.events.clear());
    let now = net.now;
    let speaker = &mut net.nodes[0].speaker;
    let mut changed = speaker.config().clone();
    changed.announce = vec!["10.77.0.0/16".parse().unwrap()];
    assert_eq!(
        speaker.apply(changed.clone(), now),
        ["10.1.0.0/16 is not announced any more", "10.77.0.0/16 is announced"]
    );
    assert!(speaker.apply(changed.clone(), now).is_empty());
    net.seconds(1);
    assert!(net.nodes.iter().all(|node| node.events.is_empty()), "no session noticed");
    assert!(net.through(1, ONE).is_empty());
    assert_eq!(net.through(1, "10.77.0.0/16"), ["node0"]);

    let now = net.now;
    changed.peers[0].export = Policy::none();
    changed.peers[1].import = Policy::none();
    let said = net.nodes[0].speaker.apply(changed.clone(), now);
    assert_eq!(said, ["neighbor node1: export policy changed", "neighbor node2: import policy changed"]);
    net.seconds(1);
    assert!(net.nodes.iter().all(|node| node.events.is_empty()));
    assert_eq!(net.through(1, "10.77.0.0/16"), ["node2"], "only the longer way is left");
    assert_eq!(net.through(0, "10.3.0.0/16"), ["node1"]);

    let now = net.now;
    let removed = changed.peers.remove(0);
    assert_eq!(net.nodes[0].speaker.apply(changed.clone(), now), ["neighbor node1 removed"]);
    net.run(Duration::ZERO);
    assert_eq!(notified(&net, 1, false), [(6, 3)]);
    changed.peers.push(PeerConfig { export: Policy::all(), ..removed });
    let now = net.now;
    assert_eq!(net.nodes[0].speaker.apply(changed.clone(), now), ["neighbor node1 added"]);
    net.seconds(40);
    assert_eq!(net.through(1, "10.77.0.0/16"), ["node0"]);

    let now = net.now;
    changed.peers[0].hold_time = 30;
    assert_eq!(net.nodes[0].speaker.apply(changed, now), ["neighbor node2: session starts over"]);
    net.run(Duration::ZERO);
    assert_eq!(notified(&net, 2, false), [(6, 6)]);
}

#[test]
fn shutdown_says_why() {
    let mut net = pair();
    net.seconds(5);
    let now = net.now;
    net.nodes[0].speaker.shut_down("kernel update", now);
    net.run(Duration::ZERO);
    assert!(net.through(1, ONE).is_empty());
    let error = net.status(1, 0).last_error.unwrap();
    assert_eq!(error, "peer sent Cease/Administrative Shutdown: \"kernel update\"");
    net.seconds(60);
    assert_eq!(net.status(0, 1).state, State::Idle);
}

#[test]
fn wrong_as_number_is_refused_slowly() {
    let mut net = pair();
    let now = net.now;
    net.nodes[0].speaker.apply(config(0, 65_001, &[ONE], vec![peer(1, 65_099)]), now);
    net.seconds(600);
    assert!(notified(&net, 0, true).contains(&(2, 2)));
    assert!(dials(&net, 0) + dials(&net, 1) < 40, "{} {}", dials(&net, 0), dials(&net, 1));
    let error = net.status(0, 1).last_error.unwrap();
    assert_eq!(error, "peer says it is AS 4200000002, configured is 65099");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Links fail and come back, prefixes come and go; when all is quiet everyone knows what there is, and nothing else.
    #[test]
    fn a_fabric_settles(
        cuts in prop::collection::vec((0usize..4, 0usize..4, 0u64..7), 0..8),
        announced in prop::collection::vec((0usize..4, 0u8..6), 0..8),
        sites in prop::sample::select(vec![[1u32, 2, 3, 4], [1, 1, 3, 4]]),
    ) {
        let mut net = mesh(&sites.map(|site| 4_200_000_000 + site));
        for (a, b, seconds) in cuts {
            net.cut.push((a, b));
            net.seconds(seconds);
            if seconds % 2 == 0 {
                net.cut.clear();
            }
        }
        for (n, third) in &announced {
            let now = net.now;
            let mut changed = net.nodes[*n].speaker.config().clone();
            changed.announce.push(format!("172.16.{third}.0/24").parse().unwrap());
            net.nodes[*n].speaker.apply(changed, now);
            net.run(Duration::from_millis(100));
        }
        net.cut.clear();
        net.seconds(120);
        let all: BTreeSet<IpNet> =
            net.nodes.iter().flat_map(|node| node.speaker.config().announce.clone()).collect();
        for n in 0..4 {
            prop_assert!(net.nodes[n].speaker.synchronized());
            let known: BTreeSet<IpNet> = net.nodes[n].speaker.prefixes().collect();
            prop_assert_eq!(&known, &all, "node {}", n);
            for prefix in &all {
                prop_assert!(!net.through(n, &prefix.to_string()).is_empty());
            }
        }
    }
}
