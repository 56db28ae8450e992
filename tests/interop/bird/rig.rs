//! Two sites with a host each: ours has one `isthmusd` as its gateway, theirs a foreign tunnel with BIRD beside it.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use isthmus_lab::{
    bins::Bins,
    link::veth,
    netns::Netns,
    node::Node,
    probe::{TcpSink, UdpEcho, reach, send},
    route::KernelRoute,
};
use isthmus_proto::control::BgpNeighbor;
use serde_json::Value;

use super::{
    Bird,
    far_end::{FarEnd, Key, Setup},
    net, write_secret,
};

/// For anything that has to happen: a session's way up takes some seconds, a busy machine takes its time.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);
/// Both need four octets.
pub(crate) const OUR_AS: u32 = 4_200_000_010;
pub(crate) const THEIR_AS: u32 = 4_200_000_020;
const PROTOCOL: u8 = 73;
const BYTES: u64 = 2_000_000;

const OUR_OVERLAY: [&str; 2] = ["10.99.0.1/24", "fd7a::1/64"];
const THEIR_OVERLAY: [&str; 2] = ["10.99.0.2/24", "fd7a::2/64"];
const BEHIND_US: [&str; 4] = ["10.99.0.1/32", "fd7a::1/128", "10.10.0.0/16", "fd10::/48"];

/// What BIRD's routes become in our kernel.
pub(crate) const STEADY: [&str; 2] = [
    "10.20.0.0/16 dev isthmus0 proto 73 src 10.99.0.1 metric 1073",
    "fd20::/48 dev isthmus0 proto 73 src fd7a::1 metric 1073",
];
/// Those of the protocols that a test disables.
pub(crate) const CHANGING: [&str; 2] = [
    "10.21.0.0/16 dev isthmus0 proto 73 src 10.99.0.1 metric 1073",
    "fd21::/48 dev isthmus0 proto 73 src fd7a::1 metric 1073",
];

/// Both, in the order of the kernel's dump.
pub(crate) const ALL: [&str; 4] = [STEADY[0], CHANGING[0], STEADY[1], CHANGING[1]];

/// The family of the session's own addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    V4,
    V6,
}

/// One session to be.
#[derive(Clone, Copy)]
pub(crate) struct Session {
    pub(crate) transport: Transport,
    /// Whom we expect.
    pub(crate) asn: u32,
    /// Whom BIRD expects.
    pub(crate) our_asn: u32,
    /// What we offer, in seconds; BIRD would take more.
    pub(crate) hold_time: u8,
    /// Further lines for our neighbor.
    pub(crate) neighbor: &'static str,
    /// Further words for BIRD's IPv4 channel.
    pub(crate) channel: &'static str,
    /// Further protocols of BIRD.
    pub(crate) protocols: &'static str,
}

impl Session {
    /// One that comes up.
    pub(crate) fn over(transport: Transport) -> Self {
        let (asn, our_asn) = (THEIR_AS, OUR_AS);
        Self { transport, asn, our_asn, hold_time: 9, neighbor: "", channel: "", protocols: "" }
    }

    fn addresses(self) -> [&'static str; 2] {
        match self.transport {
            Transport::V4 => ["10.99.0.1", "10.99.0.2"],
            Transport::V6 => ["fd7a::1", "fd7a::2"],
        }
    }

