//! Where what was decided, what the kernel does and what the data plane does differ.

use isthmus_proto::control::{Candidate, KernelRouteState, Route};

/// One sentence for each; none where all agree.
pub(super) fn of(route: &Route) -> Vec<String> {
    kernel(route).into_iter().chain(data_plane(route)).collect()
}

/// The kernel does not do what was decided.
fn kernel(route: &Route) -> Option<String> {
    let (prefix, kernel) = (&route.prefix, route.kernel.as_ref()?);
    let reason = if kernel.reason.is_empty() { "it does not say why" } else { &kernel.reason };
    match kernel.state() {
        KernelRouteState::Failed => {
            Some(format!("{prefix} is wanted in the kernel, which refuses it: {reason}"))
        }
        KernelRouteState::Shadowed => {
            Some(format!("{prefix} is in the kernel, which prefers another program's route: {reason}"))
        }
        KernelRouteState::Stale => {
            Some(format!("the kernel has {prefix} from an earlier run, and nobody has announced it since"))
        }
        KernelRouteState::Installed | KernelRouteState::NotWanted | KernelRouteState::Unspecified => None,
    }
}

/// A path is chosen that carries nothing now.
fn data_plane(route: &Route) -> Option<String> {
    let (up, down): (Vec<_>, Vec<_>) =
        route.candidates.iter().filter(|path| path.selected).partition(|path| path.usable);
    let names = down.iter().map(|path| name(path)).collect::<Vec<_>>().join(", ");
    match (up.is_empty(), down.is_empty()) {
        (_, true) => None,
        (true, false) => Some(format!(
            "{} is chosen through {names}, which cannot be used now: packets are lost",
            route.prefix
        )),
        (false, false) => {
            Some(format!("{} is chosen through {names} too, which cannot be used now", route.prefix))
        }
    }
}

pub(super) fn name(path: &Candidate) -> String {
    match (path.peer.as_str(), path.next_hop.as_str()) {
        ("", gateway) => format!("gateway {gateway}"),
        (peer, _) => format!("peer {peer}"),
    }
}

#[cfg(test)]
mod tests {
    use isthmus_proto::control::KernelRoute;

    use super::*;

    fn route(state: KernelRouteState, paths: &[(&str, bool, bool)]) -> Route {
        let candidate = |(peer, selected, usable): &(&str, bool, bool)| Candidate {
            peer: (*peer).into(),
            selected: *selected,
            usable: *usable,
            ..Candidate::default()
        };
        Route {
            prefix: "10.20.0.0/16".into(),
            source: "bgp".into(),
            candidates: paths.iter().map(candidate).collect(),
            kernel: Some(KernelRoute { state: state.into(), reason: "why".into() }),
        }
    }

    #[test]
    fn each_contradiction_has_its_sentence() {
        let (good, dead) = (("a", true, true), ("b", true, false));
        for (state, paths, said) in [
            (KernelRouteState::Installed, vec![good, ("c", false, false)], None),
            (KernelRouteState::NotWanted, vec![good], None),
            (
                KernelRouteState::Failed,
                vec![good],
                Some("10.20.0.0/16 is wanted in the kernel, which refuses it: why"),
            ),
            (
                KernelRouteState::Shadowed,
                vec![good],
                Some("10.20.0.0/16 is in the kernel, which prefers another program's route: why"),
            ),
            (
                KernelRouteState::Stale,
                vec![],
                Some("the kernel has 10.20.0.0/16 from an earlier run, and nobody has announced it since"),
            ),
            (
                KernelRouteState::Installed,
                vec![dead],
                Some("10.20.0.0/16 is chosen through peer b, which cannot be used now: packets are lost"),
            ),
            (
                KernelRouteState::Installed,
                vec![good, dead],
                Some("10.20.0.0/16 is chosen through peer b too, which cannot be used now"),
            ),
        ] {
            assert_eq!(of(&route(state, &paths)), said.map(str::to_owned).into_iter().collect::<Vec<_>>());
        }
    }
}
