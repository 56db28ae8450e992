use super::*;
use crate::{
    OVERHEAD,
    noise::message::{INITIATION, RESPONSE},
    session::REJECT_AFTER_MESSAGES,
};

fn lengths(datagrams: &[Vec<u8>]) -> Vec<usize> {
    datagrams.iter().map(Vec::len).collect()
}

#[test]
fn silent_peer_goes_down_after_its_handshakes_stay_unanswered() {
    let (mut a, mut b) = connected();
    a.open(B, &b.seal(&[inner(2, 0)]));
    a.seal(&[inner(1, 0)]);
    a.now.instant += Duration::from_millis(14_999);
    assert!(a.tick().is_empty());
    a.now.instant += Duration::from_millis(334);
    assert_eq!(lengths(&a.tick()), [INITIATION]);
    a.now.instant += seconds(14);
    a.tick();
    assert_eq!(a.peer.status(a.now.instant).state, State::Up);
    a.now.instant += seconds(1);
    a.tick();
    let status = a.peer.status(a.now.instant);
    assert_eq!(status.state, State::Down);
    assert_eq!(status.reason, "no handshake reply for 15 s from 198.51.100.2:51820");
}

#[test]
fn keepalive_starts_the_tunnel_and_then_only_breaks_silence() {
    let (mut a, mut b) = pair(None);
    a.peer.set_keepalive(Some(seconds(25)));
    let initiation = a.tick();
    assert_eq!(lengths(&initiation), [INITIATION]);
    let (response, _) = b.open(A, &initiation);
    let (confirmed, _) = a.open(B, &response);
    b.open(A, &confirmed);
    assert!(b.live.load(Ordering::Relaxed));
    a.now.instant += seconds(24);
    assert!(a.tick().is_empty());
    let data = a.seal(&[inner(1, 0)]);
    b.open(A, &data);
    a.open(B, &b.seal(&[inner(2, 0)]));
    a.now.instant += seconds(9);
    assert!(a.tick().is_empty());
    let data = a.seal(&[inner(1, 0)]);
    b.open(A, &data);
    b.now.instant += seconds(10);
    a.open(B, &b.tick());
    a.now.instant += seconds(24);
    assert!(a.tick().is_empty());
    a.now.instant += seconds(1);
    let keepalive = a.tick();
    assert_eq!(lengths(&keepalive), [OVERHEAD]);
    assert_eq!(b.open(A, &keepalive), (vec![], vec![]));
    assert_eq!(b.counters.drops.iter().map(|(_, count)| count).sum::<u64>(), 0);
}

#[test]
fn keepalives_renew_the_session_of_the_initiator_only() {
    let (mut a, mut b) = connected();
    // Both have said their last word on the packet that began it.
    b.now.instant += seconds(10);
    a.open(B, &b.tick());
    for end in [&mut a, &mut b] {
        end.peer.set_keepalive(Some(seconds(25)));
        end.now.instant += seconds(90);
        assert_eq!(lengths(&end.tick()), [OVERHEAD]);
        end.now.instant += seconds(25);
        assert_eq!(lengths(&end.tick()), [OVERHEAD]);
        end.now.instant += seconds(25);
    }
    assert_eq!(lengths(&a.tick()), [OVERHEAD, INITIATION]);
    assert_eq!(lengths(&b.tick()), [OVERHEAD]);
}

#[test]
fn initiations_are_repeated_and_given_up() {
    let (mut a, _) = pair(None);
    assert_eq!(a.seal(&[inner(0, 0), inner(1, 0)]).len(), 1);
    let (start, mut sent, mut gaps) = (a.now.instant, vec![a.now.instant], vec![]);
    while let Some(next) = a.wait() {
        a.now.instant = next;
        let datagrams = a.tick();
        if !datagrams.is_empty() {
            gaps.push(next - *sent.last().unwrap());
            sent.push(next);
        }
    }
    assert_eq!(a.now.instant - start, seconds(90));
    assert!((17..=18).contains(&sent.len()), "{}", sent.len());
    assert!(gaps.iter().all(|gap| (5000..=5333).contains(&gap.as_millis())), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap != gaps[0]), "no jitter: {gaps:?}");
    assert_eq!(a.drops(Dropped::NoSession), 2);
    assert_eq!(a.seal(&[inner(2, 0)]).len(), 1, "the next packet begins again");
}

