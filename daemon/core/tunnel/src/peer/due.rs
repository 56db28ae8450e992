//! What is due, and when something will be.

use std::time::Instant;

use super::{state::State, timers::Attempt};
use crate::{buffer::Outbox, clock::Now, counters::Drop, ecn::Ecn};

impl State {
    /// Does what is due.
    pub(super) fn tick(
        &mut self,
        mtu: usize,
        now: Now,
        out: &mut Outbox,
        probes: &mut Outbox,
    ) -> Option<Instant> {
        self.keyring.expire(now.instant);
        self.attempt(now, out);
        if self.timers.take_unanswered(now.instant) || self.timers.take_rest(now.instant) {
            self.forget_source();
            self.initiate(now, out);
        }
        // Each of the two puts off the other.
        let owed = self.timers.take_owed(now.instant);
        if owed || (self.path.is_some() && self.timers.take_silence(now.instant)) {
            self.keep_alive(mtu, now, out);
        }
        let has_session = self.keyring.sending(now.instant).is_some();
        self.liveness.tick(now.instant, has_session);
        self.probe(now.instant, probes);
        self.reported = self.deadline(now.instant);
        self.reported
    }

    fn attempt(&mut self, now: Now, out: &mut Outbox) {
        match self.timers.attempt(now.instant) {
            Attempt::Wait => {}
            Attempt::Repeat => {
                self.forget_source();
                self.send_initiation(now, out);
            }
            Attempt::GiveUp => {
                self.pending = None;
                self.timers.gave_up(now.instant);
                let dropped = u64::try_from(self.waiting.take().len()).unwrap_or(u64::MAX);
                self.counters.drops.add(Drop::NoSession, dropped);
            }
        }
    }

    /// Lets the kernel choose our address anew: nothing comes back to the one that we use.
    fn forget_source(&mut self) {
        self.path = self.path.map(|path| path.remote.into());
    }

    /// Sends a message of no bytes; without a session, a handshake begins.
    pub(super) fn keep_alive(&mut self, mtu: usize, now: Now, out: &mut Outbox) {
        match self.lease(1, now.instant) {
            Some(mut lease) => {
                lease.draft_staged(mtu, out);
                lease.draft(0, mtu, Ecn::NotEct, out, |_| {});
                lease.finish(&self.counters, out);
                self.timers.sent(now.instant);
                self.freshen(now, out);
            }
            None => self.initiate(now, out),
        }
    }

    /// When something is due, if nothing happens before.
    fn deadline(&self, now: Instant) -> Option<Instant> {
        let has_session = self.keyring.sending(now).is_some();
        // Without a path nothing can be sent, so no timer runs.
        let timers = self.path.and_then(|_| self.timers.deadline(now));
        let probing = self.path.and_then(|_| self.probing.search().next_deadline());
        [timers, probing, self.keyring.expiry(), self.liveness.deadline(has_session)]
            .into_iter()
            .flatten()
            .min()
    }

    /// True if something is due earlier than our caller knows; from now on it does.
    pub(super) fn is_earlier(&mut self, now: Instant) -> bool {
        let next = self.deadline(now);
        let earlier = next.is_some_and(|next| self.reported.is_none_or(|reported| next < reported));
        if earlier {
            self.reported = next;
        }
        earlier
    }
}
