//! Two or three gateways, nothing foreign: what the tunnels carry, refuse, learn and move.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Result, ensure};
use ipnet::IpNet;
use isthmus_lab::{
    bins::Bins,
    mesh::{self, Family, Mesh, bgp, endpoint, neighbor, overlay, peer},
    node::Node,
    probe::{Flow, Prober, TcpSink, UdpEcho, reach, send},
    sandbox, wait,
};
use isthmus_proto::control::Peer;

const LIMIT: Duration = Duration::from_secs(20);
/// Many segments and windows.
const BYTES: u64 = 6_000_000;

fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

/// Gateways with these configurations, all ready.
fn start(configs: &[&dyn Fn(&Mesh) -> String], bins: &Bins) -> Mesh {
    let mut mesh = Mesh::new(u8::try_from(configs.len()).unwrap(), bins).unwrap();
    for (n, config) in (1..).zip(configs) {
        let text = config(&mesh);
        mesh.node_mut(n).start(&text).unwrap();
    }
    for (n, _) in (1..).zip(configs) {
        mesh.node_mut(n).wait_ready(LIMIT).unwrap();
    }
    mesh
}

fn peer_of(node: &Node, n: u8) -> Result<Peer> {
    let found = node.peers()?.into_iter().find(|peer| peer.name == mesh::name(n));
    found.ok_or_else(|| anyhow::anyhow!("{} has no peer {n}", node.name()))
}

#[test]
fn both_families_over_both_families() {
    sandbox::run_with_bins("both_families_over_both_families", |bins| {
        for outer in Family::BOTH {
            let mut mesh = start(
                &[&|mesh| mesh.base(1) + &peer(2, Some(outer)), &|mesh| mesh.base(2) + &peer(1, Some(outer))],
                bins,
            );
            for (from, to) in [(1, 2), (2, 1)] {
                for inner in overlay(to) {
                    let (here, there) = (mesh.node(from).netns(), mesh.node(to).netns());
                    let echo = UdpEcho::start(there, at(inner, 7)).unwrap();
                    reach(here, echo.address(), LIMIT).unwrap();
                    let sink = TcpSink::start(there, at(inner, 9), LIMIT).unwrap();
                    assert_eq!(send(here, sink.address(), BYTES, LIMIT).unwrap().bytes, BYTES);
                    sink.finish().unwrap();
                }
            }
            let counted = peer_of(mesh.node(1), 2).unwrap();
            assert!(counted.rx_bytes > 2 * BYTES && counted.tx_bytes > 2 * BYTES, "{counted:?}");
            assert_eq!(counted.endpoint, endpoint(2, outer).to_string());
            for n in [1, 2] {
                assert!(mesh.node_mut(n).stop().unwrap().success());
            }
            for name in ["hub", "gw1", "gw2"] {
                isthmus_lab::netns::Netns::named(name).delete().unwrap();
            }
        }
    });
}

#[test]
fn a_peer_without_endpoint_is_learned() {
    sandbox::run_with_bins("a_peer_without_endpoint_is_learned", |bins| {
        // Nothing here can resolve a name, and nothing waits for that.
        let nowhere = "[[tunnel.peer]]\nname = \"nowhere\"\npublic_key = \"IL0d1mkYX1WhTqLRvcr1I5QyzcnZnJHLYvkrkbFFCgI=\"\n\
             endpoint = \"gw9.nowhere.invalid:51820\"\n";
        let mesh = start(
            &[&|mesh| mesh.base(1) + &peer(2, Some(Family::V6)) + nowhere, &|mesh| {
                mesh.base(2) + &peer(1, None)
            }],
            bins,
        );
        let waiting = peer_of(mesh.node(2), 1).unwrap();
        assert_eq!((waiting.endpoint.as_str(), waiting.last_handshake_at), ("", None));
        // It can't speak first.
        let echo = UdpEcho::start(mesh.node(1).netns(), at(overlay(1)[0], 7)).unwrap();
        assert!(reach(mesh.node(2).netns(), echo.address(), Duration::from_millis(500)).is_err());
        wait::until("the count of what could not be sent", LIMIT, || {
            let drops = peer_of(mesh.node(2), 1)?.drops;
            ensure!(drops.get("no_endpoint").is_some_and(|packets| *packets > 0), "{drops:?}");
            Ok(())
        })
        .unwrap();

        let there = UdpEcho::start(mesh.node(2).netns(), at(overlay(2)[1], 7)).unwrap();
        reach(mesh.node(1).netns(), there.address(), LIMIT).unwrap();
        reach(mesh.node(2).netns(), echo.address(), LIMIT).unwrap();
        let learned = peer_of(mesh.node(2), 1).unwrap();
        assert_eq!(learned.endpoint, endpoint(1, Family::V6).to_string());

        let unresolved =
            mesh.node(1).peers().unwrap().into_iter().find(|peer| peer.name == "nowhere").unwrap();
        assert_eq!(unresolved.endpoint, "");
    });
}

#[test]
fn spoofed_sources_are_dropped_and_counted() {
    sandbox::run_with_bins("spoofed_sources_are_dropped_and_counted", |bins| {
        let mesh = start(
            &[
                &|mesh| mesh.base(1) + &peer(2, Some(Family::V4)) + &peer(3, Some(Family::V4)),
                &|mesh| mesh.base(2) + &peer(1, Some(Family::V4)),
                &|mesh| mesh.base(3) + &peer(1, Some(Family::V4)),
            ],
            bins,
        );
        for family in 0..2 {
            // Another peer's address, and one that nobody has a route to.
            let nobodys: IpAddr = ["172.16.0.1", "fd99::1"][family].parse().unwrap();
            for spoofed in [overlay(3)[family], nobodys] {
                refuses_from(&mesh, spoofed, family);
            }
        }
    });
}

