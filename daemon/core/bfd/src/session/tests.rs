use super::*;
use crate::Packet;

mod pair;
mod rules;

pub(super) fn config(tx: u32, rx: u32, multiplier: u8) -> Config {
    Config {
        desired_min_tx: Interval::from_millis(tx),
        required_min_rx: Interval::from_millis(rx),
        multiplier: NonZeroU8::new(multiplier).unwrap(),
    }
}

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
