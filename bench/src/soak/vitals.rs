//! The memory of both daemons, and how often they renewed their keys.

use std::time::Duration;

use anyhow::Result;

use super::end::Ends;
use crate::process::{Resident, resident};

/// How long a daemon may take to have everything that it will ever need.
const WARM_UP: Duration = Duration::from_secs(120);
/// In a short run it is this share.
const WARM_UP_SHARE: u32 = 4;
/// Two times of the same handshake may differ by a second, as they are rounded.
const ROUNDING: i64 = 2;
const HOUR: f64 = 3600.0;

/// What was seen so far.
pub(super) struct Vitals {
    warm_up: Duration,
    /// Near, far.
    resident: [Vec<(Duration, f64)>; 2],
    handshake: Option<i64>,
    rekeys: u32,
}

/// What was seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// Near, far.
    pub(super) memory: [Memory; 2],
    /// Handshakes after the first.
    pub(super) rekeys: u32,
}

/// A daemon's resident set over the run, in MiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Memory {
    /// At the start.
    pub(super) start: f64,
    /// After the warm-up.
    pub(super) warm: f64,
    /// In the end.
    pub(super) end: f64,
    /// The most.
    pub(super) peak: f64,
    /// Of the line through everything after the warm-up, in MiB an hour.
    pub(super) slope: f64,
}

impl Vitals {
    /// Before any traffic; the run will take this long.
    ///
    /// # Errors
    /// When a daemon is not there.
    pub(super) fn start(ends: &Ends, length: Duration) -> Result<Self> {
        let warm_up = WARM_UP.min(length / WARM_UP_SHARE);
        let handshake = ends.last_handshake()?;
        let mut vitals = Self { warm_up, resident: [Vec::new(), Vec::new()], handshake, rekeys: 0 };
        vitals.sample(ends, Duration::ZERO)?;
        Ok(vitals)
    }

    /// Looks at both, `elapsed` after the start.
    ///
    /// # Errors
    /// When a daemon is not there or does not answer.
    pub(super) fn sample(&mut self, ends: &Ends, elapsed: Duration) -> Result<()> {
        for (samples, pid) in self.resident.iter_mut().zip(ends.pids()?) {
            samples.push((elapsed, resident(pid, Resident::Now)?));
        }
        let handshake = ends.last_handshake()?;
        if is_newer(handshake, self.handshake) {
            self.rekeys += 1;
            self.handshake = handshake;
        }
        Ok(())
    }

    /// The resident sets of this moment, and the handshakes after the first.
    pub(super) fn now(&self) -> ([f64; 2], u32) {
        let last = |samples: &Vec<(Duration, f64)>| samples.last().map_or(0.0, |(_, mebibytes)| *mebibytes);
        (self.resident.each_ref().map(last), self.rekeys)
    }

    /// All of it.
    pub(super) fn finish(self) -> Seen {
        Seen { memory: self.resident.map(|samples| Memory::of(&samples, self.warm_up)), rekeys: self.rekeys }
    }
}

fn is_newer(handshake: Option<i64>, before: Option<i64>) -> bool {
    match (handshake, before) {
        (Some(now), Some(before)) => now > before + ROUNDING,
        (now, before) => now.is_some() && before.is_none(),
    }
}

impl Memory {
    fn of(samples: &[(Duration, f64)], warm_up: Duration) -> Self {
        let value = |sample: Option<&(Duration, f64)>| sample.map_or(0.0, |(_, mebibytes)| *mebibytes);
        let (start, end) = (value(samples.first()), value(samples.last()));
        let after = &samples[samples.partition_point(|(elapsed, _)| *elapsed < warm_up)..];
        let peak = samples.iter().map(|(_, mebibytes)| *mebibytes).fold(0.0, f64::max);
        Self { start, warm: value(after.first().or(samples.last())), end, peak, slope: slope(after) * HOUR }
    }
}

/// Of the line with the least squares, a second.
fn slope(samples: &[(Duration, f64)]) -> f64 {
    let count = samples.len() as f64;
    let mean = |of: &dyn Fn(&(Duration, f64)) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (middle, level) = (mean(&|sample| sample.0.as_secs_f64()), mean(&|sample| sample.1));
    let (mut both, mut square) = (0.0, 0.0);
    for (elapsed, mebibytes) in samples {
        let distance = elapsed.as_secs_f64() - middle;
        both += distance * (mebibytes - level);
        square += distance * distance;
    }
    if square > 0.0 { both / square } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: impl Fn(u32) -> f64) -> Vec<(Duration, f64)> {
        (0..=1800).map(|second| (Duration::from_secs(second.into()), of(second))).collect()
    }

    #[test]
    fn growth_after_the_warm_up_is_what_counts() {
        let grown = samples(|second| 10.0 + f64::from(second.min(60)) + f64::from(second) / 900.0);
        let memory = Memory::of(&grown, WARM_UP);
        assert!((memory.slope - 4.0).abs() < 1e-6, "{memory:?}");
        assert_eq!((memory.start, memory.end, memory.peak), (10.0, 72.0, 72.0));
        assert!((memory.warm - (70.0 + 120.0 / 900.0)).abs() < 1e-9, "{memory:?}");
        let flat = Memory::of(&samples(|second| if second == 500 { 30.0 } else { 20.0 }), WARM_UP);
        assert_eq!((flat.warm, flat.end, flat.peak), (20.0, 20.0, 30.0));
        assert!(flat.slope.abs() < 0.1);
        assert_eq!(Memory::of(&[(Duration::ZERO, 5.0)], WARM_UP).warm, 5.0);
    }

    #[test]
    fn a_second_of_rounding_is_no_handshake() {
        assert!(is_newer(Some(100), None) && is_newer(Some(220), Some(100)));
        assert!(!is_newer(Some(101), Some(100)) && !is_newer(None, Some(100)) && !is_newer(None, None));
    }
}
