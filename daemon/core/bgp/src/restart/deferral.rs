//! The restarting speaker (RFC 4724 section 4.1): what the kernel forwards is left alone until the peers have told all they know.
//!
//! ```text
//!                 every peer that counts has sent End-of-RIB, or time
//!   Restarting ────────────────────────────────────────────────────► Settled
//! ```
//! A peer counts unless it has restarted itself (it waits for us, and we would wait for it), or does not do graceful restart (it owes
//! no End-of-RIB). One that is not up counts until the time is over. A peer that comes by a template counts from when it is here.

use std::{collections::BTreeMap, time::Instant};

use crate::{
    Families, Family, PeerId,
    fsm::{Negotiated, RestartOffer},
};

/// Our restart, from the start of the process until it is over. Every `handle_*` and [`Deferral::remove`] answers true when, with it,
/// the routes may be selected and installed, once.
#[derive(Clone, Debug)]
pub struct Deferral {
    /// `None`: settled.
    until: Option<Instant>,
    /// Families that the kernel still forwards by the routes of the last process.
    forwarding: Families,
    /// Peers that count, and the families of which something is to come; all, for one that is not up.
    pending: BTreeMap<PeerId, Families>,
    /// Nobody knows who is to come: only time says that all have.
    strangers: bool,
}

impl Deferral {
    /// Of a process that starts. `forwarding`: what was found in the kernel and adopted; with nothing there is nothing to wait for.
    /// `peers`: those that are to have a session. `until`: when waiting is over.
    pub fn new(forwarding: Families, peers: impl IntoIterator<Item = PeerId>, until: Instant) -> Self {
        let pending: BTreeMap<_, _> = peers.into_iter().map(|peer| (peer, Families::ALL)).collect();
        let until = (!pending.is_empty()).then_some(until);
        Self { until, forwarding, pending, strangers: false }
    }

    /// The same of a node that knows none of its peers before they come.
    pub fn of_strangers(forwarding: Families, until: Instant) -> Self {
        Self { until: Some(until), forwarding, pending: BTreeMap::new(), strangers: true }
    }

    /// What a node without graceful restart has.
    pub fn settled() -> Self {
        Self { until: None, forwarding: Families::NONE, pending: BTreeMap::new(), strangers: false }
    }

    /// True while nothing may be taken out of the kernel, and nothing announced that could be worse than what comes.
    pub fn defers(&self) -> bool {
        self.until.is_some() && !self.forwarding.is_empty()
    }

    /// What our OPENs say; `time`: how long peers should keep our routes, in seconds.
    pub fn offer(&self, time: u16) -> RestartOffer {
        RestartOffer { time, restarting: self.until.is_some(), forwarding: self.forwarding, preserving: true }
    }

    /// Peers that are waited for.
    pub fn waiting_for(&self) -> impl Iterator<Item = PeerId> {
        self.pending.keys().copied()
    }

    /// A peer came that was not known before, perhaps one that the routes in the kernel are from.
    pub fn expect(&mut self, peer: PeerId) {
        if self.until.is_some() {
            self.pending.insert(peer, Families::ALL);
        }
    }

    /// A peer's session stands.
    pub fn handle_up(&mut self, peer: PeerId, negotiated: &Negotiated) -> bool {
        let counts = negotiated.restart.is_some_and(|restart| !restart.restarting);
        if let Some(pending) = self.pending.get_mut(&peer) {
            *pending = if counts { negotiated.families } else { Families::NONE };
        }
        self.check()
    }

    /// It is gone again, and not done.
    pub fn handle_down(&mut self, peer: PeerId) {
        if let Some(pending) = self.pending.get_mut(&peer) {
            *pending = Families::ALL;
        }
    }

    /// A peer has announced all it has of a family.
    pub fn handle_end_of_rib(&mut self, peer: PeerId, family: Family) -> bool {
        if let Some(pending) = self.pending.get_mut(&peer) {
            pending.remove(family);
        }
        self.check()
    }

    /// A peer is not to have a session any more.
    pub fn remove(&mut self, peer: PeerId) -> bool {
        self.pending.remove(&peer);
        self.check()
    }

