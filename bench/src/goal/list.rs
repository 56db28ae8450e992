//! All of them.

use super::{
    Bound::{Fixed, Plus, Times},
    Goal,
};
use crate::{
    contender::Name::{Bird, BoringtunCli, WireguardGo},
    figure::Figure,
};

pub(super) const GOALS: [Goal; 27] = [
    Goal { figure: Figure::Tcp1, least: Times(WireguardGo, 1.5), aim: Times(WireguardGo, 2.0) },
    Goal { figure: Figure::Tcp4, least: Times(WireguardGo, 1.8), aim: Times(WireguardGo, 2.5) },
    Goal { figure: Figure::Tcp4Retransmits, least: Plus(WireguardGo, 50.0), aim: Fixed(0.0) },
    Goal { figure: Figure::TcpReverse, least: Times(WireguardGo, 1.5), aim: Times(WireguardGo, 2.0) },
    Goal { figure: Figure::Udp64, least: Times(WireguardGo, 2.2), aim: Times(WireguardGo, 4.0) },
    Goal { figure: Figure::Ping, least: Times(BoringtunCli, 1.0), aim: Times(BoringtunCli, 0.7) },
    Goal { figure: Figure::CpuPerGbit, least: Times(WireguardGo, 0.6), aim: Times(WireguardGo, 0.4) },
    Goal { figure: Figure::PeakRss, least: Fixed(64.0), aim: Fixed(24.0) },
    Goal { figure: Figure::ManyPeersRss, least: Fixed(100.0), aim: Fixed(40.0) },
    Goal { figure: Figure::ManyPeersIdle, least: Fixed(1.0), aim: Fixed(0.2) },
    Goal { figure: Figure::Failover, least: Fixed(1.0), aim: Fixed(0.1) },
    Goal { figure: Figure::FailoverStrays, least: Fixed(0.0), aim: Fixed(0.0) },
    Goal { figure: Figure::FailoverBfd, least: Fixed(5.0), aim: Fixed(0.2) },
    // Through one node; what is aimed at is BIRD in the same run.
    Goal { figure: Figure::Load10k, least: Fixed(40.0), aim: Fixed(20.0) },
    Goal { figure: Figure::Load100k, least: Fixed(250.0), aim: Times(Bird, 1.0) },
    Goal { figure: Figure::Unload100k, least: Fixed(80.0), aim: Times(Bird, 1.0) },
    Goal { figure: Figure::RouteMemory100k, least: Fixed(200.0), aim: Fixed(130.0) },
    Goal { figure: Figure::WithdrawSeenP99, least: Fixed(3.0), aim: Fixed(0.7) },
    Goal { figure: Figure::KernelInstall, least: Fixed(1260.0), aim: Fixed(800.0) },
    // A path that dies, a neighbor that leaves, a speaker that comes back.
    Goal { figure: Figure::Silent300P99, least: Fixed(950.0), aim: Fixed(900.0) },
    Goal { figure: Figure::Silent100P99, least: Fixed(320.0), aim: Fixed(300.0) },
    // BIRD is the faster of the two rivals; what the goal is about is the data plane, by FailoverBfd.
    Goal { figure: Figure::Reaction, least: Times(Bird, 1.0), aim: Fixed(5.0) },
    Goal { figure: Figure::Carrier, least: Fixed(20.0), aim: Fixed(5.0) },
    Goal { figure: Figure::CarrierMax, least: Fixed(50.0), aim: Fixed(50.0) },
    Goal { figure: Figure::LeaveLost, least: Fixed(0.0), aim: Fixed(0.0) },
    Goal { figure: Figure::RestartLost, least: Fixed(0.0), aim: Fixed(0.0) },
    Goal { figure: Figure::FloodLost, least: Fixed(0.0), aim: Fixed(0.0) },
];
