//! BFD between gateways: what a dead path, an administrator, a reload and a silent far end mean to tunnel and BGP.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use isthmus_lab::{
    bins::Bins,
    mesh::{self, Family, Mesh, bgp, neighbor, outer, peer},
    netns::Netns,
    node::Node,
    sandbox,
};
use isthmus_proto::control::PeerState;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);
/// Agreed on both sides: 100 ms x 3.
const BFD: &str = "bfd = { interval = \"100ms\" }\n";
const DETECTION: Duration = Duration::from_millis(300);
/// Long after anything that the detection time could have caused.
const QUIET: Duration = Duration::from_secs(2);
const ANNOUNCED: &str = "10.50.0.0/16";

/// Two gateways in BGP with each other over the tunnel; these lines belong to the neighbor of each.
fn pair(bins: &Bins, lines: [&str; 2]) -> Mesh {
    let config = |mesh: &Mesh, n: u8| {
        let other = 3 - n;
        let announce: &[&str] = if n == 2 { &[ANNOUNCED] } else { &[] };
        let tunnel = mesh.base(n) + &peer(other, Some(Family::V4));
        let session = bgp(64_500 + u32::from(n), announce) + &neighbor(other, 64_500 + u32::from(other));
        tunnel + &session + lines[usize::from(n) - 1]
    };
    Mesh::start(bins, LIMIT, &[&|mesh| config(mesh, 1), &|mesh| config(mesh, 2)]).unwrap()
}

/// The only BFD session of a node, as a script sees it.
fn session(node: &Node) -> Result<Value> {
    let document: Value = serde_json::from_str(&node.ctl_ok(&["-o", "json", "bfd"])?)?;
    ensure!(document["schema"] == "isthmus.v1/bfd", "{document}");
    document["sessions"].get(0).cloned().context("no session")
}

fn wait_session(mesh: &mut Mesh, n: u8, state: &str) -> Value {
    let found = mesh.node_mut(n).wait_until("the BFD session", LIMIT, |node| {
        let session = session(node)?;
        ensure!(session["state"] == state, "{session:#}");
        Ok(session)
    });
    found.unwrap()
}

fn wait_bgp(mesh: &mut Mesh, n: u8, check: impl Fn(&str, &str) -> bool) {
    let found = mesh.node_mut(n).wait_until("the BGP session", LIMIT, |node| {
        let neighbor = node.bgp_neighbors()?.remove(0);
        ensure!(check(&neighbor.state, &neighbor.last_error), "{neighbor:?}");
        Ok(())
    });
    found.unwrap();
}

fn wait_peer(mesh: &mut Mesh, n: u8, state: PeerState, reason: &str) {
    let found = mesh.node_mut(n).wait_until("the tunnel peer", LIMIT, |node| {
        let peer = node.peers()?.remove(0);
        ensure!(peer.state() == state && peer.state_reason.contains(reason), "{peer:?}");
        Ok(())
    });
    found.unwrap();
}

fn wait_all_up(mesh: &mut Mesh) {
    for n in [1, 2] {
        wait_session(mesh, n, "Up");
        wait_bgp(mesh, n, |state, _| state == "Established");
        wait_peer(mesh, n, PeerState::Up, "");
    }
}

/// Takes a gateway off the Ethernet, or puts it back: no carrier changes, nobody is told.
fn cable(n: u8, there: bool) {
    let mut ip = Netns::named("hub").command("ip").unwrap();
    ip.args(["link", "set", &mesh::name(n)]);
    ip.args(if there { &["master", "br0"][..] } else { &["nomaster"] });
    assert!(ip.status().unwrap().success());
}

#[test]
fn a_dead_path_takes_peer_and_routes_and_comes_back() {
    sandbox::run_with_bins("a_dead_path_takes_peer_and_routes_and_comes_back", |bins| {
        let mut mesh = pair(bins, [BFD, BFD]);
        wait_all_up(&mut mesh);
        let up = session(mesh.node(1)).unwrap();
        assert_eq!((&up["path"], &up["tunnel_peer"]), (&"tunnel".into(), &mesh::name(2).into()));
        assert_eq!(
            (&up["transmit_interval_us"], &up["detection_time_us"]),
            (&100_000.into(), &300_000.into())
        );
        assert_eq!(up["neighbors"][0], mesh::name(2));
        assert_eq!(up["failures"], 0, "on the way up nothing fails");

        let cut = Instant::now();
        cable(2, false);
        wait_peer(&mut mesh, 1, PeerState::Down, "held down: BFD: nothing heard from 10.99.0.2");
        assert!(cut.elapsed() > DETECTION / 2, "not before packets were missing");
        wait_bgp(&mut mesh, 1, |state, error| state != "Established" && error.contains("BFD Down"));
        let down = wait_session(&mut mesh, 1, "Down");
        assert_eq!(down["diagnostic"], "control detection time expired");
        assert_eq!((&down["failures"], &down["remote"]), (&1.into(), &Value::Null));
        let routes = mesh.node(1).routes().unwrap();
        assert!(routes.iter().all(|route| route.prefix != ANNOUNCED), "{routes:?}");

        cable(2, true);
        wait_all_up(&mut mesh);
        assert_eq!(session(mesh.node(1)).unwrap()["failures"], 1);
    });
}