    /// Ends the waiting, if it is time.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.until.is_some_and(|until| until <= now) {
            self.pending.clear();
            self.strangers = false;
        }
        self.check()
    }

    /// When to call [`Deferral::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.until
    }

    fn check(&mut self) -> bool {
        self.pending.retain(|_, families| !families.is_empty());
        let deferred = self.defers();
        if self.pending.is_empty() && !self.strangers {
            self.until = None;
        }
        deferred && !self.defers()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{fsm::PeerRestart, restart::agreement};

    const V4: Family = Family::Ipv4Unicast;
    const V6: Family = Family::Ipv6Unicast;
    const A: PeerId = PeerId(1);
    const B: PeerId = PeerId(2);
    const C: PeerId = PeerId(3);

    fn limit(now: Instant) -> Instant {
        now + Duration::from_secs(120)
    }

    fn plain() -> Negotiated {
        agreement(Families::ALL, true)
    }

    fn restarting() -> Negotiated {
        let restart = plain().restart.map(|restart| PeerRestart { restarting: true, ..restart });
        Negotiated { restart, ..plain() }
    }

    #[test]
    fn waits_for_every_family_of_every_peer() {
        let mut deferral = Deferral::new(Families::ALL, [A, B], limit(Instant::now()));
        assert!(!deferral.handle_up(A, &plain()) && !deferral.handle_end_of_rib(A, V4));
        assert!(!deferral.handle_end_of_rib(A, V6), "B has not come yet");
        let negotiated = Negotiated { families: Families::from_iter([V4]), ..plain() };
        assert!(!deferral.handle_up(B, &negotiated) && deferral.defers());
        assert_eq!(deferral.waiting_for().collect::<Vec<_>>(), [B]);
        assert!(deferral.handle_end_of_rib(B, V4));
        assert!(!deferral.defers() && deferral.poll_timeout().is_none());
        assert!(!deferral.handle_end_of_rib(B, V4), "told once");
    }

    /// GoBGP #1632: three nodes that restart together must not wait for each other.
    #[test]
    fn peers_that_restart_too_do_not_count() {
        let mut deferral = Deferral::new(Families::ALL, [A, B], limit(Instant::now()));
        assert!(!deferral.handle_up(A, &restarting()));
        assert!(deferral.handle_up(B, &restarting()));
    }

    #[test]
    fn peers_without_graceful_restart_owe_nothing() {
        let mut deferral = Deferral::new(Families::ALL, [A], limit(Instant::now()));
        assert!(deferral.handle_up(A, &Negotiated { restart: None, ..plain() }));
    }

    #[test]
    fn peers_that_never_come_are_waited_for_until_the_time_is_over() {
        let now = Instant::now();
        let mut deferral = Deferral::new(Families::ALL, [A, B, C], limit(now));
        deferral.handle_up(A, &restarting());
        assert!(!deferral.handle_timeout(limit(now) - Duration::from_secs(1)));
        assert!(!deferral.remove(C));
        assert!(deferral.handle_timeout(limit(now)));
        assert!(!deferral.offer(120).restarting);
    }

    #[test]
    fn a_peer_that_goes_in_the_middle_starts_over() {
        let mut deferral = Deferral::new(Families::ALL, [A], limit(Instant::now()));
        deferral.handle_up(A, &plain());
        deferral.handle_end_of_rib(A, V4);
        deferral.handle_down(A);
        deferral.handle_up(A, &plain());
        assert!(!deferral.handle_end_of_rib(A, V6), "the first session's end of IPv4 does not count");
        assert!(deferral.handle_end_of_rib(A, V4));
    }

    #[test]
    fn who_forwards_nothing_waits_for_nothing_but_has_restarted_all_the_same() {
        let now = Instant::now();
        let mut deferral = Deferral::new(Families::NONE, [A], limit(now));
        assert!(!deferral.defers());
        let offer = deferral.offer(90);
        assert_eq!((offer.time, offer.restarting, offer.forwarding), (90, true, Families::NONE));
        assert!(!deferral.handle_timeout(limit(now)), "there was nothing to release");
        assert!(!deferral.offer(90).restarting);
        assert!(!Deferral::new(Families::ALL, [], limit(now)).defers());
        assert!(!Deferral::settled().offer(90).restarting);
    }
}
