//! Two gateways, straight on one link or with a relay between them.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use ipnet::IpNet;
use isthmus_lab::{
    bins::Bins,
    mesh::{self, Family, Mesh, endpoint, metrics_section, overlay, peer},
    netns::Netns,
    node::Node,
    probe::{TcpSink, UdpEcho, reach, send},
    relay::{Passing, Relay},
};

pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

/// Gateways 1 and 2, which know where the other is.
pub(crate) fn pair(bins: &Bins, outer: Family) -> Mesh {
    Mesh::start(
        bins,
        LIMIT,
        &[&|mesh| mesh.base(1) + &metrics_section() + &peer(2, Some(outer)), &|mesh| {
            mesh.base(2) + &metrics_section() + &peer(1, Some(outer))
        }],
    )
    .unwrap()
}

/// Where the relay is: what it shows to gateway 1, and to gateway 2.
pub(crate) fn faces(outer: Family) -> [SocketAddr; 2] {
    [7001, 7002].map(|port| SocketAddr::new(mesh::outer(200)[outer as usize], port))
}

/// Gateways 1 and 2 with a relay between them; of the two ends that [`Passing`] speaks of gateway 1 is the first.
pub(crate) fn relayed(
    bins: &Bins,
    outer: Family,
    treat: impl FnMut(Passing) -> Vec<Passing> + Send + 'static,
) -> (Mesh, Relay) {
    let mut mesh = Mesh::new(2, bins).unwrap();
    let host = host_on_the_link("relay", 200);
    let relay = Relay::start(&host, faces(outer), [1, 2].map(|n| endpoint(n, outer)), treat).unwrap();
    for (n, other, face) in [(1, 2, faces(outer)[0]), (2, 1, faces(outer)[1])] {
        let known = format!("endpoint = \"{face}\"\n");
        let config = mesh.base(n) + &metrics_section() + &peer(other, None) + &known;
        mesh.node_mut(n).start(&config).unwrap();
    }
    for n in [1, 2] {
        mesh.node_mut(n).wait_ready(LIMIT).unwrap();
    }
    (mesh, relay)
}

/// A host that is no gateway, with the outer addresses of this number.
pub(crate) fn host_on_the_link(name: &str, n: u8) -> Netns {
    let host = mesh::stranger(name).unwrap();
    for (address, length) in mesh::outer(n).into_iter().zip([24, 64]) {
        host.add_address("eth0", IpNet::new(address, length).unwrap()).unwrap();
    }
    host
}

/// Takes the namespaces of a mesh away, so that the next one can have their names.
pub(crate) fn clear(mesh: Mesh, others: &[&str]) {
    drop(mesh);
    for name in std::fs::read_dir("/run/netns").unwrap().map(|entry| entry.unwrap().file_name()) {
        let name = name.to_str().unwrap();
        if name == "hub" || name.starts_with("gw") || others.contains(&name) {
            Netns::named(name).delete().unwrap();
        }
    }
}

/// A datagram from one gateway's overlay to another's and back.
pub(crate) fn hello(from: &Node, to: &Node, inner: IpAddr) -> anyhow::Result<()> {
    let echo = UdpEcho::start(to.netns(), at(inner, 7))?;
    reach(from.netns(), echo.address(), LIMIT)
}

/// A TCP transfer that arrives as it was sent.
pub(crate) fn transfer(from: &Node, to: &Node, inner: IpAddr, bytes: u64) {
    let sink = TcpSink::start(to.netns(), at(inner, 9), LIMIT).unwrap();
    assert_eq!(send(from.netns(), sink.address(), bytes, LIMIT).unwrap().bytes, bytes);
    sink.finish().unwrap();
}

/// Both ways and both families between gateways 1 and 2.
pub(crate) fn all_is_well(mesh: &Mesh, bytes: u64) {
    for (from, to) in [(1, 2), (2, 1)] {
        for inner in overlay(to) {
            hello(mesh.node(from), mesh.node(to), inner).unwrap();
            transfer(mesh.node(from), mesh.node(to), inner, bytes);
        }
    }
}
