//! Routes through routers: which of a prefix's next hops can be used now.

use std::{cell::RefCell, collections::HashMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{Kernel, Rules, Target, enters_tunnel, route::Gateway};
use crate::{
    fib::KernelState,
    routes::{Hop, PathGroup},
};

/// The most next hops of one route; what a neighbor may make us put into one kernel message is bounded.
const MAX_GATEWAYS: usize = 64;

/// Where the routers of a group of paths lead, or why they don't.
type Answer = Result<Target, KernelState>;

/// What one pass has found out already: prefixes with the same paths have the same answer. Only good for the pass, in which neither
/// the wanted routes nor others' routes change.
#[derive(Default)]
pub struct Memory {
    answers: RefCell<HashMap<(*const PathGroup, bool), Answer>>,
}

/// How sure a router is to be reached.
#[derive(PartialEq, Eq)]
enum Reach {
    /// It is directly connected, by a link that works.
    Up,
    /// No interface is known to lead there; the kernel will say.
    Unknown,
}

pub(super) fn through_gateways(
    prefix: IpNet,
    group: &Arc<PathGroup>,
    kernel: &Kernel,
    rules: Rules<'_>,
) -> Answer {
    let key = (Arc::as_ptr(group), prefix.addr().is_ipv4());
    if let Some(known) = rules.memory.answers.borrow().get(&key) {
        return known.clone();
    }
    let answer = choose(prefix, group, kernel, rules);
    rules.memory.answers.borrow_mut().insert(key, answer.clone());
    answer
}

/// The selected routers that work. Without any, those that the kernel may know a way to; without any of these, the next best router that
/// works, until BGP has made up its mind.
fn choose(prefix: IpNet, group: &PathGroup, kernel: &Kernel, rules: Rules<'_>) -> Answer {
    let (mut up, mut unknown, mut trouble) = (Vec::new(), Vec::new(), None);
    for gateway in group.selected().filter_map(gateway).take(MAX_GATEWAYS) {
        match reach(prefix, gateway, kernel, rules) {
            Ok(Reach::Up) => up.push(gateway),
            Ok(Reach::Unknown) => unknown.push(gateway),
            Err(why) => trouble = trouble.or(Some(why)),
        }
    }
    let works = |gateway: &Gateway| reach(prefix, *gateway, kernel, rules) == Ok(Reach::Up);
    let other = || group.others().filter_map(gateway).take(MAX_GATEWAYS).find(works);
    match (up.is_empty(), unknown.is_empty(), trouble) {
        (false, ..) => Ok(target(up)),
        (_, false, _) => Ok(target(unknown)),
        (_, _, Some(why)) => other().map(|one| target(vec![one])).ok_or(KernelState::Failed(why.into())),
        (_, _, None) => Err(KernelState::NotWanted("no path is selected".into())),
    }
}

fn gateway(hop: &Hop) -> Option<Gateway> {
    match hop {
        Hop::Peer(_) => None,
        Hop::Gateway(address) => Some(Gateway::from(*address)),
        Hop::LinkLocal { address, interface } => {
            Some(Gateway { address: (*address).into(), interface: Some(*interface) })
        }
    }
}

fn target(mut gateways: Vec<Gateway>) -> Target {
    gateways.sort_unstable();
    gateways.dedup();
    Target::Gateways(gateways.into())
}

/// Whether a router can be a next hop for this prefix, or why not.
fn reach(prefix: IpNet, gateway: Gateway, kernel: &Kernel, rules: Rules<'_>) -> Result<Reach, String> {
    let Gateway { address, interface } = gateway;
    if let (IpNet::V6(_), IpAddr::V4(_)) = (prefix, address) {
        return Err(format!("next hop {address} is IPv4, which the kernel cannot use for IPv6 prefixes"));
    }
    if interface.is_none() && is_link_local(address) {
        return Err(format!("next hop {address} is link-local, and BGP did not say on which interface"));
    }
    if interface.is_none() && behind_tunnel(address, kernel, rules) {
        let tunnel = rules.config.interface.as_deref().unwrap_or_default();
        return Err(format!("next hop {address} lies behind {tunnel}, but in no tunnel peer's allowed_ips"));
    }
    let Some(index) = interface.or_else(|| device(address, kernel)) else { return Ok(Reach::Unknown) };
    match kernel.links.get(index) {
        Some(link) if !link.up => Err(format!("next hop {address} is behind {}, which is down", link.name)),
        _ => Ok(Reach::Up),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The interface that leads straight to a router.
pub(crate) fn device(address: IpAddr, kernel: &Kernel) -> Option<u32> {
    kernel.links.of(address).or_else(|| match kernel.best_of_others(address.into())?.target {
        Target::Device(index) => Some(index),
        Target::Gateways(_) | Target::Other => None,
    })
}

/// True if the kernel would look for this router through the TUN interface. Neither the subnet on it nor what we send into it leads
/// to a router: only the data plane's table says where a packet inside the tunnel goes.
fn behind_tunnel(gateway: IpAddr, kernel: &Kernel, rules: Rules<'_>) -> bool {
    let Some(link) = &kernel.link else { return false };
    let theirs = kernel.best_of_others(gateway.into());
    let covering = rules.board.covering(gateway.into());
    let ours = covering.into_iter().find(|(prefix, group)| enters_tunnel(*prefix, group, kernel, rules));
    match (theirs, ours) {
        (Some(theirs), Some((ours, _))) if theirs.prefix.prefix_len() < ours.prefix_len() => true,
        (Some(theirs), _) => theirs.target == Target::Device(link.index),
        (None, ours) => ours.is_some(),
    }
}
