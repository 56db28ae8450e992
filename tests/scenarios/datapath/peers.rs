//! Peers and prefixes that change under a running tunnel: who did not change notices nothing.

use std::{net::IpAddr, time::Duration};

use anyhow::{Result, ensure};
use ipnet::IpNet;
use isthmus_lab::{
    bins::Bins,
    mesh::{Family, Mesh, metrics, metrics_section, name, overlay, peer, public_key},
    node::Node,
    probe::{Flow, MarkedSocket, Prober, UdpEcho, reach},
    sandbox, wait,
};
use isthmus_proto::control::Peer;

use super::common::{LIMIT, at, hello};

/// Prefixes that move between gateways 2 and 3, and an address in each that both have.
const MOVING: [&str; 2] = ["10.60.0.0/16", "fd60::/64"];
const SERVICE: [&str; 2] = ["10.60.0.7", "fd60::7"];

/// A peer section that owns more prefixes.
fn owning(section: String, more: &[&str]) -> String {
    let more: String = more.iter().map(|prefix| format!(", \"{prefix}\"")).collect();
    section.replace("/128\"]", &format!("/128\"{more}]"))
}

/// The first gateway's configuration: its overlay, kernel routes, and these peers.
fn first(mesh: &Mesh, peers: &[String]) -> String {
    mesh.base(1) + &metrics_section() + "[fib]\n" + &peers.concat()
}

/// Three gateways; the first knows both others, the second has the moving prefixes.
fn three(bins: &Bins) -> Mesh {
    let known = |n| peer(n, Some(Family::V4));
    let mesh = Mesh::start(
        bins,
        LIMIT,
        &[
            &|mesh| first(mesh, &[owning(known(2), &MOVING), known(3)]),
            &|mesh| mesh.base(2) + &peer(1, Some(Family::V4)),
            &|mesh| mesh.base(3) + &peer(1, Some(Family::V4)),
        ],
    )
    .unwrap();
    for (n, address) in [2, 3].into_iter().flat_map(|n| SERVICE.map(|address| (n, address))) {
        let address: IpAddr = address.parse().unwrap();
        mesh.node(n).netns().add_address("lo", IpNet::from(address)).unwrap();
    }
    for n in [2, 3] {
        hello(mesh.node(1), mesh.node(n), overlay(n)[0]).unwrap();
    }
    mesh
}

/// Same session, and no counter went back.
fn is_undisturbed(before: &Peer, node: &Node) {
    let now = node.peer(&before.name).unwrap();
    assert_eq!((before.last_handshake_at, &before.endpoint), (now.last_handshake_at, &now.endpoint));
    assert!(before.rx_packets > 0 && now.rx_packets >= before.rx_packets, "{before:?} {now:?}");
    assert!(now.tx_packets >= before.tx_packets && now.drops == before.drops, "{before:?} {now:?}");
}

/// A datagram to the service arrives at gateway `n`, and none from it at the other.
fn serves(mesh: &Mesh, n: u8) {
    for service in SERVICE.map(|address| address.parse::<IpAddr>().unwrap()) {
        let [right, wrong] =
            [n, 5 - n].map(|n| MarkedSocket::bind(mesh.node(n).netns(), at(service, 70)).unwrap());
        let any = if service.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let client = MarkedSocket::bind(mesh.node(1).netns(), any.parse().unwrap()).unwrap();
        client.send(at(service, 70), b"to whom it may concern", 0).unwrap();
        assert_eq!(right.receive(LIMIT).unwrap().bytes, b"to whom it may concern");
        assert!(wrong.try_receive().unwrap().is_none());
        // And gateway 1 takes what comes from there, of this one only.
        let echo = UdpEcho::start(mesh.node(n).netns(), at(service, 7)).unwrap();
        reach(mesh.node(1).netns(), echo.address(), LIMIT).unwrap();
    }
}

