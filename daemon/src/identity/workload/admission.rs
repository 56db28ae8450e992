//! How many connections are open, whose they are, and whether one more fits.
//!
//! No user can shut the others out: besides the two configured bounds a user may hold at most twice as many connections as are free. So
//! whoever takes all it can leaves a third of what it found: of 20,000 places five such users leave eighty, and whoever has none gets one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Bounds on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Over all users.
    pub connections: usize,
    /// Of one user.
    pub per_user: usize,
}

impl Default for Limits {
    /// Room for the 10,000 workloads of a large node, even if all run as one user, and for others beside them.
    fn default() -> Self {
        Self { connections: 20_000, per_user: 12_000 }
    }
}

/// Numbers of open connections by user. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Open(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    total: usize,
    by_user: HashMap<u32, usize>,
}

impl Open {
    /// A place for a connection of this user, if there is one. It is free again when it is dropped.
    pub(super) fn take(&self, uid: u32, limits: Limits) -> Option<Place> {
        let mut counts = self.lock();
        let free = limits.connections.checked_sub(counts.total).filter(|free| *free > 0)?;
        let own = counts.by_user.get(&uid).copied().unwrap_or(0);
        if own >= limits.per_user || own >= 2 * free {
            return None;
        }
        counts.total += 1;
        counts.by_user.insert(uid, own + 1);
        Some(Place { open: self.clone(), uid })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Each change is complete before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open connection.
pub(super) struct Place {
    open: Open,
    uid: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.open.lock();
        counts.total -= 1;
        match counts.by_user.get_mut(&self.uid) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                counts.by_user.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all that this user can have.
    fn flood(open: &Open, uid: u32, limits: Limits) -> Vec<Place> {
        std::iter::from_fn(|| open.take(uid, limits)).collect()
    }

    #[test]
    fn no_user_shuts_the_others_out() {
        let limits = Limits { connections: 300, per_user: 250 };
        let open = Open::default();
        let mut all = vec![flood(&open, 1, limits)];
        assert_eq!(all[0].len(), 200, "two thirds");
        // Three more who take what they can: somebody new still gets in.
        for uid in 2..6 {
            all.push(flood(&open, uid, limits));
            assert!(!all[all.len() - 1].is_empty(), "user {uid}");
        }
        assert!(open.take(1, limits).is_none());
        drop(all);
        assert_eq!(open.lock().total, 0);
        assert!(open.lock().by_user.is_empty());
    }

    #[test]
    fn both_bounds_hold_and_a_place_left_is_free() {
        let open = Open::default();
        let limits = Limits { connections: 100, per_user: 3 };
        let mut places = flood(&open, 1, limits);
        assert_eq!(places.len(), 3);
        places.pop();
        assert!(open.take(1, limits).is_some());
        let users: Vec<_> = (0..200).filter_map(|uid| open.take(uid + 10, limits)).collect();
        assert_eq!(users.len() + places.len(), 100);
        // A bound that was lowered below what is open admits nobody.
        assert!(open.take(999, Limits { connections: 50, per_user: 3 }).is_none());
    }

    #[test]
    fn the_defaults_serve_ten_thousand_workloads_of_one_user_and_others_beside_them() {
        let (open, limits) = (Open::default(), Limits::default());
        let one = flood(&open, 1000, limits);
        assert!(one.len() >= 10_000);
        let other = flood(&open, 1001, limits);
        assert!(other.len() >= 1000);
    }
}
