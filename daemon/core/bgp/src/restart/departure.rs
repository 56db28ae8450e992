//! How we go so that nobody loses a packet (RFC 8326, RFC 8538).
//!
//! ```text
//!             drain                     time over
//!   Serving ─────────► Draining ────────────────────► Gone
//!      ▲     lower        │               hard reset
//!      └──────────────────┘
//!        resume: restore            leave: from anywhere to Gone;  suspend: to Suspended
//! ```
//! While draining, every route is announced again with GRACEFUL_SHUTDOWN, so that the peers move to other paths while ours still work.
//! Only then do the sessions end, with a Hard Reset: what is kept of us would be kept in vain. A restart is none of this: it ends
//! sessions by [`crate::fsm::Session::suspend`], and leaves the kernel's routes where they are. Neither way is there a way back: no
//! session starts again in this process.

use std::time::Instant;

/// What to do about the routes that we announce, and about the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// Announce everything with GRACEFUL_SHUTDOWN, and with local preference 0 inside the AS.
    Lower,
    /// Announce everything as before.
    Restore,
    /// End every session with a Hard Reset, and take the routes out of the kernel.
    HardReset,
}

/// Where we are on the way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Departure {
    /// Not on the way.
    #[default]
    Serving,
    /// The peers have until then to move away.
    Draining {
        /// When the sessions end.
        until: Instant,
    },
    /// The sessions have ended.
    Gone,
    /// The sessions have ended, and the kernel forwards on.
    Suspended,
}

impl Departure {
    /// An operator wants us to go, when the peers have had until then.
    pub fn drain(&mut self, until: Instant) -> Option<Parting> {
        match self {
            Self::Serving => {
                *self = Self::Draining { until };
                Some(Parting::Lower)
            }
            // A second order changes the time: a person in a hurry says so twice.
            Self::Draining { until: old } => {
                *old = until;
                None
            }
            Self::Gone | Self::Suspended => None,
        }
    }

    /// We go now, for good.
    pub fn leave(&mut self) {
        *self = Self::Gone;
    }

    /// We go now, and come back soon.
    pub fn suspend(&mut self) {
        *self = Self::Suspended;
    }

    /// An operator wants us to stay; too late once we are gone.
    pub fn resume(&mut self) -> Option<Parting> {
        let draining = self.is_draining();
        if draining {
            *self = Self::Serving;
        }
        draining.then_some(Parting::Restore)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Parting> {
        let due = self.poll_timeout().is_some_and(|until| until <= now);
        if due {
            *self = Self::Gone;
        }
        due.then_some(Parting::HardReset)
    }

    /// When to call [`Departure::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Draining { until } => Some(*until),
            Self::Serving | Self::Gone | Self::Suspended => None,
        }
    }

    /// True while routes are to be announced with GRACEFUL_SHUTDOWN.
    pub fn is_draining(&self) -> bool {
        matches!(self, Self::Draining { .. })
    }

    /// True when no session is to start any more.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Gone | Self::Suspended)
    }

    /// True while nothing may be taken out of the kernel, although the sessions are gone.
    pub fn is_suspended(&self) -> bool {
        matches!(self, Self::Suspended)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_event_in_every_state() {
        let now = Instant::now();
        let later = now + Duration::from_secs(5);
        let (serving, gone, suspended) = (Departure::Serving, Departure::Gone, Departure::Suspended);
        let draining = |until| Departure::Draining { until };
        type Act = Box<dyn Fn(&mut Departure) -> Option<Parting>>;
        let drain = || -> Act { Box::new(move |departure| departure.drain(later)) };
        let resume = || -> Act { Box::new(Departure::resume) };
        let time = |at: Instant| -> Act { Box::new(move |departure| departure.handle_timeout(at)) };
        let table = [
            (serving, drain(), draining(later), Some(Parting::Lower)),
            (serving, resume(), serving, None),
            (serving, time(later), serving, None),
            (draining(now), drain(), draining(later), None),
            (draining(now), resume(), serving, Some(Parting::Restore)),
            (draining(later), time(now), draining(later), None),
            (draining(later), time(later), gone, Some(Parting::HardReset)),
            (gone, drain(), gone, None),
            (gone, resume(), gone, None),
            (gone, time(later), gone, None),
            (suspended, drain(), suspended, None),
            (suspended, resume(), suspended, None),
            (suspended, time(later), suspended, None),
        ];
        for (number, (mut state, act, next, parting)) in table.into_iter().enumerate() {
            assert_eq!((act(&mut state), state), (parting, next), "row {number}");
        }
    }
}
