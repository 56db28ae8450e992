//! The far end of the tunnel: `wireguard-go`, or another `isthmusd` where that is missing.

use std::{
    fs,
    io::{Read, Write},
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use boringtun::x25519::{PublicKey, StaticSecret};
use isthmus_lab::{bins::Bins, netns::Netns, node::Node, peers::is_installed, wait};

use super::{net, write_secret};

/// Name of its interface.
pub(crate) const INTERFACE: &str = "wg0";
const LIMIT: Duration = Duration::from_secs(15);

/// A key pair of a tunnel.
pub(crate) struct Key(StaticSecret);

impl Key {
    /// The number tells it from others.
    pub(crate) fn new(number: u8) -> Self {
        Self(StaticSecret::from([number; 32]))
    }

    pub(crate) fn private(&self) -> String {
        BASE64_STANDARD.encode(self.0.as_bytes())
    }

    pub(crate) fn public(&self) -> String {
        BASE64_STANDARD.encode(PublicKey::from(&self.0).as_bytes())
    }
}

/// A tunnel endpoint without any routing of its own; it ends with the value.
pub(crate) enum FarEnd {
    WireguardGo(Child),
    Isthmus { _node: Node },
}

/// What it needs to know.
pub(crate) struct Setup<'a> {
    pub(crate) netns: &'a Netns,
    pub(crate) addresses: [&'a str; 2],
    pub(crate) key: &'a Key,
    pub(crate) peer: &'a Key,
    pub(crate) peer_at: SocketAddr,
    /// Networks behind the peer, its overlay addresses included.
    pub(crate) behind_peer: &'a [&'a str],
}

impl FarEnd {
    /// Starts it, and waits for its interface.
    pub(crate) fn start(setup: &Setup<'_>, dir: &Path, bins: &Bins) -> Self {
        if is_installed("wireguard-go") { wireguard_go(setup, dir) } else { isthmus(setup, dir, bins) }
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        if let Self::WireguardGo(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wireguard_go(setup: &Setup<'_>, dir: &Path) -> FarEnd {
    let socket = PathBuf::from(format!("/var/run/wireguard/{INTERFACE}.sock"));
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let log = fs::File::create(dir.join("wireguard-go.log")).unwrap();
    let mut command = setup.netns.command("wireguard-go").unwrap();
    command.args(["-f", INTERFACE]).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let end = FarEnd::WireguardGo(command.spawn().unwrap());
    wait_for_interface(setup.netns);
    wait::until_true("the socket of wireguard-go", LIMIT, || socket.exists()).unwrap();
    configure(setup, &socket);
    setup.netns.link_up(INTERFACE).unwrap();
    for address in setup.addresses {
        setup.netns.add_address(INTERFACE, net(address)).unwrap();
    }
    end
}

/// The cross-platform configuration protocol of WireGuard implementations in user space.
fn configure(setup: &Setup<'_>, socket: &Path) {
    let mut request = format!(
        "set=1\nprivate_key={}\nlisten_port=51820\npublic_key={}\nendpoint={}\n",
        hex(setup.key.0.as_bytes()),
        hex(PublicKey::from(&setup.peer.0).as_bytes()),
        setup.peer_at,
    );
    for prefix in setup.behind_peer {
        request.push_str(&format!("allowed_ip={prefix}\n"));
    }
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer[..length]), "errno=0\n\n");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn isthmus(setup: &Setup<'_>, dir: &Path, bins: &Bins) -> FarEnd {
    let mut node = Node::new("far-end", setup.netns, dir, bins).unwrap();
    write_secret(&node.state_dir().join("tunnel.key"), &setup.key.private());
    let config = format!(
        "[node]\nname = \"far-end\"\nstate_dir = {:?}\n[api]\nsocket = {:?}\n[tunnel]\ninterface = \"{INTERFACE}\"\n\
         addresses = {:?}\n[[tunnel.peer]]\nname = \"ours\"\npublic_key = \"{}\"\nendpoint = \"{}\"\nallowed_ips = {:?}\n",
        node.state_dir(),
        node.socket(),
        setup.addresses,
        setup.peer.public(),
        setup.peer_at,
        setup.behind_peer,
    );
    node.start(&config).unwrap();
    node.wait_ready(LIMIT).unwrap();
    wait_for_interface(setup.netns);
    FarEnd::Isthmus { _node: node }
}

fn wait_for_interface(netns: &Netns) {
    let there = || netns.links().is_ok_and(|links| links.contains(&INTERFACE.to_owned()));
    wait::until_true("the far end's interface", LIMIT, there).unwrap();
}
