//! Outer addresses that come and go, and who may say where a peer is.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::ensure;
use ipnet::IpNet;
use isthmus_lab::{
    bins::Bins,
    mesh::{Family, Mesh, endpoint, outer, overlay, peer},
    node::Node,
    probe::{MarkedSocket, UdpEcho},
    relay::Passing,
    sandbox, wait,
};

use super::common::{LIMIT, at, clear, faces, hello, host_on_the_link, relayed};

fn endpoint_of(node: &Node, peer: &str) -> SocketAddr {
    node.peer(peer).unwrap().endpoint.parse().unwrap()
}

/// A datagram that arrives although nobody repeats it.
fn once(mesh: &Mesh, from: u8, to: u8) {
    let target = at(overlay(to)[0], 72);
    let receiver = MarkedSocket::bind(mesh.node(to).netns(), target).unwrap();
    let sender = MarkedSocket::bind(mesh.node(from).netns(), at(overlay(from)[0], 0)).unwrap();
    sender.send(target, b"once", 0).unwrap();
    assert_eq!(receiver.receive(LIMIT).unwrap().bytes, b"once");
}

/// Gateway 1 has two outer addresses, gateway 2 does not know where it is.
fn with_two_addresses(bins: &Bins, family: Family) -> (Mesh, IpAddr) {
    let mesh = Mesh::start(
        bins,
        LIMIT,
        &[&|mesh| mesh.base(1) + &peer(2, Some(family)), &|mesh| mesh.base(2) + &peer(1, None)],
    )
    .unwrap();
    let (second, length) = (outer(11)[family as usize], if family == Family::V4 { 24 } else { 64 });
    let netns = mesh.node(1).netns();
    // Or the kernel takes the second away with the first.
    netns.sysctl("net.ipv4.conf.eth0.promote_secondaries", "1").unwrap();
    netns.add_address("eth0", IpNet::new(second, length).unwrap()).unwrap();
    (mesh, second)
}

#[test]
fn an_outer_address_that_vanishes_costs_no_packet() {
    sandbox::run_with_bins("roaming::an_outer_address_that_vanishes_costs_no_packet", |bins| {
        for family in Family::BOTH {
            let (mesh, second) = with_two_addresses(bins, family);
            hello(mesh.node(1), mesh.node(2), overlay(2)[0]).unwrap();
            let first = endpoint_of(mesh.node(2), "gw1").ip();
            let (gone, left) =
                if first == second { (second, outer(1)[family as usize]) } else { (first, second) };
            let handshake = mesh.node(1).peer("gw2").unwrap().last_handshake_at;

            mesh.node(1).netns().delete_address(gone).unwrap();
            // The very next packet gets there, in the same session, and tells the other side.
            once(&mesh, 1, 2);
            wait::until("the new endpoint", LIMIT, || {
                let now = endpoint_of(mesh.node(2), "gw1").ip();
                ensure!(now == left, "still {now}");
                Ok(())
            })
            .unwrap();
            once(&mesh, 2, 1);
            hello(mesh.node(2), mesh.node(1), overlay(1)[1]).unwrap();
            assert_eq!(mesh.node(1).peer("gw2").unwrap().last_handshake_at, handshake);
            assert_eq!(mesh.node(1).drops("gw2", "no_endpoint").unwrap(), 0);
            clear(mesh, &[]);
        }
    });
}

/// What the relay keeps of the traffic, to be sent again by somebody else.
type Captured = Arc<Mutex<Vec<Passing>>>;

fn capturing(bins: &Bins, family: Family) -> (Mesh, isthmus_lab::relay::Relay, Captured) {
    let captured = Captured::default();
    let keep = Arc::clone(&captured);
    let (mesh, relay) = relayed(bins, family, move |passing| {
        keep.lock().unwrap().push(passing.clone());
        vec![passing]
    });
    (mesh, relay, captured)
}

