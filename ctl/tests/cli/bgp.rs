//! `bgp neighbors NAME`, `bgp rib` and `bgp clear`.

use isthmus_proto::bgp::*;
use serde_json::{Value, json};
use tonic::Status;

use crate::answers;
use crate::run;
use crate::server::{Answers, Server};

/// An established session.
pub(crate) fn detail() -> BgpNeighborDetail {
    let timer = |name: &str, configured_ms, agreed_ms, remaining_ms| BgpTimer {
        name: name.to_owned(),
        configured_ms,
        agreed_ms,
        remaining_ms,
    };
    let capability = |name: &str, sent, received| BgpCapability { name: name.to_owned(), sent, received };
    BgpNeighborDetail {
        name: "azure-gw1".into(),
        address: "10.99.0.2".into(),
        remote_asn: 4_200_000_002,
        local_asn: 4_200_000_001,
        state: "Established".into(),
        state_reason: "routes flow".into(),
        state_since_ms: answers::from_now(-86_400) * 1000,
        local_address: "10.99.0.1".into(),
        remote_router_id: "10.99.0.2".into(),
        established_count: 2,
        timers: vec![
            timer("hold timer", Some(30_000), Some(9_000), Some(7_500)),
            timer("keepalive", None, Some(3_000), Some(1_200)),
        ],
        capabilities: vec![
            capability("multiprotocol ipv4-unicast", true, true),
            capability("route refresh", false, true),
        ],
        families: vec![BgpFamily {
            family: "ipv4-unicast".into(),
            agreed: true,
            end_of_rib: true,
            received: 12,
            limit: 1000,
            accepted: 11,
            best: 10,
            stale: 2,
            sent: 3,
            several_in: true,
            several_out: false,
            stale_remaining_ms: Some(5_000),
        }],
        prefixes_received: 12,
        prefixes_accepted: 11,
        prefixes_filtered: 1,
        prefixes_best: 10,
        prefixes_stale: 0,
        prefixes_sent: 3,
        messages_received: 77,
        messages_sent: 70,
        last_error: "peer sent Cease".into(),
        error: Some(BgpLastError {
            at_ms: answers::from_now(-7_200) * 1000,
            text: "peer sent Cease".into(),
            fault: "an operator".into(),
            notification: Some(BgpNotification {
                sent: false,
                code: 6,
                subcode: 4,
                name: "Cease/Administrative Reset".into(),
                data: b"\x02hi".to_vec(),
                decoded: "\"hi\"".into(),
            }),
        }),
        import_policy: "all".into(),
        export_policy: "none".into(),
        messages: vec![
            BgpMessages { r#type: "OPEN".into(), received: 2, sent: 3 },
            BgpMessages { r#type: "UPDATE".into(), received: 75, sent: 67 },
        ],
        restart: Some(BgpRestart {
            agreed: true,
            time_ms: 120_000,
            families: vec!["ipv4-unicast".into()],
            forwarding: vec![],
            notification: true,
            restarting: true,
            waiting: false,
        }),
        role: "customer".into(),
        warnings: vec!["this router never offers less than 60 s".into()],
        dynamic: true,
        held_back: "ipv4-unicast".into(),
        bfd: Some(BgpBfd {
            name: "azure-gw1".into(),
            state: "Up".into(),
            reason: "heard within 900ms".into(),
            detection_time_us: Some(900_000),
        }),
        flaps: 1,
        update_faults: 4,
    }
}

fn path(neighbor: &str, state: RibPathState, reason: &str) -> RibPath {
    let attributes = RouteAttributes {
        origin: "igp".into(),
        as_path: vec![4_200_000_002, 65_000],
        next_hop: "10.99.0.2".into(),
        med: Some(10),
        communities: vec!["65001:20".into(), "no-export".into()],
        large_communities: vec!["65001:1:2".into()],
        unknown: vec![UnknownAttribute { code: 99, flags: 0xe0, value: vec![1, 0xab] }],
        ..RouteAttributes::default()
    };
    RibPath {
        neighbor: neighbor.into(),
        state: state.into(),
        reason: reason.into(),
        decided_by: None,
        policy: String::new(),
        stale: false,
        path_id: 0,
        attributes: Some(attributes),
    }
}

/// Two parts: a prefix with a path that lost, and one that is used.
pub(crate) fn pages() -> Vec<RibPage> {
    let step = DecidingStep { name: "BGP identifier".into(), own: "9.9.9.9".into(), best: "1.1.1.1".into() };
    let lost =
        RibPath { decided_by: Some(step), ..path("onprem", RibPathState::Lost, "higher BGP identifier") };
    let first = vec![path("azure-gw1", RibPathState::Best, "best path"), lost];
    let here = RibPath {
        attributes: Some(RouteAttributes {
            next_hop: "0.0.0.0".into(),
            origin: "igp".into(),
            ..Default::default()
        }),
        ..path("", RibPathState::Best, "best path")
    };
    let entry = |prefix: &str, paths| RibEntry { prefix: prefix.into(), paths };
    vec![
        RibPage { entries: vec![entry("10.20.0.0/16", first)] },
        RibPage { entries: vec![entry("fd00:20::/32", vec![here])] },
    ]
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("valid JSON")
}

#[test]
fn a_session_in_detail() {
    let server = Server::start(answers::healthy());
    let expected = "\
Name               azure-gw1
Address            10.99.0.2
Local address      10.99.0.1
Local AS           4200000001
Remote AS          4200000002
Remote router ID   10.99.0.2
State              Established
Reason             routes flow
Since              1d
Times established  2, ended 1
Last error         peer sent Cease; 2h30m ago; up to an operator
NOTIFICATION       received Cease/Administrative Reset (6/4), data 026869: \"hi\"
Import policy      all
Export policy      none
Role               customer
Graceful restart   its routes are kept for 2m: ipv4-unicast; through a NOTIFICATION, too; it has restarted
BFD                Up: heard within 900ms (isthmusctl bfd azure-gw1)
Prefixes           12 received, 1 filtered, 11 accepted, 10 best, 0 stale, 3 sent
Faulty UPDATEs     4

made from a template when it connected
held back: it is sent no more ipv4-unicast prefixes
warning: this router never offers less than 60 s

TIMER       CONFIGURED  AGREED  REMAINING
hold timer  30s         9s      7500ms
keepalive   -           3s      1200ms

FAMILY        AGREED  COMPLETE  RECEIVED  LIMIT  ACCEPTED  BEST  STALE  SENT  ADD-PATH
ipv4-unicast  yes     yes       12        1000   11        10    2      3     received

MESSAGES  RECEIVED  SENT
OPEN      2         3
UPDATE    75        67

SENT  RECEIVED  CAPABILITY
yes   yes       multiprotocol ipv4-unicast
no    yes       route refresh
";
    assert_eq!(run(&server.socket(), "bgp neighbors azure-gw1").data(), expected);
    let document = json_of(&run(&server.socket(), "bgp neighbors azure-gw1 -o json").data());
    assert_eq!(document["schema"], "isthmus.v1/bgp-neighbor");
    let timer =
        json!({ "name": "keepalive", "configured_ms": null, "agreed_ms": 3000, "remaining_ms": 1200 });
    assert_eq!(document["timers"][1], timer);
    assert_eq!(document["families"][0]["stale_remaining_ms"], 5_000);
    assert_eq!(document["graceful_restart"]["time_ms"], 120_000);
    assert_eq!(document["bfd"]["detection_time_us"], 900_000);
    assert_eq!(server.asked(), ["azure-gw1", "azure-gw1"]);
}

#[test]
fn a_table_comes_in_parts_and_is_printed_whole() {
    let server = Server::start(answers::healthy());
    let expected = "\
PREFIX        NEXT HOP   NEIGHBOR   STATE  PREF  MED  AS PATH           ORIGIN  COMMUNITIES                   WHY
10.20.0.0/16  10.99.0.2  azure-gw1  best   -     10   4200000002 65000  igp     65001:20 no-export 65001:1:2  best path
10.20.0.0/16  10.99.0.2  onprem     lost   -     10   4200000002 65000  igp     65001:20 no-export 65001:1:2  higher BGP identifier: 9.9.9.9 against 1.1.1.1
fd00:20::/32  0.0.0.0    here       best   -     -    -                 igp     -                             best path
";
    assert_eq!(run(&server.socket(), "bgp rib best").data(), expected);
    run(&server.socket(), "bgp rib in 10.20.3.4/16 --longer --neighbor azure-gw1").data();
    run(&server.socket(), "bgp rib out fd00::1").data();
    let asked = ["Best  false ", "In 10.20.0.0/16 true azure-gw1", "Out fd00::1/128 false "];
    assert_eq!(server.asked(), asked);
    assert_eq!(run(&server.socket(), "bgp rib in --longer").code, Some(2));
}

#[test]
fn json_has_every_attribute() {
    let server = Server::start(answers::healthy());
    let document = json_of(&run(&server.socket(), "bgp rib best -o json").data());
    assert_eq!((&document["schema"], &document["table"]), (&json!("isthmus.v1/bgp-rib"), &json!("best")));
    let expected = json!({
        "neighbor": "azure-gw1",
        "state": "best",
        "reason": "best path",
        "decided_by": null,
        "policy": null,
        "stale": false,
        "path_id": 0,
        "attributes": {
            "origin": "igp",
            "as_path": [4_200_000_002_u32, 65_000],
            "next_hop": "10.99.0.2",
            "med": 10,
            "local_pref": null,
            "communities": ["65001:20", "no-export"],
            "large_communities": ["65001:1:2"],
            "only_to_customer": null,
            "originator_id": null,
            "cluster_list": [],
            "atomic_aggregate": false,
            "aggregator": null,
            "unknown": [{ "code": 99, "flags": 224, "value": "01ab" }],
        },
    });
    assert_eq!(document["entries"][0]["paths"][0], expected);
}

#[test]
fn an_order_names_whom_it_was_carried_out_for() {
    let cleared = ClearBgpResponse { neighbors: vec!["azure-gw1".into(), "onprem".into()] };
    let server = Server::start(Answers { cleared, ..answers::healthy() });
    let ran = run(&server.socket(), "bgp clear all").data();
    assert_eq!(ran, "azure-gw1, onprem: session ended, and starts again\n");
    for (arguments, asked) in [
        ("bgp clear azure-gw1", "Hard azure-gw1"),
        ("bgp clear azure-gw1 --soft in", "SoftIn azure-gw1"),
        ("bgp clear all --soft out", "SoftOut "),
        ("bgp clear all --soft both", "SoftBoth "),
    ] {
        run(&server.socket(), arguments).data();
        assert_eq!(server.asked().last().map(String::as_str), Some(asked));
    }
    for refused in ["bgp clear", "bgp clear all --soft sideways", "bgp clear all --watch"] {
        assert_eq!(run(&server.socket(), refused).code, Some(2), "{refused}");
    }
}

fn parts() -> Vec<MrtPart> {
    let part = |data: &[u8], left| MrtPart { data: data.to_vec(), left };
    vec![part(b"index", 2), part(b"\x00\xff", 1), part(b"last", 0)]
}

#[test]
fn a_dump_is_written_whole_and_replaces_nothing_unasked() {
    let server = Server::start(Answers { mrt: parts(), ..Answers::default() });
    let file = server.directory().join("rib.mrt");
    let dump = |more: &str| run(&server.socket(), &format!("bgp dump {}{more}", file.display()));
    let ran = dump("");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 prefixes, 11 B written"), "{}", ran.stderr);
    assert_eq!(std::fs::read(&file).expect("a file"), b"index\x00\xfflast");
    std::fs::write(&file, "old").expect("written");
    let ran = dump("");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("is there already") && ran.stderr.contains("--force"), "{}", ran.stderr);
    assert_eq!(std::fs::read(&file).expect("a file"), b"old");
    assert_eq!(dump(" --force").code, Some(0));
    assert_eq!(std::fs::read(&file).expect("a file"), b"index\x00\xfflast");
    assert_eq!(server.asked(), ["dump", "dump"], "what cannot be written is not asked for");
}

#[test]
fn a_dump_that_breaks_off_leaves_no_file() {
    let broken_off = Some(Status::unavailable("BGP is stopped"));
    let server = Server::start(Answers { mrt: parts(), broken_off, ..Answers::default() });
    let file = server.directory().join("rib.mrt");
    let ran = run(&server.socket(), &format!("bgp dump {}", file.display()));
    assert_eq!(ran.code, Some(4));
    assert!(ran.stderr.contains("BGP is stopped"), "{}", ran.stderr);
    let left = std::fs::read_dir(server.directory()).expect("there");
    let left = left.map(|entry| entry.expect("readable").file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["isthmusd.sock"]);
}

#[test]
fn an_unknown_neighbor_fails_and_names_the_known_ones() {
    let words = "no BGP neighbor has the name or address gw9; the neighbors are: azure-gw1, onprem-gw1";
    let server = Server::start(Answers { refusal: Some(Status::not_found(words)), ..Answers::default() });
    for arguments in ["bgp neighbors gw9", "bgp clear gw9", "bgp rib in --neighbor gw9"] {
        let ran = run(&server.socket(), arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{arguments}");
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}

#[test]
fn why_shows_what_bgp_knows_and_what_would_take_over_and_where_parts_disagree() {
    let mut answers = answers::healthy();
    answers.explained.entries = pages().remove(0).entries;
    answers.why.less_specific = vec![answers.routes.routes[1].clone()];
    answers.why.contradictions = vec!["the kernel refuses it".into(), "its peer is down".into()];
    let server = Server::start(answers);
    let ran = run(&server.socket(), "routes why 10.20.3.4");
    assert_eq!(ran.code, Some(5));
    assert_eq!(ran.stderr, "isthmusctl: degraded: the kernel refuses it; its peer is down\n");
    let (bgp, less) = (
        ran.stdout.find("\n\nWhat BGP knows:\nPREFIX "),
        ran.stdout.find("\n\nWhat would take over:\nPREFIX "),
    );
    assert!(bgp.is_some() && bgp < less, "{}", ran.stdout);
    assert!(ran.stdout.contains("higher BGP identifier: 9.9.9.9 against 1.1.1.1"), "{}", ran.stdout);
    let document = json_of(&run(&server.socket(), "routes why 10.20.3.4 -o json").stdout);
    assert_eq!(document["contradictions"], json!(["the kernel refuses it", "its peer is down"]));
    assert_eq!(document["bgp"][0]["paths"][1]["decided_by"]["best"], "1.1.1.1");
}
