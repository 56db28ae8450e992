//! How connections are made: whole shells on loopback addresses, and on link-local ones in a namespace of their own.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV6},
    num::NonZeroU8,
};

use isthmus_bgp::fsm::State;
use nix::net::if_::if_nametoindex;
use tokio::time::{Duration, sleep, timeout};

use super::tests::{PATIENCE, Shell, config, established, loopback, neighbor, template};
use super::*;

const DEAD_PORT: u16 = 1;

/// Neighbor `n` of shell `own`, with a password and one hop away at most.
fn guarded(own: u8, n: u8, port: u16, password: &str) -> NeighborConfig {
    let transport = Transport {
        local_address: Some(loopback(own)),
        reach: Reach::Secured(NonZeroU8::MIN),
        password: Password::new(password.as_bytes()),
    };
    NeighborConfig { transport, ..neighbor(n, port) }
}

async fn until_state(shell: &Shell, name: &str, wanted: impl Fn(&NeighborStatus) -> bool) -> NeighborStatus {
    let wait = async {
        loop {
            let found = shell.handle.neighbors().await.into_iter().find(|neighbor| neighbor.name == name);
            if let Some(found) = found.filter(&wanted) {
                return found;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    match timeout(PATIENCE, wait).await {
        Ok(found) => found,
        Err(_) => panic!("{name}: {:#?}", shell.handle.neighbors().await),
    }
}

fn is_up(status: &NeighborStatus) -> bool {
    status.is_established()
}

#[tokio::test]
async fn a_new_password_starts_that_session_over_and_no_other() {
    let with_password = |password: &str| {
        let mut three = neighbor(3, DEAD_PORT);
        three.transport.local_address = Some(loopback(2));
        config(2, &["10.2.0.0/16"], vec![guarded(2, 1, DEAD_PORT, password), three])
    };
    let two = Shell::start(with_password("first")).await;
    let to_two = |password: &str| config(1, &["10.1.0.0/16"], vec![guarded(1, 2, two.port(), password)]);
    let one = Shell::start(to_two("first")).await;
    let mut plain = neighbor(2, two.port());
    plain.transport.local_address = Some(loopback(3));
    let three = Shell::start(config(3, &["10.3.0.0/16"], vec![plain])).await;
    one.until_known("10.2.0.0/16").await;
    three.until_known("10.2.0.0/16").await;

    let said = two.handle.apply(with_password("second")).await.unwrap();
    assert_eq!(said, ["neighbor n1: connection made anew"]);
    let ended = until_state(&one, "n2", |status| !is_up(status)).await;
    let error = ended.last_error.unwrap();
    assert!(error.contains("Other Configuration Change"), "{error}");
    one.handle.apply(to_two("second")).await.unwrap();
    until_state(&two, "n1", |status| is_up(status) && status.established_count == 2).await;
    let other = until_state(&two, "n3", is_up).await;
    assert_eq!(other.established_count, 1, "{other:?}");
}

#[tokio::test]
async fn without_the_password_there_is_no_session() {
    let two = Shell::start(config(2, &[], vec![guarded(2, 1, DEAD_PORT, "secret")])).await;
    let one = Shell::start(config(1, &[], vec![guarded(1, 2, two.port(), "guess")])).await;
    let tried = until_state(&one, "n2", |status| status.last_error.is_some()).await;
    let error = tried.last_error.unwrap();
    assert!(error.contains("with another password there it would not answer"), "{error}");
    assert_ne!(two.neighbor().await.state, State::Established);
}

#[tokio::test]
async fn a_prefix_has_a_password_and_a_reach() {
    let open_to = |password: &str| {
        let mut settings = guarded(2, 1, DEAD_PORT, password);
        settings.transport.local_address = None;
        let templates = vec![template("pods", "127.0.0.0/29", settings)];
        Config { templates, ..config(2, &["10.2.0.0/16"], vec![]) }
    };
    let two = Shell::start(open_to("first")).await;
    let to_two = |own: u8, password: &str| config(own, &[], vec![guarded(own, 2, two.port(), password)]);
    let one = Shell::start(to_two(1, "first")).await;
    let three = Shell::start(to_two(3, "guess")).await;
    let mut far = to_two(4, "first");
    far.neighbors[0].transport.reach = Reach::Ttl(NonZeroU8::new(64).unwrap());
    let far = Shell::start(far).await;
    until_state(&two, "pods-127.0.0.1", is_up).await;
    one.until_known("10.2.0.0/16").await;
    let tried = until_state(&three, "n2", |status| status.last_error.is_some()).await;
    assert!(tried.last_error.unwrap().contains("with another password there it would not answer"));
    until_state(&far, "n2", |status| status.last_error.is_some()).await;
    assert_eq!(two.handle.neighbors().await.len(), 1, "neither has become a neighbor");

    let said = two.handle.apply(open_to("guess")).await.unwrap();
    assert_eq!(said, ["neighbor pods-127.0.0.1: connection made anew"]);
    let ended = until_state(&one, "n2", |status| !is_up(status)).await;
    assert!(ended.last_error.unwrap().contains("Other Configuration Change"));
    until_state(&three, "n2", is_up).await;
}

fn ip(arguments: &str) {
    let output = std::process::Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a test on a thread with a network of its own; without the right to one it says so and passes.
fn in_namespace(test: impl AsyncFnOnce() + Send + 'static) {
    let run = move || {
        if nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_err() {
            eprintln!("SKIPPED: needs root for a network namespace");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    };
    std::thread::spawn(run).join().unwrap();
}

/// One end of a link has fe80::1, the other fe80::2.
fn link(one: &str, two: &str) {
    ip(&format!("link add {one} type veth peer name {two}"));
    for (interface, address) in [(one, "fe80::1/64"), (two, "fe80::2/64")] {
        ip(&format!("link set {interface} addrgenmode none"));
        ip(&format!("link set {interface} up"));
        ip(&format!("addr add {address} dev {interface} nodad"));
    }
}

fn link_local(n: u8, address: &str, interface: &str, port: u16) -> NeighborConfig {
    let mut there = neighbor(n, port);
    there.peer.address = address.parse().unwrap();
    there.place = Place { address: there.peer.address, interface: Some(interface.into()) };
    there.transport.reach = Reach::Secured(NonZeroU8::MIN);
    there
}

fn listening_on(mut config: Config, address: &str, interface: &str) -> Config {
    let scope = if_nametoindex(interface).unwrap();
    config.listen = vec![SocketAddrV6::new(address.parse().unwrap(), 0, 0, scope).into()];
    config
}

#[test]
fn the_same_link_local_address_on_two_links_is_two_neighbors() {
    in_namespace(async || {
        ip("link set lo up");
        link("left0", "left1");
        link("right0", "right1");
        let mut middle = config(1, &[], vec![]);
        middle.listen = vec!["[::]:0".parse::<SocketAddr>().unwrap()];
        let middle_shell = Shell::start(middle.clone()).await;
        let port = middle_shell.port();
        let left = vec![link_local(1, "fe80::1", "left1", port)];
        let left = Shell::start(listening_on(config(2, &[], left), "fe80::2", "left1")).await;
        let right = vec![link_local(1, "fe80::1", "right1", port)];
        let right = Shell::start(listening_on(config(3, &[], right), "fe80::2", "right1")).await;
        // What the middle dials, and what it accepts, is the neighbor on that link.
        middle.neighbors = vec![
            link_local(2, "fe80::2", "left0", left.port()),
            link_local(3, "fe80::2", "right0", right.port()),
        ];
        middle_shell.handle.apply(middle).await.unwrap();
        for (name, n) in [("n2", 2), ("n3", 3)] {
            let status = until_state(&middle_shell, name, is_up).await;
            assert_eq!(status.remote_router_id, Some(Ipv4Addr::new(10, 0, 0, n)));
        }
    });
}

#[test]
fn who_comes_by_a_link_local_prefix_is_a_neighbor_of_that_link() {
    in_namespace(async || {
        ip("link set lo up");
        link("left0", "left1");
        link("right0", "right1");
        let mut settings = neighbor(2, DEAD_PORT);
        settings.transport.reach = Reach::Secured(NonZeroU8::MIN);
        let templates = vec![template("pods", "fe80::/10", settings)];
        let listen = vec!["[::]:0".parse().unwrap()];
        let middle = Shell::start(Config { listen, templates, ..config(1, &[], vec![]) }).await;
        let from = |n: u8, interface: &str| {
            let neighbors = vec![link_local(1, "fe80::1", interface, middle.port())];
            Shell::start(Config { listen: vec![], ..config(n, &[], neighbors) })
        };
        let _both = (from(2, "left1").await, from(3, "right1").await);
        let name = |interface: &str| format!("pods-fe80::2%{}", if_nametoindex(interface).unwrap());
        let mut expected = ["left0", "right0"].map(name);
        expected.sort();
        assert_eq!(established(&middle, 2).await, expected);
    });
}
