//! A foreign WireGuard at the other end of a tunnel of a real `isthmusd`, and what has to hold between the two.

use std::{
    fs,
    io::Write,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use boringtun::x25519::{PublicKey, StaticSecret};
use ipnet::IpNet;
use isthmus_lab::{
    bins::Bins,
    link::veth,
    mesh::{metrics, metrics_section},
    netns::Netns,
    node::Node,
    peers::installed,
    probe::{TcpSink, UdpEcho, reach, send},
    sandbox, wait,
};

const LIMIT: Duration = Duration::from_secs(15);
/// Long enough for two handshake attempts.
const SILENCE: Duration = Duration::from_secs(7);
const BYTES: u64 = 2_000_000;
const BULK: u64 = 30_000_000;
const OFFLOADS: [&str; 6] = ["tun_tso", "tun_uso", "tun_tcp_gro", "tun_udp_gro", "udp_gso", "udp_gro"];

const OUR_INNER: [&str; 2] = ["10.99.0.1", "fd7a::1"];
const THEIR_INNER: [&str; 2] = ["10.99.0.2", "fd7a::2"];

/// A program that makes a WireGuard interface when it is given a name for it, and is configured by `wg`.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [&'static str],
}

/// One tunnel to be.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) outer: Family,
    pub(crate) first: First,
    pub(crate) our_psk: Option<u8>,
    pub(crate) their_psk: Option<u8>,
    /// Of the link between the two.
    pub(crate) link_mtu: u32,
    /// Every switch of `[tunnel.offload]`.
    pub(crate) offloads: bool,
}

/// The family of the outer addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Who knows where the other is, and so has to begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    Us,
    Them,
}

impl Setup {
    pub(crate) fn new(outer: Family, first: First) -> Self {
        Self { outer, first, our_psk: None, their_psk: None, link_mtu: 1500, offloads: true }
    }

    fn ours(self) -> &'static str {
        if self.outer == Family::V4 { "192.0.2.1" } else { "2001:db8::1" }
    }

    fn theirs(self) -> &'static str {
        if self.outer == Family::V4 { "192.0.2.2" } else { "2001:db8::2" }
    }

    fn elsewhere(self) -> &'static str {
        if self.outer == Family::V4 { "192.0.2.77" } else { "2001:db8::77" }
    }

    fn length(self) -> u8 {
        if self.outer == Family::V4 { 24 } else { 64 }
    }
}

/// Two hosts on one link, a daemon on one, the foreign program on the other.
pub(crate) struct Rig {
    setup: Setup,
    node: Node,
    theirs: Netns,
    process: Child,
    dir: tempfile::TempDir,
}

/// Runs `body` with a tunnel in a sandbox; skips, and says so, where the foreign program is missing.
pub(crate) fn run(test: &str, program: &Program, setup: Setup, body: impl FnOnce(Rig)) {
    if installed(test, &[program.name, "wg"]) {
        sandbox::run_with_bins(test, |bins| body(Rig::start(program, setup, bins)));
    }
}

/// A private key; the number tells it from others.
fn key(number: u8) -> StaticSecret {
    StaticSecret::from([number; 32])
}

