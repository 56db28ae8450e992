//! The gate before the expensive part of a handshake.
//!
//! A handshake message costs us four scalar multiplications; forging one costs the sender a hash. So, in order:
//! 1. MAC1 must be right: the sender knows our public key.
//! 2. While the source address is within its budget, and all unproven handshakes together are within theirs, the message passes.
//! 3. Otherwise MAC2 must prove that the sender receives at that address; if it does not, we answer with a cookie (WireGuard paper,
//!    section 5.3) and forget about it. So a flood from one address puts only that address into cookie mode.
//! 4. A proven address has a budget of its own, which nobody else can spend.

use std::{
    hash::RandomState,
    net::IpAddr,
    time::{Duration, Instant},
};

use boringtun::{
    noise::{TunnResult, errors::WireGuardError, rate_limiter::RateLimiter},
    x25519::PublicKey,
};

use crate::{counters::Drop, limiter::Limiter};

/// Handshakes a second from unproven addresses, over all of them; a few percent of one core.
pub const UNPROVEN_PER_SECOND: u32 = 200;

/// Length of a cookie reply in bytes.
pub(crate) const COOKIE_REPLY: usize = 64;

/// Decides over handshake messages before anything else looks at them.
pub struct Gate {
    /// Checks MAC1 and never asks for more.
    mac1: RateLimiter,
    /// Checks MAC1 and MAC2, and answers with a cookie.
    mac2: RateLimiter,
    unproven: Limiter,
    proven: Limiter,
    window: Instant,
    in_window: u32,
}

/// What to do with a handshake message.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Process it.
    Pass,
    /// Send the cookie reply that was written.
    Challenge,
    /// Drop it.
    Refuse(Drop),
}

impl Gate {
    /// A gate for the owner of `public_key`.
    pub fn new(public_key: &PublicKey, hashers: [RandomState; 2], now: Instant) -> Self {
        let [unproven, proven] = hashers;
        Self {
            mac1: RateLimiter::new(public_key, u64::MAX),
            mac2: RateLimiter::new(public_key, 0),
            unproven: Limiter::new(unproven),
            proven: Limiter::new(proven),
            window: now,
            in_window: 0,
        }
    }

    /// Judges a handshake initiation or response; a cookie reply, if one is due, is written to `reply`.
    pub fn judge(
        &mut self,
        message: &[u8],
        source: IpAddr,
        now: Instant,
        reply: &mut [u8; COOKIE_REPLY],
    ) -> Verdict {
        if self.mac1.verify_packet(Some(source), message, reply).is_err() {
            return Verdict::Refuse(Drop::Malformed);
        }
        if self.unproven.allow(source, now) && self.window_allows(now) {
            return Verdict::Pass;
        }
        match self.mac2.verify_packet(Some(source), message, reply) {
            Ok(_) if self.proven.allow(source, now) => Verdict::Pass,
            Ok(_) => Verdict::Refuse(Drop::RateLimited),
            Err(TunnResult::WriteToNetwork(_)) => Verdict::Challenge,
            Err(TunnResult::Err(WireGuardError::UnderLoad)) => Verdict::Refuse(Drop::RateLimited),
            Err(_) => Verdict::Refuse(Drop::Malformed),
        }
    }

    fn window_allows(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.window) >= Duration::from_secs(1) {
            (self.window, self.in_window) = (now, 0);
        }
        self.in_window = self.in_window.saturating_add(1);
        self.in_window <= UNPROVEN_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use boringtun::{
        noise::Tunn,
        x25519::{PublicKey, StaticSecret},
    };

    use super::*;

    struct Rig {
        gate: Gate,
        good: Tunn,
        now: Instant,
    }

    impl Rig {
        fn new() -> Self {
            let us = PublicKey::from(&StaticSecret::from([1; 32]));
            let good = Tunn::new(StaticSecret::from([2; 32]), us, None, None, 7, None);
            let now = Instant::now();
            Self { gate: Gate::new(&us, [RandomState::new(), RandomState::new()], now), good, now }
        }

        fn initiation(&mut self) -> Vec<u8> {
            let mut buffer = [0; 148];
            match self.good.format_handshake_initiation(&mut buffer, true) {
                TunnResult::WriteToNetwork(bytes) => bytes.to_vec(),
                other => panic!("{other:?}"),
            }
        }

        fn judge(&mut self, message: &[u8], source: [u8; 4], reply: &mut [u8; COOKIE_REPLY]) -> Verdict {
            self.gate.judge(message, source.into(), self.now, reply)
        }
    }

    #[test]
    fn wrong_mac1_costs_no_budget() {
        let mut rig = Rig::new();
        let good = rig.initiation();
        let mut bad = good.clone();
        bad[120] ^= 1;
        for _ in 0..1000 {
            assert_eq!(rig.judge(&bad, [192, 0, 2, 1], &mut [0; 64]), Verdict::Refuse(Drop::Malformed));
        }
        assert_eq!(rig.judge(&good, [192, 0, 2, 1], &mut [0; 64]), Verdict::Pass);
    }

    #[test]
    fn flood_from_one_address_leaves_the_others_alone() {
        let mut rig = Rig::new();
        let message = rig.initiation();
        let passed =
            (0..5000).filter(|_| rig.judge(&message, [192, 0, 2, 1], &mut [0; 64]) == Verdict::Pass).count();
        assert_eq!(passed, 5);
        assert_eq!(rig.judge(&message, [192, 0, 2, 2], &mut [0; 64]), Verdict::Pass);
    }

    #[test]
    fn good_peer_gets_through_a_flood_from_everywhere() {
        let mut rig = Rig::new();
        let flood = rig.initiation();
        for n in 0..5000_u16 {
            let [a, b] = n.to_be_bytes();
            rig.judge(&flood, [10, 1, a, b], &mut [0; 64]);
        }
        let home = [192, 0, 2, 9];
        let mut reply = [0; 64];
        let message = rig.initiation();
        assert_eq!(rig.judge(&message, home, &mut reply), Verdict::Challenge);
        assert!(matches!(rig.good.decapsulate(None, &reply, &mut [0; 148]), TunnResult::Done));
        let proven = rig.initiation();
        assert_eq!(rig.judge(&proven, home, &mut [0; 64]), Verdict::Pass);
        // The cookie is worth nothing elsewhere, and everybody is welcome again a second later.
        assert_eq!(rig.judge(&proven, [192, 0, 2, 10], &mut [0; 64]), Verdict::Challenge);
        rig.now += Duration::from_secs(1);
        assert_eq!(rig.judge(&message, [192, 0, 2, 11], &mut [0; 64]), Verdict::Pass);
    }

    #[test]
    fn a_proven_address_has_a_budget_too() {
        let mut rig = Rig::new();
        let home = [192, 0, 2, 9];
        let mut reply = [0; 64];
        let message = rig.initiation();
        while rig.judge(&message, home, &mut reply) == Verdict::Pass {}
        rig.good.decapsulate(None, &reply, &mut [0; 148]);
        let proven = rig.initiation();
        let verdicts: Vec<Verdict> = (0..6).map(|_| rig.judge(&proven, home, &mut [0; 64])).collect();
        assert_eq!(verdicts.iter().filter(|v| **v == Verdict::Pass).count(), 5);
        assert_eq!(verdicts.last(), Some(&Verdict::Refuse(Drop::RateLimited)));
    }
}