#[test]
fn a_persistent_keepalive_revives_a_peer_that_was_given_up() {
    let (mut a, mut b) = pair(None);
    a.peer.set_keepalive(Some(seconds(25)));
    let start = a.now.instant;
    while a.now.instant - start < seconds(300) {
        a.tick();
        a.now.instant = a.wait().expect("it never gives up for good");
    }
    b.now = a.now;
    for _ in 0..30 {
        let (response, _) = b.open(A, &a.tick());
        b.open(A, &a.open(B, &response).0);
        if b.live.load(Ordering::Relaxed) {
            return;
        }
        a.now.instant = a.wait().unwrap();
        b.now = a.now;
    }
    panic!("not revived");
}

#[test]
fn keys_are_used_for_three_minutes_and_not_longer() {
    let (mut a, mut b) = connected();
    let late = a.seal(&[inner(1, 0)]);
    a.now.instant += seconds(179);
    b.now = a.now;
    assert_eq!(b.open(A, &late).1, [inner(1, 0)]);
    let (one, two) = (b.seal(&[inner(2, 0)]), b.seal(&[inner(3, 0)]));
    assert_eq!(a.open(B, &one).1, [inner(2, 0)]);
    a.now.instant += seconds(1);
    b.now = a.now;
    // Nobody has called tick.
    assert_eq!(a.open(B, &two).1, Vec::<Vec<u8>>::new());
    assert_eq!(a.drops(Dropped::UnknownIndex), 1);
    assert_eq!(lengths(&b.seal(&[inner(4, 0)])), [INITIATION]);
}

#[test]
fn a_receiving_initiator_renews_after_165_seconds_and_a_responder_never() {
    let (mut a, mut b) = connected();
    for end in [&mut a, &mut b] {
        end.now.instant += seconds(164);
    }
    assert_eq!(lengths(&a.open(B, &b.seal(&[inner(1, 0)])).0), [] as [usize; 0]);
    for end in [&mut a, &mut b] {
        end.now.instant += seconds(1);
    }
    let data = a.seal(&[inner(2, 0)]);
    assert_eq!(lengths(&data), [INITIATION, inner(2, 0).len().next_multiple_of(16) + OVERHEAD]);
    assert_eq!(lengths(&b.open(A, &data[1..]).0), [] as [usize; 0]);

    let (mut a, mut b) = connected();
    for end in [&mut a, &mut b] {
        end.now.instant += seconds(165);
    }
    let data = b.seal(&[inner(1, 0)]);
    assert_eq!(data.len(), 1, "the responder does not renew");
    assert_eq!(lengths(&a.open(B, &data).0), [INITIATION]);
}

#[test]
fn the_old_session_still_receives_after_a_renewal() {
    let (mut a, mut b) = connected();
    for end in [&mut a, &mut b] {
        end.now.instant += seconds(120);
    }
    let (late_a, late_b) = (a.seal(&[inner(1, 0)]), b.seal(&[inner(2, 0)]));
    let (response, _) = b.open(A, &late_a[..1]);
    assert_eq!(lengths(&response), [RESPONSE]);
    // Not confirmed: the responder goes on with the old one.
    assert_eq!(a.open(B, &b.seal(&[inner(3, 0)])).1, [inner(3, 0)]);
    let (confirmed, _) = a.open(B, &response);
    b.open(A, &confirmed);
    assert_eq!(b.open(A, &late_a[1..]).1, [inner(1, 0)]);
    assert_eq!(a.open(B, &late_b).1, [inner(2, 0)]);
    assert_eq!(a.open(B, &b.seal(&[inner(4, 0)])).1, [inner(4, 0)]);
}

#[test]
fn a_worn_session_is_renewed_and_a_used_up_one_not_used() {
    let (mut a, _) = connected();
    a.now.instant += seconds(6);
    let session = |end: &End| Arc::clone(end.peer.state().keyring.sending(end.now.instant).unwrap());
    session(&a).reserve((1 << 60) - 10).unwrap();
    assert_eq!(lengths(&a.seal(&[inner(0, 12)])), [64], "below the limit");
    session(&a).reserve(10).unwrap();
    assert_eq!(lengths(&a.seal(&[inner(0, 12)])), [INITIATION, 64]);

    let (mut a, _) = connected();
    a.now.instant += seconds(6);
    let used = session(&a).reserve(1).unwrap() + 1;
    session(&a).reserve(REJECT_AFTER_MESSAGES - used - 1).unwrap();
    assert_eq!(lengths(&a.seal(&[inner(0, 12)])), [INITIATION, 64]);
    a.seal(&[inner(1, 12)]);
    assert_eq!(a.peer.state().waiting.len(), 1);
}

