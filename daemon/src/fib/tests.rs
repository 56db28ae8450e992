//! Against the real kernel, in a network namespace of the test's own. Needs root; says so and passes without.

use std::{process::Command, thread, time::Duration};

use tokio::time::timeout;

use super::{plan::METRIC, *};
use crate::routes::{Candidate, Group, NextHop};

const PATIENCE: Duration = Duration::from_secs(10);
/// Our routes as `ip -o route show` prints them begin so.
const OURS: &str = "proto 73";

/// Runs a test on a thread that has left for a network namespace of its own: `isthmus0` with overlay addresses, `wire0` with a router
/// behind it.
pub(super) fn in_namespace<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let result = thread::spawn(move || {
        if nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_err() {
            println!("skipped: making a network namespace needs root (CAP_SYS_ADMIN)");
            return;
        }
        for command in [
            "link set lo up",
            "link add isthmus0 type veth peer name far0",
            "link set isthmus0 up",
            "link set far0 up",
            "addr add 10.99.0.1/24 dev isthmus0",
            "addr add fd7a::1/64 dev isthmus0 nodad",
            "link add wire0 type veth peer name far1",
            "link set wire0 up",
            "link set far1 up",
            "addr add 192.0.2.1/24 dev wire0",
            "addr add 2001:db8::1/64 dev wire0 nodad",
        ] {
            ip(command);
        }
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    });
    result.join().unwrap();
}

pub(super) fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn routes(table: u32) -> Vec<String> {
    // Link-local subnets come on their own time, and are nobody's concern here.
    let shown = [format!("-4 -o route show table {table}"), format!("-6 -o route show table {table}")];
    let lines = shown.iter().flat_map(|command| ip(command).lines().map(tidy).collect::<Vec<_>>());
    lines.filter(|line| !line.starts_with("fe80::")).collect()
}

pub(super) fn ours(table: u32) -> Vec<String> {
    routes(table).into_iter().filter(|route| route.contains(OURS)).collect()
}

fn tidy(line: &str) -> String {
    line.replace('\\', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(super) async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}; routes: {:#?}", routes(254)));
}

pub(super) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

pub(super) fn config() -> Config {
    Config {
        install: true,
        table: 254,
        interface: Some("isthmus0".into()),
        stale_time: Duration::from_secs(3600),
    }
}

pub(super) fn learned(next_hops: &[&str]) -> Group {
    let candidate = |address: &&str| Candidate {
        next_hop: NextHop::Address(address.parse().unwrap()),
        neighbor: Some("azure".into()),
        selected: true,
    };
    next_hops.iter().map(candidate).collect()
}

/// The board of a node with one tunnel peer and what it announces in both families, and a router on the wire.
fn board() -> Board {
    let board = Board::new();
    board.set_static(vec![(net("10.99.0.2/32"), "azure".into()), (net("fd7a::2/128"), "azure".into())]);
    board.set_underlay(vec!["198.51.100.2".parse().unwrap()]);
    board.update_bgp(vec![
        (net("10.20.0.0/16"), learned(&["10.99.0.2"])),
        (net("fd20::/48"), learned(&["fd7a::2"])),
        (net("10.30.0.0/16"), learned(&["192.0.2.8", "192.0.2.9"])),
        (net("fd30::/48"), learned(&["2001:db8::8", "2001:db8::9"])),
        (net("10.31.0.0/16"), learned(&["192.0.2.9"])),
        (net("10.32.0.0/16"), learned(&["2001:db8::9"])),
    ]);
    board
}

const FULL: [&str; 6] = [
    "10.20.0.0/16 dev isthmus0 proto 73 src 10.99.0.1 metric 1073",
    "10.30.0.0/16 proto 73 metric 1073 nexthop via 192.0.2.8 dev wire0 weight 1 nexthop via 192.0.2.9 dev wire0 weight 1",
    "10.31.0.0/16 via 192.0.2.9 dev wire0 proto 73 metric 1073",
    "10.32.0.0/16 via inet6 2001:db8::9 dev wire0 proto 73 metric 1073",
    "fd20::/48 dev isthmus0 proto 73 src fd7a::1 metric 1073 pref medium",
    "fd30::/48 proto 73 metric 1073 pref medium nexthop via 2001:db8::8 dev wire0 weight 1 nexthop via 2001:db8::9 dev wire0 weight 1",
];

pub(super) struct Running {
    pub(super) handle: Handle,
    join: JoinHandle<()>,
    shutdown: CancellationToken,
    service: Service,
}

impl Running {
    pub(super) async fn start(config: Config, board: &Board) -> Self {
        let readiness = Readiness::new();
        let (shutdown, service) = (CancellationToken::new(), Service::new());
        let (handle, join) =
            start(config, board.clone(), &readiness, service.clone(), shutdown.clone()).await.unwrap();
        assert_eq!(readiness.waiting(), ["fib: first reconciliation"]);
        timeout(PATIENCE, readiness.ready()).await.expect("the first pass ends");
        Self { handle, join, shutdown, service }
    }

    /// As SIGTERM does.
    pub(super) async fn stop(self) {
        self.shutdown.cancel();
        timeout(PATIENCE, self.join).await.expect("stops in time").unwrap();
    }

    /// As SIGTERM does where the daemon is to come back.
    async fn suspend(self) {
        self.service.suspend();
        self.stop().await;
    }

    /// As SIGKILL does: no clean-up.
    async fn kill(self) {
        self.join.abort();
        assert!(self.join.await.unwrap_err().is_cancelled());
    }
}

/// The kernel's own account of changes to routes, while the value lives.
pub(super) struct Monitor(std::process::Child);

impl Monitor {
    pub(super) fn start() -> Self {
        let child =
            Command::new("ip").args(["monitor", "route"]).stdout(std::process::Stdio::piped()).spawn();
        let monitor = Self(child.unwrap());
        // It has subscribed once its netlink socket shows up, with its process ID as port.
        let port = monitor.0.id().to_string();
        let subscribed = || {
            let sockets = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
            sockets.lines().any(|line| line.split_whitespace().nth(2) == Some(&port))
        };
        while !subscribed() {
            thread::sleep(Duration::from_millis(5));
        }
        monitor
    }

    pub(super) fn seen(mut self) -> String {
        self.0.kill().unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.0.stdout.take().unwrap(), &mut text).unwrap();
        self.0.wait().unwrap();
        text
    }
}

