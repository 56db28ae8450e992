//! The switches of the packet path: with each one off everything still arrives, and what the switch does is not done.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use isthmus_lab::{
    bins::Bins,
    mesh::{Family, Mesh, endpoint, node_section, overlay, peer, public_key},
    netns::Netns,
    node::{Node, unix_channel},
    probe::{TcpSink, UdpEcho, reach, send},
    sandbox, wait,
};
use isthmus_proto::control::{SetOffloadRequest, control_client::ControlClient};
use nix::sys::{
    signal::Signal,
    socket::{setsockopt, sockopt::UdpGsoSegment},
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);
const SWITCHES: [&str; 6] = ["tun-tso", "tun-uso", "tun-tcp-gro", "tun-udp-gro", "udp-gso", "udp-gro"];
/// Many segments and windows.
const BYTES: u64 = 3_000_000;
/// A burst of datagrams.
const DATAGRAMS: usize = 20;
const DATAGRAM: u16 = 1000;

fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

/// Two gateways with `extra` at the end of their `[tunnel]`, both ready, and the one's services at the other.
fn start(extra: &str, bins: &Bins) -> (Mesh, [UdpEcho; 2]) {
    let mut mesh = Mesh::new(2, bins).unwrap();
    for (n, other) in [(1, 2), (2, 1)] {
        let text = mesh.base(n) + extra + &peer(other, Some(Family::V4));
        mesh.node_mut(n).start(&text).unwrap();
    }
    for n in [1, 2] {
        mesh.node_mut(n).wait_ready(LIMIT).unwrap();
    }
    let echoes = overlay(2).map(|inner| UdpEcho::start(mesh.node(2).netns(), at(inner, 7)).unwrap());
    for echo in &echoes {
        reach(mesh.node(1).netns(), echo.address(), LIMIT).unwrap();
    }
    (mesh, echoes)
}

fn json(node: &Node, arguments: &[&str]) -> Result<Value> {
    let text = node.ctl_ok(&[&["-o", "json"], arguments].concat())?;
    serde_json::from_str(&text).with_context(|| text.clone())
}

/// Turns a switch at a gateway; it says that it did.
fn turn(node: &Node, switch: &str, on: bool) {
    let told = json(node, &["tunnel", "offload", switch, if on { "on" } else { "off" }]).unwrap();
    assert_eq!(told["schema"], "isthmus.v1/offloads");
    let [only] = told["offloads"].as_array().unwrap().as_slice() else { panic!("{told}") };
    assert_eq!(only["name"], switch);
    assert_eq!((&only["active"], &only["wanted"]), (&on.into(), &on.into()), "{told}");
}

fn is_on(node: &Node, switch: &str) -> Result<bool> {
    let all = json(node, &["tunnel", "offload"])?;
    let found = all["offloads"].as_array().and_then(|all| all.iter().find(|one| one["name"] == switch));
    found.and_then(|one| one["active"].as_bool()).with_context(|| format!("no {switch} in {all}"))
}

/// System calls of a kind that carried more than one packet.
fn merged(node: &Node, call: &str) -> Result<u64> {
    let tunnel = json(node, &["tunnel"])?;
    let kinds = tunnel["batches"].as_array().context("no batches")?;
    let of = kinds.iter().find(|kind| kind["call"] == call).with_context(|| format!("no {call}"))?;
    let alone = of["cumulative"][0]["calls"].as_u64().context("no first bucket")?;
    ensure!(of["cumulative"][0]["at_most"] == 1, "{of}");
    Ok(of["calls"].as_u64().context("no calls")? - alone)
}

/// TCP in bulk and bursts of UDP with an echo, over both families.
fn carry(mesh: &Mesh, echoes: &[UdpEcho; 2]) {
    bulk(mesh);
    burst(mesh, echoes);
}

fn bulk(mesh: &Mesh) {
    for inner in overlay(2) {
        let sink = TcpSink::start(mesh.node(2).netns(), at(inner, 9), LIMIT).unwrap();
        assert_eq!(send(mesh.node(1).netns(), sink.address(), BYTES, LIMIT).unwrap().bytes, BYTES);
        sink.finish().unwrap();
    }
}

