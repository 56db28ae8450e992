//! The timestamp of an initiation: TAI64N, big-endian, so that later is greater (WireGuard paper, section 5.4.2).

use std::time::Duration;

/// TAI64 label of 1970-01-01 00:00:10 TAI, the start of Unix time.
const EPOCH: u64 = (1 << 62) + 10;

/// Seconds and nanoseconds.
pub(crate) type Timestamp = [u8; 12];

/// Our side's timestamps: each greater than all before, whatever the wall clock does.
#[derive(Debug, Default)]
pub(crate) struct Stamper {
    last: Duration,
}

impl Stamper {
    /// A timestamp of about `unix`, time since the Unix epoch.
    pub(crate) fn stamp(&mut self, unix: Duration) -> Timestamp {
        self.last = unix.max(self.last.saturating_add(Duration::from_nanos(1)));
        encode(self.last)
    }
}

fn encode(unix: Duration) -> Timestamp {
    let mut stamp = [0; 12];
    stamp[..8].copy_from_slice(&EPOCH.saturating_add(unix.as_secs()).to_be_bytes());
    stamp[8..].copy_from_slice(&unix.subsec_nanos().to_be_bytes());
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_and_format() {
        assert_eq!(encode(Duration::new(1, 2)), [0x40, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 2]);
        assert!(encode(Duration::new(1, 999_999_999)) < encode(Duration::new(2, 0)));
    }

    #[test]
    fn they_grow_even_if_the_clock_goes_back() {
        let mut stamper = Stamper::default();
        let clock = [100, 100, 40, 0, 99, 101].map(Duration::from_secs);
        let stamps: Vec<Timestamp> = clock.map(|unix| stamper.stamp(unix)).to_vec();
        assert!(stamps.is_sorted_by(|a, b| a < b));
        assert_eq!(stamps[5], encode(clock[5]));
        stamper.stamp(Duration::MAX);
        stamper.stamp(Duration::MAX);
    }
}
