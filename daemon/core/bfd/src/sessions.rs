//! All sessions of a system: whose is a packet, and when is something due.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    num::NonZeroU32,
    time::Instant,
};

use crate::{Change, Config, Malformed, Packet, Session, State, Status, random::Random};

/// A session, by our discriminator for it: unique in [`Sessions`], and not used again soon.
pub type SessionId = NonZeroU32;

/// Sessions by discriminator and by path. A path `P` is what tells sessions apart before they know each other's discriminators: both
/// addresses, and the interface or tunnel over one hop (RFC 5881 section 3). Drive it like a [`Session`]; at most one packet a session
/// and call waits, and an answer.
#[derive(Debug)]
pub struct Sessions<P> {
    by_id: BTreeMap<SessionId, Entry<P>>,
    by_path: BTreeMap<P, SessionId>,
    schedule: BTreeSet<(Instant, SessionId)>,
    transmits: VecDeque<(SessionId, Packet)>,
    events: VecDeque<Event>,
    random: Random,
    limit: usize,
}

#[derive(Debug)]
struct Entry<P> {
    session: Session,
    path: P,
    due: Option<Instant>,
}

/// What happened at a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where.
    pub session: SessionId,
    /// What.
    pub change: Change,
}

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discarded {
    /// It is no packet for anybody.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// There is no session of this discriminator.
    #[error("no session has this discriminator")]
    UnknownDiscriminator,
    /// There is no session on the path that it came by.
    #[error("no session on this path")]
    UnknownPath,
    /// It names no session, the one on its path is up, and anybody could have sent it.
    #[error("it comes from afar and does not name the session, which is up")]
    Nameless,
    /// The session that it names is on another path.
    #[error("it names a session of another path")]
    OtherPath,
}

/// Why there is no new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// As many as are allowed.
    #[error("there are as many sessions as are allowed: {0}")]
    Limit(usize),
    /// One runs on that path already.
    #[error("a session runs on that path already")]
    PathTaken,
}

impl<P: Ord + Clone> Sessions<P> {
    /// Room for so many sessions. The seed decides discriminators and jitter.
    pub fn new(limit: usize, seed: u64) -> Self {
        Self {
            by_id: BTreeMap::new(),
            by_path: BTreeMap::new(),
            schedule: BTreeSet::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            random: Random::new(seed),
            limit,
        }
    }

    /// Begins a session.
    ///
    /// # Errors
    /// See [`Full`].
    pub fn create(&mut self, path: P, config: Config, now: Instant) -> Result<SessionId, Full> {
        if self.by_path.contains_key(&path) {
            return Err(Full::PathTaken);
        }
        if self.by_id.len() >= self.limit {
            return Err(Full::Limit(self.limit));
        }
        let id = self.unused_id();
        let session = Session::new(config, id, self.random.next(), now);
        self.by_path.insert(path.clone(), id);
        self.by_id.insert(id, Entry { session, path, due: None });
        self.settle(id, now);
        Ok(id)
    }

    /// Unpredictable, so that nobody off the path can name a session.
    fn unused_id(&mut self) -> SessionId {
        loop {
            let bits = (self.random.next() >> 32) & 0xffff_ffff;
            let id = u32::try_from(bits).ok().and_then(NonZeroU32::new);
            if let Some(id) = id.filter(|id| !self.by_id.contains_key(id)) {
                return id;
            }
        }
    }

    /// Changes what is wanted of a session, without an interruption.
    pub fn alter(&mut self, id: SessionId, config: Config, now: Instant) {
        self.with(id, now, |session| session.alter(config));
    }

    /// Ends a session. The peer is told what it was told last: [`Sessions::set_admin_down`] comes before.
    pub fn remove(&mut self, id: SessionId) {
        let Some(entry) = self.by_id.remove(&id) else { return };
        self.by_path.remove(&entry.path);
        if let Some(due) = entry.due {
            self.schedule.remove(&(due, id));
        }
    }

    /// The administrator ends a session; its peer is told at once.
    pub fn set_admin_down(&mut self, id: SessionId, now: Instant) {
        self.with(id, now, |session| session.set_admin_down(now));
    }