/// Gateway 2 sends gateway 1 a datagram as if it came from `source`, then an honest one.
fn refuses_from(mesh: &Mesh, source: IpAddr, family: usize) {
    let (victim, liar) = (mesh.node(1), mesh.node(2));
    let target = at(overlay(1)[family], 7);
    let refused = |node: &Node| -> Result<u64> {
        Ok(peer_of(node, 2)?.drops.get("source_not_feasible").copied().unwrap_or(0))
    };
    let before = refused(victim).unwrap();
    liar.netns().add_address("lo", IpNet::from(source)).unwrap();
    let receiver = victim.netns().run(|| UdpSocket::bind(target)).unwrap().unwrap();
    receiver.set_read_timeout(Some(LIMIT)).unwrap();
    let say = |from: IpAddr, word: &str| {
        liar.netns().run(|| UdpSocket::bind(at(from, 0))?.send_to(word.as_bytes(), target)).unwrap().unwrap();
    };
    wait::until("the count of what was refused", LIMIT, || {
        say(source, "spoofed");
        ensure!(refused(victim)? > before, "nothing was refused");
        Ok(())
    })
    .unwrap();
    // What comes through the same session after them has not overtaken them.
    say(overlay(2)[family], "honest");
    let mut buffer = [0; 64];
    let (length, from) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from.ip()), (&b"honest"[..], overlay(2)[family]));
}

#[test]
fn a_path_group_spreads_flows_and_survives_a_death() {
    sandbox::run_with_bins("a_path_group_spreads_flows_and_survives_a_death", |bins| {
        let twin = |n: u8| {
            move |mesh: &Mesh| {
                let tunnel = mesh.base(n) + &peer(1, Some(Family::V4));
                tunnel + &bgp(65002, &["10.50.0.0/16", "fd50::/64"]) + &neighbor(1, 65001)
            }
        };
        let mut mesh = start(
            &[
                &|mesh| {
                    let tunnel = mesh.base(1) + &peer(2, Some(Family::V4)) + &peer(3, Some(Family::V4));
                    tunnel + "[fib]\n" + &bgp(65001, &[]) + &neighbor(2, 65002) + &neighbor(3, 65002)
                },
                &twin(2),
                &twin(3),
            ],
            bins,
        );
        // Both twins are the service.
        let service: [IpAddr; 2] = ["10.50.0.7", "fd50::7"].map(|address| address.parse().unwrap());
        let mut echoes = Vec::new();
        for (n, address) in [2, 3].into_iter().flat_map(|n| service.map(|address| (n, address))) {
            let netns = mesh.node(n).netns();
            netns.add_address("lo", IpNet::from(address)).unwrap();
            echoes.push(UdpEcho::start(netns, at(address, 7)).unwrap());
        }
        wait::until("both paths of both prefixes", LIMIT, || {
            for prefix in ["10.50.0.0/16", "fd50::/64"] {
                ensure!(carriers(mesh.node(1), prefix)? == 2, "{prefix} has no two carriers");
            }
            Ok(())
        })
        .unwrap();
        service.iter().for_each(|address| reach(mesh.node(1).netns(), at(*address, 7), LIMIT).unwrap());

        let sent = |n: u8| peer_of(mesh.node(1), n).unwrap().tx_packets;
        let before = [sent(2), sent(3)];
        let flows: Vec<Flow> =
            service.iter().flat_map(|address| Flow::several(at(*address, 7), 40000, 16)).collect();
        let prober = Prober::start(mesh.node(1).netns(), &flows, Duration::from_millis(20)).unwrap();
        all_alive(&prober);
        // Of 32 flows, 10 rounds and more: BGP alone does not send that much meanwhile.
        for (n, before) in [(2, before[0]), (3, before[1])] {
            let carried = sent(n) - before;
            assert!(carried >= 20, "gateway {n} carried {carried} packets of 32 flows");
        }

        mesh.node_mut(3).kill().unwrap();
        wait::until("the dead path's withdrawal", LIMIT, || {
            ensure!(carriers(mesh.node(1), "10.50.0.0/16")? == 1, "still two carriers");
            ensure!(carriers(mesh.node(1), "fd50::/64")? == 1, "still two carriers");
            Ok(())
        })
        .unwrap();
        all_alive(&prober);
        prober.stop().unwrap();
    });
}

/// How many peers carry a prefix.
fn carriers(node: &Node, prefix: &str) -> Result<usize> {
    let routes = node.routes()?;
    let route = routes.iter().find(|route| route.prefix == prefix);
    Ok(route.map_or(0, |route| route.candidates.iter().filter(|c| c.selected && c.usable).count()))
}

/// Waits until each flow has got ten answers from now on.
fn all_alive(prober: &Prober) {
    let before = prober.received();
    wait::until("answers on every flow", LIMIT, || {
        let now = prober.received();
        ensure!(before.iter().zip(&now).all(|(before, now)| *now >= before + 10), "{before:?} {now:?}");
        Ok(())
    })
    .unwrap();
}
