//! What the kernel has, as far as the plan cares.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use prefix_trie::joint::JointPrefixMap;

/// The route protocol number that marks a kernel route as ours.
pub const PROTOCOL: u8 = 73;

/// The metric (priority) of our routes; lower wins in the kernel.
///
/// Above 1024 on purpose: a connected route (0 for IPv4, 256 for IPv6), a static route (0 and 1024) or a default route from DHCP or
/// router advertisements (at most 1024) to the very same prefix keeps precedence over anything that a neighbor tells us.
pub const METRIC: u32 = 1073;

/// Where a kernel route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Straight out of the interface with this index.
    Device(u32),
    /// Through these routers, in ascending order, none twice, all with the same weight.
    Gateways(Vec<IpAddr>),
    /// Something that we never install: a blackhole, an encapsulation, unequal weights.
    Other,
}

/// One route of the table, reduced to what the plan compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// Destination.
    pub prefix: IpNet,
    /// Lower wins among routes to the same prefix.
    pub metric: u32,
    /// Who installed it; [`PROTOCOL`] is us.
    pub protocol: u8,
    /// Where it leads.
    pub target: Target,
    /// Preferred source address of packets that start here.
    pub source: Option<IpAddr>,
}

impl KernelRoute {
    /// True for a route that carries our protocol number.
    pub fn is_ours(&self) -> bool {
        self.protocol == PROTOCOL
    }
}

/// The TUN interface as the kernel shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Its first IPv4 address that is not link-local.
    pub v4: Option<Ipv4Addr>,
    /// Its first IPv6 address that is not link-local and has passed duplicate address detection.
    pub v6: Option<Ipv6Addr>,
}

impl Link {
    /// The preferred source address for a destination: the overlay address, which every peer lists in our `allowed_ips`.
    pub fn source(&self, destination: &IpNet) -> Option<IpAddr> {
        match destination {
            IpNet::V4(_) => self.v4.map(IpAddr::from),
            IpNet::V6(_) => self.v6.map(IpAddr::from),
        }
    }
}

/// One step towards the wanted table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Install, provided that the kernel has no route with this prefix and metric.
    Add(KernelRoute),
    /// Put the new route atomically in the place of our old one; should that fail, the old one goes all the same.
    Replace {
        /// What is there, ours.
        old: KernelRoute,
        /// What shall be there.
        new: KernelRoute,
    },
    /// Remove this route of ours.
    Delete(KernelRoute),
}

impl Operation {
    /// The operation as one word, as metrics show it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Add(_) => "add",
            Self::Replace { .. } => "replace",
            Self::Delete(_) => "delete",
        }
    }
}

/// One routing table of the kernel, and the TUN interface.
#[derive(Default)]
pub struct Kernel {
    routes: JointPrefixMap<IpNet, Vec<KernelRoute>>,
    /// The TUN interface, if it exists.
    pub link: Option<Link>,
}

impl Kernel {
    /// Notes a route that the kernel has. A dump that a change interrupted may tell of one twice.
    pub fn insert(&mut self, route: KernelRoute) {
        let prefix = route.prefix;
        match self.routes.get_mut(&prefix) {
            Some(routes) if routes.contains(&route) => {}
            Some(routes) => routes.push(route),
            None => {
                self.routes.insert(prefix, vec![route]);
            }
        }
    }

    /// Notes that the kernel has carried out an operation.
    pub fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Add(new) => self.insert(new),
            Operation::Delete(old) => self.remove(&old),
            Operation::Replace { old, new } => {
                self.remove(&old);
                self.insert(new);
            }
        }
    }

    /// All routes to this very prefix, in the kernel's order.
    pub fn at(&self, prefix: &IpNet) -> &[KernelRoute] {
        self.routes.get(prefix).map_or(&[], Vec::as_slice)
    }

    /// All routes.
    pub fn routes(&self) -> impl Iterator<Item = &KernelRoute> {
        self.routes.values().flatten()
    }

    /// Our routes.
    pub fn ours(&self) -> impl Iterator<Item = &KernelRoute> {
        self.routes().filter(|route| route.is_ours())
    }

    /// The most specific, and there the most preferred, of the routes that cover a destination and satisfy the filter.
    pub fn best(&self, destination: &IpNet, filter: impl Fn(&KernelRoute) -> bool) -> Option<&KernelRoute> {
        let preferred = |routes: &'_ Vec<KernelRoute>| -> Option<usize> {
            let usable = routes.iter().enumerate().filter(|(_, route)| filter(route));
            usable.min_by_key(|(_, route)| route.metric).map(|(position, _)| position)
        };
        let covering = self.routes.cover_values(destination);
        covering.filter_map(|routes| preferred(routes).map(|position| &routes[position])).last()
    }

    fn remove(&mut self, route: &KernelRoute) {
        let Some(routes) = self.routes.get_mut(&route.prefix) else { return };
        if let Some(position) = routes.iter().position(|other| other == route) {
            routes.remove(position);
        }
        if routes.is_empty() {
            self.routes.remove(&route.prefix);
        }
    }
}
