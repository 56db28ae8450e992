use std::sync::atomic::Ordering;

use super::*;
use crate::OVERHEAD;

#[test]
fn packets_wait_for_the_handshake_and_arrive_in_order() {
    let (mut a, mut b) = pair(Some([9; 32]));
    let first: Vec<Vec<u8>> = (0..3).map(|n| inner(n, 10)).collect();
    let second: Vec<Vec<u8>> = (3..6).map(|n| inner(n, 10)).collect();
    let initiation = a.seal(&first);
    assert_eq!(initiation.len(), 1);
    assert!(a.seal(&second).is_empty(), "one initiation is enough");
    let (response, _) = b.open(A, &initiation);
    let (rest, _) = a.open(B, &response);
    let (_, packets) = b.open(A, &rest);
    assert_eq!(packets, [first, second].concat());
    assert_eq!(a.counters.sent_packets.load(Ordering::Relaxed), 6);
    assert_eq!(a.counters.sent_bytes.load(Ordering::Relaxed), 180);
    assert_eq!(b.counters.received_bytes.load(Ordering::Relaxed), 180);
    assert!(
        a.peer.status(a.now.instant).handshake.is_some() && b.peer.status(b.now.instant).handshake.is_some()
    );
    let (_, back) = a.open(B, &b.seal(&[inner(7, 100)]));
    assert_eq!(back, [inner(7, 100)]);
}

/// What says how things are now must not leave late, beside what is said later by another thread.
#[test]
fn news_do_not_wait_for_the_handshake_but_begin_it() {
    let (mut a, mut b) = pair(None);
    let initiation = a.seal_news(&inner(0, 10));
    assert_eq!((initiation.len(), a.drops(Dropped::NoSession)), (1, 1));
    let (response, _) = b.open(A, &initiation);
    let (rest, _) = a.open(B, &response);
    assert_eq!(b.open(A, &rest).1, Vec::<Vec<u8>>::new());
    let now = a.seal_news(&inner(1, 10));
    assert_eq!(b.open(A, &now).1, [inner(1, 10)]);
}

#[test]
fn wrong_preshared_key_is_a_failed_handshake() {
    let (mut a, mut b) = (End::new(1, 2, Some([1; 32])), End::new(2, 1, Some([2; 32])));
    a.peer.set_endpoint(address(B));
    let initiation = a.seal(&[inner(0, 0)]);
    let (response, _) = b.open(A, &initiation);
    let (nothing, _) = a.open(B, &response);
    assert!(nothing.is_empty());
    assert_eq!(a.drops(Dropped::HandshakeFailed), 1);
    assert!(!a.live.load(Ordering::Relaxed));
}

#[test]
fn datagram_length_is_padded_but_not_beyond_the_mtu() {
    let (mut a, mut b) = connected();
    for (length, padded) in [(20, 32), (32, 32), (33, 48), (1408, 1408), (1409, 1420), (1420, 1420)] {
        let sealed = a.seal(&[inner(1, length - 20)]);
        assert_eq!(sealed[0].len(), padded + OVERHEAD);
        assert_eq!(b.open(A, &sealed).1, [inner(1, length - 20)]);
    }
}

#[test]
fn without_an_endpoint_packets_are_counted_not_kept() {
    let mut b = End::new(2, 1, None);
    assert!(b.seal(&[inner(0, 0), inner(1, 0)]).is_empty());
    assert_eq!(b.drops(Dropped::NoEndpoint), 2);
}

