//! Restarts and drains that lose no packet: at every moment every kernel leads every prefix home.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ipnet::IpNet;
use isthmus_bgp::{Config, PeerConfig, Policy, RestartMode};

use crate::{
    network::{Network, node_at, v4},
    topology::prefix,
};

/// Four nodes that do graceful restart, joined by these pairs. Node n announces 10.n.0.0/16.
fn network(pairs: &[(usize, usize)]) -> Network {
    let neighbor = |other: usize| PeerConfig {
        import: Policy::all(),
        export: Policy::all(),
        restart: RestartMode::Full,
        ..PeerConfig::new(format!("node{other}"), v4(other).into(), asn(other))
    };
    let neighbors = |n: usize| {
        let others = pairs.iter().filter_map(move |(a, b)| match n {
            n if n == *a => Some(*b),
            n if n == *b => Some(*a),
            _ => None,
        });
        others.map(neighbor).collect()
    };
    let config =
        |n: usize| Config { announce: vec![net(n)], peers: neighbors(n), ..Config::new(asn(n), v4(n)) };
    let mut network = Network::new((0..4).map(config).collect(), 7);
    network.run(Duration::from_secs(10));
    network
}

fn ring() -> Network {
    network(&[(0, 1), (1, 2), (2, 3), (0, 3)])
}

/// Nobody has another way: in a ring the neighbors of a node that restarts would take theirs, as stale routes are the last choice.
fn chain() -> Network {
    network(&[(0, 1), (1, 2), (2, 3)])
}

fn asn(n: usize) -> u32 {
    65_001 + u32::try_from(n).unwrap()
}

fn net(n: usize) -> IpNet {
    prefix(n).parse().unwrap()
}

/// True if packets from one node to what another announces arrive, whichever of equal ways they take. `down`: it forwards nothing.
fn arrives(network: &Network, from: usize, to: usize, down: Option<usize>) -> bool {
    let mut todo = vec![(from, 0)];
    while let Some((n, steps)) = todo.pop() {
        let hops = network.nodes[n].kernel.hops(&net(to));
        if Some(n) == down || hops.is_empty() || steps > 4 {
            return false;
        }
        let next = |hop: IpAddr| node_at(hop).map(|n| (n, steps + 1));
        todo.extend(hops.into_iter().flatten().filter_map(next));
    }
    true
}

fn assert_all_arrive(network: &Network, but: Option<usize>, down: Option<usize>) {
    for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
        let counts = Some(from) != but && Some(to) != but;
        assert!(!counts || arrives(network, from, to, down), "from {from} to {to}");
    }
}

/// Looks every few milliseconds.
fn watch(network: &mut Network, seconds: u64, check: impl Fn(&Network)) {
    for _ in 0..seconds * 50 {
        network.run(Duration::from_millis(20));
        check(network);
    }
}

fn kernels(network: &Network) -> Vec<BTreeMap<IpNet, crate::kernel::Hops>> {
    network.nodes.iter().map(|node| node.kernel.routes().clone()).collect()
}

#[test]
fn a_restart_changes_no_route_anywhere() {
    for killed in [true, false] {
        let mut network = chain();
        let before = kernels(&network);
        if killed {
            network.kill(1, false)
        } else {
            network.suspend(1)
        }
        watch(&mut network, 3, |network| assert_all_arrive(network, None, None));
        network.start(1);
        watch(&mut network, 20, |network| assert_all_arrive(network, None, None));
        assert!(!network.nodes[1].speaker.as_ref().unwrap().defers());
        assert_eq!(kernels(&network), before);
    }
}

/// GoBGP #1632. What a node has to tell is not all there yet when its neighbors stop waiting (RFC 4724 section 4.1), so packets may be
/// lost for a moment; but not for minutes.
#[test]
fn all_restart_at_once() {
    let mut network = chain();
    let before = kernels(&network);
    (0..4).for_each(|n| network.kill(n, false));
    (0..4).for_each(|n| network.start(n));
    network.run(Duration::from_secs(5));
    assert!(network.speakers().all(|(_, speaker)| !speaker.defers()), "they wait for each other");
    assert_eq!(kernels(&network), before);
}

#[test]
fn a_drained_node_is_not_missed() {
    let mut network = ring();
    network.drain(1, Duration::from_secs(2));
    watch(&mut network, 1, |network| assert_all_arrive(network, Some(1), None));
    assert_all_arrive(&network, Some(1), Some(1));
    watch(&mut network, 10, |network| assert_all_arrive(network, Some(1), Some(1)));
    assert!(network.nodes[1].speaker.is_none() && network.nodes[1].kernel.routes().is_empty());
}

#[test]
fn without_graceful_restart_packets_are_lost() {
    let mut network = ring();
    network.kill(1, true);
    network.run(Duration::from_millis(20));
    assert!(!arrives(&network, 0, 1, Some(1)), "the other tests would see it");
}
