//! The keys of one completed handshake, and the counters under them (WireGuard paper, section 5.4.6).

use std::{
    ops::Range,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use isthmus_aead::{Key, LANES, Packet};

use crate::{
    noise::{handshake::Keys, message::write_header},
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
    send: Key,
    receive: Key,
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
            send: Key::new(&keys.send),
            receive: Key::new(&keys.receive),
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

    /// Makes transport messages of up to [`LANES`] slots: in each, the packet is behind the header's room, and the last 16 bytes are room
    /// for the tag. The counters come from [`Session::reserve`] and are used once. False: there were not enough, or a slot was too short,
    /// so send none.
    pub(crate) fn seal<'a>(
        &self,
        mut counters: Range<u64>,
        slots: impl Iterator<Item = &'a mut [u8]>,
    ) -> bool {
        let mut packets: [Packet<'_>; LANES] = Default::default();
        let mut count = 0;
        for slot in slots {
            let (Some(packet), Some(counter)) = (packets.get_mut(count), counters.next()) else {
                return false;
            };
            let Some((header, rest)) = slot.split_first_chunk_mut() else { return false };
            write_header(header, self.remote, counter);
            *packet = Packet::new(counter, rest);
            count += 1;
        }
        self.send.seal_batch(&mut packets[..count]);
        packets[..count].iter().all(|packet| packet.ok)
    }

    /// True if a message with this counter may be worth its decryption: a look that needs no lock.
    pub(crate) fn may_accept(&self, counter: u64) -> bool {
        counter < REJECT_AFTER_MESSAGES && !is_too_old(self.received.load(Ordering::Relaxed), counter)
    }

    /// Decrypts what is behind the headers of transport messages and says of each whether it is authentic; up to [`LANES`] are fastest.
    /// Whether they are fresh, [`Session::marker`] says.
    pub(crate) fn open(&self, packets: &mut [Packet<'_>]) {
        self.receive.open_batch(packets);
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
    use crate::noise::{hash::Secret, message::HEADER};

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
        let mut slots = vec![[7; HEADER + 5 + 16]; LANES];
        assert!(a.seal(3..3 + LANES as u64, slots.iter_mut().map(|slot| slot.as_mut_slice())));
        for (counter, slot) in (3..).zip(&slots) {
            assert_eq!(slot[..HEADER], [4, 0, 0, 0, 20, 0, 0, 0, counter, 0, 0, 0, 0, 0, 0, 0]);
        }
        for length in 0..slots[0].len() {
            assert!(!opens(&b, 3, &mut slots[0][..length].to_vec()));
        }
        assert!(!opens(&b, 4, &mut slots[0].clone()));
        for (counter, slot) in (3..).zip(&mut slots) {
            assert!(opens(&b, counter, slot));
            assert_eq!(slot[HEADER..][..5], [7; 5]);
        }
    }

    fn opens(session: &Session, counter: u64, message: &mut [u8]) -> bool {
        let mut packets = [Packet::new(counter, message.get_mut(HEADER..).unwrap_or_default())];
        session.open(&mut packets);
        packets[0].ok
    }

    #[test]
    fn what_does_not_fit_is_not_sealed() {
        let (a, _) = pair(Instant::now());
        for length in 0..HEADER + 16 {
            assert!(!a.seal(0..9, [vec![0; 100].as_mut_slice(), &mut vec![0; length]].into_iter()));
        }
        let mut slots = vec![[0; 64]; LANES + 1];
        assert!(!a.seal(0..99, slots.iter_mut().map(|slot| slot.as_mut_slice())));
        assert!(
            !a.seal(0..3, slots[..4].iter_mut().map(|slot| slot.as_mut_slice())),
            "three counters for four"
        );
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
