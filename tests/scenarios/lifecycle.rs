//! From the first line of the log to the last: readiness, the service manager, reloads that apply the difference, and ends.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    fs,
    io::{PipeReader, PipeWriter, Read, Write},
    net::SocketAddr,
    os::unix::net::UnixDatagram,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use isthmus_lab::{
    bins::Bins,
    files::write_secret,
    mesh::{self, Family, Mesh, bgp, neighbor, overlay, peer},
    node::Node,
    pki::{Pki, identity_config, issuer_config},
    probe::{UdpEcho, get, reach},
    sandbox,
};
use isthmus_proto::control::{BgpNeighbor, Peer};
use nix::{
    fcntl::{FcntlArg, fcntl},
    sys::signal::Signal,
};
use time::OffsetDateTime;

const LIMIT: Duration = Duration::from_secs(20);
/// `[metrics]` listens there by default.
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9587);
/// Route protocol number of Isthmus.
const PROTOCOL: u8 = 73;

/// A log that nobody reads: whoever writes the next line stands still until [`drain`].
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let size = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    writer.write_all(&vec![b'\n'; usize::try_from(size).unwrap()]).unwrap();
    (reader, writer)
}

/// Reads a log to its end, which is the daemon's; what it said.
fn drain(mut reader: PipeReader) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    })
}

/// A gateway with everything but neighbors.
fn everything(mesh: &Mesh, n: u8) -> String {
    mesh.base(n) + "[fib]\n[metrics]\n" + &bgp(65000 + u32::from(n), &["10.10.0.0/16", "fd10::/64"])
}

#[test]
fn ready_when_all_has_started_and_not_before() {
    sandbox::run_with_bins("ready_when_all_has_started_and_not_before", |bins| {
        let mut mesh = Mesh::new(1, bins).unwrap();
        let text = everything(&mesh, 1);
        mesh.node(1).write_config(&text).unwrap();
        let (log, writer) = full_pipe();
        mesh.node_mut(1).restart_with(|command| _ = command.stderr(writer)).unwrap();
        let node = mesh.node_mut(1);
        let ask = |node: &Node, path| get(node.netns(), METRICS, path);

        let (code, body) = node.wait_until("the health page", LIMIT, |node| ask(node, "/readyz")).unwrap();
        assert!(code == 503 && body.contains("waiting for start of all subsystems"), "{body}");
        assert_eq!(ask(node, "/healthz").unwrap().0, 200);

        let log = drain(log);
        node.wait_until("readiness", LIMIT, |node| {
            let (code, body) = ask(node, "/readyz")?;
            ensure!(code == 200, "{body}");
            Ok(())
        })
        .unwrap();
        assert!(node.status().unwrap().ready);
        assert!(node.stop().unwrap().success());
        assert!(log.join().unwrap().contains("ready"));
    });
}

/// The service manager's end of `NOTIFY_SOCKET`.
struct Manager(UnixDatagram);

impl Manager {
    fn new(node: &Node) -> Self {
        let socket = UnixDatagram::bind(node.dir().join("notify")).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self(socket)
    }

    fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// The next message that is not about the watchdog.
    fn next_state(&self) -> String {
        loop {
            let message = self.next();
            if message.trim_end() != "WATCHDOG=1" {
                return message;
            }
        }
    }
}

fn has(message: &str, line: &str) {
    assert!(message.lines().any(|found| found == line), "no {line} in {message:?}");
}