/// Hands the kernel many datagrams at once until an echo of each has come back.
fn burst(mesh: &Mesh, echoes: &[UdpEcho; 2]) {
    for echo in echoes {
        let to = echo.address();
        let sent = mesh.node(1).netns().run(|| {
            let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
            socket.set_read_timeout(Some(Duration::from_millis(500)))?;
            setsockopt(&socket, UdpGsoSegment, &i32::from(DATAGRAM))?;
            socket.connect(to)?;
            wait::until("all echoes of a burst", LIMIT, || all_come_back(&socket))
        });
        sent.unwrap().unwrap();
    }
}

fn all_come_back(socket: &UdpSocket) -> Result<()> {
    let datagrams: Vec<Vec<u8>> = (1..).take(DATAGRAMS).map(|n: u8| vec![n; usize::from(DATAGRAM)]).collect();
    socket.send(&datagrams.concat())?;
    let mut left = datagrams;
    let mut buffer = [0; 2048];
    while !left.is_empty() {
        let length = socket.recv(&mut buffer).with_context(|| format!("{} did not come back", left.len()))?;
        left.retain(|datagram| datagram[..] != buffer[..length]);
    }
    Ok(())
}

#[test]
fn without_each_switch_and_without_all_everything_arrives() {
    sandbox::run_with_bins("without_each_switch_and_without_all_everything_arrives", |bins| {
        let (mesh, echoes) = start("", bins);
        let nodes = [mesh.node(1), mesh.node(2)];
        for off in SWITCHES.chunks(1).chain([&SWITCHES[..]]) {
            for node in nodes {
                off.iter().for_each(|switch| turn(node, switch, false));
                for switch in SWITCHES {
                    assert_eq!(is_on(node, switch).unwrap(), !off.contains(&switch), "{switch}, {off:?} off");
                }
            }
            carry(&mesh, &echoes);
            for node in nodes {
                off.iter().for_each(|switch| turn(node, switch, true));
            }
            carry(&mesh, &echoes);
        }
    });
}

#[test]
fn a_switch_decides_whether_system_calls_carry_several() {
    /// Traffic that the switch is for.
    type Traffic = fn(&Mesh, &[UdpEcho; 2]);
    sandbox::run_with_bins("a_switch_decides_whether_system_calls_carry_several", |bins| {
        let (mesh, echoes) = start("", bins);
        let tcp: Traffic = |mesh, _| bulk(mesh);
        let cases: [(&str, u8, &str, Traffic); 7] = [
            ("tun-tso", 1, "tun_read", tcp),
            ("tun-uso", 1, "tun_read", burst),
            ("tun-tcp-gro", 2, "tun_write", tcp),
            ("tun-udp-gro", 2, "tun_write", burst),
            ("udp-gso", 1, "udp_send", tcp),
            ("udp-gso", 1, "udp_send", burst),
            ("udp-gro", 2, "udp_receive", tcp),
        ];
        for (switch, n, call, traffic) in cases {
            let node = mesh.node(n);
            turn(node, switch, false);
            // What was under way is counted when this has come back.
            reach(mesh.node(1).netns(), echoes[0].address(), LIMIT).unwrap();
            let before = merged(node, call).unwrap();
            traffic(&mesh, &echoes);
            assert_eq!(merged(node, call).unwrap(), before, "{call} without {switch}");
            turn(node, switch, true);
            wait::until(&format!("{call} of several with {switch}"), LIMIT, || {
                traffic(&mesh, &echoes);
                ensure!(merged(node, call)? > before, "none was");
                Ok(())
            })
            .unwrap();
        }
    });
}

/// A TCP connection that carries a counter until it is told to stop.
#[derive(Default)]
struct Counting {
    stop: AtomicBool,
    received: AtomicU64,
}

/// Numbers in one write.
const BLOCK: u64 = 8192;

