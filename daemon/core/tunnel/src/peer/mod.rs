//! One peer: its session, its outer address, and whether it answers.

mod liveness;
mod waiting;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use boringtun::{
    noise::{Packet, Tunn, TunnResult, errors::WireGuardError, rate_limiter::RateLimiter},
    x25519::PublicKey,
};

use crate::{
    OVERHEAD,
    buffer::{Datagram, Opened, Outbox, OuterPath, Plaintext},
    clock::Now,
    counters::{Counters, Drop, Tally},
    ecn::Ecn,
    receive::Identity,
};
use liveness::Liveness;
pub use liveness::{SESSION_LIFETIME, State, UNANSWERED};
use waiting::Waiting;

/// Length of the longest handshake message; the protocol engine wants room for it even when it writes something shorter.
const HANDSHAKE: usize = 148;
/// Type byte of a handshake initiation.
const INITIATION: u8 = 1;
/// REKEY_AFTER_TIME of the WireGuard paper, section 6.1.
const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
/// REJECT_AFTER_MESSAGES of the WireGuard paper, section 6.1: a counter at or above this is refused unseen.
const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);

/// What a peer is made from.
pub struct Settings {
    /// The peer's static key.
    pub public_key: PublicKey,
    /// Mixed into the handshake.
    pub preshared_key: Option<[u8; 32]>,
    /// Receiver indices are `index << 8 | n`: 24 random bits, different for every peer.
    pub index: u32,
    /// Inner MTU in bytes: padding never makes a packet longer.
    pub mtu: u16,
    /// Send something at least this often.
    pub keepalive: Option<Duration>,
}

/// A peer and the state of its session.
///
/// - [`Peer::seal`] turns inner packets into datagrams, [`Peer::open`] datagrams into inner packets; both take batches and neither
///   shows its caller what protocol the peer speaks;
/// - [`Peer::tick`] does what is due: handshakes, keepalives, giving up. It says when it wants to be called again; `seal` and `open` say
///   when that became earlier;
/// - [`Peer::status`] says how it is.
///
/// What there is to send is appended to an [`Outbox`]. Threads share a peer: it locks inside, and never while it ciphers.
pub struct Peer {
    inner: Mutex<Inner>,
    mtu: AtomicU16,
}

struct Inner {
    tunn: Tunn,
    mtu: usize,
    keepalive: Option<Duration>,
    endpoint: Option<OuterPath>,
    /// Where the peer was heard last, if that is no place to answer to.
    refused: Option<SocketAddr>,
    waiting: Waiting,
    liveness: Liveness,
    counters: Arc<Counters>,
    /// The last datagram either way that counts as a sign of life.
    traffic: Option<Instant>,
    handshake: Option<Instant>,
    /// The last handshake was ours, so renewing it is ours too.
    initiator: bool,
    /// We answered an initiation, and no packet has confirmed that session yet.
    unconfirmed: bool,
}

/// The state of a peer for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Where datagrams go.
    pub endpoint: Option<SocketAddr>,
    /// Whether the peer answers.
    pub state: State,
    /// Why it is in that state.
    pub reason: String,
    /// The last completed handshake.
    pub handshake: Option<Instant>,
}

/// What an authentic message was.
enum Heard {
    Initiation,
    Response,
    Data,
    /// Tells nothing about where the peer is: it is authenticated by what we sent, and anybody who saw that can forge it.
    Cookie,
}

/// Remembers the last judgement: the datagrams of a batch mostly come from one place.
struct Judge<F> {
    captures: F,
    last: Option<(IpAddr, bool)>,
}

impl<F: Fn(IpAddr) -> bool> Judge<F> {
    fn captures(&mut self, source: SocketAddr) -> bool {
        match self.last {
            Some((address, captured)) if address == source.ip() => captured,
            _ => self.last.insert((source.ip(), (self.captures)(source.ip()))).1,
        }
    }
}

