//! BFD with BIRD at the far end of a tunnel: it speaks through its kernel, we through the engine.

use anyhow::{Context, Result, ensure};
use isthmus_lab::node::Node;
use serde_json::Value;

use super::{
    rig::{Rig, Session, Transport},
    run,
};

const BIRD: [&str; 2] = [
    "protocol bfd { interface \"*\" { interval 100 ms; multiplier 4; }; neighbor 10.99.0.1 local 10.99.0.2; }",
    "protocol bfd { interface \"*\" { interval 100 ms; multiplier 4; }; neighbor fd7a::1 local fd7a::2; }",
];

fn watched(transport: Transport) -> Session {
    let protocols = BIRD[transport as usize];
    Session { neighbor: "bfd = { interval = \"200ms\" }", protocols, ..Session::over(transport) }
}

fn session(node: &Node) -> Result<Value> {
    let document: Value = serde_json::from_str(&node.ctl_ok(&["-o", "json", "bfd"])?)?;
    document["sessions"].get(0).cloned().context("no session")
}

fn comes_up_and_fails(mut rig: Rig) {
    rig.wait_established();
    rig.until("BFD with the agreed times", |node, bird| {
        let (session, said) = (session(node)?, bird.ask("show bfd sessions")?);
        ensure!(session["state"] == "Up" && said.contains("Up"), "{session:#}\n{said}");
        // The slower interval, and the other one's multiplier.
        ensure!(session["detection_time_us"] == 800_000, "{session:#}");
        Ok(())
    });
    rig.bird.freeze();
    rig.until("Cease/BFD Down", |node, _| {
        let sent = node.log_text().contains("neighbor=theirs sent=true notification=Cease/BFD Down");
        ensure!(sent, "not sent");
        Ok(())
    });
    let down = session(&rig.ours).unwrap();
    assert_eq!((&down["state"], &down["failures"]), (&"Down".into(), &1.into()), "{down:#}");
    let peer = rig.ours.peers().unwrap().remove(0);
    assert!(peer.state_reason.starts_with("held down: BFD: "), "{peer:?}");
}

#[test]
fn bird_watches_the_path_over_ipv4() {
    run("bfd::bird_watches_the_path_over_ipv4", watched(Transport::V4), comes_up_and_fails);
}

#[test]
fn bird_watches_the_path_over_ipv6() {
    run("bfd::bird_watches_the_path_over_ipv6", watched(Transport::V6), comes_up_and_fails);
}
