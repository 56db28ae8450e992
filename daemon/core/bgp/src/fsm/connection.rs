//! One connection's state and timers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Direction, Negotiated, OPEN_TIMEOUT, State, cause::is_hard};
use crate::{
    ConnectionId,
    wire::{Notification, Open, code},
};

/// The part of the state machine that belongs to a connection.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    OpenSent,
    OpenConfirm(Arc<Negotiated>),
    Established(Arc<Negotiated>),
}

impl Phase {
    pub(super) fn state(&self) -> State {
        match self {
            Self::OpenSent => State::OpenSent,
            Self::OpenConfirm(_) => State::OpenConfirm,
            Self::Established(_) => State::Established,
        }
    }

    /// The state in words.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::OpenSent => "connected, waiting for the peer's OPEN".into(),
            Self::OpenConfirm(_) => "OPEN agreed, waiting for the peer's KEEPALIVE".into(),
            Self::Established(negotiated) if negotiated.hold_time.is_zero() => "no hold time".into(),
            Self::Established(negotiated) => format!("hold time {} s", negotiated.hold_time.as_secs()),
        }
    }

    /// Subcode for a message that has no business here (RFC 6608).
    pub(super) fn unexpected_message(&self) -> u8 {
        match self {
            Self::OpenSent => 1,
            Self::OpenConfirm(_) => 2,
            Self::Established(_) => 3,
        }
    }

    pub(super) fn negotiated(&self) -> Option<&Arc<Negotiated>> {
        match self {
            Self::OpenSent => None,
            Self::OpenConfirm(negotiated) | Self::Established(negotiated) => Some(negotiated),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) direction: Direction,
    pub(super) phase: Phase,
    /// Our OPEN on it.
    pub(super) ours: Open,
    /// It waits for the peer's OPEN, which is not to be seen by a peer that only dialed late.
    pub(super) reserved: bool,
    /// The peer's KEEPALIVE has confirmed our OPEN.
    pub(super) confirmed: bool,
    pub(super) last_heard: Instant,
    pub(super) established_at: Option<Instant>,
    /// Since when the transport has not taken what we want to send.
    pub(super) stalled_since: Option<Instant>,
    /// A KEEPALIVE waits to be sent; a second one would say nothing more.
    pub(super) keepalive_queued: bool,
    opened_at: Instant,
    next_keepalive: Option<Instant>,
}

impl Connection {
    pub(super) fn new(id: ConnectionId, direction: Direction, ours: Open, now: Instant) -> Self {
        Self {
            id,
            direction,
            phase: Phase::OpenSent,
            ours,
            reserved: false,
            confirmed: false,
            last_heard: now,
            established_at: None,
            stalled_since: Some(now),
            keepalive_queued: false,
            opened_at: now,
            next_keepalive: None,
        }
    }

    pub(super) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established(_))
    }

    /// The NOTIFICATION as the peer must get it: what should leave nothing behind is a Hard Reset where both sides know that.
    pub(super) fn last_words(&self, notification: Notification) -> Notification {
        let Phase::Established(negotiated) = &self.phase else { return notification };
        let keeps = negotiated.restart.is_some_and(|restart| restart.notification);
        if keeps && is_hard(&notification) && !notification.is_hard_reset() {
            Notification::hard_reset(&notification)
        } else {
            notification
        }
    }

    /// A KEEPALIVE out of turn: where the peer's end is gone, the answer is a reset. False: one is waiting already.
    pub(super) fn probe(&mut self, now: Instant) -> bool {
        self.stalled_since.get_or_insert(now);
        !std::mem::replace(&mut self.keepalive_queued, true)
    }

    /// The peer's OPEN is good.
    pub(super) fn confirm(&mut self, negotiated: Arc<Negotiated>, now: Instant) {
        self.next_keepalive = (!negotiated.keepalive.is_zero()).then(|| now + negotiated.keepalive);
        self.phase = Phase::OpenConfirm(negotiated);
        self.keepalive_queued = true;
        self.stalled_since.get_or_insert(now);
    }

    pub(super) fn timers(&self) -> impl Iterator<Item = (Instant, &'static str)> {
        let hold = self.hold_deadline().map(|at| (at, "hold timer"));
        let keepalive = self.next_keepalive.map(|at| (at, "keepalive"));
        let send_hold = self.send_hold_deadline().map(|at| (at, "send hold timer"));
        [hold, keepalive, send_hold].into_iter().flatten()
    }

    /// The NOTIFICATION for a timer that ran out, and why in words.
    pub(super) fn expired(&self, now: Instant) -> Option<(ConnectionId, Notification, String)> {
        if self.hold_deadline().is_some_and(|at| at <= now) {
            let why = match self.phase.negotiated() {
                None => format!("no OPEN from the peer for {} s", OPEN_TIMEOUT.as_secs()),
                Some(n) => format!("hold timer expired: nothing heard for {} s", n.hold_time.as_secs()),
            };
            return Some((self.id, Notification::new(code::HOLD_TIMER, 0), why));
        }
        if self.send_hold_deadline().is_some_and(|at| at <= now) {
            let why = "send hold timer expired: the peer reads nothing".into();
            return Some((self.id, Notification::new(code::SEND_HOLD_TIMER, 0), why));
        }
        None
    }

    /// True once for each KEEPALIVE to send.
    pub(super) fn keepalive_due(&mut self, now: Instant) -> bool {
        let Some(at) = self.next_keepalive.filter(|at| *at <= now) else { return false };
        let interval = self.phase.negotiated().map_or(Duration::ZERO, |negotiated| negotiated.keepalive);
        // After a long pause one KEEPALIVE is enough.
        self.next_keepalive = Some((at + interval).max(now + interval / 2));
        self.stalled_since.get_or_insert(now);
        !std::mem::replace(&mut self.keepalive_queued, true)
    }

    fn hold_deadline(&self) -> Option<Instant> {
        match self.phase.negotiated() {
            // Not fed by bytes: a peer that drips them must still come to the point.
            None => Some(self.opened_at + OPEN_TIMEOUT),
            Some(negotiated) if negotiated.hold_time.is_zero() => None,
            Some(negotiated) => Some(self.last_heard + negotiated.hold_time),
        }
    }

    /// RFC 9687 section 3.2: the greater of eight minutes and twice the hold time. KEEPALIVEs are always due again, so a transport
    /// that takes nothing is noticed even when no route changes.
    fn send_hold_deadline(&self) -> Option<Instant> {
        let negotiated = self.phase.negotiated().filter(|negotiated| !negotiated.hold_time.is_zero())?;
        self.stalled_since.map(|since| since + send_hold_time(negotiated.hold_time))
    }
}

/// How long a transport may take nothing, for a hold time that is not zero (RFC 9687 section 3.2).
pub fn send_hold_time(hold_time: Duration) -> Duration {
    Duration::from_secs(480).max(hold_time * 2)
}