#[test]
fn installs_both_families_and_leaves_nothing() {
    in_namespace(|| async {
        let before = routes(254);
        let board = board();
        let fib = Running::start(config(), &board).await;
        assert_eq!(ours(254), FULL);
        assert_eq!(fib.handle.state(&net("10.20.0.0/16")), KernelState::Installed);
        assert_eq!(
            fib.handle.state(&net("10.99.0.2/32")).reason(),
            "covered by isthmus0's subnet 10.99.0.0/24"
        );
        assert_eq!(fib.handle.summary(), Summary { installed: 6, not_wanted: 2, ..Summary::default() });
        assert_eq!(fib.handle.states().len(), 8);

        board.update_bgp(vec![
            (net("10.20.0.0/16"), learned(&["192.0.2.9"])),
            (net("fd20::/48"), learned(&[])),
            (net("198.51.100.0/24"), learned(&["10.99.0.2"])),
        ]);
        until("the tunnel's outer address is refused", || {
            fib.handle.state(&net("198.51.100.0/24")).reason().contains("covers 198.51.100.2")
        })
        .await;
        assert_eq!(ours(254)[0], "10.20.0.0/16 via 192.0.2.9 dev wire0 proto 73 metric 1073");
        assert!(!ours(254).iter().any(|route| route.starts_with("fd20::") || route.starts_with("198.51.")));

        board.set_underlay(vec![]);
        until("nothing is in the way any more", || {
            ours(254).contains(&"198.51.100.0/24 dev isthmus0 proto 73 src 10.99.0.1 metric 1073".to_owned())
        })
        .await;

        fib.stop().await;
        assert_eq!(routes(254), before);
    });
}

#[test]
fn a_restart_adopts_without_touching() {
    in_namespace(|| async {
        let board = board();
        board.update_bgp(vec![(net("10.40.0.0/16"), learned(&["192.0.2.9"]))]);
        let fib = Running::start(config(), &board).await;
        assert_eq!(fib.handle.adopted().await, Adopted::default());
        fib.suspend().await;
        let left = ours(254);
        assert_eq!(left.len(), 7);

        // The new daemon hears of everything but 10.40.0.0/16.
        let monitor = Monitor::start();
        let again = self::board();
        let fib = Running::start(config(), &again).await;
        assert_eq!(ours(254), left);
        assert_eq!(fib.handle.adopted().await, Adopted { v4: true, v6: false });
        assert_eq!(fib.handle.state(&net("10.40.0.0/16")), KernelState::Stale);
        assert_eq!(
            fib.handle.summary(),
            Summary { installed: 6, not_wanted: 2, stale: 1, ..Summary::default() }
        );
        assert_eq!(monitor.seen(), "", "adopted routes are not touched");

        // A withdrawal in the meantime is not stale, it is gone.
        again.update_bgp(vec![(net("10.31.0.0/16"), learned(&[]))]);
        until("withdrawn", || !ours(254).iter().any(|route| route.starts_with("10.31."))).await;
        assert!(ours(254).iter().any(|route| route.starts_with("10.40.")));

        again.set_settled();
        until("swept", || !ours(254).iter().any(|route| route.starts_with("10.40."))).await;
        assert_eq!(ours(254).len(), 5);
        fib.stop().await;
        assert_eq!(ours(254), [""; 0]);
    });
}

