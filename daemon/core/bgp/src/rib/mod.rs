//! Routes: what each peer sent (Adj-RIB-In), which of it is used and why the rest is not (Loc-RIB), in one table.
//!
//! A prefix has at most one path for each source. Paths that may not be used stay in the table with the reason, so that a person can
//! see them and a changed policy needs nothing from the peer.

mod decided;
mod decision;
mod export;
mod import;
mod intern;
mod topology;

use std::{collections::HashMap, net::IpAddr, net::Ipv4Addr, sync::Arc};

use ipnet::IpNet;
use prefix_trie::joint::JointPrefixMap;

use crate::{Family, PeerId, wire::Attributes};
pub use decided::{Decided, decided};
pub use decision::{Multipath, Step, Verdict};
pub use export::{ExportTarget, Withheld, export};
pub use import::{ImportRules, Ineligible};
use intern::Interner;
pub use topology::{NextHopRule, Topology};

/// Own addresses of a session, one for each family: what "next hop self" means on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHops {
    /// For IPv4 prefixes.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6 prefixes.
    pub v6: Option<std::net::Ipv6Addr>,
}

impl NextHops {
    /// The address for a family.
    pub fn of(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::Ipv4Unicast => self.v4.map(IpAddr::V4),
            Family::Ipv6Unicast => self.v6.map(IpAddr::V6),
        }
    }
}

/// What the decision process needs to know about the peer that a path came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// Its number here.
    pub id: PeerId,
    /// Its end of the session.
    pub address: IpAddr,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// Its AS is not ours.
    pub external: bool,
}

/// Where a path comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Originated here.
    Local,
    /// Learned from a peer.
    Peer(Arc<Neighbor>),
}

impl Source {
    /// The peer's number.
    pub fn peer(&self) -> Option<PeerId> {
        match self {
            Self::Local => None,
            Self::Peer(neighbor) => Some(neighbor.id),
        }
    }
}

/// One way to a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where it comes from.
    pub source: Source,
    /// As received, shared between the prefixes that came with them.
    pub attributes: Arc<Attributes>,
    /// What the decision process made of it.
    pub verdict: Verdict,
}

/// Prefixes of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the table, for each of [`Family::ALL`].
    pub received: [u32; 2],
    /// Of these, usable.
    pub accepted: u32,
}

/// The table.
#[derive(Debug, Default)]
pub struct Rib {
    table: JointPrefixMap<IpNet, Vec<Path>>,
    counts: HashMap<PeerId, Counts>,
    interner: Interner,
    multipath: Multipath,
}

impl Rib {
    /// An empty table.
    pub fn new(multipath: Multipath) -> Self {
        Self { multipath, ..Self::default() }
    }

    /// One shared copy of these attributes.
    pub fn intern(&mut self, attributes: Attributes) -> Arc<Attributes> {
        self.interner.intern(attributes)
    }

    /// Puts a path in the place of the source's former one. True if the prefix changed.
    pub fn announce(
        &mut self,
        prefix: IpNet,
        source: Source,
        attributes: Arc<Attributes>,
        ineligible: Option<Ineligible>,
    ) -> bool {
        let verdict = ineligible.map_or(Verdict::Undecided, Verdict::Ineligible);
        let peer = source.peer();
        let path = Path { source, attributes, verdict };
        let paths = self.table.entry(prefix).or_default();
        let old = paths.iter().position(|known| known.source.peer() == peer);
        if let Some(old) = old.map(|index| &paths[index]) {
            let same = old.attributes == path.attributes && old.source == path.source;
            if same && old.verdict.ineligible() == path.verdict.ineligible() {
                return false;
            }
        }
        let counts = peer.map(|peer| self.counts.entry(peer).or_default());
        match (old, counts) {
            (Some(index), counts) => {
                if let Some(counts) = counts {
                    counts.forget(prefix, &paths[index]);
                    counts.add(prefix, &path);
                }
                paths[index] = path;
            }
            (None, counts) => {
                if let Some(counts) = counts {
                    counts.add(prefix, &path);
                }
                paths.push(path);
            }
        }
        decision::decide(paths, self.multipath);
        true
    }

