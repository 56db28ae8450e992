//! What is measured, in which unit, and what of it makes a figure of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One quantity, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// Goodput of one TCP stream.
    Tcp1,
    /// Goodput of four TCP streams together.
    Tcp4,
    /// Segments that the four senders sent again.
    Tcp4Retransmits,
    /// Goodput of one TCP stream from the far end to the near one.
    TcpReverse,
    /// Datagrams of 64 octets that arrived while the sender sent all it could.
    Udp64,
    /// Round trip on an idle tunnel.
    Ping,
    /// Processor time of both daemons for a gigabit of one TCP stream.
    CpuPerGbit,
    /// Peak resident set of the larger of the two daemons, after all loads.
    PeakRss,
    /// Round trip while one TCP stream runs, half of them are shorter.
    LoadedPing,
    /// Round trip while one TCP stream runs, 99 of 100 are shorter.
    LoadedPingP99,
    /// Goodput of one TCP stream where there is one peer.
    OnePeerTcp,
    /// Goodput of one TCP stream to one peer of many.
    ManyPeersTcp,
    /// Resident set of an idle daemon with many peers.
    ManyPeersRss,
    /// Processor time of an idle daemon with many peers.
    ManyPeersIdle,
    /// From the mark of a peer as down to the first packet of its flow at another one, half of them are shorter.
    Failover,
    /// The same, 99 of 100 are shorter.
    FailoverP99,
    /// The same, the longest.
    FailoverMax,
    /// Packets that were sent after the mark and went to the marked peer nevertheless, over all repetitions.
    FailoverStrays,
}

impl Figure {
    /// What a person reads.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Tcp1 => "TCP 1 stream",
            Self::Tcp4 => "TCP 4 streams",
            Self::Tcp4Retransmits => "TCP 4 streams, retransmits",
            Self::TcpReverse => "TCP reverse",
            Self::Udp64 => "UDP 64 B received",
            Self::Ping => "ping average",
            Self::CpuPerGbit => "daemon CPU",
            Self::PeakRss => "peak RSS",
            Self::LoadedPing => "ping under load, median",
            Self::LoadedPingP99 => "ping under load, p99",
            Self::OnePeerTcp => "TCP 1 stream, 1 peer",
            Self::ManyPeersTcp => "TCP 1 stream, N peers",
            Self::ManyPeersRss => "RSS idle, N peers",
            Self::ManyPeersIdle => "CPU idle, N peers",
            Self::Failover => "failover, median",
            Self::FailoverP99 => "failover, p99",
            Self::FailoverMax => "failover, longest",
            Self::FailoverStrays => "sent to a peer that is down",
        }
    }

    /// The unit of its numbers.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Tcp1 | Self::Tcp4 | Self::TcpReverse | Self::OnePeerTcp | Self::ManyPeersTcp => "Gb/s",
            Self::Tcp4Retransmits => "per 10 s",
            Self::Udp64 => "kpps",
            Self::Ping
            | Self::LoadedPing
            | Self::LoadedPingP99
            | Self::Failover
            | Self::FailoverP99
            | Self::FailoverMax => "ms",
            Self::FailoverStrays => "packets",
            Self::CpuPerGbit => "s/Gbit",
            Self::PeakRss | Self::ManyPeersRss => "MiB",
            Self::ManyPeersIdle => "% of a core",
        }
    }

    /// Is more of it better?
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self.unit(), "Gb/s" | "kpps")
    }

    /// Digits behind the point that mean something.
    pub(crate) fn decimals(self) -> usize {
        match self.unit() {
            "Gb/s" | "s/Gbit" | "% of a core" => 2,
            "ms" => 3,
            "per 10 s" | "packets" => 0,
            _ => 1,
        }
    }
}

/// What one program did, one value a round.
pub(crate) type Samples = BTreeMap<Figure, Vec<f64>>;

/// What the rounds come to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Half of the rounds were below.
    pub(crate) median: f64,
    /// The lowest round.
    pub(crate) min: f64,
    /// The highest round.
    pub(crate) max: f64,
}

impl Summary {
    /// `None` of no values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let (min, max) = (quantile(values, 0.0)?, quantile(values, 1.0)?);
        Some(Self { median: quantile(values, 0.5)?, min, max })
    }
}

/// The value below which `share` (0 to 1) of the values lie, interpolated between neighbours; `None` of no values.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * sorted.len().checked_sub(1)? as f64;
    let below = (0..sorted.len()).rev().find(|index| *index as f64 <= place)?;
    let next = sorted.get(below + 1).unwrap_or(&sorted[below]);
    Some(sorted[below] + (next - sorted[below]) * (place - below as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_lie_in_the_middle() {
        for (values, median, min, max) in [
            (&[3.0][..], 3.0, 3.0, 3.0),
            (&[4.0, 1.0], 2.5, 1.0, 4.0),
            (&[9.0, 1.0, 2.0], 2.0, 1.0, 9.0),
            (&[1.0, 1.0, 8.0, 2.0], 1.5, 1.0, 8.0),
        ] {
            assert_eq!(Summary::of(values), Some(Summary { median, min, max }), "{values:?}");
        }
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn quantiles_are_interpolated() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&[0.0, 10.0], 0.99), Some(9.9));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn only_rates_are_better_when_larger() {
        assert!(Figure::Tcp1.more_is_better() && Figure::Udp64.more_is_better());
        for figure in [Figure::Ping, Figure::CpuPerGbit, Figure::PeakRss, Figure::Tcp4Retransmits] {
            assert!(!figure.more_is_better(), "{figure:?}");
        }
    }
}
