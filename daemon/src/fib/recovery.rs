//! What others do to our routes, and how it is made good; against the real kernel, as the other tests.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use tokio::task::spawn_blocking;

use super::{
    tests::{Monitor, Running, config, in_namespace, ip, learned, net, ours, routes, second_wire, until},
    *,
};

/// More than there is room for announcements.
const MANY: u32 = 10_000;

fn prefix(number: u32) -> IpNet {
    IpNet::new(Ipv4Addr::from(0x1400_0000 + (number << 8)).into(), 24).unwrap()
}

/// A board with so many routes through a router on the wire.
fn board(routes: u32) -> Board {
    let (board, group) = (Board::new(), learned(&["192.0.2.9"]));
    board.update_bgp((0..routes).map(|number| (prefix(number), Arc::clone(&group))).collect());
    board
}

fn our_count() -> usize {
    ip("-4 route show proto 73").lines().count()
}

#[test]
fn what_is_removed_comes_back_and_nothing_else_is_touched() {
    in_namespace(|| async {
        let fib = Running::start(config(), &board(100)).await;
        ip("route add 10.0.0.0/8 via 192.0.2.5 proto static");
        let before = routes(254);
        // What adding the static route brings about is over.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let monitor = Monitor::start();
        for number in [3, 30, 60] {
            ip(&format!("route del {}", prefix(number)));
        }
        until("all back", || routes(254) == before).await;
        let seen = monitor.seen();
        let removed = seen.lines().filter(|line| line.starts_with("Deleted")).count();
        assert_eq!((removed, seen.lines().count()), (3, 6), "{seen}");
        fib.stop().await;
        assert!(ip("route show").contains("10.0.0.0/8 via 192.0.2.5"));
    });
}

#[test]
fn a_flush_that_nobody_could_follow_is_made_good() {
    in_namespace(|| async {
        let fib = Running::start(config(), &board(MANY)).await;
        let all = usize::try_from(MANY).unwrap();
        assert_eq!(our_count(), all);
        // The FIB shares this thread: it does not hear a word before the end, and of most words never.
        ip("route flush proto 73");
        assert_eq!(our_count(), 0);
        until("all back", || our_count() == all).await;
        assert_eq!(fib.handle.summary(), Summary { installed: all, ..Summary::default() });
        fib.stop().await;
        assert_eq!(our_count(), 0);
    });
}

#[test]
fn a_flush_ends_although_somebody_puts_routes_back() {
    in_namespace(|| async {
        let fib = Running::start(config(), &board(MANY)).await;
        let all = usize::try_from(MANY).unwrap();
        // It looks again until it finds none, so it ends when it has been let.
        spawn_blocking(|| ip("route flush proto 73")).await.unwrap();
        until("all back", || our_count() == all).await;
        fib.stop().await;
    });
}

#[test]
fn a_link_that_flaps_has_its_routes_back() {
    in_namespace(|| async {
        let fib = Running::start(config(), &board(100)).await;
        let full = ours(254);
        for _ in 0..3 {
            let flap = || {
                ip("link set wire0 down");
                ip("link set wire0 up");
            };
            spawn_blocking(flap).await.unwrap();
            until("all back", || ours(254) == full).await;
        }
        until("all said to be there", || fib.handle.summary().installed == 100).await;
        fib.stop().await;
    });
}

#[test]
fn a_dead_route_does_not_hide_a_less_specific_one() {
    in_namespace(|| async {
        second_wire();
        let board = Board::new();
        board.update_bgp(vec![
            (net("10.0.0.0/8"), learned(&["198.51.100.9"])),
            (net("10.30.0.0/16"), learned(&["192.0.2.9"])),
        ]);
        let fib = Running::start(config(), &board).await;
        assert!(ip("route get 10.30.0.1").contains("via 192.0.2.9"));
        ip("link set far1 down");
        until("it goes the other way", || ip("route get 10.30.0.1").contains("via 198.51.100.9")).await;
        until("it says why", || {
            fib.handle.state(&net("10.30.0.0/16")).reason()
                == "next hop 192.0.2.9 is behind wire0, which is down"
        })
        .await;
        ip("link set far1 up");
        until("back", || ip("route get 10.30.0.1").contains("via 192.0.2.9")).await;
        fib.stop().await;
    });
}
