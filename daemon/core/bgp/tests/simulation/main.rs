//! Networks of speakers on virtual time, in trouble and then left alone.
//!
//! Each seed is a network, and a minute in which connections are lost, ways are cut, processes are killed, restarted, drained and
//! given orders, readers are slow and prefixes come and go. Then everything is repaired, and after a while every table must be what a
//! network without any history would have computed, every kernel must have what its table says, and nobody must have any news.

#![allow(clippy::unwrap_used, reason = "the whole package is a test")]

mod chance;
mod kernel;
mod network;
mod planned;
mod topology;
mod trouble;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use isthmus_bgp::{Speaker, fsm::State, rib::Source};

use chance::Chance;
use kernel::selected;
use network::{Network, node_at};
use topology::Plan;
use trouble::trouble;

/// Longer than anything is kept, waited for or put off.
const QUIET: Duration = Duration::from_secs(60);

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

/// Follows a prefix from kernel to kernel until it is at home.
fn check_forwarding(network: &Network) {
    for (start, node) in network.nodes.iter().enumerate() {
        for prefix in node.kernel.routes().keys() {
            let mut todo = vec![(start, 0)];
            while let Some((n, steps)) = todo.pop() {
                assert!(steps <= network.nodes.len(), "{prefix} goes round in a circle from node {start}");
                let hops = network.nodes[n].kernel.hops(prefix);
                assert!(!hops.is_empty(), "{prefix} ends at node {n}, from node {start}");
                todo.extend(hops.into_iter().flatten().filter_map(node_at).map(|next| (next, steps + 1)));
            }
        }
    }
}

/// Every kernel has what its process's table says, and nothing else.
fn check_kernels(network: &Network) {
    for (n, speaker) in network.speakers() {
        let of = |prefix| (prefix, selected(speaker, &prefix));
        let wanted: BTreeMap<_, _> =
            speaker.prefixes().map(of).filter(|(_, hops)| !hops.is_empty()).collect();
        assert_eq!(*network.nodes[n].kernel.routes(), wanted, "the kernel of node {n}");
    }
}

/// UPDATEs and ROUTE-REFRESHes that anybody has sent.
fn news(network: &Network) -> u64 {
    let details = network.speakers().flat_map(|(_, speaker)| {
        speaker.status().into_iter().filter_map(|status| speaker.detail_of(&status.name))
    });
    details.map(|detail| detail.messages_out.update + detail.messages_out.route_refresh).sum()
}

fn check_quiet(network: &Network, plan: &Plan) {
    for (n, speaker) in network.speakers() {
        let expected = plan.pairs.iter().filter(|(a, b)| *a == n || *b == n).count();
        assert_eq!(speaker.status().len(), expected, "peers of node {n}");
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
    // Who is draining is gone after this.
    network.run(Duration::from_secs(3));
    (0..network.nodes.len()).for_each(|n| network.start(n));
    network.run(QUIET);
    let before = news(&network);
    network.run(Duration::from_secs(15));
    assert_eq!(news(&network), before, "it never comes to rest");
    check_dials(&network);
    check_kernels(&network);
    check_quiet(&network, &plan);
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
