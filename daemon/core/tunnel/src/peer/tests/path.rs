//! The size of the path to a peer.

use boringtun::noise::{Tunn, TunnResult};

use super::{
    interop::{hear, other, say},
    world::{HEADERS, PATH_MESSAGE, World},
    *,
};
use crate::{
    OVERHEAD,
    noise::message::{INITIATION, KEEPALIVE},
    path_mtu::{FLOOR, Kind, Message, State as Known},
};

fn knows(end: &End) -> (Option<u16>, Known, u16) {
    let path = end.peer.path_mtu();
    (path.found, path.state, end.peer.mtu())
}

fn width(outer: u16) -> World {
    let mut world = World::new();
    world.width = outer.into();
    world
}

#[test]
fn both_learn_the_size_of_the_path() {
    for (outer, expected) in [
        (1500, (Some(1480), Known::Whole, 1420)),
        (1400, (Some(1400), Known::Limited, 1340)),
        (1280, (Some(1280), Known::Floor, 1220)),
    ] {
        let mut world = width(outer);
        assert_eq!(knows(&world.ends[0]), (None, Known::Unknown, 1420));
        world.send(0, inner(1, 0));
        world.run(seconds(60));
        for end in &world.ends {
            assert_eq!(knows(end), expected, "{outer}");
        }
    }
}

#[test]
fn probes_are_as_long_as_they_say_and_no_packets_for_anybody() {
    let mut world = width(1400);
    world.send(0, inner(1, 0));
    world.run(seconds(60));
    let longest = |from| world.log.iter().filter(|(_, sender, _)| *sender == from).map(|(.., l)| *l).max();
    assert_eq!([longest(0), longest(1)], [Some(1480 - HEADERS); 2]);
    assert!(world.log.iter().any(|(.., length)| *length == 1400 - HEADERS), "not padded, not rounded");
    assert_eq!((world.arrived[0].len(), world.arrived[1].len()), (0, 1));
    for (end, packets) in world.ends.iter().zip([(1, 0), (0, 1)]) {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!((count(&end.counters.sent_packets), count(&end.counters.received_packets)), packets);
        assert_eq!(end.counters.drops.iter().map(|(_, count)| count).sum::<u64>(), 0);
    }
}

#[test]
fn a_size_that_our_kernel_refuses_takes_no_time() {
    let mut world = World::new();
    (world.width, world.kernel) = (1400, 1400);
    world.send(0, inner(1, 0));
    assert_eq!(knows(&world.ends[0]), (Some(1400), Known::Refused, 1340));
    world.kernel = 1300;
    world.ends[0].peer.path_refused(world.ends[0].now.instant);
    world.tick(0);
    assert_eq!(knows(&world.ends[0]), (Some(1300), Known::Refused, 1240));
}

#[test]
fn a_refusal_that_is_not_the_links_changes_nothing() {
    let mut world = World::new();
    world.send(0, inner(1, 0));
    world.log.clear();
    world.ends[0].peer.path_refused(world.ends[0].now.instant);
    world.tick(0);
    assert_eq!(knows(&world.ends[0]), (Some(1480), Known::Whole, 1420));
    assert_eq!((world.count(0, 1480 - HEADERS), world.log.len()), (1, 2), "one look, one answer");
}

#[test]
fn a_path_that_shrinks_under_traffic_is_found_out() {
    let mut world = World::new();
    world.converse(seconds(5));
    world.width = 1400;
    world.converse(seconds(14));
    assert!(world.ends.iter().all(|end| end.peer.mtu() <= 1340));
    world.converse(seconds(30));
    assert_eq!(knows(&world.ends[1]), (Some(1400), Known::Limited, 1340));
}

#[test]
fn no_packet_is_padded_beyond_what_passes() {
    let mut world = width(1400);
    world.send(0, inner(1, 0));
    world.run(seconds(60));
    for extra in 1300..=1320 {
        let sealed = world.ends[0].seal(&[inner(2, extra)]);
        let length = sealed[0].len();
        assert!(length + HEADERS <= 1400 && length - OVERHEAD >= 20 + extra);
    }
    // One that must be carried all the same is not made longer.
    assert_eq!(world.ends[0].seal(&[inner(3, 1360)])[0].len(), 1380 + OVERHEAD);
}

