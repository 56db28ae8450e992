//! Whether a peer answers, and why we think so.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Handshakes unanswered for this long: the peer is down.
pub const UNANSWERED: Duration = Duration::from_secs(15);
pub use crate::session::SESSION_LIFETIME;

/// How a peer is, for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It answers.
    Up,
    /// Nobody asked it anything since it was last heard: no traffic, no keepalive, or no endpoint to send to.
    Idle,
    /// It was asked and does not answer.
    Down,
}

/// The facts that liveness follows from.
///
/// ```text
///            authenticated packet
///   down ───────────────────────────▶ up
///        ◀───────────────────────────
///          handshakes unanswered for UNANSWERED, or
///          nothing heard for SESSION_LIFETIME and no session left
/// ```
///
/// Somebody who knows better (BFD on the path, an operator before maintenance) may hold the peer down meanwhile; whether it answers
/// is followed on.
#[derive(Debug)]
pub(super) struct Liveness {
    /// The bit that the routing table reads: it answers, and nobody holds it down.
    live: Arc<AtomicBool>,
    answers: bool,
    /// Why it is held down.
    held: Option<Arc<str>>,
    /// The last authenticated packet.
    heard: Option<Instant>,
    /// The first handshake attempt since then.
    attempted: Option<Instant>,
}

impl Liveness {
    pub(super) fn new(live: Arc<AtomicBool>) -> Self {
        Self { live, answers: false, held: None, heard: None, attempted: None }
    }

    /// Holds the peer down for a reason, or no longer.
    pub(super) fn hold_down(&mut self, reason: Option<Arc<str>>) {
        self.held = reason;
        self.publish();
    }

    fn publish(&self) {
        self.live.store(self.answers && self.held.is_none(), Ordering::Relaxed);
    }

    /// Whether it answers, also while it is held down.
    pub(super) fn answers(&self) -> bool {
        self.answers
    }

    /// How long it has been asked in vain; `None`: it answers, or nobody asked it.
    pub(super) fn silence(&self, now: Instant) -> Option<Duration> {
        age(self.attempted, now).filter(|_| !self.answers)
    }

    pub(super) fn state(&self) -> State {
        match (self.answers, self.attempted) {
            _ if self.held.is_some() => State::Down,
            (true, _) => State::Up,
            (false, None) => State::Idle,
            (false, Some(_)) => State::Down,
        }
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = Some(now);
        self.attempted = None;
        if !self.answers {
            self.answers = true;
            self.publish();
        }
    }

    pub(super) fn attempted(&mut self, now: Instant) {
        self.attempted.get_or_insert(now);
    }

    pub(super) fn tick(&mut self, now: Instant, has_session: bool) {
        let unanswered = age(self.attempted, now).is_some_and(|age| age >= UNANSWERED);
        let expired = !has_session && age(self.heard, now).is_none_or(|age| age >= SESSION_LIFETIME);
        if self.answers && (unanswered || expired) {
            self.answers = false;
            self.publish();
        }
    }

    /// When [`Liveness::tick`] may have something to say, if nothing happens before.
    pub(super) fn deadline(&self, has_session: bool) -> Option<Instant> {
        if !self.answers {
            return None;
        }
        let unanswered = self.attempted.and_then(|at| at.checked_add(UNANSWERED));
        let expired = self.heard.filter(|_| !has_session).and_then(|at| at.checked_add(SESSION_LIFETIME));
        [unanswered, expired].into_iter().flatten().min()
    }

    /// No stamp may be in the future, which happens when the clock goes back.
    pub(super) fn rebase(&mut self, now: Instant) {
        [&mut self.heard, &mut self.attempted].into_iter().flatten().for_each(|at| *at = now.min(*at));
    }

