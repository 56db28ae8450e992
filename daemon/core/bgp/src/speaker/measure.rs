//! Time and memory of a table passing through: `cargo test -p isthmus-bgp --release -- --ignored --nocapture measure`.

use std::{fs, time::Duration};

use super::{net::*, *};
use crate::{
    Families,
    wire::{AsPath, Attributes, Encoding, Nlri, Open, encode_announcement, encode_withdrawal},
};

const PREFIXES: u32 = 100_000;
/// Prefixes with the same attributes.
const SET: u32 = 10;

fn prefixes(first: u32, count: u32) -> Vec<Nlri> {
    let net =
        |n: u32| IpNet::new(std::net::Ipv4Addr::from(0x1400_0000 + (n << 8)).into(), 24).unwrap().into();
    (first..first + count).map(net).collect()
}

fn announcements() -> Vec<u8> {
    let mut bytes = Vec::new();
    for set in 0..PREFIXES / SET {
        let mut attributes = Attributes::originated(v4(50).into());
        attributes.as_path = AsPath::new(vec![65_050, 100 + set, 3000]);
        encode_announcement(&attributes, &prefixes(set * SET, SET), &Encoding::FOUR_OCTET, &mut bytes)
            .unwrap();
    }
    bytes
}

fn withdrawals() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = prefixes(0, PREFIXES);
    while !rest.is_empty() {
        let count = encode_withdrawal(&rest, &Encoding::FOUR_OCTET, &mut bytes).unwrap();
        rest.drain(..count);
    }
    bytes
}

fn join(speaker: &mut Speaker, n: usize, asn: u32, now: Instant) -> ConnectionId {
    let connection = speaker.handle_accepted(v4(n).into(), own(0), now).unwrap();
    let mut bytes = Vec::new();
    Open::new(asn, 0, v4(n), Families::ALL).encode(&mut bytes).unwrap();
    encode_keepalive(&mut bytes);
    speaker.handle_bytes(connection, &bytes, now);
    while speaker.poll_transmit(connection, &mut Vec::new()) {}
    connection
}

/// Feeds it in pieces as a socket does, and takes what there is for the listener after each.
fn pass(
    speaker: &mut Speaker,
    from: ConnectionId,
    to: ConnectionId,
    bytes: &[u8],
    now: Instant,
) -> (Duration, usize) {
    let started = processor_time();
    let mut sent = 0;
    let mut out = Vec::new();
    for piece in bytes.chunks(64 * 1024) {
        speaker.handle_bytes(from, piece, now);
        while speaker.poll_transmit(to, &mut out) {
            sent += out.len();
            out.clear();
        }
        while speaker.poll_transmit(from, &mut Vec::new()) {}
        speaker.take_changed();
        while speaker.poll_event().is_some() {}
    }
    (processor_time() - started, sent)
}

/// What this thread has worked so far: others may be busy on this machine.
fn processor_time() -> Duration {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(statistics.split(' ').next().unwrap().parse().unwrap())
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
#[ignore = "measures, and asserts nothing about time"]
fn measure() {
    let now = Instant::now();
    let peers = vec![peer(50, 65_050), peer(51, 65_051)];
    let mut speaker = Speaker::new(config(0, 65_001, &[], peers), 1, now);
    let from = join(&mut speaker, 50, 65_050, now);
    let to = join(&mut speaker, 51, 65_051, now);
    let (announced, withdrawn) = (announcements(), withdrawals());
    let idle = resident();
    for round in 1..=5 {
        let (load, bytes) = pass(&mut speaker, from, to, &announced, now);
        assert_eq!(speaker.status()[1].prefixes_sent, usize::try_from(PREFIXES).unwrap());
        let each = resident().saturating_sub(idle) / u64::from(PREFIXES);
        let (gone, _) = pass(&mut speaker, from, to, &withdrawn, now);
        assert_eq!(speaker.prefixes().count(), 0);
        println!(
            "round {round}: loaded in {load:?} ({} ns a prefix, {bytes} bytes out), {each} bytes a prefix, withdrawn in {gone:?} ({} ns)",
            load.as_nanos() / u128::from(PREFIXES),
            gone.as_nanos() / u128::from(PREFIXES),
        );
    }
}
