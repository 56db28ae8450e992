//! From a datagram to the peer it belongs to.

use std::{collections::HashMap, hash::RandomState, sync::Arc};

use boringtun::{
    noise::{HandshakeInit, Packet, Tunn, handshake::parse_handshake_anon},
    x25519::{PublicKey, StaticSecret},
};

use crate::{
    admission::{COOKIE_REPLY, Gate, Verdict},
    buffer::{Outbox, OuterPath},
    clock::Now,
    counters::Drop,
    ecn::Ecn,
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

    /// The low eight bits of a receiver index count the peer's handshakes.
    fn by_index(&self, receiver: u32) -> Result<Slot, Drop> {
        self.by_index.get(&(receiver >> 8)).copied().ok_or(Drop::UnknownIndex)
    }
}

/// This node's static key pair, with what follows from it.
pub struct Identity {
    pub(crate) private: StaticSecret,
    pub(crate) public: PublicKey,
}

impl Identity {
    /// For the owner of this private key.
    pub fn new(private: StaticSecret) -> Self {
        Self { public: PublicKey::from(&private), private }
    }

    /// The public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
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
        let _ = seed;
        Self { gate: Gate::new(&identity.public, hashers, now.instant), identity }
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
        match Tunn::parse_incoming_packet(datagram).map_err(|_| Drop::Malformed)? {
            Packet::PacketData(data) => demux.by_index(data.receiver_idx),
            Packet::PacketCookieReply(reply) => demux.by_index(reply.receiver_idx),
            Packet::HandshakeResponse(response) => {
                let slot = demux.by_index(response.receiver_idx)?;
                self.admit(datagram, path, now, out).map(|()| slot)
            }
            Packet::HandshakeInit(initiation) => {
                self.admit(datagram, path, now, out)?;
                self.initiator(demux, &initiation)
            }
        }
    }

    fn admit(&mut self, message: &[u8], path: OuterPath, now: Now, out: &mut Outbox) -> Result<(), Drop> {
        let mut reply = [0; COOKIE_REPLY];
        match self.gate.judge(message, path.remote.ip(), now.instant, &mut reply) {
            Verdict::Pass => Ok(()),
            Verdict::Refuse(reason) => Err(reason),
            Verdict::Challenge => {
                out.push(&reply, path, Ecn::NotEct);
                Err(Drop::CookieRequired)
            }
        }
    }

    /// An initiation names its sender, but only to the owner of the private key.
    fn initiator(&self, demux: &Demux, initiation: &HandshakeInit<'_>) -> Result<Slot, Drop> {
        let half = parse_handshake_anon(&self.identity.private, &self.identity.public, initiation)
            .map_err(|_| Drop::HandshakeFailed)?;
        demux.by_key.get(&half.peer_static_public).copied().ok_or(Drop::UnknownPeer)
    }
}

/// The receiver index of a data message; datagrams of one index belong to one session of one peer.
pub fn session_of(datagram: &[u8]) -> Option<u32> {
    match datagram {
        [4, 0, 0, 0, a, b, c, d, ..] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}