    /// One clause for a person: "no handshake reply for 12 s from 192.0.2.2:51820".
    pub(super) fn reason(&self, now: Instant, endpoint: Option<SocketAddr>) -> String {
        if let Some(held) = &self.held {
            return format!("held down: {held}");
        }
        let heard = age(self.heard, now).map(|age| age.as_secs());
        match (endpoint, age(self.attempted, now), heard) {
            (_, _, Some(seconds)) if self.answers => format!("heard {seconds} s ago"),
            (Some(endpoint), Some(age), _) => {
                format!("no handshake reply for {} s from {endpoint}", age.as_secs())
            }
            (_, _, Some(seconds)) => format!("session expired: nothing heard for {seconds} s"),
            (Some(endpoint), None, None) => {
                format!("nothing sent yet to {endpoint}: no traffic and no persistent_keepalive")
            }
            (None, _, None) => "no endpoint: waiting for the peer to call".into(),
        }
    }
}

fn age(since: Option<Instant>, now: Instant) -> Option<Duration> {
    since.map(|since| now.saturating_duration_since(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn life_of_a_peer() {
        let live = Arc::new(AtomicBool::new(false));
        let mut peer = Liveness::new(Arc::clone(&live));
        let start = Instant::now();
        let endpoint: Option<SocketAddr> = Some("192.0.2.2:51820".parse().unwrap());
        assert_eq!(peer.reason(start, None), "no endpoint: waiting for the peer to call");
        assert!(peer.reason(start, endpoint).starts_with("nothing sent yet to 192.0.2.2:51820"));
        assert_eq!(peer.state(), State::Idle);
        peer.attempted(start);
        peer.attempted(start + seconds(5));
        assert_eq!(peer.state(), State::Down);
        assert_eq!(peer.silence(start + seconds(12)), Some(seconds(12)));
        assert_eq!(
            peer.reason(start + seconds(12), endpoint),
            "no handshake reply for 12 s from 192.0.2.2:51820"
        );
        peer.heard(start + seconds(13));
        assert!(live.load(Ordering::Relaxed));
        assert_eq!(peer.state(), State::Up);
        assert_eq!(peer.reason(start + seconds(14), endpoint), "heard 1 s ago");

        peer.attempted(start + seconds(100));
        assert_eq!(peer.silence(start + seconds(110)), None);
        peer.tick(start + seconds(114), true);
        assert!(peer.live.load(Ordering::Relaxed));
        peer.tick(start + seconds(115), true);
        assert!(!peer.live.load(Ordering::Relaxed));
        assert_eq!(
            peer.reason(start + seconds(120), endpoint),
            "no handshake reply for 20 s from 192.0.2.2:51820"
        );

        peer.heard(start + seconds(200));
        peer.tick(start + seconds(500), true);
        assert!(peer.live.load(Ordering::Relaxed));
        peer.tick(start + seconds(379), false);
        assert!(peer.live.load(Ordering::Relaxed));
        peer.tick(start + seconds(380), false);
        assert!(!peer.live.load(Ordering::Relaxed));
        assert_eq!(peer.reason(start + seconds(400), endpoint), "session expired: nothing heard for 200 s");
    }

    #[test]
    fn whoever_holds_a_peer_down_has_the_last_word() {
        let live = Arc::new(AtomicBool::new(false));
        let mut peer = Liveness::new(Arc::clone(&live));
        let (start, is_live) = (Instant::now(), || live.load(Ordering::Relaxed));
        peer.heard(start);
        peer.hold_down(Some("BFD: path down".into()));
        assert!(!is_live());
        assert_eq!(
            (peer.state(), peer.reason(start, None).as_str()),
            (State::Down, "held down: BFD: path down")
        );
        peer.heard(start + seconds(1));
        assert!(!is_live() && peer.answers());
        peer.hold_down(None);
        assert!(is_live());
        // What was learned meanwhile counts afterwards.
        peer.hold_down(Some("maintenance".into()));
        peer.tick(start + seconds(500), false);
        peer.hold_down(None);
        assert!(!is_live());
    }
}