    /// Takes the path of a source out; `None` is ourselves. True if there was one.
    pub fn withdraw(&mut self, prefix: IpNet, peer: Option<PeerId>) -> bool {
        let Some(paths) = self.table.get_mut(&prefix) else { return false };
        let Some(index) = paths.iter().position(|path| path.source.peer() == peer) else { return false };
        let path = paths.remove(index);
        if let Some(counts) = peer.and_then(|peer| self.counts.get_mut(&peer)) {
            counts.forget(prefix, &path);
        }
        decision::decide(paths, self.multipath);
        if paths.is_empty() {
            self.table.remove(&prefix);
        }
        true
    }

    /// Takes everything of a peer out; returns the prefixes.
    pub fn withdraw_peer(&mut self, peer: PeerId) -> Vec<IpNet> {
        let prefixes = self.prefixes_of(peer);
        for prefix in &prefixes {
            self.withdraw(*prefix, Some(peer));
        }
        self.counts.remove(&peer);
        prefixes
    }

    /// Judges every path of a peer again; returns the prefixes that changed.
    pub fn reconsider(
        &mut self,
        peer: PeerId,
        mut judge: impl FnMut(&IpNet, &Attributes) -> Option<Ineligible>,
    ) -> Vec<IpNet> {
        let mut changed = Vec::new();
        for prefix in self.prefixes_of(peer) {
            let path = self.paths(&prefix).iter().find(|path| path.source.peer() == Some(peer)).cloned();
            let Some(Path { source, attributes, .. }) = path else { continue };
            let ineligible = judge(&prefix, &attributes);
            if self.announce(prefix, source, attributes, ineligible) {
                changed.push(prefix);
            }
        }
        changed
    }

    /// Decides everything again under another rule; returns the prefixes that have more than one path.
    pub fn set_multipath(&mut self, multipath: Multipath) -> Vec<IpNet> {
        self.multipath = multipath;
        let several = self.table.iter_mut().filter(|(_, paths)| paths.len() > 1);
        several
            .map(|(prefix, paths)| {
                decision::decide(paths, multipath);
                prefix
            })
            .collect()
    }

    /// Prefixes that start here.
    pub fn originated(&self) -> impl Iterator<Item = IpNet> {
        let local = |paths: &[Path]| paths.iter().any(|path| path.source == Source::Local);
        self.table.iter().filter(move |(_, paths)| local(paths)).map(|(prefix, _)| prefix)
    }

    /// Every path to a prefix, used or not.
    pub fn paths(&self, prefix: &IpNet) -> &[Path] {
        self.table.get(prefix).map_or(&[], Vec::as_slice)
    }

    /// The path that is used and announced.
    pub fn best(&self, prefix: &IpNet) -> Option<&Path> {
        self.paths(prefix).iter().find(|path| path.verdict == Verdict::Best)
    }

    /// Every prefix, IPv4 first.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.table.keys()
    }

    /// How many prefixes a peer has here.
    pub fn counts(&self, peer: PeerId) -> Counts {
        self.counts.get(&peer).copied().unwrap_or_default()
    }

    fn prefixes_of(&self, peer: PeerId) -> Vec<IpNet> {
        let of_peer = |paths: &Vec<Path>| paths.iter().any(|path| path.source.peer() == Some(peer));
        self.table.iter().filter(|(_, paths)| of_peer(paths)).map(|(prefix, _)| prefix).collect()
    }
}

impl Counts {
    fn add(&mut self, prefix: IpNet, path: &Path) {
        self.received[Family::of(&prefix).index()] += 1;
        self.accepted += u32::from(path.verdict.ineligible().is_none());
    }

    fn forget(&mut self, prefix: IpNet, path: &Path) {
        self.received[Family::of(&prefix).index()] -= 1;
        self.accepted -= u32::from(path.verdict.ineligible().is_none());
    }
}

#[cfg(test)]
mod tests;
