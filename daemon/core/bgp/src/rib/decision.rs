//! Which path is used (RFC 4271 section 9.1.2.2, RFC 4456 section 9).
//!
//! Step by step the paths that are worse than another one leave. That is the RFC's own procedure; comparing pairs is not, because
//! MED orders only paths of the same neighboring AS and so is not an order over all of them.
//! 0. not stale  1. originated here  2. higher LOCAL_PREF  3. shorter AS_PATH  4. lower ORIGIN  5. lower MED among paths of one
//! neighboring AS  6. external over internal. What is left now is equal for forwarding: the multipath set. Of it one is best, and
//! announced, by 7. lower BGP identifier (or ORIGINATOR_ID)  8. shorter CLUSTER_LIST  9. lower peer address  10. what came first.

use std::{cmp::Reverse, fmt, net::IpAddr};

use super::{Ineligible, Path, Source, export::DEFAULT_LOCAL_PREF};

/// How many equal paths are used together.
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

/// A step of the decision process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The winner's session is up.
    Stale,
    /// The winner is originated here.
    Local,
    /// LOCAL_PREF.
    LocalPref,
    /// Number of ASes on AS_PATH.
    AsPathLength,
    /// ORIGIN.
    Origin,
    /// MED against a path of the same neighboring AS.
    Med,
    /// The winner is from an external peer.
    External,
    /// BGP identifier of the peer, or ORIGINATOR_ID.
    RouterId,
    /// Number of clusters on CLUSTER_LIST.
    ClusterList,
    /// Address of the peer.
    Address,
    /// All the same; the winner was here first.
    Age,
}

/// The values that a path lost with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Where.
    pub step: Step,
    /// The loser's value, for a person.
    pub own: String,
    /// The winner's.
    pub best: String,
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
        f.write_str(match self {
            Self::Stale => "stale: its session is gone",
            Self::Local => "another path is originated here",
            Self::LocalPref => "lower LOCAL_PREF",
            Self::AsPathLength => "longer AS_PATH",
            Self::Origin => "worse ORIGIN",
            Self::Med => "higher MED",
            Self::External => "internal against external",
            Self::RouterId => "higher BGP identifier",
            Self::ClusterList => "longer CLUSTER_LIST",
            Self::Address => "higher peer address",
            Self::Age => "younger",
        })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Step::Stale | Step::Local | Step::External => self.step.fmt(f),
            step => write!(f, "{step}: {} against {}", self.own, self.best),
        }
    }
}

/// Gives every path its verdict; ineligible ones keep theirs.
pub(super) fn decide(paths: &mut [Path], multipath: Multipath) {
    if let [only] = paths {
        if only.verdict.ineligible().is_none() {
            only.verdict = Verdict::Best;
        }
        return;
    }
    let mut verdicts: Vec<Option<Step>> = vec![None; paths.len()];
    let (best, equal) = eliminate(paths, &mut |index, step, _, _| verdicts[index] = Some(step));
    let Some(best) = best else { return };
    for index in 0..paths.len() {
        if let (None, Some(step)) = (paths[index].verdict.ineligible(), verdicts[index]) {
            paths[index].verdict = Verdict::Lost(step);
        }
    }
    paths[best].verdict = Verdict::Best;
    let sharing =
        equal.into_iter().filter(|index| *index != best && may_share(paths, *index, best, multipath));
    for index in sharing.take(multipath.maximum.saturating_sub(1)).collect::<Vec<_>>() {
        paths[index].verdict = Verdict::Equal;
    }
}

/// What decided against the paths that are not used, in the order of the paths.
pub(super) fn compare(paths: &[Path]) -> Vec<Option<Comparison>> {
    let mut found: Vec<Option<Comparison>> = vec![None; paths.len()];
    eliminate(paths, &mut |index, step, own, best| {
        found[index] = Some(Comparison { step, own: own.to_string(), best: best.to_string() });
    });
    for (path, comparison) in paths.iter().zip(&mut found) {
        if !matches!(path.verdict, Verdict::Lost(_)) {
            *comparison = None;
        }
    }
    found
}

/// Several ways at once only if they pass the same ASes, unless that is said not to matter.
fn may_share(paths: &[Path], index: usize, best: usize, multipath: Multipath) -> bool {
    multipath.relax_as_path || paths[index].attributes().as_path == paths[best].attributes().as_path
}

/// A value that paths are compared by, as a person reads it.
type Shown<'a> = &'a dyn fmt::Display;