#[test]
fn only_what_is_authentic_and_new_moves_a_peer() {
    sandbox::run_with_bins("roaming::only_what_is_authentic_and_new_moves_a_peer", |bins| {
        for family in Family::BOTH {
            let (mesh, relay, captured) = capturing(bins, family);
            hello(mesh.node(1), mesh.node(2), overlay(2)[0]).unwrap();
            let (us, known) = (endpoint(2, family), faces(family)[1]);
            assert_eq!(endpoint_of(mesh.node(2), "gw1"), known);
            let stranger = host_on_the_link("stranger", 66);
            let socket = MarkedSocket::bind(&stranger, at(outer(66)[family as usize], 7)).unwrap();

            // Everything that gateway 1 ever said, from elsewhere: handshake and data.
            let said: Vec<Passing> =
                captured.lock().unwrap().iter().filter(|p| p.from == 0).cloned().collect();
            assert!(said.iter().any(|p| p.bytes[0] == 1) && said.iter().any(|p| p.bytes[0] == 4));
            let data = said.iter().filter(|p| p.bytes[0] == 4).count() as u64;
            let replayed = || mesh.node(2).drops("gw1", "replayed");
            let before = replayed().unwrap();
            said.iter().for_each(|passing| socket.send(us, &passing.bytes, 0).unwrap());
            wait::until("the count of replays", LIMIT, || {
                ensure!(replayed()? == before + data, "{} of {data}", replayed()? - before);
                Ok(())
            })
            .unwrap();
            // The same with one bit changed, and a cookie reply for the session's index.
            let mut forged: Vec<Vec<u8>> = said.iter().map(|passing| passing.bytes.clone()).collect();
            forged.iter_mut().for_each(|bytes| *bytes.last_mut().unwrap() ^= 1);
            let index = said.iter().find(|passing| passing.bytes[0] == 4).unwrap().bytes[4..8].to_vec();
            forged.push([vec![3, 0, 0, 0], index, vec![7; 56]].concat());
            forged.iter().for_each(|bytes| socket.send(us, bytes, 0).unwrap());
            // A later datagram of the good peer: what was sent before has been looked at.
            hello(mesh.node(1), mesh.node(2), overlay(2)[1]).unwrap();
            assert_eq!(endpoint_of(mesh.node(2), "gw1"), known);
            assert!(socket.try_receive().unwrap().is_none(), "an answer to a stranger");
            hello(mesh.node(2), mesh.node(1), overlay(1)[0]).unwrap();
            drop((relay, socket));
            clear(mesh, &["relay", "stranger"]);
        }
    });
}

/// Datagrams of every length and type, from the network and from the very address of the peer.
#[test]
fn junk_of_every_length_disturbs_nobody() {
    sandbox::run_with_bins("roaming::junk_of_every_length_disturbs_nobody", |bins| {
        for family in Family::BOTH {
            let (mesh, relay, captured) = capturing(bins, family);
            hello(mesh.node(1), mesh.node(2), overlay(2)[0]).unwrap();
            drop(relay);
            let before = mesh.node(2).peer("gw1").unwrap();
            let index = {
                let captured = captured.lock().unwrap();
                captured.iter().find(|p| p.from == 0 && p.bytes[0] == 4).unwrap().bytes[4..8].to_vec()
            };
            let good = isthmus_lab::netns::Netns::named("relay");
            let stranger = host_on_the_link("stranger", 66);
            for (netns, from) in [(&stranger, at(outer(66)[family as usize], 0)), (&good, faces(family)[1])] {
                let socket = netns.run(|| UdpSocket::bind(from)).unwrap().unwrap();
                junk(&socket, endpoint(2, family), &index);
            }
            let echo = UdpEcho::start(mesh.node(1).netns(), at(overlay(1)[0], 7)).unwrap();
            // The relay is back, and the session as it was.
            let (ends, faces) = ([1, 2].map(|n| endpoint(n, family)), faces(family));
            let relay =
                isthmus_lab::relay::Relay::start(&good, faces, ends, |passing| vec![passing]).unwrap();
            isthmus_lab::probe::reach(mesh.node(2).netns(), echo.address(), LIMIT).unwrap();
            let after = mesh.node(2).peer("gw1").unwrap();
            assert_eq!(
                (&before.endpoint, before.last_handshake_at),
                (&after.endpoint, after.last_handshake_at)
            );
            let failed = after.drops.get("decrypt_failed").copied().unwrap_or(0);
            assert!(failed > 1000, "{:?}", after.drops);
            drop((echo, relay));
            clear(mesh, &["relay", "stranger"]);
        }
    });
}

fn junk(socket: &UdpSocket, to: SocketAddr, index: &[u8]) {
    for length in 0..=2000 {
        for kind in 1..=4_u8 {
            let mut datagram: Vec<u8> = (0..length).map(|_| rand::random()).collect();
            datagram.iter_mut().zip([kind, 0, 0, 0]).for_each(|(byte, head)| *byte = head);
            // Of data every other, so that it gets as far as decryption.
            if kind == 4 && length % 2 == 0 && length >= 8 {
                datagram[4..8].copy_from_slice(index);
            }
            socket.send_to(&datagram, to).unwrap();
        }
        // What the kernel can hold for the other side while that one thinks.
        if length % 50 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
