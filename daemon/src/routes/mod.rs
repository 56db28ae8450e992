//! Board 2: which prefixes exist, who could carry them, and who does.
//!
//! The tunnel writes the static prefixes (its peers' `allowed_ips`), BGP writes what it learned, the FIB which links are down; the
//! tunnel's packet table, the FIB, BGP and the control API read. Writers replace, never append. A reader gets numbered changes, or
//! everything if it fell too far behind, so that a slow reader costs memory to nobody.
//!
//! Many prefixes share few sets of paths: a prefix costs one entry of a table with a pointer to its [`PathGroup`], about 22 bytes.

mod board;
mod groups;
mod log;
mod table;
mod watcher;

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use ipnet::IpNet;

pub use board::Board;
pub use watcher::{Changes, Watcher};

/// A tunnel peer's configured name.
pub type PeerName = Arc<str>;

/// The tunnel peers' own prefixes.
pub type Statics = Arc<[(IpNet, PeerName)]>;

/// Every candidate of a prefix, the preferred first. Writers share one between prefixes whose candidates are the same.
pub type Group = Arc<[Candidate]>;

/// Interfaces without carrier.
pub type DownLinks = Arc<[DownLink]>;

/// Who says that a prefix exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A peer's `allowed_ips`.
    Static,
    /// Learned from a BGP neighbor.
    Bgp,
}

/// One way to a prefix, as its source states it: what forwarding needs, and no more. Why BGP prefers one is asked of BGP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Where packets should go.
    pub next_hop: NextHop,
    /// The BGP neighbor it was learned from; `None` for static prefixes.
    pub neighbor: Option<Arc<str>>,
    /// True: the source wants it to carry traffic (best path, or equal to it under multipath).
    pub selected: bool,
}

/// A candidate's next hop before resolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NextHop {
    /// A tunnel peer, named by the configuration.
    Peer(PeerName),
    /// An address, to be resolved.
    Address(IpAddr),
    /// An address that means something on one link only (RFC 4007).
    LinkLocal {
        /// In fe80::/10.
        address: Ipv6Addr,
        /// Index of the interface.
        interface: u32,
    },
}

/// A resolved next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hop {
    /// Through our TUN device to this peer.
    Peer(PeerName),
    /// Through the kernel to this neighbor.
    Gateway(IpAddr),
    /// Through the kernel to this neighbor on this interface.
    LinkLocal {
        /// In fe80::/10.
        address: Ipv6Addr,
        /// Index of the interface.
        interface: u32,
    },
}

/// A candidate with its resolved hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where it leads.
    pub hop: Hop,
    /// What the source said.
    pub candidate: Candidate,
}

/// Every path of one source to a prefix; prefixes with the same paths share one.
#[derive(Debug, PartialEq, Eq)]
pub struct PathGroup {
    /// Who says so.
    pub source: Source,
    /// All candidates, the preferred first; those with `selected` carry traffic, all of them are feasible sources (RFC 3704 section 2.3).
    pub paths: Box<[Path]>,
}

/// A prefix with the paths of its winning source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub prefix: IpNet,
    /// Who could carry it.
    pub group: Arc<PathGroup>,
}

/// An interface that carries nothing now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownLink {
    /// Index of the interface.
    pub interface: u32,
    /// Its name.
    pub name: String,
    /// What is directly connected by it.
    pub subnets: Vec<IpNet>,
    /// Of that, what another interface leads to that works.
    pub elsewhere: Vec<IpNet>,
}

impl PathGroup {
    /// Hops that carry traffic.
    pub fn selected(&self) -> impl Iterator<Item = &Hop> {
        self.paths.iter().filter(|path| path.candidate.selected).map(|path| &path.hop)
    }

    /// Hops that could, should none of the selected be usable; the preferred first.
    pub fn others(&self) -> impl Iterator<Item = &Hop> {
        self.paths.iter().filter(|path| !path.candidate.selected).map(|path| &path.hop)
    }
}

impl Route {
    /// The winning source.
    pub fn source(&self) -> Source {
        self.group.source
    }

    /// All candidates.
    pub fn paths(&self) -> &[Path] {
        &self.group.paths
    }

    /// Hops that carry traffic.
    pub fn selected(&self) -> impl Iterator<Item = &Hop> {
        self.group.selected()
    }
}

impl DownLink {
    /// True if an address lies directly behind the interface, and nowhere else.
    pub fn has(&self, address: IpAddr) -> bool {
        let among = |subnets: &[IpNet]| subnets.iter().any(|subnet| subnet.contains(&address));
        among(&self.subnets) && !among(&self.elsewhere)
    }
}

#[cfg(test)]
mod tests;
