//! What goes wrong, and what people do.

use std::time::Duration;

use isthmus_bgp::Reset;

use crate::{
    network::Network,
    topology::{Plan, prefix},
};

/// One thing goes wrong, or is repaired, or is ordered.
pub(crate) fn trouble(network: &mut Network, plan: &Plan) {
    let (a, b) = plan.pairs[network.chance.below(plan.pairs.len())];
    let n = network.chance.below(network.nodes.len());
    match network.chance.below(14) {
        0 | 1 => network.lose(a, b),
        2 => drop(network.cut.insert((a, b))),
        3 => drop(network.cut.remove(&(a, b))),
        4 => {
            let machine = network.chance.one_in(2);
            network.kill(n, machine);
        }
        5..=7 => network.start(n),
        8 => {
            let seconds = u64::try_from(1 + network.chance.below(15)).unwrap();
            network.nodes[n].slow_until = network.now + Duration::from_secs(seconds);
        }
        9 => order(network, n),
        10 => network.suspend(n),
        11 => network.drain(n, Duration::from_secs(2)),
        _ => announce(network, n),
    }
}

/// A reset of one of a node's peers, or news of BFD.
fn order(network: &mut Network, n: usize) {
    let kind = network.chance.below(4);
    let Some(speaker) = &mut network.nodes[n].speaker else { return };
    let peers: Vec<_> = speaker.status().into_iter().map(|status| status.name).collect();
    if peers.is_empty() {
        return;
    }
    let (now, peer) = (network.now, &peers[network.chance.below(peers.len())]);
    match kind {
        0 => drop(speaker.reset(peer, Reset::Hard, now)),
        1 => drop(speaker.reset(peer, Reset::SoftIn, now)),
        2 => drop(speaker.reset(peer, Reset::SoftOut, now)),
        _ => speaker.handle_path_down(peer, "BFD: nothing heard", now),
    }
    network.carry(n);
}

fn announce(network: &mut Network, n: usize) {
    let mut config = network.nodes[n].config.clone();
    let changed = prefix(network.chance.below(8)).parse().unwrap();
    match config.announce.iter().position(|known| *known == changed) {
        Some(at) => drop(config.announce.remove(at)),
        None => config.announce.push(changed),
    }
    network.configure(n, config);
}