impl Peer {
    /// A peer we have not talked to yet; `live` is the bit that the routing table reads. `seed` is secret and random, never used twice:
    /// ephemeral keys, indices and jitter come from it.
    pub fn new(
        identity: &Arc<Identity>,
        settings: Settings,
        live: Arc<AtomicBool>,
        counters: Arc<Counters>,
        seed: [u8; 32],
    ) -> Self {
        let _ = seed;
        // Admission has already judged what arrives here; the engine's own limiter only repeats the MAC1 check.
        let limiter = Arc::new(RateLimiter::new(&identity.public, u64::MAX));
        let key = settings.public_key;
        let tunn = Tunn::new(
            identity.private.clone(),
            key,
            settings.preshared_key,
            None,
            settings.index,
            Some(limiter),
        );
        let inner = Inner {
            tunn,
            mtu: settings.mtu.into(),
            keepalive: settings.keepalive,
            endpoint: None,
            refused: None,
            waiting: Waiting::default(),
            liveness: Liveness::new(live),
            counters,
            traffic: None,
            handshake: None,
            initiator: false,
            unconfirmed: false,
        };
        Self { inner: Mutex::new(inner), mtu: AtomicU16::new(settings.mtu) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while it was held lost a batch at worst; keys and counters only ever move forward.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where datagrams go from now on, until an authentic packet comes from elsewhere. The kernel chooses our own address, also if this
    /// is the endpoint already.
    pub fn set_endpoint(&self, endpoint: SocketAddr) {
        let mut inner = self.lock();
        (inner.endpoint, inner.refused) = (Some(endpoint.into()), None);
    }

    /// Where datagrams go.
    pub fn endpoint(&self) -> Option<SocketAddr> {
        self.path().map(|path| path.remote)
    }

    /// The outer path that datagrams take.
    pub fn path(&self) -> Option<OuterPath> {
        self.lock().endpoint
    }

    /// Changes the keepalive interval. Call [`Peer::tick`] afterwards.
    pub fn set_keepalive(&self, keepalive: Option<Duration>) {
        self.lock().keepalive = keepalive;
    }

    /// Changes the inner MTU towards this peer in bytes: padding never makes a packet longer.
    pub fn set_mtu(&self, mtu: u16) {
        self.mtu.store(mtu, Ordering::Relaxed);
        self.lock().mtu = mtu.into();
    }

    /// The inner MTU towards this peer in bytes.
    pub fn mtu(&self) -> u16 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// How the peer is.
    pub fn status(&self, now: Instant) -> Status {
        let inner = self.lock();
        Status {
            endpoint: inner.endpoint.map(|path| path.remote),
            state: inner.liveness.state(),
            reason: inner.reason(now),
            handshake: inner.handshake,
        }
    }

    /// Encrypts inner packets. Without a session they wait for one (the oldest give way) and a handshake starts.
    ///
    /// True if [`Peer::tick`] must be called earlier than it said last.
    pub fn seal<P: Plaintext>(
        &self,
        batch: impl ExactSizeIterator<Item = P>,
        now: Now,
        out: &mut Outbox,
    ) -> bool {
        self.lock().seal(batch, now.instant, out);
        false
    }

    /// Decrypts datagrams that belong to this peer in place; inner packets go to `inbox`, answers to `out`. The peer's endpoint becomes
    /// the path of the last authentic one, unless `captures` says that what we send there would enter the tunnel: then the endpoint
    /// stays, and answers go to it. `captures` is asked only about other addresses than the endpoint's.
    ///
    /// True if [`Peer::tick`] must be called earlier than it said last.
    pub fn open<'a>(
        &self,
        batch: impl Iterator<Item = Datagram<'a>>,
        captures: impl Fn(IpAddr) -> bool,
        now: Now,
        out: &mut Outbox,
        inbox: &mut Vec<Opened<'a>>,
    ) -> bool {
        self.lock().open(batch, captures, now.instant, out, inbox);
        false
    }

    /// Does what is due now; returns when it wants to be called next. `None`: not before [`Peer::seal`] or [`Peer::open`] says so.
    pub fn tick(&self, now: Now, out: &mut Outbox) -> Option<Instant> {
        self.lock().tick(now.instant, out);
        now.instant.checked_add(Duration::from_millis(200))
    }
}

/// The packet with zeros up to a multiple of 16 bytes, but not beyond the MTU (WireGuard paper, section 5.4.6), so that its length tells
/// less about it.
fn padded(plain: &impl Plaintext, mtu: usize) -> Vec<u8> {
    let length = plain.len();
    let mut bytes = vec![0; length.next_multiple_of(16).min(mtu).max(length)];
    plain.write(&mut bytes[..length]);
    bytes
}

impl Inner {
    fn seal<P: Plaintext>(
        &mut self,
        batch: impl ExactSizeIterator<Item = P>,
        now: Instant,
        out: &mut Outbox,
    ) {
        let Some(endpoint) = self.endpoint else {
            self.counters.drops.add(Drop::NoEndpoint, u64::try_from(batch.len()).unwrap_or(u64::MAX));
            return;
        };
        if !self.has_session() {
            self.stage(batch);
            self.initiate(now, out);
            return;
        }
        let mut tally = Tally::default();
        for plain in batch {
            if self.encapsulate(&padded(&plain, self.mtu), plain.ecn(), endpoint, out) {
                tally.add(plain.len());
            }
        }
        self.sent(tally, now);
    }

