//! What a peer's lock guards.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16},
    },
    time::Instant,
};

use super::{
    Settings, Status,
    keyring::Keyring,
    lease::Lease,
    liveness::Liveness,
    probing::Probing,
    timers::{REKEY_AFTER_TIME, REKEY_ON_RECEIVE, Timers},
    waiting::{Staged, Waiting},
};
use crate::{
    buffer::{Outbox, OuterPath, Plaintext},
    clock::Now,
    counters::{Counters, Drop},
    noise::{
        Identity, Remote,
        cookie::Jar,
        handshake::Initiator,
        hash::Secret,
        random::Random,
        tai64n::{Stamper, Timestamp},
    },
    session::Session,
};

/// Everything about a peer that changes.
pub(super) struct State {
    pub(super) identity: Arc<Identity>,
    pub(super) remote: Remote,
    /// The upper 24 bits of our receiver indices.
    pub(super) index: u32,
    pub(super) random: Random,
    pub(super) stamper: Stamper,
    pub(super) jar: Jar,
    /// Our initiation that waits for its response.
    pub(super) pending: Option<Initiator>,
    /// Timestamp and arrival of the last initiation that was accepted.
    pub(super) called: Option<(Timestamp, Instant)>,
    pub(super) keyring: Keyring,
    pub(super) path: Option<OuterPath>,
    /// Where the peer was heard last, if that is no place to answer to.
    pub(super) refused: Option<SocketAddr>,
    pub(super) waiting: Waiting,
    pub(super) timers: Timers,
    pub(super) liveness: Liveness,
    pub(super) probing: Probing,
    pub(super) counters: Arc<Counters>,
    /// The last completed handshake.
    pub(super) handshake: Option<Instant>,
    /// The last time we were told.
    latest: Option<Instant>,
    /// The deadline that our caller knows of.
    pub(super) reported: Option<Instant>,
}

/// Whether what we send to an address would enter the tunnel. Remembers the last judgement: the datagrams of a batch mostly come from
/// one place.
pub(super) struct Judge<F> {
    captures: F,
    last: Option<(IpAddr, bool)>,
}

impl<F: Fn(IpAddr) -> bool> Judge<F> {
    pub(super) fn new(captures: F) -> Self {
        Self { captures, last: None }
    }

    fn captures(&mut self, source: IpAddr) -> bool {
        match self.last {
            Some((address, captured)) if address == source => captured,
            _ => self.last.insert((source, (self.captures)(source))).1,
        }
    }
}

impl State {
    pub(super) fn new(
        identity: &Arc<Identity>,
        settings: &Settings,
        (live, counters, mtu): (Arc<AtomicBool>, Arc<Counters>, Arc<AtomicU16>),
        seed: [u8; 32],
    ) -> Self {
        let mut timers = Timers::default();
        timers.set_persistent(settings.keepalive);
        Self {
            identity: Arc::clone(identity),
            remote: Remote::new(identity, settings.public_key, settings.preshared_key.map(Secret::new)),
            index: settings.index,
            random: Random::new(seed),
            stamper: Stamper::default(),
            jar: Jar::default(),
            pending: None,
            called: None,
            keyring: Keyring::default(),
            path: None,
            refused: None,
            waiting: Waiting::new(&identity.waiting),
            timers,
            liveness: Liveness::new(live),
            probing: Probing::new(mtu),
            counters,
            handshake: None,
            latest: None,
            reported: None,
        }
    }

    /// Takes notice of the time. If the clock went back, what happened "later" happened now.
    pub(super) fn see(&mut self, now: Instant) {
        if self.latest.is_some_and(|latest| now < latest) {
            self.timers.rebase(now);
            self.liveness.rebase(now);
            self.probing.update(|search| search.rebase(now));
            self.called = self.called.map(|(timestamp, at)| (timestamp, at.min(now)));
        }
        self.latest = Some(now);
    }

