//! `bfd = { interval = "300ms", multiplier = 3 }`, wherever it stands.

use std::{num::NonZeroU8, time::Duration};

use serde::Deserialize;
use toml::Spanned;

use super::Checker;

/// How a path is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bfd {
    /// Packets are sent, and taken, this often at most: 10 ms..=60 s. The slower side decides.
    pub interval: Duration,
    /// Packets in a row that have to be missing before the path is down.
    pub multiplier: NonZeroU8,
    /// The other end is several hops away (RFC 5883); `None`: wherever it is not reached over a tunnel, it is one hop away.
    pub multihop: bool,
}

/// Safe on busy machines and under a container's CPU quota; 100 ms is for machines of their own.
const INTERVAL: Duration = Duration::from_millis(300);
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
const MULTIPLIER: NonZeroU8 = NonZeroU8::new(3).expect("three is not zero");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBfd {
    interval: Option<Spanned<String>>,
    multiplier: Option<Spanned<i64>>,
    multihop: Option<bool>,
}

impl RawBfd {
    /// `far`: whether the path has several hops, where the file does not say.
    pub(crate) fn check(&self, c: &mut Checker<'_>, far: bool) -> Option<Bfd> {
        let interval = self.interval.as_ref().map_or(Some(INTERVAL), |raw| c.duration(raw, INTERVALS));
        let multiplier = self.multiplier.as_ref().map_or(Some(MULTIPLIER), |raw| check_multiplier(c, raw));
        Some(Bfd { interval: interval?, multiplier: multiplier?, multihop: self.multihop.unwrap_or(far) })
    }
}

fn check_multiplier(c: &mut Checker<'_>, raw: &Spanned<i64>) -> Option<NonZeroU8> {
    let multiplier = u8::try_from(*raw.get_ref()).ok().and_then(NonZeroU8::new);
    let help = "use 1 to 255; with 3, a path is down when three packets in a row are missing";
    c.require(multiplier.is_some(), raw, "this multiplier is out of range", help);
    multiplier
}
