//! A tunnel program at each end of a [`Rig`], configured and carrying packets.

mod foreign;
pub(crate) mod ours;

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context, Result};
use isthmus_lab::{
    node::Node,
    probe::{UdpEcho, reach},
};

use self::foreign::Foreign;
use crate::{
    contender::{Contender, Name},
    iperf::Between,
    rig::{INNER, Rig, Side},
};

/// How long a program may take to come up, and a first packet to come back.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Both daemons and what they run in. Everything ends with this value.
pub(crate) struct Tunnel<'a> {
    daemons: Vec<Daemon>,
    dir: &'a Path,
    rig: Rig,
}

enum Daemon {
    Ours(Node),
    Foreign(Foreign),
}

impl<'a> Tunnel<'a> {
    /// Starts `contender` at both ends, the near one with `strangers` more peers; `config` is added to the section `[tunnel]` of our own daemon.
    ///
    /// # Errors
    /// When a program does not start: which, and the end of its log.
    pub(crate) fn start(
        contender: &Contender,
        config: &[String],
        strangers: u32,
        dir: &'a Path,
    ) -> Result<Self> {
        let rig = Rig::build()?;
        let mut tunnel = Self { daemons: Vec::new(), dir, rig };
        for side in Side::pair(strangers)? {
            let netns = &tunnel.rig.ends()[side.index];
            let daemon = match contender.name {
                Name::Isthmus => Daemon::Ours(ours::start(contender, config, netns, &side, dir)?),
                _ => Daemon::Foreign(Foreign::start(contender, netns, &side, dir)?),
            };
            tunnel.daemons.push(daemon);
        }
        Ok(tunnel)
    }

    /// Waits until a packet from the near end has come back.
    ///
    /// # Errors
    /// When none does in time.
    pub(crate) fn wait_for_packets(&self) -> Result<()> {
        let [near, far] = self.rig.ends();
        let echo = UdpEcho::start(far, SocketAddr::new(INNER[1].parse()?, 7))?;
        reach(near, echo.address(), LIMIT)
    }

    /// Process numbers of the daemons, the near one first.
    pub(crate) fn pids(&self) -> Result<Vec<u32>> {
        let pids = self.daemons.iter().map(|daemon| match daemon {
            Daemon::Ours(node) => node.pid().context("isthmusd is not running"),
            Daemon::Foreign(foreign) => Ok(foreign.pid()),
        });
        pids.collect()
    }

    /// From the near end through the tunnel to the far one.
    pub(crate) fn between(&self) -> Between<'_> {
        let [client, server] = self.rig.ends();
        Between { client, server, address: INNER[1], dir: self.dir }
    }

    /// `error` with the end of both logs.
    pub(crate) fn blame(&self, error: &anyhow::Error) -> anyhow::Error {
        let mut text = format!("{error:#}");
        for daemon in &self.daemons {
            let log = match daemon {
                Daemon::Ours(node) => format!("{}:\n{}", node.log().display(), node.log_tail()),
                Daemon::Foreign(foreign) => foreign.log_tail(),
            };
            text.push_str(&format!("\n--- the end of {log}"));
        }
        anyhow::Error::msg(text)
    }
}