fn text(bytes: &[u8; 32]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn public(number: u8) -> String {
    text(PublicKey::from(&key(number)).as_bytes())
}

fn write_secret(path: &Path, content: &str) {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    writeln!(file, "{content}").unwrap();
}

impl Rig {
    fn start(program: &Program, setup: Setup, bins: &Bins) -> Self {
        let [ours, theirs] = ["ours", "theirs"].map(|name| Netns::create(name).unwrap());
        veth((&ours, "eth0"), (&theirs, "eth0")).unwrap();
        for (netns, address) in [(&ours, setup.ours()), (&theirs, setup.theirs())] {
            netns.add_address("eth0", net(address, setup.length())).unwrap();
            netns.set_mtu("eth0", setup.link_mtu).unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let process = start_foreign(program, &theirs, dir.path());
        configure_foreign(setup, &theirs, dir.path());
        let node = start_node(setup, &ours, dir.path(), bins);
        Self { setup, node, theirs, process, dir }
    }

    /// Traffic that the side with the endpoint starts, then both families both ways, small and large.
    pub(crate) fn check_all(&mut self) {
        self.check_first();
        for family in 0..2 {
            self.echo(First::Us, family).unwrap();
            self.echo(First::Them, family).unwrap();
            self.transfer(First::Us, family);
            self.transfer(First::Them, family);
        }
    }

    /// What we send them, small and large.
    pub(crate) fn check_ours(&mut self) {
        self.check_first();
        (0..2).for_each(|family| self.transfer(First::Us, family));
    }

    /// Much at once, both families both ways, with every offload as the setup says.
    pub(crate) fn check_bulk(&mut self) {
        self.check_first();
        self.check_offloads();
        for family in 0..2 {
            self.carry(First::Us, family, BULK);
            self.carry(First::Them, family, BULK);
        }
        self.check_offloads();
    }

    fn check_offloads(&self) {
        let metrics = metrics(&self.node).unwrap();
        for name in OFFLOADS {
            let switch = [("offload", &*name.replace('_', "-"))];
            let active = metrics.value("isthmus_tunnel_offload_active", &switch).unwrap();
            assert_eq!(active > 0.5, self.setup.offloads, "{name}: {}", self.node.log_tail());
        }
    }

    /// The first packet of all.
    pub(crate) fn check_first(&mut self) {
        if let Err(error) = self.echo(self.setup.first, 0) {
            panic!("{}", self.blame(&format!("{error:#}")));
        }
    }

    /// Nothing gets through.
    pub(crate) fn check_silent(&self) {
        let echo = UdpEcho::start(&self.theirs, at(THEIR_INNER[0])).unwrap();
        assert!(reach(self.node.netns(), echo.address(), SILENCE).is_err());
    }

    /// They leave their address for another and speak first; we follow.
    pub(crate) fn they_move(&self) {
        let (from, to) = (self.setup.theirs(), self.setup.elsewhere());
        move_address(&self.theirs, net(from, self.setup.length()), net(to, self.setup.length()));
    }

    /// The same with us.
    pub(crate) fn we_move(&self) {
        let (from, to) = (self.setup.ours(), self.setup.elsewhere());
        move_address(self.node.netns(), net(from, self.setup.length()), net(to, self.setup.length()));
    }

    /// Datagrams of every length and message type.
    pub(crate) fn send_junk(&self) {
        let to = outer(self.setup.ours());
        let junk = || {
            let socket = UdpSocket::bind(SocketAddr::new(self.setup.theirs().parse().unwrap(), 0)).unwrap();
            for n in 0..4000_usize {
                let mut datagram: Vec<u8> = (0..n % 1473).map(|_| rand::random()).collect();
                if let Some(head) = datagram.first_chunk_mut() {
                    *head = [u8::try_from(n % 6).unwrap(), 0, 0, 0];
                }
                datagram.resize(if n % 7 == 0 { [148, 92, 64, 32][n % 4] } else { datagram.len() }, 0);
                // The socket may report that somebody did not like the last one.
                let _ = socket.send_to(&datagram, to);
            }
        };
        self.theirs.run(junk).unwrap();
    }

    /// A datagram from one side to the other and back.
    pub(crate) fn echo(&self, from: First, family: usize) -> anyhow::Result<()> {
        let (client, server, address) = self.ends(from, family);
        let echo = UdpEcho::start(server, at(address)).unwrap();
        reach(client, echo.address(), LIMIT)
    }

    fn transfer(&self, from: First, family: usize) {
        self.carry(from, family, BYTES);
    }

    fn carry(&self, from: First, family: usize, bytes: u64) {
        let (client, server, address) = self.ends(from, family);
        let sink = TcpSink::start(server, at(address), LIMIT).unwrap();
        assert_eq!(send(client, sink.address(), bytes, LIMIT).unwrap().bytes, bytes);
        sink.finish().unwrap();
    }

    fn ends(&self, from: First, family: usize) -> (&Netns, &Netns, &'static str) {
        match from {
            First::Us => (self.node.netns(), &self.theirs, THEIR_INNER[family]),
            First::Them => (&self.theirs, self.node.netns(), OUR_INNER[family]),
        }
    }

    fn blame(&self, error: &str) -> String {
        let show = self.theirs.command("wg").unwrap().output().unwrap();
        let foreign = fs::read_to_string(self.dir.path().join("foreign.log")).unwrap_or_default();
        let wg = String::from_utf8_lossy(&show.stdout);
        format!("{error}\n--- isthmusd:\n{}\n--- foreign:\n{foreign}\n{wg}", self.node.log_tail())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start_foreign(program: &Program, netns: &Netns, dir: &Path) -> Child {
    let socket = PathBuf::from("/var/run/wireguard/wg0.sock");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let log = fs::File::create(dir.join("foreign.log")).unwrap();
    let mut command = netns.command(program.name).unwrap();
    command.args(program.arguments).arg("wg0").env("LOG_LEVEL", "verbose");
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let process = command.spawn().unwrap();
    let ready = || socket.exists() && netns.links().is_ok_and(|links| links.contains(&"wg0".to_owned()));
    wait::until_true(&format!("the interface of {}", program.name), LIMIT, ready).unwrap();
    process
}

fn configure_foreign(setup: Setup, netns: &Netns, dir: &Path) {
    let mut config = format!(
        "[Interface]\nPrivateKey = {}\nListenPort = 51820\n[Peer]\nPublicKey = {}\nAllowedIPs = {}\n",
        text(key(2).as_bytes()),
        public(1),
        hosts(OUR_INNER).join(", "),
    );
    if let Some(number) = setup.their_psk {
        config.push_str(&format!("PresharedKey = {}\n", text(&[number; 32])));
    }
    if setup.first == First::Them {
        config.push_str(&format!("Endpoint = {}\n", outer(setup.ours())));
    }
    let path = dir.join("wg0.conf");
    write_secret(&path, &config);
    run_ok(netns.command("wg").unwrap().arg("setconf").arg("wg0").arg(path));
    netns.link_up("wg0").unwrap();
    netns.add_address("wg0", net(THEIR_INNER[0], 24)).unwrap();
    netns.add_address("wg0", net(THEIR_INNER[1], 64)).unwrap();
}

fn start_node(setup: Setup, netns: &Netns, dir: &Path, bins: &Bins) -> Node {
    let mut node = Node::new("ours", netns, dir, bins).unwrap();
    write_secret(&node.state_dir().join("tunnel.key"), &text(key(1).as_bytes()));
    let mut config = format!(
        "[node]\nname = \"ours\"\nstate_dir = {:?}\n[api]\nsocket = {:?}\n[tunnel]\n\
         addresses = [\"{}/24\", \"{}/64\"]\n{}{}[[tunnel.peer]]\nname = \"theirs\"\npublic_key = \"{}\"\nallowed_ips = {:?}\n",
        node.state_dir(),
        node.socket(),
        OUR_INNER[0],
        OUR_INNER[1],
        offload_section(setup.offloads),
        metrics_section(),
        public(2),
        hosts(THEIR_INNER),
    );
    if let Some(number) = setup.our_psk {
        write_secret(&node.dir().join("psk"), &text(&[number; 32]));
        config.push_str("preshared_key_file = \"psk\"\n");
    }
    if setup.first == First::Us {
        config.push_str(&format!("endpoint = \"{}\"\n", outer(setup.theirs())));
    }
    node.start(&config).unwrap();
    node.wait_ready(LIMIT).unwrap();
    node
}

fn offload_section(on: bool) -> String {
    let switches: Vec<String> = OFFLOADS.iter().map(|name| format!("{name} = {on}\n")).collect();
    format!("[tunnel.offload]\n{}", switches.concat())
}

fn run_ok(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn net(address: &str, length: u8) -> IpNet {
    IpNet::new(address.parse().unwrap(), length).unwrap()
}

fn outer(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), 51820)
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), 7)
}

fn hosts(addresses: [&str; 2]) -> [String; 2] {
    addresses.map(|address| IpNet::from(address.parse::<IpAddr>().unwrap()).to_string())
}

/// The old address goes first: the kernel removes other addresses of a subnet together with its first.
fn move_address(netns: &Netns, old: IpNet, new: IpNet) {
    netns.delete_address(old.addr()).unwrap();
    netns.add_address("eth0", new).unwrap();
}

/// The same tests against each program; `$program` is a constant of type [`Program`].
#[macro_export]
macro_rules! interop_tests {
    ($program:ident) => {
        use foreign::{Family, First, Setup, run};

        #[test]
        fn we_initiate_over_v4() {
            let setup = Setup::new(Family::V4, First::Us);
            run("we_initiate_over_v4", &$program, setup, |mut rig| rig.check_all());
        }

        #[test]
        fn we_initiate_over_v6() {
            let setup = Setup::new(Family::V6, First::Us);
            run("we_initiate_over_v6", &$program, setup, |mut rig| rig.check_all());
        }

        #[test]
        fn they_initiate_over_v4() {
            let setup = Setup::new(Family::V4, First::Them);
            run("they_initiate_over_v4", &$program, setup, |mut rig| rig.check_all());
        }

        #[test]
        fn they_initiate_over_v6() {
            let setup = Setup::new(Family::V6, First::Them);
            run("they_initiate_over_v6", &$program, setup, |mut rig| rig.check_all());
        }

        // Nothing can be probed, so 1420 bytes are taken to fit, and every full burst is too big for the link. (What comes back is small:
        // wireguard-go itself gets no full burst through such a link.)
        #[test]
        fn a_narrow_link_carries_what_we_send_over_v4() {
            let setup = Setup { link_mtu: 1280, ..Setup::new(Family::V4, First::Us) };
            run("a_narrow_link_carries_what_we_send_over_v4", &$program, setup, |mut rig| rig.check_ours());
        }

        #[test]
        fn a_narrow_link_carries_what_we_send_over_v6() {
            let setup = Setup { link_mtu: 1280, ..Setup::new(Family::V6, First::Us) };
            run("a_narrow_link_carries_what_we_send_over_v6", &$program, setup, |mut rig| rig.check_ours());
        }

        #[test]
        fn bulk_with_every_offload_over_v4() {
            let setup = Setup::new(Family::V4, First::Us);
            run("bulk_with_every_offload_over_v4", &$program, setup, |mut rig| rig.check_bulk());
        }

        #[test]
        fn bulk_with_every_offload_over_v6() {
            let setup = Setup::new(Family::V6, First::Them);
            run("bulk_with_every_offload_over_v6", &$program, setup, |mut rig| rig.check_bulk());
        }

        #[test]
        fn bulk_without_any_offload_over_v4() {
            let setup = Setup { offloads: false, ..Setup::new(Family::V4, First::Us) };
            run("bulk_without_any_offload_over_v4", &$program, setup, |mut rig| rig.check_bulk());
        }

        #[test]
        fn bulk_without_any_offload_over_v6() {
            let setup = Setup { offloads: false, ..Setup::new(Family::V6, First::Them) };
            run("bulk_without_any_offload_over_v6", &$program, setup, |mut rig| rig.check_bulk());
        }

        #[test]
        fn preshared_key_agrees_when_we_initiate() {
            let setup = Setup { our_psk: Some(7), their_psk: Some(7), ..Setup::new(Family::V4, First::Us) };
            run("preshared_key_agrees_when_we_initiate", &$program, setup, |mut rig| rig.check_all());
        }

        #[test]
        fn preshared_key_agrees_when_they_initiate() {
            let setup = Setup { our_psk: Some(7), their_psk: Some(7), ..Setup::new(Family::V6, First::Them) };
            run("preshared_key_agrees_when_they_initiate", &$program, setup, |mut rig| rig.check_all());
        }

        #[test]
        fn wrong_preshared_key_carries_nothing() {
            let setup = Setup { our_psk: Some(7), their_psk: Some(8), ..Setup::new(Family::V4, First::Us) };
            run("wrong_preshared_key_carries_nothing", &$program, setup, |rig| rig.check_silent());
        }

        #[test]
        fn peer_that_moves_is_followed_over_v4() {
            let setup = Setup::new(Family::V4, First::Us);
            run("peer_that_moves_is_followed_over_v4", &$program, setup, |mut rig| {
                rig.check_first();
                rig.they_move();
                rig.echo(First::Them, 0).unwrap();
                rig.check_all();
            });
        }

        #[test]
        fn peer_that_moves_is_followed_over_v6() {
            let setup = Setup::new(Family::V6, First::Them);
            run("peer_that_moves_is_followed_over_v6", &$program, setup, |mut rig| {
                rig.check_first();
                rig.they_move();
                rig.echo(First::Them, 1).unwrap();
                rig.check_all();
            });
        }

        #[test]
        fn junk_on_the_port_disturbs_nobody() {
            let setup = Setup::new(Family::V4, First::Us);
            run("junk_on_the_port_disturbs_nobody", &$program, setup, |mut rig| {
                rig.send_junk();
                rig.check_first();
                rig.send_junk();
                rig.check_all();
            });
        }

        #[test]
        fn we_are_followed_when_we_move() {
            let setup = Setup::new(Family::V4, First::Them);
            run("we_are_followed_when_we_move", &$program, setup, |mut rig| {
                rig.check_first();
                rig.we_move();
                rig.echo(First::Us, 0).unwrap();
                rig.check_all();
            });
        }
    };
}
