//! Which path is used (RFC 4271 section 9.1.2.2, RFC 4456 section 9).
//!
//! Step by step the paths that are worse than another one leave. That is the RFC's own procedure; comparing pairs is not, because
//! MED orders only paths of the same neighboring AS and so is not an order over all of them.
//! 1. originated here  2. higher LOCAL_PREF  3. shorter AS_PATH  4. lower ORIGIN  5. lower MED among paths of one neighboring AS
//! 6. external over internal. What is left now is equal for forwarding: the multipath set. Of it one is best, and announced, by
//! 7. lower BGP identifier (or ORIGINATOR_ID)  8. shorter CLUSTER_LIST  9. lower peer address.

use std::{cmp::Reverse, fmt, net::IpAddr};

use super::{Ineligible, Path, Source, export::DEFAULT_LOCAL_PREF};

/// How many equal paths carry traffic together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// At most this many; 1 turns multipath off.
    pub maximum: usize,
    /// Paths of equal length count as equal whatever ASes are on them (as a fabric over several clouds needs it).
    pub relax_as_path: bool,
}

impl Default for Multipath {
    fn default() -> Self {
        Self { maximum: 16, relax_as_path: true }
    }
}

/// What the decision process made of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not looked at yet.
    Undecided,
    /// Used, and announced to others.
    Best,
    /// Used beside the best.
    Equal,
    /// Not used: another path won at this step.
    Lost(Step),
    /// Not used, and would not be if it were the only one.
    Ineligible(Ineligible),
}

impl Verdict {
    /// True if the path carries traffic.
    pub fn selected(self) -> bool {
        matches!(self, Self::Best | Self::Equal)
    }

    /// Why the path may not be used.
    pub fn ineligible(self) -> Option<Ineligible> {
        match self {
            Self::Ineligible(why) => Some(why),
            _ => None,
        }
    }
}

/// A step of the decision process, with the loser's value and the winner's where they are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The winner is originated here.
    Local,
    /// LOCAL_PREF.
    LocalPref(u32, u32),
    /// Number of ASes on AS_PATH.
    AsPathLength(u32, u32),
    /// ORIGIN.
    Origin,
    /// MED against a path of the same neighboring AS.
    Med(u32, u32),
    /// The winner is external.
    External,
    /// BGP identifier.
    RouterId,
    /// CLUSTER_LIST length.
    ClusterList(u32, u32),
    /// The peer's address.
    Address,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecided => f.write_str("not decided yet"),
            Self::Best => f.write_str("best path"),
            Self::Equal => f.write_str("equal to the best path (multipath)"),
            Self::Ineligible(why) => why.fmt(f),
            Self::Lost(step) => step.fmt(f),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("another path is originated here"),
            Self::LocalPref(own, best) => write!(f, "lower LOCAL_PREF: {own} against {best}"),
            Self::AsPathLength(own, best) => write!(f, "longer AS_PATH: {own} against {best}"),
            Self::Origin => f.write_str("worse ORIGIN"),
            Self::Med(own, best) => write!(f, "higher MED: {own} against {best}"),
            Self::External => f.write_str("internal against external"),
            Self::RouterId => f.write_str("higher BGP identifier"),
            Self::ClusterList(own, best) => write!(f, "longer CLUSTER_LIST: {own} against {best}"),
            Self::Address => f.write_str("higher peer address"),
        }
    }
}

/// Gives every path its verdict; ineligible ones keep theirs.
pub(super) fn decide(paths: &mut [Path], multipath: Multipath) {
    let eligible = |path: &Path| path.verdict.ineligible().is_none();
    let mut alive: Vec<usize> = (0..paths.len()).filter(|index| eligible(&paths[*index])).collect();
    keep_least(paths, &mut alive, |path| path.source != Source::Local, |_, _| Step::Local);
    keep_least(paths, &mut alive, |p| Reverse(local_pref(p)), |own, best| Step::LocalPref(own.0, best.0));
    keep_least(paths, &mut alive, path_length, Step::AsPathLength);
    keep_least(paths, &mut alive, |path| path.attributes.origin, |_, _| Step::Origin);
    keep_least_med(paths, &mut alive);
    keep_least(paths, &mut alive, |path| !external(path), |_, _| Step::External);
    let equal = alive.clone();
    keep_least(paths, &mut alive, router_id, |_, _| Step::RouterId);
    keep_least(paths, &mut alive, cluster_length, Step::ClusterList);
    keep_least(paths, &mut alive, peer_address, |_, _| Step::Address);
    let Some(best) = alive.first().copied() else { return };
    paths[best].verdict = Verdict::Best;
    let others = equal.into_iter().filter(|index| *index != best);
    let sharing = others.filter(|index| {
        multipath.relax_as_path || paths[*index].attributes.as_path == paths[best].attributes.as_path
    });
    for index in sharing.take(multipath.maximum.saturating_sub(1)).collect::<Vec<_>>() {
        paths[index].verdict = Verdict::Equal;
    }
}

fn keep_least<K: Ord + Copy>(
    paths: &mut [Path],
    alive: &mut Vec<usize>,
    key: impl Fn(&Path) -> K,
    lost: impl Fn(K, K) -> Step,
) {
    let Some(best) = alive.iter().map(|index| key(&paths[*index])).min() else { return };
    alive.retain(|index| {
        let own = key(&paths[*index]);
        if own > best {
            paths[*index].verdict = Verdict::Lost(lost(own, best));
        }
        own == best
    });
}

fn keep_least_med(paths: &mut [Path], alive: &mut Vec<usize>) {
    let neighboring = |path: &Path| path.attributes.as_path.first();
    let candidates = alive.clone();
    alive.retain(|index| {
        let own = med(&paths[*index]);
        let same_as =
            candidates.iter().filter(|other| neighboring(&paths[**other]) == neighboring(&paths[*index]));
        let best = same_as.map(|other| med(&paths[*other])).min().unwrap_or(own);
        if own > best {
            paths[*index].verdict = Verdict::Lost(Step::Med(own, best));
        }
        own == best
    });
}

fn local_pref(path: &Path) -> u32 {
    path.attributes.local_pref.unwrap_or(DEFAULT_LOCAL_PREF)
}

fn path_length(path: &Path) -> u32 {
    u32::try_from(path.attributes.as_path.len()).unwrap_or(u32::MAX)
}

fn med(path: &Path) -> u32 {
    path.attributes.med.unwrap_or(0)
}

fn external(path: &Path) -> bool {
    matches!(&path.source, Source::Peer(neighbor) if neighbor.external)
}

fn router_id(path: &Path) -> u32 {
    match &path.source {
        Source::Local => 0,
        Source::Peer(neighbor) => {
            path.attributes.rare().originator_id.unwrap_or(neighbor.router_id).to_bits()
        }
    }
}

fn cluster_length(path: &Path) -> u32 {
    u32::try_from(path.attributes.rare().cluster_list.len()).unwrap_or(u32::MAX)
}

fn peer_address(path: &Path) -> Option<IpAddr> {
    match &path.source {
        Source::Local => None,
        Source::Peer(neighbor) => Some(neighbor.address),
    }
}
