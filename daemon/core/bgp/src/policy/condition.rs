//! Which routes a rule is about.

use std::{fmt, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{AsPathCondition, CommunityPattern, LargeCommunityPattern, ListCondition, Route};
use crate::{Family, wire::Origin};

/// A prefix and how much longer than it the route's may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrefixPattern {
    prefix: IpNet,
    shortest: u8,
    longest: u8,
}

impl PrefixPattern {
    /// Exactly this prefix.
    pub fn exact(prefix: IpNet) -> Self {
        Self { prefix: prefix.trunc(), shortest: prefix.prefix_len(), longest: prefix.prefix_len() }
    }

    /// Prefixes within `prefix` whose length is from `shortest` to `longest`, both included. `None` if there are none.
    pub fn new(prefix: IpNet, shortest: u8, longest: u8) -> Option<Self> {
        let possible =
            prefix.prefix_len() <= shortest && shortest <= longest && longest <= prefix.max_prefix_len();
        possible.then_some(Self { prefix: prefix.trunc(), shortest, longest })
    }

    /// As configuration has it: `le` alone starts at the prefix itself, `ge` alone goes to host routes. `None` if no prefix fits.
    pub fn with_bounds(prefix: IpNet, ge: Option<u8>, le: Option<u8>) -> Option<Self> {
        let own = prefix.prefix_len();
        match (ge, le) {
            (None, None) => Some(Self::exact(prefix)),
            (Some(ge), None) => Self::new(prefix, ge, prefix.max_prefix_len()),
            (ge, Some(le)) => Self::new(prefix, ge.unwrap_or(own), le),
        }
    }

    /// True if the prefix is one of these.
    pub fn matches(&self, prefix: &IpNet) -> bool {
        (self.shortest..=self.longest).contains(&prefix.prefix_len()) && self.prefix.contains(prefix)
    }
}

impl fmt::Display for PrefixPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefix.fmt(f)?;
        if self.shortest != self.prefix.prefix_len() {
            write!(f, " ge {}", self.shortest)?;
        }
        if self.longest != self.shortest {
            write!(f, " le {}", self.longest)?;
        }
        Ok(())
    }
}

/// All that is given must hold; within a list one entry is enough. The default matches every route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Condition {
    /// Its prefix.
    pub prefixes: Vec<PrefixPattern>,
    /// Its address family.
    pub family: Option<Family>,
    /// Configured names of the neighbor that it was learned from.
    pub neighbors: Vec<Arc<str>>,
    /// True: it starts here. False: it was learned.
    pub originated: Option<bool>,
    /// Prefixes that its next hop is in.
    pub next_hops: Vec<IpNet>,
    /// Its ORIGIN.
    pub origin: Option<Origin>,
    /// Its AS_PATH.
    pub as_path: AsPathCondition,
    /// Its communities.
    pub communities: ListCondition<CommunityPattern>,
    /// Its large communities.
    pub large_communities: ListCondition<LargeCommunityPattern>,
}

/// The first part of a condition that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The prefix is none of the rule's.
    Prefix,
    /// Another family.
    Family,
    /// From another neighbor.
    Neighbor,
    /// Learned and not originated here, or the other way round.
    Originated,
    /// The next hop.
    NextHop,
    /// ORIGIN.
    Origin,
    /// AS_PATH.
    AsPath,
    /// Communities.
    Communities,
    /// Large communities.
    LargeCommunities,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefix => "prefix",
            Self::Family => "family",
            Self::Neighbor => "neighbor",
            Self::Originated => "where it starts",
            Self::NextHop => "next hop",
            Self::Origin => "origin",
            Self::AsPath => "AS path",
            Self::Communities => "communities",
            Self::LargeCommunities => "large communities",
        })
    }
}

impl Condition {
    pub(super) fn entries(&self) -> usize {
        let lists = [self.prefixes.len(), self.neighbors.len(), self.next_hops.len(), self.as_path.entries()];
        lists.iter().sum::<usize>() + self.communities.entries() + self.large_communities.entries()
    }

    /// True if the outcome can differ between prefixes with the same attributes.
    pub(super) fn asks_for_prefix(&self) -> bool {
        self.family.is_some() || !self.prefixes.is_empty()
    }

    /// The part about the prefix alone.
    pub(super) fn matches_prefix(&self, prefix: &IpNet) -> bool {
        self.family.is_none_or(|family| family == Family::of(prefix))
            && (self.prefixes.is_empty() || self.prefixes.iter().any(|pattern| pattern.matches(prefix)))
    }

    /// `None`: it holds. The cheap questions come first.
    pub(super) fn mismatch(&self, route: &Route<'_>) -> Option<Mismatch> {
        let attributes = route.attributes;
        if self.family.is_some_and(|family| family != Family::of(&route.prefix)) {
            Some(Mismatch::Family)
        } else if !self.matches_prefix(&route.prefix) {
            Some(Mismatch::Prefix)
        } else if self.originated.is_some_and(|here| here != route.neighbor.is_none()) {
            Some(Mismatch::Originated)
        } else if !self.matches_neighbor(route.neighbor) {
            Some(Mismatch::Neighbor)
        } else if self.origin.is_some_and(|origin| origin != attributes.origin) {
            Some(Mismatch::Origin)
        } else if !self.matches_next_hop(attributes.next_hop) {
            Some(Mismatch::NextHop)
        } else if !self.communities.matches(&attributes.communities) {
            Some(Mismatch::Communities)
        } else if !self.large_communities.matches(&attributes.rare().large_communities) {
            Some(Mismatch::LargeCommunities)
        } else {
            (!self.as_path.matches(&attributes.as_path)).then_some(Mismatch::AsPath)
        }
    }

    fn matches_neighbor(&self, neighbor: Option<&str>) -> bool {
        self.neighbors.is_empty() || self.neighbors.iter().any(|name| Some(&**name) == neighbor)
    }

    fn matches_next_hop(&self, next_hop: IpAddr) -> bool {
        self.next_hops.is_empty() || self.next_hops.iter().any(|net| net.contains(&next_hop))
    }
}
