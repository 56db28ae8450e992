use std::hash::RandomState;

use proptest::prelude::*;

use super::*;
use crate::{
    receive::{Demux, Receiver},
    table::{Member, Table},
};

/// The receiving half of a node with one connected peer in slot 0.
struct Node {
    receiver: Receiver,
    demux: Demux,
    table: Table,
    end: End,
}

impl Node {
    /// Everything that happens to a datagram between the two sockets; what would be written to the TUN device.
    fn receive(&mut self, datagram: &[u8]) -> Result<Vec<Vec<u8>>, Dropped> {
        let (from, now) = (OuterPath::from(address(A)), self.end.now);
        let slot = self.receiver.classify(&self.demux, datagram, from, now, &mut Outbox::new())?;
        let (_, packets) = self.end.open(A, &[datagram.to_vec()]);
        let accept =
            |bytes: &Vec<u8>| packet::parse(bytes).is_ok_and(|p| self.table.is_feasible(p.source, slot));
        Ok(packets.into_iter().filter(accept).collect())
    }
}

/// (the far end, the node)
fn node() -> (End, Node) {
    let (a, end) = connected();
    let identity = Arc::new(Identity::new(StaticSecret::from([2; 32])));
    let receiver = Receiver::new(identity, [7; 32], [RandomState::new(), RandomState::new()], end.now);
    let demux = Demux::new([(PublicKey::from(&StaticSecret::from([1; 32])).to_bytes(), 2)]);
    let mut builder = Table::builder(vec![Member { key: 1, live: Arc::clone(&end.live) }]);
    builder.route("10.0.0.1/32".parse().unwrap(), &[0], &[]);
    (a, Node { receiver, demux, table: builder.build(), end })
}

#[test]
fn whole_receive_path_delivers_data_and_finds_the_initiator() {
    let (mut a, mut node) = node();
    let sealed = a.seal(&[inner(1, 5)]);
    assert_eq!(node.receive(&sealed[0]), Ok(vec![inner(1, 5)]));
    let mut spoofed = inner(1, 5);
    spoofed[15] = 9;
    let sealed = a.seal(&[spoofed]);
    assert_eq!(node.receive(&sealed[0]), Ok(vec![]));

    let mut restarted = End::new(1, 2, None);
    restarted.peer.set_endpoint(address(B));
    let initiation = restarted.seal(&[inner(0, 0)]);
    assert_eq!(node.receive(&initiation[0]), Ok(vec![]));
    let mut stranger = End::new(3, 2, None);
    stranger.peer.set_endpoint(address(B));
    let initiation = stranger.seal(&[inner(0, 0)]);
    assert_eq!(node.receive(&initiation[0]), Err(Dropped::UnknownPeer));
}

/// The receiver index of the session that this end sends under.
fn receiver_index(end: &mut End) -> [u8; 4] {
    *end.seal(&[inner(0, 0)])[0][4..].first_chunk().unwrap()
}

/// Writes an index where a message of this type has it.
fn address_to(datagram: &mut [u8], index: [u8; 4]) {
    let at = if datagram.first() == Some(&2) { 8 } else { 4 };
    if let Some(field) = datagram.get_mut(at..at + 4) {
        field.copy_from_slice(&index);
    }
}

#[test]
fn every_type_and_length_for_a_live_session() {
    let (mut a, mut node) = node();
    let index = receiver_index(&mut a);
    let before = node.end.peer.path();
    for length in 0..=200 {
        for kind in 0..=6 {
            let mut datagram = vec![0; length];
            datagram.first_mut().into_iter().for_each(|byte| *byte = kind);
            address_to(&mut datagram, index);
            assert_eq!(node.receive(&datagram).unwrap_or_default(), Vec::<Vec<u8>>::new());
            // Also past the classifier, which would not let most of them through.
            assert_eq!(node.end.open("203.0.113.66:1", &[datagram]), (vec![], vec![]));
        }
    }
    assert_eq!(node.end.peer.path(), before);
    let sealed = a.seal(&[inner(1, 5)]);
    assert_eq!(node.receive(&sealed[0]), Ok(vec![inner(1, 5)]));
}

