//! Time as an argument.

use std::time::{Duration, Instant};

/// Both clocks, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock: every interval is measured with it.
    pub instant: Instant,
    /// Time since the Unix epoch: handshake timestamps come from it. It may jump either way.
    pub unix: Duration,
}