#[test]
fn stale_routes_go_when_their_time_is_over() {
    in_namespace(|| async {
        Running::start(config(), &board()).await.kill().await;
        let config = Config { stale_time: Duration::from_millis(300), ..config() };
        let fib = Running::start(config, &Board::new()).await;
        until("swept", || ours(254).is_empty()).await;
        assert_eq!(fib.handle.states(), HashMap::new());
        fib.stop().await;
    });
}

#[test]
fn heals_what_others_break() {
    in_namespace(|| async {
        let fib = Running::start(config(), &board()).await;
        ip("route del 10.20.0.0/16");
        ip("-6 route del fd30::/48 metric 1073");
        until("healed after deletion", || ours(254) == FULL).await;

        ip("route replace 10.31.0.0/16 via 192.0.2.77 metric 1073 proto 73");
        until("healed after a change", || ours(254) == FULL).await;

        // Taking a link down removes its routes: the IPv4 ones without a word.
        ip("link set wire0 down");
        ip("link set wire0 up");
        ip("link set isthmus0 down");
        ip("link set isthmus0 up");
        ip("addr add fd7a::1/64 dev isthmus0 nodad");
        ip("addr add 2001:db8::1/64 dev wire0 nodad");
        until("healed after the links flapped", || ours(254) == FULL).await;

        ip("link del isthmus0");
        until("the interface is missed", || {
            fib.handle.state(&net("10.20.0.0/16")).reason() == "interface isthmus0 does not exist"
        })
        .await;
        ip("link add isthmus0 type veth peer name far0");
        ip("link set far0 up");
        ip("link set isthmus0 up");
        ip("addr add 10.99.0.1/24 dev isthmus0");
        ip("addr add fd7a::1/64 dev isthmus0 nodad");
        until("healed with a new interface", || ours(254) == FULL).await;
        fib.stop().await;
    });
}

/// A second wire with routers behind it.
pub(super) fn second_wire() {
    for command in [
        "link add wire1 type veth peer name far2",
        "link set wire1 up",
        "link set far2 up",
        "addr add 198.51.100.1/24 dev wire1",
        "addr add 2001:db8:1::1/64 dev wire1 nodad",
    ] {
        ip(command);
    }
}

#[test]
fn a_link_without_carrier_is_left_and_returned_to() {
    in_namespace(|| async {
        second_wire();
        let board = Board::new();
        let way = |address: &str, selected| Candidate {
            next_hop: NextHop::Address(address.parse().unwrap()),
            neighbor: None,
            selected,
        };
        board.update_bgp(vec![
            (net("10.30.0.0/16"), learned(&["192.0.2.9", "198.51.100.9"])),
            (net("10.31.0.0/16"), [way("192.0.2.9", true), way("198.51.100.9", false)].into()),
            (net("10.32.0.0/16"), learned(&["192.0.2.9"])),
            (net("fd30::/48"), learned(&["2001:db8::9", "2001:db8:1::9"])),
        ]);
        let mut down_links = board.down_links();
        let fib = Running::start(config(), &board).await;
        let full = ours(254);
        assert_eq!(full.len(), 4);
        let moved = [
            "10.30.0.0/16 via 198.51.100.9 dev wire1 proto 73 metric 1073",
            "10.31.0.0/16 via 198.51.100.9 dev wire1 proto 73 metric 1073",
            "fd30::/48 via 2001:db8:1::9 dev wire1 proto 73 metric 1073 pref medium",
        ];
        for (down, up) in
            [("link set far1 down", "link set far1 up"), ("link set wire0 down", "link set wire0 up")]
        {
            ip(down);
            until("all moved", || ours(254) == moved).await;
            down_links.wait_for(|links| links.iter().any(|link| link.name == "wire0")).await.unwrap();
            let state = fib.handle.state(&net("10.32.0.0/16"));
            assert_eq!(state.to_string(), "failed: next hop 192.0.2.9 is behind wire0, which is down");
            ip(up);
            if down.contains("wire0") {
                ip("addr add 2001:db8::1/64 dev wire0 nodad");
            }
            until("all back", || ours(254) == full).await;
            down_links.wait_for(|links| links.iter().all(|link| link.name != "wire0")).await.unwrap();
        }
        fib.stop().await;
    });
}