#[test]
fn counter_at_the_limit_is_refused_before_the_engine_sees_it() {
    let (mut a, mut b) = connected();
    let mut last = a.seal(&[inner(1, 0)]);
    last[0][8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    b.open(A, &last);
    assert_eq!(b.drops(Dropped::Replayed), 1);
}

#[test]
fn inner_lengths_are_checked_after_decryption() {
    let (mut a, mut b) = connected();
    let mut too_long = inner(1, 10);
    too_long[3] = 200;
    let mut zero = inner(1, 10);
    zero[3] = 0;
    let sealed = a.seal(&[too_long, zero, vec![0x00; 40], vec![0x45]]);
    let (_, packets) = b.open(A, &sealed);
    let sound: Vec<_> = packets.iter().filter(|packet| packet::parse(packet).is_ok()).collect();
    assert!(sound.is_empty());
}

/// A packet with an ECN field.
struct Marked(Vec<u8>, Ecn);

impl Plaintext for Marked {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn write(&self, into: &mut [u8]) {
        into.copy_from_slice(&self.0);
    }

    fn ecn(&self) -> Ecn {
        self.1
    }
}

#[test]
fn neighbours_of_one_length_leave_as_one_piece_with_their_own_ecn() {
    let (a, _) = connected();
    let batch = [Ecn::Ect0, Ecn::Ce, Ecn::NotEct].map(|ecn| Marked(inner(1, 1395), ecn));
    let mut out = Outbox::new();
    a.peer.seal(batch.into_iter(), a.now, &mut out);
    let stride = 1420 + OVERHEAD;
    let ranges: Vec<_> = out.entries().iter().map(|entry| (entry.range.clone(), entry.ecn)).collect();
    assert_eq!(
        ranges,
        [(0..stride, Ecn::Ect0), (stride..2 * stride, Ecn::Ce), (2 * stride..3 * stride, Ecn::NotEct)]
    );
    assert_eq!(out.bytes().len(), 3 * stride);
}

#[test]
fn packets_keep_their_ecn_while_they_wait() {
    let (a, mut b) = pair(None);
    let mut out = Outbox::new();
    a.peer.seal([Marked(inner(1, 0), Ecn::Ect1)].into_iter(), a.now, &mut out);
    assert!(!a.peer.seal(std::iter::empty::<Marked>(), a.now, &mut out), "nothing is nothing");
    let (response, _) = b.open(A, &datagrams(&out));
    let mut a = a;
    let (data, _) = a.open_where(B, &response, |_| false);
    assert_eq!(data.entries()[0].ecn, Ecn::Ect1);
}

/// What an iterator says of its length is believed only as far as counters go.
struct Liar(std::vec::IntoIter<Marked>);

impl Iterator for Liar {
    type Item = Marked;

    fn next(&mut self) -> Option<Marked> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (1, Some(1))
    }
}

impl ExactSizeIterator for Liar {}

#[test]
fn a_batch_longer_than_it_says_reuses_no_counter() {
    let (a, mut b) = connected();
    let packets: Vec<Marked> = (0..3).map(|n| Marked(inner(n, 0), Ecn::NotEct)).collect();
    let mut out = Outbox::new();
    a.peer.seal(Liar(packets.into_iter()), a.now, &mut out);
    a.peer.seal([Marked(inner(9, 0), Ecn::NotEct)].into_iter(), a.now, &mut out);
    assert_eq!(b.open(A, &datagrams(&out)).1, [inner(0, 0), inner(9, 0)]);
    assert_eq!(a.drops(Dropped::NoSession), 2);
}

#[test]
fn padding_is_zeros_and_nothing_that_was_sent_before() {
    let (mut a, b) = connected();
    let mut out = Outbox::new();
    for length in [1000, 21] {
        out.clear();
        a.now.instant += seconds(1);
        a.peer.seal([Marked(vec![0xee; length], Ecn::NotEct)].into_iter(), a.now, &mut out);
    }
    let mut sealed = datagrams(&out);
    let batch = sealed.iter_mut().map(|bytes| Datagram { bytes, path: address(A).into(), ecn: Ecn::NotEct });
    let mut inbox = Vec::new();
    b.peer.open(batch, |_| false, b.now, &mut Outbox::new(), &mut inbox);
    assert_eq!(inbox[0].bytes, [[0xee; 21].as_slice(), &[0; 11]].concat());
}