#[test]
fn the_service_manager_is_told() {
    sandbox::run_with_bins("the_service_manager_is_told", |bins| {
        let mut mesh = Mesh::new(1, bins).unwrap();
        mesh.node(1).write_config(&everything(&mesh, 1)).unwrap();
        let manager = Manager::new(mesh.node(1));
        let node = mesh.node_mut(1);
        let socket = node.dir().join("notify");
        let start = |node: &mut Node, script: &str| {
            let environment = [("NOTIFY_SOCKET", socket.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
            node.restart_in_shell(script, |command| _ = command.envs(environment)).unwrap();
        };
        start(node, "export WATCHDOG_PID=$$");
        has(&manager.next(), "READY=1");
        for _ in 0..3 {
            has(&manager.next(), "WATCHDOG=1");
        }
        node.signal(Signal::SIGHUP).unwrap();
        let reloading = manager.next_state();
        has(&reloading, "RELOADING=1");
        let since = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(since.and_then(|number| number.parse::<u64>().ok()).is_some(), "{reloading:?}");
        let reloaded = manager.next_state();
        has(&reloaded, "READY=1");
        assert!(reloaded.contains("STATUS=configuration read again: no change"), "{reloaded:?}");

        node.write_config("[tunell]\n").unwrap();
        node.signal(Signal::SIGHUP).unwrap();
        has(&manager.next_state(), "RELOADING=1");
        let refused = manager.next_state();
        has(&refused, "READY=1");
        assert!(
            refused.contains("STATUS=configuration refused") && refused.contains("tunell"),
            "{refused:?}"
        );

        node.signal(Signal::SIGTERM).unwrap();
        has(&manager.next_state(), "STOPPING=1");
        assert!(node.wait_end().unwrap().success());

        // A watchdog that is another process's business gets nothing from us. A new socket: the old one may hold a last ping.
        fs::remove_file(&socket).unwrap();
        let manager = Manager::new(node);
        node.write_config(&everything_of(node)).unwrap();
        start(node, "export WATCHDOG_PID=1");
        has(&manager.next(), "READY=1");
        node.signal(Signal::SIGTERM).unwrap();
        has(&manager.next(), "STOPPING=1");
        assert!(node.wait_end().unwrap().success());
    });
}

/// A small configuration that needs no mesh.
fn everything_of(node: &Node) -> String {
    mesh::node_section(node, None) + "[metrics]\n"
}

/// Gateway 1 has tunnels and sessions with those of `others` that it is configured for; all know gateway 1.
fn hub_and_spokes(bins: &Bins, known: &[u8]) -> Mesh {
    let mut mesh = Mesh::new(3, bins).unwrap();
    for n in [2, 3] {
        let prefix = format!("10.{n}0.0.0/16");
        let text = mesh.base(n) + &peer(1, Some(Family::V4)) + &bgp(65000 + u32::from(n), &[&prefix]);
        mesh.node_mut(n).start(&(text + &neighbor(1, 65001))).unwrap();
    }
    let text = hub(&mesh, known, &["10.10.0.0/16"]);
    mesh.node_mut(1).start(&text).unwrap();
    known.iter().for_each(|n| established(&mut mesh, *n));
    mesh
}

fn hub(mesh: &Mesh, known: &[u8], announce: &[&str]) -> String {
    let peers: String = known.iter().map(|n| peer(*n, Some(Family::V4))).collect();
    let neighbors: String = known.iter().map(|n| neighbor(*n, 65000 + u32::from(*n))).collect();
    mesh.base(1) + &peers + "[fib]\n[metrics]\n" + &bgp(65001, announce) + &neighbors
}

/// Waits until gateway 1 has a session with `n`.
fn established(mesh: &mut Mesh, n: u8) {
    let up = |node: &Node| {
        let session = session(node, n)?;
        ensure!(session.state == "Established", "{}: {}", session.state, session.state_reason);
        ensure!(session.prefixes_accepted > 0, "no prefixes yet");
        Ok(())
    };
    mesh.node_mut(1).wait_until("a session", LIMIT, up).unwrap();
}

fn session(node: &Node, n: u8) -> Result<BgpNeighbor> {
    let found = node.bgp_neighbors()?.into_iter().find(|neighbor| neighbor.name == mesh::name(n));
    found.with_context(|| format!("{} has no neighbor {n}", node.name()))
}

fn tunnel(node: &Node, n: u8) -> Result<Peer> {
    let found = node.peers()?.into_iter().find(|peer| peer.name == mesh::name(n));
    found.with_context(|| format!("{} has no peer {n}", node.name()))
}

/// Reloads: generation and error after it.
fn reload(node: &mut Node, config: &str) -> (u64, String) {
    node.reload(config, LIMIT).unwrap()
}

/// What must not change for those who did not change.
struct Undisturbed {
    tunnel: Peer,
    session: BgpNeighbor,
}

impl Undisturbed {
    fn before(node: &Node, n: u8) -> Self {
        Self { tunnel: tunnel(node, n).unwrap(), session: session(node, n).unwrap() }
    }

    fn check(&self, node: &Node, n: u8) {
        let now = Self::before(node, n);
        let (old, new) = (&self.tunnel, &now.tunnel);
        assert_eq!(old.last_handshake_at, new.last_handshake_at);
        assert!(new.rx_packets >= old.rx_packets && new.tx_packets >= old.tx_packets, "{old:?} {new:?}");
        assert!(old.rx_packets > 0 && old.endpoint == new.endpoint, "{old:?} {new:?}");
        let (old, new) = (&self.session, &now.session);
        assert_eq!((old.established_count, &old.state), (new.established_count, &new.state));
        assert!(new.messages_received >= old.messages_received, "{old:?} {new:?}");
    }
}

#[test]
fn a_reload_applies_only_the_difference() {
    sandbox::run_with_bins("a_reload_applies_only_the_difference", |bins| {
        let mut mesh = hub_and_spokes(bins, &[2]);
        let before = Undisturbed::before(mesh.node(1), 2);
        assert_eq!(before.session.established_count, 1);

        let added = hub(&mesh, &[2, 3], &["10.10.0.0/16", "10.11.0.0/16"]);
        assert_eq!(reload(mesh.node_mut(1), &added), (2, String::new()));
        established(&mut mesh, 3);
        let learned = |node: &Node| {
            let routes = node.routes()?;
            ensure!(routes.iter().any(|route| route.prefix == "10.11.0.0/16"), "no new prefix");
            ensure!(routes.iter().any(|route| route.prefix == "10.10.0.0/16"), "the old prefix is gone");
            Ok(())
        };
        mesh.node_mut(2).wait_until("the new prefix", LIMIT, learned).unwrap();
        before.check(mesh.node(1), 2);
        let echo = UdpEcho::start(mesh.node(3).netns(), SocketAddr::new(overlay(3)[1], 7)).unwrap();
        reach(mesh.node(1).netns(), echo.address(), LIMIT).unwrap();

        let removed = hub(&mesh, &[2], &["10.11.0.0/16"]);
        assert_eq!(reload(mesh.node_mut(1), &removed), (3, String::new()));
        let node = mesh.node_mut(1);
        assert!(tunnel(node, 3).is_err() && session(node, 3).is_err());
        node.wait_until("the end of the routes", LIMIT, |node| {
            let routes = node.routes()?;
            ensure!(!routes.iter().any(|route| route.prefix.contains(&overlay(3)[0].to_string())), "own");
            ensure!(!routes.iter().any(|route| route.prefix == "10.30.0.0/16"), "learned");
            ensure!(node.netns().count_routes(PROTOCOL)? == 1, "kernel");
            Ok(())
        })
        .unwrap();
        let withdrawn = |node: &Node| {
            let routes = node.routes()?;
            ensure!(!routes.iter().any(|route| route.prefix == "10.10.0.0/16"), "it is still there");
            Ok(())
        };
        mesh.node_mut(2).wait_until("the withdrawal", LIMIT, withdrawn).unwrap();
        before.check(mesh.node(1), 2);
    });
}

#[test]
fn a_refused_reload_changes_nothing() {
    sandbox::run_with_bins("a_refused_reload_changes_nothing", |bins| {
        let mut mesh = hub_and_spokes(bins, &[2]);
        let before = Undisturbed::before(mesh.node(1), 2);
        let good = hub(&mesh, &[2], &["10.10.0.0/16"]);
        // Each has a good change besides, which must not be applied either.
        let more = hub(&mesh, &[2, 3], &["10.10.0.0/16", "10.12.0.0/16"]);
        let line = |text: &str, word: &str| text.lines().position(|line| line.contains(word)).unwrap() + 1;
        let misspelt = more.replace("hold_time", "hold_tme");
        let bad_prefix = more.replace("10.12.0.0/16", "10.12.0.1/16");
        let bad_key = more.replace(&mesh::public_key(3), "AAAA");
        let restart = more.replace("[tunnel]", "[tunnel]\nmtu = 1300");
        let kernel = more.replace("/64\"]\n[[tunnel.peer]]", "/64\", \"224.0.0.1/24\"]\n[[tunnel.peer]]");
        let file = mesh.node(1).config();
        let at = |line: usize| format!("{}:{line}: ", file.display());
        for (text, place, reason, remedy) in [
            (
                &misspelt,
                at(line(&misspelt, "hold_tme")),
                "unknown key `hold_tme`",
                "did you mean `hold_time`?",
            ),
            (&bad_prefix, at(line(&bad_prefix, "10.12.0.1")), "has bits set", "write \"10.12.0.0/16\""),
            (&bad_key, at(line(&bad_key, "AAAA")), "key", "base64"),
            (&restart, String::new(), "[tunnel] mtu", "restart the daemon to apply it"),
            (&kernel, String::new(), "address 224.0.0.1/24", "isthmus0"),
        ] {
            let node = mesh.node_mut(1);
            let (generation, error) = reload(node, text);
            assert_eq!(generation, 1, "{error}");
            assert!(error.contains(&place) && error.contains(reason) && error.contains(remedy), "{error}");
            assert!(node.log_text().contains(&error), "{error}");
            let said = node.ctl(&["status"]).unwrap();
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            assert!(said.contains(reason), "{said}");
            assert!(tunnel(node, 3).is_err() && session(node, 3).is_err(), "{reason}: a part was applied");
            before.check(node, 2);
        }
        let (code, page) = get(mesh.node(1).netns(), METRICS, "/metrics").unwrap();
        assert!(code == 200 && page.contains("isthmus_config_last_reload_successful 0"), "{page}");
        assert_eq!(reload(mesh.node_mut(1), &good), (2, String::new()));
        before.check(mesh.node(1), 2);
        let announced = mesh.node(2).routes().unwrap();
        assert!(!announced.iter().any(|route| route.prefix == "10.12.0.0/16"), "{announced:?}");
    });
}

#[test]
fn a_reload_with_broken_identity_files_changes_nothing() {
    sandbox::run_with_bins("a_reload_with_broken_identity_files_changes_nothing", |bins| {
        let mut mesh = Mesh::new(1, bins).unwrap();
        let (pki, other) = (Pki::new("s1", OffsetDateTime::now_utc()).unwrap(), tempfile::tempdir().unwrap());
        let dir = mesh.node(1).dir().to_owned();
        pki.write_all(&dir, "gw1").unwrap();
        pki.write_all(other.path(), "gw1").unwrap();
        let tunnel_part =
            mesh.base(1).split_once("[tunnel]").map(|(_, part)| format!("[tunnel]{part}")).unwrap();
        let base = identity_config(mesh.node(1), "s1") + &tunnel_part;
        let with_peer = base.clone() + &peer(2, Some(Family::V4));
        mesh.node_mut(1).start(&base).unwrap();
        mesh.node_mut(1).wait_ready(LIMIT).unwrap();
        let node = mesh.node_mut(1);
        let certificates = node.certificates().unwrap();
        let good_key = fs::read_to_string(dir.join("node.key")).unwrap();
        let good_svid = fs::read(dir.join("node.pem")).unwrap();

        let mut generation = 1;
        for (name, content, words) in [
            (
                "node.key",
                fs::read(other.path().join("node.key")).unwrap(),
                "key that the certificate was requested with",
            ),
            ("node.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n".to_vec(), "isthmus-ca inspect"),
            ("node.pem", Vec::new(), "isthmus-ca inspect"),
        ] {
            write_secret(&dir.join(name), &String::from_utf8(content).unwrap()).unwrap();
            let (now, error) = reload(node, &with_peer);
            assert_eq!(now, generation, "{error}");
            let file = dir.join(name).display().to_string();
            assert!(error.contains(&file) && error.contains(words), "{error}");
            assert!(node.peers().unwrap().is_empty(), "a part was applied");
            assert_eq!(node.certificates().unwrap(), certificates);
            write_secret(&dir.join("node.key"), &good_key).unwrap();
            fs::write(dir.join("node.pem"), &good_svid).unwrap();
            generation += 1;
            assert_eq!(reload(node, &base), (generation, String::new()));
        }
        assert_eq!(reload(node, &with_peer).1, "");
        assert_eq!(node.peers().unwrap().len(), 1);
    });
}

#[test]
fn what_was_applied_before_a_refusal_is_taken_back() {
    sandbox::run_with_bins("what_was_applied_before_a_refusal_is_taken_back", |bins| {
        let mut mesh = Mesh::new(1, bins).unwrap();
        let pki = Pki::new("s1", OffsetDateTime::now_utc()).unwrap();
        pki.write_all(mesh.node(1).dir(), "gw1").unwrap();
        let base = mesh.base(1);
        let (_, tunnel_part) = base.split_once("[tunnel]").unwrap();
        let entry = "[[workload_api.entry]]\nspiffe_id = \"/sa/one\"\nselectors = [\"unix:uid:0\"]\n";
        let good = issuer_config(mesh.node(1), "s1") + entry + "[tunnel]" + tunnel_part;
        let node = mesh.node_mut(1);
        node.start(&good).unwrap();
        node.wait_ready(LIMIT).unwrap();
        let endpoint = format!("unix://{}", node.workload_socket().display());
        let fetch = |node: &Node| node.ctl_ok(&["svid", "fetch", "--workload-socket", &endpoint]).unwrap();
        assert!(fetch(node).contains("/sa/one"));

        // The entry is good, and comes before the address that the kernel refuses.
        let renamed = good.replace("/sa/one", "/sa/two");
        let refused = renamed.replace("/64\"]", "/64\", \"224.0.0.1/24\"]");
        let (generation, error) = reload(node, &refused);
        assert!(generation == 1 && error.contains("224.0.0.1/24"), "{error}");
        assert!(fetch(node).contains("/sa/one"), "the entry was applied though the reload was refused");
        assert_eq!(reload(node, &renamed), (2, String::new()));
        assert!(fetch(node).contains("/sa/two"));
    });
}

#[test]
fn sigterm_leaves_nothing_and_tells_the_neighbor() {
    sandbox::run_with_bins("sigterm_leaves_nothing_and_tells_the_neighbor", |bins| {
        let mut mesh = hub_and_spokes(bins, &[2, 3]);
        let dir = mesh.node(1).dir().to_owned();
        let node = mesh.node_mut(1);
        node.wait_until("kernel routes", LIMIT, |node| {
            ensure!(node.netns().count_routes(PROTOCOL)? == 2, "not two");
            Ok(())
        })
        .unwrap();
        assert_eq!(node.stop().unwrap().code(), Some(0));
        nothing_is_left(node);
        assert!(!dir.join("isthmusd.sock").exists());
        for n in [2, 3] {
            let told = |node: &Node| {
                let session = session(node, 1)?;
                ensure!(session.state != "Established", "it has not noticed");
                ensure!(session.last_error.contains("Administrative Shutdown"), "{session:?}");
                ensure!(
                    node.routes()?.iter().all(|route| route.source != "bgp"),
                    "its routes are still there"
                );
                Ok(())
            };
            mesh.node_mut(n).wait_until("the last word", LIMIT, told).unwrap();
        }
    });
}

fn nothing_is_left(node: &Node) {
    let links = node.netns().links().unwrap();
    assert!(!links.contains(&"isthmus0".to_owned()), "{links:?}");
    assert_eq!(node.netns().count_routes(PROTOCOL).unwrap(), 0);
    for socket in [node.socket(), node.workload_socket()] {
        assert!(!socket.exists(), "{} is still there", socket.display());
    }
}

#[test]
fn sigterm_during_the_start_ends_it_cleanly() {
    sandbox::run_with_bins("sigterm_during_the_start_ends_it_cleanly", |bins| {
        let mut mesh = Mesh::new(1, bins).unwrap();
        let pki = Pki::new("s1", OffsetDateTime::now_utc()).unwrap();
        pki.write_all(mesh.node(1).dir(), "gw1").unwrap();
        let rest =
            everything(&mesh, 1).split_once("[tunnel]").map(|(_, rest)| format!("[tunnel]{rest}")).unwrap();
        let text = issuer_config(mesh.node(1), "s1") + &rest;
        let node = mesh.node_mut(1);
        node.write_config(&text).unwrap();

        // In the middle of it, for certain.
        let (log, writer) = full_pipe();
        node.restart_with(|command| _ = command.stderr(writer)).unwrap();
        node.wait_until("the health page", LIMIT, |node| get(node.netns(), METRICS, "/healthz")).unwrap();
        node.signal(Signal::SIGTERM).unwrap();
        let log = drain(log);
        let status = node.wait_end().unwrap();
        assert_eq!(status.code(), Some(0), "{}", log.join().unwrap());
        nothing_is_left(node);

        // And wherever it is after each line of the log.
        for words in
            ["serving metrics", "the Workload API serves", "tunnel started", "serving the control API"]
        {
            for _ in 0..3 {
                let _ = fs::remove_file(node.log());
                node.restart().unwrap();
                node.wait_until(words, LIMIT, |node| {
                    ensure!(node.log_text().contains(words), "not yet");
                    Ok(())
                })
                .unwrap();
                node.signal(Signal::SIGTERM).unwrap();
                let status = node.wait_end().unwrap();
                assert_eq!(status.code(), Some(0), "{}", node.log_text());
                nothing_is_left(node);
            }
        }
    });
}

#[test]
fn a_storm_of_reloads_is_harmless() {
    sandbox::run_with_bins("a_storm_of_reloads_is_harmless", |bins| {
        let mut mesh = hub_and_spokes(bins, &[2]);
        let before = Undisturbed::before(mesh.node(1), 2);
        let [one, both] = [&[2][..], &[2, 3][..]].map(|known| hub(&mesh, known, &["10.10.0.0/16"]));
        let node = mesh.node_mut(1);
        for n in 0..20 {
            // The file is replaced at any moment, as an editor would: a reload may find none.
            node.write_config(if n % 2 == 0 { &both } else { &one }).unwrap();
            node.signal(Signal::SIGHUP).unwrap();
        }
        // Whatever the storm left to do, a reload after this signal reads this file.
        node.write_config(&both).unwrap();
        node.signal(Signal::SIGHUP).unwrap();
        let calm = |node: &Node| {
            let config = node.status()?.config.context("no configuration")?;
            ensure!(config.last_error.is_empty() && tunnel(node, 3).is_ok(), "{config:?}");
            Ok(())
        };
        node.wait_until("the last reload", LIMIT, calm).unwrap();
        established(&mut mesh, 3);
        before.check(mesh.node(1), 2);
    });
}

#[test]
fn after_a_kill_the_next_one_takes_over() {
    sandbox::run_with_bins("after_a_kill_the_next_one_takes_over", |bins| {
        let mut mesh = hub_and_spokes(bins, &[2]);
        let node = mesh.node_mut(1);
        node.kill().unwrap();
        assert!(node.socket().exists(), "a killed daemon can't clean up");
        node.restart().unwrap();
        node.wait_ready(LIMIT).unwrap();
        assert!(node.log_text().contains("replacing the socket of a process that is gone"));
        established(&mut mesh, 2);
        let echo = UdpEcho::start(mesh.node(2).netns(), SocketAddr::new(overlay(2)[0], 7)).unwrap();
        reach(mesh.node(1).netns(), echo.address(), LIMIT).unwrap();
        let node = mesh.node_mut(1);
        assert!(node.stop().unwrap().success());
        nothing_is_left(node);
    });
}
