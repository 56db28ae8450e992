//! Something that a daemon needs is taken or forbidden: it says what, whose and what to do, leaves nothing behind, and starts once
//! the obstacle is gone.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    os::unix::{net::UnixListener, process::CommandExt},
    process::Command,
    time::Duration,
};

use isthmus_lab::{
    bins::Bins,
    mesh::{Mesh, bgp, node_section},
    netns::Netns,
    node::Node,
    pki::{Pki, issuer_config},
    sandbox,
};
use nix::mount::{MsFlags, mount};
use socket2::{Domain, Socket, Type};
use time::OffsetDateTime;

const LIMIT: Duration = Duration::from_secs(20);

/// Starts the daemon, which must give up with exit code 1 and these words, and leave nothing behind.
fn gives_up(node: &mut Node, words: &[&str], prepare: impl FnOnce(&mut Command)) {
    let _ = fs::remove_file(node.log());
    let links = node.netns().links().unwrap();
    node.restart_with(prepare).unwrap();
    let status = node.wait_end().unwrap();
    let log = node.log_text();
    assert_eq!(status.code(), Some(1), "{log}");
    let error =
        log.lines().find(|line| line.contains("ERROR")).unwrap_or_else(|| panic!("no error in {log}"));
    for word in words {
        assert!(error.contains(word), "no {word:?} in {error}");
    }
    assert_eq!(node.netns().links().unwrap(), links);
    assert_eq!(node.netns().count_routes(73).unwrap(), 0);
}

fn starts(node: &mut Node) {
    node.restart().unwrap();
    node.wait_ready(LIMIT).unwrap();
    assert!(node.stop().unwrap().success());
}

/// One gateway with everything, its configuration in place.
fn gateway(bins: &Bins) -> Mesh {
    let mesh = Mesh::new(1, bins).unwrap();
    Pki::new("s1", OffsetDateTime::now_utc()).unwrap().write_all(mesh.node(1).dir(), "gw1").unwrap();
    let base = mesh.base(1);
    let (_, tunnel) = base.split_once("[tunnel]").unwrap();
    let text =
        issuer_config(mesh.node(1), "s1") + "[tunnel]" + tunnel + "[fib]\n[metrics]\n" + &bgp(65001, &[]);
    mesh.node(1).write_config(&text).unwrap();
    mesh
}

#[test]
fn a_port_in_use_is_named() {
    sandbox::run_with_bins("start::a_port_in_use_is_named", |bins| {
        let mut mesh = gateway(bins);
        let node = mesh.node_mut(1);
        let netns = node.netns().clone();

        let taken = netns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 51820))).unwrap().unwrap();
        gives_up(node, &["UDP port 51820", "ss -ulpn", "`listen` in [tunnel]"], |_| ());
        drop(taken);
        let only_v6 = || {
            let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
            socket.set_only_v6(true)?;
            socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 51820)).into())?;
            std::io::Result::Ok(socket)
        };
        let taken = netns.run(only_v6).unwrap().unwrap();
        gives_up(node, &["UDP port 51820", "`listen` in [tunnel]"], |_| ());
        drop(taken);

        let taken = netns.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 179))).unwrap().unwrap();
        gives_up(node, &["[::]:179", "ss -ltnp sport = :179", "[bgp] listen"], |_| ());
        drop(taken);
        let taken = netns.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 9587))).unwrap().unwrap();
        gives_up(node, &["metrics", "127.0.0.1:9587", "set [metrics] listen"], |_| ());
        drop(taken);
        starts(node);
    });
}

#[test]
fn a_socket_in_use_is_named_and_left_alone() {
    sandbox::run_with_bins("start::a_socket_in_use_is_named_and_left_alone", |bins| {
        let mut mesh = gateway(bins);
        let node = mesh.node_mut(1);
        for path in [node.socket(), node.workload_socket()] {
            let name = path.display().to_string();
            let owner = UnixListener::bind(&path).unwrap();
            gives_up(node, &[&name, "another process serves", "configure another socket"], |_| ());
            assert!(std::os::unix::net::UnixStream::connect(&path).is_ok(), "its owner serves on");
            drop(owner);
            fs::remove_file(&path).unwrap();
            fs::write(&path, "not a socket").unwrap();
            gives_up(node, &[&name, "is not a socket", "move it away"], |_| ());
            assert_eq!(fs::read_to_string(&path).unwrap(), "not a socket");
            fs::remove_file(&path).unwrap();
        }
        starts(node);
    });
}

#[test]
fn two_daemons_on_one_interface() {
    sandbox::run_with_bins("start::two_daemons_on_one_interface", |bins| {
        let mut mesh = gateway(bins);
        let first = mesh.node_mut(1);
        first.restart().unwrap();
        first.wait_ready(LIMIT).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut second = Node::new("second", first.netns(), dir.path(), bins).unwrap();
        let text = node_section(&second, None) + "[tunnel]\nlisten = 51821\naddresses = [\"10.98.0.1/24\"]\n";
        second.write_config(&text).unwrap();
        gives_up(&mut second, &["isthmus0", "second isthmusd", "another `interface` in [tunnel]"], |_| ());
        first.ensure_alive().unwrap();
        assert!(first.status().unwrap().ready);

        let beside = text.replace("[tunnel]\n", "[tunnel]\ninterface = \"isthmus1\"\n");
        second.write_config(&beside).unwrap();
        starts(&mut second);
        assert!(first.stop().unwrap().success());
    });
}

#[test]
fn a_tun_that_cannot_be_opened() {
    sandbox::run_with_bins("start::a_tun_that_cannot_be_opened", |bins| {
        let mut mesh = gateway(bins);
        let node = mesh.node_mut(1);
        let netns: Netns = node.netns().clone();

        netns.bridge("isthmus0", &[]).unwrap();
        gives_up(node, &["isthmus0", "not a TUN device", "ip link del"], |_| ());
        netns.delete_link("isthmus0").unwrap();

        gives_up(
            node,
            &["isthmus0", "CAP_NET_ADMIN is missing", "AmbientCapabilities=CAP_NET_ADMIN"],
            without_net_admin,
        );
        starts(node);

        // Masked in this sandbox only.
        let none = None::<&str>;
        mount(Some("tmpfs"), "/dev/net", Some("tmpfs"), MsFlags::empty(), none).unwrap();
        let driver = fs::exists("/sys/class/misc/tun").unwrap();
        let remedy = if driver { "--device /dev/net/tun" } else { "modprobe tun" };
        let problem = if driver { "/dev/net/tun is not there" } else { "kernel module" };
        gives_up(node, &["isthmus0", problem, remedy], |_| ());
    });
}

/// The program will be root in name, but not over the network.
fn without_net_admin(command: &mut Command) {
    const NET_ADMIN: libc::c_ulong = 12;
    let forget = || {
        // SAFETY: the call takes integers only, and is async-signal-safe.
        match unsafe { libc::prctl(libc::PR_CAPBSET_DROP, NET_ADMIN, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec the closure makes one system call.
    unsafe { command.pre_exec(forget) };
}
