//! Figures: how long the board and the kernel take. Not a behaviour, so it runs only when asked for:
//!
//! `cargo test --release -p isthmusd --lib fib::figures -- --ignored --nocapture`

use std::{
    io::Write,
    net::Ipv4Addr,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::spawn_blocking;

use super::{
    tests::{Running, config, in_namespace, ip, learned},
    *,
};
use crate::routes::{Candidate, Group, NextHop};

const ROUTES: u32 = 100_000;
const BEHIND_A_LINK: u32 = 1000;

fn prefix(number: u32) -> IpNet {
    IpNet::new(Ipv4Addr::from(0x1400_0000 + (number << 8)).into(), 24).unwrap()
}

fn routes(count: u32, group: &Group) -> Vec<(IpNet, Group)> {
    (0..count).map(|number| (prefix(number), Arc::clone(group))).collect()
}

/// Looks at a condition every half millisecond; returns how long it took.
async fn until(what: &str, condition: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    began.elapsed()
}

/// The lines of `ip` that contain a text.
fn count(arguments: &str, text: &str) -> usize {
    ip(arguments).lines().filter(|line| line.contains(text)).count()
}

fn batch_of_ip() -> Duration {
    let lines = (0..ROUTES).map(|number| format!("route add {} via 192.0.2.9 proto 99\n", prefix(number)));
    let lines: String = lines.collect();
    let began = Instant::now();
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let took = began.elapsed();
    ip("route flush proto 99");
    took
}

#[test]
#[ignore = "measures"]
fn a_hundred_thousand_routes() {
    in_namespace(|| async {
        println!("ip -batch, {ROUTES} routes: {:?}", batch_of_ip());
        let board = Board::new();
        let fib = Running::start(config(), &board).await;
        let group = learned(&["192.0.2.9"]);
        let changes = routes(ROUTES, &group);
        let began = Instant::now();
        board.update_bgp(changes);
        println!("onto the board, one group: {:?}", began.elapsed());
        let all = usize::try_from(ROUTES).unwrap();
        let installed = || fib.handle.summary().installed == all;
        let took = until("installed", installed).await;
        println!("into the kernel, {ROUTES} routes: {took:?}");
        assert_eq!(count("route show proto 73", "192.0.2.9"), all);

        flushed(all).await;

        let began = Instant::now();
        board.update_bgp(routes(ROUTES, &Group::from([])));
        println!("off the board: {:?}", began.elapsed());
        let took = until("removed", || fib.handle.summary().installed == 0).await;
        println!("out of the kernel, {ROUTES} routes: {took:?}");
        fib.stop().await;
    });
}

/// Somebody flushes our routes while the FIB watches.
async fn flushed(all: usize) {
    let began = Instant::now();
    let flush = spawn_blocking(|| ip("route flush proto 73"));
    flush.await.unwrap();
    println!("`ip route flush proto 73` of {all} routes: {:?}", began.elapsed());
    let took = until("back", || count("route show proto 73", "192.0.2.9") == all).await;
    println!("back after its end: {took:?}");
}

#[test]
#[ignore = "measures"]
fn a_thousand_routes_flushed() {
    in_namespace(|| async {
        let board = Board::new();
        board.update_bgp(routes(BEHIND_A_LINK, &learned(&["192.0.2.9"])));
        let fib = Running::start(config(), &board).await;
        flushed(usize::try_from(BEHIND_A_LINK).unwrap()).await;
        fib.stop().await;
    });
}

#[test]
#[ignore = "measures"]
fn groups_of_ten_onto_the_board() {
    let board = Board::new();
    let group = |number: u32| -> Group {
        let next_hop = NextHop::Address(Ipv4Addr::from(0x0a00_0000 + number).into());
        [Candidate { next_hop, neighbor: Some("n".into()), selected: true }].into()
    };
    let changes: Vec<(IpNet, Group)> = (0..ROUTES / 10)
        .flat_map(|ten| {
            let group = group(ten);
            (0..10).map(move |n| (prefix(ten * 10 + n), Arc::clone(&group)))
        })
        .collect();
    let began = Instant::now();
    for batch in changes.chunks(1000) {
        board.update_bgp(batch.to_vec());
    }
    println!("onto the board, {ROUTES} routes, ten to a group: {:?}", began.elapsed());
}

#[test]
#[ignore = "measures"]
fn carrier_lost() {
    in_namespace(|| async {
        ip("link add wire1 type veth peer name far2");
        ip("link set wire1 up");
        ip("link set far2 up");
        ip("addr add 198.51.100.1/24 dev wire1");
        let board = Board::new();
        let fib = Running::start(config(), &board).await;
        let way = |address: &str, selected| Candidate {
            next_hop: NextHop::Address(address.parse().unwrap()),
            neighbor: Some("n".into()),
            selected,
        };
        let group: Group = [way("192.0.2.9", true), way("198.51.100.9", false)].into();
        board.update_bgp(routes(BEHIND_A_LINK, &group));
        let all = usize::try_from(BEHIND_A_LINK).unwrap();
        until("installed", || fib.handle.summary().installed == all).await;
        let mut times = Vec::new();
        for _ in 0..20 {
            until("on the first", || count("route show proto 73", "192.0.2.9") == all).await;
            // The pass that the link's return has brought about is over.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let monitor = Monitor::start();
            ip("link set far1 down");
            until("on the other", || count("route show proto 73", "198.51.100.9") == all).await;
            times.push(monitor.stop());
            ip("link set far1 up");
        }
        times.sort();
        println!(
            "carrier lost to {BEHIND_A_LINK} routes on the other link: median {:?}, max {:?}",
            times[10], times[19]
        );
        fib.stop().await;
    });
}

/// `ip -ts monitor`: from the message that a link is down to the last of the routes.
struct Monitor(std::process::Child);

impl Monitor {
    fn start() -> Self {
        let child =
            Command::new("ip").args(["-ts", "-o", "monitor", "link", "route"]).stdout(Stdio::piped()).spawn();
        let monitor = Self(child.unwrap());
        std::thread::sleep(Duration::from_millis(100));
        monitor
    }

    fn stop(mut self) -> Duration {
        std::thread::sleep(Duration::from_millis(100));
        self.0.kill().unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.0.stdout.take().unwrap(), &mut text).unwrap();
        self.0.wait().unwrap();
        let time = |line: &str| -> Duration {
            let clock = line.split(['T', ']']).nth(1).unwrap();
            let parts: Vec<f64> = clock.split(':').map(|part| part.parse().unwrap()).collect();
            Duration::from_secs_f64(parts[0] * 3600.0 + parts[1] * 60.0 + parts[2])
        };
        let down = text.lines().find(|line| line.contains("wire0") && line.contains("NO-CARRIER")).map(time);
        let moved = text.lines().rfind(|line| line.contains("via 198.51.100.9")).map(time);
        moved.unwrap().saturating_sub(down.unwrap())
    }
}
