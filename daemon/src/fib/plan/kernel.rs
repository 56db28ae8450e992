//! What the kernel has, as far as the plan cares. Of 100,000 routes nearly all lead one of few ways, so a way is kept once, and a route
//! is an entry of a table with a pointer to it.

use std::{collections::HashSet, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use isthmus_prefix::PrefixTable;

use super::{
    links::Links,
    route::{KernelRoute, Link, Operation, PROTOCOL, Target},
};
use crate::prefixes;

/// Ways that no route takes are looked for when so many are there, and then whenever there are twice as many as were in use.
const SWEEP: usize = 256;

/// A route without its destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Way {
    metric: u32,
    protocol: u8,
    target: Target,
    source: Option<IpAddr>,
}

/// The routes to one prefix, in the kernel's order.
enum Ways {
    One(Arc<Way>),
    Many(Box<[Arc<Way>]>),
}

/// One routing table of the kernel, the TUN interface, and the links.
pub struct Kernel {
    routes: PrefixTable<Ways>,
    ways: HashSet<Arc<Way>>,
    sweep_at: usize,
    /// The TUN interface, if it exists.
    pub link: Option<Link>,
    /// Every interface.
    pub links: Links,
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            routes: prefixes::table(),
            ways: HashSet::new(),
            sweep_at: SWEEP,
            link: None,
            links: Links::default(),
        }
    }
}

impl Kernel {
    /// Notes a route that the kernel has. A dump that a change interrupted may tell of one twice.
    pub fn insert(&mut self, route: KernelRoute) {
        let prefix = route.prefix;
        let way = self.way(Way::from(route));
        match self.routes.get_mut(prefix) {
            Some(there) if there.as_slice().contains(&way) => {}
            Some(there) => there.push(way),
            None => {
                self.routes.insert(prefix, Ways::One(way));
            }
        }
    }

    /// Notes that the kernel has carried out an operation.
    pub fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Add(new) => self.insert(new),
            Operation::Delete(old) => drop(self.remove(old)),
            Operation::Replace { old, new } => {
                self.remove(old);
                self.insert(new);
            }
        }
    }

    /// Gives back the memory of what was removed.
    pub fn shrink(&mut self) {
        self.routes.shrink();
    }

    /// All routes to this very prefix, in the kernel's order.
    pub fn at(&self, prefix: IpNet) -> Vec<KernelRoute> {
        let ways = self.routes.get(prefix).map_or(&[][..], Ways::as_slice);
        ways.iter().map(|way| way.to(prefix)).collect()
    }

    /// Prefixes to which we have a route.
    pub fn ours(&self) -> impl Iterator<Item = IpNet> {
        self.routes.iter().filter(|(_, ways)| ways.as_slice().iter().any(|way| way.is_ours())).map(|(p, _)| p)
    }

    /// The most specific, and there the most preferred, of others' routes that cover a destination.
    pub fn best_of_others(&self, destination: IpNet) -> Option<KernelRoute> {
        self.routes.covering(destination).into_iter().find_map(|(prefix, ways)| {
            let theirs = ways.as_slice().iter().filter(|way| !way.is_ours());
            theirs.min_by_key(|way| way.metric).map(|way| way.to(prefix))
        })
    }

    /// Notes that a route is gone. False if it was not known to be there.
    pub fn remove(&mut self, route: KernelRoute) -> bool {
        let prefix = route.prefix;
        let Some(there) = self.routes.get_mut(prefix) else { return false };
        let way = Way::from(route);
        let known = there.as_slice().iter().any(|other| **other == way);
        if there.remove(&way) {
            self.routes.remove(prefix);
        }
        known
    }

    fn way(&mut self, way: Way) -> Arc<Way> {
        if let Some(known) = self.ways.get(&way) {
            return Arc::clone(known);
        }
        self.sweep();
        let way = Arc::new(way);
        self.ways.insert(Arc::clone(&way));
        way
    }

    fn sweep(&mut self) {
        if self.ways.len() >= self.sweep_at {
            self.ways.retain(|way| Arc::strong_count(way) > 1);
            self.sweep_at = (self.ways.len() * 2).max(SWEEP);
        }
    }
}

impl Way {
    fn is_ours(&self) -> bool {
        self.protocol == PROTOCOL
    }

    fn to(&self, prefix: IpNet) -> KernelRoute {
        let Self { metric, protocol, target, source } = self.clone();
        KernelRoute { prefix, metric, protocol, target, source }
    }
}

impl From<KernelRoute> for Way {
    fn from(route: KernelRoute) -> Self {
        let KernelRoute { prefix: _, metric, protocol, target, source } = route;
        Self { metric, protocol, target, source }
    }
}

impl Ways {
    fn as_slice(&self) -> &[Arc<Way>] {
        match self {
            Self::One(way) => std::slice::from_ref(way),
            Self::Many(ways) => ways,
        }
    }

    fn push(&mut self, way: Arc<Way>) {
        let all = self.as_slice().iter().cloned().chain([way]);
        *self = Self::Many(all.collect());
    }

    /// True if nothing is left.
    fn remove(&mut self, way: &Way) -> bool {
        match self {
            Self::One(only) => **only == *way,
            Self::Many(ways) => {
                // Equal ones are there once.
                let rest = ways.iter().filter(|other| ***other != *way);
                *ways = rest.cloned().collect();
                ways.is_empty()
            }
        }
    }
}
