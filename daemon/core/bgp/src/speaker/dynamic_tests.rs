//! Peers that come by a template.

use std::time::Duration;

use super::{net::*, played::*, *};
use crate::{Policy, dynamic::Template, fsm::AsnSet};

fn template(name: &str, limit: usize) -> DynamicPeers {
    let template = Template {
        name: name.into(),
        prefix: "10.99.0.0/24".parse().unwrap(),
        asns: AsnSet::new([65_100..=65_199]),
        limit,
        linger: Duration::from_secs(100),
    };
    DynamicPeers { template, peer: PeerConfig { restart: RestartMode::Full, ..peer(0, 0) } }
}

fn stage() -> Stage {
    Stage::new(Config { dynamic: vec![template("pods", 2)], ..playing(&[]) })
}

fn ids(stage: &Stage) -> Vec<PeerId> {
    stage.speaker.ids()
}

const FIVE: &str = "pods-10.99.0.6";

#[test]
fn whoever_comes_from_the_prefix_is_a_peer() {
    let mut stage = stage();
    stage.connect(5, &[]).unwrap();
    let status = stage.status(FIVE);
    assert_eq!((status.state, status.dynamic, status.asn), (State::Established, true, asn(5)));
    stage.announce(5, TWO, &[]);
    assert_eq!(stage.through(TWO), [FIVE]);
    stage.connect(6, &[]).unwrap();
    assert_eq!(stage.connect(7, &[]).err(), Some(Refused::Full("pods".into())));
    let elsewhere = stage.speaker.handle_accepted("10.98.0.1".parse().unwrap(), None, own(0), stage.now);
    assert_eq!(elsewhere.err(), Some(Refused::Unknown));
    assert!(!stage.events().iter().any(|event| matches!(event, Event::Dial { .. })));
}

#[test]
fn another_as_number_is_refused_and_its_place_comes_free() {
    let mut stage = stage();
    stage.apply(|config| config.dynamic[0].template.limit = 1);
    stage.connect(200, &[]).unwrap();
    assert_eq!(stage.status("pods-10.99.0.201").state, State::Idle, "65300 is not one of the template's");
    assert!(matches!(stage.connect(5, &[]).err(), Some(Refused::Full(_))));
    stage.pass(60);
    assert!(stage.speaker.status().is_empty());
    stage.connect(5, &[]).unwrap();
}

#[test]
fn who_comes_back_is_the_same_and_finds_its_routes() {
    let mut stage = stage();
    stage.connect(5, &[steady()]).unwrap();
    stage.announce(5, TWO, &[]);
    let before = ids(&stage);
    stage.close(5);
    assert_eq!(stage.kept(FIVE), (1, 1));
    assert!(stage.speaker.synchronized(), "who is away is not missed");
    stage.pass(30);
    stage.connect(5, &[graceful(true, crate::Families::ALL, true)]).unwrap();
    assert_eq!((ids(&stage), stage.kept(FIVE)), (before, (1, 1)));
    stage.end_of_rib(5, V4);
    assert_eq!(stage.kept(FIVE), (0, 0));
    stage.close(5);
    stage.pass(99);
    assert_eq!(ids(&stage).len(), 1);
    stage.pass(1);
    assert!(
        ids(&stage).is_empty()
            && stage.speaker.poll_timeout().is_none_or(|(_, what)| what != "dynamic peers")
    );
}

#[test]
fn other_templates_let_go_whom_they_do_not_cover() {
    let mut stage = stage();
    stage.connect(5, &[]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.events();
    let said = stage.apply(|config| config.dynamic[0].template.name = "nodes".into());
    assert_eq!(said, ["dynamic neighbors changed"]);
    let words = stage.last_words();
    assert!(matches!(&words[..], [Some(n)] if n.subcode == 3), "{words:?}");
    assert!(ids(&stage).is_empty() && stage.speaker.prefixes().all(|prefix| prefix == net(ONE)));
    stage.connect(5, &[]).unwrap();
    assert_eq!(stage.status("nodes-10.99.0.6").state, State::Established);
}

#[test]
fn other_settings_of_a_template_reach_those_that_are_here() {
    let mut stage = stage();
    stage.connect(5, &[]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.events();
    stage.apply(|config| config.dynamic[0].peer.import = Policy::none());
    assert!(stage.through(TWO).is_empty() && stage.events().is_empty(), "no session notices");
    stage.apply(|config| config.dynamic[0].peer.hold_time = 30);
    assert!(matches!(&stage.last_words()[..], [Some(n)] if n.subcode == 6));
    stage.connect(5, &[]).unwrap();
    stage.events();
    stage.apply(|config| config.router_id = v4(77));
    assert!(
        matches!(&stage.last_words()[..], [Some(n)] if n.subcode == 6),
        "our identity is everybody's business"
    );
}

#[test]
fn a_configured_peer_takes_the_place_of_one_that_came() {
    let mut stage = stage();
    stage.connect(5, &[]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.apply(|config| config.peers.push(PeerConfig { passive: true, ..peer(5, asn(5)) }));
    assert_eq!(stage.speaker.status().len(), 1);
    assert!(stage.through(TWO).is_empty());
    stage.connect(5, &[]).unwrap();
    assert_eq!((stage.status("node5").state, stage.status("node5").dynamic), (State::Established, false));
    stage.close(5);
    stage.pass(600);
    assert_eq!(stage.speaker.status().len(), 1, "and stays");
    stage.connect(6, &[]).unwrap();
    stage.connect(7, &[]).unwrap();
}
