use proptest::prelude::*;

use super::*;
use crate::testing::{Tcp, Udp, assert_valid, naive_sum, seed};

/// Header and bytes as the kernel hands over a burst.
fn burst(mut packet: Vec<u8>, at: usize, gso_type: u8, gso_size: u16) -> (VnetHeader, Vec<u8>) {
    let udp = gso_type == vnet::GSO_UDP_L4;
    let csum_offset = if udp { 6 } else { 16 };
    seed(&mut packet, at, if udp { UDP } else { TCP }, usize::from(csum_offset));
    // On forwarded traffic, hdr_len is whatever lay in the first buffer.
    let header = VnetHeader {
        flags: vnet::NEEDS_CSUM,
        gso_type,
        hdr_len: 9999,
        gso_size,
        csum_start: u16::try_from(at).unwrap(),
        csum_offset,
    };
    (header, packet)
}

fn tcp_type(tcp: &Tcp) -> u8 {
    if tcp.v6 { vnet::GSO_TCPV6 } else { vnet::GSO_TCPV4 }
}

fn tcp_at(tcp: &Tcp) -> usize {
    if tcp.v6 { 40 + tcp.extensions.as_ref().map_or(0, |(_, bytes)| bytes.len()) } else { 20 }
}

fn written(header: VnetHeader, packet: &mut [u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let segments = split(header, packet)?;
    let promised = segments.len();
    let all: Vec<_> = segments
        .map(|segment| {
            let mut bytes = vec![0xaa; segment.len()];
            segment.write(&mut bytes);
            assert_eq!(segment.ecn(), Ecn::of(&bytes));
            bytes
        })
        .collect();
    assert_eq!(all.len(), promised);
    Ok(all)
}

/// The segments of `tcp`, each built from scratch.
fn expected_tcp(tcp: &Tcp, size: usize) -> Vec<Vec<u8>> {
    let count = tcp.payload.len().div_ceil(size).max(1);
    let one = |index: usize| {
        let last = index + 1 == count;
        let mut flags = tcp.flags;
        flags &= if last { 0xff } else { !(FIN | PSH) };
        flags &= if index == 0 { 0xff } else { !CWR };
        let end = tcp.payload.len().min((index + 1) * size);
        Tcp {
            id: tcp.id.wrapping_add(u16::try_from(index).unwrap()),
            seq: tcp.seq.wrapping_add(u32::try_from(index * size).unwrap()),
            flags,
            payload: tcp.payload[index * size..end].to_vec(),
            ..tcp.clone()
        }
        .build()
    };
    (0..count).map(one).collect()
}

fn any_tcp() -> impl Strategy<Value = Tcp> {
    let extensions = prop_oneof![
        3 => Just(None),
        1 => Just(Some((0, vec![TCP, 0, 1, 4, 0, 0, 0, 0]))),
        1 => Just(Some((60, [vec![51, 0, 1, 4, 0, 0, 0, 0], vec![TCP, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]].concat()))),
    ];
    let payload = proptest::collection::vec(any::<u8>(), 0..5000);
    let options = (0_usize..=10).prop_flat_map(|words| proptest::collection::vec(any::<u8>(), words * 4));
    let numbers = (any::<u16>(), any::<u32>(), any::<u32>(), any::<u16>());
    (any::<(bool, u8, u8, bool, u8)>(), numbers, options, payload, extensions).prop_map(
        |((v6, tos, ttl, df, flags), (id, seq, ack, window), options, payload, extensions)| Tcp {
            v6,
            tos,
            ttl,
            df,
            flags,
            id,
            seq,
            ack,
            window,
            options,
            payload,
            extensions: extensions.filter(|_| v6),
            ..Tcp::default()
        },
    )
}

proptest! {
    #[test]
    fn tcp_bursts_become_the_segments_built_one_by_one(tcp in any_tcp(), size in 8_usize..2000) {
        let (header, mut packet) = burst(tcp.build(), tcp_at(&tcp), tcp_type(&tcp), u16::try_from(size).unwrap());
        let segments = written(header, &mut packet).unwrap();
        for segment in &segments {
            assert_valid(segment, tcp_at(&tcp), TCP);
        }
        prop_assert_eq!(segments, expected_tcp(&tcp, size));
    }

    #[test]
    fn udp_bursts_become_the_datagrams_built_one_by_one(
        v6: bool, tos: u8, id: u16, payload in proptest::collection::vec(any::<u8>(), 1..5000), size in 3_usize..2000,
    ) {
        let udp = Udp { v6, tos, id, payload, ..Udp::default() };
        let at = if v6 { 40 } else { 20 };
        let (header, mut packet) = burst(udp.build(), at, vnet::GSO_UDP_L4, u16::try_from(size).unwrap());
        let segments = written(header, &mut packet).unwrap();
        let parts = udp.payload.chunks(size).enumerate();
        let expected: Vec<_> = parts
            .map(|(index, part)| {
                let id = id.wrapping_add(u16::try_from(index).unwrap());
                Udp { id, payload: part.to_vec(), ..udp.clone() }.build()
            })
            .collect();
        for segment in &segments {
            assert_valid(segment, at, UDP);
        }
        prop_assert_eq!(segments, expected);
    }

    #[test]
    fn partial_checksums_are_completed_anywhere(
        outer in 0_usize..80, v6: bool, payload in proptest::collection::vec(any::<u8>(), 0..200), tcp: bool,
    ) {
        let (inner, at, protocol, offset) = if tcp {
            (Tcp { v6, payload, ..Tcp::default() }.build(), if v6 { 40 } else { 20 }, TCP, 16)
        } else {
            (Udp { v6, payload, ..Udp::default() }.build(), if v6 { 40 } else { 20 }, UDP, 6)
        };
        let mut partial = inner.clone();
        seed(&mut partial, at, protocol, offset);
        let mut packet = [vec![0x45; outer], partial].concat();
        let header = VnetHeader {
            flags: vnet::NEEDS_CSUM,
            csum_start: u16::try_from(outer + at).unwrap(),
            csum_offset: u16::try_from(offset).unwrap(),
            ..VnetHeader::default()
        };
        let expected = [vec![0x45; outer], inner].concat();
        prop_assert_eq!(written(header, &mut packet).unwrap(), [expected]);
    }

    #[test]
    fn without_a_request_nothing_is_touched(bytes in proptest::collection::vec(any::<u8>(), 0..200), flags: u8, start: u16) {
        let header = VnetHeader { flags: flags & !vnet::NEEDS_CSUM, csum_start: start, ..VnetHeader::default() };
        prop_assert_eq!(written(header, &mut bytes.clone()).unwrap(), [bytes]);
    }

    #[test]
    fn random_headers_and_bytes_never_panic(
        header: [u8; vnet::LENGTH], mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0_u8..7,
    ) {
        let mut header = VnetHeader::parse(header);
        header.gso_type = kind;
        let _ = written(header, &mut bytes);
    }

    #[test]
    fn damaged_bursts_never_panic(tcp in any_tcp(), size: u16, at: usize, value: u8, cut: usize, flags: u8) {
        let (mut header, mut packet) = burst(tcp.build(), tcp_at(&tcp), tcp_type(&tcp), size);
        header.flags = flags;
        let length = packet.len();
        packet[at % length.min(100)] = value;
        packet.truncate(length - (cut % length) % 100);
        let _ = written(header, &mut packet);
    }
}

#[test]
fn a_udp_sum_of_zero_is_sent_as_all_ones() {
    // The payload is chosen so that the sum over everything else and it is 0xffff.
    for v6 in [false, true] {
        let at = if v6 { 40 } else { 20 };
        let first = Udp { v6, payload: vec![0; 4], ..Udp::default() }.build();
        let payload = [first[at + 6], first[at + 7], 0, 0].repeat(2);
        let udp = Udp { v6, payload, ..Udp::default() };
        let (header, mut packet) = burst(udp.build(), at, vnet::GSO_UDP_L4, 4);
        for segment in written(header, &mut packet).unwrap() {
            assert_eq!(segment[at + 6..at + 8], [0xff, 0xff]);
            assert_valid(&segment, at, UDP);
        }
        let one = Udp { v6, payload: udp.payload[..4].to_vec(), ..Udp::default() };
        let (mut header, mut packet) = burst(one.build(), at, vnet::GSO_UDP_L4, 4);
        header.gso_type = vnet::GSO_NONE;
        assert_eq!(written(header, &mut packet).unwrap()[0][at + 6..at + 8], [0xff, 0xff]);
    }
}

#[test]
fn a_tcp_sum_of_zero_stays_zero() {
    let first = Tcp { payload: vec![0; 4], ..Tcp::default() }.build();
    let tcp = Tcp { payload: vec![first[36], first[37], 0, 0], ..Tcp::default() };
    let (header, mut packet) = burst(tcp.build(), 20, vnet::GSO_TCPV4, 4);
    assert_eq!(written(header, &mut packet.clone()).unwrap()[0][36..38], [0, 0]);
    let whole = VnetHeader { gso_type: vnet::GSO_NONE, ..header };
    assert_eq!(written(whole, &mut packet).unwrap()[0][36..38], [0, 0]);
}

#[test]
fn a_checksum_the_kernel_verified_needs_no_seed() {
    let tcp = Tcp { payload: (0..100).collect(), ..Tcp::default() };
    let header = VnetHeader {
        flags: vnet::DATA_VALID,
        gso_type: vnet::GSO_TCPV4,
        gso_size: 40,
        ..VnetHeader::default()
    };
    assert_eq!(written(header, &mut tcp.build()).unwrap(), expected_tcp(&tcp, 40));
    let neither = VnetHeader { flags: 0, ..header };
    assert_eq!(written(neither, &mut tcp.build()), Err(Malformed::Unverified));
}

#[test]
fn the_final_destination_behind_a_routing_header_is_that_of_the_seed() {
    let routing = vec![TCP, 2, 4, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    let tcp =
        Tcp { v6: true, extensions: Some((43, routing)), payload: (0..100).collect(), ..Tcp::default() };
    let mut packet = tcp.build();
    // The packet was summed for the address it is finally for; afterwards its header names the next hop.
    let (header, mut partial) = burst(packet.clone(), 64, vnet::GSO_TCPV6, 40);
    for bytes in [&mut packet, &mut partial] {
        bytes[24..40].fill(0x33);
    }
    for mut segment in written(header, &mut partial).unwrap() {
        assert_eq!(segment[24..40], [0x33; 16]);
        segment[24..40].fill(0xfe);
        assert_valid(&segment, 64, TCP);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let tcp = Tcp { payload: vec![5; 3000], ..Tcp::default() };
    let (good, packet) = burst(tcp.build(), 20, vnet::GSO_TCPV4, 1000);
    let refused = |header: VnetHeader, change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = packet.clone();
        change(&mut packet);
        written(header, &mut packet).unwrap_err()
    };
    let none = |_: &mut Vec<u8>| {};
    assert_eq!(refused(VnetHeader { gso_size: 0, ..good }, &none), Malformed::ZeroSize);
    assert_eq!(refused(VnetHeader { gso_size: 1, ..good }, &none), Malformed::Segments(3000));
    assert_eq!(refused(VnetHeader { gso_type: vnet::GSO_UDP, ..good }, &none), Malformed::Type(3));
    let mismatch = |gso_type| Malformed::Mismatch { gso_type, version: 4, protocol: TCP };
    for gso_type in [vnet::GSO_TCPV6, vnet::GSO_UDP_L4] {
        assert_eq!(refused(VnetHeader { gso_type, ..good }, &none), mismatch(gso_type));
    }
    let checksum = |start, offset| Malformed::Checksum { start, offset, have: 3040 };
    assert_eq!(refused(VnetHeader { csum_start: 24, ..good }, &none), checksum(24, 16));
    assert_eq!(refused(VnetHeader { csum_offset: 6, ..good }, &none), checksum(20, 6));
    let single = VnetHeader { gso_type: vnet::GSO_NONE, ..good };
    assert_eq!(refused(VnetHeader { csum_start: 3023, ..single }, &none), checksum(3023, 16));
    assert_eq!(
        refused(VnetHeader { csum_start: 65_535, csum_offset: 65_535, ..single }, &none),
        checksum(65_535, 65_535)
    );
    assert_eq!(refused(good, &|packet| packet.truncate(3039)), Malformed::Length { says: 3040, have: 3039 });
    assert_eq!(refused(good, &|packet| packet.clear()), Malformed::Ip(0));
    assert_eq!(refused(good, &|packet| packet[6] = 0x20), Malformed::Fragment);
    assert_eq!(refused(good, &|packet| packet[32] = 0x40), Malformed::Transport { at: 20, have: 3040 });
}

#[test]
fn the_largest_bursts_of_the_kernel_are_cut() {
    for v6 in [false, true] {
        let headers = if v6 { 60 } else { 40 };
        let tcp = Tcp {
            v6,
            seq: u32::MAX - 9000,
            id: 65_500,
            payload: vec![9; 65_535 - headers],
            ..Tcp::default()
        };
        let (header, mut packet) = burst(tcp.build(), headers - 20, tcp_type(&tcp), 36);
        assert_eq!(written(header, &mut packet).unwrap(), expected_tcp(&tcp, 36));
    }
}

#[test]
fn the_naive_model_sees_a_wrong_checksum() {
    let mut packet = Tcp { payload: vec![1; 9], ..Tcp::default() }.build();
    packet[45] ^= 1;
    assert_ne!(crate::testing::naive_transport_sum(&packet, 20, TCP), 0xffff);
    assert_eq!(naive_sum(&packet[..20]), 0xffff);
}
