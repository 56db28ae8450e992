//! Batches of the cipher beside AWS-LC packet by packet: the same bytes sealed, the same packets accepted, whatever lengths and damage.
#![no_main]

use isthmus_aead::{Key, Packet, TAG};
use libfuzzer_sys::fuzz_target;

/// Key, first counter, and then for each run of packets: how many, their length, what damages one of them.
const HEAD: usize = 32 + 8;
const RUN: usize = 5;
/// Not to spend the time on few long inputs.
const PACKETS: usize = 64;

fuzz_target!(|data: &[u8]| {
    let Some((head, runs)) = data.split_first_chunk::<HEAD>() else { return };
    let (key, counter) = head.split_first_chunk().expect("32 bytes and more");
    let first = u64::from_le_bytes(*counter.first_chunk().expect("8 bytes"));
    let (fast, slow) = (Key::new(key), Key::portable(key));
    let mut plain: Vec<Vec<u8>> = Vec::new();
    for run in runs.chunks_exact(RUN) {
        let length = usize::from(u16::from_le_bytes([run[1], run[2]]) % 2100);
        for n in 0..run[0] % 40 {
            plain.push((0..length).map(|at| data[(at + usize::from(n)) % data.len()]).collect());
        }
    }
    plain.truncate(PACKETS);
    let (mut sealed, mut expected) = (plain.clone(), plain.clone());
    let done = outcomes(&mut sealed, first, |batch| fast.seal_batch(batch));
    assert_eq!(done, outcomes(&mut expected, first, |batch| slow.seal_batch(batch)));
    assert!(sealed == expected, "sealed otherwise than AWS-LC does");
    let packets = sealed.len();
    for run in runs.chunks_exact(RUN).filter(|_| packets > 0) {
        let packet = usize::from(run[0]) % packets;
        let at = usize::from(u16::from_le_bytes([run[3], run[1]]));
        if let Some(byte) = sealed[packet].get_mut(at) {
            *byte ^= run[4];
        }
    }
    expected.clone_from(&sealed);
    let good = outcomes(&mut sealed, first, |batch| fast.open_batch(batch));
    assert_eq!(good, outcomes(&mut expected, first, |batch| slow.open_batch(batch)));
    for ((good, opened), plain) in good.iter().zip(&sealed).zip(&plain).filter(|((good, _), _)| **good) {
        let length = plain.len() - TAG;
        assert!(*good && opened[..length] == plain[..length], "opened to something else");
    }
});

/// What became of each packet of a batch.
fn outcomes(packets: &mut [Vec<u8>], first: u64, act: impl Fn(&mut [Packet<'_>])) -> Vec<bool> {
    let counters = (0..).map(|n| first.wrapping_add(n));
    let mut batch: Vec<_> = counters.zip(packets).map(|(n, bytes)| Packet::new(n, bytes)).collect();
    act(&mut batch);
    batch.iter().map(|packet| packet.ok).collect()
}