impl Counting {
    /// Sends 0, 1, 2, ... until it is told to stop; how many.
    fn send(&self, mut stream: TcpStream) -> Result<u64> {
        stream.set_write_timeout(Some(LIMIT))?;
        let mut next = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let block: Vec<u8> = (next..next + BLOCK).flat_map(u64::to_be_bytes).collect();
            stream.write_all(&block)?;
            next += BLOCK;
        }
        Ok(next)
    }

    /// Receives them, each in its place, to the end of the connection; how many.
    fn receive(&self, mut stream: TcpStream) -> Result<u64> {
        stream.set_read_timeout(Some(LIMIT))?;
        let mut block = vec![0; usize::try_from(BLOCK)? * 8];
        let mut next = 0_u64;
        while let Some(()) = whole(&mut stream, &mut block)? {
            for word in block.chunks_exact(8) {
                ensure!(word == next.to_be_bytes(), "{word:?} in place of {next}");
                next += 1;
            }
            self.received.store(next, Ordering::Relaxed);
        }
        Ok(next)
    }

    /// Waits until so many more have arrived, from now on.
    fn goes_on(&self, more: u64) -> Result<()> {
        let before = self.received.load(Ordering::Relaxed);
        wait::until("the connection to go on", LIMIT, || {
            let now = self.received.load(Ordering::Relaxed);
            ensure!(now >= before + more, "{now} after {before}");
            Ok(())
        })
    }
}

/// Fills the block; nothing at the end of the stream, which is between two blocks.
fn whole(stream: &mut TcpStream, block: &mut [u8]) -> Result<Option<()>> {
    match stream.read(block)? {
        0 => Ok(None),
        first => Ok(Some(stream.read_exact(&mut block[first..])?)),
    }
}

fn connect(from: &Netns, to: &Netns, address: SocketAddr) -> [TcpStream; 2] {
    let listener = to.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let near = from.run(|| TcpStream::connect_timeout(&address, LIMIT)).unwrap().unwrap();
    [near, listener.accept().unwrap().0]
}

#[test]
fn switching_breaks_no_connection() {
    sandbox::run_with_bins("switching_breaks_no_connection", |bins| {
        let (mesh, _echoes) = start("", bins);
        for inner in overlay(2) {
            let [near, far] = connect(mesh.node(1).netns(), mesh.node(2).netns(), at(inner, 9));
            let counting = Counting::default();
            let (sent, received) = thread::scope(|scope| {
                let sender = scope.spawn(|| counting.send(near));
                let receiver = scope.spawn(|| counting.receive(far));
                let turned = turn_all_while(&mesh, &counting);
                counting.stop.store(true, Ordering::Relaxed);
                turned.unwrap();
                (sender.join().unwrap().unwrap(), receiver.join().unwrap().unwrap())
            });
            assert_eq!(sent, received);
        }
    });
}

/// Turns each switch at both ends off, and on again one by one, while the connection goes on.
fn turn_all_while(mesh: &Mesh, counting: &Counting) -> Result<()> {
    for on in [false, true] {
        for switch in SWITCHES {
            [1, 2].into_iter().for_each(|n| turn(mesh.node(n), switch, on));
            counting.goes_on(4 * BLOCK)?;
        }
    }
    Ok(())
}

fn generation(node: &Node) -> Result<u64> {
    Ok(node.status()?.config.context("no configuration")?.generation)
}

/// Has gateway 1 read this end of `[tunnel]`.
fn reload(mesh: &mut Mesh, extra: &str) {
    let text = mesh.base(1) + extra + &peer(2, Some(Family::V4));
    let node = mesh.node_mut(1);
    let before = generation(node).unwrap();
    node.write_config(&text).unwrap();
    node.signal(Signal::SIGHUP).unwrap();
    node.wait_until("the reload", LIMIT, |node| {
        ensure!(generation(node)? > before, "{:?}", node.status()?.config);
        Ok(())
    })
    .unwrap();
}

#[test]
fn the_configuration_switches_what_it_changes() {
    sandbox::run_with_bins("the_configuration_switches_what_it_changes", |bins| {
        let (mut mesh, echoes) = start("[tunnel.offload]\nudp_gso = false\ntun_tso = true\n", bins);
        let off = |mesh: &Mesh| -> Vec<&str> {
            SWITCHES.into_iter().filter(|switch| !is_on(mesh.node(1), switch).unwrap()).collect()
        };
        assert_eq!(off(&mesh), ["udp-gso"]);
        turn(mesh.node(1), "tun-uso", false);
        turn(mesh.node(1), "udp-gso", true);
        assert_eq!(off(&mesh), ["tun-uso"]);

        // What the file does not change stays as it was switched by hand.
        reload(&mut mesh, "[tunnel.offload]\nudp_gso = false\nudp_gro = false\ntun_tcp_gro = false\n");
        assert_eq!(off(&mesh), ["tun-uso", "tun-tcp-gro", "udp-gro"]);
        carry(&mesh, &echoes);
        reload(&mut mesh, "[tunnel.offload]\nudp_gro = false\n");
        assert_eq!(off(&mesh), ["tun-uso", "udp-gro"]);
        reload(&mut mesh, "");
        assert_eq!(off(&mesh), ["tun-uso"]);
        carry(&mesh, &echoes);

        // By hand is until the next start.
        let node = mesh.node_mut(1);
        assert!(node.stop().unwrap().success());
        node.restart().unwrap();
        node.wait_ready(LIMIT).unwrap();
        assert_eq!(off(&mesh), [""; 0]);
    });
}

