//! What a person reads.

use isthmus_proto::control::GetStatusResponse;

use crate::answers;
use crate::run;
use crate::server::{Answers, Server};

/// Asserts what the healthy gateway prints.
#[track_caller]
fn prints(arguments: &str, expected: &str) {
    let server = Server::start(answers::healthy());
    assert_eq!(run(&server.socket(), arguments).data(), expected, "{arguments}");
}

#[test]
fn peers() {
    prints(
        "peers",
        "\
NAME        STATE  ENDPOINT         HANDSHAKE  RX       TX    DROPS  MTU   ALLOWED IPS      REASON
azure-gw1   up     192.0.2.2:51820  2d3h       1.5 KiB  10 B  7      1420  10.99.0.2/32 +2  handshake completed
onprem-gw1  down   -                -          0 B      0 B   0      -     -                no handshake reply for 12 s from 203.0.113.9:51820
",
    );
}

#[test]
fn tunnel() {
    prints(
        "tunnel",
        "\
Interface   isthmus0
UDP port    51820
Public key  0Xu3BuqgEzUiBBaVIjCvpGBPpfNRcU8NuYWQT1EUTRM=
Workers     2

NAME     STATE  WANTED  WHAT               REASON
tun-tso  on     yes     what tun-tso does  default, or switched on
tun-uso  off    yes     what tun-uso does  this kernel refuses it
udp-gso  off    no      what udp-gso does  switched off

CALL         CALLS  PACKETS  AVERAGE  1       2-8     9-64    MORE
udp_send     1000   12345    12.3     50.0 %  25.0 %  20.0 %  5.0 %
udp_receive  0      0        -        -       -       -       -

DROPPED, OF NO PEER         PACKETS
endpoint_refused (carried)  3
no_route                    17
",
    );
}

#[test]
fn a_tunnel_that_lost_nothing_says_so() {
    let mut answers = answers::healthy();
    answers.tunnel.drops.clear();
    let server = Server::start(answers);
    let page = run(&server.socket(), "tunnel").data();
    assert!(page.ends_with("\n\nno drops but those of peers\n"), "{page}");
}

#[test]
fn offloads() {
    let expected = "\
NAME     STATE  WANTED  WHAT               REASON
udp-gso  off    no      what udp-gso does  switched off
";
    prints("tunnel offload udp-gso off", expected);
    let server = Server::start(answers::healthy());
    let all = run(&server.socket(), "tunnel offload").data();
    assert_eq!(all.lines().count(), 4, "{all}");
    assert!(run(&server.socket(), "tunnel").data().contains(&all));
}

#[test]
fn routes() {
    prints(
        "routes",
        "\
PREFIX        SOURCE  PEER       NEXT HOP   NEIGHBOR   AS PATH     STATE     WHY                 KERNEL
10.20.0.0/16  bgp     azure-gw1  10.99.0.2  azure-gw1  4200000002  selected  the only live path  installed
10.20.0.0/16  bgp     azure-gw2  10.99.0.3  azure-gw2  4200000002  unusable  peer is down        installed
fd00:30::/48  static  -          -          -          -           no path   -                   not wanted: covered by lan0's subnet fd00:30::/48
",
    );
}

#[test]
fn routes_why() {
    prints(
        "routes why 10.20.3.4",
        "\
PREFIX        SOURCE  PEER       NEXT HOP   NEIGHBOR   AS PATH     STATE     WHY                 KERNEL
10.20.0.0/16  bgp     azure-gw1  10.99.0.2  azure-gw1  4200000002  selected  the only live path  installed
10.20.0.0/16  bgp     azure-gw2  10.99.0.3  azure-gw2  4200000002  unusable  peer is down        installed
kernel route installed: preferred source 10.10.0.1

1. 10.20.0.0/16 is the longest prefix that covers 10.20.3.4
2. azure-gw1 carries it: the only live path
",
    );
}

#[test]
fn bgp_neighbors() {
    prints(
        "bgp neighbors",
        "\
local AS 4200000001, router ID 10.99.0.1

NAME        ADDRESS    ASN         STATE        SINCE  RECEIVED  ACCEPTED  SENT  REASON
azure-gw1   10.99.0.2  4200000002  Established  5d7h   12        10        4     KEEPALIVE received
onprem-gw1  10.99.0.9  64512       Active       -      0         0         0     hold timer expired
",
    );
}