#[test]
fn a_peer_that_moves_is_measured_anew() {
    let mut world = width(1400);
    world.send(0, inner(1, 0));
    world.run(seconds(60));
    world.width = 1300;
    world.ends[0].peer.set_endpoint(address("203.0.113.9:1"));
    world.tick(0);
    assert_eq!(knows(&world.ends[0]).0, None);
    world.run(seconds(60));
    assert_eq!(knows(&world.ends[0]), (Some(1300), Known::Limited, 1240));
    assert_eq!(knows(&world.ends[1]).0, Some(1400), "nothing has told it");
}

#[test]
fn idle_peers_have_nothing_to_say() {
    let mut world = World::new();
    world.send(0, inner(1, 0));
    world.run(seconds(1800));
    // A packet, the answer ten seconds later, and one search from each side.
    assert_eq!([world.count(0, INITIATION), world.count(1, INITIATION)], [1, 0], "{:?}", world.log);
    assert_eq!([world.count(0, KEEPALIVE), world.count(1, KEEPALIVE)], [0, 1], "{:?}", world.log);
    assert_eq!([world.count(0, PATH_MESSAGE), world.count(1, PATH_MESSAGE)], [3, 3], "{:?}", world.log);
    assert_eq!(world.deadlines, [None, None]);
}

#[test]
fn persistent_keepalives_and_probes_do_not_multiply() {
    let mut world = World::new();
    world.ends[0].peer.set_keepalive(Some(seconds(25)));
    world.tick(0);
    world.log.clear();
    world.run(seconds(1800));
    let sessions = world.count(0, INITIATION);
    assert!((12..=15).contains(&sessions), "{:?}", world.log);
    assert!(world.count(0, KEEPALIVE) <= 1800 / 25 + sessions);
    assert_eq!(world.count(1, KEEPALIVE), 0, "a keepalive is not answered, nor is a path message");
    assert_eq!([world.count(0, PATH_MESSAGE), world.count(1, PATH_MESSAGE)], [2 * sessions; 2]);
    assert!(world.log.iter().all(|(.., length)| *length <= INITIATION), "no probes without traffic");
}

#[test]
fn what_a_session_waits_for_is_not_what_a_probe_answers() {
    let (mut a, mut b) = connected();
    // B owes a sign that the packet of the handshake arrived. Its own questions are none.
    b.tick();
    assert_eq!(b.probes.len(), 1);
    b.now.instant += seconds(10);
    assert_eq!(b.tick().iter().map(Vec::len).collect::<Vec<_>>(), [KEEPALIVE]);
    // A waits for that sign, and if none comes, it calls again; that it asks about the path delays nothing.
    for second in 0..15 {
        assert!(a.tick().is_empty(), "{second}");
        a.now.instant += seconds(1);
    }
    a.now.instant += seconds(1);
    assert_eq!(a.tick()[0].len(), INITIATION);
}

#[test]
fn a_question_alone_is_no_data() {
    let (mut a, mut b) = connected();
    a.open(B, &b.seal(&[inner(2, 0)]));
    b.open(A, &a.seal(&[inner(1, 0)]));
    b.now.instant += seconds(10);
    a.open(B, &b.tick());
    a.tick();
    let (answers, packets) = b.open(A, &std::mem::take(&mut a.probes));
    assert_eq!((answers.len(), answers[0].len(), packets.len()), (1, PATH_MESSAGE, 0));
    let (silence, _) = a.open(B, &answers);
    assert!(silence.is_empty());
    for end in [&mut a, &mut b] {
        end.now.instant += seconds(60);
        assert!(end.tick().is_empty(), "nobody owes anything, and nobody waits");
    }
}

/// Seals any bytes, as a peer might that is not ours.
fn sealed(end: &End, payload: &[u8]) -> Vec<u8> {
    let mut out = Outbox::new();
    let mut lease = end.peer.state().lease_alone(1, end.now.instant).unwrap();
    lease.draft(payload.len(), 0, Ecn::NotEct, &mut out, |into| into.copy_from_slice(payload));
    lease.finish_uncounted(&mut out);
    datagrams(&out).remove(0)
}

