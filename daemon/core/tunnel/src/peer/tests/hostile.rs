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

/// Bytes that look like a message often enough to get past the first check.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let lengths = prop_oneof![Just(148), Just(92), Just(64), 28..200_usize, 0..2000_usize];
    (0..6_u8, lengths, any::<bool>()).prop_flat_map(|(kind, length, ours)| {
        proptest::collection::vec(any::<u8>(), length).prop_map(move |mut bytes| {
            if let Some(head) = bytes.first_chunk_mut() {
                *head = [kind, 0, 0, 0];
            }
            // Receiver index of the connected session.
            if ours && bytes.len() > 8 {
                let at = if kind == 2 { 8 } else { 4 };
                bytes[at..at + 4.min(length - at)].copy_from_slice(&[1, 2, 0, 0][..4.min(length - at)]);
            }
            bytes
        })
    })
}

proptest! {
    #[test]
    fn random_datagrams_never_panic_and_never_deliver(junk in proptest::collection::vec(datagram(), 1..20)) {
        let (mut a, mut node) = node();
        for datagram in &junk {
            prop_assert_eq!(node.receive(datagram).unwrap_or_default(), Vec::<Vec<u8>>::new());
        }
        let sealed = a.seal(&[inner(1, 5)]);
        prop_assert_eq!(node.receive(&sealed[0]), Ok(vec![inner(1, 5)]));
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