    fn open<'a>(
        &mut self,
        batch: impl Iterator<Item = Datagram<'a>>,
        captures: impl Fn(IpAddr) -> bool,
        now: Instant,
        out: &mut Outbox,
        inbox: &mut Vec<Opened<'a>>,
    ) {
        let (mut tally, mut heard_any) = (Tally::default(), false);
        let mut judge = Judge { captures, last: None };
        for datagram in batch {
            let path = datagram.path;
            match self.open_one(datagram, &mut judge, &mut tally, out, inbox) {
                Ok(Heard::Cookie) => {}
                Ok(heard) => {
                    heard_any = true;
                    self.follow(path, &mut judge);
                    self.note(&heard, now);
                }
                Err(reason) => self.counters.drops.add(reason, 1),
            }
        }
        tally.flush(&self.counters.received_packets, &self.counters.received_bytes);
        if let (true, Some(endpoint)) = (heard_any, self.endpoint) {
            self.traffic = Some(now);
            self.flush(endpoint, now, out);
        }
    }

    /// Where to answer to a message from `source`.
    fn answer_to(&self, source: OuterPath, judge: &mut Judge<impl Fn(IpAddr) -> bool>) -> Option<OuterPath> {
        let known = self.endpoint.is_some_and(|path| path.remote == source.remote);
        if !known && judge.captures(source.remote) { self.endpoint } else { Some(source) }
    }

    /// Takes the source of an authentic message as the endpoint, or says no.
    fn follow(&mut self, source: OuterPath, judge: &mut Judge<impl Fn(IpAddr) -> bool>) {
        let answer_to = self.answer_to(source, judge);
        if answer_to == Some(source) {
            (self.endpoint, self.refused) = (answer_to, None);
        } else {
            self.refused = Some(source.remote);
            self.counters.drops.add(Drop::EndpointRefused, 1);
        }
    }

