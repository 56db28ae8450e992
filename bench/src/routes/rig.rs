//! The speaker between its two neighbors.

use std::{fs, net::Ipv4Addr, path::Path, time::Duration};

use anyhow::{Context, Result, anyhow};
use ipnet::IpNet;
use isthmus_lab::{
    bins::Bins,
    link::veth,
    netns::Netns,
    node::Node,
    router::{Kind, Router, Scope},
};

use super::{config, session::Ends};
use crate::{
    contender::{Contender, Name},
    process::{Resident, resident},
};

pub(super) const SPEAKER_ASN: u32 = 4_200_000_000;
/// Who announces.
pub(super) const FEEDER: Ends =
    Ends { asn: 4_200_000_001, address: Ipv4Addr::new(10, 0, 1, 2), neighbor: Ipv4Addr::new(10, 0, 1, 1) };
/// Who is told.
pub(super) const READER: Ends =
    Ends { asn: 4_200_000_002, address: Ipv4Addr::new(10, 0, 2, 2), neighbor: Ipv4Addr::new(10, 0, 2, 1) };
/// How long a speaker may take to start.
const START: Duration = Duration::from_secs(20);

/// Three hosts in a row; they end with this value.
pub(super) struct Rig {
    pub(super) feeder: Netns,
    pub(super) speaker: Netns,
    pub(super) reader: Netns,
}

impl Rig {
    /// Builds it.
    ///
    /// # Errors
    /// When the kernel refuses: which step.
    pub(super) fn build() -> Result<Self> {
        let [feeder, speaker, reader] = ["feeder", "speaker", "reader"].map(Netns::create);
        let rig = Self { feeder: feeder?, speaker: speaker?, reader: reader? };
        for (link, netns, ends) in [("eth0", &rig.feeder, FEEDER), ("eth1", &rig.reader, READER)] {
            veth((&rig.speaker, link), (netns, "eth0"))?;
            rig.speaker.add_address(link, IpNet::new(ends.neighbor.into(), 24)?)?;
            netns.add_address("eth0", IpNet::new(ends.address.into(), 24)?)?;
        }
        Ok(rig)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for netns in [&self.feeder, &self.speaker, &self.reader] {
            // The sandbox takes what is left.
            let _ = netns.clone().delete();
        }
    }
}

/// The speaker that is measured; its processes end with the value.
pub(super) enum Subject {
    Ours(Box<Node>),
    Theirs(Router),
}

impl Subject {
    /// Starts it, with the kernel's table or without.
    ///
    /// # Errors
    /// When it does not start: why, and its log.
    pub(super) fn start(contender: &Contender, kernel: bool, netns: &Netns, dir: &Path) -> Result<Self> {
        // What an earlier one left there would be read by this one.
        let _ = fs::remove_dir_all(dir);
        let text = config::text(contender.name, kernel);
        let kind = match contender.name {
            Name::Bird => Kind::Bird,
            Name::Frr => Kind::Frr,
            Name::Gobgp => Kind::Gobgp,
            _ => return Ok(Self::Ours(Box::new(ours(contender, &text, netns, dir)?))),
        };
        let scope = if kernel { Scope::Whole } else { Scope::Bgp };
        Ok(Self::Theirs(Router::start_scoped(kind, scope, netns, dir, &text)?))
    }

    /// The resident sets of all its processes, in octets.
    ///
    /// # Errors
    /// When one is gone.
    pub(super) fn memory(&self) -> Result<f64> {
        let pids = match self {
            Self::Ours(node) => node.pid().into_iter().collect(),
            Self::Theirs(router) => router.pids(),
        };
        let sets = pids.into_iter().map(|pid| resident(pid, Resident::Now));
        Ok(sets.sum::<Result<f64>>()? * f64::from(1 << 20))
    }

    /// `error` with the end of the speaker's log.
    pub(super) fn blame(&self, error: &anyhow::Error) -> anyhow::Error {
        let log = match self {
            Self::Ours(node) => node.log_tail(),
            Self::Theirs(router) => router.log(),
        };
        anyhow!("{error:#}\n--- the speaker's log:\n{log}")
    }
}

fn ours(contender: &Contender, text: &str, netns: &Netns, dir: &Path) -> Result<Node> {
    let beside = |name: &str| contender.path.with_file_name(name);
    let (isthmusctl, isthmus_ca) = (beside("isthmusctl"), beside("isthmus-ca"));
    let bins = Bins { isthmusd: contender.path.clone(), isthmusctl, isthmus_ca };
    let mut node = Node::new("speaker", netns, dir, &bins)?;
    let (state, socket) = (node.state_dir(), node.socket());
    node.write_config(&format!(
        "[node]\nname = \"speaker\"\nstate_dir = {state:?}\n[api]\nsocket = {socket:?}\n{text}"
    ))?;
    node.restart()?;
    node.wait_until("an answer", START, |node| node.status().map(drop)).context("starting isthmusd")?;
    Ok(node)
}