#[test]
fn a_flush_is_made_good_and_a_refusal_in_a_batch_is_its_own() {
    in_namespace(|| async {
        let board = Board::new();
        let prefix = |number: u32| {
            IpNet::new(std::net::Ipv4Addr::from(0x1400_0000 + (number << 8)).into(), 24).unwrap()
        };
        let (good, bad) = (learned(&["192.0.2.9"]), learned(&["203.0.113.1"]));
        let group = |number: u32| if number % 100 == 7 { &bad } else { &good };
        board.update_bgp((0..3000).map(|number| (prefix(number), Arc::clone(group(number)))).collect());
        let fib = Running::start(config(), &board).await;
        let expected = Summary { installed: 2970, failed: 30, ..Summary::default() };
        assert_eq!((fib.handle.summary(), ours(254).len()), (expected, 2970));
        let refused = fib.handle.state(&prefix(107));
        assert!(refused.reason().contains("Nexthop has invalid gateway"), "{refused}");
        assert_eq!(fib.handle.state(&prefix(106)), KernelState::Installed);
        ip("route flush proto 73");
        until("all back", || ours(254).len() == 2970).await;
        assert_eq!(fib.handle.summary(), expected);
        fib.stop().await;
        assert_eq!(ours(254), [""; 0]);
    });
}

#[test]
fn a_link_local_router_has_its_interface() {
    in_namespace(|| async {
        let board = Board::new();
        let interface = nix::net::if_::if_nametoindex("wire0").unwrap();
        let next_hop = NextHop::LinkLocal { address: "fe80::9".parse().unwrap(), interface };
        let group: Group = [Candidate { next_hop, neighbor: None, selected: true }].into();
        board.update_bgp(vec![(net("fd30::/48"), Arc::clone(&group)), (net("10.30.0.0/16"), group)]);
        let fib = Running::start(config(), &board).await;
        let expected = [
            "10.30.0.0/16 via inet6 fe80::9 dev wire0 proto 73 metric 1073",
            "fd30::/48 via fe80::9 dev wire0 proto 73 metric 1073 pref medium",
        ];
        assert_eq!(ours(254), expected);
        let monitor = Monitor::start();
        ip("link set lo mtu 65530");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(monitor.seen(), "", "what is read back is what was written");
        fib.stop().await;
    });
}

#[test]
fn others_routes_are_not_touched() {
    in_namespace(|| async {
        ip(&format!("route add 10.20.0.0/16 via 192.0.2.5 metric {METRIC} proto static"));
        ip(&format!("-6 route add fd20::/48 via 2001:db8::5 metric {METRIC} proto static"));
        ip("route add 10.31.0.0/16 via 192.0.2.5");
        ip("route add blackhole 10.50.0.0/16 proto 12");
        let before = routes(254);
        let board = board();
        // The wire's own subnet, as some neighbor claims it.
        board.update_bgp(vec![(net("192.0.2.0/24"), learned(&["10.99.0.2"]))]);
        let fib = Running::start(config(), &board).await;
        for prefix in ["10.20.0.0/16", "fd20::/48"] {
            let state = fib.handle.state(&net(prefix)).to_string();
            assert_eq!(state, format!("failed: a static route to {prefix} has the metric 1073 that is ours"));
        }
        for prefix in ["10.31.0.0/16", "192.0.2.0/24"] {
            assert_eq!(fib.handle.state(&net(prefix)).label(), "shadowed", "{prefix}");
        }
        let others = || routes(254).into_iter().filter(|route| !route.contains(OURS)).collect::<Vec<_>>();
        assert_eq!(others(), before);
        assert!(ip("route get 192.0.2.9").contains("dev wire0"));

        // The place becomes free.
        ip(&format!("route del 10.20.0.0/16 metric {METRIC}"));
        until("taken over", || fib.handle.state(&net("10.20.0.0/16")) == KernelState::Installed).await;
        fib.stop().await;
        assert_eq!(others().len(), before.len() - 1);
        assert_eq!(ours(254), [""; 0]);
    });
}

