//! How large an outer packet may be on the way to a peer (packetization layer path MTU discovery in the spirit of RFC 8899).
//!
//! Two Isthmus nodes try it out with padded messages inside the tunnel; no word of a router in between is believed. The search starts
//! with the size that a full inner packet needs, so that on most paths one probe is all. Until then, and for ever with a peer of
//! another kind, the path is taken to carry a full packet.
//!
//! How to drive it: [`PathMtu::on_session`] for every session that begins, [`PathMtu::on_path`] when the peer has moved,
//! [`PathMtu::on_traffic`] for every batch, [`PathMtu::on_doubt`] when the kernel refused one, [`Message::decode`] for every payload that
//! begins with [`MAGIC`] ([`Message::reply`] says what to answer, [`PathMtu::on_ack`] takes the answers), and [`PathMtu::poll`] at
//! [`PathMtu::next_deadline`]. A probe must leave as it is: not padded, not fragmented (DF), not as part of a larger send. To the
//! session's timers the messages are no data, neither sent nor received: an implementation that drops them answers with no keepalive,
//! and two idle nodes would keep each other awake.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

pub use message::{Kind, LENGTH, MAGIC, Malformed, Message};
use path::Path;
pub use path::{Probe, State};
use search::{Failure, Search};

mod message;
mod path;
mod search;

#[cfg(test)]
mod tests;

/// The smallest outer packet that is ever searched for, in bytes: every IPv6 link carries it (RFC 8200 section 5).
pub const FLOOR: u16 = 1280;
/// Tries of one size before it counts as too large (RFC 8899 `MAX_PROBES`).
const TRIES: u8 = 3;
/// From one try to the next.
const TRY_INTERVAL: Duration = Duration::from_secs(1);
/// From one look whether the size still passes to the next, while there is traffic.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(10);
/// From the end of a search to the next look whether more passes (RFC 8899 `PMTU_RAISE_TIMER`).
const RAISE_INTERVAL: Duration = Duration::from_secs(600);

/// The path to one peer. Holds one search and at most one message that waits for its answer.
#[derive(Debug)]
pub struct PathMtu {
    /// The tunnel's MTU.
    ceiling_inner: u16,
    path: Option<Path>,
    phase: Phase,
    pending: Option<Pending>,
    /// When the next message of a phase without `pending` is due.
    due: Option<Instant>,
    timers: Option<Timers>,
    /// Packets went to the peer since the last look.
    traffic: bool,
    /// The last HELLO that began something: a peer that moves with every packet does not get one each time.
    greeted: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is no session.
    Idle,
    /// Is the far end Isthmus, and there?
    Hello,
    Search,
    Found,
    /// It did not answer.
    Foreign,
}

/// A message that was sent and not answered.
#[derive(Clone, Copy, Debug)]
struct Pending {
    probe: Probe,
    tries: u8,
    deadline: Instant,
}

/// When to look again after a search that ended.
#[derive(Clone, Copy, Debug)]
struct Timers {
    confirm: Instant,
    raise: Instant,
}

impl PathMtu {
    /// For a tunnel of this MTU (bytes of an inner packet).
    pub fn new(ceiling_inner: u16) -> Self {
        let phase = Phase::Idle;
        Self {
            ceiling_inner,
            path: None,
            phase,
            pending: None,
            due: None,
            timers: None,
            traffic: false,
            greeted: None,
        }
    }

    /// A session with the peer has begun. What was found on this path stays; the far end has to introduce itself again.
    pub fn on_session(&mut self, now: Instant, remote: SocketAddr) {
        if self.path.as_ref().is_none_or(|path| path.remote != remote) {
            self.path = Some(Path::new(remote, self.ceiling_inner));
            self.timers = None;
        }
        self.enter(Phase::Hello, now);
    }

    /// The peer is at this address now: another path has another size. Nothing happens without a session.
    pub fn on_path(&mut self, now: Instant, remote: SocketAddr) {
        let moved = self.path.as_ref().is_some_and(|path| path.remote != remote);
        if moved && self.phase != Phase::Idle {
            self.on_session(now, remote);
            let pause = self.greeted.map_or(now, |at| at + TRY_INTERVAL);
            self.due = Some(pause.max(now));
        }
    }

