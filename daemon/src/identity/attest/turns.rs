//! Turns at work that may take long: reading what lies in callers' hands, asking name services.
//!
//! Whoever makes his own wait for ever, with a file system of his own for example, takes no more than his share from the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most pieces of work at a time.
const ALL: usize = 16;
/// Most of one user.
const ONE: usize = 2;
/// How many users are remembered before those without work are forgotten.
const USERS: usize = 64;

/// Gives turns.
pub(super) struct Turns {
    all: Arc<Semaphore>,
    users: Mutex<HashMap<u32, Arc<Semaphore>>>,
}

/// Held while the work lasts.
pub(super) struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(ALL)), users: Mutex::default() }
    }
}

impl Turns {
    /// Waits for a turn of this user.
    pub(super) async fn take(&self, uid: u32) -> Turn {
        const OPEN: &str = "nobody closes these semaphores";
        // His own first: who waits for that must not hold what others need.
        let own = self.of_user(uid).acquire_owned().await.expect(OPEN);
        let all = self.all.clone().acquire_owned().await.expect(OPEN);
        Turn { _own: own, _all: all }
    }

    fn of_user(&self, uid: u32) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() >= USERS {
            // Those who wait or work hold a clone.
            users.retain(|_, own| Arc::strong_count(own) > 1);
        }
        users.entry(uid).or_insert_with(|| Arc::new(Semaphore::new(ONE))).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    /// A turn that is there now.
    fn now(turns: &Turns, uid: u32) -> Option<Turn> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(turns.take(uid)).poll(&mut context) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_hangs_takes_only_his_share() {
        let turns = Turns::default();
        let mut hanging = vec![now(&turns, 1).unwrap(), now(&turns, 1).unwrap()];
        assert!(now(&turns, 1).is_none());
        assert!(now(&turns, 2).is_some());
        hanging.pop();
        assert!(now(&turns, 1).is_some());
        let many: Vec<_> = (10..).map_while(|uid| now(&turns, uid)).collect();
        assert_eq!(many.len(), ALL - 1);
        drop(many);
        assert!(now(&turns, 2).is_some());
    }

    #[test]
    fn users_without_work_are_forgotten() {
        let turns = Turns::default();
        let kept = now(&turns, 7).unwrap();
        for uid in 100..100 + 10 * u32::try_from(USERS).unwrap() {
            drop(now(&turns, uid));
        }
        assert!(turns.users.lock().unwrap().len() <= USERS);
        let second = now(&turns, 7).unwrap();
        assert!(now(&turns, 7).is_none(), "his share is still the same");
        drop((kept, second));
    }
}