    fn reason(&self, now: Instant) -> String {
        let reason = self.liveness.reason(now, self.endpoint.map(|path| path.remote));
        match self.refused {
            Some(source) => {
                format!(
                    "{reason}; it calls from {source}, which our own routes lead into the tunnel: not followed"
                )
            }
            None => reason,
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Outbox) {
        self.run_timers(now, out);
        self.keep_alive(now, out);
        let has_session = self.has_session();
        self.liveness.tick(now, has_session);
    }

    fn has_session(&self) -> bool {
        self.tunn.time_since_last_handshake().is_some()
    }

    fn stage<P: Plaintext>(&mut self, batch: impl Iterator<Item = P>) {
        for plain in batch {
            let dropped = self.waiting.push(&padded(&plain, self.mtu), plain.len());
            self.counters.drops.add(Drop::NoSession, dropped);
        }
    }

    /// Starts a handshake unless one is under way.
    fn initiate(&mut self, now: Instant, out: &mut Outbox) {
        let Some(endpoint) = self.endpoint else { return };
        let before = out.len();
        out.write(HANDSHAKE, endpoint, Ecn::NotEct, |slot| {
            network_length(self.tunn.format_handshake_initiation(slot, false))
        });
        if out.len() > before {
            self.liveness.attempted(now);
        }
    }

    fn encapsulate(&mut self, padded: &[u8], ecn: Ecn, to: OuterPath, out: &mut Outbox) -> bool {
        let before = out.len();
        let room = (padded.len() + OVERHEAD).max(HANDSHAKE);
        out.write(room, to, ecn, |slot| network_length(self.tunn.encapsulate(padded, slot)));
        let written = out.len() > before;
        if !written {
            self.counters.drops.add(Drop::NoSession, 1);
        }
        written
    }

    fn sent(&mut self, tally: Tally, now: Instant) {
        tally.flush(&self.counters.sent_packets, &self.counters.sent_bytes);
        self.traffic = Some(now);
    }

    /// Sends what waited for a session, in order.
    fn flush(&mut self, to: OuterPath, now: Instant, out: &mut Outbox) {
        // The engine's own queue holds nothing but keepalives that found no session.
        let mut more = true;
        while more {
            let before = out.len();
            out.write(HANDSHAKE, to, Ecn::NotEct, |slot| {
                network_length(self.tunn.decapsulate(None, &[], slot))
            });
            more = out.len() > before;
        }
        if !self.has_session() {
            return;
        }
        let mut tally = Tally::default();
        while let Some((padded, length)) = self.waiting.pop() {
            if self.encapsulate(&padded, Ecn::NotEct, to, out) {
                tally.add(length);
            }
        }
        self.sent(tally, now);
    }

    fn open_one<'a>(
        &mut self,
        datagram: Datagram<'a>,
        judge: &mut Judge<impl Fn(IpAddr) -> bool>,
        tally: &mut Tally,
        out: &mut Outbox,
        inbox: &mut Vec<Opened<'a>>,
    ) -> Result<Heard, Drop> {
        let heard = match Tunn::parse_incoming_packet(datagram.bytes).map_err(|_| Drop::Malformed)? {
            Packet::PacketData(_) => {
                return self.open_data(datagram, tally, inbox).map(|()| Heard::Data);
            }
            Packet::HandshakeInit(_) => Heard::Initiation,
            Packet::HandshakeResponse(_) => Heard::Response,
            Packet::PacketCookieReply(_) => Heard::Cookie,
        };
        let to = self.answer_to(datagram.path, judge);
        self.shake(datagram.bytes, to, out).map(|()| heard)
    }

