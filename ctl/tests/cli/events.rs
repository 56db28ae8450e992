//! `events`: what happened, once and with `--follow`.

use isthmus_proto::events::{EventBatch, EventField, EventLevel, NodeEvent};
use serde_json::{Value, json};

use crate::answers::THEN;
use crate::run;
use crate::server::{Answers, Server};

fn event(sequence: u64, level: EventLevel, message: &str, fields: &[(&str, &str)]) -> NodeEvent {
    let field = |(name, value): &(&str, &str)| EventField { name: (*name).into(), value: (*value).into() };
    NodeEvent {
        sequence,
        at_ms: THEN * 1000 + 50,
        level: level.into(),
        subsystem: "bgp".into(),
        message: message.into(),
        fields: fields.iter().map(field).collect(),
    }
}

fn batch() -> EventBatch {
    let down = [
        ("neighbor", "azure-gw1"),
        ("from", "Established"),
        ("to", "Idle"),
        ("reason", "hold timer expired"),
    ];
    EventBatch {
        lost: 7,
        events: vec![
            event(8, EventLevel::Info, "BGP session", &down),
            event(9, EventLevel::Error, "\u{1b}[31mfake", &[("empty", "")]),
        ],
    }
}

fn server() -> Server {
    Server::start(Answers { events: batch(), ..Answers::default() })
}

#[test]
fn a_person_reads_the_lines_of_the_log_and_that_some_are_gone() {
    let expected = "\
7 events before these, of any subsystem: not kept any more; the system's log may have them
TIME                      LEVEL  SUBSYSTEM  WHAT
2023-11-14T22:13:20.050Z  info   bgp        BGP session neighbor=azure-gw1 from=Established to=Idle reason=\"hold timer expired\"
2023-11-14T22:13:20.050Z  error  bgp        \\u{1b}[31mfake empty=\"\"
";
    assert_eq!(run(&server().socket(), "events").data(), expected);
    let nothing = Server::start(Answers::default());
    assert_eq!(run(&nothing.socket(), "events").data(), "no events\n");
}

#[test]
fn json_is_one_document() {
    let text = run(&server().socket(), "events -o json").data();
    let document: Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!((&document["schema"], &document["lost"]), (&json!("isthmus.v1/events"), &json!(7)));
    let expected = json!({
        "sequence": 8,
        "at": "2023-11-14T22:13:20.05Z",
        "level": "info",
        "subsystem": "bgp",
        "message": "BGP session",
        "fields": [
            { "name": "neighbor", "value": "azure-gw1" },
            { "name": "from", "value": "Established" },
            { "name": "to", "value": "Idle" },
            { "name": "reason", "value": "hold timer expired" },
        ],
    });
    assert_eq!(document["events"][0], expected);
}

#[test]
fn conditions_are_the_daemons_to_judge() {
    let server = server();
    run(&server.socket(), "events").data();
    run(&server.socket(), "events --since 2023-11-14T22:13:20Z --subsystem bgp").data();
    run(&server.socket(), "events --since 0s").data();
    let asked = server.asked();
    assert_eq!(asked[..2], ["0 ", &format!("{} bgp", THEN * 1000)]);
    let now: i64 = asked[2].trim().parse().expect("a number");
    assert!(now > THEN * 1000, "{now}");
    let ran = run(&server.socket(), "events --since yesterday");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
}

/// The canned server ends the stream after one batch, as a daemon does that stops.
#[test]
fn following_is_a_line_for_each_until_the_daemon_ends() {
    let ran = run(&server().socket(), "events --follow -o json");
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    let lines: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("a document")).collect();
    assert!(lines.iter().all(|line| line["schema"] == "isthmus.v1/event"));
    let told: Vec<_> =
        lines.iter().map(|line| (line["lost"].clone(), line["event"]["sequence"].clone())).collect();
    assert_eq!(told, [(json!(7), Value::Null), (json!(0), json!(8)), (json!(0), json!(9))]);
    assert!(ran.stderr.contains("isthmusd has stopped"), "{}", ran.stderr);
    let table = run(&server().socket(), "events --follow").stdout;
    assert!(
        table.contains("2023-11-14T22:13:20.050Z  info     bgp        BGP session neighbor=azure-gw1"),
        "{table}"
    );
    assert!(!table.contains('\u{1b}'), "{table}");
}
