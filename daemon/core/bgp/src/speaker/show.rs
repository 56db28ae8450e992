//! The table for people: pages of it, and why things are as they are.

use std::{collections::BinaryHeap, sync::Arc};

use ipnet::IpNet;

use super::{Peer, Speaker};
use crate::{
    adj_out::Sent,
    policy::Trace,
    rib::{Comparison, Path, Withheld, explain_export, export},
    wire::Attributes,
};

/// A path, and why it is used or not.
#[derive(Clone, Debug)]
pub struct PathReport {
    /// It.
    pub path: Path,
    /// Name of the peer that it comes from; `None`: it starts here.
    pub peer: Option<Arc<str>>,
    /// The values that it lost with, if it lost.
    pub comparison: Option<Comparison>,
    /// What the peer's import policy did to it, and the policy's name; `None`: it starts here, or its session is gone.
    pub import: Option<(Arc<str>, Trace)>,
}

/// What a peer is told of a prefix, and why.
#[derive(Clone, Debug)]
pub struct ExportReport {
    /// What it holds now.
    pub told: Vec<Sent>,
    /// What the best path would be sent as, or why it is not. `None`: there is no best path.
    pub best: Option<Result<Attributes, Withheld>>,
    /// What the export policy did to the best path, and the policy's name.
    pub export: Option<(Arc<str>, Trace)>,
}

impl Speaker {
    /// Every path to a prefix with the reasons.
    pub fn explain(&self, prefix: IpNet) -> Vec<PathReport> {
        let comparisons = self.rib.comparisons(prefix);
        let paths = self.rib.paths(prefix).iter().zip(comparisons);
        paths.map(|(path, comparison)| self.report(prefix, path, comparison)).collect()
    }

    fn report(&self, prefix: IpNet, path: &Path, comparison: Option<Comparison>) -> PathReport {
        let neighbor = path.source().neighbor();
        let peer = neighbor.and_then(|neighbor| self.peers.get(&neighbor.id));
        let rules = peer.and_then(|peer| peer.up.as_ref()).and_then(|up| up.rules.as_ref());
        let import = rules
            .map(|rules| (Arc::clone(rules.policy.name()), rules.explain(prefix, path.bundle().received())));
        let peer = neighbor.map(|neighbor| Arc::clone(&neighbor.name));
        PathReport { path: path.clone(), peer, comparison, import }
    }

    /// What the established peer of this name is told of a prefix. `None`: there is no such peer.
    pub fn explain_export(&self, peer: &str, prefix: IpNet) -> Option<ExportReport> {
        let peer = self.established(peer)?;
        let target = peer.export_target(&self.config, self.shutting_down)?;
        let best = self.rib.best(prefix).map(|path| path.bundle());
        Some(ExportReport {
            told: peer.up.as_ref()?.out.told(prefix),
            best: best.map(|bundle| export(prefix, bundle, &target)),
            export: best
                .map(|bundle| (Arc::clone(target.policy.name()), explain_export(prefix, bundle, &target))),
        })
    }

    /// The first `limit` prefixes behind `after`, in their order, with every path.
    pub fn page(&self, after: Option<IpNet>, limit: usize) -> Vec<(IpNet, &[Path])> {
        let prefixes = first(self.rib.prefixes(), after, limit);
        prefixes.into_iter().map(|prefix| (prefix, self.rib.paths(prefix))).collect()
    }

    /// The same of the paths that came from the peer of this name (Adj-RIB-In).
    pub fn page_in(&self, peer: &str, after: Option<IpNet>, limit: usize) -> Vec<(IpNet, Vec<&Path>)> {
        let of_peer = |path: &&Path| path.source().neighbor().is_some_and(|from| *from.name == *peer);
        let with_paths = self.rib.iter().filter(|(_, paths)| paths.iter().any(|path| of_peer(&path)));
        let prefixes = first(with_paths.map(|(prefix, _)| prefix), after, limit);
        let paths = |prefix| self.rib.paths(prefix).iter().filter(of_peer).collect();
        prefixes.into_iter().map(|prefix| (prefix, paths(prefix))).collect()
    }

    /// The same of what the established peer of this name holds (Adj-RIB-Out).
    pub fn page_out(&self, peer: &str, after: Option<IpNet>, limit: usize) -> Vec<(IpNet, Vec<Sent>)> {
        let Some(up) = self.established(peer).and_then(|peer| peer.up.as_ref()) else { return Vec::new() };
        let prefixes = first(up.out.iter().map(|(prefix, _, _)| prefix), after, limit);
        prefixes.into_iter().map(|prefix| (prefix, up.out.told(prefix))).collect()
    }

    fn established(&self, name: &str) -> Option<&Peer> {
        self.peers.values().find(|peer| *peer.config.name == *name && peer.up.is_some())
    }
}

/// The least `limit` prefixes above `after`, each once, in order: the tables themselves have none.
fn first(prefixes: impl Iterator<Item = IpNet>, after: Option<IpNet>, limit: usize) -> Vec<IpNet> {
    let mut least = BinaryHeap::new();
    for prefix in prefixes.filter(|prefix| after.is_none_or(|after| *prefix > after)) {
        if least.len() < limit {
            least.push(prefix);
        } else if least.peek().is_some_and(|greatest| prefix < *greatest) {
            least.pop();
            least.push(prefix);
        }
    }
    let mut found = least.into_sorted_vec();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_in_order() {
        let net = |n: u8| IpNet::new([10, n, 0, 0].into(), 16).unwrap();
        let scattered = || [5, 1, 4, 2, 3].into_iter().map(net);
        assert_eq!(first(scattered(), None, 2), [net(1), net(2)]);
        assert_eq!(first(scattered(), Some(net(2)), 2), [net(3), net(4)]);
        assert_eq!(first(scattered(), Some(net(4)), 2), [net(5)]);
        assert!(first(scattered(), Some(net(5)), 2).is_empty());
        assert!(first(scattered(), None, 0).is_empty());
    }
}