    pub(super) fn status(&self, now: Instant) -> Status {
        let endpoint = self.path.map(|path| path.remote);
        let reason = self.liveness.reason(now, endpoint);
        let reason = match self.refused {
            Some(source) => {
                format!(
                    "{reason}; it calls from {source}, which our own routes lead into the tunnel: not followed"
                )
            }
            None => reason,
        };
        Status { endpoint, state: self.liveness.state(), reason, handshake: self.handshake }
    }

    /// The right to send the packets that wait, and `count` more. `None`: there is no session to send with.
    pub(super) fn lease(&mut self, count: usize, now: Instant) -> Option<Lease> {
        let session = self.keyring.sending(now)?;
        Lease::take(session, self.path?, u64::try_from(count).ok()?, &mut self.waiting)
    }

    /// True while there is a session to send with.
    pub(super) fn has_session(&self, now: Instant) -> bool {
        self.keyring.sending(now).is_some()
    }

    /// Keeps packets until there is a session, and begins a handshake.
    pub(super) fn stage<P: Plaintext>(&mut self, batch: impl Iterator<Item = P>, now: Now, out: &mut Outbox) {
        for plain in batch {
            let mut bytes = vec![0; plain.len()];
            plain.write(&mut bytes);
            let dropped = self.waiting.push(Staged { bytes, ecn: plain.ecn() });
            self.counters.drops.add(Drop::NoSession, dropped);
        }
        self.initiate(now, out);
    }

    /// Renews the session when it is time to, as something is sent with it.
    pub(super) fn freshen(&mut self, now: Now, out: &mut Outbox) {
        let old = |session: &Arc<Session>| {
            session.is_worn() || (session.initiator && session.age(now.instant) >= REKEY_AFTER_TIME)
        };
        if self.keyring.sending(now.instant).is_some_and(old) {
            self.initiate(now, out);
        }
    }

    /// Takes notice of authentic messages under a session; the right to send what waited for them, if anything did.
    pub(super) fn received(
        &mut self,
        session: &Arc<Session>,
        data: bool,
        now: Now,
        out: &mut Outbox,
    ) -> Option<Lease> {
        self.liveness.heard(now.instant);
        self.timers.received(now.instant);
        if data {
            self.timers.data_received(now.instant);
        }
        let in_use = self.keyring.sending(now.instant).is_some_and(|current| Arc::ptr_eq(current, session));
        if in_use && session.initiator && session.age(now.instant) >= REKEY_ON_RECEIVE {
            self.initiate(now, out);
        }
        if !self.keyring.confirm(session) {
            return None;
        }
        self.completed(now.instant);
        (self.waiting.len() > 0).then(|| self.lease(0, now.instant)).flatten()
    }

    /// A handshake is complete, for both sides.
    pub(super) fn completed(&mut self, now: Instant) {
        self.pending = None;
        self.timers.series_over();
        self.handshake = Some(now);
        if let Some(path) = self.path {
            self.probing.update(|search| search.on_session(now, path.remote));
        }
    }

    /// Where to answer to a message from `source`.
    pub(super) fn answer_to(
        &self,
        source: OuterPath,
        judge: &mut Judge<impl Fn(IpAddr) -> bool>,
    ) -> Option<OuterPath> {
        let known = self.path.is_some_and(|path| path.remote == source.remote);
        if !known && judge.captures(source.remote.ip()) { self.path } else { Some(source) }
    }

    /// Takes the source of an authentic message as the endpoint, or says no.
    pub(super) fn follow(&mut self, source: OuterPath, judge: &mut Judge<impl Fn(IpAddr) -> bool>) {
        let answer_to = self.answer_to(source, judge);
        if answer_to == Some(source) {
            (self.path, self.refused) = (answer_to, None);
        } else {
            self.refused = Some(source.remote);
            self.counters.drops.add(Drop::EndpointRefused, 1);
        }
    }
}