#[test]
fn who_leaves_or_never_answered_has_not_failed() {
    sandbox::run_with_bins("who_leaves_or_never_answered_has_not_failed", |bins| {
        let mut mesh = pair(bins, [BFD, BFD]);
        wait_all_up(&mut mesh);
        let failures = session(mesh.node(1)).unwrap()["failures"].clone();
        assert!(mesh.node_mut(2).stop().unwrap().success());
        let down = wait_session(&mut mesh, 1, "Down");
        assert_eq!(
            (&down["diagnostic"], &down["failures"]),
            (&"neighbor signaled session down".into(), &failures)
        );
        wait_peer(&mut mesh, 1, PeerState::Up, "");

        // It comes back without BFD: nobody answers, and nothing comes of it.
        let config = std::fs::read_to_string(mesh.node(2).config()).unwrap().replace(BFD, "");
        mesh.node_mut(2).start(&config).unwrap();
        wait_bgp(&mut mesh, 1, |state, _| state == "Established");
        std::thread::sleep(QUIET);
        wait_peer(&mut mesh, 1, PeerState::Up, "");
        wait_bgp(&mut mesh, 1, |state, _| state == "Established");
        let waiting = session(mesh.node(1)).unwrap();
        assert_eq!((&waiting["state"], &waiting["failures"]), (&"Down".into(), &failures));
    });
}

#[test]
fn a_reload_changes_intervals_without_a_bounce() {
    sandbox::run_with_bins("a_reload_changes_intervals_without_a_bounce", |bins| {
        let mut mesh = pair(bins, [BFD, BFD]);
        wait_all_up(&mut mesh);
        let before = session(mesh.node(1)).unwrap();
        for n in [1, 2] {
            let config = std::fs::read_to_string(mesh.node(n).config()).unwrap();
            let slower = config.replace(BFD, "bfd = { interval = \"250ms\", multiplier = 4 }\n");
            mesh.node_mut(n).reload(&slower, LIMIT).unwrap();
        }
        let agreed = mesh.node_mut(1).wait_until("the new interval", LIMIT, |node| {
            let session = session(node)?;
            ensure!(session["transmit_interval_us"] == 250_000, "{session:#}");
            ensure!(session["detection_time_us"] == 1_000_000, "{session:#}");
            Ok(session)
        });
        let agreed = agreed.unwrap();
        assert_eq!((&agreed["state"], &agreed["failures"]), (&"Up".into(), &before["failures"]));
        assert_eq!(agreed["local_discriminator"], before["local_discriminator"]);
    });
}

/// The neighbor is on the Ethernet, not behind the tunnel: one hop away, or as far as one likes.
#[test]
fn neighbors_outside_the_tunnel_are_watched_by_udp() {
    sandbox::run_with_bins("neighbors_outside_the_tunnel_are_watched_by_udp", |bins| {
        let config = |mesh: &Mesh, n: u8| {
            let other = 3 - n;
            let mut text = mesh.base(n) + &bgp(64_500 + u32::from(n), &[]);
            let kinds = [("direct", "{ interval = \"100ms\" }"), ("multihop", "{ multihop = true }")];
            for (address, (name, bfd)) in outer(other).iter().zip(kinds) {
                let asn = 64_500 + u32::from(other);
                let header = format!("[[bgp.neighbor]]\nname = \"{name}\"\naddress = \"{address}\"");
                text += &format!("{header}\nasn = {asn}\nbfd = {bfd}\n");
            }
            text
        };
        let mut mesh = Mesh::start(bins, LIMIT, &[&|mesh| config(mesh, 1), &|mesh| config(mesh, 2)]).unwrap();
        let wait = |mesh: &mut Mesh, wanted: &str| {
            let all = mesh.node_mut(1).wait_until("both sessions", LIMIT, |node| {
                let document: Value = serde_json::from_str(&node.ctl_ok(&["-o", "json", "bfd"])?)?;
                let sessions = document["sessions"].as_array().cloned().unwrap_or_default();
                ensure!(
                    sessions.len() == 2 && sessions.iter().all(|one| one["state"] == wanted),
                    "{document:#}"
                );
                Ok(sessions)
            });
            all.unwrap()
        };
        let up = wait(&mut mesh, "Up");
        assert_eq!((&up[0]["path"], &up[1]["path"]), (&"direct".into(), &"multihop".into()));
        cable(2, false);
        let down = wait(&mut mesh, "Down");
        assert!(down.iter().all(|one| one["failures"] == 1), "{down:?}");
        cable(2, true);
        wait(&mut mesh, "Up");
    });
}
