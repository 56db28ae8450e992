//! A batch out of the tunnel: every packet is in one group, packets with the same addresses and ports keep their order, and a group
//! cut again is its packets.
#![no_main]

use std::collections::HashMap;

use isthmus_tunnel::offload::merge::{Group, Merger, Rules};
use isthmus_tunnel::offload::split::split;
use isthmus_tunnel::offload::vnet::VnetHeader;
use isthmus_tunnel::packet;
use isthmus_tunnel::plaintext::Plaintext;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((rules, rest)) = data.split_first() else { return };
    let bit = |bit: u8| rules >> bit & 1 == 1;
    let rules = Rules { tcp: bit(0), udp: bit(1), verify: bit(2), tunnels: bit(3) };
    let packets = packets(rest);
    let mut merger = Merger::new(rules);
    let mut out = Vec::new();
    for group in merger.merge(&packets) {
        out.extend(group.packets());
        check(&group, rules.verify);
    }
    assert_eq!(flows(&packets), flows(&out), "no flow is reordered, no packet lost");
});

/// The batch: a length of two bytes before each; cut to what the IP header says, as the tunnel does.
fn packets(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut packets = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(after.len().min(u16::from_be_bytes(*length).into()));
        packets.push(packet::parse(bytes).map_or(bytes, |packet| packet.bytes));
        rest = after;
    }
    packets
}

fn flows<'a>(packets: &[&'a [u8]]) -> HashMap<Option<u64>, Vec<&'a [u8]>> {
    let mut flows: HashMap<_, Vec<_>> = HashMap::new();
    for bytes in packets {
        flows.entry(packet::parse(bytes).ok().map(|packet| packet.flow)).or_default().push(*bytes);
    }
    flows
}

fn check(group: &Group<'_, &[u8]>, verified: bool) {
    let mut burst = group.head.to_vec();
    group.payloads().for_each(|payload| burst.extend(payload));
    let pieces = split(VnetHeader::parse(group.vnet), &mut burst).expect("a group is a sound burst");
    assert_eq!(pieces.len(), group.count());
    for (piece, packet) in pieces.zip(group.packets()) {
        let mut bytes = vec![0; piece.len()];
        piece.write(&mut bytes);
        assert_eq!(
            without_numbers(&bytes, verified),
            without_numbers(packet, verified),
            "a group is its packets"
        );
    }
}

/// Without what merging may change: identifications where DF is set, absent checksums of UDP, and wrong ones if nobody looked.
fn without_numbers(packet: &[u8], verified: bool) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    let at = if packet.first().is_some_and(|first| first >> 4 == 4) { 20 } else { 40 };
    if at == 20 && bytes.len() > 20 && bytes[6] & 0x40 != 0 {
        bytes[4..6].fill(0);
        bytes[10..12].fill(0);
    }
    let udp = bytes.get(if at == 20 { 9 } else { 6 }) == Some(&17);
    let field = if udp { at + 6 } else { at + 16 };
    if bytes.len() >= field + 2 && (!verified || udp) {
        bytes[field..field + 2].fill(0);
    }
    bytes
}
