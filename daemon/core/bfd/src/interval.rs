//! Times as BFD writes them.

use std::time::Duration;

/// A time in whole microseconds, zero to about 71 minutes (RFC 5880 section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(u32);

impl Interval {
    /// Transmission is not faster than this while a session is not Up (RFC 5880 section 6.8.3).
    pub const SECOND: Self = Self(1_000_000);

    /// From microseconds.
    pub const fn from_micros(micros: u32) -> Self {
        Self(micros)
    }

    /// From milliseconds; what is too long becomes the longest there is.
    pub const fn from_millis(millis: u32) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// In microseconds.
    pub const fn as_micros(self) -> u32 {
        self.0
    }

    /// As a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0 as u64)
    }

    /// True for zero, which says "do not send" in the fields for what is received.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<Duration> for Interval {
    /// Parts of a microsecond are dropped; what is too long becomes the longest there is.
    fn from(duration: Duration) -> Self {
        Self(u32::try_from(duration.as_micros()).unwrap_or(u32::MAX))
    }
}
