//! Handshakes: our initiations, and what comes of those of the peer (WireGuard paper, sections 5.4 and 6).

use std::{sync::Arc, time::Duration};

use super::{lease::Lease, state::State};
use crate::{
    buffer::{Outbox, OuterPath},
    clock::Now,
    counters::Drop,
    ecn::Ecn,
    noise::{
        handshake::{Call, Initiator},
        message::{COOKIE_REPLY, INITIATION, RESPONSE, sender, word},
        tai64n::Timestamp,
    },
    session::Session,
};

/// At most 50 initiations a second are accepted from a peer (WireGuard paper, section 5.1).
const CALL_INTERVAL: Duration = Duration::from_millis(20);

impl State {
    /// Begins a handshake, unless one is under way or the last one was just now.
    pub(super) fn initiate(&mut self, now: Now, out: &mut Outbox) {
        let renewal = self.keyring.sending(now.instant).is_some();
        let too_soon = renewal && self.timers.just_initiated(now.instant);
        if !self.timers.in_series() && !too_soon {
            self.send_initiation(now, out);
        }
    }

    pub(super) fn send_initiation(&mut self, now: Now, out: &mut Outbox) {
        let Some(path) = self.path else { return };
        let (index, ephemeral) = (self.fresh_index(), self.random.draw());
        let timestamp = self.stamper.stamp(now.unix);
        let mut message = [0; INITIATION];
        self.pending =
            Initiator::initiate(&self.identity, &self.remote, ephemeral, index, &timestamp, &mut message);
        // The series runs on even if there is nothing to send, so that what waits is given up in time.
        let jitter = self.random.draw();
        self.timers.initiated(now.instant, [jitter[0], jitter[1]]);
        if self.pending.is_some() {
            self.jar.stamp(&self.remote.macs, &mut message, now.instant);
            out.push(&message, path, Ecn::NotEct);
        }
        self.liveness.attempted(now.instant);
    }

    /// An index that no live session has: random, and to strangers without anything in common with the peer's other ones.
    pub(super) fn fresh_index(&mut self) -> u32 {
        loop {
            let drawn = self.random.draw();
            let mut candidates =
                drawn.iter().map(|low| self.identity.indices.hide(self.index << 8 | u32::from(*low)));
            if let Some(index) = candidates.find(|index| !self.is_in_use(*index)) {
                return index;
            }
        }
    }

    fn is_in_use(&self, index: u32) -> bool {
        self.keyring.has(index) || self.pending.as_ref().is_some_and(|pending| pending.index() == index)
    }

    /// Takes an initiation; the response goes to `to`, if there is a place to answer to.
    pub(super) fn answer(
        &mut self,
        message: &[u8; INITIATION],
        to: Option<OuterPath>,
        now: Now,
        out: &mut Outbox,
    ) -> Result<(), Drop> {
        let mut call = Call::read(&self.identity, message).ok_or(Drop::HandshakeFailed)?;
        if *call.caller() != self.remote.public {
            return Err(Drop::HandshakeFailed);
        }
        let timestamp = call.authenticate(&self.remote, message).ok_or(Drop::HandshakeFailed)?;
        self.accept(timestamp, now)?;
        match to {
            Some(to) => self.respond(call, message, to, now, out).ok_or(Drop::HandshakeFailed),
            None => Ok(()),
        }
    }

    /// Each initiation must be later than all before, so that an old one cannot be replayed, and not too soon after the last.
    fn accept(&mut self, timestamp: Timestamp, now: Now) -> Result<(), Drop> {
        if let Some((last, at)) = self.called {
            if timestamp <= last {
                return Err(Drop::HandshakeFailed);
            }
            if now.instant.saturating_duration_since(at) < CALL_INTERVAL {
                return Err(Drop::RateLimited);
            }
        }
        self.called = Some((timestamp, now.instant));
        Ok(())
    }

    fn respond(
        &mut self,
        call: Call,
        message: &[u8; INITIATION],
        to: OuterPath,
        now: Now,
        out: &mut Outbox,
    ) -> Option<()> {
        let indices = [self.fresh_index(), sender(message)?];
        let mut response = [0; RESPONSE];
        let keys = call.respond(&self.remote, self.random.draw(), indices, &mut response)?;
        self.jar.stamp(&self.remote.macs, &mut response, now.instant);
        out.push(&response, to, Ecn::NotEct);
        self.keyring.offer(Arc::new(Session::new(&keys, false, now.instant)));
        self.timers.sent(now.instant);
        Some(())
    }

    /// Takes a response.
    pub(super) fn conclude(&mut self, message: &[u8; RESPONSE], now: Now) -> Result<(), Drop> {
        let ours = |pending: &&Initiator| word(message, 8) == Some(pending.index());
        let pending = self.pending.as_ref().filter(ours).ok_or(Drop::UnknownIndex)?;
        let keys = pending.finish(&self.identity, &self.remote, message).ok_or(Drop::HandshakeFailed)?;
        self.keyring.begin(Arc::new(Session::new(&keys, true, now.instant)));
        self.completed(now.instant);
        Ok(())
    }

    /// The responder learns from the first message that its response arrived: a packet that waited, or a keepalive.
    pub(super) fn confirm(&mut self, mtu: usize, now: Now, out: &mut Outbox) -> Option<Lease> {
        if self.waiting.len() == 0 {
            self.keep_alive(mtu, now, out);
            return None;
        }
        self.timers.data_sent(now.instant);
        self.lease(0, now.instant)
    }

    /// Takes a cookie; it goes into the next initiation.
    pub(super) fn take_cookie(&mut self, message: &[u8; COOKIE_REPLY], now: Now) -> Result<(), Drop> {
        self.jar.take(&self.remote.macs, message, now.instant).then_some(()).ok_or(Drop::HandshakeFailed)
    }
}
