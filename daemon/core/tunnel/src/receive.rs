//! From a datagram to the peer it belongs to.

use std::{collections::HashMap, hash::RandomState, sync::Arc};

use crate::{
    admission::{Gate, Verdict},
    buffer::{Outbox, OuterPath},
    clock::Now,
    counters::Drop,
    ecn::Ecn,
    noise::{
        Identity,
        handshake::Call,
        message::{INITIATION, Message},
    },
    table::Slot,
};

/// Who has which receiver index and which key; part of a snapshot.
#[derive(Debug, Default)]
pub struct Demux {
    by_index: HashMap<u32, Slot>,
    by_key: HashMap<[u8; 32], Slot>,
}

impl Demux {
    /// From (public key, index as in [`crate::peer::Settings`]) of each peer, in slot order.
    pub fn new(peers: impl IntoIterator<Item = ([u8; 32], u32)>) -> Self {
        let mut demux = Self::default();
        for (slot, (key, index)) in (0..).zip(peers) {
            demux.by_index.insert(index, slot);
            demux.by_key.insert(key, slot);
        }
        demux
    }

    /// The low eight bits of an index, as it is inside, tell the peer's sessions apart.
    fn by_index(&self, receiver: u32) -> Result<Slot, Drop> {
        self.by_index.get(&(receiver >> 8)).copied().ok_or(Drop::UnknownIndex)
    }
}

/// The receiving side's own state: the key that initiations are read with, and the gate before it.
pub struct Receiver {
    identity: Arc<Identity>,
    gate: Gate,
}

impl Receiver {
    /// For this identity. `seed` is secret and random, never used twice: cookies come from it. The hashers keep the budgets of source
    /// addresses apart: take random ones.
    pub fn new(identity: Arc<Identity>, seed: [u8; 32], hashers: [RandomState; 2], now: Now) -> Self {
        Self { gate: Gate::new(Arc::clone(&identity), seed, hashers, now.instant), identity }
    }

    /// Finds the peer for a datagram. Data costs one look-up. Handshakes pass the gate first; if it asks for a proof of the source
    /// address the request for it goes to `out`.
    ///
    /// # Errors
    /// The reason why the datagram is to be dropped.
    pub fn classify(
        &mut self,
        demux: &Demux,
        datagram: &[u8],
        path: OuterPath,
        now: Now,
        out: &mut Outbox,
    ) -> Result<Slot, Drop> {
        let message = Message::parse(datagram).ok_or(Drop::Malformed)?;
        match (message, message.receiver()) {
            (Message::Initiation(initiation), _) => {
                self.admit(datagram, path, now, out)?;
                self.initiator(demux, initiation)
            }
            (Message::Response(_), Some(receiver)) => {
                let slot = demux.by_index(self.identity.indices.reveal(receiver))?;
                self.admit(datagram, path, now, out).map(|()| slot)
            }
            (_, Some(receiver)) => demux.by_index(self.identity.indices.reveal(receiver)),
            (_, None) => Err(Drop::Malformed),
        }
    }

    fn admit(&mut self, message: &[u8], path: OuterPath, now: Now, out: &mut Outbox) -> Result<(), Drop> {
        match self.gate.judge(message, path.remote, now.instant) {
            Verdict::Pass => Ok(()),
            Verdict::Refuse(reason) => Err(reason),
            Verdict::Challenge(reply) => {
                out.push(&reply, path, Ecn::NotEct);
                Err(Drop::CookieRequired)
            }
        }
    }

    /// An initiation names its sender, but only to the owner of the private key.
    fn initiator(&self, demux: &Demux, initiation: &[u8; INITIATION]) -> Result<Slot, Drop> {
        let call = Call::read(&self.identity, initiation).ok_or(Drop::HandshakeFailed)?;
        demux.by_key.get(call.caller().as_bytes()).copied().ok_or(Drop::UnknownPeer)
    }
}

/// The receiver index of a data message; datagrams of one index belong to one session of one peer.
pub fn session_of(datagram: &[u8]) -> Option<u32> {
    match datagram {
        [4, 0, 0, 0, a, b, c, d, ..] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}
