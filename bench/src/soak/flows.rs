//! All traffic of a run.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use isthmus_lab::probe::UdpEcho;

use super::{
    end::Ends,
    silence::{Outages, Silences},
    stream::{self, Connection},
    udp::{self, OneWay, RoundTrips},
};
use crate::rig::INNER;

/// TCP connections.
const CONNECTIONS: u16 = 4;
/// Port of the first one, and of the datagrams and the echo.
const TCP_PORT: u16 = 7100;
const UDP_PORT: u16 = 7200;
const ECHO_PORT: u16 = 7;
const MEGABIT: f64 = 1e6;
/// Longest silence of a flow that needs no outage to explain it.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// What runs.
pub(super) struct Flows {
    connections: Vec<Connection>,
    datagrams: [OneWay; 2],
    round_trips: RoundTrips,
    _echo: UdpEcho,
}

/// One way of a flow, in the end.
#[derive(Debug)]
pub(super) struct Flow<T> {
    /// "TCP 1 there".
    pub(super) name: String,
    /// What came of it.
    pub(super) outcome: T,
    /// Its longest silence but for outages.
    pub(super) unexplained: Duration,
}

/// What came of all.
#[derive(Debug)]
pub(super) struct Outcomes {
    /// Both ways of every connection.
    pub(super) tcp: Vec<Flow<stream::Outcome>>,
    /// There and back.
    pub(super) udp: Vec<Flow<udp::Outcome>>,
    /// Round trips in ms.
    pub(super) round_trips: Vec<f64>,
    /// Echo requests without an answer.
    pub(super) unanswered: u64,
}

impl Flows {
    /// Starts all; the connections carry `rate` Mb/s together.
    ///
    /// # Errors
    /// When one can't be started.
    pub(super) fn start(ends: &Ends, rate: u32, outages: &Arc<Outages>) -> Result<Self> {
        let [near, far] = ends.namespaces();
        let at = |end: usize, port| -> Result<SocketAddr> { Ok(SocketAddr::new(INNER[end].parse()?, port)) };
        let each = f64::from(rate) * MEGABIT / f64::from(CONNECTIONS) / 2.0;
        let connect = |number| Connection::start(near, far, at(1, TCP_PORT + number)?, each);
        let echo = UdpEcho::start(far, at(1, ECHO_PORT)?)?;
        Ok(Self {
            connections: (0..CONNECTIONS).map(connect).collect::<Result<_>>()?,
            datagrams: [
                OneWay::start(near, far, at(1, UDP_PORT)?, outages)?,
                OneWay::start(far, near, at(0, UDP_PORT)?, outages)?,
            ],
            round_trips: RoundTrips::start(near, echo.address())?,
            _echo: echo,
        })
    }

    /// Octets that the connections carried so far.
    pub(super) fn tcp_octets(&self) -> u64 {
        self.connections.iter().map(Connection::received).sum()
    }

    /// Datagrams so far: sent, received.
    pub(super) fn datagrams(&self) -> (u64, u64) {
        let counts = self.datagrams.each_ref().map(OneWay::counts);
        (counts[0].0 + counts[1].0, counts[0].1 + counts[1].1)
    }

    /// Why the run need not go on.
    pub(super) fn broken(&self) -> Option<String> {
        let broken = |(number, connection): (usize, &Connection)| {
            connection.broken().map(|why| format!("TCP {}: {why}", number + 1))
        };
        self.connections.iter().enumerate().find_map(broken)
    }

    /// Ends all, and waits for what is under way.
    pub(super) fn finish(self, outages: &Outages) -> Outcomes {
        self.connections.iter().for_each(Connection::stop);
        let (round_trips, unanswered) = self.round_trips.finish().unwrap_or_default();
        let udp = self.datagrams.into_iter().zip(DIRECTIONS).filter_map(|(flow, direction)| {
            let outcome = flow.finish()?;
            Some(named(format!("UDP {direction}"), outcome, outages))
        });
        let udp = udp.collect();
        let tcp = self.connections.into_iter().enumerate().flat_map(|(number, connection)| {
            let name = move |direction| format!("TCP {} {direction}", number + 1);
            let both = connection.finish().into_iter().zip(DIRECTIONS);
            both.map(move |(outcome, direction)| named(name(direction), outcome, outages))
        });
        Outcomes { tcp: tcp.collect(), udp, round_trips, unanswered }
    }
}

const DIRECTIONS: [&str; 2] = ["there", "back"];

/// What has silences.
pub(super) trait Paused {
    /// Its silences.
    fn silences(&self) -> &Silences;
}

impl Paused for stream::Outcome {
    fn silences(&self) -> &Silences {
        &self.silences
    }
}

impl Paused for udp::Outcome {
    fn silences(&self) -> &Silences {
        &self.silences
    }
}

fn named<T: Paused>(name: String, outcome: T, outages: &Outages) -> Flow<T> {
    let unexplained = outcome.silences().longest_unexplained(outages);
    Flow { name, outcome, unexplained }
}
