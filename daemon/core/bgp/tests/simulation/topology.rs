//! Random networks: who peers with whom, and who announces what.

use std::{collections::BTreeSet, time::Duration};

use isthmus_bgp::{
    Config, DynamicPeers, Families, PeerConfig, Policy, RestartConfig, RestartMode,
    dynamic::Template,
    fsm::{AddPath, AsnSet, Offer},
    restart::KeeperConfig,
    rib::NextHopMode,
};

use crate::{chance::Chance, network::v4};

/// The nodes' configurations, and the pairs that peer.
pub(crate) struct Plan {
    pub(crate) configs: Vec<Config>,
    pub(crate) pairs: Vec<(usize, usize)>,
}

/// Prefixes that nodes may announce; several may announce the same.
pub(crate) fn prefix(n: usize) -> String {
    format!("10.{n}.0.0/16")
}

impl Plan {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        let (asns, clients, pairs) = if chance.one_in(3) { reflected(chance) } else { external(chance) };
        let mut configs: Vec<_> = asns.iter().enumerate().map(|(n, asn)| Config::new(*asn, v4(n))).collect();
        for (a, b) in &pairs {
            let restart = if chance.one_in(3) { RestartMode::Off } else { RestartMode::Full };
            for (here, there) in [(*a, *b), (*b, *a)] {
                let client = clients.contains(&there);
                let several = several_paths(asns[here] == asns[there], client, clients.contains(&here));
                let offer = Offer { add_path: several, ..Offer::default() };
                configs[here].peers.push(PeerConfig { restart, offer, ..peer(there, &asns, here, client) });
            }
        }
        if clients.is_empty() && chance.one_in(3) {
            expect_anybody(&mut configs[0]);
        }
        for config in &mut configs {
            config.restart = restarts();
            let count = 1 + chance.below(3);
            let announced: BTreeSet<_> = (0..count).map(|_| chance.below(8)).collect();
            config.announce = announced.into_iter().map(|n| prefix(n).parse().unwrap()).collect();
        }
        Self { configs, pairs }
    }
}

fn peer(other: usize, asns: &[u32], here: usize, client: bool) -> PeerConfig {
    let standard = PeerConfig::new(format!("node{other}"), v4(other).into(), asns[other]);
    let internal = asns[other] == asns[here];
    PeerConfig {
        hold_time: 15,
        import: Policy::all(),
        export: Policy::all(),
        route_reflector_client: internal && client,
        // What comes from outside leads to the border router; what is reflected keeps its next hop.
        next_hop: if internal && !client { NextHopMode::SelfAddress } else { NextHopMode::Standard },
        ..standard
    }
}

/// A ring with chords, every node an AS.
fn external(chance: &mut Chance) -> (Vec<u32>, BTreeSet<usize>, Vec<(usize, usize)>) {
    let count = 3 + chance.below(3);
    let asns = (0..count).map(|n| 65_001 + u32::try_from(n).unwrap()).collect();
    let mut pairs: BTreeSet<_> =
        (0..count).map(|n| (n, (n + 1) % count)).map(|(a, b)| (a.min(b), a.max(b))).collect();
    for _ in 0..chance.below(3) {
        let (a, b) = (chance.below(count), chance.below(count));
        pairs.extend((a != b).then_some((a.min(b), a.max(b))));
    }
    (asns, BTreeSet::new(), pairs.into_iter().collect())
}

/// Two reflectors, their clients, and an AS outside behind each client.
fn reflected(chance: &mut Chance) -> (Vec<u32>, BTreeSet<usize>, Vec<(usize, usize)>) {
    let clients = 1 + chance.below(2);
    let mut asns = vec![65_001; 2 + clients];
    let mut pairs = vec![(0, 1)];
    for client in 2..2 + clients {
        pairs.extend([(0, client), (1, client), (client, client + clients)]);
        asns.push(65_100 + u32::try_from(client).unwrap());
    }
    (asns, (2..2 + clients).collect(), pairs)
}

/// Reflectors send their clients several paths. Elsewhere the order of arrival could decide between two of them.
fn several_paths(internal: bool, to_client: bool, to_reflector: bool) -> AddPath {
    let families = |wanted: bool| if internal && wanted { Families::ALL } else { Families::NONE };
    AddPath { send: families(to_client), receive: families(to_reflector) }
}

/// Everything is over before the network has been quiet for a minute.
fn restarts() -> RestartConfig {
    let seconds = Duration::from_secs;
    let keeper = KeeperConfig {
        longest_absence: seconds(30),
        longest_return: seconds(30),
        keep_when_path_down: false,
    };
    RestartConfig { time: 20, forwarding: Families::NONE, deferral: seconds(15), keeper }
}

/// The node takes its peers as they come.
fn expect_anybody(config: &mut Config) {
    let Some(model) = config.peers.first().cloned() else { return };
    let template = Template {
        name: "anybody".into(),
        prefix: "10.99.0.0/24".parse().unwrap(),
        asns: AsnSet::new([65_001..=65_099]),
        limit: config.peers.len(),
        linger: Duration::from_secs(40),
    };
    config.peers.clear();
    config.dynamic = vec![DynamicPeers { template, peer: model }];
}
