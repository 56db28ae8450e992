//! What the peer holds of what it was sent.

use std::sync::Arc;

use ipnet::IpNet;
use isthmus_prefix::{PrefixTable, Seed};

use crate::{Families, Family, wire::Attributes};

/// One path as it was sent: its identifier, 0 where none goes with it, and its attributes.
pub type Sent = (u32, Arc<Attributes>);

/// Prefixes with one path each, and in families with add-path prefixes with several.
#[derive(Debug)]
pub(super) struct Told {
    one: PrefixTable<Arc<Attributes>>,
    several: PrefixTable<Vec<Sent>>,
    add_path: Families,
    counts: [usize; 2],
}

impl Told {
    pub(super) fn new(add_path: Families, seed: Seed) -> Self {
        Self { one: PrefixTable::new(seed), several: PrefixTable::new(seed), add_path, counts: [0; 2] }
    }

    /// Paths of a family.
    pub(super) fn count(&self, family: Family) -> usize {
        self.counts[family.index()]
    }

    /// True if it holds a path to the prefix.
    pub(super) fn holds(&self, prefix: IpNet) -> bool {
        self.paths(prefix).next().is_some()
    }

    pub(super) fn contains(&self, prefix: IpNet, path_id: u32) -> bool {
        self.paths(prefix).any(|(id, _)| id == path_id)
    }

    /// The paths that it holds.
    pub(super) fn paths(&self, prefix: IpNet) -> impl Iterator<Item = (u32, &Arc<Attributes>)> + Clone {
        let add_path = self.is_add_path(prefix);
        let one = if add_path { None } else { self.one.get(prefix) };
        let several = if add_path { self.several.get(prefix) } else { None };
        let several = several.into_iter().flatten().map(|(id, attributes)| (*id, attributes));
        one.map(|attributes| (0, attributes)).into_iter().chain(several)
    }

    /// True if the path is new.
    pub(super) fn insert(&mut self, prefix: IpNet, path_id: u32, attributes: Arc<Attributes>) -> bool {
        let new = if self.is_add_path(prefix) {
            let paths = self.several.get_or_insert_with(prefix, Vec::new);
            let known = paths.iter().position(|(id, _)| *id == path_id);
            match known {
                Some(known) => paths[known].1 = attributes,
                None => paths.push((path_id, attributes)),
            }
            known.is_none()
        } else {
            self.one.insert(prefix, attributes).is_none()
        };
        self.counts[Family::of(&prefix).index()] += usize::from(new);
        new
    }

    /// Takes the paths to a prefix out whose identifier is not to be kept.
    pub(super) fn take(
        &mut self,
        prefix: IpNet,
        keep: impl Fn(u32) -> bool,
        mut taken: impl FnMut(u32, Arc<Attributes>),
    ) {
        if self.is_add_path(prefix) {
            let ids: Vec<u32> = self.paths(prefix).map(|(id, _)| id).filter(|id| !keep(*id)).collect();
            for id in ids {
                self.remove(prefix, id).into_iter().for_each(|attributes| taken(id, attributes));
            }
        } else if !keep(0) {
            self.remove(prefix, 0).into_iter().for_each(|attributes| taken(0, attributes));
        }
    }

    /// Takes a path out; what it was.
    pub(super) fn remove(&mut self, prefix: IpNet, path_id: u32) -> Option<Arc<Attributes>> {
        let removed = if self.is_add_path(prefix) {
            let paths = self.several.get_mut(prefix)?;
            let place = paths.iter().position(|(id, _)| *id == path_id)?;
            let (_, attributes) = paths.remove(place);
            if paths.is_empty() {
                self.several.remove(prefix);
            }
            attributes
        } else {
            self.one.remove(prefix)?
        };
        self.counts[Family::of(&prefix).index()] -= 1;
        Some(removed)
    }

    /// Gives the memory of what was removed back.
    pub(super) fn shrink(&mut self) {
        self.one.shrink();
        self.several.shrink();
    }

    /// Everything, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpNet, u32, &Arc<Attributes>)> {
        let one = self.one.iter().map(|(prefix, attributes)| (prefix, 0, attributes));
        let several = self
            .several
            .iter()
            .flat_map(|(prefix, paths)| paths.iter().map(move |(id, attributes)| (prefix, *id, attributes)));
        one.chain(several)
    }

    fn is_add_path(&self, prefix: IpNet) -> bool {
        self.add_path.contains(Family::of(&prefix))
    }
}
