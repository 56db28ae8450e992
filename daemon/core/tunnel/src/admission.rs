//! The gate before the expensive part of a handshake.
//!
//! A handshake message costs us five scalar multiplications; forging one costs the sender a hash. So, in order:
//! 1. MAC1 must be right: the sender knows our public key.
//! 2. While the source address is within its budget, and all unproven handshakes together are within theirs, the message passes.
//! 3. Otherwise MAC2 must prove that the sender receives at that address; if it does not, we answer with a cookie (WireGuard paper,
//!    section 5.3) and forget about it. So a flood from one address puts only that address into cookie mode.
//! 4. A proven address has a budget of its own, which nobody else can spend; all proven ones together have one, since a network of
//!    many addresses can prove them all.

use std::{
    hash::RandomState,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    counters::Drop,
    limiter::Limiter,
    noise::{
        Identity,
        cookie::{Baker, verify_mac1},
        message::COOKIE_REPLY,
    },
};

/// Handshakes a second from unproven addresses, over all of them; a few percent of one core.
pub const UNPROVEN_PER_SECOND: u32 = 200;
/// Handshakes a second from proven addresses, over all of them: a thousand peers that all come back at once need two seconds.
pub const PROVEN_PER_SECOND: u32 = 500;

/// Decides over handshake messages before anything else looks at them.
pub(crate) struct Gate {
    identity: Arc<Identity>,
    baker: Baker,
    unproven: Limiter,
    proven: Limiter,
    all_unproven: Window,
    all_proven: Window,
}

/// A budget for each second.
struct Window {
    since: Instant,
    used: u32,
    limit: u32,
}

impl Window {
    fn new(limit: u32, now: Instant) -> Self {
        Self { since: now, used: 0, limit }
    }

    fn allows(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.used) = (now, 0);
        }
        self.used = self.used.saturating_add(1);
        self.used <= self.limit
    }
}

/// What to do with a handshake message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Process it.
    Pass,
    /// Send this cookie reply.
    Challenge([u8; COOKIE_REPLY]),
    /// Drop it.
    Refuse(Drop),
}

impl Gate {
    /// A gate for the owner of an identity; cookies come from the seed.
    pub(crate) fn new(
        identity: Arc<Identity>,
        seed: [u8; 32],
        hashers: [RandomState; 2],
        now: Instant,
    ) -> Self {
        let [unproven, proven] = hashers;
        Self {
            identity,
            baker: Baker::new(seed, now),
            unproven: Limiter::new(unproven),
            proven: Limiter::new(proven),
            all_unproven: Window::new(UNPROVEN_PER_SECOND, now),
            all_proven: Window::new(PROVEN_PER_SECOND, now),
        }
    }

    /// Judges a handshake initiation or response.
    pub(crate) fn judge(&mut self, message: &[u8], source: SocketAddr, now: Instant) -> Verdict {
        if !verify_mac1(&self.identity.macs, message) {
            return Verdict::Refuse(Drop::Malformed);
        }
        if self.unproven.allow(source.ip(), now) && self.all_unproven.allows(now) {
            return Verdict::Pass;
        }
        if !self.baker.verify(message, source, now) {
            let reply = self.baker.reply(&self.identity.macs, message, source, now);
            return reply.map_or(Verdict::Refuse(Drop::Malformed), Verdict::Challenge);
        }
        let allowed = self.proven.allow(source.ip(), now) && self.all_proven.allows(now);
        if allowed { Verdict::Pass } else { Verdict::Refuse(Drop::RateLimited) }
    }
}

#[cfg(test)]
mod tests {
    use boringtun::{
        noise::{Tunn, TunnResult},
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
            let identity = Arc::new(Identity::new(crate::x25519::StaticSecret::from([1; 32])));
            let hashers = [RandomState::new(), RandomState::new()];
            Self { gate: Gate::new(identity, [3; 32], hashers, now), good, now }
        }

