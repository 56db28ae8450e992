//! Gateways on one Ethernet, each with a place for a daemon, and the parts of their configuration files.

use std::{
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use boringtun::x25519::{PublicKey, StaticSecret};
use ipnet::IpNet;

use crate::{bins::Bins, files::write_secret, link::veth, netns::Netns, node::Node, probe::Metrics};

/// UDP port of every tunnel.
pub const TUNNEL_PORT: u16 = 51820;

/// Where metrics are read.
const METRICS: &str = "127.0.0.1:9587";

/// Address family, as an index into pairs of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

impl Family {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

/// Some gateways; number `n`, from 1, has the names and addresses that the functions of this module give it.
#[derive(Debug)]
pub struct Mesh {
    nodes: Vec<Node>,
    // After the nodes: their daemons end before their directories go.
    _dir: tempfile::TempDir,
}

impl Mesh {
    /// Makes `count` hosts whose `eth0` are on one bridge, and writes each one's tunnel key.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(count: u8, bins: &Bins) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let hub = Netns::create("hub")?;
        hub.bridge("br0", &[])?;
        let mut nodes = Vec::new();
        for n in 1..=count {
            let netns = attach(&hub, &name(n))?;
            for (address, length) in outer(n).into_iter().zip([24, 64]) {
                netns.add_address("eth0", IpNet::new(address, length)?)?;
            }
            let node = Node::new(&name(n), &netns, dir.path(), bins)?;
            write_secret(
                &node.state_dir().join("tunnel.key"),
                &BASE64_STANDARD.encode(secret(n).as_bytes()),
            )?;
            nodes.push(node);
        }
        Ok(Self { nodes, _dir: dir })
    }

    /// [`Mesh::new`] with a gateway for each configuration, all started and ready within `limit`.
    ///
    /// # Errors
    /// As the parts of it.
    pub fn start(bins: &Bins, limit: Duration, configs: &[&dyn Fn(&Self) -> String]) -> Result<Self> {
        let mut mesh = Self::new(u8::try_from(configs.len())?, bins)?;
        for (n, config) in (1..).zip(configs) {
            let text = config(&mesh);
            mesh.node_mut(n).start(&text)?;
        }
        for (n, _) in (1..).zip(configs) {
            mesh.node_mut(n).wait_ready(limit)?;
        }
        Ok(mesh)
    }

    /// Gateway `n`.
    ///
    /// # Panics
    /// When there is none.
    pub fn node(&self, n: u8) -> &Node {
        &self.nodes[usize::from(n) - 1]
    }

    /// Gateway `n`, to start or stop it.
    ///
    /// # Panics
    /// When there is none.
    pub fn node_mut(&mut self, n: u8) -> &mut Node {
        &mut self.nodes[usize::from(n) - 1]
    }

    /// `[node]`, `[api]` and `[tunnel]` of gateway `n`; peers follow.
    pub fn base(&self, n: u8) -> String {
        let (node, [v4, v6]) = (self.node(n), overlay(n));
        format!("{}\n[tunnel]\naddresses = [\"{v4}/24\", \"{v6}/64\"]\n", node_section(node, None))
    }
}

/// Another host on the bridge of a [`Mesh`], without an address.
///
/// # Errors
/// When the name is taken.
pub fn stranger(name: &str) -> Result<Netns> {
    attach(&Netns::named("hub"), name)
}

fn attach(hub: &Netns, name: &str) -> Result<Netns> {
    let netns = Netns::create(name)?;
    veth((&netns, "eth0"), (hub, name))?;
    hub.enslave(name, "br0")?;
    Ok(netns)
}

/// `gw1`, ...
pub fn name(n: u8) -> String {
    format!("gw{n}")
}

/// Addresses on the Ethernet, both families.
pub fn outer(n: u8) -> [IpAddr; 2] {
    [[192, 0, 2, n].into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, n.into()].into()]
}

/// Addresses in the tunnels, both families.
pub fn overlay(n: u8) -> [IpAddr; 2] {
    [[10, 99, 0, n].into(), [0xfd7a, 0, 0, 0, 0, 0, 0, n.into()].into()]
}

/// Where the gateway's tunnel listens.
pub fn endpoint(n: u8, family: Family) -> SocketAddr {
    SocketAddr::new(outer(n)[family as usize], TUNNEL_PORT)
}

/// The gateway's tunnel key.
pub fn public_key(n: u8) -> String {
    BASE64_STANDARD.encode(PublicKey::from(&secret(n)).as_bytes())
}

/// The other half of [`public_key`].
pub fn secret(n: u8) -> StaticSecret {
    StaticSecret::from([n; 32])
}

/// `[node]` and `[api]` of a daemon in the place that `node` has for it.
pub fn node_section(node: &Node, site: Option<&str>) -> String {
    let site = site.map(|site| format!("site = \"{site}\"\n")).unwrap_or_default();
    format!(
        "[node]\nname = \"{}\"\n{site}state_dir = {:?}\n[api]\nsocket = {:?}\n",
        node.name(),
        node.state_dir(),
        node.socket()
    )
}

/// `[[tunnel.peer]]` for gateway `n`, which owns its overlay addresses; with `family` we know where it is.
pub fn peer(n: u8, family: Option<Family>) -> String {
    let [v4, v6] = overlay(n);
    let mut text = format!(
        "[[tunnel.peer]]\nname = \"{}\"\npublic_key = \"{}\"\nallowed_ips = [\"{v4}/32\", \"{v6}/128\"]\n",
        name(n),
        public_key(n)
    );
    if let Some(family) = family {
        let _ = writeln!(text, "endpoint = \"{}\"", endpoint(n, family));
    }
    text
}

/// `[metrics]`: where [`metrics`] reads.
pub fn metrics_section() -> String {
    format!("[metrics]\nlisten = \"{METRICS}\"\n")
}

/// What a gateway with a [`metrics_section`] counts.
///
/// # Errors
/// When it does not answer.
pub fn metrics(node: &Node) -> Result<Metrics> {
    Metrics::read(node.netns(), METRICS.parse()?)
}

/// `[bgp]` of a gateway in the AS `asn`; neighbors follow.
pub fn bgp(asn: u32, announce: &[&str]) -> String {
    format!("[bgp]\nasn = {asn}\nhold_time = \"3s\"\nannounce = {announce:?}\n")
}

/// `[[bgp.neighbor]]` for gateway `n` in the AS `asn`, over the tunnel.
pub fn neighbor(n: u8, asn: u32) -> String {
    format!(
        "[[bgp.neighbor]]\nname = \"{}\"\naddress = \"{}\"\nasn = {asn}\nimport = \"all\"\nexport = \"all\"\n",
        name(n),
        overlay(n)[0]
    )
}
