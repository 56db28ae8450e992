//! One peer: its session, its outer address, and whether it answers.

mod due;
mod keyring;
mod lease;
mod liveness;
mod open;
mod probing;
mod shake;
mod state;
mod timers;
mod waiting;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use crate::x25519::PublicKey;
use zeroize::Zeroize;

use crate::{
    buffer::{Datagram, Opened, Outbox, OuterPath, Plaintext},
    clock::Now,
    counters::{Counters, Drop as Dropped},
    noise::Identity,
    path_mtu,
};
use lease::Lease;
pub use liveness::{SESSION_LIFETIME, State, UNANSWERED};
use open::Opening;

/// What a peer is made from. The preshared key is overwritten when this is dropped.
pub struct Settings {
    /// The peer's static key.
    pub public_key: PublicKey,
    /// Mixed into the handshake.
    pub preshared_key: Option<[u8; 32]>,
    /// Receiver indices are `index << 8 | n` under a secret permutation: 24 random bits, different for every peer.
    pub index: u32,
    /// The tunnel's MTU: no inner packet is longer, in bytes.
    pub mtu: u16,
    /// Send something at least this often.
    pub keepalive: Option<Duration>,
}

impl Drop for Settings {
    fn drop(&mut self) {
        self.preshared_key.zeroize();
    }
}

