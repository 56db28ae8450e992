//! Whatever peers do, nothing piles up here.

use super::{net::*, played::*, *};

/// Lines that the journal may have unread, and so about as many places that the driver may leave unasked.
const JOURNAL: usize = 16 * 1024;

/// Node 6 takes nothing that we send, and the driver asks for nothing, while 5 changes its mind without end.
#[test]
fn news_that_nobody_takes_does_not_pile_up() {
    let mut stage = Stage::new(playing(&[5, 6]));
    stage.connect(5, &[steady()]).unwrap();
    stage.connect(6, &[steady()]).unwrap();
    for round in 0..2 * JOURNAL + 10 {
        let behind: &[u32] = if round % 2 == 0 { &[70_000] } else { &[] };
        stage.announce(5, TWO, behind);
    }
    let speaker = &stage.speaker;
    for peer in speaker.peers.values() {
        let unread = speaker.changes.unread(peer.up.as_ref().unwrap().out.cursor());
        assert!(unread <= JOURNAL, "{unread} lines unread");
        assert!(peer.links.iter().all(|link| link.input.is_empty() && link.control.len() < 4096));
    }
    assert!(speaker.changed.len() <= JOURNAL + 10, "{} places", speaker.changed.len());
    assert_eq!(stage.told(6).0, [ONE, TWO], "the last word on each");
}

/// Peers that come and go leave nothing behind but what graceful restart keeps.
#[test]
fn sessions_that_end_leave_nothing_behind() {
    let mut stage = Stage::new(playing(&[5]));
    for round in 0..500 {
        stage.connect(5, &[graceful(round > 0, crate::Families::ALL, true)]).unwrap();
        stage.announce(5, if round % 2 == 0 { TWO } else { "10.7.0.0/16" }, &[]);
        match round % 3 {
            0 => stage.close(5),
            1 => stage.notify(5, &Notification::new(6, 4)),
            _ => stage.send(5, &[0; 19]),
        }
        stage.events();
        assert!(stage.speaker.owners.is_empty() && stage.speaker.peers[&PeerId(0)].links.is_empty());
        assert!(stage.kept("node5").0 <= 2);
    }
    stage.pass(60);
    assert_eq!(stage.kept("node5"), (0, 0));
}
