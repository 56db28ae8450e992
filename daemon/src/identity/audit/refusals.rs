//! Refusals cost the requester nothing, so it could fill the disk with them: after the first ones of a while they are counted.

use std::time::{Duration, Instant};

/// So many are written one by one...
const BURST: u32 = 100;
/// ...in each such time; the others are told of in one record behind it.
const PERIOD: Duration = Duration::from_secs(10);

/// Decides which refusals are written one by one.
#[derive(Debug, Default)]
pub(super) struct Cap {
    period: Option<Instant>,
    written: u32,
    suppressed: u64,
}

impl Cap {
    /// May this one be written? If not, it is counted.
    pub(super) fn pass(&mut self, now: Instant) -> bool {
        if self.period.is_none_or(|start| now.saturating_duration_since(start) >= PERIOD) {
            (self.period, self.written) = (Some(now), 0);
        }
        let pass = self.written < BURST;
        if pass {
            self.written += 1;
        } else {
            self.suppressed += 1;
        }
        pass
    }

    /// How many were not written since this was asked last.
    pub(super) fn take_suppressed(&mut self) -> u64 {
        std::mem::take(&mut self.suppressed)
    }

    /// They could not be told of: later, then.
    pub(super) fn put_back(&mut self, suppressed: u64) {
        self.suppressed += suppressed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hundred_of_ten_seconds_are_written() {
        let (mut cap, now) = (Cap::default(), Instant::now());
        let passed = |cap: &mut Cap, at| (0..150).filter(|_| cap.pass(at)).count();
        assert_eq!((passed(&mut cap, now), cap.take_suppressed(), cap.take_suppressed()), (100, 50, 0));
        assert_eq!(passed(&mut cap, now + PERIOD / 2), 0);
        assert_eq!((passed(&mut cap, now + PERIOD), cap.take_suppressed()), (100, 200));
    }
}
