//! Memory: peers that come and go by the thousand, and packets for a peer that nobody can reach.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use isthmus_lab::{
    mesh::{Family, Mesh, metrics, metrics_section, overlay, peer},
    node::Node,
    probe::MarkedSocket,
    sandbox::{self, processes},
    wait,
};

use super::common::{LIMIT, at, hello, pair};

/// Peers that are replaced together.
const CROWD: u32 = 5000;
const ROUNDS: u32 = 20;
/// A reload of that many peers takes a while where every core is taken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Peers that nobody has met in another round: name, key and prefixes are their own.
fn crowd(round: u32) -> String {
    let mut text = String::new();
    for n in 0..CROWD {
        let (key, [_, _, high, low]) = (rand::random::<[u8; 32]>(), n.to_be_bytes());
        let key = BASE64_STANDARD.encode(key);
        let second = 64 + round % 32;
        writeln!(
            text,
            "[[tunnel.peer]]\nname = \"r{round}-{n}\"\npublic_key = \"{key}\"\n\
             allowed_ips = [\"10.{second}.{high}.{low}/32\", \"fd00:{round}:{n}::/48\"]"
        )
        .unwrap();
    }
    text
}

fn resident(node: &Node) -> u64 {
    processes::resident_kib(node.pid().unwrap()).unwrap()
}

#[test]
fn peers_that_come_and_go_leave_nothing_behind() {
    let (test, limit) = ("churn::peers_that_come_and_go_leave_nothing_behind", Duration::from_secs(300));
    sandbox::run_with_bins_for(limit, test, |bins| {
        let mut mesh = pair(bins, Family::V4);
        // With an arena for each thread the allocator keeps what each of them needed at most, and it takes long until all have.
        mesh.node_mut(1).stop().unwrap();
        mesh.node_mut(1).restart_with(|command| _ = command.env("MALLOC_ARENA_MAX", "1")).unwrap();
        mesh.node_mut(1).wait_ready(LIMIT).unwrap();
        hello(mesh.node(1), mesh.node(2), overlay(2)[0]).unwrap();
        let before = mesh.node(1).peer("gw2").unwrap();
        let mut memory = Vec::new();
        for round in 0..ROUNDS {
            let config = mesh.base(1) + &metrics_section() + &peer(2, Some(Family::V4)) + &crowd(round);
            assert_eq!(mesh.node_mut(1).reload(&config, PATIENCE).unwrap().1, "");
            hello(mesh.node(1), mesh.node(2), overlay(2)[1]).unwrap();
            // Metrics are read as well: each peer has some.
            let all = metrics(mesh.node(1)).unwrap();
            let up = |name: &str| all.value("isthmus_tunnel_up", &[("peer", name)]).ok();
            assert_eq!((up("gw2"), up(&format!("r{round}-7"))), (Some(1.0), Some(0.0)));
            assert_eq!(up(&format!("r{}-7", round + ROUNDS - 1)), None);
            memory.push(resident(mesh.node(1)));
        }
        let now = mesh.node(1).peer("gw2").unwrap();
        assert_eq!((before.last_handshake_at, before.endpoint), (now.last_handshake_at, now.endpoint));
        // By then it has held two crowds at once.
        let (early, last) = (memory[4..10].iter().max().unwrap(), memory.last().unwrap());
        let grown = last.saturating_sub(*early);
        assert!(grown < 8 * 1024, "{grown} KiB more than after the first rounds: {memory:?}");
    });
}

/// What waits for a session and what waits in a socket is bounded, and the rest is counted.
#[test]
fn a_flood_for_a_peer_that_is_not_there_takes_no_memory() {
    sandbox::run_with_bins("churn::a_flood_for_a_peer_that_is_not_there_takes_no_memory", |bins| {
        // Gateway 2 is not there before, and gateway 3 goes when it has a session.
        let third = |mesh: &Mesh| mesh.base(3) + &peer(1, Some(Family::V4));
        let mut mesh = Mesh::new(3, bins).unwrap();
        let [first, third] = [
            mesh.base(1) + &metrics_section() + &peer(2, Some(Family::V4)) + &peer(3, Some(Family::V4)),
            third(&mesh),
        ];
        mesh.node_mut(1).start(&first).unwrap();
        mesh.node_mut(3).start(&third).unwrap();
        mesh.node_mut(1).wait_ready(LIMIT).unwrap();
        mesh.node_mut(3).wait_ready(LIMIT).unwrap();
        hello(mesh.node(1), mesh.node(3), overlay(3)[0]).unwrap();
        mesh.node(3).netns().link_down("eth0").unwrap();
        // Once, so that what is needed once is there.
        flood(&mesh).unwrap();
        let before = resident(mesh.node(1));
        for _ in 0..3 {
            flood(&mesh).unwrap();
        }
        let grown = resident(mesh.node(1)).saturating_sub(before);
        assert!(grown < 4 * 1024, "{grown} KiB more");

        let all = metrics(mesh.node(1)).unwrap();
        let lost = all.count("isthmus_tunnel_peer_drops_total", &[("peer", "gw2"), ("reason", "no_session")]);
        assert!(lost > 1000.0, "{lost} packets were given up");
        mesh.node(3).netns().link_up("eth0").unwrap();
        hello(mesh.node(1), mesh.node(3), overlay(3)[1]).unwrap();
    });
}

/// Many packets of every size for both, until the daemon has taken note of many more of them.
fn flood(mesh: &Mesh) -> Result<()> {
    const COUNT: u64 = 20_000;
    let node = mesh.node(1);
    let taken = || -> Result<f64> {
        let all = metrics(node)?;
        all.value("isthmus_tunnel_batch_packets_sum", &[("call", "tun_read")])
    };
    let (from, before) = (MarkedSocket::bind(node.netns(), at(overlay(1)[0], 76))?, taken()?);
    let content = vec![7; 1392];
    let mut sent = 0;
    wait::until("packets to be taken", LIMIT, || {
        for _ in 0..COUNT / 10 {
            let length = 10 + usize::try_from(sent % 1382)?;
            let to = if sent % 2 == 0 { 2 } else { 3 };
            sent += 1;
            let _ = from.send(at(overlay(to)[0], 76), &content[..length], 0);
        }
        ensure!(taken()? - before >= 20_000.0, "{} taken of {sent}", taken()? - before);
        Ok(())
    })
}
