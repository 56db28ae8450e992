//! Few system calls for many packets, also where nobody merged them before.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use isthmus_lab::{
    mesh::{Family, Mesh, metrics, overlay},
    netns::Netns,
    node::Node,
    peers::skipped,
    probe::{MarkedSocket, Metrics, TcpSink, UdpEcho, reach, send},
    sandbox, wait,
};
use nix::sys::signal::Signal;
use rtnetlink::LinkVxlan;

use super::common::{LIMIT, at, hello, pair};

/// Datagrams in a burst: fewer than the queue of a TUN device holds.
const BURST: u32 = 200;
const BURSTS: u32 = 5;

/// Datagrams without a checksum, as VXLAN sends them.
fn without_checksum(netns: &Netns, address: IpAddr) -> MarkedSocket {
    let socket = MarkedSocket::bind(netns, at(address, 0)).unwrap();
    socket.omit_checksums().unwrap();
    socket
}

/// A burst meets both daemons at once, so that none of it depends on who is faster.
fn burst(mesh: &Mesh, from: &MarkedSocket, to: &MarkedSocket, first: u32) {
    let target = at(overlay(2)[0], to.port().unwrap());
    let signal = |n: u8, signal| mesh.node(n).signal(signal).unwrap();
    let sent = sent_by(mesh.node(1)).unwrap();
    signal(1, Signal::SIGSTOP);
    signal(2, Signal::SIGSTOP);
    for number in first..first + BURST {
        from.send(target, &[&number.to_be_bytes()[..], &[7; 100]].concat(), 0).unwrap();
    }
    // The second wakes up when all of it has arrived.
    signal(1, Signal::SIGCONT);
    wait::until("the burst to leave", LIMIT, || {
        let now = sent_by(mesh.node(1))?;
        ensure!(now >= sent + u64::from(BURST), "{now} after {sent}");
        Ok(())
    })
    .unwrap();
    signal(2, Signal::SIGCONT);
    for number in first..first + BURST {
        let marked = to.receive(LIMIT).unwrap();
        assert_eq!(marked.bytes, [&number.to_be_bytes()[..], &[7; 100]].concat());
    }
}

fn sent_by(node: &Node) -> Result<u64> {
    Ok(node.peer("gw2")?.tx_packets)
}

/// System calls of this kind, and the packets that they carried.
fn calls(metrics: &Metrics, kind: &str) -> (f64, f64) {
    let value = |name: &str| metrics.count(name, &[("call", kind)]);
    (value("isthmus_tunnel_batch_packets_count"), value("isthmus_tunnel_batch_packets_sum"))
}

#[test]
fn a_thousand_datagrams_without_checksum_take_few_calls() {
    sandbox::run_with_bins("batches::a_thousand_datagrams_without_checksum_take_few_calls", |bins| {
        let mesh = pair(bins, Family::V4);
        hello(mesh.node(1), mesh.node(2), overlay(2)[0]).unwrap();
        let from = without_checksum(mesh.node(1).netns(), overlay(1)[0]);
        let to = MarkedSocket::bind(mesh.node(2).netns(), at(overlay(2)[0], 4789)).unwrap();
        let before = [1, 2].map(|n| metrics(mesh.node(n)).unwrap());
        (0..BURSTS).for_each(|n| burst(&mesh, &from, &to, n * BURST));
        let after = [1, 2].map(|n| metrics(mesh.node(n)).unwrap());
        for (node, kind) in [(0, "udp_send"), (1, "udp_receive"), (1, "tun_write")] {
            let (began, ended) = (calls(&before[node], kind), calls(&after[node], kind));
            let (calls, packets) = (ended.0 - began.0, ended.1 - began.1);
            assert!(packets >= f64::from(BURST * BURSTS), "{kind}: {packets} packets");
            assert!(calls <= packets / 10.0, "{kind}: {calls} calls for {packets} packets");
        }
    });
}

/// A network of its own inside the tunnel; false where the kernel has no VXLAN.
fn vxlan(netns: &Netns, n: u8) -> Result<bool> {
    let [IpAddr::V4(local), IpAddr::V4(remote)] = [n, 3 - n].map(|n| overlay(n)[0]) else {
        anyhow::bail!("the overlay's first address is IPv4")
    };
    let made = netns.netlink(async |handle| {
        let vxlan = LinkVxlan::new("vxlan0", 7).local(local).remote(remote).port(4789).build();
        Ok(handle.link().add(vxlan).execute().await.map_err(|error| error.to_string()))
    })?;
    if let Err(error) = made {
        ensure!(error.contains("not supported"), "{error}");
        return Ok(false);
    }
    netns.set_mtu("vxlan0", 1370).context("MTU")?;
    for address in inside(n) {
        netns.add_address("vxlan0", address)?;
    }
    netns.link_up("vxlan0")?;
    Ok(true)
}

fn inside(n: u8) -> [IpNet; 2] {
    let v4 = IpNet::new([10, 70, 0, n].into(), 24);
    [v4.unwrap(), IpNet::new([0xfd70, 0, 0, 0, 0, 0, 0, n.into()].into(), 64).unwrap()]
}

#[test]
fn a_vxlan_in_the_tunnel_carries_tcp() {
    sandbox::run_with_bins("batches::a_vxlan_in_the_tunnel_carries_tcp", |bins| {
        let mesh = pair(bins, Family::V4);
        hello(mesh.node(1), mesh.node(2), overlay(2)[0]).unwrap();
        if !(vxlan(mesh.node(1).netns(), 1).unwrap() && vxlan(mesh.node(2).netns(), 2).unwrap()) {
            return skipped("batches::a_vxlan_in_the_tunnel_carries_tcp", "the kernel has no VXLAN");
        }
        for (from, to) in [(1, 2), (2, 1)] {
            for address in inside(to).map(|net| net.addr()) {
                let (here, there) = (mesh.node(from).netns(), mesh.node(to).netns());
                let echo = UdpEcho::start(there, at(address, 7)).unwrap();
                reach(here, echo.address(), LIMIT).unwrap();
                let sink = TcpSink::start(there, at(address, 9), LIMIT).unwrap();
                assert_eq!(send(here, sink.address(), 5_000_000, LIMIT).unwrap().bytes, 5_000_000);
                sink.finish().unwrap();
            }
        }
        for n in [1, 2] {
            let all = metrics(mesh.node(n)).unwrap();
            for reason in ["tun_write", "malformed", "too_big"] {
                let dropped = all.value("isthmus_tunnel_drops_total", &[("reason", reason)]).unwrap();
                assert_eq!(dropped, 0.0, "{reason} at gateway {n}");
            }
        }
    });
}
