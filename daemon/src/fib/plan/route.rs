//! A kernel route, its parts, and what can be done about it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use ipnet::IpNet;

/// The route protocol number that marks a kernel route as ours.
pub const PROTOCOL: u8 = 73;

/// The metric (priority) of our routes; lower wins in the kernel.
///
/// Above 1024 on purpose: a connected route (0 for IPv4, 256 for IPv6), a static route (0 and 1024) or a default route from DHCP or
/// router advertisements (at most 1024) to the very same prefix keeps precedence over anything that a neighbor tells us.
pub const METRIC: u32 = 1073;

/// A router as the next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gateway {
    /// Its address.
    pub address: IpAddr,
    /// The interface it is on, where the address alone does not say: link-local ones.
    pub interface: Option<u32>,
}

/// Where a kernel route leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Straight out of the interface with this index.
    Device(u32),
    /// Through these routers, in ascending order, none twice, all with the same weight.
    Gateways(Arc<[Gateway]>),
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

impl From<IpAddr> for Gateway {
    fn from(address: IpAddr) -> Self {
        Self { address, interface: None }
    }
}

impl KernelRoute {
    /// True for a route that carries our protocol number.
    pub fn is_ours(&self) -> bool {
        self.protocol == PROTOCOL
    }
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