/// A peer and the state of its session.
///
/// - [`Peer::seal`] turns inner packets into datagrams, [`Peer::open`] datagrams into inner packets; both take batches and neither
///   shows its caller what protocol the peer speaks;
/// - [`Peer::tick`] does what is due: handshakes, keepalives, path probes, giving up. It says when it wants to be called again; `seal`
///   and `open` say when that became earlier;
/// - [`Peer::mtu`] says how long an inner packet for it may be;
/// - [`Peer::status`] says how it is.
///
/// What there is to send is appended to an [`Outbox`]. Threads share a peer: it locks inside, and never while it ciphers a batch. A
/// packet's counter is that of its turn at the lock, so the packets of one thread, and those that waited before them, leave in order.
pub struct Peer {
    state: Mutex<state::State>,
    mtu: Arc<AtomicU16>,
    counters: Arc<Counters>,
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

/// What is known about the path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// The largest outer packet that passes, in bytes; `None`: not known (yet).
    pub found: Option<u16>,
    /// Why it is so.
    pub state: path_mtu::State,
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
        let mtu = Arc::new(AtomicU16::new(settings.mtu));
        let shared = (live, Arc::clone(&counters), Arc::clone(&mtu));
        let state = state::State::new(identity, &settings, shared, seed);
        Self { state: Mutex::new(state), mtu, counters }
    }

    fn lock(&self, now: Now) -> MutexGuard<'_, state::State> {
        let mut state = self.state();
        state.see(now.instant);
        state
    }

    fn state(&self) -> MutexGuard<'_, state::State> {
        // A panic while it was held lost a batch at worst; keys and counters only ever move forward.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where datagrams go from now on, until an authentic packet comes from elsewhere. The kernel chooses our own address, also if this
    /// is the endpoint already. Call [`Peer::tick`] afterwards.
    pub fn set_endpoint(&self, endpoint: SocketAddr) {
        let mut state = self.state();
        (state.path, state.refused) = (Some(endpoint.into()), None);
    }

    /// Where datagrams go.
    pub fn endpoint(&self) -> Option<SocketAddr> {
        self.path().map(|path| path.remote)
    }

    /// The outer path that datagrams take.
    pub fn path(&self) -> Option<OuterPath> {
        self.state().path
    }

    /// Changes the keepalive interval. Call [`Peer::tick`] afterwards.
    pub fn set_keepalive(&self, keepalive: Option<Duration>) {
        self.state().timers.set_persistent(keepalive);
    }

    /// Holds the peer down for a reason, or no longer: at once no flow goes to it while its group has another member.
    pub fn hold_down(&self, reason: Option<Arc<str>>) {
        self.state().liveness.hold_down(reason);
    }

    /// Whether the peer answers where it is, also while it is held down.
    pub fn answers(&self) -> bool {
        self.state().liveness.answers()
    }

    /// How long the peer has been asked in vain; `None`: it answers, or there was nothing to ask.
    pub fn silence(&self, now: Instant) -> Option<Duration> {
        self.state().liveness.silence(now)
    }

    /// The longest inner packet that reaches this peer in one piece, in bytes: the tunnel's MTU, or less if the path is known to be
    /// narrower. Padding never makes a packet longer than that.
    pub fn mtu(&self) -> u16 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// What is known about the path.
    pub fn path_mtu(&self) -> PathMtu {
        let state = self.state();
        let search = state.probing.search();
        PathMtu { found: search.found(), state: search.state() }
    }

    /// The kernel refused the probe of the last [`Peer::tick`] as too big. Call [`Peer::tick`] again: it may try another size.
    pub fn probe_refused(&self, now: Instant) {
        self.state().probing.refused(now);
    }

    /// The kernel refused datagrams to this peer as too big: what was found may hold no longer, so it is looked at soon. Call
    /// [`Peer::tick`] afterwards.
    pub fn path_refused(&self, now: Instant) {
        self.state().probing.update(|search| search.on_doubt(now));
    }

    /// How the peer is.
    pub fn status(&self, now: Instant) -> Status {
        self.state().status(now)
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
        if batch.len() == 0 {
            return false;
        }
        let mut state = self.lock(now);
        if state.path.is_none() {
            self.counters.drops.add(Dropped::NoEndpoint, count(batch.len()));
            return false;
        }
        let Some(lease) = state.lease(batch.len(), now.instant) else {
            state.stage(batch, now, out);
            return state.is_earlier(now.instant);
        };
        state.timers.data_sent(now.instant);
        state.probing.update(path_mtu::PathMtu::on_traffic);
        state.freshen(now, out);
        let earlier = state.is_earlier(now.instant);
        drop(state);
        self.send(lease, batch, out);
        earlier
    }

    /// Encrypts one inner packet that says how things are now. Without a session it is given up and a handshake starts: had it waited,
    /// another thread would send it, perhaps after what is said later.
    ///
    /// True if [`Peer::tick`] must be called earlier than it said last.
    pub fn seal_news<P: Plaintext>(&self, plain: P, now: Now, out: &mut Outbox) -> bool {
        let mut state = self.lock(now);
        if state.path.is_none() || state.has_session(now.instant) {
            drop(state);
            return self.seal(std::iter::once(plain), now, out);
        }
        self.counters.drops.add(Dropped::NoSession, 1);
        state.initiate(now, out);
        state.is_earlier(now.instant)
    }

    fn send<P: Plaintext>(&self, mut lease: Lease, batch: impl Iterator<Item = P>, out: &mut Outbox) {
        let mtu = self.mtu().into();
        lease.draft_staged(mtu, out);
        for plain in batch {
            let taken = lease.draft(plain.len(), mtu, plain.ecn(), out, |into| plain.write(into));
            if !taken {
                self.counters.drops.add(Dropped::NoSession, 1);
            }
        }
        lease.finish(&self.counters, out);
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
        let mut opening = Opening::new(self, captures, now, out, inbox);
        batch.for_each(|datagram| opening.take(datagram));
        opening.commit();
        opening.earlier
    }

    /// Does what is due now; returns when it wants to be called next. `None`: not before [`Peer::seal`] or [`Peer::open`] says so.
    ///
    /// At most one datagram goes to `probes`. It must leave as it is: alone, not fragmented (DF), and if the kernel says that it is too
    /// big, [`Peer::probe_refused`] wants to know.
    pub fn tick(&self, now: Now, out: &mut Outbox, probes: &mut Outbox) -> Option<Instant> {
        self.lock(now).tick(self.mtu().into(), now, out, probes)
    }
}

fn count(packets: usize) -> u64 {
    u64::try_from(packets).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