fn refuses_the_service_from(mesh: &Mesh, n: u8) {
    let refused = || mesh.node(1).drops(&name(n), "source_not_feasible");
    let before = refused().unwrap();
    for (family, service) in SERVICE.iter().enumerate() {
        let liar = MarkedSocket::bind(mesh.node(n).netns(), at(service.parse().unwrap(), 71)).unwrap();
        liar.send(at(overlay(1)[family], 71), b"spoofed", 0).unwrap();
    }
    wait::until("the count of what was refused", LIMIT, || {
        ensure!(refused()? == before + 2, "{} of 2", refused()? - before);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_prefix_moves_to_another_peer() {
    sandbox::run_with_bins("peers::a_prefix_moves_to_another_peer", |bins| {
        let mut mesh = three(bins);
        let known = |n| peer(n, Some(Family::V4));
        serves(&mesh, 2);
        refuses_the_service_from(&mesh, 3);
        for (owner, other) in [(3, 2), (2, 3)] {
            let before = [2, 3].map(|n| mesh.node(1).peer(&name(n)).unwrap());
            let mut sections = [known(other), owning(known(owner), &MOVING)];
            sections.sort();
            let config = first(&mesh, &sections);
            assert_eq!(mesh.node_mut(1).reload(&config, LIMIT).unwrap().1, "");
            before.iter().for_each(|peer| is_undisturbed(peer, mesh.node(1)));
            serves(&mesh, owner);
            refuses_the_service_from(&mesh, other);
        }
    });
}

/// Probes gateway 3 all the while; what is to be done must not cost an answer.
fn without_loss_elsewhere(mesh: &mut Mesh, work: impl FnOnce(&mut Mesh)) {
    let _echo = UdpEcho::start(mesh.node(3).netns(), at(overlay(3)[0], 7)).unwrap();
    let before = mesh.node(1).peer("gw3").unwrap();
    let flows = Flow::several(at(overlay(3)[0], 7), 40_000, 4);
    let prober = Prober::start(mesh.node(1).netns(), &flows, Duration::from_millis(10)).unwrap();
    work(mesh);
    let seen = prober.received();
    wait::until("answers after it", LIMIT, || {
        let now = prober.received();
        ensure!(seen.iter().zip(&now).all(|(seen, now)| *now >= seen + 5), "{seen:?} {now:?}");
        Ok(())
    })
    .unwrap();
    for report in prober.stop().unwrap() {
        // The last may still be on their way.
        assert!(report.sent - report.received <= 3, "{report:?}");
    }
    is_undisturbed(&before, mesh.node(1));
}

#[test]
fn a_peer_that_goes_and_comes_back_disturbs_nobody() {
    sandbox::run_with_bins("peers::a_peer_that_goes_and_comes_back_disturbs_nobody", |bins| {
        let mut mesh = three(bins);
        let known = |n| peer(n, Some(Family::V4));
        without_loss_elsewhere(&mut mesh, |mesh| {
            for _ in 0..3 {
                let without = first(mesh, &[known(3)]);
                assert_eq!(mesh.node_mut(1).reload(&without, LIMIT).unwrap().1, "");
                assert!(mesh.node(1).peer("gw2").is_err());
                let with = first(mesh, &[known(2), known(3)]);
                assert_eq!(mesh.node_mut(1).reload(&with, LIMIT).unwrap().1, "");
                assert_eq!(mesh.node(1).peer("gw2").unwrap().rx_packets, 0);
                hello(mesh.node(1), mesh.node(2), overlay(2)[1]).unwrap();
            }
        });
        // The other way: it still had the session that is gone here, until it heard of the new one.
        hello(mesh.node(2), mesh.node(1), overlay(1)[0]).unwrap();
    });
}

#[test]
fn a_peer_that_changes_keeps_its_session_and_one_that_is_renamed_gets_another() {
    let test = "peers::a_peer_that_changes_keeps_its_session_and_one_that_is_renamed_gets_another";
    sandbox::run_with_bins(test, |bins| {
        let mut mesh = three(bins);
        let known = |n| peer(n, Some(Family::V4));
        let changed = known(2) + "persistent_keepalive = \"5s\"\n";
        without_loss_elsewhere(&mut mesh, |mesh| {
            let before = mesh.node(1).peer("gw2").unwrap();
            let config = first(mesh, &[owning(changed, &["10.61.0.0/16"]), known(3)]);
            assert_eq!(mesh.node_mut(1).reload(&config, LIMIT).unwrap().1, "");
            is_undisturbed(&before, mesh.node(1));
            assert!(mesh.node(1).peer("gw2").unwrap().allowed_ips.contains(&"10.61.0.0/16".to_owned()));
        });
        without_loss_elsewhere(&mut mesh, |mesh| {
            // One key, one prefix, another name: the old peer goes as the new one comes.
            let renamed = owning(known(2), &MOVING).replace("\"gw2\"", "\"other\"");
            let config = first(mesh, &[renamed, known(3)]);
            assert_eq!(mesh.node_mut(1).reload(&config, LIMIT).unwrap().1, "");
            assert!(mesh.node(1).peer("gw2").is_err());
            hello(mesh.node(1), mesh.node(2), overlay(2)[0]).unwrap();
            serves(mesh, 2);
            assert!(mesh.node(1).peer("other").unwrap().rx_packets > 0);
            let all = metrics(mesh.node(1)).unwrap();
            let up = |name| all.count("isthmus_tunnel_up", &[("peer", name)]);
            assert_eq!((up("gw2"), up("other"), up("gw3")), (0.0, 1.0, 1.0));
        });
    });
}

#[test]
fn what_two_peers_cannot_share_is_refused_and_changes_nothing() {
    sandbox::run_with_bins("peers::what_two_peers_cannot_share_is_refused_and_changes_nothing", |bins| {
        let mut mesh = three(bins);
        let known = |n| peer(n, Some(Family::V4));
        let table: [([String; 2], &str); 3] = [
            ([known(2), known(3).replace("\"gw3\"", "\"gw2\"")], "a second peer is called \"gw2\""),
            (
                [known(2), known(3).replace(&public_key(3), &public_key(2))],
                "\"gw2\" has this public key already",
            ),
            ([owning(known(2), &MOVING), owning(known(3), &MOVING)], "\"gw2\" owns this prefix already"),
        ];
        without_loss_elsewhere(&mut mesh, |mesh| {
            let before = mesh.node(1).status().unwrap().config.unwrap().generation;
            for (sections, complaint) in table {
                let config = first(mesh, &sections);
                let (generation, refused) = mesh.node_mut(1).reload(&config, LIMIT).unwrap();
                assert_eq!(generation, before);
                assert!(refused.contains(complaint), "{refused}");
                serves(mesh, 2);
            }
        });
        assert_eq!(names(mesh.node(1)).unwrap(), ["gw2", "gw3"]);
    });
}

fn names(node: &Node) -> Result<Vec<String>> {
    Ok(node.peers()?.into_iter().map(|peer| peer.name).collect())
}
