//! How fast identities are issued: a bucket for all, and one for each requester. Pure: the time is an argument.

use std::{collections::HashMap, time::Instant};

use super::requester::Account;
use crate::identity::config::Rate;

/// Most requesters with a bucket of their own; the others share one.
const MAX_ACCOUNTS: usize = 4096;

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// That of the requester.
    Requester,
    /// That of the site CA.
    Total,
}

/// A token bucket as one moment: when the next token would be due if none had been saved (ATM Forum's GCRA).
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(Option<Instant>);

impl Bucket {
    /// When it is full again.
    fn after(self, rate: Rate, now: Instant) -> Option<Instant> {
        let next = self.0.map_or(now, |due| due.max(now)) + rate.interval();
        (next <= now + rate.burst()).then_some(next)
    }

    fn is_full(self, now: Instant) -> bool {
        self.0.is_none_or(|due| due <= now)
    }
}

/// The buckets.
#[derive(Debug)]
pub(super) struct Limits {
    total: Option<Rate>,
    each: Option<Rate>,
    all: Bucket,
    accounts: HashMap<Account, Bucket>,
    /// Of those who came while there was no room.
    others: Bucket,
}

impl Limits {
    pub(super) fn new(total: Option<Rate>, each: Option<Rate>) -> Self {
        Self { total, each, all: Bucket::default(), accounts: HashMap::new(), others: Bucket::default() }
    }

    /// Takes one token from each of the two buckets, or none.
    pub(super) fn take(&mut self, account: Account, now: Instant) -> Result<(), Limited> {
        let next = match self.total {
            Some(rate) => Some(self.all.after(rate, now).ok_or(Limited::Total)?),
            None => None,
        };
        if let Some(rate) = self.each {
            let bucket = self.bucket(account, now);
            *bucket = Bucket(Some(bucket.after(rate, now).ok_or(Limited::Requester)?));
        }
        self.all = Bucket(next);
        Ok(())
    }

    fn bucket(&mut self, account: Account, now: Instant) -> &mut Bucket {
        if self.accounts.len() >= MAX_ACCOUNTS && !self.accounts.contains_key(&account) {
            // A full bucket is as good as none.
            self.accounts.retain(|_, bucket| !bucket.is_full(now));
            if self.accounts.len() >= MAX_ACCOUNTS {
                return &mut self.others;
            }
        }
        self.accounts.entry(account).or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn passed(limits: &mut Limits, uid: u32, tries: u32, now: Instant) -> u32 {
        (0..tries).map(|_| u32::from(limits.take(Account::Uid(uid), now).is_ok())).sum()
    }

    #[test]
    fn a_burst_then_the_rate() {
        let (mut limits, now) = (Limits::new(None, Some(Rate::per_second(10))), Instant::now());
        assert_eq!(passed(&mut limits, 1, 500, now), 200);
        assert_eq!(limits.take(Account::Uid(1), now), Err(Limited::Requester));
        assert_eq!(passed(&mut limits, 1, 500, now + Duration::from_secs(1)), 10);
        assert_eq!(passed(&mut limits, 2, 500, now), 200, "another requester has its own");
        assert_eq!(
            passed(&mut limits, 1, 500, now + Duration::from_secs(3600)),
            200,
            "no more is saved than a burst"
        );
    }

    #[test]
    fn all_together_are_limited_too_and_a_refusal_costs_nothing() {
        let mut limits = Limits::new(Some(Rate::per_second(5)), Some(Rate::per_second(1)));
        let now = Instant::now();
        assert_eq!(passed(&mut limits, 1, 1000, now), 20);
        assert_eq!((2..100).map(|uid| passed(&mut limits, uid, 20, now)).sum::<u32>(), 80);
        assert_eq!(limits.take(Account::Uid(200), now), Err(Limited::Total));
    }

    #[test]
    fn without_limits_nothing_is_refused() {
        let mut limits = Limits::new(None, None);
        assert_eq!(passed(&mut limits, 1, 100_000, Instant::now()), 100_000);
        assert!(limits.accounts.is_empty());
    }

    #[test]
    fn the_table_is_bounded() {
        let (mut limits, now) = (Limits::new(None, Some(Rate::per_second(1))), Instant::now());
        (0..10_000).for_each(|uid| {
            let _ = limits.take(Account::Uid(uid), now);
        });
        assert_eq!(limits.accounts.len(), MAX_ACCOUNTS);
        assert_eq!(
            limits.take(Account::Uid(20_000), now),
            Err(Limited::Requester),
            "the shared one is empty"
        );
        assert_eq!(limits.take(Account::Uid(20_000), now + Duration::from_secs(60)), Ok(()));
        assert_eq!(limits.accounts.len(), 1, "room was made of full ones");
    }
}
