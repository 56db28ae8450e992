//! Both daemons, and what is done to them.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use isthmus_lab::{netns::Netns, node::Node, probe::UdpEcho, probe::reach, wait};
use isthmusd::tunnel::Offload;
use nix::sys::signal::Signal;

use super::{
    schedule::{Event, Schedule},
    silence::Outages,
    trouble,
};
use crate::{
    contender::Contender,
    rig::{INNER, OUTER, Peer, Rig, Side, stranger},
    sandboxed::note,
    tunnel::{LIMIT, ours},
};

/// How the ends' configurations call each other.
const PEER: &str = "p0";
/// Where the near end is at times.
const ELSEWHERE: &str = "192.0.2.3";
/// How often a thread that waits for the next event looks whether the run is over.
const BREATH: Duration = Duration::from_millis(100);

/// The two nodes on their cable.
pub(super) struct Ends {
    nodes: [Node; 2],
    sides: [Side; 2],
    strangers: Vec<Peer>,
    rig: Rig,
}

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// How often, by kind.
    pub(super) counts: BTreeMap<&'static str, u32>,
    /// What could not be done.
    pub(super) troubles: Vec<String>,
}

/// What the events changed so far.
#[derive(Default)]
struct Now {
    /// Which set of other peers the nodes have.
    set: u32,
    off: &'static [Offload],
    elsewhere: bool,
}

impl Ends {
    /// Starts both daemons; each logs below `dir`.
    ///
    /// # Errors
    /// When the kernel refuses a step or a daemon does not start.
    pub(super) fn start(daemon: &Contender, dir: &Path) -> Result<Self> {
        let rig = Rig::build()?;
        let sides = Side::pair(0)?;
        let [near, far] = rig.ends();
        let node = |netns, side| ours::start(daemon, &[], netns, side, dir);
        let nodes = [node(near, &sides[0])?, node(far, &sides[1])?];
        let strangers = (0..3).map(stranger).collect::<Result<_>>()?;
        Ok(Self { nodes, sides, strangers, rig })
    }

    /// Waits until a packet has come back.
    ///
    /// # Errors
    /// When none does in time.
    pub(super) fn wait_for_packets(&self) -> Result<()> {
        let [near, far] = self.namespaces();
        let echo = UdpEcho::start(far, SocketAddr::new(INNER[1].parse()?, 7))?;
        reach(near, echo.address(), LIMIT)
    }

    /// Near and far.
    pub(super) fn namespaces(&self) -> &[Netns; 2] {
        self.rig.ends()
    }

    /// Process numbers, the near one first.
    ///
    /// # Errors
    /// When a daemon is not there.
    pub(super) fn pids(&self) -> Result<[u32; 2]> {
        let pid = |node: &Node| node.pid().context("isthmusd is not running");
        Ok([pid(&self.nodes[0])?, pid(&self.nodes[1])?])
    }

    /// Unix time of the near end's last handshake with the far one, in seconds.
    ///
    /// # Errors
    /// When the near daemon does not answer.
    pub(super) fn last_handshake(&self) -> Result<Option<i64>> {
        let peers = self.nodes[0].peers()?;
        let far =
            peers.into_iter().find(|peer| peer.name == PEER).context("the far end is no peer any more")?;
        Ok(far.last_handshake_at)
    }

