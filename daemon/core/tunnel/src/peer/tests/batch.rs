//! More packets than are ciphered at a time.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::Ordering,
};

use super::*;
use crate::OVERHEAD;

/// Lengths that make runs longer and shorter than what is ciphered at a time, and neighbours of other lengths.
fn many() -> Vec<Vec<u8>> {
    let lengths = [[700; 40].as_slice(), &[20, 21, 700, 700], &[64; 18], &[1400; 16], &[0]].concat();
    (0..).zip(lengths).map(|(number, length)| inner(number, length)).collect()
}

#[test]
fn many_packets_arrive_in_order_whatever_their_lengths() {
    let (mut a, mut b) = connected();
    let packets = many();
    for _ in 0..2 {
        let sealed = a.seal(&packets);
        let counters: Vec<u8> = sealed.iter().map(|datagram| datagram[8]).collect();
        assert!(
            counters.is_sorted_by(|a, b| a.wrapping_add(1) == *b),
            "each counter once, in order: {counters:?}"
        );
        assert_eq!(b.open(A, &sealed).1, packets);
    }
    let bytes: usize = packets.iter().map(Vec::len).sum();
    assert_eq!(
        a.counters.sent_bytes.load(Ordering::Relaxed),
        b.counters.received_bytes.load(Ordering::Relaxed)
    );
    assert!(a.counters.sent_bytes.load(Ordering::Relaxed) >= 2 * bytes as u64);
}

#[test]
fn packets_that_waited_go_with_those_that_come_then() {
    let (mut a, mut b) = pair(None);
    let packets = many();
    let initiation = a.seal(&packets);
    let (response, _) = b.open(A, &initiation);
    let (sealed, _) = a.open(B, &response);
    assert_eq!(b.open(A, &sealed).1, packets);
    assert_eq!(a.drops(Dropped::NoSession), 0);
}

#[test]
fn what_is_forged_or_late_is_missing_and_nothing_else() {
    let (mut a, mut b) = connected();
    let packets: Vec<Vec<u8>> = (0..60).map(|number| inner(number, 500)).collect();
    let mut sealed = a.seal(&packets);
    for forged in [0, 15, 16, 33, 59] {
        sealed[forged][100] ^= 0x10;
    }
    sealed.insert(50, sealed[20].clone());
    sealed.swap(3, 40);
    let mut expected: Vec<Vec<u8>> = packets.clone();
    expected.swap(3, 40);
    expected.retain(|packet| ![0, 15, 16, 33, 59].contains(&packet[5]));
    assert_eq!(b.open(A, &sealed).1, expected);
    assert_eq!((b.drops(Dropped::DecryptFailed), b.drops(Dropped::Replayed)), (5, 1));
    assert_eq!(b.open(A, &sealed).1, Vec::<Vec<u8>>::new(), "all of it was seen");
}

/// A packet that may break while it is written.
struct Fragile {
    bytes: Vec<u8>,
    breaks: bool,
}

impl Plaintext for Fragile {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn write(&self, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes);
        assert!(!self.breaks, "on purpose");
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }
}

#[test]
fn a_panic_leaves_no_plaintext_to_send_and_uses_no_counter_twice() {
    let (a, mut b) = connected();
    let mut out = Outbox::new();
    let mut send = |numbers: std::ops::Range<u8>, breaks: bool| {
        let last = numbers.end - 1;
        let batch = numbers.map(|n| Fragile { bytes: inner(n, 100), breaks: breaks && n == last });
        let sealing = AssertUnwindSafe(|| a.peer.seal(batch, a.now, &mut out));
        assert_eq!(catch_unwind(sealing).is_err(), breaks);
        datagrams(&out)
    };
    let before = send(0..20, true);
    assert_eq!(before.len(), 16, "those that were sealed already");
    let all = send(20..22, false);
    assert_eq!(all[..16], before);
    let counters: Vec<u8> = all.iter().map(|datagram| datagram[8]).collect();
    assert!(counters.is_sorted_by(|a, b| a < b), "{counters:?}");
    assert_eq!(b.open(A, &all).1, (0..16).chain(20..22).map(|n| inner(n, 100)).collect::<Vec<_>>());
    assert!(all.iter().all(|datagram| datagram.len() == 128 + OVERHEAD));
}
