//! What took a path out, with both values, as a person reads it.

use std::{fmt, net::IpAddr};

use super::{Path, Source, Step, Verdict};
use crate::wire::Origin;

/// The step at which a path lost to the best one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// "LOCAL_PREF", "AS_PATH length", ...
    pub step: &'static str,
    /// The loser's value.
    pub own: String,
    /// The winner's.
    pub best: String,
}

/// Why a path lost; `None`: it did not. `paths` are all to its prefix.
pub fn decided(path: &Path, paths: &[Path]) -> Option<Decided> {
    let Verdict::Lost(step) = path.verdict else { return None };
    let best = paths.iter().find(|path| path.verdict == Verdict::Best)?;
    let numbers = |own: u32, best: u32| (own.to_string(), best.to_string());
    let both = |value: fn(&Path) -> String| (value(path), value(best));
    let (step, (own, best)) = match step {
        Step::Local => ("origin of the path", both(place)),
        Step::LocalPref(own, best) => ("LOCAL_PREF", numbers(own, best)),
        Step::AsPathLength(own, best) => ("AS_PATH length", numbers(own, best)),
        Step::Origin => ("ORIGIN", both(|path| path.attributes.origin.to_string())),
        Step::Med(own, best) => ("MED", numbers(own, best)),
        Step::External => ("kind of session", both(place)),
        Step::RouterId => ("BGP identifier", both(router_id)),
        Step::ClusterList(own, best) => ("CLUSTER_LIST length", numbers(own, best)),
        Step::Address => {
            ("peer address", both(|path| address(path).map_or_else(String::new, |a| a.to_string())))
        }
    };
    Some(Decided { step, own, best })
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Igp => "igp",
            Self::Egp => "egp",
            Self::Incomplete => "incomplete",
        })
    }
}

fn place(path: &Path) -> String {
    match &path.source {
        Source::Local => "here".into(),
        Source::Peer(neighbor) if neighbor.external => "external".into(),
        Source::Peer(_) => "internal".into(),
    }
}

/// ORIGINATOR_ID where there is one (RFC 4456 section 9).
fn router_id(path: &Path) -> String {
    let of_peer = match &path.source {
        Source::Local => None,
        Source::Peer(neighbor) => Some(neighbor.router_id),
    };
    path.attributes.rare().originator_id.or(of_peer).map_or_else(String::new, |id| id.to_string())
}

fn address(path: &Path) -> Option<IpAddr> {
    match &path.source {
        Source::Local => None,
        Source::Peer(neighbor) => Some(neighbor.address),
    }
}
