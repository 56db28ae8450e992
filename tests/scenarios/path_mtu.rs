//! Two gateways on paths of different width: what they find out, and what that means to their users.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    io,
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use isthmus_lab::{
    bins::Bins,
    mesh::{self, Family, Mesh, TUNNEL_PORT, outer, overlay, peer, stranger},
    netns::Netns,
    node::Node,
    probe::{TcpSink, TcpStreaming, UdpEcho, WholeUdp, get, reach, send},
    sandbox, wait,
};
use socket2::{Domain, Protocol, Socket, Type};

const LIMIT: Duration = Duration::from_secs(20);
/// A black hole is noticed by a look that happens every ten seconds, and sizes that are lost take three seconds each.
const PATIENCE: Duration = Duration::from_secs(60);
const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9587);
/// The tunnel's MTU.
const FULL: u16 = 1420;
const BYTES: u64 = 6_000_000;
/// What the kernel's TCP uses of each segment for timestamps.
const TIMESTAMPS: usize = 12;
const ECHO_PORT: u16 = 7;

fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

/// Two gateways on links of `link_mtu` bytes that talk over `family`; `more` ends both configurations.
fn start(family: Family, link_mtu: u32, more: &str, bins: &Bins) -> Mesh {
    let mut mesh = Mesh::new(2, bins).unwrap();
    set_links(&mesh, link_mtu);
    for (n, other) in [(1, 2), (2, 1)] {
        let config = mesh.base(n) + &peer(other, Some(family)) + "[metrics]\n" + more;
        mesh.node_mut(n).start(&config).unwrap();
    }
    for n in [1, 2] {
        mesh.node_mut(n).wait_ready(LIMIT).unwrap();
    }
    mesh
}

fn end(mesh: Mesh) {
    drop(mesh);
    for name in ["hub", "gw1", "gw2"] {
        Netns::named(name).delete().unwrap();
    }
}

/// All four ends of the two cables.
fn set_links(mesh: &Mesh, mtu: u32) {
    for n in [1, 2] {
        mesh.node(n).netns().set_mtu("eth0", mtu).unwrap();
        Netns::named("hub").set_mtu(&mesh::name(n), mtu).unwrap();
    }
}

/// The longest inner packet that the node sends to its peer.
fn mtu_of(node: &Node) -> Result<u16> {
    let (_, page) = get(node.netns(), METRICS, "/metrics")?;
    let line = page.lines().find(|line| line.starts_with("isthmus_tunnel_peer_mtu_bytes"));
    Ok(line.and_then(|line| line.rsplit(' ').next()).context("no such metric")?.parse()?)
}

fn reason(node: &Node) -> Result<String> {
    Ok(node.peers()?.first().context("no peer")?.state_reason.clone())
}

/// Waits until both have found out how much fits, and say so.
fn both_find(mesh: &Mesh, outer: u16, inner: u16, limit: Duration) {
    for node in [1, 2].map(|n| mesh.node(n)) {
        let found = wait::until(&format!("the path MTU of {}", node.name()), limit, || {
            let (mtu, reason) = (mtu_of(node)?, reason(node)?);
            ensure!(mtu == inner, "{mtu} instead of {inner}; {reason}");
            let told = reason.contains(&format!("outer packets of up to {outer} bytes reach it: "));
            ensure!(told == (inner < FULL), "{reason}");
            Ok(())
        });
        found.map_err(|error| node.blame(error)).unwrap();
    }
}

/// Overhead of the tunnel over this family.
fn overhead(family: Family) -> u16 {
    if family == Family::V4 { 60 } else { 80 }
}

/// What fits links of this MTU.
fn fits(family: Family, link_mtu: u16) -> u16 {
    FULL.min(link_mtu - overhead(family))
}

#[test]
fn all_that_is_too_big_for_the_path_is_told_or_fragmented() {
    sandbox::run_with_bins("all_that_is_too_big_for_the_path_is_told_or_fragmented", |bins| {
        for (family, link_mtu) in
            [1500, 1400, 1280].into_iter().flat_map(|mtu| Family::BOTH.map(|f| (f, mtu)))
        {
            let mesh = start(family, link_mtu.into(), "", bins);
            let _echoes: Vec<UdpEcho> = overlay(2)
                .into_iter()
                .map(|address| UdpEcho::start(mesh.node(2).netns(), at(address, ECHO_PORT)).unwrap())
                .collect();
            reach(mesh.node(1).netns(), at(overlay(2)[0], ECHO_PORT), LIMIT).unwrap();
            let inner = fits(family, link_mtu);
            both_find(&mesh, link_mtu, inner, LIMIT);
            for inner_family in 0..2 {
                tcp_fits(&mesh, inner_family, inner);
                udp_is_told(&mesh, inner_family, inner);
                udp_arrives_in_fragments(&mesh, inner_family);
            }
            end(mesh);
        }
    });
}