    /// Lets the events happen, until the last or until `stop`.
    pub(super) fn undergo(
        &self,
        schedule: &Schedule,
        start: Instant,
        outages: &Outages,
        stop: &AtomicBool,
    ) -> Done {
        let (mut done, mut now) = (Done::default(), Now::default());
        for (time, event) in schedule.events() {
            while start.elapsed() < *time && !stop.load(Ordering::Relaxed) {
                thread::sleep(BREATH.min(time.saturating_sub(start.elapsed())));
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            note(&format!("{:5.0} s: {event}\n", start.elapsed().as_secs_f64()));
            match self.happen(*event, &mut now, outages) {
                Ok(()) => *done.counts.entry(event.kind()).or_default() += 1,
                Err(error) => done.troubles.push(format!("{event}: {error:#}")),
            }
        }
        done
    }

    fn happen(&self, event: Event, now: &mut Now, outages: &Outages) -> Result<()> {
        match event {
            Event::Flap(end, pause) => return self.flap(end, pause, outages),
            Event::Mtu(octets) => {
                return self.namespaces().iter().try_for_each(|netns| netns.set_mtu("eth0", octets));
            }
            Event::Roam => {
                now.elsewhere = !now.elsewhere;
                return self.roam(now.elsewhere);
            }
            Event::Peers => now.set += 1,
            Event::Without(off) => now.off = off,
        }
        self.nodes.iter().zip(&self.sides).try_for_each(|(node, side)| self.reload(node, side, now))
    }

    fn flap(&self, end: usize, pause: Duration, outages: &Outages) -> Result<()> {
        let netns = self.namespaces().get(end).context("there are two ends")?;
        outages.during(|| {
            netns.link_down("eth0")?;
            thread::sleep(pause);
            netns.link_up("eth0")
        })?;
        // It went with the interface.
        if end == 0 { netns.add_default_route(OUTER[1].parse()?) } else { Ok(()) }
    }

    /// The kernel takes the routes with the last address.
    fn roam(&self, elsewhere: bool) -> Result<()> {
        let near = &self.namespaces()[0];
        let (from, to) = if elsewhere { (OUTER[0], ELSEWHERE) } else { (ELSEWHERE, OUTER[0]) };
        near.delete_address(from.parse()?)?;
        near.add_address("eth0", IpNet::new(to.parse()?, 24)?)?;
        near.add_default_route(OUTER[1].parse()?)
    }

    /// The daemon has to say that it took the configuration.
    fn reload(&self, node: &Node, side: &Side, now: &Now) -> Result<()> {
        let mut side = side.clone();
        side.peers.extend(self.others(now.set)?);
        let lines: Vec<String> = now
            .off
            .iter()
            .map(|offload| format!("offload.{} = false", offload.as_str().replace('-', "_")))
            .collect();
        node.write_config(&ours::text(node, &lines, &side)?)?;
        let generation = || -> Result<u64> {
            let config = node.status()?.config.context("no state of the configuration")?;
            ensure!(config.last_error.is_empty(), "refused: {}", config.last_error);
            Ok(config.generation)
        };
        let before = generation()?;
        node.signal(Signal::SIGHUP)?;
        let applied =
            || generation().map(|now| now > before).and_then(|yes| yes.then_some(()).context("not yet"));
        wait::until(&format!("the reload of {}", node.name()), LIMIT, applied)
    }

    /// None, one, the same with another prefix and a second, that one with another prefix and a third.
    fn others(&self, set: u32) -> Result<Vec<Peer>> {
        let elsewhere = |peer: &Peer| Peer { address: moved(peer.address, set), ..peer.clone() };
        let [a, b, c] = self.strangers.as_slice() else { anyhow::bail!("there are three strangers") };
        Ok(match set % 4 {
            0 => Vec::new(),
            1 => vec![a.clone()],
            2 => vec![elsewhere(a), b.clone()],
            _ => vec![elsewhere(b), c.clone()],
        })
    }

    /// What the daemons' processes and logs have to complain of.
    pub(super) fn troubles(&mut self) -> Vec<String> {
        let mut troubles = Vec::new();
        for node in &mut self.nodes {
            troubles.extend(node.ensure_alive().err().map(|error| format!("{error:#}")));
            let log = node.log_text();
            troubles.extend(trouble::in_log(&log).map(|line| format!("{} logged: {line}", node.name())));
        }
        troubles
    }

    /// The ends of both logs.
    pub(super) fn logs(&self) -> String {
        let log = |node: &Node| format!("--- the end of {}'s log:\n{}\n", node.name(), node.log_tail());
        self.nodes.iter().map(log).collect()
    }
}

/// An address in a net of its own for each set.
fn moved(address: IpAddr, set: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() + ((1 + set % 200) << 8)).into(),
        IpAddr::V6(_) => address,
    }
}
