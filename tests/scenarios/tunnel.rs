//! Two or three gateways, nothing foreign: what the tunnels carry, refuse, learn and move.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures_util::TryStreamExt;
use ipnet::IpNet;
use isthmus_lab::{
    bins::Bins,
    mesh::{self, Family, Mesh, bgp, endpoint, neighbor, outer, overlay, peer},
    netns::Netns,
    node::Node,
    probe::{Flow, Prober, TcpSink, UdpEcho, reach, send},
    sandbox, wait,
};
use isthmus_proto::control::{Peer, PeerState};
use netlink_packet_route::route::RouteProtocol;
use rtnetlink::RouteMessageBuilder;

const LIMIT: Duration = Duration::from_secs(20);
/// The protocol number of our kernel routes, and that of a person's.
const OURS: u8 = 73;
const STATIC: u8 = 4;
/// What gateway 2 announces, and an address of a service there.
const ANNOUNCED: [&str; 2] = ["10.50.0.0/16", "fd50::/64"];
const SERVICE: [&str; 2] = ["10.50.0.7", "fd50::7"];
/// An address there that gateway 3 claims.
const CLAIMED: [&str; 2] = ["10.50.0.9", "fd50::9"];
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
                Netns::named(name).delete().unwrap();
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

/// Gateway 1 with kernel routes, gateway 2 that announces [`ANNOUNCED`] and runs a service there, and gateway 3, whose endpoint
/// gateway 1 knows or not. Gateway 3 is not started; its configuration is returned.
fn with_service(family: Family, known: bool, bins: &Bins) -> (Mesh, String, [UdpEcho; 2]) {
    let mut mesh = Mesh::new(3, bins).unwrap();
    let third = peer(3, known.then_some(family));
    let tunnel = mesh.base(1) + &peer(2, Some(family)) + &third;
    let first = tunnel + "[fib]\n" + &bgp(65001, &[]) + &neighbor(2, 65002);
    let second = mesh.base(2) + &peer(1, Some(family)) + &bgp(65002, &ANNOUNCED) + &neighbor(1, 65001);
    // What comes from where our own routes do not lead back is for the tunnel to judge.
    mesh.node(1).netns().forward().unwrap();
    mesh.node(1).netns().sysctl("net.ipv4.conf.eth0.rp_filter", "0").unwrap();
    mesh.node_mut(1).start(&first).unwrap();
    mesh.node_mut(2).start(&second).unwrap();
    let echoes = SERVICE.map(|address| {
        let address: IpAddr = address.parse().unwrap();
        mesh.node(2).netns().add_address("lo", IpNet::from(address)).unwrap();
        UdpEcho::start(mesh.node(2).netns(), at(address, 7)).unwrap()
    });
    let config = mesh.base(3) + &peer(1, Some(family));
    let learned = |node: &Node| {
        let routes = node.netns().routes_of(OURS)?;
        ensure!(routes.len() == ANNOUNCED.len(), "{routes:?}");
        Ok(())
    };
    mesh.node_mut(1).wait_until("the announced routes", LIMIT, learned).unwrap();
    for echo in &echoes {
        reach(mesh.node(1).netns(), echo.address(), LIMIT).unwrap();
    }
    (mesh, config, echoes)
}

/// A host route by hand: to `to` by `device`, perhaps from another source address.
fn add_route(netns: &Netns, to: IpAddr, device: &str, source: Option<IpAddr>) -> Result<()> {
    netns.netlink(async |handle| {
        let mut links = handle.link().get().match_name(device.to_owned()).execute();
        let link = links.try_next().await?.context("no such device")?;
        let to = IpNet::from(to);
        let mut route = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(to.addr(), to.prefix_len())?
            .output_interface(link.header.index)
            .protocol(RouteProtocol::Static);
        if let Some(source) = source {
            route = route.pref_source(source)?;
        }
        Ok(handle.route().add(route.build()).execute().await?)
    })
}

