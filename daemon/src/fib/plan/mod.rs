//! The pure half of the FIB: what the board wants and what the kernel has, to the operations between them.
//!
//! Rules, in order:
//! 1. Only routes with our protocol number are ever changed or removed.
//! 2. A route through a tunnel peer becomes `PREFIX dev INTERFACE src OVERLAY-ADDRESS`; which peer carries it is the data plane's
//!    matter. It is left out where the interface's own subnet already covers it, and refused where it would carry a peer's outer
//!    address into the tunnel.
//! 3. A route through routers becomes `PREFIX via A [via B ...]`; with peers and routers to choose from, the peers win. A router behind
//!    a link that is down is left out, and if that leaves none, the next best path that works is taken.
//! 4. A route of ours that nobody wants goes, except one that was adopted at start and whose time to be announced again has not run
//!    out.

mod gateways;
mod kernel;
mod links;
mod route;

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use ipnet::{IpNet, Ipv6Net};
use isthmus_prefix::PrefixTable;

use super::{Config, KernelState};
use crate::routes::{Hop, PathGroup, PeerName};

pub use gateways::Memory;
pub(super) use gateways::device;
pub use kernel::Kernel;
pub use links::{Interface, Links};
pub use route::{Gateway, KernelRoute, Link, METRIC, Operation, PROTOCOL, Target};

/// What holds for every prefix of one pass.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// The `[fib]` section.
    pub config: &'a Config,
    /// Every route of the board.
    pub board: &'a Wanted,
    /// Outer addresses of the tunnel peers, as configured.
    pub underlay: &'a [IpAddr],
    /// What the pass has found out already; empty at its start.
    pub memory: &'a Memory,
}

/// The board's routes by prefix.
pub type Wanted = PrefixTable<Arc<PathGroup>>;

/// What to do about one prefix, and how it stands once that is done.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// The prefix.
    pub prefix: IpNet,
    /// To be carried out in this order.
    pub operations: Vec<Operation>,
    /// `None`: nothing is left to say about it.
    pub state: Option<KernelState>,
}

/// Decides about one prefix. `adopted`: a route of ours at this prefix was left by the daemon that ran before and still has time.
pub fn decide(prefix: IpNet, adopted: bool, kernel: &Kernel, rules: Rules<'_>) -> Step {
    let there = kernel.at(prefix);
    let step = |operations, state| Step { prefix, operations, state };
    match rules.board.get(prefix).map(|group| wanted(prefix, group, kernel, rules)) {
        None if adopted && there.iter().any(KernelRoute::is_ours) => step(vec![], Some(KernelState::Stale)),
        None => step(remove(&there), None),
        Some(Err(state)) => step(remove(&there), Some(state)),
        Some(Ok(new)) => match there.iter().find(|other| !other.is_ours() && other.metric == METRIC) {
            Some(other) => step(remove(&there), Some(occupied(other))),
            None => step(install(new, &there), Some(standing(&there))),
        },
    }
}

/// The kernel route that a board route becomes, or why there is none.
fn wanted(
    prefix: IpNet,
    group: &Arc<PathGroup>,
    kernel: &Kernel,
    rules: Rules<'_>,
) -> Result<KernelRoute, KernelState> {
    if !rules.config.install {
        return Err(KernelState::NotWanted("fib.install is false".into()));
    }
    if let Some(what) = unroutable(&prefix) {
        return Err(KernelState::NotWanted(format!("{what} are never routed").into()));
    }
    let (target, source) = match peer(group) {
        Some(peer) => through_tunnel(prefix, peer, kernel, rules)?,
        None => (gateways::through_gateways(prefix, group, kernel, rules)?, None),
    };
    Ok(KernelRoute { prefix, metric: METRIC, protocol: PROTOCOL, target, source })
}

fn peer(group: &PathGroup) -> Option<&PeerName> {
    group.selected().find_map(|hop| match hop {
        Hop::Peer(peer) => Some(peer),
        Hop::Gateway(_) | Hop::LinkLocal { .. } => None,
    })
}

