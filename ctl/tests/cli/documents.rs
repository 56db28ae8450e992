//! What a program reads: stable documents with a schema.

use serde_json::Value;

use crate::answers::{self, THEN};
use crate::run;
use crate::server::{Answers, Server};

const NOUNS: [(&str, &str); 10] = [
    ("status", "isthmus.v1/status"),
    ("peers", "isthmus.v1/peers"),
    ("tunnel", "isthmus.v1/tunnel"),
    ("tunnel offload", "isthmus.v1/offloads"),
    ("tunnel offload udp-gso off", "isthmus.v1/offloads"),
    ("routes", "isthmus.v1/routes"),
    ("routes why 10.20.3.4", "isthmus.v1/route-explanation"),
    ("bgp neighbors", "isthmus.v1/bgp-neighbors"),
    ("bfd", "isthmus.v1/bfd"),
    ("certs", "isthmus.v1/certs"),
];

fn json(server: &Server, arguments: &str) -> Value {
    let text = run(&server.socket(), &format!("{arguments} -o json")).data();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments}: {error}: {text}"))
}

#[test]
fn every_noun_names_its_schema_in_json_and_yaml_and_both_say_the_same() {
    for answers in [answers::healthy(), answers::empty()] {
        let server = Server::start(answers);
        for (noun, schema) in NOUNS {
            let document = json(&server, noun);
            assert_eq!(document["schema"], schema, "{noun}");
            let yaml = run(&server.socket(), &format!("{noun} -o yaml")).data();
            assert_eq!(serde_norway::from_str::<Value>(&yaml).expect("valid YAML"), document, "{noun}");
        }
    }
}

#[test]
fn peers_json_is_golden() {
    let mut answers = answers::healthy();
    answers.peers.peers.truncate(1);
    answers.peers.peers[0].last_handshake_at = Some(THEN);
    let server = Server::start(answers);
    let expected = r#"{
  "schema": "isthmus.v1/peers",
  "peers": [
    {
      "name": "azure-gw1",
      "state": "up",
      "state_reason": "handshake completed",
      "public_key": "iVFBtOaiUrHdbtE4LiWTpy/r9kFPh1+XkdzkqL2eP3Y=",
      "endpoint": "192.0.2.2:51820",
      "allowed_ips": [
        "10.99.0.2/32",
        "fd7a::2/128",
        "10.20.0.0/16"
      ],
      "last_handshake_at": "2023-11-14T22:13:20Z",
      "persistent_keepalive_ms": 25000,
      "has_preshared_key": true,
      "rx_bytes": 1536,
      "tx_bytes": 10,
      "rx_packets": 12,
      "tx_packets": 1,
      "mtu": 1420,
      "drops": {
        "endpoint_refused": 9,
        "no_session": 2,
        "too_big": 5
      }
    }
  ]
}
"#;
    assert_eq!(run(&server.socket(), "peers -o json").data(), expected);
}

#[test]
fn tunnel_json_is_golden() {
    let mut answers = answers::healthy();
    answers.tunnel.offloads.truncate(1);
    answers.tunnel.batches.truncate(1);
    answers.tunnel.batches[0].cumulative.drain(1..10);
    let server = Server::start(answers);
    let expected = r#"{
  "schema": "isthmus.v1/tunnel",
  "interface": "isthmus0",
  "listen_port": 51820,
  "public_key": "0Xu3BuqgEzUiBBaVIjCvpGBPpfNRcU8NuYWQT1EUTRM=",
  "workers": 2,
  "offloads": [
    {
      "name": "tun-tso",
      "description": "what tun-tso does",
      "active": true,
      "wanted": true,
      "state_reason": "default, or switched on"
    }
  ],
  "batches": [
    {
      "call": "udp_send",
      "calls": 1000,
      "packets": 12345,
      "cumulative": [
        {
          "at_most": 1,
          "calls": 500
        },
        {
          "at_most": null,
          "calls": 1000
        }
      ]
    }
  ],
  "drops": {
    "endpoint_refused": 3,
    "no_route": 17
  }
}
"#;
    assert_eq!(run(&server.socket(), "tunnel -o json").data(), expected);
}

