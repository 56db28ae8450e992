//! What one source address may ask for in a while: a bucket for each, in a table that no outsider can grow. Pure.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

/// Most sources that are told apart; those beyond share one bucket.
const MAX_SOURCES: usize = 4096;

/// Buckets that hold `burst` and refill by `per_second`.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: f64,
    burst: f64,
    buckets: HashMap<IpAddr, Bucket>,
    shared: Bucket,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Rate {
    /// Full buckets at `now`.
    pub(super) fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let (per_second, burst) = (f64::from(per_second), f64::from(burst));
        Self { per_second, burst, buckets: HashMap::new(), shared: Bucket { left: burst, at: now } }
    }

    /// Takes one from the bucket of `source`; false: it is empty. An IPv6 host has a whole /64 to come from, so that is its name.
    pub(super) fn allow(&mut self, source: IpAddr, now: Instant) -> bool {
        let key = network(source);
        if self.buckets.len() >= MAX_SOURCES && !self.buckets.contains_key(&key) {
            self.forget_the_full(now);
        }
        let (rate, burst) = (self.per_second, self.burst);
        if self.buckets.len() >= MAX_SOURCES && !self.buckets.contains_key(&key) {
            return self.shared.take(rate, burst, now);
        }
        self.buckets.entry(key).or_insert(Bucket { left: burst, at: now }).take(rate, burst, now)
    }

    /// A full bucket says nothing that a new one does not.
    fn forget_the_full(&mut self, now: Instant) {
        let (rate, burst) = (self.per_second, self.burst);
        self.buckets.retain(|_, bucket| bucket.level(rate, burst, now) < burst);
    }
}

impl Bucket {
    fn level(&self, per_second: f64, burst: f64, now: Instant) -> f64 {
        let passed: Duration = now.saturating_duration_since(self.at);
        (self.left + passed.as_secs_f64() * per_second).min(burst)
    }

    fn take(&mut self, per_second: f64, burst: f64, now: Instant) -> bool {
        let level = self.level(per_second, burst, now);
        let enough = level >= 1.0;
        *self = Self { left: if enough { level - 1.0 } else { level }, at: now };
        enough
    }
}

fn network(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => source,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(n: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from_bits(n))
    }

    #[test]
    fn each_source_has_its_burst_and_its_rate() {
        let now = Instant::now();
        let mut rate = Rate::new(2, 3, now);
        let allowed = |rate: &mut Rate, source, now| (0..10).filter(|_| rate.allow(source, now)).count();
        assert_eq!(allowed(&mut rate, v4(1), now), 3);
        assert_eq!(allowed(&mut rate, v4(2), now), 3);
        assert_eq!(allowed(&mut rate, v4(1), now + Duration::from_secs(1)), 2);
        assert_eq!(allowed(&mut rate, v4(1), now + Duration::from_secs(100)), 3);
        // Time that stands still or goes back gives nothing.
        assert_eq!(allowed(&mut rate, v4(1), now), 0);
    }

    #[test]
    fn a_network_is_one_source_and_a_mapped_address_is_itself() {
        let now = Instant::now();
        let mut rate = Rate::new(1, 1, now);
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(rate.allow(parse("2001:db8::1"), now));
        assert!(!rate.allow(parse("2001:db8::ffff:2"), now));
        assert!(rate.allow(parse("2001:db8:0:1::1"), now));
        assert!(rate.allow(parse("192.0.2.1"), now));
        assert!(!rate.allow(parse("::ffff:192.0.2.1"), now));
        assert!(rate.allow(parse("::ffff:192.0.2.2"), now));
    }

    #[test]
    fn a_flood_of_sources_grows_nothing_and_those_known_keep_theirs() {
        let now = Instant::now();
        let mut rate = Rate::new(1, 2, now);
        let passed = (0..10_000).filter(|n| rate.allow(v4(*n), now)).count();
        assert_eq!(rate.buckets.len(), MAX_SOURCES);
        assert_eq!(passed, MAX_SOURCES + 2, "those beyond shared one burst");
        assert!(rate.allow(v4(1), now), "it was known before");
        let later = now + Duration::from_secs(2);
        assert!(rate.allow(v4(200_000), later));
        assert_eq!(rate.buckets.len(), 1, "the full ones were forgotten");
    }
}