#[test]
fn bfd_sessions() {
    let server = Server::start(answers::healthy());
    let ran = run(&server.socket(), "bfd");
    for words in ["tunnel azure-gw1", "Up", "300ms", "900ms", "heard within 900ms"] {
        assert!(ran.stdout.contains(words), "{}", ran.stdout);
    }
    let ran = run(&server.socket(), "bfd 10.99.0.2");
    assert!(ran.stdout.contains("300ms x 3"), "{}", ran.stdout);
    let ran = run(&server.socket(), "bfd gw9");
    assert!(ran.stderr.contains("no BFD session has the name or address gw9"), "{}", ran.stderr);
}

#[test]
fn certs_say_what_expired() {
    let server = Server::start(answers::healthy());
    let table = run(&server.socket(), "certs").data();
    let lines = table.lines().collect::<Vec<_>>();
    let root = lines[1].split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(lines[0].starts_with("KIND       NAME "), "{table}");
    assert_eq!(
        root, "root spiffe://fabric.example in 3000d2h - fabric.example root root.pem",
        "the issuer's common name and the file's name: the rest is for JSON"
    );
    assert!(lines[2].starts_with("node-svid  O=SPIRE "), "{table}");
    assert!(lines[2].contains("  expired ") && lines[2].contains("  in 1d3h  "), "{table}");
}

#[test]
fn status_is_one_view() {
    let server = Server::start(answers::healthy());
    let table = run(&server.socket(), "status").data();
    for line in [
        "Node           gw1",
        "Site           aws-use1",
        "SPIFFE ID      spiffe://fabric.example/site/aws-use1/node/gw1",
        "Ready          yes",
        "SUBSYSTEM  HEALTH  SUMMARY",
        "bgp        ok      2 of 2 sessions Established",
    ] {
        assert!(table.lines().any(|found| found == line), "no {line:?} in:\n{table}");
    }
    assert!(table.contains("/etc/isthmus/isthmusd.toml, generation 3, loaded "), "{table}");
    assert!(table.contains(" (pid 4242)"), "{table}");
}

#[test]
fn a_node_without_a_site_says_so() {
    let status = GetStatusResponse { site: String::new(), ..answers::status() };
    let server = Server::start(Answers { status, ..answers::healthy() });
    let table = run(&server.socket(), "status").data();
    assert!(table.lines().any(|line| line == "Site           none"), "{table}");
}

#[test]
fn tables_of_a_fabric_can_be_read_at_120_columns() {
    let server = Server::start(answers::healthy());
    for arguments in ["peers", "tunnel", "bgp neighbors", "certs"] {
        let table = run(&server.socket(), arguments).data();
        let before_last = |line: &str| line.rfind("  ").map_or(0, |at| at + 2);
        let widest = table.lines().map(before_last).max();
        assert!(widest.is_some_and(|others| others + 20 <= 120), "{arguments}: {widest:?}\n{table}");
    }
}

#[test]
fn an_empty_daemon_says_that_there_is_nothing() {
    let server = Server::start(answers::empty());
    let cases = [
        ("peers", "no tunnel peers\n"),
        ("tunnel", "no tunnel is configured\n"),
        ("tunnel offload", "no tunnel is configured\n"),
        ("routes", "no routes\n"),
        ("routes why 10.0.0.1", "no route to 10.0.0.1\n"),
        ("bfd", "no BFD sessions\n"),
        ("bgp neighbors", "no BGP speaker is configured\n"),
        ("certs", "no certificates\n"),
    ];
    for (arguments, expected) in cases {
        assert_eq!(run(&server.socket(), arguments).data(), expected, "{arguments}");
    }
}

#[test]
fn colour_is_for_terminals_or_on_demand() {
    let server = Server::start(answers::healthy());
    let escapes = |arguments: &str| run(&server.socket(), arguments).data().contains('\u{1b}');
    assert!(!escapes("peers"));
    assert!(!escapes("peers --color never"));
    assert!(escapes("peers --color always"));
    assert!(!escapes("peers --color always -o json"));
}

#[test]
fn no_color_is_honoured() {
    let server = Server::start(answers::healthy());
    let peers = |variable: &str| {
        let mut command = crate::isthmusctl();
        command.env(variable, "1").arg("--socket").arg(server.socket()).arg("peers");
        crate::Run::from(command.output().expect("the binary starts")).data()
    };
    assert!(!peers("NO_COLOR").contains('\u{1b}'));
    assert!(peers("CLICOLOR_FORCE").contains('\u{1b}'));
}
