//! Five hosts, two ways.

use std::{net::Ipv4Addr, path::Path, process::Stdio};

use anyhow::{Result, ensure};
use ipnet::{IpNet, Ipv4Net};
use isthmus_lab::{
    link::veth,
    netns::Netns,
    router::{Kind, Router},
};

use super::config::{self, Extra, SOURCE, SPEAKER_AT_SOURCE};

pub(super) const SPEAKER_ASN: u32 = 4_200_000_000;
/// How many prefixes both routers announce.
pub(super) const PREFIXES: u32 = 1_000;
/// The first of them; each is a /24 behind the one before it.
const FIRST: Ipv4Addr = Ipv4Addr::new(30, 0, 0, 0);
/// All of them are in here.
const COVER: Ipv4Net = Ipv4Net::new_assert(FIRST, 8);
/// The flow's, behind the last prefix.
pub(super) const DESTINATION: Ipv4Addr = Ipv4Addr::from_bits(FIRST.to_bits() + ((PREFIXES - 1) << 8) + 1);

/// A router between the speaker and the destination.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) name: &'static str,
    pub(super) asn: u32,
    /// The speaker's interface to it, and the speaker's address there.
    pub(super) link: &'static str,
    pub(super) speaker: Ipv4Addr,
    pub(super) address: Ipv4Addr,
    /// The number of its network to the destination.
    behind: u8,
}

pub(super) const ROUTERS: [Place; 2] = [
    Place {
        name: "first",
        asn: 4_200_000_001,
        link: "eth1",
        speaker: Ipv4Addr::new(10, 0, 1, 1),
        address: Ipv4Addr::new(10, 0, 1, 2),
        behind: 3,
    },
    Place {
        name: "second",
        asn: 4_200_000_002,
        link: "eth2",
        speaker: Ipv4Addr::new(10, 0, 2, 1),
        address: Ipv4Addr::new(10, 0, 2, 2),
        behind: 4,
    },
];

/// A prefix by its number.
pub(super) fn prefix(number: u32) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from_bits(FIRST.to_bits() + (number << 8)), 24)
}

/// The hosts and both routers; they end with this value.
pub(super) struct Rig {
    pub(super) source: Netns,
    pub(super) speaker: Netns,
    pub(super) destination: Netns,
    pub(super) hosts: [Netns; 2],
    /// The routers' speakers.
    pub(super) first: Router,
    pub(super) second: Router,
}

impl Rig {
    /// Builds it and starts both routers.
    ///
    /// # Errors
    /// When the kernel refuses a step, or a router does not start.
    pub(super) fn build(extra: Extra, dir: &Path) -> Result<Self> {
        let [source, speaker, destination] = ["source", "speaker", "destination"].map(Netns::create);
        let (source, speaker, destination) = (source?, speaker?, destination?);
        let [first, second] = ROUTERS.map(|place| Netns::create(place.name));
        let hosts = [first?, second?];
        veth((&source, "eth0"), (&speaker, "eth0"))?;
        source.add_address("eth0", IpNet::new(SOURCE.into(), 24)?)?;
        speaker.add_address("eth0", IpNet::new(SPEAKER_AT_SOURCE.into(), 24)?)?;
        source.add_default_route(SPEAKER_AT_SOURCE.into())?;
        speaker.forward()?;
        destination.forward()?;
        destination.add_address("lo", IpNet::new(DESTINATION.into(), 32)?)?;
        for (place, host) in ROUTERS.iter().zip(&hosts) {
            join(place, &speaker, host, &destination)?;
        }
        let router = |number: usize| {
            let text = config::router(number, extra);
            Router::start(Kind::Bird, &hosts[number], &dir.join(ROUTERS[number].name), &text)
        };
        let (first, second) = (router(0)?, router(1)?);
        Ok(Self { source, speaker, destination, hosts, first, second })
    }

    /// Drops everything that the first router is sent or sends, so that nobody is told.
    ///
    /// # Errors
    /// When nft does not do it.
    pub(super) fn cut(&self) -> Result<()> {
        let chains = ["input", "forward", "output"]
            .map(|hook| format!("chain {hook} {{ type filter hook {hook} priority 0; policy drop; }}"));
        self.nft(&format!("table ip cut {{\n{}\n}}", chains.join("\n")))
    }

    /// Undoes [`Rig::cut`].
    ///
    /// # Errors
    /// When nft does not do it.
    pub(super) fn heal(&self) -> Result<()> {
        self.nft("delete table ip cut")
    }

    /// Pulls the cable between the speaker and the first router, at the router's end, or puts it in again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn plug(&self, plugged: bool) -> Result<()> {
        let host = &self.hosts[0];
        if !plugged {
            return host.link_down("eth0");
        }
        host.link_up("eth0")
    }

    fn nft(&self, rules: &str) -> Result<()> {
        let mut nft = self.hosts[0].command("nft")?;
        let status = nft.arg(rules).stdin(Stdio::null()).status()?;
        ensure!(status.success(), "nft {rules}: {status}");
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for netns in self.hosts.iter().chain([&self.source, &self.speaker, &self.destination]) {
            // The sandbox takes what is left.
            let _ = netns.clone().delete();
        }
    }
}

fn join(place: &Place, speaker: &Netns, host: &Netns, destination: &Netns) -> Result<()> {
    veth((speaker, place.link), (host, "eth0"))?;
    veth((host, "eth1"), (destination, place.name))?;
    host.forward()?;
    let behind = |host: u8| Ipv4Addr::new(10, 0, place.behind, host);
    for (netns, link, address) in [
        (speaker, place.link, place.speaker),
        (host, "eth0", place.address),
        (host, "eth1", behind(1)),
        (destination, place.name, behind(2)),
    ] {
        netns.add_address(link, IpNet::new(address.into(), 24)?)?;
    }
    host.add_route(COVER.into(), behind(2).into())
}