#[test]
fn messages_from_elsewhere_and_the_future_are_counted_and_change_nothing() {
    let (a, mut b) = connected();
    let mut hello = [0; 16];
    Message { kind: Kind::Hello, id: 1, size: 16 }.encode(&mut hello);
    let mut future = hello;
    future[1] = 2;
    let messages = [&future[..], &hello[..15], &[0xf0], &[0xff; 64]].map(|payload| sealed(&a, payload));
    assert_eq!(b.open(A, &messages), (vec![], vec![]));
    assert_eq!(b.drops(Dropped::Malformed), 4);
    assert_eq!(b.counters.received_packets.load(Ordering::Relaxed), 1);
    // The same twice is a replay.
    let hello = sealed(&a, &hello);
    let (answers, _) = b.open(A, &[hello.clone(), hello]);
    assert_eq!((answers.len(), b.drops(Dropped::Replayed)), (1, 1));
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let (a, mut b) = connected();
    for (id, size) in [(0, 16), (1, 1420), (u32::MAX, u16::MAX)] {
        let mut ack = [0; 16];
        Message { kind: Kind::Ack, id, size }.encode(&mut ack);
        assert_eq!(b.open(A, &[sealed(&a, &ack)]), (vec![], vec![]));
    }
    assert_eq!(knows(&b), (None, Known::Unknown, 1420));
}

#[test]
fn a_clock_that_goes_back_does_not_stop_a_search() {
    let mut world = width(1400);
    world.send(0, inner(1, 0));
    for end in &mut world.ends {
        end.now.instant -= seconds(3600);
    }
    world.start = world.ends[0].now.instant;
    world.deadlines = [None; 2];
    for n in 0..40 {
        world.send(0, inner(n, 0));
        world.run(seconds(1));
    }
    assert_eq!(knows(&world.ends[0]), (Some(1400), Known::Limited, 1340));
}

/// One of ours against another implementation for half an hour; `talk`: with a packet each way each second.
fn half_an_hour_with_a_stranger(talk: bool) -> (End, [usize; 3]) {
    let (mut a, mut tunn) = (End::new(1, 2, None), other(None, u64::MAX));
    a.peer.set_endpoint(address(B));
    let (mut counts, mut sent) = ([0; 3], a.seal(&[inner(1, 0)]));
    for second in 0..1800 {
        exchange(&mut a, &mut tunn, sent, &mut counts);
        // It has no clock of ours, so what it would say by itself is said for it.
        if talk || second == 0 {
            let answer = say(&mut tunn, &inner(3, 100));
            a.open(B, &[answer]);
        }
        a.now.instant += seconds(1);
        sent = if talk { a.seal(&[inner(2, 100)]) } else { vec![] };
        sent.extend(a.tick());
        sent.append(&mut a.probes);
    }
    (a, counts)
}

/// Hands datagrams over until nobody has anything to say. Counts those of ours: initiations, greetings, others.
fn exchange(a: &mut End, tunn: &mut Tunn, mut sent: Vec<Vec<u8>>, counts: &mut [usize; 3]) {
    while !sent.is_empty() {
        for datagram in &sent {
            counts[match datagram.len() {
                INITIATION => 0,
                PATH_MESSAGE => 1,
                _ => 2,
            }] += 1;
        }
        let answers: Vec<Vec<u8>> = sent.iter().flat_map(|datagram| hear_or_drop(tunn, datagram)).collect();
        sent = a.open(B, &answers).0;
    }
}

/// What it says to a datagram, if only that it is no IP packet.
fn hear_or_drop(tunn: &mut Tunn, datagram: &[u8]) -> Vec<Vec<u8>> {
    if datagram.len() != PATH_MESSAGE {
        return hear(tunn, datagram).0;
    }
    match tunn.decapsulate(None, datagram, &mut vec![0; 2000]) {
        TunnResult::Err(_) | TunnResult::Done => vec![],
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_idle_stranger_hears_three_greetings() {
    let (a, [initiations, greetings, others]) = half_an_hour_with_a_stranger(false);
    assert_eq!((initiations, greetings), (1, 3));
    assert!(others <= 2, "{others}");
    assert_eq!(knows(&a), (None, Known::Unknown, 1420), "the session is over");
}

#[test]
fn a_stranger_that_talks_hears_three_greetings_for_each_session() {
    let (a, [initiations, greetings, _]) = half_an_hour_with_a_stranger(true);
    assert!((14..=16).contains(&initiations), "{initiations}");
    assert_eq!(greetings, 3 * initiations);
    assert_eq!(knows(&a), (None, Known::Foreign, 1420));
    assert!(usize::from(FLOOR) > PATH_MESSAGE);
}
