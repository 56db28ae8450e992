//! A budget of handshakes for each source address, in memory of fixed size.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    time::{Duration, Instant},
};

/// Handshakes a source may send at once.
pub const BURST: u32 = 5;
/// Time until one more is allowed: 20 a second.
pub const INTERVAL: Duration = Duration::from_millis(50);

/// Sets of the table; a source can only be in the set that its keyed hash names.
const SETS: usize = 2048;
/// Sources in a set.
const WAYS: usize = 4;

/// Token buckets, one per IPv4 address or IPv6 /64.
///
/// The table never grows: a new source takes the place of the one in its set that has been quiet the longest. Under a flood from
/// many sources a budget may thus be forgotten early; that flood is the matter of the limit over all sources
/// (see [`crate::admission`]).
pub struct Limiter {
    sets: Box<[[Option<Bucket>; WAYS]]>,
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Bucket {
    source: u64,
    /// When the bucket will be full again. In the past: it is full.
    full_at: Instant,
}

impl Limiter {
    /// All buckets full. The hasher decides who shares a set: take a random one.
    pub fn new(hasher: RandomState) -> Self {
        Self { sets: vec![[None; WAYS]; SETS].into_boxed_slice(), hasher }
    }

    /// Takes one handshake from the budget of `source`; false if there is none left.
    pub fn allow(&mut self, source: IpAddr, now: Instant) -> bool {
        let source = key(source);
        let bucket = self.bucket(source, now);
        // "Full in t" means t / INTERVAL handshakes are spent.
        let full_at = bucket.full_at.max(now) + INTERVAL;
        if full_at.duration_since(now) > INTERVAL * BURST {
            return false;
        }
        bucket.full_at = full_at;
        true
    }

    fn bucket(&mut self, source: u64, now: Instant) -> &mut Bucket {
        let sets = u64::try_from(SETS).expect("a small constant");
        let set = usize::try_from(self.hasher.hash_one(source) % sets).expect("below SETS");
        let set = &mut self.sets[set];
        let found = set.iter().position(|slot| slot.is_some_and(|bucket| bucket.source == source));
        let quietest =
            || (0..WAYS).min_by_key(|way| set[*way].map(|bucket| bucket.full_at)).expect("WAYS is not 0");
        let way = found.unwrap_or_else(quietest);
        let slot = &mut set[way];
        if found.is_none() {
            *slot = None;
        }
        slot.get_or_insert(Bucket { source, full_at: now })
    }
}

/// An IPv6 host owns its /64, so that is what has a budget. The families do not collide: an IPv4 address is below 2^32, and an
/// IPv6 prefix that small lies in ::/32, where nobody can send from.
fn key(source: IpAddr) -> u64 {
    match source {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => {
            u64::try_from(u128::from(address) >> 64).expect("64 bits are left after the shift")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(limiter: &mut Limiter, source: &str, at: Instant, tries: u32) -> u32 {
        let source = source.parse().unwrap();
        (0..tries).map(|_| u32::from(limiter.allow(source, at))).sum()
    }

    #[test]
    fn burst_then_rate() {
        let (mut limiter, start) = (Limiter::new(RandomState::new()), Instant::now());
        assert_eq!(allowed(&mut limiter, "192.0.2.1", start, 100), 5);
        assert_eq!(allowed(&mut limiter, "192.0.2.1", start + INTERVAL, 100), 1);
        let second =
            (2..=21).map(|n| allowed(&mut limiter, "192.0.2.1", start + INTERVAL * n, 100)).sum::<u32>();
        assert_eq!(second, 20);
        assert_eq!(allowed(&mut limiter, "192.0.2.1", start + Duration::from_secs(60), 100), 5);
    }

    #[test]
    fn sources_do_not_share_a_budget_but_a_slash_64_does() {
        let (mut limiter, now) = (Limiter::new(RandomState::new()), Instant::now());
        assert_eq!(allowed(&mut limiter, "192.0.2.1", now, 9), 5);
        assert_eq!(allowed(&mut limiter, "192.0.2.2", now, 9), 5);
        assert_eq!(allowed(&mut limiter, "2001:db8::1", now, 9), 5);
        assert_eq!(allowed(&mut limiter, "2001:db8::2", now, 9), 0);
        assert_eq!(allowed(&mut limiter, "2001:db8:0:1::1", now, 9), 5);
    }

    #[test]
    fn time_that_stands_still_or_goes_back_gives_nothing() {
        let (mut limiter, now) =
            (Limiter::new(RandomState::new()), Instant::now() + Duration::from_secs(3600));
        assert_eq!(allowed(&mut limiter, "192.0.2.1", now, 9), 5);
        assert_eq!(allowed(&mut limiter, "192.0.2.1", now - Duration::from_secs(1800), 9), 0);
    }

    #[test]
    fn a_million_sources_fit_in_the_same_memory() {
        let (mut limiter, now) = (Limiter::new(RandomState::new()), Instant::now());
        for n in 0..1_000_000_u32 {
            assert!(limiter.allow(IpAddr::from(n.to_be_bytes()), now));
        }
        assert_eq!(limiter.sets.len() * WAYS, 8192);
    }
}