#[test]
fn a_whole_batch_of_anything_is_sorted_out() {
    let (mut a, mut b) = connected();
    let sealed: Vec<Vec<u8>> = (0..6).map(|n| a.seal(&[inner(n, 20)]).remove(0)).collect();
    let mut forged = sealed[2].clone();
    forged[20] ^= 1;
    let mut strange = sealed[3].clone();
    strange[4] ^= 0xff;
    let batch: Vec<Vec<u8>> = [
        &sealed[0],
        &sealed[1],
        &sealed[0],
        &forged,
        &vec![],
        &sealed[2],
        &strange,
        &sealed[3],
        &vec![4; 31],
        &sealed[5],
        &sealed[4],
        &sealed[5],
    ]
    .map(Clone::clone)
    .to_vec();
    let (_, packets) = b.open(A, &batch);
    assert_eq!(packets, [0, 1, 2, 3, 5, 4].map(|n| inner(n, 20)));
    let drops = [Dropped::Replayed, Dropped::DecryptFailed, Dropped::UnknownIndex, Dropped::Malformed];
    assert_eq!(drops.map(|reason| b.drops(reason)), [2, 1, 1, 2]);
    assert_eq!(b.counters.received_packets.load(Ordering::Relaxed), 7);
    assert_eq!(b.counters.received_bytes.load(Ordering::Relaxed), 20 + 6 * 40);
}

#[test]
fn packets_late_by_8000_arrive_and_late_by_9000_not() {
    let (mut a, mut b) = connected();
    let mut sealed = a.seal(&(0..9001).map(|_| inner(1, 0)).collect::<Vec<_>>());
    let (first, second) = (sealed.remove(0), sealed.remove(0));
    assert_eq!(b.open(A, &sealed[..7999]).1.len(), 7999);
    assert_eq!(b.open(A, std::slice::from_ref(&second)).1, [inner(1, 0)], "late by 8000");
    assert_eq!(b.open(A, &sealed[7999..]).1.len(), 1000);
    assert_eq!(b.open(A, &[first]).1, Vec::<Vec<u8>>::new(), "late by 9000");
    assert_eq!(b.open(A, &[second]).1, Vec::<Vec<u8>>::new());
    assert_eq!(b.drops(Dropped::Replayed), 2);
}

/// 5000 initiations a second with a right MAC1 from as many addresses, while a peer connects and another one talks.
#[test]
fn a_good_peer_connects_through_a_flood() {
    let (mut talker, mut node) = node();
    let peer = |own, index| (PublicKey::from(&StaticSecret::from([own; 32])).to_bytes(), index);
    node.demux = Demux::new([peer(1, 2), peer(3, 99)]);
    let (mut newcomer, flood) = (End::new(3, 2, None), flood_message());
    newcomer.peer.set_endpoint(address(B));
    let home = OuterPath::from(address("192.0.2.77:51820"));
    let (mut admitted, mut challenged, mut arrived) = (0, 0, vec![]);
    for millisecond in 0..7000_u32 {
        for n in 0..5 {
            let source =
                SocketAddr::from((std::net::Ipv4Addr::from(0x0b00_0000 + millisecond * 5 + n), 1000));
            let verdict =
                node.receiver.classify(&node.demux, &flood, source.into(), node.end.now, &mut Outbox::new());
            admitted += u32::from(verdict != Err(Dropped::CookieRequired));
        }
        if millisecond % 100 == 0 {
            let sealed = talker.seal(&[inner(1, 5)]);
            assert_eq!(
                node.receive(&sealed[0]),
                Ok(vec![inner(1, 5)]),
                "those who are connected notice nothing"
            );
        }
        let calls = if millisecond == 500 { newcomer.seal(&[inner(0, 0)]) } else { newcomer.tick() };
        for call in calls {
            let mut out = Outbox::new();
            match node.receiver.classify(&node.demux, &call, home, node.end.now, &mut out) {
                Ok(slot) => arrived.push((slot, millisecond)),
                Err(reason) => {
                    assert_eq!(reason, Dropped::CookieRequired);
                    challenged += 1;
                }
            }
            newcomer.open(B, &datagrams(&out));
        }
        for end in [&mut talker, &mut node.end, &mut newcomer] {
            end.now.instant += Duration::from_millis(1);
        }
    }
    let &[(slot, at)] = arrived.as_slice() else { panic!("{arrived:?}") };
    assert_eq!((slot, challenged), (1, 1));
    assert!((5500..=5834).contains(&at), "its second initiation carries the cookie, at {at} ms");
    assert!(admitted <= 8 * crate::admission::UNPROVEN_PER_SECOND, "{admitted}");
    // A second after the flood nobody needs a cookie.
    node.end.now.instant += seconds(1);
    let stranger = OuterPath::from(address("192.0.2.78:51820"));
    let verdict = node.receiver.classify(&node.demux, &flood, stranger, node.end.now, &mut Outbox::new());
    assert_eq!(verdict, Err(Dropped::HandshakeFailed));
}

