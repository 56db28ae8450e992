//! BGP between `isthmusd` and BIRD 2 over a tunnel, both families, on sessions of either.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "bird/bfd.rs"]
mod bfd;
#[path = "bird/far_end.rs"]
mod far_end;
#[path = "bird/next_hops.rs"]
mod next_hops;
#[path = "bird/process.rs"]
mod process;
#[path = "bird/rig.rs"]
mod rig;

use std::{fs, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use anyhow::ensure;
use ipnet::IpNet;
use isthmus_lab::{peers::installed, sandbox};

use process::Bird;
use rig::{ALL, CHANGING, OUR_AS, Rig, STEADY, Session, THEIR_AS, Transport, neighbor, neighbor_json};

/// A router behind us.
const LAN_NEIGHBOR: &str = r#"
[[bgp.neighbor]]
name = "host"
address = "10.10.0.100"
asn = 4200000011
import = "all"
export = "all"
"#;

/// Runs `body` in a sandbox; skips, and says so, where there is no BIRD.
fn run(test: &str, session: Session, body: impl FnOnce(Rig)) {
    run_with(test, session, "", body);
}

fn run_with(test: &str, session: Session, more_neighbors: &str, body: impl FnOnce(Rig)) {
    if installed(test, &["bird", "birdc"]) {
        sandbox::run_with_bins(test, |bins| body(Rig::start(session, more_neighbors, bins)));
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn write_secret(path: &Path, content: &str) {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    writeln!(file, "{content}").unwrap();
}

/// From the first OPEN to our goodbye.
fn exchange(mut rig: Rig, local: &str) {
    let up = rig.wait_established();
    assert_eq!((up.remote_asn, up.remote_router_id.as_str()), (THEIR_AS, "10.99.0.2"));
    assert_eq!(up.families, ["ipv4-unicast", "ipv6-unicast"]);
    assert_eq!((up.hold_time_ms, up.keepalive_ms), (9000, 3000), "the lower offer counts");
    assert_eq!(up.local_address, local);

    rig.wait_kernel(&ALL);
    let counts = neighbor(&rig.ours).unwrap();
    assert_eq!((counts.prefixes_received, counts.prefixes_accepted, counts.prefixes_sent), (4, 4, 2));
    check_paths(&rig);
    check_announced(&mut rig);
    rig.check_traffic();

    withdraw(&mut rig);
    rig.check_traffic();
    leave(rig);
}

/// AS paths of what BIRD sent, as we show them.
fn check_paths(rig: &Rig) {
    let routes = rig.ours.routes().unwrap();
    for (prefix, path) in [
        ("10.20.0.0/16", "4200000020 64999"),
        ("fd20::/48", "4200000020 64999"),
        ("10.21.0.0/16", "4200000020"),
        ("fd21::/48", "4200000020"),
    ] {
        let found = routes.iter().find(|route| route.prefix == prefix).unwrap();
        let [candidate] = found.candidates.as_slice() else { panic!("{found:#?}") };
        assert_eq!((candidate.as_path.as_str(), candidate.peer.as_str()), (path, "theirs"), "{found:#?}");
        assert!(candidate.selected && candidate.usable, "{found:#?}");
    }
}

/// What we announced, as BIRD shows it.
fn check_announced(rig: &mut Rig) {
    for (prefix, next_hop) in [("10.10.0.0/16", "10.99.0.1"), ("fd10::/48", "fd7a::1")] {
        let route = rig.until(prefix, |_, bird| {
            let route = bird.route(prefix)?;
            ensure!(route.contains("BGP.next_hop"), "BIRD has no route of ours: {route}");
            Ok(route)
        });
        let lines: Vec<&str> = route.lines().map(str::trim).collect();
        for expected in [
            format!("BGP.as_path: {OUR_AS}"),
            format!("BGP.next_hop: {next_hop}"),
            "BGP.origin: IGP".to_owned(),
            format!("via {next_hop} on wg0"),
        ] {
            assert!(lines.contains(&expected.as_str()), "{expected} in\n{route}");
        }
        for absent in ["community", "BGP.med", "BGP.aggregator"] {
            assert!(!route.contains(absent), "{absent} in\n{route}");
        }
    }
}

/// One prefix at a time goes and comes.
fn withdraw(rig: &mut Rig) {
    rig.bird.ask("disable changing4").unwrap();
    rig.wait_kernel(&[STEADY[0], STEADY[1], CHANGING[1]]);
    rig.bird.ask("disable changing6").unwrap();
    rig.wait_kernel(&STEADY);
    rig.bird.ask("enable changing4").unwrap();
    rig.wait_kernel(&[STEADY[0], CHANGING[0], STEADY[1]]);
    rig.bird.ask("enable changing6").unwrap();
    rig.wait_kernel(&ALL);
    let neighbor = neighbor(&rig.ours).unwrap();
    assert_eq!((neighbor.established_count, neighbor.prefixes_received), (1, 4), "the same session");
}

/// We say goodbye; BIRD knows why, and neither side keeps a route.
fn leave(mut rig: Rig) {
    // A stop alone would be half a restart (decision 021).
    rig.ours.ctl_ok(&["drain", "--wait", "0s"]).unwrap();
    assert!(rig.ours.stop().unwrap().success(), "{}", rig.ours.log_tail());
    assert_eq!(rig.ours.netns().routes_of(73).unwrap(), []);
    let said = rig.bird.ask("show protocols all isthmus").unwrap();
    // The Hard Reset of RFC 8538, whatever this BIRD calls it.
    assert!(said.contains("Received: "), "{said}");
    for prefix in ["10.10.0.0/16", "fd10::/48"] {
        assert!(!rig.bird.route(prefix).is_ok_and(|route| route.contains("isthmus")), "{prefix} is left");
    }
}

#[test]
fn both_families_over_a_v4_session() {
    run("both_families_over_a_v4_session", Session::over(Transport::V4), |rig| exchange(rig, "10.99.0.1"));
}

#[test]
fn both_families_over_a_v6_session() {
    run("both_families_over_a_v6_session", Session::over(Transport::V6), |rig| exchange(rig, "fd7a::1"));
}

/// BIRD falls silent with its connection open, then another takes its place.
fn freeze(mut rig: Rig) {
    rig.wait_established();
    rig.wait_kernel(&ALL);
    rig.bird.freeze();
    rig.wait_kernel(&[]);
    let down = rig.wait_neighbor_says("last_error", "hold timer expired: nothing heard for 3 s");
    assert_ne!(down["state"], "Established", "{down:#}");
    assert_ne!(down["state_reason"], "", "{down:#}");
    rig.bird.replace();
    assert_eq!(rig.wait_established().established_count, 2);
    rig.wait_kernel(&ALL);
    rig.check_traffic();
}

#[test]
fn a_frozen_bird_is_given_up_over_v4() {
    let session = Session { hold_time: 3, ..Session::over(Transport::V4) };
    run("a_frozen_bird_is_given_up_over_v4", session, freeze);
}

#[test]
fn a_frozen_bird_is_given_up_over_v6() {
    let session = Session { hold_time: 3, ..Session::over(Transport::V6) };
    run("a_frozen_bird_is_given_up_over_v6", session, freeze);
}

#[test]
fn a_killed_bird_is_noticed_at_once() {
    run("a_killed_bird_is_noticed_at_once", Session::over(Transport::V4), |mut rig| {
        rig.wait_established();
        rig.wait_kernel(&ALL);
        rig.bird.replace();
        rig.until("the second session", |node, _| {
            let neighbor = neighbor(node)?;
            ensure!(neighbor.established_count == 2, "{neighbor:#?}");
            Ok(())
        });
        rig.wait_kernel(&ALL);
    });
}

/// Our interface dies with us, so BIRD hears nothing of it until its hold time is over or the next daemon resets the connection.
#[test]
fn we_come_back_after_a_kill() {
    run("we_come_back_after_a_kill", Session::over(Transport::V4), |mut rig| {
        rig.wait_established();
        rig.wait_kernel(&ALL);
        rig.ours.kill().unwrap();
        assert_eq!(rig.ours.netns().routes_of(73).unwrap(), []);
        rig.bird.ask("disable changing6").unwrap();
        rig.ours.restart().unwrap();
        rig.wait_established();
        rig.wait_kernel(&[STEADY[0], CHANGING[0], STEADY[1]]);
        check_announced(&mut rig);
        rig.check_traffic();
    });
}

#[test]
fn a_shutdown_message_is_shown() {
    run("a_shutdown_message_is_shown", Session::over(Transport::V6), |mut rig| {
        rig.wait_established();
        rig.wait_kernel(&ALL);
        rig.bird.ask("disable isthmus \"back at ten\"").unwrap();
        rig.wait_neighbor_says("last_error", "Cease/Administrative Shutdown: \"back at ten\"");
        rig.wait_kernel(&[]);
        rig.bird.ask("enable isthmus").unwrap();
        rig.wait_established();
        rig.wait_kernel(&ALL);
    });
}

#[test]
fn a_wrong_number_is_refused_by_us() {
    let session = Session { asn: 4_200_000_099, ..Session::over(Transport::V4) };
    run("a_wrong_number_is_refused_by_us", session, |mut rig| {
        let neighbor = rig.wait_neighbor_says("state_reason", "peer says it is AS 4200000020");
        assert_eq!(neighbor["remote_asn"], 4_200_000_099_u32);
        assert_eq!(neighbor["established_count"], 0);
        assert_eq!(neighbor["last_error"], "peer says it is AS 4200000020, configured is 4200000099");
        rig.wait_bird_says("Received: Bad peer AS");
        rig.wait_kernel(&[]);
    });
}

#[test]
fn a_wrong_number_is_refused_by_bird() {
    let session = Session { our_asn: 4_200_000_098, ..Session::over(Transport::V4) };
    run("a_wrong_number_is_refused_by_bird", session, |mut rig| {
        let neighbor = rig.wait_neighbor_says("last_error", "OPEN Message Error/Bad Peer AS");
        assert_eq!(neighbor["established_count"], 0);
        rig.wait_neighbor_says("state_reason", "Bad Peer AS");
        rig.wait_kernel(&[]);
    });
}

#[test]
fn birds_prefix_limit_is_shown() {
    // We announce one prefix of the family; 0 would be no limit.
    let session = Session { channel: "import limit 1 action disable;", ..Session::over(Transport::V4) };
    run_with("birds_prefix_limit_is_shown", session, LAN_NEIGHBOR, |mut rig| {
        rig.wait_established();
        rig.wait_kernel(&ALL);
        // The second comes by us from a router on our LAN.
        let _host = host_bird(&rig);
        rig.wait_neighbor_says("last_error", "Cease/Maximum Number of Prefixes Reached");
        let neighbor = neighbor_json(&rig.ours).unwrap();
        assert_ne!(neighbor["state"], "Established", "{neighbor:#}");
        rig.until("nothing of the far site in the kernel", |node, _| {
            let routes = node.netns().routes_of(73)?;
            ensure!(!routes.iter().any(|route| route.interface == "isthmus0"), "{routes:#?}");
            Ok(())
        });
    });
}

#[test]
fn our_prefix_limit_is_told() {
    let session = Session { neighbor: "max_prefixes = 1", ..Session::over(Transport::V4) };
    run("our_prefix_limit_is_told", session, |mut rig| {
        rig.wait_neighbor_says("last_error", "Cease/Maximum Number of Prefixes Reached: limit 1 of");
        rig.wait_bird_says("Received: Maximum number of prefixes reached");
        rig.wait_kernel(&[]);
    });
}

#[test]
fn routes_pass_through_us_whole() {
    run_with("routes_pass_through_us_whole", Session::over(Transport::V4), LAN_NEIGHBOR, |mut rig| {
        rig.wait_established();
        let host = host_bird(&rig);
        for (prefix, next_hop, community, large) in [
            ("10.20.0.0/16", "10.10.0.1", "(65020,7)", "(4200000020, 1, 2)"),
            ("fd20::/48", "fd10::1", "(65020,8)", "(4200000020, 3, 4)"),
        ] {
            let route = rig.until(prefix, |_, _| {
                let route = host.route(prefix)?;
                ensure!(
                    route.contains("BGP.next_hop"),
                    "the host's BIRD has no such route: {route}\n{}",
                    host.log()
                );
                Ok(route)
            });
            let lines: Vec<&str> = route.lines().map(str::trim).collect();
            for expected in [
                format!("BGP.as_path: {OUR_AS} {THEIR_AS} 64999"),
                format!("BGP.next_hop: {next_hop}"),
                format!("BGP.community: {community}"),
                format!("BGP.large_community: {large}"),
            ] {
                // A next hop may have our link-local address behind it (RFC 2545).
                assert!(lines.iter().any(|line| line.starts_with(&expected)), "{expected} in\n{route}");
            }
        }
        let back = rig.until("the host's prefix", |_, bird| {
            let route = bird.route("10.11.0.0/16")?;
            ensure!(route.contains("BGP.next_hop"), "not yet: {route}");
            Ok(route)
        });
        assert!(back.contains(&format!("BGP.as_path: {OUR_AS} 4200000011\n")), "{back}");
        assert!(back.contains("BGP.next_hop: 10.99.0.1\n"), "{back}");

        rig.bird.ask("disable isthmus").unwrap();
        rig.until("the withdrawal at the host", |_, _| {
            let route = host.route("10.20.0.0/16").unwrap_or_default();
            ensure!(!route.contains("BGP.next_hop"), "{route}");
            Ok(())
        });
    });
}

/// Starts the router behind us, with a prefix of its own.
fn host_bird(rig: &Rig) -> Bird {
    let config = format!(
        "router id 10.10.0.100;
log stderr all;
protocol device {{ scan time 1; }}
protocol static {{ ipv4; route 10.11.0.0/16 blackhole; }}
protocol bgp upstream {{
  local 10.10.0.100 as 4200000011;
  neighbor 10.10.0.1 as {OUR_AS};
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 4;
  ipv4 {{ import all; export where source = RTS_STATIC; }};
  ipv6 {{ import all; export where source = RTS_STATIC; }};
}}
"
    );
    Bird::start(&rig.hosts[0], rig.dir.path().join("host-bird"), &config)
}