#[test]
fn initiations_are_accepted_once_in_order_and_fifty_a_second() {
    let (mut a, mut b) = pair(None);
    let (first, second) = (a.force_initiation(), a.force_initiation());
    assert_eq!(lengths(&b.open(A, std::slice::from_ref(&second)).0), [RESPONSE]);
    b.now.instant += seconds(1);
    assert_eq!(b.open(A, &[first, second]).0, Vec::<Vec<u8>>::new());
    assert_eq!(b.drops(Dropped::HandshakeFailed), 2);
    let [third, fourth, fifth] = std::array::from_fn(|_| a.force_initiation());
    assert_eq!(lengths(&b.open(A, &[third]).0), [RESPONSE]);
    b.now.instant += Duration::from_millis(19);
    assert_eq!(b.open(A, &[fourth]).0, Vec::<Vec<u8>>::new());
    assert_eq!(b.drops(Dropped::RateLimited), 1);
    b.now.instant += Duration::from_millis(1);
    assert_eq!(lengths(&b.open(A, &[fifth]).0), [RESPONSE]);
}

#[test]
fn indices_are_random_and_differ() {
    let (mut a, _) = pair(None);
    let (mut low, mut seen) = (std::collections::HashSet::new(), std::collections::HashSet::new());
    for _ in 0..40 {
        let hidden = u32::from_le_bytes(*a.force_initiation()[4..].first_chunk().unwrap());
        let index = a.peer.state().identity.indices.reveal(hidden);
        assert_eq!(index >> 8, 1);
        low.insert(index & 0xff);
        seen.insert(hidden >> 8);
    }
    assert!(seen.len() > 20, "a stranger sees that they belong together: {seen:x?}");
    assert!(low.len() > 20, "{low:?}");
    assert!(!(0..40).all(|n| low.contains(&n)), "sequential");
    let mut state = a.peer.state();
    let waiting = state.pending.as_ref().map(|pending| pending.index());
    assert!((0..3000).all(|_| Some(state.fresh_index()) != waiting), "an index that is in use");
}

#[test]
fn a_peer_without_an_endpoint_has_no_timers() {
    let mut b = End::new(2, 1, None);
    b.peer.set_keepalive(Some(seconds(25)));
    assert!(b.tick().is_empty());
    assert_eq!(b.wait(), None);
}

#[test]
fn a_call_is_asked_for_once_and_only_if_it_is_earlier() {
    let (a, _) = pair(None);
    let (packet, mut out) = (inner(1, 0), Outbox::new());
    let seal = |at: Now, out: &mut Outbox| a.peer.seal([Plain(&packet)].into_iter(), at, out);
    assert!(seal(a.now, &mut out), "the initiation must be repeated");
    assert!(!seal(a.now, &mut out));
    let next = a.peer.tick(a.now, &mut out, &mut Outbox::new()).unwrap();
    let later = Now { instant: a.now.instant + seconds(1), ..a.now };
    assert!(!seal(later, &mut out));
    assert_eq!(
        a.peer.tick(later, &mut out, &mut Outbox::new()),
        Some(next),
        "called too early, it changes nothing"
    );
}

#[test]
fn a_late_packet_of_the_session_before_renews_nothing() {
    let (mut a, mut b) = connected();
    let late = b.seal(&[inner(1, 0)]);
    for end in [&mut a, &mut b] {
        end.now.instant += seconds(166);
    }
    let (response, _) = b.open(A, &[a.force_initiation()]);
    a.open(B, &response);
    a.now.instant += seconds(6);
    assert_eq!(a.open(B, &late), (vec![], vec![inner(1, 0)]));
}

#[test]
fn a_clock_that_goes_back_does_not_put_off_the_next_attempt() {
    let (mut a, _) = pair(None);
    a.now.instant += seconds(3600);
    a.seal(&[inner(1, 0)]);
    a.now.instant -= seconds(3600);
    let next = a.wait().unwrap();
    assert!(next <= a.now.instant + seconds(6));
}