/// Gateway 3 calls gateway 1 from the address that it claims, from now on.
fn claim(mesh: &Mesh, family: Family) -> IpAddr {
    let claimed: IpAddr = CLAIMED[family as usize].parse().unwrap();
    let netns = mesh.node(3).netns();
    netns.add_address("eth0", IpNet::from(claimed)).unwrap();
    add_route(netns, outer(1)[family as usize], "eth0", Some(claimed)).unwrap();
    claimed
}

fn drops(node: &Node, n: u8, reason: &str) -> Result<u64> {
    Ok(peer_of(node, n)?.drops.get(reason).copied().unwrap_or(0))
}

/// Sends datagrams for a while, without waiting for answers; how many.
fn babble(from: &Netns, to: SocketAddr, time: Duration) -> u64 {
    let socket =
        from.run(|| UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })).unwrap().unwrap();
    let (began, mut sent) = (Instant::now(), 0);
    while began.elapsed() < time {
        // Also some that the outer network has to fragment.
        let length = if sent % 2 == 0 { 100 } else { 1340 };
        socket.send_to(&vec![0; length], to).unwrap();
        sent += 1;
        thread::sleep(Duration::from_millis(20));
    }
    sent
}

#[test]
fn a_peer_that_moves_into_anothers_prefix_takes_nothing_away() {
    sandbox::run_with_bins("a_peer_that_moves_into_anothers_prefix_takes_nothing_away", |bins| {
        for family in Family::BOTH {
            let (mut mesh, config, echoes) = with_service(family, true, bins);
            mesh.node_mut(3).start(&config).unwrap();
            let here = UdpEcho::start(mesh.node(1).netns(), at(overlay(1)[0], 7)).unwrap();
            reach(mesh.node(3).netns(), here.address(), LIMIT).unwrap();
            let before = [2, 3].map(|n| peer_of(mesh.node(1), n).unwrap().tx_packets);
            let mut events = mesh.node(1).netns().watch_routes().unwrap();

            let claimed = claim(&mesh, family);
            // Its tunnel speaks from where it is heard for as long as that address is there.
            mesh.node(3).netns().delete_address(outer(3)[family as usize]).unwrap();
            let sent = babble(mesh.node(3).netns(), here.address(), Duration::from_secs(3));
            let node = mesh.node(1);
            wait::until("the count of what is not followed", LIMIT, || {
                let refused = drops(node, 3, "endpoint_refused")?;
                ensure!(refused > 0, "nothing was refused");
                Ok(())
            })
            .unwrap();
            let moved = peer_of(node, 3).unwrap();
            assert_eq!(moved.endpoint, endpoint(3, family).to_string());
            let said =
                format!("it calls from {}, which our own routes lead into the tunnel", at(claimed, 51820));
            assert!(moved.state_reason.contains(&said), "{}", moved.state_reason);

            // Each datagram has one answer; nothing went round.
            let sent_to = [2, 3].map(|n| peer_of(node, n).unwrap().tx_packets);
            assert!(sent_to[0] - before[0] < 100, "{} packets to the bystander", sent_to[0] - before[0]);
            assert!(sent_to[1] - before[1] <= sent + 50, "{} answers to {sent}", sent_to[1] - before[1]);
            assert_eq!(drops(node, 3, "own_outer_packet").unwrap(), 0);
            assert_eq!(events.take().unwrap(), []);
            assert_eq!(node.netns().routes_of(OURS).unwrap().len(), ANNOUNCED.len());
            for echo in &echoes {
                reach(node.netns(), echo.address(), LIMIT).unwrap();
            }
            drop((here, echoes, mesh));
            for name in ["hub", "gw1", "gw2", "gw3"] {
                Netns::named(name).delete().unwrap();
            }
        }
    });
}

