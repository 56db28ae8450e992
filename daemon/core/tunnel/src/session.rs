//! The keys of one completed handshake, and the counters under them (WireGuard paper, section 5.4.6).

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    noise::{
        aead::Cipher,
        handshake::Keys,
        message::{HEADER, write_header},
    },
    replay::{Window, is_too_old},
};

/// REKEY_AFTER_MESSAGES of the WireGuard paper, section 6.1.
pub(crate) const REKEY_AFTER_MESSAGES: u64 = 1 << 60;
/// REJECT_AFTER_MESSAGES of the WireGuard paper, section 6.1: this counter and greater ones are neither used nor accepted.
pub(crate) const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);
/// REJECT_AFTER_TIME of the WireGuard paper, section 6.1: no session is used for longer.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(180);
/// Clocks of two threads are read one after the other; a session from further in the future than this means that the clock went back.
const SKEW: Duration = Duration::from_secs(1);

/// A session in both directions. Threads share it: sealing and opening take no lock, and their keys are overwritten when the last of
/// them lets go.
pub(crate) struct Session {
    send: Cipher,
    receive: Cipher,
    /// The next counter to send.
    counter: AtomicU64,
    window: Mutex<Window>,
    /// One more than the greatest counter received: the window's, to look at without its lock.
    received: AtomicU64,
    /// Our index.
    pub(crate) local: u32,
    /// The peer's index.
    remote: u32,
    pub(crate) created: Instant,
    /// The handshake was ours, so renewing it is ours too.
    pub(crate) initiator: bool,
}

impl Session {
    pub(crate) fn new(keys: &Keys, initiator: bool, now: Instant) -> Self {
        Self {
            send: Cipher::new(&keys.send),
            receive: Cipher::new(&keys.receive),
            counter: AtomicU64::new(0),
            window: Mutex::default(),
            received: AtomicU64::new(0),
            local: keys.local,
            remote: keys.remote,
            created: now,
            initiator,
        }
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.created)
    }

    /// True if it must not be used any more. That holds also if the clock went back, since nobody knows its age then.
    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.age(now) >= SESSION_LIFETIME || self.created.saturating_duration_since(now) > SKEW
    }

    /// Reserves `count` counters in a row and returns the first; `None`: there are not as many left.
    pub(crate) fn reserve(&self, count: u64) -> Option<u64> {
        let take = |next: u64| next.checked_add(count).filter(|end| *end <= REJECT_AFTER_MESSAGES);
        self.counter.try_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()
    }

    /// True if so many messages were sent that it wants to be renewed.
    pub(crate) fn is_worn(&self) -> bool {
        self.counter.load(Ordering::Relaxed) >= REKEY_AFTER_MESSAGES
    }

    /// Makes a transport message of a slot: the packet is in it at [`HEADER`], the last 16 bytes are room for the tag. The counter comes
    /// from [`Session::reserve`] and is used once.
    pub(crate) fn seal(&self, counter: u64, slot: &mut [u8]) -> bool {
        let Some((header, rest)) = slot.split_first_chunk_mut::<HEADER>() else { return false };
        write_header(header, self.remote, counter);
        self.send.seal(counter, &[], rest)
    }

    /// True if a message with this counter may be worth its decryption: a look that needs no lock.
    pub(crate) fn may_accept(&self, counter: u64) -> bool {
        counter < REJECT_AFTER_MESSAGES && !is_too_old(self.received.load(Ordering::Relaxed), counter)
    }

    /// Decrypts a transport message; the packet is a part of it. `None`: not authentic. Whether it is fresh, [`Session::marker`] says.
    pub(crate) fn open<'a>(&self, counter: u64, message: &'a mut [u8]) -> Option<&'a mut [u8]> {
        self.receive.open(counter, &[], message.get_mut(HEADER..)?)
    }

    /// For marking the counters of a run of authentic messages.
    pub(crate) fn marker(&self) -> Marker<'_> {
        // A panic within `mark` can only have forgotten the message at hand.
        Marker { session: self, window: self.window.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// The replay window, locked.
pub(crate) struct Marker<'a> {
    session: &'a Session,
    window: MutexGuard<'a, Window>,
}

impl Marker<'_> {
    /// True if the counter is fresh.
    pub(crate) fn mark(&mut self, counter: u64) -> bool {
        self.window.mark(counter)
    }
}

impl Drop for Marker<'_> {
    fn drop(&mut self) {
        self.session.received.store(self.window.next(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::hash::Secret;

    /// (sender, receiver)
    fn pair(now: Instant) -> (Session, Session) {
        let keys = |send, receive, local, remote| Keys {
            send: Secret::new([send; 32]),
            receive: Secret::new([receive; 32]),
            local,
            remote,
        };
        (Session::new(&keys(1, 2, 10, 20), true, now), Session::new(&keys(2, 1, 20, 10), false, now))
    }

    #[test]
    fn what_one_seals_the_other_opens() {
        let (a, b) = pair(Instant::now());
        let mut slot = [7; HEADER + 5 + 16];
        assert!(a.seal(3, &mut slot));
        assert_eq!(slot[..HEADER], [4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let whole = slot;
        assert_eq!(b.open(3, &mut slot), Some(&mut [7; 5][..]));
        assert_eq!(b.open(4, &mut whole.clone()), None);
        for length in 0..whole.len() {
            assert_eq!(b.open(3, &mut whole[..length].to_vec()), None);
        }
        assert!((0..HEADER + 16).all(|length| !a.seal(0, &mut vec![0; length])));
    }

    #[test]
    fn counters_end_before_they_wrap() {
        let (session, _) = pair(Instant::now());
        assert_eq!(session.reserve(REKEY_AFTER_MESSAGES - 1), Some(0));
        assert!(!session.is_worn());
        assert_eq!(session.reserve(1), Some(REKEY_AFTER_MESSAGES - 1));
        assert!(session.is_worn());
        let left = REJECT_AFTER_MESSAGES - REKEY_AFTER_MESSAGES;
        assert_eq!(session.reserve(left + 1), None);
        assert_eq!(session.reserve(u64::MAX), None);
        assert_eq!(session.reserve(left), Some(REKEY_AFTER_MESSAGES));
        assert_eq!(session.reserve(1), None);
        assert!(session.may_accept(REJECT_AFTER_MESSAGES - 1) && !session.may_accept(REJECT_AFTER_MESSAGES));
    }

    #[test]
    fn the_look_without_a_lock_follows_the_window() {
        let (session, _) = pair(Instant::now());
        assert!(session.may_accept(0));
        session.marker().mark(10_000);
        assert!(!session.may_accept(1_000) && session.may_accept(2_000) && session.may_accept(10_000));
        assert!(!session.marker().mark(10_000));
    }

    #[test]
    fn age_is_limited_and_never_negative() {
        let start = Instant::now() + Duration::from_secs(3600);
        let (session, _) = pair(start);
        assert!(!session.is_expired(start + SESSION_LIFETIME - Duration::from_nanos(1)));
        assert!(session.is_expired(start + SESSION_LIFETIME));
        assert!(!session.is_expired(start - SKEW), "two threads may read the clock in another order");
        assert!(session.is_expired(start - Duration::from_secs(2)));
        assert_eq!(session.age(start - Duration::from_secs(3600)), Duration::ZERO);
    }
}