fn through_tunnel(
    prefix: IpNet,
    peer: &PeerName,
    kernel: &Kernel,
    rules: Rules<'_>,
) -> Result<(Target, Option<IpAddr>), KernelState> {
    let Some(interface) = &rules.config.interface else {
        let why = format!("leads to tunnel peer {peer}, and this node has no tunnel interface");
        return Err(KernelState::Failed(why.into()));
    };
    if let Some(endpoint) = rules.underlay.iter().find(|address| prefix.contains(&address.to_canonical())) {
        let why = format!("covers {endpoint}, a tunnel peer's outer address: the tunnel would carry itself");
        return Err(KernelState::NotWanted(why.into()));
    }
    let Some(link) = &kernel.link else {
        return Err(KernelState::Failed(format!("interface {interface} does not exist").into()));
    };
    match kernel.best_of_others(prefix) {
        Some(subnet) if subnet.target == Target::Device(link.index) => {
            Err(KernelState::NotWanted(format!("covered by {interface}'s subnet {}", subnet.prefix).into()))
        }
        _ => Ok((Target::Device(link.index), link.source(&prefix))),
    }
}

fn enters_tunnel(prefix: IpNet, group: &PathGroup, kernel: &Kernel, rules: Rules<'_>) -> bool {
    let enters = |peer| through_tunnel(prefix, peer, kernel, rules).is_ok();
    unroutable(&prefix).is_none() && peer(group).is_some_and(enters)
}

/// Prefixes inside which no host can be reached by routing, whatever a neighbor says (RFC 6890).
fn unroutable(prefix: &IpNet) -> Option<&'static str> {
    match prefix {
        IpNet::V4(net) => {
            let address = net.network();
            let inside = |len| net.prefix_len() >= len;
            match address.octets()[0] {
                0 if inside(8) => Some("addresses of \"this network\""),
                127 if inside(8) => Some("loopback addresses"),
                224..=239 if inside(4) => Some("multicast addresses"),
                _ if address.is_broadcast() => Some("broadcast addresses"),
                _ => None,
            }
        }
        IpNet::V6(net) => unroutable_v6(net),
    }
}

fn unroutable_v6(net: &Ipv6Net) -> Option<&'static str> {
    let address = net.network();
    let host = net.prefix_len() == 128;
    match address {
        Ipv6Addr::UNSPECIFIED if host => Some("unspecified addresses"),
        Ipv6Addr::LOCALHOST => Some("loopback addresses"),
        _ if address.is_multicast() && net.prefix_len() >= 8 => Some("multicast addresses"),
        _ if address.is_unicast_link_local() && net.prefix_len() >= 10 => Some("link-local addresses"),
        _ if address.to_ipv4_mapped().is_some() && net.prefix_len() >= 96 => Some("IPv4-mapped addresses"),
        _ => None,
    }
}

/// From what is there to exactly one route of ours. What is equal already is not touched.
fn install(new: KernelRoute, there: &[KernelRoute]) -> Vec<Operation> {
    let ours = || there.iter().filter(|route| route.is_ours());
    let keep = ours().find(|route| **route == new).or_else(|| ours().find(|route| route.metric == METRIC));
    let others = ours().filter(|route| keep.is_none_or(|keep| !std::ptr::eq(*route, keep)));
    let (rivals, older): (Vec<_>, Vec<_>) = others.cloned().partition(|route| route.metric == METRIC);
    // Those with our metric go first, for the kernel replaces the first that it finds; the others only once the new one stands.
    let mut operations: Vec<Operation> = rivals.into_iter().map(Operation::Delete).collect();
    match keep {
        Some(old) if *old == new => {}
        Some(old) => operations.push(Operation::Replace { old: old.clone(), new }),
        None => operations.push(Operation::Add(new)),
    }
    operations.extend(older.into_iter().map(Operation::Delete));
    operations
}

fn remove(there: &[KernelRoute]) -> Vec<Operation> {
    there.iter().filter(|route| route.is_ours()).cloned().map(Operation::Delete).collect()
}

fn standing(there: &[KernelRoute]) -> KernelState {
    match there.iter().filter(|other| !other.is_ours()).min_by_key(|other| other.metric) {
        Some(other) if other.metric < METRIC => KernelState::Shadowed(
            format!("the kernel prefers {} with metric {}", owner(other), other.metric).into(),
        ),
        _ => KernelState::Installed,
    }
}

fn occupied(other: &KernelRoute) -> KernelState {
    KernelState::Failed(format!("{} has the metric {METRIC} that is ours", owner(other)).into())
}

/// Names the program behind a foreign route as `ip route` does, where the number has a common name.
fn owner(route: &KernelRoute) -> String {
    let name = match route.protocol {
        2 => "the connected route".to_owned(),
        3 => "a route set by hand (protocol boot)".to_owned(),
        4 => "a static route".to_owned(),
        9 => "a router advertisement's route".to_owned(),
        12 => "BIRD's route".to_owned(),
        16 => "a DHCP route".to_owned(),
        other => format!("a route of protocol {other}"),
    };
    format!("{name} to {}", route.prefix)
}

#[cfg(test)]
mod tests;
