//! Path probing as a part of the peer: when the search hears of what, and how its messages travel under a session.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Instant,
};

use super::{lease::Lease, state::State, waiting::Waiting};
use crate::{
    buffer::Outbox,
    ecn::Ecn,
    path_mtu::{self, Kind, Message, PathMtu},
};

/// What a path message begins with, where a packet has its IP version.
const NIBBLE: u8 = 15;
/// Padding reaches up to this length: path messages get none.
const UNPADDED: usize = 0;

/// The search on the path to a peer, and the MTU that follows from it, for those who have no lock.
pub(super) struct Probing {
    search: PathMtu,
    mtu: Arc<AtomicU16>,
    /// The identifier of the message sent last.
    sent: Option<u32>,
}

impl Probing {
    /// `mtu` is the tunnel's MTU; from now on it is the peer's.
    pub(super) fn new(mtu: Arc<AtomicU16>) -> Self {
        Self { search: PathMtu::new(mtu.load(Ordering::Relaxed)), mtu, sent: None }
    }

    pub(super) fn search(&self) -> &PathMtu {
        &self.search
    }

    pub(super) fn update<T>(&mut self, change: impl FnOnce(&mut PathMtu) -> T) -> T {
        let result = change(&mut self.search);
        self.mtu.store(self.search.inner_mtu(), Ordering::Relaxed);
        result
    }

    /// The kernel refused the message sent last as too big.
    pub(super) fn refused(&mut self, now: Instant) {
        if let Some(id) = self.sent.take() {
            self.update(|search| search.on_refused(id, now));
        }
    }
}

/// A path message that came out of the tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    message: Message,
    /// Bytes of the payload that it was.
    length: usize,
}

/// True if this payload is no IP packet but a path message, sound or not.
pub(super) fn is_path_message(payload: &[u8]) -> bool {
    payload.first().is_some_and(|first| first >> 4 == NIBBLE)
}

/// Reads a path message.
pub(super) fn read(payload: &[u8]) -> Result<Arrived, path_mtu::Malformed> {
    Ok(Arrived { message: Message::decode(payload)?, length: payload.len() })
}

/// What there is to answer, and the right to.
#[derive(Default)]
pub(super) struct Answers {
    lease: Option<Lease>,
    messages: Vec<Message>,
}

impl Answers {
    pub(super) fn send(self, out: &mut Outbox) {
        if let Some(lease) = self.lease {
            send(lease, &self.messages, out);
        }
    }
}

fn send(mut lease: Lease, messages: &[Message], out: &mut Outbox) {
    for message in messages {
        lease.draft(message.length(), UNPADDED, Ecn::NotEct, out, |into| message.encode(into));
    }
    lease.finish_uncounted(out);
}

impl State {
    /// Takes what came as path messages.
    pub(super) fn hear(&mut self, arrived: &[Arrived], now: Instant) -> Answers {
        for Arrived { message, .. } in arrived.iter().filter(|arrived| arrived.message.kind == Kind::Ack) {
            self.probing.update(|search| search.on_ack(message.id, message.size, now));
        }
        let replies = arrived.iter().filter_map(|arrived| arrived.message.reply(arrived.length));
        let messages: Vec<Message> = replies.collect();
        if messages.is_empty() {
            return Answers::default();
        }
        Answers { lease: self.lease_alone(messages.len(), now), messages }
    }

    /// Sends what the search wants to send now. To the timers it is nothing: it may be too big to arrive, and who drops it does not
    /// answer.
    pub(super) fn probe(&mut self, now: Instant, probes: &mut Outbox) {
        match (self.keyring.sending(now).is_some(), self.path) {
            (false, _) => self.probing.update(|search| search.on_session_end(now)),
            (true, Some(path)) => self.probing.update(|search| search.on_path(now, path.remote)),
            (true, None) => return,
        }
        if self.probing.search().next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let random = self.random.draw();
        let id = random.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let Some(probe) = self.probing.update(|search| search.poll(now, id)) else { return };
        self.probing.sent = Some(probe.message.id);
        if let Some(lease) = self.lease_alone(1, now) {
            send(lease, &[probe.message], probes);
        }
    }

    /// The right to send `count` messages before the packets that wait.
    pub(super) fn lease_alone(&self, count: usize, now: Instant) -> Option<Lease> {
        let session = self.keyring.sending(now)?;
        Lease::take(session, self.path?, u64::try_from(count).ok()?, &mut Waiting::default())
    }

    /// Where the peer is now may be another path.
    pub(super) fn note_path(&mut self, now: Instant) {
        if let Some(path) = self.path {
            self.probing.update(|search| search.on_path(now, path.remote));
        }
    }
}