    fn bird_config(self) -> String {
        let [ours, theirs] = self.addresses();
        format!(
            "router id 10.99.0.2;
log stderr all;
protocol device {{ scan time 1; }}
protocol kernel {{ ipv4 {{ import none; export where source = RTS_BGP; }}; }}
protocol kernel {{ ipv6 {{ import none; export where source = RTS_BGP; }}; }}
protocol static steady4 {{
  ipv4;
  route 10.20.0.0/16 blackhole {{
    bgp_path.prepend(64999);
    bgp_community.add((65020, 7));
    bgp_large_community.add(({THEIR_AS}, 1, 2));
  }};
}}
protocol static steady6 {{
  ipv6;
  route fd20::/48 blackhole {{
    bgp_path.prepend(64999);
    bgp_community.add((65020, 8));
    bgp_large_community.add(({THEIR_AS}, 3, 4));
  }};
}}
protocol static changing4 {{ ipv4; route 10.21.0.0/16 blackhole; }}
protocol static changing6 {{ ipv6; route fd21::/48 blackhole; }}
protocol bgp isthmus {{
  local {theirs} as {THEIR_AS};
  neighbor {ours} as {our_asn};
  hold time 90;
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 4;
  ipv4 {{ import all; export where source = RTS_STATIC; {channel} }};
  ipv6 {{ import all; export where source = RTS_STATIC; }};
}}
{protocols}
",
            our_asn = self.our_asn,
            channel = self.channel,
            protocols = self.protocols,
        )
    }
}

/// The two sites.
pub(crate) struct Rig {
    pub(crate) ours: Node,
    pub(crate) bird: Bird,
    pub(crate) hosts: [Netns; 2],
    pub(crate) dir: tempfile::TempDir,
    _far_end: FarEnd,
}

impl Rig {
    /// Builds and starts everything; the session need not be up when this returns.
    pub(crate) fn start(session: Session, more_neighbors: &str, bins: &Bins) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [ours, theirs, our_host, their_host] =
            ["ours", "theirs", "our-host", "their-host"].map(|name| Netns::create(name).unwrap());
        veth((&ours, "eth0"), (&theirs, "eth0")).unwrap();
        for (netns, address) in [(&ours, "192.0.2.1/24"), (&theirs, "192.0.2.2/24")] {
            netns.forward().unwrap();
            netns.add_address("eth0", net(address)).unwrap();
        }
        lan(&ours, &our_host, ["10.10.0.1/24", "fd10::1/64"], ["10.10.0.100/24", "fd10::100/64"]);
        lan(&theirs, &their_host, ["10.20.0.1/24", "fd20::1/64"], ["10.20.0.100/24", "fd20::100/64"]);
        let [our_key, their_key] = [1, 2].map(Key::new);
        let setup = Setup {
            netns: &theirs,
            addresses: THEIR_OVERLAY,
            key: &their_key,
            peer: &our_key,
            peer_at: SocketAddr::from(([192, 0, 2, 1], 51820)),
            behind_peer: &BEHIND_US,
        };
        let far_end = FarEnd::start(&setup, dir.path(), bins);
        let bird = Bird::start(&theirs, dir.path().join("bird"), &session.bird_config());
        let mut node = Node::new("ours", &ours, dir.path(), bins).unwrap();
        write_secret(&node.state_dir().join("tunnel.key"), &our_key.private());
        node.start(&our_config(session, &node, &their_key, more_neighbors)).unwrap();
        Self { ours: node, bird, hosts: [our_host, their_host], dir, _far_end: far_end }
    }

    /// Waits for a condition; a failure shows both ends' logs.
    pub(crate) fn until<T>(&mut self, what: &str, check: impl Fn(&Node, &Bird) -> Result<T>) -> T {
        let bird = &self.bird;
        let found = self.ours.wait_until(what, LIMIT, |node| check(node, bird));
        found.unwrap_or_else(|error| panic!("{error:#}\n--- BIRD:\n{}", bird.log()))
    }

    /// Waits until the session with BIRD is in order.
    pub(crate) fn wait_established(&mut self) -> BgpNeighbor {
        self.until("the session", |node, _| {
            let neighbor = neighbor(node)?;
            ensure!(neighbor.state == "Established", "{}: {}", neighbor.state, neighbor.state_reason);
            Ok(neighbor)
        })
    }

    /// Waits until our kernel has exactly these routes of ours.
    pub(crate) fn wait_kernel(&mut self, expected: &[&str]) {
        self.until("the kernel routes", |node, _| {
            let routes = node.netns().routes_of(PROTOCOL)?;
            let routes: Vec<String> = routes.iter().map(KernelRoute::to_string).collect();
            ensure!(routes == expected, "there are {routes:#?}");
            Ok(())
        });
    }

    /// Waits until BIRD says something about its side of the session.
    pub(crate) fn wait_bird_says(&mut self, words: &str) {
        self.until(words, |_, bird| {
            let said = bird.ask("show protocols all isthmus")?;
            ensure!(said.contains(words), "{said}");
            Ok(())
        });
    }

    /// Waits until our neighbor's JSON has this text in the field, and returns the neighbor.
    pub(crate) fn wait_neighbor_says(&mut self, field: &str, words: &str) -> Value {
        self.until(&format!("{words:?} as {field}"), |node, _| {
            let neighbor = neighbor_json(node)?;
            ensure!(neighbor[field].as_str().is_some_and(|said| said.contains(words)), "{neighbor:#}");
            Ok(neighbor)
        })
    }

    /// Datagrams and a stream between the two hosts, both families, both ways.
    pub(crate) fn check_traffic(&self) {
        let [ours, theirs] = &self.hosts;
        for (from, to, addresses) in
            [(ours, theirs, ["10.20.0.100", "fd20::100"]), (theirs, ours, ["10.10.0.100", "fd10::100"])]
        {
            for address in addresses {
                let at = SocketAddr::new(address.parse().unwrap(), 7);
                let echo = UdpEcho::start(to, at).unwrap();
                reach(from, echo.address(), LIMIT).unwrap();
                let sink = TcpSink::start(to, at, LIMIT).unwrap();
                assert_eq!(send(from, sink.address(), BYTES, LIMIT).unwrap().bytes, BYTES);
                sink.finish().unwrap();
            }
        }
    }
}