#[test]
fn a_first_call_from_anothers_prefix_is_not_answered() {
    sandbox::run_with_bins("a_first_call_from_anothers_prefix_is_not_answered", |bins| {
        let (mut mesh, config, _echoes) = with_service(Family::V4, false, bins);
        claim(&mesh, Family::V4);
        mesh.node_mut(3).start(&config).unwrap();
        mesh.node_mut(3).wait_ready(LIMIT).unwrap();
        let here = UdpEcho::start(mesh.node(1).netns(), at(overlay(1)[0], 7)).unwrap();
        wait::until("the count of what is not followed", LIMIT, || {
            babble(mesh.node(3).netns(), here.address(), Duration::from_millis(100));
            ensure!(drops(mesh.node(1), 3, "endpoint_refused")? > 0, "nothing was refused");
            Ok(())
        })
        .unwrap();
        let caller = peer_of(mesh.node(1), 3).unwrap();
        assert_eq!((caller.endpoint.as_str(), caller.state()), ("", PeerState::Idle));
        assert!(caller.state_reason.contains("it calls from 10.50.0.9:51820"), "{}", caller.state_reason);
        assert_eq!(mesh.node(1).netns().routes_of(OURS).unwrap().len(), ANNOUNCED.len());

        // From its own place it is welcome.
        mesh.node(3).netns().delete_route(IpNet::from(outer(1)[0]), STATIC).unwrap();
        reach(mesh.node(3).netns(), here.address(), LIMIT).unwrap();
        let caller = peer_of(mesh.node(1), 3).unwrap();
        assert_eq!(caller.endpoint, endpoint(3, Family::V4).to_string());
        assert!(!caller.state_reason.contains("it calls from"), "{}", caller.state_reason);
    });
}

#[test]
fn a_route_that_captures_the_tunnel_drops_and_does_not_loop() {
    sandbox::run_with_bins("a_route_that_captures_the_tunnel_drops_and_does_not_loop", |bins| {
        for family in Family::BOTH {
            let mesh = start(
                &[&|mesh| mesh.base(1) + &peer(2, Some(family)), &|mesh| {
                    mesh.base(2) + &peer(1, Some(family))
                }],
                bins,
            );
            let (node, netns) = (mesh.node(1), mesh.node(1).netns());
            let there = UdpEcho::start(mesh.node(2).netns(), at(overlay(2)[0], 7)).unwrap();
            reach(netns, there.address(), LIMIT).unwrap();
            let before = peer_of(node, 2).unwrap().tx_packets;

            let captured = outer(2)[family as usize];
            add_route(netns, captured, "isthmus0", None).unwrap();
            let sent = babble(netns, there.address(), Duration::from_secs(3));
            wait::until("the count of our own datagrams", LIMIT, || {
                let own = drops(node, 2, "own_outer_packet")?;
                ensure!(own >= sent, "{own} of {sent}");
                Ok(())
            })
            .unwrap();
            let carried = peer_of(node, 2).unwrap().tx_packets - before;
            assert!((sent..=sent + 50).contains(&carried), "{carried} packets sealed for {sent}");

            netns.delete_route(IpNet::from(captured), STATIC).unwrap();
            reach(netns, there.address(), LIMIT).unwrap();
            drop((there, mesh));
            for name in ["hub", "gw1", "gw2"] {
                Netns::named(name).delete().unwrap();
            }
        }
    });
}

#[test]
fn disabled_ipv6_is_told_with_its_remedy() {
    sandbox::run_with_bins("disabled_ipv6_is_told_with_its_remedy", |bins| {
        let mut mesh = Mesh::new(1, bins).unwrap();
        mesh.node(1).netns().sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        let config = mesh.base(1);
        mesh.node_mut(1).start(&config).unwrap();
        assert!(!mesh.node_mut(1).wait_end().unwrap().success());
        let log = mesh.node(1).log_text();
        assert!(log.contains("cannot set address fd7a::1/64") && log.contains("disable_ipv6"), "{log}");
        assert_eq!(log.matches("os error").count(), 1, "{log}");
    });
}
