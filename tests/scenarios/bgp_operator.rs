//! What an operator sees of two speakers on one link, and what the orders do: `isthmusctl` against real daemons.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "bgp_operator/mrt.rs"]
mod mrt;

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, ensure};
use isthmus_lab::{bins::Bins, link::veth, netns::Netns, node::Node, sandbox};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(40);

struct Pair {
    near: Node,
    far: Node,
    _dir: tempfile::TempDir,
}

fn node(name: &str, number: u8, netns: &Netns, parent: &Path, bins: &Bins) -> Node {
    netns.add_address("eth0", format!("192.0.2.{number}/24").parse().unwrap()).unwrap();
    Node::new(name, netns, parent, bins).unwrap()
}

fn config(node: &Node, number: u8, other: (&str, u8), announce: &[&str]) -> String {
    let (other, other_number) = other;
    format!(
        r#"[node]
name = "{name}"
state_dir = {state_dir:?}
[api]
socket = {socket:?}
[bgp]
asn = 420000000{number}
router_id = "192.0.2.{number}"
hold_time = "9s"
announce = {announce:?}
[[bgp.neighbor]]
name = "{other}"
address = "192.0.2.{other_number}"
asn = 420000000{other_number}
import = "all"
export = "all"
[fib]
"#,
        name = node.name(),
        state_dir = node.state_dir(),
        socket = node.socket(),
    )
}

