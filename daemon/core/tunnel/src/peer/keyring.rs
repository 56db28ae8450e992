//! The sessions of a peer: around a renewal there are some (WireGuard paper, section 6.3).

use std::{sync::Arc, time::Instant};

use crate::session::{SESSION_LIFETIME, Session};

/// Which session is used for what.
///
/// - `current`: we send with it;
/// - `previous`: those before; what was on its way still arrives. When both ends renew at the same time each concludes two handshakes,
///   so there can be three of them;
/// - `next`: we answered a handshake, and no message has shown yet that the answer arrived.
#[derive(Default)]
pub(super) struct Keyring {
    current: Option<Arc<Session>>,
    /// The newest first.
    previous: [Option<Arc<Session>>; 3],
    next: Option<Arc<Session>>,
}

impl Keyring {
    /// Takes the session of a handshake that we began: the peer has it already.
    pub(super) fn begin(&mut self, session: Arc<Session>) {
        let replaced = self.current.replace(session);
        self.retire(replaced);
        // A session that we answered for may be the one that the peer sends with by now.
        let next = self.next.take();
        self.retire(next);
    }

    /// Takes the session of a handshake that we answered.
    pub(super) fn offer(&mut self, session: Arc<Session>) {
        self.next = Some(session);
    }

    /// A message came under this session; true if that makes it the current one.
    pub(super) fn confirm(&mut self, session: &Arc<Session>) -> bool {
        let Some(next) = self.next.take_if(|next| Arc::ptr_eq(next, session)) else { return false };
        let replaced = self.current.replace(next);
        self.retire(replaced);
        true
    }

    fn retire(&mut self, session: Option<Arc<Session>>) {
        if session.is_some() {
            self.previous.rotate_right(1);
            self.previous[0] = session;
        }
    }

    /// The session that has this index at our end.
    pub(super) fn find(&self, local: u32, now: Instant) -> Option<&Arc<Session>> {
        self.all().find(|session| session.local == local && !session.is_expired(now))
    }

    /// The session to send with.
    pub(super) fn sending(&self, now: Instant) -> Option<&Arc<Session>> {
        self.current.as_ref().filter(|session| !session.is_expired(now))
    }

    /// True if a session has this index at our end.
    pub(super) fn has(&self, local: u32) -> bool {
        self.all().any(|session| session.local == local)
    }

    /// Lets go of what must not be used any more.
    pub(super) fn expire(&mut self, now: Instant) {
        let slots = [&mut self.current, &mut self.next].into_iter().chain(&mut self.previous);
        for slot in slots {
            slot.take_if(|session| session.is_expired(now));
        }
    }

    /// When the first of them expires.
    pub(super) fn expiry(&self) -> Option<Instant> {
        self.all().filter_map(|session| session.created.checked_add(SESSION_LIFETIME)).min()
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Session>> {
        [&self.current, &self.next].into_iter().chain(&self.previous).flatten()
    }
}