    fn open_data<'a>(
        &mut self,
        datagram: Datagram<'a>,
        tally: &mut Tally,
        inbox: &mut Vec<Opened<'a>>,
    ) -> Result<(), Drop> {
        let Datagram { bytes, ecn, .. } = datagram;
        let counter = bytes.get(8..16).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        if counter >= REJECT_AFTER_MESSAGES {
            return Err(Drop::Replayed);
        }
        let mut slot = vec![0; bytes.len().max(HANDSHAKE)];
        match self.tunn.decapsulate(None, bytes, &mut slot) {
            TunnResult::WriteToTunnelV4(packet, _) | TunnResult::WriteToTunnelV6(packet, _) => {
                tally.add(packet.len());
                let bytes = &mut bytes[..packet.len()];
                bytes.copy_from_slice(packet);
                inbox.push(Opened { bytes, ecn });
                Ok(())
            }
            TunnResult::Err(error) => Err(drop_reason(&error, Drop::DecryptFailed)),
            // A keepalive.
            TunnResult::Done | TunnResult::WriteToNetwork(_) => Ok(()),
        }
    }

    /// Takes a handshake message; the answer, if there is one, goes to `to`.
    fn shake(&mut self, datagram: &[u8], to: Option<OuterPath>, out: &mut Outbox) -> Result<(), Drop> {
        let mut answer = [0; HANDSHAKE];
        match self.tunn.decapsulate(None, datagram, &mut answer) {
            TunnResult::Err(error) => return Err(drop_reason(&error, Drop::HandshakeFailed)),
            TunnResult::WriteToNetwork(answer) => {
                if let Some(to) = to {
                    out.push(answer, to, Ecn::NotEct);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A handshake is complete for the initiator with the response, for the responder with the first packet of the new session.
    ///
    /// All of it is a sign of life but for a call: a peer that only ever calls shows that nothing of ours arrives.
    fn note(&mut self, heard: &Heard, now: Instant) {
        if !matches!(heard, Heard::Initiation) {
            self.liveness.heard(now);
        }
        match heard {
            Heard::Response => (self.handshake, self.initiator) = (Some(now), true),
            Heard::Initiation => self.unconfirmed = true,
            Heard::Data if std::mem::take(&mut self.unconfirmed) => {
                (self.handshake, self.initiator) = (Some(now), false);
            }
            Heard::Data | Heard::Cookie => {}
        }
    }

    /// The engine's timers: retransmitted handshakes, rekeying, passive keepalives, expiry.
    fn run_timers(&mut self, now: Instant, out: &mut Outbox) {
        let mut slot = [0; HANDSHAKE];
        match self.tunn.update_timers(&mut slot) {
            TunnResult::WriteToNetwork(datagram) => {
                if datagram.first() == Some(&INITIATION) {
                    self.liveness.attempted(now);
                }
                if let Some(endpoint) = self.endpoint {
                    out.push(datagram, endpoint, Ecn::NotEct);
                }
            }
            TunnResult::Err(WireGuardError::ConnectionExpired) => {
                let dropped = self.waiting.clear();
                self.counters.drops.add(Drop::NoSession, dropped);
            }
            _ => {}
        }
    }

    /// Unlike the engine's own, this keepalive is sent only after silence, at once after start, renews the session as data does, and
    /// also revives an expired peer.
    fn keep_alive(&mut self, now: Instant, out: &mut Outbox) {
        let (Some(interval), Some(endpoint)) = (self.keepalive, self.endpoint) else { return };
        if self.traffic.is_some_and(|at| now.saturating_duration_since(at) < interval) {
            return;
        }
        let fresh = self.handshake.is_some_and(|at| now.saturating_duration_since(at) < REKEY_AFTER_TIME);
        let has_session = self.has_session();
        if has_session {
            self.encapsulate(&[], Ecn::NotEct, endpoint, out);
        }
        if !has_session || (self.initiator && !fresh) {
            self.initiate(now, out);
        }
        self.traffic = Some(now);
    }
}

fn network_length(result: TunnResult<'_>) -> Option<usize> {
    match result {
        TunnResult::WriteToNetwork(datagram) => Some(datagram.len()),
        _ => None,
    }
}

fn drop_reason(error: &WireGuardError, otherwise: Drop) -> Drop {
    match error {
        WireGuardError::InvalidCounter | WireGuardError::DuplicateCounter => Drop::Replayed,
        WireGuardError::NoCurrentSession | WireGuardError::WrongIndex => Drop::UnknownIndex,
        WireGuardError::InvalidPacket => Drop::Malformed,
        WireGuardError::UnderLoad => Drop::RateLimited,
        _ => otherwise,
    }
}

#[cfg(test)]
mod tests;