/// Takes paths out step by step; `lost` hears of each with its value and the best. Returns the best, and the paths equal to it for
/// forwarding.
fn eliminate(
    paths: &[Path],
    lost: &mut dyn FnMut(usize, Step, Shown<'_>, Shown<'_>),
) -> (Option<usize>, Vec<usize>) {
    let mut field = Field { paths, alive: Vec::with_capacity(paths.len()), lost };
    field.alive.extend((0..paths.len()).filter(|index| paths[*index].verdict.ineligible().is_none()));
    field.keep_least(Step::Stale, Path::is_stale);
    field.keep_least(Step::Local, |path| *path.source() != Source::Local);
    field.keep_greatest(Step::LocalPref, local_pref);
    field.keep_least(Step::AsPathLength, |path| path.attributes().as_path.len());
    field.keep_least_by(Step::Origin, |path| path.attributes().origin, |origin| format!("{origin:?}"));
    field.keep_least_med();
    field.keep_least(Step::External, |path| !external(path));
    let equal = field.alive.clone();
    field.keep_least_by(Step::RouterId, router_id, |id| std::net::Ipv4Addr::from(*id).to_string());
    field.keep_least(Step::ClusterList, |path| path.attributes().rare().cluster_list.len());
    field.keep_least_by(Step::Address, peer_address, |address| {
        address.map_or_else(String::new, |address| address.to_string())
    });
    field.keep_least(Step::Age, Path::local_id);
    (field.alive.first().copied(), equal)
}

struct Field<'a, 'b> {
    paths: &'a [Path],
    alive: Vec<usize>,
    lost: &'b mut dyn FnMut(usize, Step, Shown<'_>, Shown<'_>),
}

impl Field<'_, '_> {
    fn keep_least<K: Ord + Copy + fmt::Display>(&mut self, step: Step, key: impl Fn(&Path) -> K) {
        self.keep(step, key, |own, best, tell| tell(own, best));
    }

    fn keep_greatest(&mut self, step: Step, key: impl Fn(&Path) -> u32) {
        self.keep(step, |path| Reverse(key(path)), |own, best, tell| tell(&own.0, &best.0));
    }

    fn keep_least_by<K: Ord + Copy>(
        &mut self,
        step: Step,
        key: impl Fn(&Path) -> K,
        show: impl Fn(&K) -> String,
    ) {
        self.keep(step, key, |own, best, tell| tell(&Lazy(own, &show), &Lazy(best, &show)));
    }

    fn keep<K: Ord + Copy>(
        &mut self,
        step: Step,
        key: impl Fn(&Path) -> K,
        show: impl Fn(&K, &K, &mut dyn FnMut(Shown<'_>, Shown<'_>)),
    ) {
        if self.alive.len() < 2 {
            return;
        }
        let Some(best) = self.alive.iter().map(|index| key(&self.paths[*index])).min() else { return };
        let (paths, lost) = (self.paths, &mut self.lost);
        self.alive.retain(|index| {
            let own = key(&paths[*index]);
            if own > best {
                show(&own, &best, &mut |own, best| lost(*index, step, own, best));
            }
            own == best
        });
    }

    fn keep_least_med(&mut self) {
        if self.alive.len() < 2 {
            return;
        }
        let (paths, lost) = (self.paths, &mut self.lost);
        let neighboring = |index: &usize| paths[*index].attributes().as_path.first();
        let candidates = self.alive.clone();
        self.alive.retain(|index| {
            let own = med(&paths[*index]);
            let same_as = candidates.iter().filter(|other| neighboring(other) == neighboring(index));
            let best = same_as.map(|other| med(&paths[*other])).min().unwrap_or(own);
            if own > best {
                lost(*index, Step::Med, &own, &best);
            }
            own == best
        });
    }
}

/// Text that is made only if somebody reads it.
struct Lazy<'a, K, F>(&'a K, &'a F);

impl<K, F: Fn(&K) -> String> fmt::Display for Lazy<'_, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&(self.1)(self.0))
    }
}

fn local_pref(path: &Path) -> u32 {
    path.attributes().local_pref.unwrap_or(DEFAULT_LOCAL_PREF)
}

fn med(path: &Path) -> u32 {
    path.attributes().med.unwrap_or(0)
}

fn external(path: &Path) -> bool {
    path.source().neighbor().is_some_and(|neighbor| neighbor.external)
}

fn router_id(path: &Path) -> u32 {
    path.source()
        .neighbor()
        .map_or(0, |neighbor| path.attributes().rare().originator_id.unwrap_or(neighbor.router_id).to_bits())
}

fn peer_address(path: &Path) -> Option<IpAddr> {
    path.source().neighbor().map(|neighbor| neighbor.address)
}