    /// The session has ended without a successor: silence until the next one.
    pub fn on_session_end(&mut self, now: Instant) {
        self.enter(Phase::Idle, now);
    }

    /// Packets went to the peer. True if [`PathMtu::next_deadline`] is there now and was not before.
    pub fn on_traffic(&mut self) -> bool {
        if std::mem::replace(&mut self.traffic, true) {
            return false;
        }
        self.pending.is_none() && self.phase == Phase::Found && self.next_look().is_some()
    }

    /// An ACK has arrived. One that does not fit the message that waits for it changes nothing.
    pub fn on_ack(&mut self, id: u32, size: u16, now: Instant) {
        let fits = |pending: &Pending| (pending.probe.message.id, pending.probe.message.size) == (id, size);
        let Some(pending) = self.pending.take_if(|pending| fits(pending)) else { return };
        match self.phase {
            Phase::Hello => self.resume(now),
            Phase::Search => {
                self.search(|search| search.passed(pending.probe.outer_size));
                self.resume(now);
            }
            Phase::Found => self.confirmed(now),
            Phase::Idle | Phase::Foreign => {}
        }
    }

    /// The kernel refused the message with this identifier as too big (EMSGSIZE): nothing is gained by trying again.
    pub fn on_refused(&mut self, id: u32, now: Instant) {
        if let Some(pending) = self.pending.take_if(|pending| pending.probe.message.id == id) {
            self.fail(pending.probe, Failure::Refused, now);
        }
    }

    /// Our kernel refused packets to the peer as too big: a look at the size is due now. That it is the link and no forged message
    /// which made the kernel do so, the look will tell.
    pub fn on_doubt(&mut self, now: Instant) {
        if let (Phase::Found, Some(timers)) = (self.phase, &mut self.timers) {
            timers.confirm = timers.confirm.min(now);
            self.traffic = true;
        }
    }

    /// Nothing may have to wait for longer than it should, which happens when the clock goes back.
    pub fn rebase(&mut self, now: Instant) {
        let earliest = |at: &mut Instant, wait| *at = (*at).min(now + wait);
        self.greeted = self.greeted.map(|at| at.min(now));
        self.due = self.due.map(|due| due.min(now));
        self.pending.iter_mut().for_each(|pending| earliest(&mut pending.deadline, TRY_INTERVAL));
        if let Some(timers) = &mut self.timers {
            earliest(&mut timers.confirm, CONFIRM_INTERVAL);
            earliest(&mut timers.raise, RAISE_INTERVAL);
        }
    }

