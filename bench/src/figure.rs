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
    /// From BFD's verdict on a peer to the first packet of its flow at another one, half of them are shorter.
    FailoverBfd,
    /// The same, the longest.
    FailoverBfdMax,
    /// From the first octet of 10,000 announcements to the last of them at the far side of one node.
    Load10k,
    /// The same of 100,000.
    Load100k,
    /// The same of 500,000.
    Load500k,
    /// From the first octet of 10,000 withdrawals to the last of them at the far side.
    Unload10k,
    /// The same of 100,000.
    Unload100k,
    /// The same of 500,000.
    Unload500k,
    /// What 100,000 routes add to the resident set, for each.
    RouteMemory100k,
    /// The same of 500,000.
    RouteMemory500k,
    /// From a withdrawal of 1,000 prefixes to the last of them at a third speaker, half of them are shorter.
    WithdrawSeen,
    /// The same, 99 of 100 are shorter.
    WithdrawSeenP99,
    /// The same, the longest.
    WithdrawSeenMax,
    /// From the first octet of 100,000 announcements to the last of them in the kernel's table.
    KernelInstall,
    /// From the first octet of 100,000 withdrawals to the last of them gone from the kernel's table.
    KernelRemove,
    /// From the last packet before a silent cut to the first by the other path, BFD 300 ms x 3, half of them are shorter.
    Silent300,
    /// The same, 99 of 100 are shorter.
    Silent300P99,
    /// The same, the longest.
    Silent300Max,
    /// As `Silent300` with BFD 100 ms x 3.
    Silent100,
    /// The same, 99 of 100 are shorter.
    Silent100P99,
    /// The same, the longest.
    Silent100Max,
    /// From BFD's word that a path is down to the last of 1,000 kernel routes on the other next hop, half of them are shorter.
    Reaction,
    /// The same, the longest.
    ReactionMax,
    /// From the loss of carrier to the last of 1,000 kernel routes on the other next hop, half of them are shorter.
    Carrier,
    /// The same, the longest.
    CarrierMax,
    /// From the end of the neighbor's process to the last of 1,000 kernel routes on the other next hop, half of them are shorter.
    Killed,
    /// The same, the longest.
    KilledMax,
    /// Packets lost while the neighbor leaves in order.
    LeaveLost,
    /// Packets lost while the speaker is killed and started again, with graceful restart.
    RestartLost,
    /// Sessions that ended while a million prefixes came, on one processor.
    FloodLost,
}

impl Figure {
    /// What a person reads.
    pub(crate) fn title(self) -> &'static str {
        self.words().0
    }

    /// The unit of its numbers.
    pub(crate) fn unit(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Tcp1 => ("TCP 1 stream", "Gb/s"),
            Self::Tcp4 => ("TCP 4 streams", "Gb/s"),
            Self::Tcp4Retransmits => ("TCP 4 streams, retransmits", "per 10 s"),
            Self::TcpReverse => ("TCP reverse", "Gb/s"),
            Self::Udp64 => ("UDP 64 B received", "kpps"),
            Self::Ping => ("ping average", "ms"),
            Self::CpuPerGbit => ("daemon CPU", "s/Gbit"),
            Self::PeakRss => ("peak RSS", "MiB"),
            Self::LoadedPing => ("ping under load, median", "ms"),
            Self::LoadedPingP99 => ("ping under load, p99", "ms"),
            Self::OnePeerTcp => ("TCP 1 stream, 1 peer", "Gb/s"),
            Self::ManyPeersTcp => ("TCP 1 stream, N peers", "Gb/s"),
            Self::ManyPeersRss => ("RSS idle, N peers", "MiB"),
            Self::ManyPeersIdle => ("CPU idle, N peers", "% of a core"),
            Self::Failover => ("failover, median", "ms"),
            Self::FailoverP99 => ("failover, p99", "ms"),
            Self::FailoverMax => ("failover, longest", "ms"),
            Self::FailoverStrays => ("sent to a peer that is down", "packets"),
            Self::FailoverBfd => ("failover after BFD's verdict, median", "ms"),
            Self::FailoverBfdMax => ("failover after BFD's verdict, longest", "ms"),
            Self::Load10k => ("10k prefixes through one node", "ms"),
            Self::Load100k => ("100k prefixes through one node", "ms"),
            Self::Load500k => ("500k prefixes through one node", "ms"),
            Self::Unload10k => ("10k withdrawn", "ms"),
            Self::Unload100k => ("100k withdrawn", "ms"),
            Self::Unload500k => ("500k withdrawn", "ms"),
            Self::RouteMemory100k => ("memory for each of 100k routes", "B"),
            Self::RouteMemory500k => ("memory for each of 500k routes", "B"),
            Self::WithdrawSeen => ("withdrawal of 1k at a third speaker, median", "ms"),
            Self::WithdrawSeenP99 => ("withdrawal of 1k at a third speaker, p99", "ms"),
            Self::WithdrawSeenMax => ("withdrawal of 1k at a third speaker, longest", "ms"),
            Self::KernelInstall => ("100k routes in the kernel", "ms"),
            Self::KernelRemove => ("100k routes out of the kernel", "ms"),
            Self::Silent300 => ("silent cut, BFD 300 ms x 3, median", "ms"),
            Self::Silent300P99 => ("silent cut, BFD 300 ms x 3, p99", "ms"),
            Self::Silent300Max => ("silent cut, BFD 300 ms x 3, longest", "ms"),
            Self::Silent100 => ("silent cut, BFD 100 ms x 3, median", "ms"),
            Self::Silent100P99 => ("silent cut, BFD 100 ms x 3, p99", "ms"),
            Self::Silent100Max => ("silent cut, BFD 100 ms x 3, longest", "ms"),
            Self::Reaction => ("BFD down, 1k kernel routes moved, median", "ms"),
            Self::ReactionMax => ("BFD down, 1k kernel routes moved, longest", "ms"),
            Self::Carrier => ("carrier lost, 1k kernel routes moved, median", "ms"),
            Self::CarrierMax => ("carrier lost, 1k kernel routes moved, longest", "ms"),
            Self::Killed => ("neighbor killed, 1k kernel routes moved, median", "ms"),
            Self::KilledMax => ("neighbor killed, 1k kernel routes moved, longest", "ms"),
            Self::LeaveLost => ("lost while the neighbor is shut down", "packets"),
            Self::RestartLost => ("lost while the speaker is killed and restarted", "packets"),
            Self::FloodLost => ("1M prefixes on one processor, sessions lost", "sessions"),
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
            "per 10 s" | "packets" | "sessions" | "B" => 0,
            _ => 1,
        }
    }
}

/// What one program did, one value a round.
pub(crate) type Samples = BTreeMap<Figure, Vec<f64>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rates_are_better_when_larger() {
        assert!(Figure::Tcp1.more_is_better() && Figure::Udp64.more_is_better());
        for figure in [Figure::Ping, Figure::CpuPerGbit, Figure::PeakRss, Figure::Tcp4Retransmits] {
            assert!(!figure.more_is_better(), "{figure:?}");
        }
    }
}
