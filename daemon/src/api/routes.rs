//! Prefixes, their candidates, and why a packet goes where it goes.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
};

use ipnet::IpNet;
use isthmus_proto::control::{
    Candidate, ExplainRouteResponse, KernelRoute, KernelRouteState, ListRoutesResponse, Route as RouteMessage,
};
use tonic::Status;

use crate::{
    bgp::{PathNote, PathNotes},
    fib::KernelState,
    routes::{Hop, NextHop, Path, Route, Source},
    tunnel::State,
};

use super::{Parts, contradictions};

/// Every route within `prefix`; empty means all.
pub(super) async fn routes(parts: &Parts, prefix: &str) -> Result<ListRoutesResponse, Status> {
    let within = parse_optional(prefix)?;
    let wanted = |prefix: &IpNet| within.is_none_or(|within| within.contains(prefix));
    let mut board = parts.board.snapshot();
    board.retain(|route| wanted(&route.prefix));
    let view = View::new(parts, &board).await;
    let mut routes: Vec<_> = board.iter().map(|route| view.message(route)).collect();
    let known: HashSet<IpNet> = board.iter().map(|route| route.prefix).collect();
    let states = parts.fib.as_ref().map(crate::fib::Handle::states).unwrap_or_default();
    let mut orphans: Vec<_> =
        states.iter().filter(|(prefix, _)| wanted(prefix) && !known.contains(prefix)).collect();
    orphans.sort_by_key(|(prefix, _)| **prefix);
    routes.extend(orphans.into_iter().map(|(prefix, state)| orphan(prefix, state)));
    Ok(ListRoutesResponse { routes })
}

/// The route of one address, and the steps that lead to it.
pub(super) async fn explain(parts: &Parts, address: &str) -> Result<ExplainRouteResponse, Status> {
    let address = parse_address(address)?;
    let left = left(parts, address);
    let covering = parts.board.covering(address);
    let view = View::new(parts, &covering).await;
    let mut covering = covering.into_iter();
    let Some(route) = covering.next() else {
        let steps =
            vec![format!("no prefix known to this node covers {address}; the kernel's own routes decide")];
        let contradictions = left.iter().flat_map(contradictions::of).collect();
        return Ok(ExplainRouteResponse { steps, contradictions, ..Default::default() });
    };
    let message = view.message(&route);
    let longer = left.filter(|left| longer(left, &message));
    let mut steps = steps(address, &route, &message);
    steps.extend(retry(parts, &message));
    let contradictions = longer.iter().chain([&message]).flat_map(contradictions::of);
    Ok(ExplainRouteResponse {
        steps,
        contradictions: contradictions.chain(view.board_behind(&route)).collect(),
        less_specific: covering.map(|route| view.message(&route)).collect(),
        route: Some(message),
    })
}

/// When a route that the kernel refused is offered to it again.
fn retry(parts: &Parts, message: &RouteMessage) -> Option<String> {
    message.kernel.as_ref().filter(|kernel| kernel.state() == KernelRouteState::Failed)?;
    let wait = parts.fib.as_ref()?.next_pass();
    Some(format!("it is offered to the kernel again within {:.1} s", wait.as_secs_f64()))
}

/// The longest kernel route to an address that an earlier run left and nobody has announced since.
fn left(parts: &Parts, address: IpAddr) -> Option<RouteMessage> {
    let states = parts.fib.as_ref().map(crate::fib::Handle::states).unwrap_or_default();
    let stale = states
        .iter()
        .filter(|(prefix, state)| matches!(state, KernelState::Stale) && prefix.contains(&address));
    stale.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(prefix, state)| orphan(prefix, state))
}

/// What the kernel follows instead, for it is longer.
fn longer(left: &RouteMessage, route: &RouteMessage) -> bool {
    let length = |route: &RouteMessage| route.prefix.parse::<IpNet>().map_or(0, |prefix| prefix.prefix_len());
    length(left) > length(route)
}

/// A route that an earlier run left in the kernel and that nobody has announced since.
fn orphan(prefix: &IpNet, state: &KernelState) -> RouteMessage {
    RouteMessage {
        prefix: prefix.to_string(),
        source: "kernel".into(),
        candidates: Vec::new(),
        kernel: Some(kernel_route(Some(state))),
    }
}

pub(super) fn parse_address(text: &str) -> Result<IpAddr, Status> {
    text.parse().map_err(|_| {
        Status::invalid_argument(format!("\"{}\" is not an IPv4 or IPv6 address", text.escape_debug()))
    })
}

/// `None` for an empty text.
pub(super) fn parse_optional(text: &str) -> Result<Option<IpNet>, Status> {
    if text.is_empty() { Ok(None) } else { parse_prefix(text).map(Some) }
}

fn parse_prefix(text: &str) -> Result<IpNet, Status> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse::<IpNet>().map(|net| net.trunc()).or_else(|_| address()).map_err(|_| {
        Status::invalid_argument(format!("\"{}\" is not a prefix: write ADDRESS/LENGTH", text.escape_debug()))
    })
}

