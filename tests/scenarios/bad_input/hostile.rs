//! Junk from the wire and from the sockets, while others are served.

use std::{
    fs,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use isthmus_lab::{
    bins::Bins,
    mesh::{self, Family, Mesh, TUNNEL_PORT, bgp, neighbor, outer, overlay, peer, stranger},
    netns::Netns,
    node::Node,
    pki::{Pki, issuer_config},
    probe::{Flow, Prober, UdpEcho, get, reach},
    sandbox, wait,
};
use socket2::{SockAddr, Socket, Type};
use time::OffsetDateTime;

const LIMIT: Duration = Duration::from_secs(30);
const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9587);
/// More than an idle debug build needs, much less than what the junk could make it take.
const MEMORY_KIB: u64 = 160 * 1024;

fn random(length: usize) -> Vec<u8> {
    (0..length).map(|_| rand::random()).collect()
}

/// Resident memory of the daemon stays within bounds.
fn is_modest(node: &Node) {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < MEMORY_KIB, "{} takes {kib} KiB", node.name());
}

/// Two gateways with a tunnel and a session over it; the first has more, as `rest` says.
fn two(mesh: &mut Mesh, rest: &str) {
    let first = mesh.base(1) + &peer(2, Some(Family::V4)) + rest + &bgp(65001, &[]) + &neighbor(2, 65002);
    let second =
        mesh.base(2) + &peer(1, Some(Family::V6)) + &bgp(65002, &["10.20.0.0/16"]) + &neighbor(1, 65001);
    mesh.node_mut(1).start(&first).unwrap();
    mesh.node_mut(2).start(&second).unwrap();
    let up = |node: &Node| {
        let sessions = node.bgp_neighbors()?;
        let session = sessions.iter().find(|session| session.name == "gw2").context("no such neighbor")?;
        ensure!(session.prefixes_accepted == 1, "{}: {}", session.state, session.state_reason);
        Ok(())
    };
    mesh.node_mut(1).wait_until("a session", LIMIT, up).unwrap();
}

/// The session that was there at first is still the same.
fn session_held(node: &Node) {
    let sessions = node.bgp_neighbors().unwrap();
    let session = sessions.iter().find(|session| session.name == "gw2").unwrap();
    assert_eq!((session.state.as_str(), session.established_count), ("Established", 1), "{session:?}");
}

/// Datagrams of the tunnel protocol's four types with lengths that fit and that don't, and of no type.
fn junk(n: usize) -> Vec<u8> {
    let kind = u8::try_from(n % 6).unwrap();
    let right = [0_usize, 148, 92, 64, 32, 148][n % 6];
    let length = match n % 4 {
        0 => right,
        1 => right.saturating_sub(1 + n % 31),
        2 => right + 1 + n % 100,
        _ => n % 1473,
    };
    let mut datagram = random(length);
    let head = [kind, 0, 0, u8::from(n.is_multiple_of(50))];
    let count = length.min(4);
    datagram[..count].copy_from_slice(&head[..count]);
    datagram
}

#[test]
fn junk_datagrams_disturb_nobody() {
    sandbox::run_with_bins("hostile::junk_datagrams_disturb_nobody", |bins| {
        let mut mesh = Mesh::new(2, bins).unwrap();
        two(&mut mesh, "[metrics]\n");
        let elsewhere = stranger("stranger").unwrap();
        let [v4, v6]: [IpAddr; 2] = ["192.0.2.66", "2001:db8::66"].map(|address| address.parse().unwrap());
        for (address, length) in [(v4, 24), (v6, 64)] {
            elsewhere.add_address("eth0", ipnet::IpNet::new(address, length).unwrap()).unwrap();
        }
        let echo = UdpEcho::start(mesh.node(2).netns(), SocketAddr::new(overlay(2)[0], 7)).unwrap();
        reach(mesh.node(1).netns(), echo.address(), LIMIT).unwrap();
        let flows = Flow::several(echo.address(), 40000, 4);
        let prober = Prober::start(mesh.node(1).netns(), &flows, Duration::from_millis(20)).unwrap();

        // From a stranger, and from the address that the good peer has.
        for (netns, sources) in [(&elsewhere, [v4, v6]), (mesh.node(2).netns(), outer(2))] {
            for (source, target) in sources.into_iter().zip(outer(1)) {
                let socket = netns.run(|| UdpSocket::bind((source, 0))).unwrap().unwrap();
                for n in 0..3000 {
                    // The socket may report that somebody did not like the last one.
                    let _ = socket.send_to(&junk(n), (target, TUNNEL_PORT));
                }
            }
            let before = prober.received();
            wait::until("answers on every flow", LIMIT, || {
                let now = prober.received();
                ensure!(before.iter().zip(&now).all(|(before, now)| *now > before + 5), "{before:?} {now:?}");
                Ok(())
            })
            .unwrap();
        }
        prober.stop().unwrap();
        let node = mesh.node_mut(1);
        node.ensure_alive().unwrap();
        session_held(node);
        is_modest(node);
        node.wait_until("the counts of what was dropped", LIMIT, |node| {
            let (_, page) = get(node.netns(), METRICS, "/metrics")?;
            for reason in ["malformed", "unknown_index"] {
                ensure!(count(&page, reason) > 0.0, "no {reason} in {page}");
            }
            Ok(())
        })
        .unwrap();
    });
}

