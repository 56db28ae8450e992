//! How many paths each peer has in the table.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::{Path, Verdict};
use crate::{Family, PeerId};

/// Paths of one peer, each figure for each of [`Family::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the table.
    pub received: [u32; 2],
    /// Of these, usable.
    pub accepted: [u32; 2],
    /// Of these, the best to their prefix.
    pub best: [u32; 2],
    /// Kept from a session that is gone.
    pub stale: [u32; 2],
}

impl Counts {
    /// Paths of both families.
    pub fn total(&self) -> u32 {
        self.received.iter().sum()
    }

    /// Paths that may not be used.
    pub fn filtered(&self) -> u32 {
        self.total() - self.accepted.iter().sum::<u32>()
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<PeerId, Counts>);

impl Tally {
    pub(super) fn of(&self, peer: PeerId) -> Counts {
        self.0.get(&peer).copied().unwrap_or_default()
    }

    /// What is counted now is subtracted, before it changes.
    pub(super) fn forget(&mut self, prefix: IpNet, paths: &[Path]) {
        self.each(prefix, paths, |field, by| *field -= by);
    }

    pub(super) fn count(&mut self, prefix: IpNet, paths: &[Path]) {
        self.each(prefix, paths, |field, by| *field += by);
    }

    fn each(&mut self, prefix: IpNet, paths: &[Path], change: fn(&mut u32, u32)) {
        for path in paths {
            let Some(peer) = path.source().peer() else { continue };
            let counts = self.0.entry(peer).or_default();
            let family = Family::of(&prefix).index();
            change(&mut counts.received[family], 1);
            change(&mut counts.accepted[family], path.verdict().ineligible().is_none().into());
            change(&mut counts.best[family], (path.verdict() == Verdict::Best).into());
            change(&mut counts.stale[family], path.is_stale().into());
        }
    }

    /// Peers without a path cost nothing.
    pub(super) fn tidy(&mut self) {
        self.0.retain(|_, counts| counts.total() > 0);
    }
}