/// Runs `body` in a sandbox with two speakers that have an established session and each other's routes.
fn run(test: &str, body: impl FnOnce(Pair)) {
    sandbox::run_with_bins(test, |bins| {
        let [near, far] = ["near", "far"].map(|name| Netns::create(name).unwrap());
        veth((&near, "eth0"), (&far, "eth0")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut near = node("near", 1, &near, dir.path(), bins);
        let mut far = node("far", 2, &far, dir.path(), bins);
        near.start(&config(&near, 1, ("far", 2), &["10.10.0.0/16"])).unwrap();
        far.start(&config(&far, 2, ("near", 1), &["10.20.0.0/16", "10.20.1.0/24"])).unwrap();
        let mut pair = Pair { near, far, _dir: dir };
        pair.wait_routes();
        body(pair);
    });
}

fn ask(node: &Node, arguments: &[&str]) -> Result<Value> {
    let text = node.ctl_ok(&[arguments, &["-o", "json"]].concat())?;
    serde_json::from_str(&text).with_context(|| text.clone())
}

fn prefixes(table: &Value) -> Vec<&str> {
    table["entries"].as_array().unwrap().iter().map(|entry| entry["prefix"].as_str().unwrap()).collect()
}

/// Waits for an event of BGP whose text has all these parts.
fn wait_event(node: &mut Node, parts: &[&str]) -> String {
    let happened = |node: &Node| {
        let table = node.ctl_ok(&["events", "--subsystem", "bgp"])?;
        let line = table.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        line.map(str::to_owned).with_context(|| format!("no {parts:?} in\n{table}"))
    };
    node.wait_until("an event", LIMIT, happened).unwrap()
}

impl Pair {
    fn wait_routes(&mut self) {
        for (node, count) in [(&mut self.near, 3), (&mut self.far, 3)] {
            let there = |node: &Node| {
                let best = ask(node, &["bgp", "rib", "best"])?;
                ensure!(prefixes(&best).len() == count, "{best:#}");
                Ok(())
            };
            node.wait_until("the routes", LIMIT, there).unwrap();
        }
    }
}

#[test]
fn tables_show_what_was_sent_told_and_used() {
    run("tables_show_what_was_sent_told_and_used", |pair| {
        let of = |arguments: &str| {
            let arguments: Vec<_> = ["bgp", "rib"].into_iter().chain(arguments.split(' ')).collect();
            ask(&pair.near, &arguments).unwrap()
        };
        assert_eq!(prefixes(&of("in")), ["10.20.0.0/16", "10.20.1.0/24"]);
        assert_eq!(prefixes(&of("in --neighbor 192.0.2.2")).len(), 2);
        assert_eq!(prefixes(&of("best 10.20.0.0/16")), ["10.20.0.0/16"]);
        assert_eq!(prefixes(&of("best 10.20.0.0/16 --longer")), ["10.20.0.0/16", "10.20.1.0/24"]);
        let told = of("out 10.10.0.0/16");
        let path = &told["entries"][0]["paths"][0];
        assert_eq!((&path["neighbor"], &path["state"]), (&json!("far"), &json!("advertised")));
        assert_eq!(path["attributes"]["as_path"], json!([4_200_000_001_u32]));
        assert_eq!(path["attributes"]["next_hop"], "192.0.2.1");
    });
}

#[test]
fn a_dump_is_read_by_others() {
    run("a_dump_is_read_by_others", |pair| {
        let file = pair.near.dir().join("rib.mrt");
        pair.near.ctl_ok(&["bgp", "dump", file.to_str().unwrap()]).unwrap();
        let dump = mrt::read(&fs::read(&file).unwrap());
        let far = ([192, 0, 2, 2].into(), [192, 0, 2, 2].into(), 4_200_000_002);
        assert_eq!((dump.collector, &dump.peers[..]), (Some([192, 0, 2, 1].into()), &[far][..]));
        let prefixes: Vec<_> = dump.paths.iter().map(|(prefix, peer, ..)| (prefix.as_str(), *peer)).collect();
        assert_eq!(prefixes, [("10.20.0.0/16", 0), ("10.20.1.0/24", 0)], "own routes are not in it");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        for (_, _, heard, attributes) in dump.paths {
            assert!(u64::from(heard).abs_diff(now) < 60, "{heard} against {now}");
            // ORIGIN, AS_PATH of one, NEXT_HOP: with four-octet AS numbers.
            assert_eq!(attributes, 4 + 9 + 7);
        }
    });
}

#[test]
fn a_session_says_how_it_is() {
    run("a_session_says_how_it_is", |pair| {
        let session = ask(&pair.near, &["bgp", "neighbors", "far"]).unwrap();
        assert_eq!((&session["state"], &session["established_count"]), (&json!("Established"), &json!(1)));
        let hold = &session["timers"][0];
        assert_eq!((&hold["configured_ms"], &hold["agreed_ms"]), (&json!(9000), &json!(9000)));
        assert!(hold["remaining_ms"].as_u64().is_some_and(|left| left <= 9000), "{hold}");
        let asn = json!({ "name": "4-octet AS number 4200000002", "sent": false, "received": true });
        assert!(session["capabilities"].as_array().unwrap().contains(&asn), "{session:#}");
        let four = &session["families"][0];
        assert_eq!((&four["received"], &four["end_of_rib"]), (&json!(2), &json!(true)));
    });
}

#[test]
fn an_order_restarts_a_session_and_both_ends_say_why() {
    run("an_order_restarts_a_session_and_both_ends_say_why", |mut pair| {
        assert!(pair.near.ctl_ok(&["bgp", "clear", "far", "--soft", "both"]).unwrap().contains("far"));
        let session = ask(&pair.near, &["bgp", "neighbors", "far"]).unwrap();
        assert_eq!(session["established_count"], 1, "a soft reset ended the session");

        pair.near.ctl_ok(&["bgp", "clear", "all"]).unwrap();
        let again = |node: &Node| {
            let session = ask(node, &["bgp", "neighbors", "far"])?;
            ensure!(session["state"] == "Established" && session["established_count"] == 2, "{session:#}");
            Ok(())
        };
        pair.near.wait_until("a new session", LIMIT, again).unwrap();
        wait_event(&mut pair.near, &["NOTIFICATION neighbor=far sent=true", "Administrative Reset"]);
        wait_event(&mut pair.far, &["BGP session", "neighbor=near", "Administrative Reset"]);
        pair.wait_routes();
        let refused = pair.near.ctl(&["bgp", "clear", "nobody"]).unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("the neighbors are: far"));
    });
}

#[test]
fn a_lost_neighbor_is_an_event_with_its_reason() {
    run("a_lost_neighbor_is_an_event_with_its_reason", |mut pair| {
        pair.far.stop().unwrap();
        let line = wait_event(&mut pair.near, &["BGP session", "from=Established", "isthmusd is stopping"]);
        assert!(line.contains("info"), "{line}");
        let recent = ask(&pair.near, &["events", "--since", "1h", "--subsystem", "bgp"]).unwrap();
        assert_eq!(recent["lost"], 0);
        let other = ask(&pair.near, &["events", "--subsystem", "tunnel"]).unwrap();
        assert_eq!(other["events"], json!([]));
    });
}