/// Looks like an initiation to whoever checks no more than MAC1.
fn flood_message() -> [u8; 148] {
    let mut message = [0x5a; 148];
    message[..4].copy_from_slice(&[1, 0, 0, 0]);
    let target = Identity::new(StaticSecret::from([2; 32]));
    crate::noise::cookie::Jar::default().stamp(&target.macs, &mut message, Instant::now());
    message
}

#[test]
fn threads_share_a_peer() {
    const EACH: usize = 500;
    let (a, mut b) = connected();
    let (now, peer) = (a.now, &a.peer);
    let outboxes: Vec<Outbox> = std::thread::scope(|scope| {
        let seal = |number| {
            move || {
                let mut out = Outbox::new();
                for _ in 0..EACH / 4 {
                    let packet = inner(number, 30);
                    peer.seal(
                        [Plain(&packet), Plain(&packet), Plain(&packet), Plain(&packet)].into_iter(),
                        now,
                        &mut out,
                    );
                }
                out
            }
        };
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(seal(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all: Vec<Vec<Vec<u8>>> = outboxes.iter().map(datagrams).collect();
    let b = &mut b;
    let opened: Vec<usize> = std::thread::scope(|scope| {
        let (peer, now) = (&b.peer, b.now);
        let open = |mut arrived: Vec<Vec<u8>>| {
            move || {
                let (mut out, mut inbox) = (Outbox::new(), Vec::new());
                let path = address(A).into();
                for run in arrived.chunks_mut(64) {
                    let batch = run.iter_mut().map(|bytes| Datagram { bytes, path, ecn: Ecn::NotEct });
                    peer.open(batch, |_| false, now, &mut out, &mut inbox);
                }
                inbox.len()
            }
        };
        // Each datagram arrives twice, on two threads.
        let threads: Vec<_> =
            [&all, &all].into_iter().flatten().map(|one| scope.spawn(open(one.clone()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(opened.iter().sum::<usize>(), 4 * EACH, "each counter once, and accepted once");
    assert_eq!(b.drops(Dropped::Replayed), 4 * EACH as u64);
}

/// Bytes that look like a message often enough to get past the first check, and whether they are for the connected session.
fn datagram() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let lengths = prop_oneof![Just(148), Just(92), Just(64), 28..200_usize, 0..2000_usize];
    (0..6_u8, lengths, any::<bool>()).prop_flat_map(|(kind, length, ours)| {
        proptest::collection::vec(any::<u8>(), length).prop_map(move |mut bytes| {
            if let Some(head) = bytes.first_chunk_mut() {
                *head = [kind, 0, 0, 0];
            }
            (bytes, ours)
        })
    })
}

proptest! {
    #[test]
    fn random_datagrams_never_panic_and_never_deliver(junk in proptest::collection::vec(datagram(), 1..20)) {
        let (mut a, mut node) = node();
        let index = receiver_index(&mut a);
        for (mut datagram, ours) in junk {
            if ours {
                address_to(&mut datagram, index);
            }
            prop_assert_eq!(node.receive(&datagram).unwrap_or_default(), Vec::<Vec<u8>>::new());
            prop_assert_eq!(node.end.open("203.0.113.66:1", &[datagram]), (vec![], vec![]));
        }
        let sealed = a.seal(&[inner(1, 5)]);
        prop_assert_eq!(node.receive(&sealed[0]), Ok(vec![inner(1, 5)]));
        prop_assert_eq!(node.end.peer.endpoint(), Some(address(A)));
    }

    #[test]
    fn altered_datagrams_never_deliver(position in 0..84_usize, bit in 0..8_u8, cut in 0..84_usize) {
        let (mut a, mut node) = node();
        let good = a.seal(&[inner(1, 32)]).remove(0);
        let mut flipped = good.clone();
        flipped[position] ^= 1 << bit;
        prop_assert_eq!(node.receive(&flipped).unwrap_or_default(), Vec::<Vec<u8>>::new());
        prop_assert_eq!(node.receive(&good[..cut]).unwrap_or_default(), Vec::<Vec<u8>>::new());
        prop_assert_eq!(node.receive(&good), Ok(vec![inner(1, 32)]));
    }

    #[test]
    fn decrypted_junk_never_panics(plain in proptest::collection::vec(any::<u8>(), 0..100)) {
        let (mut a, mut node) = node();
        let sealed = a.seal(&[plain]);
        for packet in node.receive(&sealed[0]).unwrap_or_default() {
            prop_assert!(packet::parse(&packet).is_ok());
        }
    }
}
