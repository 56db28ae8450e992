//! Answers that mean harm: text that would drive a terminal, numbers out of range, lists without end.

use isthmus_proto::control::*;

use crate::answers;
use crate::run;
use crate::server::{Answers, Server};

const EVIL: &str = "gw\u{1b}]0;owned\u{7}\u{1b}[2J\r\n\u{9b}31m\u{202e}x\u{7f}";

fn evil() -> Answers {
    let mut answers = answers::healthy();
    let text = || EVIL.to_owned();
    answers.status.node = text();
    answers.status.subsystems[0].summary = text();
    answers.peers.peers[0].name = text();
    answers.peers.peers[0].drops.insert(text(), 1);
    answers.tunnel.offloads[0].state_reason = text();
    answers.tunnel.batches[0].call = text();
    answers.tunnel.drops.insert(text(), 1);
    answers.offload.offload.as_mut().expect("set").name = text();
    answers.routes.routes[0].candidates[0].reason = text();
    answers.why.steps[0] = text();
    answers.neighbors.router_id = text();
    answers.neighbors.neighbors[0].state = text();
    answers.bfd.sessions[0].state_reason = text();
    answers.certificates.certificates[0].subject = text();
    answers.certificates.certificates[0].spiffe_id = text();
    answers
}

#[test]
fn no_control_character_reaches_the_terminal() {
    let server = Server::start(evil());
    let tunnel = ["tunnel", "tunnel offload", "tunnel offload udp-gso on"];
    let nouns = ["status", "peers", "routes", "routes why ::1", "bgp neighbors", "bfd", "certs"];
    for noun in nouns.into_iter().chain(tunnel) {
        for format in ["table", "json", "yaml"] {
            let text = run(&server.socket(), &format!("{noun} -o {format}")).data();
            let control = text.chars().find(|found| found.is_control() && *found != '\n');
            assert_eq!(control, None, "{noun} -o {format}: {text:?}");
            assert!(text.contains("owned"), "{noun} -o {format} lost the text: {text}");
        }
    }
}

#[test]
fn json_keeps_what_the_table_escapes() {
    let server = Server::start(evil());
    let json = run(&server.socket(), "status -o json").data();
    let document = serde_json::from_str::<serde_json::Value>(&json).expect("valid JSON");
    assert_eq!(document["node"], EVIL);
}

#[test]
fn an_error_of_the_daemon_is_cleaned_too() {
    let refusal = Some(tonic::Status::internal(EVIL));
    let server = Server::start(Answers { refusal, ..Answers::default() });
    let ran = run(&server.socket(), "peers");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("\\u{1b}]0;owned\\u{7}"), "{}", ran.stderr);
    assert!(!ran.stderr.trim_end().contains('\u{1b}'), "{:?}", ran.stderr);
}

#[test]
fn times_and_counters_at_their_limits() {
    for limit in [i64::MIN, i64::MAX, -1] {
        let mut answers = answers::healthy();
        answers.status.started_at = limit;
        answers.peers.peers[0].last_handshake_at = Some(limit);
        answers.peers.peers[0].rx_bytes = u64::MAX;
        answers.peers.peers[0].drops = [("a".to_owned(), u64::MAX), ("b".to_owned(), u64::MAX)].into();
        answers.tunnel.listen_port = u32::MAX;
        answers.tunnel.batches[0].packets = u64::MAX;
        // Counts that fall where they should rise, and a whole that is less than its parts.
        answers.tunnel.batches[0].cumulative[0].calls = u64::MAX;
        answers.tunnel.batches[0].cumulative.push(Default::default());
        answers.tunnel.batches[1].cumulative.clear();
        answers.neighbors.neighbors[0].state_since = limit;
        answers.neighbors.neighbors[0].hold_time_ms = u64::MAX;
        answers.certificates.certificates[0].not_after = limit;
        answers.certificates.certificates[0].renew_at = Some(limit);
        let server = Server::start(answers);
        for noun in ["status", "peers", "tunnel", "bgp neighbors", "bgp neighbors azure-gw1", "certs"] {
            for format in ["table", "json", "yaml"] {
                assert!(!run(&server.socket(), &format!("{noun} -o {format}")).data().is_empty());
            }
        }
    }
}

#[test]
fn more_routes_than_an_ordinary_message_holds_come_out_whole() {
    const COUNT: u32 = 40_000;
    let template = answers::healthy().routes.routes.remove(0);
    let routes = (0..COUNT).map(|index| {
        let [_, b, c, d] = index.to_be_bytes();
        Route { prefix: format!("10.{b}.{c}.{d}/32"), ..template.clone() }
    });
    let answers = Answers { routes: ListRoutesResponse { routes: routes.collect() }, ..Answers::default() };
    let server = Server::start(answers);
    let table = run(&server.socket(), "routes").data();
    assert_eq!(table.lines().count(), 1 + 2 * 40_000);
    let json = run(&server.socket(), "routes -o json").data();
    let document = serde_json::from_str::<serde_json::Value>(&json).expect("valid JSON");
    assert_eq!(document["routes"].as_array().map(Vec::len), Some(40_000));
}