#[test]
fn an_unknown_switch_in_the_configuration_is_refused() {
    sandbox::run_with_bins("an_unknown_switch_in_the_configuration_is_refused", |bins| {
        let (mut mesh, echoes) = start("", bins);
        let text = mesh.base(1) + "[tunnel.offload]\nudp_gsso = false\nudp_gro = false\n";
        let node = mesh.node_mut(1);
        node.write_config(&text).unwrap();
        node.signal(Signal::SIGHUP).unwrap();
        let said = node.wait_until("the refusal", LIMIT, |node| {
            let error = node.status()?.config.unwrap_or_default().last_error;
            if error.is_empty() { bail!("not yet") } else { Ok(error) }
        });
        let said = said.unwrap();
        for part in
            ["there is no offload \"udp_gsso\"", "tun_tso, tun_uso, tun_tcp_gro, tun_udp_gro, udp_gso"]
        {
            assert!(said.contains(part), "{said}");
        }
        assert!(is_on(mesh.node(1), "udp-gro").unwrap(), "a part of it was applied");
        reach(mesh.node(1).netns(), echoes[0].address(), LIMIT).unwrap();
    });
}

/// How a command of gateway 1 ends, and what it says then.
fn fails(node: &Node, arguments: &[&str]) -> (Option<i32>, String) {
    let output = node.ctl(arguments).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// What a daemon says to a switch that it does not have.
fn asks_for(node: &Node, name: &str) -> tonic::Status {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = ControlClient::new(unix_channel(&node.socket()).unwrap());
        client.set_offload(SetOffloadRequest { name: name.to_owned(), on: true }).await.unwrap_err()
    })
}

#[test]
fn commands_say_what_is_there_and_refuse_what_is_not() {
    sandbox::run_with_bins("commands_say_what_is_there_and_refuse_what_is_not", |bins| {
        let (mut mesh, _echoes) = start("workers = 2\n", bins);
        let node = mesh.node(1);
        let page = node.ctl_ok(&["tunnel"]).unwrap();
        for part in ["isthmus0", "51820", &public_key(1), "tun-tcp-gro", "udp_receive"] {
            assert!(page.contains(part), "no {part} in {page}");
        }
        assert!(page.lines().any(|line| line.split_whitespace().eq(["Workers", "2"])), "{page}");
        assert_eq!(json(node, &["peers"]).unwrap()["peers"][0]["mtu"], 1420);

        let to = endpoint(1, Family::V4);
        let junk = || UdpSocket::bind("0.0.0.0:0")?.send_to(b"no message of a tunnel", to);
        mesh.node(2).netns().run(junk).unwrap().unwrap();
        wait::until("the count of junk", LIMIT, || {
            let drops = &json(node, &["tunnel"])?["drops"];
            ensure!(drops["malformed"] == 1, "{drops}");
            Ok(())
        })
        .unwrap();

        let (code, said) = fails(node, &["tunnel", "offload", "udp-gos", "off"]);
        assert_eq!(code, Some(2), "{said}");
        assert!(SWITCHES.iter().all(|switch| said.contains(switch)), "{said}");
        let status = asks_for(node, "udp-gos");
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(SWITCHES.iter().all(|switch| status.message().contains(switch)), "{status}");

        let bare = node_section(node, None);
        let node = mesh.node_mut(1);
        assert!(node.stop().unwrap().success());
        node.start(&bare).unwrap();
        node.wait_ready(LIMIT).unwrap();
        assert_eq!(node.ctl_ok(&["tunnel"]).unwrap(), "no tunnel is configured\n");
        let (code, said) = fails(node, &["tunnel", "offload", "udp-gso", "off"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("no tunnel is configured") && said.contains("[tunnel]"), "{said}");
    });
}