/// Connections both ways agree on segments that fit, before any packet was too big, and carry what they have to.
fn tcp_fits(mesh: &Mesh, family: usize, inner: u16) {
    let headers = if family == 0 { 40 } else { 60 };
    for (from, to) in [(1, 2), (2, 1)] {
        let (here, there, address) = (mesh.node(from).netns(), mesh.node(to).netns(), overlay(to)[family]);
        let stream = TcpStreaming::start(here, there, at(address, 8), LIMIT).unwrap();
        let expected = u32::try_from(usize::from(inner) - headers - TIMESTAMPS).unwrap();
        assert_eq!(stream.mss(), [expected; 2], "inner family {family}, {from} to {to}");
        stream.finish().unwrap();
        let sink = TcpSink::start(there, at(address, 9), LIMIT).unwrap();
        assert_eq!(send(here, sink.address(), BYTES, LIMIT).unwrap().bytes, BYTES);
        sink.finish().unwrap();
    }
}

/// Who forbids fragments learns the number, and what fits it arrives.
fn udp_is_told(mesh: &Mesh, family: usize, inner: u16) {
    let most = usize::from(if family == 0 { inner } else { inner.max(1280) });
    let socket = WholeUdp::connect(mesh.node(1).netns(), at(overlay(2)[family], ECHO_PORT)).unwrap();
    let longest = usize::from(FULL);
    if most < longest {
        wait::until("the word that it was too big", LIMIT, || match socket.echo(longest) {
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(()),
            other => anyhow::bail!("{other:?} to {longest} bytes"),
        })
        .unwrap();
    }
    assert_eq!(socket.path_mtu().unwrap(), most);
    wait::until("the echo of what fits", LIMIT, || {
        ensure!(socket.echo(most)?, "no echo of {most} bytes");
        Ok(())
    })
    .unwrap();
}

