//! From the speaker's table to the board.

use std::{collections::HashSet, sync::Arc};

use ipnet::IpNet;
use isthmus_bgp::{
    Speaker,
    rib::{Path, Verdict},
};

use crate::routes::{Candidate, Group, NextHop};

/// Groups that no prefix uses are looked for when so many are there, and then whenever there are twice as many as were in use.
const SWEEP: usize = 1024;

/// Each set of candidates once, so that the board shares it between prefixes.
pub(super) struct Publisher {
    groups: HashSet<Group>,
    /// The last one made: prefixes of one UPDATE come together.
    last: Group,
    sweep_at: usize,
}

impl Default for Publisher {
    fn default() -> Self {
        Self { groups: HashSet::new(), last: Arc::new([]), sweep_at: SWEEP }
    }
}

impl Publisher {
    /// What the board should know about these prefixes.
    pub(super) fn changes(
        &mut self,
        speaker: &Speaker,
        prefixes: impl IntoIterator<Item = IpNet>,
    ) -> Vec<(IpNet, Group)> {
        let changes = prefixes.into_iter().map(|prefix| (prefix, self.group(candidates(speaker, &prefix))));
        let changes = changes.collect();
        self.sweep();
        changes
    }

    fn group(&mut self, candidates: Vec<Candidate>) -> Group {
        if *self.last == *candidates {
            return Arc::clone(&self.last);
        }
        let group = match self.groups.get(candidates.as_slice()) {
            Some(group) => Arc::clone(group),
            None => Arc::from(candidates),
        };
        self.groups.insert(Arc::clone(&group));
        self.last = Arc::clone(&group);
        group
    }

    fn sweep(&mut self) {
        if self.groups.len() < self.sweep_at {
            return;
        }
        self.groups.retain(|group| Arc::strong_count(group) > 1);
        self.groups.shrink_to(self.groups.len() * 2);
        self.sweep_at = (self.groups.len() * 2).max(SWEEP);
    }
}

/// The peers' paths that may be used, the preferred first. Those that may not are no feasible sources either, and a prefix that starts
/// here has no candidate of its own.
fn candidates(speaker: &Speaker, prefix: &IpNet) -> Vec<Candidate> {
    let usable = speaker.paths(prefix).iter().filter(|path| path.verdict.ineligible().is_none());
    let mut candidates: Vec<Candidate> = usable.filter_map(|path| candidate(speaker, path)).collect();
    candidates.sort_by_key(|candidate| !candidate.selected);
    candidates
}

fn candidate(speaker: &Speaker, path: &Path) -> Option<Candidate> {
    let peer = path.source.peer()?;
    Some(Candidate {
        next_hop: NextHop::Address(path.attributes.next_hop),
        neighbor: speaker.peer_name(peer).cloned(),
        selected: matches!(path.verdict, Verdict::Best | Verdict::Equal),
    })
}