fn steps(address: IpAddr, route: &Route, message: &RouteMessage) -> Vec<String> {
    let mut steps = vec![format!("{} is the longest prefix that covers {address}", route.prefix)];
    steps.push(match route.source() {
        Source::Static => {
            "it is a tunnel peer's own prefix (allowed_ips), which BGP does not override".into()
        }
        Source::Bgp => format!("BGP knows {} for it", paths(route.paths().len())),
    });
    for candidate in &message.candidates {
        steps.push(format!("{} {}: {}", describe(candidate), fate(candidate), candidate.reason));
    }
    steps.extend(now(&message.candidates));
    if let Some(kernel) = &message.kernel {
        steps.push(format!("kernel route: {}", describe_kernel(kernel)));
    }
    steps
}

/// What happens to a packet at this moment.
fn now(candidates: &[Candidate]) -> Option<String> {
    let carrying: Vec<_> =
        candidates.iter().filter(|path| path.selected && path.usable).map(contradictions::name).collect();
    match &carrying[..] {
        [] => None,
        [one] => Some(format!("packets go to {one} now")),
        several => Some(format!("packets go to {} now, each flow to one of them", several.join(" or "))),
    }
}

fn paths(count: usize) -> String {
    if count == 1 { "1 path".into() } else { format!("{count} paths") }
}

fn describe(candidate: &Candidate) -> String {
    match (candidate.peer.as_str(), candidate.next_hop.as_str()) {
        (peer, "") => format!("peer {peer}"),
        ("", next_hop) => format!("gateway {next_hop}"),
        (peer, next_hop) => format!("peer {peer} (next hop {next_hop})"),
    }
}

fn fate(candidate: &Candidate) -> &'static str {
    match (candidate.selected, candidate.usable) {
        (true, true) => "carries traffic",
        (true, false) => "is chosen, but carries no traffic because it is not usable now",
        (false, true) => "is not used",
        (false, false) => "is not used, and is not usable now",
    }
}

fn describe_kernel(kernel: &KernelRoute) -> String {
    let state = match kernel.state() {
        KernelRouteState::Installed => "installed",
        KernelRouteState::NotWanted => "not wanted",
        KernelRouteState::Failed => "failed",
        KernelRouteState::Shadowed => "installed, but shadowed",
        KernelRouteState::Stale => "kept from an earlier run",
        KernelRouteState::Unspecified => "unknown",
    };
    if kernel.reason.is_empty() { state.into() } else { format!("{state}: {}", kernel.reason) }
}

/// What messages need beside the board, asked for once.
struct View {
    live: HashMap<String, bool>,
    kernel: Option<HashMap<IpNet, KernelState>>,
    notes: PathNotes,
}

impl View {
    /// What is to say about these routes.
    async fn new(parts: &Parts, routes: &[Route]) -> Self {
        let peers = parts.tunnel.iter().flat_map(crate::tunnel::Handle::peers);
        let prefixes = || routes.iter().map(|route| route.prefix);
        let learned = routes.iter().filter(|route| route.source() == Source::Bgp);
        let learned: Vec<IpNet> = learned.map(|route| route.prefix).collect();
        Self {
            live: peers.map(|peer| (peer.name, peer.state != State::Down)).collect(),
            kernel: parts.fib.as_ref().map(|fib| fib.states_of(prefixes())),
            notes: match &parts.bgp {
                Some(bgp) => bgp.paths(&learned).await,
                None => PathNotes::new(),
            },
        }
    }

    fn message(&self, route: &Route) -> RouteMessage {
        RouteMessage {
            prefix: route.prefix.to_string(),
            source: match route.source() {
                Source::Static => "static".into(),
                Source::Bgp => "bgp".into(),
            },
            candidates: route.paths().iter().map(|path| self.candidate(&route.prefix, path)).collect(),
            kernel: self.kernel.as_ref().map(|states| kernel_route(states.get(&route.prefix))),
        }
    }

    /// What BGP has selected by now, where the board has something else. That lasts as long as the change is on its way.
    fn board_behind(&self, route: &Route) -> Option<String> {
        let notes = self.notes.get(&route.prefix).filter(|_| route.source() == Source::Bgp)?;
        let selected = notes.iter().filter(|note| note.selected);
        let selected: BTreeSet<_> = selected.map(|note| (&*note.neighbor, note.next_hop)).collect();
        let carried = route
            .paths()
            .iter()
            .filter(|path| path.candidate.selected)
            .filter_map(|path| path.candidate.neighbor.as_deref().zip(address(&path.candidate.next_hop)));
        let carried: BTreeSet<_> = carried.collect();
        let names = |paths: &BTreeSet<(&str, IpAddr)>| {
            let each = paths.iter().map(|(neighbor, next_hop)| format!("{neighbor} ({next_hop})"));
            if paths.is_empty() { "nothing".into() } else { each.collect::<Vec<_>>().join(", ") }
        };
        (selected != carried).then(|| {
            let prefix = route.prefix;
            format!(
                "BGP selects {} for {prefix}, and the data plane still has {}",
                names(&selected),
                names(&carried)
            )
        })
    }