    /// When to call [`PathMtu::poll`]; `None`: nothing will happen by itself. An idle peer has no deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        match (self.pending, self.phase) {
            (Some(pending), _) => Some(pending.deadline),
            (None, Phase::Hello | Phase::Search) => self.due,
            (None, Phase::Found) => self.next_look().filter(|_| self.traffic).map(|(at, _)| at),
            (None, Phase::Idle | Phase::Foreign) => None,
        }
    }

    /// Does what is due, and says what to send. `random` becomes the identifier of a new message.
    pub fn poll(&mut self, now: Instant, random: u32) -> Option<Probe> {
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return None;
        }
        if let Some(again) = self.pending.as_mut().filter(|pending| pending.tries < TRIES) {
            again.tries += 1;
            again.deadline = now + TRY_INTERVAL;
            return Some(again.probe);
        }
        if let Some(lost) = self.pending.take() {
            self.fail(lost.probe, Failure::Lost, now);
        }
        let probe = self.next_probe(now, random)?;
        self.pending = Some(Pending { probe, tries: 1, deadline: now + TRY_INTERVAL });
        Some(probe)
    }

    /// The largest inner packet for this peer, in bytes, if its padding makes none longer; never above the tunnel's MTU.
    pub fn inner_mtu(&self) -> u16 {
        let known = self.path.as_ref().and_then(|path| path.inner_mtu(self.ceiling_inner));
        known.unwrap_or(self.ceiling_inner)
    }

    /// The largest outer packet that passes, in bytes, once a search has ended.
    pub fn found(&self) -> Option<u16> {
        let path = self.path.as_ref()?;
        self.timers.is_some().then(|| path.search.low())
    }

    /// What is known, and why.
    pub fn state(&self) -> State {
        match (self.phase, &self.path) {
            (Phase::Foreign, _) => State::Foreign,
            (Phase::Search, _) => State::Searching,
            (_, Some(path)) if self.timers.is_some() => path.state(),
            _ => State::Unknown,
        }
    }

    fn enter(&mut self, phase: Phase, now: Instant) {
        (self.phase, self.due, self.pending) = (phase, Some(now), None);
    }

    fn search<T>(&mut self, change: impl FnOnce(&mut Search) -> T) -> Option<T> {
        self.path.as_mut().map(|path| change(&mut path.search))
    }

    /// The far end has just answered: go on where the search is.
    fn resume(&mut self, now: Instant) {
        if self.search(|search| search.next()).flatten().is_some() {
            return self.enter(Phase::Search, now);
        }
        if self.phase == Phase::Search || self.timers.is_none() {
            self.timers = Some(Timers { confirm: now + CONFIRM_INTERVAL, raise: now + RAISE_INTERVAL });
        }
        self.enter(Phase::Found, now);
    }

    fn confirmed(&mut self, now: Instant) {
        if let Some(timers) = &mut self.timers {
            timers.confirm = now + CONFIRM_INTERVAL;
        }
    }

    fn fail(&mut self, probe: Probe, failure: Failure, now: Instant) {
        match self.phase {
            Phase::Hello => {
                // Nobody was there to answer larger ones either.
                self.search(Search::reopen);
                self.enter(Phase::Foreign, now);
            }
            Phase::Search => {
                self.search(|search| search.failed(probe.outer_size, failure));
                self.after_failure(now);
            }
            Phase::Found => {
                // A black hole, or the peer is gone: a HELLO tells which.
                self.search(Search::fall);
                self.timers = None;
                self.enter(Phase::Hello, now);
            }
            Phase::Idle | Phase::Foreign => {}
        }
    }

    /// A search in which nothing passed says something about the path only if the far end is still there.
    fn after_failure(&mut self, now: Instant) {
        let ended_at_floor = |search: &mut Search| search.next().is_none() && search.is_at_floor();
        if self.search(ended_at_floor) == Some(true) {
            self.timers = None;
            self.enter(Phase::Hello, now);
        } else {
            self.resume(now);
        }
    }

    fn next_probe(&mut self, now: Instant, random: u32) -> Option<Probe> {
        if self.phase == Phase::Found {
            let (_, look) = self.next_look().filter(|(at, _)| self.traffic && *at <= now)?;
            self.traffic = false;
            if look == Look::Raise {
                self.search(Search::raise);
                self.enter(Phase::Search, now);
            }
        }
        let path = self.path.as_ref()?;
        match self.phase {
            Phase::Hello => {
                self.greeted = Some(now);
                Some(path.hello(random))
            }
            Phase::Search => path.search.next().map(|size| path.probe(random, size)),
            Phase::Found => Some(path.probe(random, path.search.low())),
            Phase::Idle | Phase::Foreign => None,
        }
    }

    /// Below the floor there is nothing to fall to, so nothing is confirmed there; above the ceiling nothing is looked for.
    fn next_look(&self) -> Option<(Instant, Look)> {
        let (timers, search) = (self.timers?, &self.path.as_ref()?.search);
        let confirm = (search.low() > FLOOR).then_some((timers.confirm, Look::Confirm));
        let raise = (!search.is_at_ceiling()).then_some((timers.raise, Look::Raise));
        confirm.into_iter().chain(raise).min_by_key(|(at, _)| *at)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Confirm,
    Raise,
}