#[test]
fn a_refusal_is_shown_and_tried_again() {
    in_namespace(|| async {
        let board = Board::new();
        board.update_bgp(vec![(net("10.20.0.0/16"), learned(&["203.0.113.1"]))]);
        let fib = Running::start(config(), &board).await;
        let state = fib.handle.state(&net("10.20.0.0/16"));
        assert_eq!(state.label(), "failed");
        assert!(state.reason().contains("Nexthop has invalid gateway"), "{state}");
        ip("addr add 203.0.113.2/24 dev wire0");
        until("tried again", || fib.handle.state(&net("10.20.0.0/16")) == KernelState::Installed).await;
        fib.stop().await;
    });
}

#[test]
fn a_new_configuration_moves_the_routes() {
    in_namespace(|| async {
        let fib = Running::start(config(), &board()).await;
        let other = Config { table: 7300, ..config() };
        timeout(PATIENCE, fib.handle.apply(other.clone())).await.unwrap().unwrap();
        assert_eq!(ours(254), [""; 0]);
        // No connected subnet in this table: the peer's own address needs a route.
        assert_eq!(ours(7300).len(), 8);

        let off = Config { install: false, ..other };
        timeout(PATIENCE, fib.handle.apply(off)).await.unwrap().unwrap();
        assert_eq!(ours(7300), [""; 0]);
        assert_eq!(fib.handle.state(&net("10.20.0.0/16")).reason(), "fib.install is false");

        timeout(PATIENCE, fib.handle.apply(config())).await.unwrap().unwrap();
        assert_eq!(ours(254), FULL);
        fib.stop().await;
    });
}

#[test]
fn a_speaker_without_tunnels_installs_through_routers() {
    in_namespace(|| async {
        let board = Board::new();
        board.update_bgp(vec![(net("10.31.0.0/16"), learned(&["192.0.2.9"]))]);
        let fib = Running::start(Config { interface: None, ..config() }, &board).await;
        assert_eq!(ours(254), ["10.31.0.0/16 via 192.0.2.9 dev wire0 proto 73 metric 1073"]);
        fib.stop().await;
    });
}

/// What [`start`] says at once.
async fn attempt(config: Config, board: &Board) -> Option<Error> {
    start(config, board.clone(), &Readiness::new(), Service::new(), CancellationToken::new()).await.err()
}

#[test]
fn a_table_belongs_to_one_daemon() {
    in_namespace(|| async {
        let board = board();
        let first = Running::start(config(), &board).await;
        let refused = attempt(config(), &board).await.unwrap();
        assert_eq!(
            format!("{:#}", anyhow::Error::from(refused)),
            "another isthmusd manages the routes of table 254 in this network namespace; \
             set another [fib] table, or install = false"
        );

        // One that installs nothing takes no lock and leaves the other's routes alone, when it comes and when it goes.
        let off = Config { install: false, ..config() };
        let second = Running::start(off.clone(), &Board::new()).await;
        assert_eq!(ours(254), FULL);
        let refused = timeout(PATIENCE, second.handle.apply(config())).await.unwrap().unwrap_err();
        assert!(matches!(refused, Error::Taken(254)), "{refused}");
        second.handle.apply(Config { table: 7300, ..off.clone() }).await.unwrap();
        second.handle.apply(off.clone()).await.unwrap();
        second.stop().await;
        assert_eq!(ours(254), FULL);

        // Another table is free; moving to a taken one changes nothing.
        let other = Running::start(Config { table: 7300, ..config() }, &board).await;
        let before = ours(7300);
        assert!(matches!(other.handle.apply(config()).await, Err(Error::Taken(254))));
        assert_eq!((ours(7300), ours(254).as_slice()), (before, FULL.map(String::from).as_slice()));

        // Who stops installing, moves or leaves lets go.
        first.handle.apply(off).await.unwrap();
        assert_eq!(ours(254), [""; 0]);
        other.handle.apply(config()).await.unwrap();
        assert_eq!((ours(254), ours(7300)), (FULL.map(String::from).to_vec(), vec![]));
        first.handle.apply(Config { table: 7300, ..config() }).await.unwrap();
        first.stop().await;
        other.stop().await;
        Running::start(config(), &board).await.stop().await;
        assert_eq!(ours(254), [""; 0]);
    });
}

#[test]
fn leftovers_go_even_if_nothing_is_to_be_installed() {
    in_namespace(|| async {
        let board = board();
        Running::start(config(), &board).await.kill().await;
        assert_eq!(ours(254), FULL);
        let fib = Running::start(Config { install: false, ..config() }, &board).await;
        assert_eq!(ours(254), [""; 0]);
        // Then the table is free.
        Running::start(config(), &board).await.stop().await;
        fib.stop().await;
    });
}