    fn candidate(&self, prefix: &IpNet, path: &Path) -> Candidate {
        let peer = match &path.hop {
            Hop::Peer(peer) => peer.to_string(),
            Hop::Gateway(_) | Hop::LinkLocal { .. } => String::new(),
        };
        let (reason, as_path) = self.note(prefix, path);
        Candidate {
            next_hop: match &path.candidate.next_hop {
                NextHop::Address(address) => address.to_string(),
                NextHop::LinkLocal { address, .. } => address.to_string(),
                NextHop::Peer(_) => String::new(),
            },
            usable: self.usable(prefix, path),
            peer,
            neighbor: path.candidate.neighbor.as_deref().unwrap_or_default().to_owned(),
            selected: path.candidate.selected,
            reason,
            as_path,
        }
    }

    /// Reason and AS_PATH. BGP may know better by now than when it wrote onto the board: then there is nothing to say yet.
    fn note(&self, prefix: &IpNet, path: &Path) -> (String, String) {
        let (Some(neighbor), Some(address)) = (&path.candidate.neighbor, address(&path.candidate.next_hop))
        else {
            return ("configured in allowed_ips".into(), String::new());
        };
        let notes = self.notes.get(prefix).into_iter().flatten();
        let of_path = |note: &&PathNote| note.neighbor == *neighbor && note.next_hop == address;
        let note = notes.filter(of_path).max_by_key(|note| note.selected == path.candidate.selected);
        note.map(|note| (note.reason.clone(), note.as_path.clone())).unwrap_or_default()
    }

    /// A peer must be known to the tunnel and live; a gateway is the kernel's to reach, and where it can't it refuses the route.
    fn usable(&self, prefix: &IpNet, path: &Path) -> bool {
        match &path.hop {
            Hop::Peer(peer) => self.live.get(&**peer).copied().unwrap_or(false),
            Hop::Gateway(_) | Hop::LinkLocal { .. } => {
                let state = self.kernel.as_ref().and_then(|states| states.get(prefix));
                !(path.candidate.selected && matches!(state, Some(KernelState::Failed(_))))
            }
        }
    }
}

fn address(next_hop: &NextHop) -> Option<IpAddr> {
    match next_hop {
        NextHop::Address(address) => Some(*address),
        NextHop::LinkLocal { address, .. } => Some(IpAddr::V6(*address)),
        NextHop::Peer(_) => None,
    }
}

fn kernel_route(state: Option<&KernelState>) -> KernelRoute {
    let Some(state) = state else {
        return KernelRoute {
            state: KernelRouteState::NotWanted.into(),
            reason: "not reconciled yet".into(),
        };
    };
    let message = match state {
        KernelState::Installed => KernelRouteState::Installed,
        KernelState::Shadowed(_) => KernelRouteState::Shadowed,
        KernelState::NotWanted(_) => KernelRouteState::NotWanted,
        KernelState::Failed(_) => KernelRouteState::Failed,
        KernelState::Stale => KernelRouteState::Stale,
    };
    KernelRoute { state: message.into(), reason: state.reason().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::{Candidate as Stated, PathGroup};

    #[test]
    fn a_gateway_that_the_kernel_refused_carries_nothing() {
        let prefix: IpNet = "10.20.0.0/16".parse().unwrap();
        let gateway: IpAddr = "192.0.2.9".parse().unwrap();
        let candidate =
            Stated { next_hop: NextHop::Address(gateway), neighbor: Some("router".into()), selected: true };
        let note = PathNote {
            neighbor: "router".into(),
            next_hop: gateway,
            selected: true,
            reason: "best path".into(),
            as_path: "65001".into(),
        };
        let notes = PathNotes::from([(prefix, vec![note])]);
        let paths = [Path { hop: Hop::Gateway(gateway), candidate }].into();
        let route = Route { prefix, group: PathGroup { source: Source::Bgp, paths }.into() };
        for (state, usable, said) in [
            (KernelState::Installed, true, "gateway 192.0.2.9 carries traffic: best path"),
            (
                KernelState::Failed("Nexthop has invalid gateway".into()),
                false,
                "gateway 192.0.2.9 is chosen, but carries no traffic because it is not usable now: best path",
            ),
        ] {
            let view =
                View { live: HashMap::new(), kernel: Some([(prefix, state)].into()), notes: notes.clone() };
            assert_eq!(view.message(&route).candidates[0].as_path, "65001");
            let message = view.message(&route);
            assert_eq!(view.board_behind(&route), None);
            let late =
                View { notes: PathNotes::from([(prefix, Vec::new())]), live: HashMap::new(), kernel: None };
            let said_of_late =
                "BGP selects nothing for 10.20.0.0/16, and the data plane still has router (192.0.2.9)";
            assert_eq!(late.board_behind(&route).as_deref(), Some(said_of_late));
            assert_eq!(message.candidates[0].usable, usable);
            let steps = steps("10.20.1.1".parse().unwrap(), &route, &message);
            assert!(steps.contains(&said.to_owned()), "{steps:?}");
        }
    }
}
