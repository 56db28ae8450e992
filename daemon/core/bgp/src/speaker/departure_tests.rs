//! How a node goes: drained, for a restart, at once (RFC 8326, RFC 8538, RFC 9003).

use std::time::Duration;

use super::{net::*, played::*, *};
use crate::{
    Families,
    wire::{Capability, Community, code},
};

fn subcodes(words: Vec<Option<Notification>>) -> Vec<Option<u8>> {
    words.into_iter().map(|notification| notification.map(|notification| notification.subcode)).collect()
}

/// Communities of what a peer is told of ONE.
fn communities(stage: &mut Stage, n: usize) -> Vec<Vec<Community>> {
    let updates = stage.updates(n);
    let announced = updates.iter().flat_map(|update| &update.announced);
    announced.map(|announcement| announcement.attributes.communities.to_vec()).collect()
}

fn pair_of(capabilities: [&[Capability]; 2]) -> Stage {
    let mut stage = Stage::new(playing(&[5, 6]));
    for (n, capabilities) in [5, 6].into_iter().zip(capabilities) {
        stage.connect(n, capabilities).unwrap();
        stage.told(n);
    }
    stage.announce(5, TWO, &[]);
    stage.told(6);
    stage.events();
    stage.speaker.take_changed();
    stage
}

#[test]
fn a_drain_asks_the_peers_away_and_then_leaves() {
    let steady = [steady()];
    let mut stage = pair_of([&steady, &[]]);
    let until = stage.now + Duration::from_secs(10);
    stage.speaker.drain(until);
    assert!(stage.speaker.is_draining());
    assert_eq!(communities(&mut stage, 5), [vec![Community::GRACEFUL_SHUTDOWN]]);
    assert_eq!(stage.through(TWO), ["node5"], "we still forward");
    stage.pass(9);
    assert!(stage.events().is_empty());
    stage.pass(1);
    let events = stage.events();
    assert_eq!(events.last(), Some(&Event::Drained), "the last word of it all");
    let sent: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Notified { sent: true, notification, .. } => Some(notification.to_string()),
            _ => None,
        })
        .collect();
    assert!(sent[0].contains("Hard Reset") && sent[1].contains("Administrative Shutdown"), "{sent:?}");
    assert!(sent.iter().all(|text| text.contains("drained")), "{sent:?}");
    assert!(stage.speaker.paths(&net(TWO)).is_empty());
    assert_eq!(stage.speaker.take_changed(), [net(TWO)]);

    stage.apply(|config| config.peers[0].hold_time = 30);
    stage.apply(|config| config.peers.push(peer(7, asn(7))));
    stage.speaker.reset("node6", Reset::Hard, stage.now);
    stage.pass(600);
    assert_eq!(stage.connect(5, &steady).err(), Some(Refused::Unwanted("the session is stopped")));
    assert!(
        !stage.events().iter().any(|event| matches!(event, Event::Dial { .. })),
        "who has left stays away"
    );
}

#[test]
fn a_drain_can_be_taken_back() {
    let mut stage = pair_of([&[], &[]]);
    stage.speaker.drain(stage.now + Duration::from_secs(10));
    assert_eq!(communities(&mut stage, 5).len(), 1);
    stage.speaker.resume();
    assert_eq!(communities(&mut stage, 5), [vec![]]);
    stage.pass(60);
    assert!(stage.events().is_empty() && !stage.speaker.is_draining());
}

#[test]
fn who_goes_for_a_restart_lets_others_and_the_kernel_forward_on() {
    let (notifying, silent) = ([steady()], [graceful(false, Families::ALL, false)]);
    let mut stage = Stage::new(playing(&[5, 6, 7]));
    stage.connect(5, &notifying).unwrap();
    stage.connect(6, &silent).unwrap();
    stage.connect(7, &[]).unwrap();
    stage.announce(5, TWO, &[]);
    stage.events();
    stage.speaker.take_changed();
    stage.speaker.suspend("upgrade", stage.now);
    assert_eq!(
        subcodes(stage.last_words()),
        [Some(code::cease::RESET), None, Some(code::cease::SHUTDOWN)],
        "to one that keeps routes through a NOTIFICATION, to one that only does without, to one that never does"
    );
    assert!(stage.speaker.take_changed().is_empty(), "the kernel forwards on");
    stage.pass(600);
    assert!(stage.connect(5, &notifying).is_err());
}

#[test]
fn shutting_down_is_for_good_and_says_why() {
    let steady = [steady()];
    let mut stage = pair_of([&steady, &[]]);
    stage.speaker.shut_down("kernel update", stage.now);
    let words: Vec<_> = stage.last_words().into_iter().flatten().collect();
    assert_eq!(words[0].reset_reason().map(|inner| inner.subcode), Some(code::cease::SHUTDOWN));
    assert_eq!(words[1], Notification::shutdown(code::cease::SHUTDOWN, "kernel update"));
    stage.apply(|config| config.peers[1].hold_time = 30);
    assert!(stage.connect(6, &[]).is_err());
}

#[test]
fn a_peer_is_shut_down_by_configuration_and_comes_back() {
    let mut stage = pair_of([&[], &[]]);
    let words = |text: &str| Some(Notification::shutdown(code::cease::SHUTDOWN, text));
    let said = stage.apply(|config| config.peers[0].shutdown = Some("new cable".into()));
    assert_eq!(said, ["neighbor node5: shut down"]);
    assert_eq!(stage.last_words(), [words("new cable")]);
    assert!(stage.through(TWO).is_empty());
    assert_eq!(stage.status("node5").reason, "shut down by the configuration: new cable");
    stage.apply(|config| config.peers[0].shutdown = Some("still".into()));
    assert_eq!((stage.last_words(), stage.status("node5").state), (vec![], State::Idle));
    assert_eq!(stage.status("node5").reason, "shut down by the configuration: still");
    assert!(stage.apply(|_| {}).is_empty());
    assert!(stage.connect(5, &[]).is_err());
    stage.end_of_rib(6, V4);
    stage.end_of_rib(6, V6);
    assert!(stage.speaker.synchronized(), "who is not to come is not missed");
    stage.apply(|config| config.peers[0].shutdown = None);
    stage.connect(5, &[]).unwrap();
    assert_eq!(stage.status("node5").state, State::Established);
    assert!(!stage.speaker.synchronized());
}