    /// Takes what came by a path.
    ///
    /// # Errors
    /// When it is nobody's; nothing has changed then.
    pub fn handle_packet(&mut self, bytes: &[u8], path: &P, now: Instant) -> Result<SessionId, Discarded> {
        let packet = Packet::decode(bytes)?;
        let id = self.find(&packet, path)?;
        self.with(id, now, |session| session.handle_packet(&packet, now));
        Ok(id)
    }

    /// Takes what came by a path on which anybody can send in the peer's name, as over several hops (RFC 5883 section 6): a session that
    /// is up hears only who knows its discriminator. A peer that has restarted, and does not, is heard after the detection time.
    ///
    /// # Errors
    /// As [`Sessions::handle_packet`].
    pub fn handle_distant_packet(
        &mut self,
        bytes: &[u8],
        path: &P,
        now: Instant,
    ) -> Result<SessionId, Discarded> {
        let is_nameless = Packet::decode(bytes)?.yours.is_none();
        let known = self.by_path.get(path).and_then(|id| self.status_of(*id));
        if is_nameless && known.is_some_and(|status| status.state == State::Up) {
            return Err(Discarded::Nameless);
        }
        self.handle_packet(bytes, path, now)
    }

    /// Section 6.8.6: by our discriminator where the peer knows it, else by the path. A discriminator alone proves nothing, so the
    /// path has to be the session's all the same.
    fn find(&self, packet: &Packet, path: &P) -> Result<SessionId, Discarded> {
        let Some(id) = packet.yours else {
            return self.by_path.get(path).copied().ok_or(Discarded::UnknownPath);
        };
        match self.by_id.get(&id) {
            Some(entry) if entry.path == *path => Ok(id),
            Some(_) => Err(Discarded::OtherPath),
            None => Err(Discarded::UnknownDiscriminator),
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((due, id)) = self.schedule.first().copied()
            && due <= now
        {
            self.with(id, now, |session| session.handle_timeout(now));
            // A session that had nothing to do after all must not hold up the others.
            if self.by_id.get(&id).is_none_or(|entry| entry.due == Some(due)) {
                self.schedule.remove(&(due, id));
            }
        }
    }

    /// When [`Sessions::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.schedule.first().map(|(due, _)| *due)
    }

    /// The next packet to send at once.
    pub fn poll_transmit(&mut self) -> Option<(SessionId, Packet)> {
        self.transmits.pop_front()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Every session as it is now.
    pub fn status(&self) -> impl Iterator<Item = (SessionId, &P, Status)> {
        self.by_id.iter().map(|(id, entry)| (*id, &entry.path, entry.session.status()))
    }

    /// A session as it is now.
    pub fn status_of(&self, id: SessionId) -> Option<Status> {
        self.by_id.get(&id).map(|entry| entry.session.status())
    }

    /// The path of a session.
    pub fn path(&self, id: SessionId) -> Option<&P> {
        self.by_id.get(&id).map(|entry| &entry.path)
    }

    fn with(&mut self, id: SessionId, now: Instant, act: impl FnOnce(&mut Session)) {
        if let Some(entry) = self.by_id.get_mut(&id) {
            act(&mut entry.session);
            self.settle(id, now);
        }
    }

    /// Collects what a session has to say, and plans its next timer.
    fn settle(&mut self, id: SessionId, now: Instant) {
        let Some(entry) = self.by_id.get_mut(&id) else { return };
        while let Some(packet) = entry.session.poll_transmit(now) {
            self.transmits.push_back((id, packet));
        }
        while let Some(change) = entry.session.poll_event() {
            self.events.push_back(Event { session: id, change });
        }
        let due = entry.session.poll_timeout();
        if due == entry.due {
            return;
        }
        if let Some(before) = std::mem::replace(&mut entry.due, due) {
            self.schedule.remove(&(before, id));
        }
        self.schedule.extend(due.map(|due| (due, id)));
    }
}

#[cfg(test)]
mod tests;