/// Our session with BIRD by the control API.
pub(crate) fn neighbor(node: &Node) -> Result<BgpNeighbor> {
    let mut all = node.bgp_neighbors()?.into_iter();
    anyhow::Context::context(all.find(|neighbor| neighbor.name == "theirs"), "no such neighbor")
}

/// The same as a person's script sees it.
pub(crate) fn neighbor_json(node: &Node) -> Result<Value> {
    let document: Value = serde_json::from_str(&node.ctl_ok(&["-o", "json", "bgp", "neighbors"])?)?;
    ensure!(document["schema"] == "isthmus.v1/bgp-neighbors", "{document}");
    let neighbors = document["neighbors"].as_array().into_iter().flatten();
    let mut named = neighbors.filter(|neighbor| neighbor["name"] == "theirs");
    anyhow::Context::with_context(named.next().cloned(), || format!("no such neighbor in {document}"))
}

fn lan(gateway: &Netns, host: &Netns, gateway_addresses: [&str; 2], host_addresses: [&str; 2]) {
    veth((gateway, "lan"), (host, "eth0")).unwrap();
    for (ours, theirs) in gateway_addresses.map(net).into_iter().zip(host_addresses.map(net)) {
        gateway.add_address("lan", ours).unwrap();
        host.add_address("eth0", theirs).unwrap();
        host.add_default_route(ours.addr()).unwrap();
    }
}

fn our_config(session: Session, node: &Node, their_key: &Key, more_neighbors: &str) -> String {
    let [_, theirs] = session.addresses();
    format!(
        r#"[node]
name = "ours"
state_dir = {state_dir:?}
[api]
socket = {socket:?}
[tunnel]
addresses = {OUR_OVERLAY:?}
[[tunnel.peer]]
name = "theirs"
public_key = "{public_key}"
endpoint = "192.0.2.2:51820"
allowed_ips = ["10.99.0.2/32", "fd7a::2/128"]
[bgp]
asn = {OUR_AS}
hold_time = "{hold_time}s"
announce = ["10.10.0.0/16", "fd10::/48"]
[[bgp.neighbor]]
name = "theirs"
address = "{theirs}"
asn = {asn}
import = "all"
export = "all"
{neighbor}
{more_neighbors}
[fib]
"#,
        state_dir = node.state_dir(),
        socket = node.socket(),
        public_key = their_key.public(),
        hold_time = session.hold_time,
        asn = session.asn,
        neighbor = session.neighbor,
    )
}
