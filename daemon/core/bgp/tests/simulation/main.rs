//! Networks of speakers on virtual time, in trouble and then left alone.
//!
//! Each seed is a network, and a minute in which connections are lost, ways are cut, processes are killed, readers are slow and
//! prefixes come and go. Then everything is repaired, and after a while every table must be what a network without any history
//! would have computed.

#![allow(clippy::unwrap_used, reason = "the whole package is a test")]

mod chance;
mod network;
mod topology;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use isthmus_bgp::{Speaker, fsm::State, rib::Source};

use chance::Chance;
use network::{Network, v4};
use topology::{Plan, prefix};

const QUIET: Duration = Duration::from_secs(75);

/// What a node knows of a prefix: each way to it, and whether it is used.
type Table = BTreeMap<String, BTreeSet<String>>;

fn table(speaker: &Speaker) -> Table {
    let path = |path: &isthmus_bgp::rib::Path| {
        let source = match path.bundle().source() {
            Source::Local => "local".to_string(),
            Source::Peer(neighbor) => neighbor.name.to_string(),
        };
        format!("{source} {:?} {:?}", path.verdict(), path.bundle().attributes())
    };
    let row = |prefix: ipnet::IpNet| (prefix.to_string(), speaker.paths(&prefix).iter().map(path).collect());
    speaker.prefixes().map(row).collect()
}

/// One thing goes wrong, or is repaired.
fn trouble(network: &mut Network, plan: &Plan) {
    let (a, b) = plan.pairs[network.chance.below(plan.pairs.len())];
    let n = network.chance.below(network.nodes.len());
    match network.chance.below(9) {
        0 | 1 => network.lose(a, b),
        2 => drop(network.cut.insert((a, b))),
        3 => drop(network.cut.remove(&(a, b))),
        4 => {
            let machine = network.chance.one_in(2);
            network.kill(n, machine);
        }
        5 | 6 => network.start(n),
        7 => {
            let seconds = u64::try_from(1 + network.chance.below(15)).unwrap();
            network.nodes[n].slow_until = network.now + Duration::from_secs(seconds);
        }
        _ => {
            let mut config = network.nodes[n].config.clone();
            let changed = prefix(network.chance.below(8)).parse().unwrap();
            match config.announce.iter().position(|known| *known == changed) {
                Some(at) => drop(config.announce.remove(at)),
                None => config.announce.push(changed),
            }
            network.configure(n, config);
        }
    }
}

fn check_load(network: &Network) {
    let (bytes, streams) = network.load();
    assert!(bytes < 1 << 20, "{bytes} bytes in flight");
    assert!(streams <= 4, "{streams} streams between two nodes");
}

/// Nobody dials a peer more than twice in a second: once at a start or a reload, and then paced.
fn check_dials(network: &Network) {
    for node in &network.nodes {
        for (at, address) in &node.dials {
            let storm = node.dials.iter().filter(|(other, whom)| {
                whom == address && *other >= *at && *other < *at + Duration::from_secs(1)
            });
            assert!(storm.count() <= 3, "a storm of dials to {address}");
        }
    }
}

/// Follows a prefix from node to node by next hop until it is at home.
fn check_forwarding(network: &Network) {
    for (start, speaker) in network.speakers() {
        for prefix in speaker.prefixes() {
            let mut todo = vec![(start, 0)];
            while let Some((n, hops)) = todo.pop() {
                assert!(hops <= network.nodes.len(), "{prefix} goes round in a circle from node {start}");
                let speaker = network.nodes[n].speaker.as_ref().unwrap();
                for path in speaker.paths(&prefix).iter().filter(|path| path.verdict().selected()) {
                    let next = path.bundle().attributes().next_hop;
                    let next = (0..network.nodes.len()).find(|other| IpAddr::from(v4(*other)) == next);
                    let local = matches!(path.bundle().source(), Source::Local);
                    todo.extend(next.filter(|_| !local).map(|next| (next, hops + 1)));
                }
            }
        }
    }
}

fn check_quiet(network: &Network) {
    for (n, speaker) in network.speakers() {
        for status in speaker.status() {
            assert_eq!(status.state, State::Established, "node {n} to {}: {}", status.name, status.reason);
            assert_eq!(status.prefixes_stale, 0, "node {n} keeps routes of {}", status.name);
        }
    }
    let configs = network.nodes.iter().map(|node| node.config.clone()).collect();
    let mut fresh = Network::new(configs, 1);
    fresh.run(Duration::from_secs(20));
    for ((n, speaker), (_, reference)) in network.speakers().zip(fresh.speakers()) {
        let (got, wanted) = (table(speaker), table(reference));
        assert_eq!(got, wanted, "node {n} is not where a network without history is");
    }
}

fn simulate(seed: u64) {
    let mut chance = Chance::new(seed);
    let plan = Plan::new(&mut chance);
    let mut network = Network::new(plan.configs.clone(), chance.draw());
    network.run(Duration::from_secs(3));
    for _ in 0..30 {
        trouble(&mut network, &plan);
        let pause = u64::try_from(network.chance.below(4000)).unwrap();
        network.run(Duration::from_millis(pause));
        check_load(&network);
    }
    network.cut.clear();
    (0..network.nodes.len()).for_each(|n| network.start(n));
    network.run(QUIET);
    check_dials(&network);
    check_quiet(&network);
    check_forwarding(&network);
}

#[test]
fn networks_come_to_rest_where_they_should() {
    let one = std::env::var("SIMULATION_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seeds = one.map_or(0..200, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let result = catch_unwind(AssertUnwindSafe(|| simulate(seed)));
        assert!(result.is_ok(), "seed {seed}; again with SIMULATION_SEED={seed}");
    }
}
