//! Batches beside AWS-LC called packet by packet.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use isthmus_aead::{Key, Packet, TAG};
use proptest::prelude::*;

/// Counters near their ends, and any.
fn counter() -> impl Strategy<Value = u64> {
    prop_oneof![0..3_u64, u64::MAX - 130..=u64::MAX - 100, (1 << 32) - 50..(1_u64 << 32), any::<u64>()]
}

/// Lengths of the packets of a batch: all the same, in runs, or mixed.
fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let equal = (1..=100_usize, 0..=2000_usize).prop_map(|(count, length)| vec![length; count]);
    let runs = prop::collection::vec((1..=20_usize, 0..=300_usize), 1..6)
        .prop_map(|runs| runs.into_iter().flat_map(|(count, length)| vec![length; count]).collect());
    let long = (1..=20_usize, 2000..=65_535_usize).prop_map(|(count, length)| vec![length; count]);
    prop_oneof![4 => equal, 3 => runs, 2 => prop::collection::vec(0..=2000_usize, 1..=40), 1 => long]
}

/// Packets with room for a tag, and something in them that depends on the seed.
fn packets(lengths: &[usize], seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    lengths.iter().map(|length| (0..length + TAG).map(|_| byte()).collect()).collect()
}

fn batch(packets: &mut [Vec<u8>], first: u64) -> Vec<Packet<'_>> {
    packets.iter_mut().zip(0..).map(|(bytes, i)| Packet::new(first.wrapping_add(i), bytes)).collect()
}

/// What RFC 8439 makes of the packets, according to AWS-LC.
fn oracle(key: &[u8; 32], first: u64, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("32 bytes"));
    let sealed = packets.iter().zip(0..).map(|(packet, i)| {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&first.wrapping_add(i).to_le_bytes());
        let mut plain = packet[..packet.len() - TAG].to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut plain)
            .expect("short");
        plain
    });
    sealed.collect()
}

fn all_ok(packets: &[Packet<'_>]) -> bool {
    packets.iter().all(|packet| packet.ok)
}

fn check(key: &[u8; 32], first: u64, lengths: &[usize]) {
    let plain = packets(lengths, first);
    let expected = oracle(key, first, &plain);
    for key in [Key::new(key), Key::portable(key)] {
        let mut bytes = plain.clone();
        let mut sealed = batch(&mut bytes, first);
        key.seal_batch(&mut sealed);
        assert!(all_ok(&sealed));
        assert!(bytes == expected, "sealed from {first}: {lengths:?}");
        let mut opened = batch(&mut bytes, first);
        key.open_batch(&mut opened);
        assert!(all_ok(&opened), "opened from {first}: {lengths:?}");
        for (bytes, plain) in bytes.iter().zip(&plain) {
            assert!(bytes[..bytes.len() - TAG] == plain[..plain.len() - TAG], "from {first}: {lengths:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_batch_is_what_its_packets_are(key: [u8; 32], first in counter(), lengths in lengths()) {
        check(&key, first, &lengths);
    }
}

#[test]
fn every_small_length_and_every_size_of_batch() {
    for count in 1..=33 {
        for length in (0..=140).chain([1420, 1424]) {
            check(&[9; 32], u64::MAX - 8, &vec![length; count]);
        }
    }
}

#[test]
fn around_the_longest_of_a_batch() {
    for length in [65_519, 65_520, 65_521, 65_535] {
        check(&[3; 32], 1, &[length; 5]);
    }
}

#[test]
fn a_single_packet_is_the_same_alone() {
    let key = Key::new(&[5; 32]);
    let mut bytes = packets(&[77; 8], 1);
    key.seal_batch(&mut batch(&mut bytes, 40));
    for (counter, bytes) in (40..).zip(&mut bytes) {
        let mut again = packets(&[77; 8], 1)[usize::try_from(counter - 40).unwrap()].clone();
        assert!(key.seal(counter, &mut again) && again == *bytes);
        assert!(!key.open(counter + 1, &mut bytes.clone()));
        assert!(key.open(counter, bytes));
    }
}

/// Every bit of every packet counts, and only for its packet.
#[test]
fn a_flipped_bit_is_refused_and_nothing_else() {
    for (count, length) in
        [(16, 0), (16, 1), (3, 15), (16, 16), (5, 17), (9, 33), (16, 64), (20, 65), (2, 40)]
    {
        let plain = packets(&vec![length; count], 7);
        let sealed = oracle(&[8; 32], 0, &plain);
        for key in [Key::new(&[8; 32]), Key::portable(&[8; 32])] {
            for bit in 0..(length + TAG) * 8 {
                let at = bit % count;
                let mut bytes = sealed.clone();
                bytes[at][bit / 8] ^= 1 << (bit % 8);
                let mut opened = batch(&mut bytes, 0);
                key.open_batch(&mut opened);
                for (i, packet) in opened.iter().enumerate() {
                    assert_eq!(packet.ok, i != at, "bit {bit} of packet {at} of {count} x {length}");
                    let right = packet.bytes[..length] == plain[i][..length];
                    assert!(packet.ok == right || length == 0, "what is refused is not readable");
                }
            }
        }
    }
}

#[test]
fn another_counter_is_refused() {
    let plain = packets(&[50; 16], 2);
    for first in [0, 1 << 32, u64::MAX - 20] {
        let mut bytes = oracle(&[1; 32], first, &plain);
        let mut opened = batch(&mut bytes, first);
        opened[3].counter ^= 1 << 40;
        opened[15].counter ^= 1;
        Key::new(&[1; 32]).open_batch(&mut opened);
        let refused: Vec<usize> = (0..16).filter(|i| !opened[*i].ok).collect();
        assert_eq!(refused, [3, 15]);
    }
}

#[test]
fn without_room_for_a_tag_there_is_nothing_to_seal_or_open() {
    for key in [Key::new(&[1; 32]), Key::portable(&[1; 32])] {
        for length in 0..TAG {
            let mut bytes = vec![vec![7; length]; 8];
            bytes.extend(packets(&[0; 8], 1));
            let mut batch = batch(&mut bytes, 0);
            key.seal_batch(&mut batch);
            assert!(batch.iter().enumerate().all(|(i, packet)| packet.ok == (i >= 8)));
            key.open_batch(&mut batch);
            assert!(batch.iter().enumerate().all(|(i, packet)| packet.ok == (i >= 8)));
            assert!(!key.seal(0, &mut vec![0; length]) && !key.open(0, &mut vec![0; length]));
        }
        key.seal_batch(&mut []);
        key.open_batch(&mut []);
    }
}