#[test]
fn a_turned_switch_is_a_list_of_one() {
    let server = Server::start(answers::healthy());
    let expected = "\
schema: isthmus.v1/offloads
offloads:
- name: udp-gso
  description: what udp-gso does
  active: false
  wanted: false
  state_reason: switched off
";
    assert_eq!(run(&server.socket(), "tunnel offload udp-gso off -o yaml").data(), expected);
    assert_eq!(json(&server, "tunnel offload")["offloads"].as_array().map(Vec::len), Some(3));
}

#[test]
fn status_yaml_is_golden() {
    let server = Server::start(Answers { status: answers::status(), ..Answers::default() });
    let expected = "\
schema: isthmus.v1/status
node: gw1
site: aws-use1
spiffe_id: spiffe://fabric.example/site/aws-use1/node/gw1
version: 0.1.0
pid: 4242
started_at: 2023-11-14T22:13:20Z
ready: true
waiting_for: []
degraded_reasons: []
subsystems:
- name: tunnel
  health: ok
  summary: 2 of 2 peers up
- name: bgp
  health: ok
  summary: 2 of 2 sessions Established
config:
  path: /etc/isthmus/isthmusd.toml
  loaded_at: 2023-11-14T22:13:20Z
  generation: 3
  last_error: ''
";
    assert_eq!(run(&server.socket(), "-o yaml status").data(), expected);
}

#[test]
fn routes_json_has_paths_and_the_kernel_state() {
    let server = Server::start(answers::healthy());
    let route = &json(&server, "routes")["routes"][0];
    assert_eq!(route["kernel"]["state"], "installed");
    assert_eq!(route["candidates"][0]["selected"], true);
    assert_eq!(route["candidates"][1]["reason"], "peer is down");
    assert_eq!(json(&server, "routes")["routes"][1]["kernel"]["state"], "not_wanted");
}

#[test]
fn what_is_not_known_is_null_and_an_empty_list_is_a_list() {
    let server = Server::start(answers::empty());
    assert_eq!(json(&server, "peers")["peers"], Value::Array(Vec::new()));
    assert_eq!(json(&server, "tunnel")["interface"], Value::Null);
    assert_eq!(json(&server, "tunnel")["listen_port"], Value::Null);
    assert_eq!(json(&server, "tunnel offload")["offloads"], Value::Array(Vec::new()));
    assert_eq!(json(&server, "routes why 10.0.0.1")["route"], Value::Null);
    assert_eq!(json(&server, "bgp neighbors")["local_asn"], Value::Null);
    assert_eq!(json(&server, "status")["config"], Value::Null);
    assert_eq!(json(&server, "status")["site"], Value::Null);
    assert_eq!(json(&server, "status")["started_at"], Value::Null);
}

#[test]
fn a_daemon_that_does_not_tell_the_mtu_of_a_peer_leaves_it_open() {
    let server = Server::start(answers::healthy());
    assert_eq!(json(&server, "peers")["peers"][1]["mtu"], Value::Null);
}

#[test]
fn durations_are_numbers_with_their_unit_in_the_name() {
    let server = Server::start(answers::healthy());
    let neighbor = &json(&server, "bgp neighbors azure-gw1")["neighbors"][0];
    assert_eq!((&neighbor["hold_time_ms"], &neighbor["keepalive_ms"]), (&9_000.into(), &3_000.into()));
    assert_eq!(json(&server, "bgp neighbors azure-gw1")["neighbors"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_newer_daemon_may_use_words_that_are_not_known_here() {
    let mut answers = answers::healthy();
    answers.status.subsystems[0].health = 77;
    answers.routes.routes[0].kernel.as_mut().expect("set").state = 77;
    let server = Server::start(answers);
    assert_eq!(json(&server, "status")["subsystems"][0]["health"], "unknown");
    assert_eq!(json(&server, "routes")["routes"][0]["kernel"]["state"], "unknown");
}

#[test]
fn certs_json_has_what_the_table_shortens() {
    let server = Server::start(answers::healthy());
    let root = json(&server, "certs")["certificates"][0].clone();
    assert_eq!(
        [&root["serial"], &root["issuer"], &root["path"]],
        ["01", "CN=fabric.example root", "/etc/isthmus/root.pem"]
    );
}
