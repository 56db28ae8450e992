//! What an operator orders, or another configuration means, for a session that stands.

use super::{net::*, played::*, *};
use crate::{
    Policy,
    wire::{Capability, MessageType, RouteRefresh, code},
};

fn stage() -> Stage {
    let mut stage = Stage::new(playing(&[5]));
    stage.connect(5, &[Capability::RouteRefresh, Capability::EnhancedRouteRefresh, steady()]).unwrap();
    stage.announce(5, TWO, &[]);
    Family::ALL.into_iter().for_each(|family| stage.end_of_rib(5, family));
    stage.told(5);
    stage.events();
    stage
}

/// Subtypes of the ROUTE-REFRESHes in what we send, and prefixes between them.
fn sent(stage: &mut Stage) -> Vec<u8> {
    stage.heard(5, |message| match message.kind {
        MessageType::RouteRefresh => Some(RouteRefresh::decode(message.body).unwrap().subtype),
        MessageType::Update => Some(99),
        _ => None,
    })
}

#[test]
fn a_hard_reset_starts_over() {
    let mut stage = stage();
    assert!(stage.speaker.reset("node5", Reset::Hard, stage.now));
    let words = stage.last_words();
    assert!(matches!(&words[..], [Some(n)] if n.subcode == code::cease::RESET), "{words:?}");
    assert_eq!(stage.kept("node5"), (0, 0), "nothing of it is kept, whatever graceful restart says");
    stage.connect(5, &[]).unwrap();
    assert!(!stage.speaker.reset("node9", Reset::Hard, stage.now));
}

#[test]
fn a_soft_reset_inwards_asks_again() {
    let mut stage = stage();
    stage.speaker.reset("node5", Reset::SoftIn, stage.now);
    assert_eq!(sent(&mut stage), [0, 0], "both families");
    stage.refresh(5, 1);
    assert_eq!(stage.through(TWO), ["node5"]);
    assert!(
        stage.speaker.detail_of("node5").unwrap().timers.iter().any(|(_, name)| *name == "route refresh")
    );
    stage.pass(300);
    assert!(stage.through(TWO).is_empty(), "a refresh that never ends is ended");
    assert!(stage.events().is_empty(), "the session did not notice");
}

#[test]
fn a_soft_reset_outwards_sends_again_between_marks() {
    let mut stage = stage();
    stage.speaker.reset("node5", Reset::SoftOut, stage.now);
    let sent = sent(&mut stage);
    assert_eq!(sent, [1, 99, 2, 1, 2], "{ONE} is all there is");
    assert!(stage.events().is_empty());
}

#[test]
fn a_peer_without_refresh_is_judged_again_all_the_same() {
    let mut stage = Stage::new(playing(&[5]));
    stage.connect(5, &[]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.told(5);
    stage.speaker.reset("node5", Reset::SoftIn, stage.now);
    assert!(sent(&mut stage).is_empty());
    assert_eq!(stage.through(TWO), ["node5"]);
}

#[test]
fn a_passive_peer_is_never_dialed() {
    let mut stage = stage();
    stage.close(5);
    stage.pass(3600);
    assert!(!stage.events().iter().any(|event| matches!(event, Event::Dial { .. })));
    stage.apply(|config| config.peers[0].passive = false);
    assert!(stage.events().iter().any(|event| matches!(event, Event::Dial { .. })));
}

#[test]
fn messages_are_counted_by_type() {
    let mut stage = stage();
    let detail = stage.speaker.detail_of("node5").unwrap();
    let expected = Messages { open: 1, keepalive: 1, update: 3, ..Messages::default() };
    assert_eq!((detail.messages_in, detail.messages_out), (expected, expected));
    stage.speaker.reset("node5", Reset::SoftIn, stage.now);
    stage.heard(5, |_| Some(()));
    stage.speaker.reset("node5", Reset::Hard, stage.now);
    let detail = stage.speaker.detail_of("node5").unwrap();
    assert_eq!((detail.messages_out.route_refresh, detail.messages_out.notification), (2, 1));
    assert_eq!(detail.messages_out.total(), detail.status.messages_sent);
}

#[test]
fn what_is_held_back_and_faults_are_shown() {
    let mut stage = stage();
    stage.apply(|config| {
        config.peers[0].max_prefixes_out = Some(1);
        config.announce.push(net("10.7.0.0/16"));
        config.peers[0].import = Policy::none();
    });
    stage.told(5);
    let detail = stage.speaker.detail_of("node5").unwrap();
    assert_eq!((detail.held_back, detail.import.name()), (Some(V4), Policy::none().name()));
    let mut bytes = vec![0xff; 16];
    // MED of one octet, for 10.9.0.0/16.
    bytes.extend([0, 30, 2, 0, 0, 0, 4, 0x80, 4, 1, 0, 16, 10, 9]);
    stage.send(5, &bytes);
    assert_eq!(stage.status("node5").update_faults, 1);
}

#[test]
fn a_session_shows_what_both_sides_said() {
    let mut net = pair();
    let detail = |net: &Net| net.nodes[0].speaker.detail_of("node1").unwrap();
    let before = detail(&net);
    assert_eq!((before.received.len(), before.families[0].agreed), (0, false));
    assert!(before.sent.contains(&Capability::FourOctetAsn(65_001)), "{:?}", before.sent);
    net.seconds(5);
    let after = detail(&net);
    assert!(after.received.contains(&Capability::FourOctetAsn(4_200_000_002)), "{:?}", after.received);
    let [four, six] = after.families[..] else { panic!("{:?}", after.families) };
    assert_eq!((four.agreed, four.end_of_rib, four.received), (true, true, 1));
    assert_eq!((six.agreed, six.end_of_rib, six.received), (true, true, 1));
}