/// Who allows fragments gets everything through.
fn udp_arrives_in_fragments(mesh: &Mesh, family: usize) {
    let target = at(overlay(2)[family], ECHO_PORT);
    let socket = mesh.node(1).netns().run(|| UdpSocket::bind(at(overlay(1)[family], 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let payload: Vec<u8> = (0..=u8::MAX).cycle().take(2000).collect();
    wait::until("the echo of a datagram in fragments", LIMIT, || {
        socket.send_to(&payload, target)?;
        let mut buffer = vec![0; 3000];
        let (length, _) = socket.recv_from(&mut buffer)?;
        ensure!(buffer[..length] == payload, "it arrived changed");
        Ok(())
    })
    .unwrap();
}

#[test]
fn forged_messages_about_the_size_change_nothing() {
    sandbox::run_with_bins("forged_messages_about_the_size_change_nothing", |bins| {
        for family in Family::BOTH {
            let mesh = start(family, 1500, "", bins);
            let (here, there) = (mesh.node(1).netns(), mesh.node(2).netns());
            let sink = TcpSink::start(there, at(overlay(2)[0], 9), LIMIT).unwrap();
            send(here, sink.address(), BYTES, LIMIT).unwrap();
            sink.finish().unwrap();
            both_find(&mesh, 1480, FULL, LIMIT);

            let before = fragments(here);
            let liar = stranger("liar").unwrap();
            forge(&liar, family);
            let sink = TcpSink::start(there, at(overlay(2)[0], 9), LIMIT).unwrap();
            send(here, sink.address(), BYTES, LIMIT).unwrap();
            sink.finish().unwrap();
            assert_eq!(mtu_of(mesh.node(1)).unwrap(), FULL);
            assert!(!mesh.node(1).log_text().contains("path MTU found"), "{}", mesh.node(1).log_text());
            assert_eq!(fragments(here), before, "outer packets are fragmented");
            liar.delete().unwrap();
            end(mesh);
        }
    });
}

/// Outer packets that the kernel has cut, by family.
fn fragments(netns: &Netns) -> [u64; 2] {
    let read = |path: &str| netns.run(|| std::fs::read_to_string(path)).unwrap().unwrap();
    let (v4, v6) = (read("/proc/thread-self/net/snmp"), read("/proc/thread-self/net/snmp6"));
    let mut lines = v4.lines().filter(|line| line.starts_with("Ip: ")).map(str::split_whitespace);
    let (mut names, mut values) = (lines.next().unwrap(), lines.next().unwrap());
    let column = names.position(|name| name == "FragCreates").unwrap();
    let v6 = v6.lines().find(|line| line.starts_with("Ip6FragCreates")).unwrap();
    [values.nth(column).unwrap(), v6.split_whitespace().last().unwrap()].map(|text| text.parse().unwrap())
}

/// Says to gateway 1, as the router of `family` that it never met, that what it sends to gateway 2 may have 576 bytes at most.
fn forge(liar: &Netns, family: Family) {
    let own = [IpAddr::from([192, 0, 2, 99]), "2001:db8::99".parse().unwrap()][family as usize];
    let length = [24, 64][family as usize];
    liar.add_address("eth0", ipnet::IpNet::new(own, length).unwrap()).unwrap();
    let (victim, far) = (outer(1)[family as usize], outer(2)[family as usize]);
    let message = too_big(victim, far);
    let sent = liar.run(|| -> io::Result<()> {
        let (domain, protocol) = match family {
            Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
            Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        for _ in 0..10 {
            socket.send_to(&message, &at(victim, 0).into())?;
        }
        // It has arrived when the echo to what was sent after it is back.
        socket.set_read_timeout(Some(LIMIT))?;
        let mut ping = vec![if family == Family::V4 { 8 } else { 128 }, 0, 0, 0, 0, 1, 0, 1];
        if family == Family::V4 {
            let sum = checksum(&ping);
            ping[2..4].copy_from_slice(&sum);
        }
        socket.send_to(&ping, &at(victim, 0).into())?;
        loop {
            let mut buffer = [MaybeUninit::uninit(); 1500];
            let (_, from) = socket.recv_from(&mut buffer)?;
            if from.as_socket().is_some_and(|from| from.ip() == victim) {
                return Ok(());
            }
        }
    });
    sent.unwrap().unwrap();
}

/// The ICMP message; over IPv6 the kernel adds its checksum.
fn too_big(victim: IpAddr, far: IpAddr) -> Vec<u8> {
    let ports = TUNNEL_PORT.to_be_bytes();
    let udp = [ports, ports, [0x05, 0xac], [0, 0]].concat();
    match (victim, far) {
        (IpAddr::V4(victim), IpAddr::V4(far)) => {
            let mut quoted = vec![0x45, 0, 0x05, 0xc0, 0, 1, 0x40, 0, 64, 17, 0, 0];
            quoted.extend(victim.octets().iter().chain(&far.octets()));
            let sum = checksum(&quoted);
            quoted[10..12].copy_from_slice(&sum);
            let mut message = [&[3, 4, 0, 0, 0, 0, 0x02, 0x40], &quoted[..], &udp].concat();
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum);
            message
        }
        (IpAddr::V6(victim), IpAddr::V6(far)) => {
            let header = [0x60, 0, 0, 0, 0x05, 0xac, 17, 64];
            let quoted = [&header[..], &victim.octets(), &far.octets(), &udp].concat();
            [&[2, 0, 0, 0, 0, 0, 0x02, 0x40], &quoted[..]].concat()
        }
        mixed => panic!("{mixed:?}"),
    }
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}

#[test]
fn a_connection_survives_that_its_path_shrinks() {
    sandbox::run_with_bins("a_connection_survives_that_its_path_shrinks", |bins| {
        for family in Family::BOTH {
            let mesh = start(family, 1500, "", bins);
            let streams = streams(&mesh);
            both_find(&mesh, 1480, FULL, LIMIT);
            for link_mtu in [1400, 1280] {
                set_links(&mesh, link_mtu.into());
                both_find(&mesh, link_mtu, fits(family, link_mtu), PATIENCE);
                goes_on(&mesh, &streams);
            }
            for stream in streams {
                stream.finish().unwrap();
            }
            end(mesh);
        }
    });
}

#[test]
fn a_black_hole_is_noticed_and_the_connection_goes_on() {
    sandbox::run_with_bins("a_black_hole_is_noticed_and_the_connection_goes_on", |bins| {
        // A switch carries what the kernel has yet to cut, however long it is: so it gets single datagrams.
        let mesh = start(Family::V4, 1500, "[tunnel.offload]\nudp_gso = false\n", bins);
        let streams = streams(&mesh);
        both_find(&mesh, 1480, FULL, LIMIT);
        // Something in between loses what is longer, and nobody says so.
        for n in [1, 2] {
            Netns::named("hub").set_mtu(&mesh::name(n), 1400).unwrap();
        }
        both_find(&mesh, 1400, 1340, PATIENCE);
        goes_on(&mesh, &streams);
        for stream in streams {
            stream.finish().unwrap();
        }
    });
}

/// A connection each way.
fn streams(mesh: &Mesh) -> Vec<TcpStreaming> {
    let start = |(from, to)| {
        let (here, there) = (mesh.node(from).netns(), mesh.node(to).netns());
        TcpStreaming::start(here, there, at(overlay(to)[0], 8), PATIENCE).unwrap()
    };
    [(1, 2), (2, 1)].map(start).into()
}

fn goes_on(mesh: &Mesh, streams: &[TcpStreaming]) {
    let before: Vec<u64> = streams.iter().map(TcpStreaming::arrived).collect();
    let moved = wait::until("octets both ways", PATIENCE, || {
        let now: Vec<u64> = streams.iter().map(TcpStreaming::arrived).collect();
        ensure!(
            before.iter().zip(&now).all(|(before, now)| *now >= before + 1_000_000),
            "{before:?} {now:?}"
        );
        Ok(())
    });
    moved.map_err(|error| mesh.node(1).blame(error)).unwrap();
}