fn count(page: &str, reason: &str) -> f64 {
    let start = format!("isthmus_tunnel_drops_total{{reason=\"{reason}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or(0.0)
}

/// A BGP message of this type with this length in its header, whatever follows.
fn message(kind: u8, length: u16, body: &[u8]) -> Vec<u8> {
    [&[0xff; 16][..], &length.to_be_bytes(), &[kind], body].concat()
}

/// An OPEN that the daemon takes, as gateway 3.
fn open() -> Vec<u8> {
    let body = [&[4][..], &65003_u16.to_be_bytes(), &90_u16.to_be_bytes(), &[192, 0, 2, 3], &[0]].concat();
    message(1, 29, &body)
}

fn bgp_junk() -> Vec<Vec<u8>> {
    let after_open = |more: Vec<u8>| [open(), message(4, 19, &[]), more].concat();
    vec![
        Vec::new(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        random(100),
        random(1 << 16),
        vec![0xff; 100],
        open()[..25].to_vec(),
        open()[..7].to_vec(),
        message(1, 18, &[]),
        message(1, 4097, &random(4078)),
        message(2, 65535, &random(10_000)),
        message(1, 29, &random(10)),
        message(9, 19, &[]),
        message(2, 60, &random(41)),
        after_open(Vec::new()),
        after_open(message(2, 4096, &random(100))),
        after_open(message(2, 60, &random(41))),
        after_open(message(2, 27, &[0, 0, 0, 4, 0x40, 1, 1, 99])),
        after_open(message(5, 23, &random(4))),
        after_open(message(3, 21, &[6, 2])),
        after_open(random(1 << 16)),
    ]
}

#[test]
fn junk_on_the_bgp_port_disturbs_nobody() {
    sandbox::run_with_bins("hostile::junk_on_the_bgp_port_disturbs_nobody", |bins| {
        let mut mesh = Mesh::new(3, bins).unwrap();
        let outside = |n: u8, asn: u32| {
            let address = outer(n)[0];
            format!(
                "[[bgp.neighbor]]\nname = \"outside\"\naddress = \"{address}\"\nasn = {asn}\nimport = \"all\"\n"
            )
        };
        two(&mut mesh, "[metrics]\n");
        let without = fs::read_to_string(mesh.node(1).config()).unwrap();
        let with = without.clone() + &outside(3, 65003);
        reload(mesh.node_mut(1), &with);
        let elsewhere = stranger("stranger").unwrap();
        elsewhere.add_address("eth0", "192.0.2.66/24".parse().unwrap()).unwrap();
        elsewhere.add_address("eth0", "2001:db8::66/64".parse().unwrap()).unwrap();

        let mut kept = Vec::new();
        for netns in [mesh.node(3).netns(), &elsewhere] {
            for target in outer(1) {
                for junk in bgp_junk() {
                    // Half are closed at once, half stay open without another word.
                    let _ = offer(netns, target, &junk);
                    kept.extend(offer(netns, target, &junk));
                }
            }
            kept.extend((0..100).filter_map(|_| offer(netns, outer(1)[0], &[]).ok()));
        }
        let node = mesh.node_mut(1);
        node.ensure_alive().unwrap();
        session_held(node);
        is_modest(node);
        node.ctl_ok(&["bgp", "neighbors"]).unwrap();
        let (_, page) = get(node.netns(), METRICS, "/metrics").unwrap();
        assert!(page.contains("isthmus_bgp_connections_refused_total{reason=\"unknown\"}"), "{page}");
        drop(kept);

        // A bad OPEN is answered by a long silence. The operator can end it, and then the true neighbor comes in.
        reload(mesh.node_mut(1), &without);
        reload(mesh.node_mut(1), &with);
        let section = mesh::node_section(mesh.node(3), None);
        let late = section + "[bgp]\nasn = 65003\nrouter_id = \"192.0.2.3\"\nannounce = [\"10.30.0.0/16\"]\n";
        let late = late + &outside(1, 65001) + "export = \"all\"\n";
        mesh.node_mut(3).start(&late).unwrap();
        let welcome = |node: &Node| {
            let sessions = node.bgp_neighbors()?;
            let session = sessions.iter().find(|session| session.name == "outside").context("it is gone")?;
            ensure!(session.prefixes_accepted == 1, "{}: {}", session.state, session.state_reason);
            Ok(())
        };
        mesh.node_mut(1).wait_until("the true neighbor", LIMIT, welcome).unwrap();
        session_held(mesh.node(1));
    });
}

/// Connects, says it and returns the connection.
fn offer(netns: &Netns, target: IpAddr, words: &[u8]) -> io::Result<TcpStream> {
    netns
        .run(|| {
            let mut stream =
                TcpStream::connect_timeout(&SocketAddr::new(target, 179), Duration::from_secs(5))?;
            stream.set_write_timeout(Some(Duration::from_secs(5)))?;
            // It may be closed before all is said.
            let _ = stream.write_all(words);
            Ok(stream)
        })
        .unwrap()
}

fn reload(node: &mut Node, config: &str) {
    let generation = |node: &Node| anyhow::Ok(node.status()?.config.context("no configuration")?.generation);
    let before = generation(node).unwrap();
    node.write_config(config).unwrap();
    node.signal(nix::sys::signal::Signal::SIGHUP).unwrap();
    let applied = |node: &Node| {
        ensure!(generation(node)? > before, "{:?}", node.status()?.config);
        Ok(())
    };
    node.wait_until("the reload", LIMIT, applied).unwrap();
}

/// One issuer with both sockets, under the usual limit of open files.
fn issuer(bins: &Bins, dir: &Path) -> Node {
    let netns = Netns::create("issuer").unwrap();
    let mut node = Node::new("gw1", &netns, dir, bins).unwrap();
    Pki::new("s1", OffsetDateTime::now_utc()).unwrap().write_all(node.dir(), "gw1").unwrap();
    let entry = "[[workload_api.entry]]\nspiffe_id = \"/sa/root\"\nselectors = [\"unix:uid:0\"]\n";
    node.write_config(&(issuer_config(&node, "s1") + entry + "[metrics]\n")).unwrap();
    node.restart_in_shell("ulimit -n 1024", |_| ()).unwrap();
    node.wait_ready(LIMIT).unwrap();
    node
}

/// Both sockets answer those who ask properly.
fn both_answer(node: &Node) {
    let status = node.ctl_ok(&["-o", "json", "status"]).unwrap();
    assert!(status.contains("\"ready\": true"), "{status}");
    let endpoint = format!("unix://{}", node.workload_socket().display());
    let svid = node.ctl_ok(&["svid", "fetch", "--workload-socket", &endpoint]).unwrap();
    assert!(svid.contains("/sa/root"), "{svid}");
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A frame of HTTP/2 (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u8, length: u32, payload: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

fn http_junk() -> Vec<Vec<u8>> {
    let after_preface = |frames: Vec<u8>| [PREFACE, &frames].concat();
    let endless_headers = || {
        let piece = frame(9, 0, 1, 16_384, &vec![0; 16_384]);
        [frame(1, 0, 1, 16_384, &vec![0; 16_384]), piece.repeat(200)].concat()
    };
    vec![
        random(1 << 16),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        [b"GET /".to_vec(), vec![b'a'; 1 << 20]].concat(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n".to_vec(),
        after_preface(frame(0, 0, 1, 0x00ff_ffff, &random(1 << 20))),
        after_preface(frame(1, 4, 1, 0x00ff_ffff, &random(1 << 20))),
        after_preface(frame(1, 4, 1, 200, &random(200))),
        after_preface(endless_headers()),
        after_preface(frame(4, 0, 0, 6, &random(6)).repeat(20_000)),
        after_preface(frame(6, 0, 0, 8, &random(8)).repeat(20_000)),
        after_preface(random(1 << 16)),
    ]
}

#[test]
fn junk_on_the_unix_sockets_disturbs_nobody() {
    sandbox::run_with_bins("hostile::junk_on_the_unix_sockets_disturbs_nobody", |bins| {
        let dir = tempfile::tempdir().unwrap();
        let mut node = issuer(bins, dir.path());
        for socket in [node.socket(), node.workload_socket()] {
            let mut kept = Vec::new();
            for junk in http_junk() {
                for keep in [false, true] {
                    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
                    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
                    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                    // It may be closed before all is said, and whoever does not read what it is told is not read either.
                    let _ = stream.write_all(&junk);
                    let _ = stream.read(&mut [0; 4096]);
                    kept.extend(keep.then_some(stream));
                }
            }
            both_answer(&node);
        }
        node.ensure_alive().unwrap();
        is_modest(&node);
        assert!(node.stop().unwrap().success());
    });
}

/// Connects as often as the listener lets us, up to `count` times.
fn idle(address: &SockAddr, count: usize) -> Vec<Socket> {
    let mut open = Vec::new();
    let deadline = Instant::now() + LIMIT;
    while open.len() < count && Instant::now() < deadline {
        let stream = Socket::new(address.domain(), Type::STREAM, None).unwrap();
        stream.set_nonblocking(true).unwrap();
        match stream.connect(address) {
            Ok(()) => open.push(stream),
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => open.push(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{address:?}: {error}"),
        }
    }
    open
}

fn open_files(node: &Node) -> usize {
    fs::read_dir(format!("/proc/{}/fd", node.pid().unwrap())).unwrap().count()
}

fn processor_ticks(node: &Node) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", node.pid().unwrap())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn idle_connections_shut_nobody_out() {
    sandbox::run_with_bins("hostile::idle_connections_shut_nobody_out", |bins| {
        // SAFETY: both calls read or write one `rlimit` that outlives them.
        unsafe {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
            limit.rlim_cur = limit.rlim_max.min(8192);
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        }
        let dir = tempfile::tempdir().unwrap();
        let mut node = issuer(bins, dir.path());
        let before = open_files(&node);
        let mut kept = Vec::new();
        let unix = |path: &Path| SockAddr::unix(path).unwrap();
        for (address, count) in
            [(unix(&node.workload_socket()), 3000), (unix(&node.socket()), 3000), (METRICS.into(), 500)]
        {
            kept.push(node.netns().run(|| idle(&address, count)).unwrap());
            node.ensure_alive().unwrap();
            // They take nobody else's descriptors.
            let ready = |node: &Node| {
                // One that overtakes the last of them may have to ask again.
                let (code, page) = get(node.netns(), METRICS, "/readyz")?;
                ensure!(code == 200, "{page}");
                Ok(())
            };
            node.wait_until("the health page", LIMIT, ready).unwrap();
            let status = node.ctl_ok(&["status"]).unwrap();
            assert!(status.contains("gw1"), "{status}");
            assert!(open_files(&node) < 1000, "{} open files", open_files(&node));
        }
        let ticks = processor_ticks(&node);
        std::thread::sleep(Duration::from_secs(1));
        let busy = processor_ticks(&node) - ticks;
        assert!(busy < 50, "it is busy with idle connections: {busy} of 100 ticks");
        let lines = node.log_text().lines().count();
        assert!(lines < 200, "{lines} lines in the log");

        drop(kept);
        node.wait_until("the end of the idle connections", LIMIT, |node| {
            ensure!(open_files(node) <= before + 2, "{} open files", open_files(node));
            Ok(())
        })
        .unwrap();
        both_answer(&node);
        is_modest(&node);
        assert!(node.stop().unwrap().success());
    });
}