        fn initiation(&mut self) -> Vec<u8> {
            let mut buffer = [0; 148];
            match self.good.format_handshake_initiation(&mut buffer, true) {
                TunnResult::WriteToNetwork(bytes) => bytes.to_vec(),
                other => panic!("{other:?}"),
            }
        }

        fn judge(&mut self, message: &[u8], source: [u8; 4]) -> Verdict {
            self.gate.judge(message, (source, 51_820).into(), self.now)
        }

        /// The cookie reply that a message is answered with, taken by its sender.
        fn challenge(&mut self, message: &[u8], source: [u8; 4]) {
            let Verdict::Challenge(reply) = self.judge(message, source) else { panic!("no challenge") };
            assert!(matches!(self.good.decapsulate(None, &reply, &mut [0; 148]), TunnResult::Done));
        }
    }

    #[test]
    fn wrong_mac1_costs_no_budget() {
        let mut rig = Rig::new();
        let good = rig.initiation();
        let mut bad = good.clone();
        bad[120] ^= 1;
        for _ in 0..1000 {
            assert_eq!(rig.judge(&bad, [192, 0, 2, 1]), Verdict::Refuse(Drop::Malformed));
        }
        assert_eq!(rig.judge(&good, [192, 0, 2, 1]), Verdict::Pass);
    }

    #[test]
    fn flood_from_one_address_leaves_the_others_alone() {
        let mut rig = Rig::new();
        let message = rig.initiation();
        let passed = (0..5000).filter(|_| rig.judge(&message, [192, 0, 2, 1]) == Verdict::Pass).count();
        assert_eq!(passed, 5);
        assert_eq!(rig.judge(&message, [192, 0, 2, 2]), Verdict::Pass);
    }

    #[test]
    fn good_peer_gets_through_a_flood_from_everywhere() {
        let mut rig = Rig::new();
        let flood = rig.initiation();
        for n in 0..5000_u16 {
            let [a, b] = n.to_be_bytes();
            rig.judge(&flood, [10, 1, a, b]);
        }
        let home = [192, 0, 2, 9];
        let message = rig.initiation();
        rig.challenge(&message, home);
        let proven = rig.initiation();
        assert_eq!(rig.judge(&proven, home), Verdict::Pass);
        // The cookie is worth nothing elsewhere, and everybody is welcome again a second later.
        assert!(matches!(rig.judge(&proven, [192, 0, 2, 10]), Verdict::Challenge(_)));
        assert!(matches!(rig.gate.judge(&proven, (home, 51_821).into(), rig.now), Verdict::Challenge(_)));
        rig.now += Duration::from_secs(1);
        assert_eq!(rig.judge(&message, [192, 0, 2, 11]), Verdict::Pass);
    }

    #[test]
    fn a_proven_address_has_a_budget_too() {
        let mut rig = Rig::new();
        let home = [192, 0, 2, 9];
        let message = rig.initiation();
        while rig.judge(&message, home) == Verdict::Pass {}
        rig.challenge(&message, home);
        let proven = rig.initiation();
        let verdicts: Vec<Verdict> = (0..6).map(|_| rig.judge(&proven, home)).collect();
        assert_eq!(verdicts.iter().filter(|v| **v == Verdict::Pass).count(), 5);
        assert_eq!(verdicts.last(), Some(&Verdict::Refuse(Drop::RateLimited)));
    }

    #[test]
    fn all_proven_addresses_share_a_budget() {
        let now = Instant::now();
        let mut window = Window::new(PROVEN_PER_SECOND, now);
        let allowed = |window: &mut Window, at| (0..2000).filter(|_| window.allows(at)).count();
        assert_eq!(allowed(&mut window, now), 500);
        assert_eq!(allowed(&mut window, now + Duration::from_millis(999)), 0);
        assert_eq!(allowed(&mut window, now + Duration::from_secs(1)), 500);
    }
}
