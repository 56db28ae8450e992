//! Entries of the tables as messages.

use isthmus_bgp::{
    rib::Verdict,
    speaker::{Entry, Shown},
    wire::{Attributes, Opaque},
};
use isthmus_proto::bgp::{DecidingStep, RibEntry, RibPath, RibPathState, RouteAttributes, UnknownAttribute};

pub(super) fn entry(entry: Entry) -> RibEntry {
    RibEntry { prefix: entry.prefix.to_string(), paths: entry.paths.into_iter().map(path).collect() }
}

fn path(path: Shown) -> RibPath {
    let state = match path.verdict {
        None => RibPathState::Advertised,
        Some(Verdict::Best) => RibPathState::Best,
        Some(Verdict::Equal) => RibPathState::Equal,
        Some(Verdict::Lost(_)) => RibPathState::Lost,
        Some(Verdict::Ineligible(_)) => RibPathState::Unusable,
        Some(Verdict::Undecided) => RibPathState::Unspecified,
    };
    let step = |decided: isthmus_bgp::rib::Comparison| DecidingStep {
        name: decided.step.to_string(),
        own: decided.own,
        best: decided.best,
    };
    RibPath {
        neighbor: path.peer.map(|name| name.to_string()).unwrap_or_default(),
        state: state.into(),
        reason: path.verdict.map(|verdict| verdict.to_string()).unwrap_or_default(),
        decided_by: path.decided.map(step),
        attributes: Some(attributes(&path.attributes)),
        policy: path.policy.unwrap_or_default(),
        stale: path.stale,
        path_id: path.path_id,
    }
}

fn attributes(attributes: &Attributes) -> RouteAttributes {
    let rare = attributes.rare();
    RouteAttributes {
        origin: attributes.origin.to_string(),
        as_path: attributes.as_path.asns().to_vec(),
        next_hop: attributes.next_hop.to_string(),
        med: attributes.med,
        local_pref: attributes.local_pref,
        communities: texts(&attributes.communities),
        large_communities: texts(&rare.large_communities),
        only_to_customer: rare.only_to_customer,
        originator_id: rare.originator_id.map(|id| id.to_string()).unwrap_or_default(),
        cluster_list: texts(&rare.cluster_list),
        atomic_aggregate: rare.atomic_aggregate,
        aggregator: rare.aggregator.map(|who| format!("{} {}", who.asn, who.router_id)).unwrap_or_default(),
        unknown: rare.opaque.iter().map(unknown).collect(),
    }
}

fn unknown(opaque: &Opaque) -> UnknownAttribute {
    UnknownAttribute { code: opaque.code.into(), flags: opaque.flags.into(), value: opaque.value.clone() }
}

fn texts(all: &[impl ToString]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}
