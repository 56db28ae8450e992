//! Each set of candidates once, with what it resolves to.

use std::{
    collections::{HashMap, hash_map::RandomState},
    sync::Arc,
};

use super::{Candidate, Group, Hop, Path, PathGroup, Source};

/// Groups that nobody uses are looked for when so many are there, and then whenever there are twice as many as were in use.
const SWEEP: usize = 64;

/// Known sets of candidates.
pub(super) struct Groups {
    known: HashMap<Group, Arc<PathGroup>, RandomState>,
    /// The last one asked for: prefixes with one set of candidates come together.
    last: Option<(Group, Arc<PathGroup>)>,
    sweep_at: usize,
}

impl Default for Groups {
    fn default() -> Self {
        Self { known: HashMap::new(), last: None, sweep_at: SWEEP }
    }
}

impl Groups {
    /// The paths of these candidates; equal candidates have the very same.
    pub(super) fn of(&mut self, candidates: Group, resolve: impl Fn(&Candidate) -> Hop) -> Arc<PathGroup> {
        if let Some((_, paths)) = self.last.as_ref().filter(|(last, _)| Arc::ptr_eq(last, &candidates)) {
            return Arc::clone(paths);
        }
        let make = || group(&candidates, resolve);
        let paths = self.known.entry(Arc::clone(&candidates)).or_insert_with(make);
        let paths = Arc::clone(paths);
        self.last = Some((candidates, Arc::clone(&paths)));
        paths
    }

    /// Resolves all of them again. Returns those that lead elsewhere now: before, after.
    pub(super) fn resolve(
        &mut self,
        resolve: impl Fn(&Candidate) -> Hop,
    ) -> HashMap<*const PathGroup, Arc<PathGroup>> {
        self.last = None;
        let mut moved = HashMap::new();
        for (candidates, paths) in &mut self.known {
            let new = group(candidates, &resolve);
            if *new != **paths {
                moved.insert(Arc::as_ptr(paths), Arc::clone(&new));
                *paths = new;
            }
        }
        moved
    }

    /// Forgets what no prefix uses any more, if there is reason to think that it is much.
    pub(super) fn sweep(&mut self) {
        if self.known.len() < self.sweep_at {
            return;
        }
        self.last = None;
        self.known.retain(|_, paths| Arc::strong_count(paths) > 1);
        self.known.shrink_to(self.known.len() * 2);
        self.sweep_at = (self.known.len() * 2).max(SWEEP);
    }
}

fn group(candidates: &Group, resolve: impl Fn(&Candidate) -> Hop) -> Arc<PathGroup> {
    let path = |candidate: &Candidate| Path { hop: resolve(candidate), candidate: candidate.clone() };
    Arc::new(PathGroup { source: Source::Bgp, paths: candidates.iter().map(path).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::NextHop;

    fn ask(groups: &mut Groups, peer: &str) -> Arc<PathGroup> {
        let next_hop = NextHop::Peer(peer.into());
        let candidates = [Candidate { next_hop, neighbor: None, selected: true }];
        groups.of(candidates.into(), |_| Hop::Peer("there".into()))
    }

    #[test]
    fn equal_candidates_share_their_paths() {
        let mut groups = Groups::default();
        let (one, other) = (ask(&mut groups, "a"), ask(&mut groups, "b"));
        assert!(!Arc::ptr_eq(&one, &other));
        assert!(Arc::ptr_eq(&one, &ask(&mut groups, "a")));
    }

    #[test]
    fn unused_groups_are_forgotten() {
        let mut groups = Groups::default();
        let used = ask(&mut groups, "used");
        for number in 0..10 * SWEEP {
            ask(&mut groups, &number.to_string());
            groups.sweep();
        }
        assert!(groups.known.len() <= SWEEP);
        assert!(Arc::ptr_eq(&used, &ask(&mut groups, "used")));
    }
}
