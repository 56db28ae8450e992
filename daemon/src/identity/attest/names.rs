//! Names of users and groups, from wherever this machine keeps them (nsswitch.conf). May ask the network: not for threads that others
//! wait for. What was found is remembered for a while: thousands of workloads run as a few users.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use nix::unistd::{Gid, Group, Uid, User};

/// How long a name is remembered.
const FRESH: Duration = Duration::from_secs(60);
/// Most names of a kind that are remembered.
const MOST: usize = 4096;

/// Finds names.
#[derive(Default)]
pub(super) struct Names {
    users: Memory,
    groups: Memory,
}

impl Names {
    /// `None`: nobody has this number, or it can't be found out.
    pub(super) fn user(&self, uid: u32) -> Option<String> {
        self.users.get(uid, || User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name))
    }

    /// `None`: no group has this number, or it can't be found out.
    pub(super) fn group(&self, gid: u32) -> Option<String> {
        self.groups.get(gid, || Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name))
    }
}

#[derive(Default)]
struct Memory(Mutex<HashMap<u32, (Instant, String)>>);

impl Memory {
    /// The lock is not held while somebody is asked.
    fn get(&self, number: u32, ask: impl FnOnce() -> Option<String>) -> Option<String> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, name)) = lock().get(&number)
            && at.elapsed() < FRESH
        {
            return Some(name.clone());
        }
        // That there is none is not remembered: it may be made at any time.
        let name = ask()?;
        let mut known = lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(number, (Instant::now(), name.clone()));
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_most_numbers_have_none() {
        let names = Names::default();
        assert_eq!(names.user(0).as_deref(), Some("root"));
        assert_eq!(names.group(0).as_deref(), Some("root"));
        assert_eq!((names.user(4_200_000_001), names.group(4_200_000_001)), (None, None));
    }

    #[test]
    fn a_name_is_asked_for_once_and_a_missing_one_again() {
        let memory = Memory::default();
        assert_eq!(memory.get(1, || None), None);
        assert_eq!(memory.get(1, || Some("a".into())).as_deref(), Some("a"));
        assert_eq!(memory.get(1, || unreachable!()).as_deref(), Some("a"));
        let old = Instant::now().checked_sub(FRESH).unwrap();
        memory.0.lock().unwrap().insert(1, (old, "old".into()));
        assert_eq!(memory.get(1, || Some("new".into())).as_deref(), Some("new"));
        for number in 0..u32::try_from(MOST).unwrap() + 10 {
            memory.get(number, || Some("x".into()));
        }
        assert!(memory.0.lock().unwrap().len() <= MOST);
    }
}
