use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::testing::{Tcp, Udp, naive_sum, naive_transport_sum};

/// A group as the bytes of its write.
fn written<P: AsRef<[u8]>>(group: &Group<'_, P>) -> (VnetHeader, Vec<u8>) {
    let mut bytes = group.head.to_vec();
    group.payloads().for_each(|payload| bytes.extend(payload));
    (VnetHeader::parse(group.vnet), bytes)
}

/// Cuts a burst as the kernel would, one byte field after the other.
fn cut(header: VnetHeader, burst: &[u8]) -> Vec<Vec<u8>> {
    if header.gso_type == vnet::GSO_NONE {
        assert_eq!(header, VnetHeader::default());
        return vec![burst.to_vec()];
    }
    let (at, head) = (usize::from(header.csum_start), usize::from(header.hdr_len));
    let offset = at + usize::from(header.csum_offset);
    let protocol = if header.csum_offset == 16 { TCP } else { UDP };
    check_burst(header, burst, at, protocol);
    let count = (burst.len() - head).div_ceil(usize::from(header.gso_size));
    let chunks = burst[head..].chunks(usize::from(header.gso_size)).enumerate();
    chunks
        .map(|(index, payload)| {
            let mut packet = [&burst[..head], payload].concat();
            let total = u16::try_from(packet.len()).unwrap();
            if at == 20 {
                packet[2..4].copy_from_slice(&total.to_be_bytes());
                let id = u16::from_be_bytes([burst[4], burst[5]]).wrapping_add(u16::try_from(index).unwrap());
                packet[4..6].copy_from_slice(&id.to_be_bytes());
                packet[10..12].fill(0);
                let sum = !naive_sum(&packet[..20]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            } else {
                packet[4..6].copy_from_slice(&(total - 40).to_be_bytes());
            }
            if protocol == TCP {
                let seq = u32::from_be_bytes([burst[at + 4], burst[at + 5], burst[at + 6], burst[at + 7]]);
                let seq = seq.wrapping_add(u32::try_from(index * usize::from(header.gso_size)).unwrap());
                packet[at + 4..at + 8].copy_from_slice(&seq.to_be_bytes());
                packet[at + 13] &= if index + 1 == count { 0xff } else { !0x09 };
            } else {
                packet[at + 4..at + 6].copy_from_slice(&(total - u16::try_from(at).unwrap()).to_be_bytes());
            }
            packet[offset..offset + 2].fill(0);
            let sum = match !naive_transport_sum(&packet, at, protocol) {
                0 if protocol == UDP => 0xffff,
                sum => sum,
            };
            packet[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
            packet
        })
        .collect()
}

/// What the kernel demands of a burst.
fn check_burst(header: VnetHeader, burst: &[u8], at: usize, protocol: u8) {
    assert_eq!(header.flags, vnet::NEEDS_CSUM);
    let v6 = burst[0] >> 4 == 6;
    let expected = match (protocol, v6) {
        (UDP, _) => vnet::GSO_UDP_L4,
        (_, false) => vnet::GSO_TCPV4,
        (_, true) => vnet::GSO_TCPV6,
    };
    assert_eq!(header.gso_type, expected);
    assert!(
        burst.len() > usize::from(header.hdr_len) + usize::from(header.gso_size),
        "a burst has two segments"
    );
    assert!(burst.len() <= 65_535);
    if !v6 {
        assert_eq!(usize::from(u16::from_be_bytes([burst[2], burst[3]])), burst.len());
        assert_eq!(naive_sum(&burst[..20]), 0xffff);
    }
    let mut seeded = burst.to_vec();
    crate::testing::seed(&mut seeded, at, protocol, usize::from(header.csum_offset));
    assert_eq!(burst, seeded, "the field holds the sum of the pseudo header");
}

/// What merging may change in a packet that becomes part of a burst.
fn normalised(packets: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    packets
        .map(|mut packet| {
            let v4 = packet.len() >= 28 && packet[0] == 0x45;
            if v4 && packet[6] & 0x40 != 0 {
                packet[4..6].fill(0);
                packet[10..12].fill(0);
            }
            if v4 && packet[9] == UDP && packet[26..28] == [0, 0] && packet[6] & 0x3f == 0 && packet[7] == 0 {
                let sum = match !naive_transport_sum(&packet, 20, UDP) {
                    0 => 0xffff,
                    sum => sum,
                };
                packet[26..28].copy_from_slice(&sum.to_be_bytes());
            }
            packet
        })
        .collect()
}

/// Merges, cuts each group, and checks that each flow has its packets in their order. Returns the sizes of the groups.
fn check(rules: Rules, packets: &[Vec<u8>]) -> Vec<usize> {
    let mut merger = Merger::new(rules);
    let mut sizes = Vec::new();
    for _ in 0..2 {
        sizes.clear();
        let mut out = Vec::new();
        for group in merger.merge(packets) {
            let (header, bytes) = written(&group);
            let pieces = cut(header, &bytes);
            assert_eq!(pieces.len(), group.count());
            assert_eq!(
                normalised(pieces.into_iter()),
                normalised(group.packets().map(<[u8]>::to_vec)),
                "a cut group is its packets"
            );
            sizes.push(group.count());
            out.extend(group.packets().map(<[u8]>::to_vec));
        }
        assert_eq!(flows(packets), flows(&out), "no flow is reordered, no packet lost");
    }
    sizes
}

/// Packets by what every one of a flow shares, fragments included: addresses and protocol, and ports where all have them.
fn flows(packets: &[Vec<u8>]) -> HashMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows: HashMap<Vec<u8>, Vec<Vec<u8>>> = HashMap::new();
    for packet in packets {
        let key = match packet.first().map(|first| first >> 4) {
            Some(4) if packet.len() >= 24 => [&packet[9..10], &packet[12..24]].concat(),
            Some(6) if packet.len() >= 44 => [&packet[6..7], &packet[8..44]].concat(),
            _ => vec![],
        };
        flows.entry(key).or_default().push(packet.clone());
    }
    flows
}

fn tcp_run(base: &Tcp, sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut next = base.clone();
    let one = |size: &usize| {
        next.payload = (0..*size).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let packet = next.build();
        next.seq = next.seq.wrapping_add(u32::try_from(*size).unwrap());
        next.id = next.id.wrapping_add(1);
        packet
    };
    sizes.iter().map(one).collect()
}

fn udp_run(base: &Udp, sizes: &[usize]) -> Vec<Vec<u8>> {
    let ids = base.id..;
    sizes
        .iter()
        .zip(ids)
        .map(|(size, id)| Udp { id, payload: vec![7; *size], ..base.clone() }.build())
        .collect()
}

fn sizes(packets: &[Vec<u8>]) -> Vec<usize> {
    check(Rules::default(), packets)
}

#[test]
fn a_run_becomes_one_burst() {
    for v6 in [false, true] {
        let tcp = Tcp { v6, seq: u32::MAX - 2000, id: u16::MAX, ..Tcp::default() };
        assert_eq!(sizes(&tcp_run(&tcp, &[1000, 1000, 1000, 400])), [4]);
        assert_eq!(sizes(&udp_run(&Udp { v6, ..Udp::default() }, &[1000, 1000, 1])), [3]);
    }
}

#[test]
fn a_single_packet_is_as_it_came() {
    let packets = tcp_run(&Tcp::default(), &[100]);
    let mut merger = Merger::new(Rules::default());
    let group = merger.merge(&packets).next().unwrap();
    assert_eq!((group.vnet, group.head, group.payloads().count()), ([0; 10], &packets[0][..], 0));
}

#[test]
fn nothing_is_held_over() {
    let packets = tcp_run(&Tcp::default(), &[100, 100, 100, 100]);
    let mut merger = Merger::new(Rules::default());
    for half in packets.chunks(2) {
        let counts: Vec<_> = merger.merge(half).map(|group| group.count()).collect();
        assert_eq!(counts, [2]);
    }
    assert_eq!(merger.merge(&packets[..0]).len(), 0);
}

#[test]
fn sizes_rule_the_end_of_a_burst() {
    let tcp = Tcp::default();
    assert_eq!(sizes(&tcp_run(&tcp, &[100, 100, 40, 100, 100])), [3, 2]);
    assert_eq!(sizes(&tcp_run(&tcp, &[100, 101, 100])), [1, 2]);
    assert_eq!(sizes(&tcp_run(&tcp, &[100, 0, 100])), [1, 1, 1]);
    assert_eq!(sizes(&udp_run(&Udp::default(), &[100, 0, 100, 100])), [1, 1, 2]);
    // 45 of 1,428 + 40 bytes of headers is below 65,536, 46 is not.
    assert_eq!(sizes(&tcp_run(&tcp, &[1428; 50])), [45, 5]);
    assert_eq!(sizes(&tcp_run(&tcp, &[10; 300])), [255, 45]);
    assert_eq!(sizes(&udp_run(&Udp::default(), &[10; 100])), [64, 36]);
}

#[test]
fn push_ends_a_burst_and_stays() {
    let mut packets = tcp_run(&Tcp::default(), &[100; 5]);
    let pushed = tcp_run(&Tcp { flags: 0x18, ..Tcp::default() }, &[100; 5]);
    packets[2] = pushed[2].clone();
    assert_eq!(sizes(&packets), [3, 2]);
    packets[0] = pushed[0].clone();
    assert_eq!(sizes(&packets), [1, 2, 2]);
}

#[test]
fn what_differs_is_not_merged_and_ends_the_burst() {
    let run = tcp_run(&Tcp::default(), &[100; 4]);
    let with = |change: &dyn Fn(&mut Tcp)| {
        let mut base = Tcp::default();
        change(&mut base);
        let mut packets = run.clone();
        packets[1] = tcp_run(&base, &[100; 4])[1].clone();
        sizes(&packets)
    };
    assert_eq!(with(&|_| {}), [4]);
    let alone: [&dyn Fn(&mut Tcp); 12] = [
        &|tcp| tcp.ack += 1,
        &|tcp| tcp.window += 1,
        &|tcp| tcp.ttl -= 1,
        &|tcp| tcp.tos = 2,
        &|tcp| tcp.df = false,
        &|tcp| tcp.id += 5,
        &|tcp| tcp.seq += 1,
        &|tcp| tcp.options = vec![1; 4],
        &|tcp| tcp.flags = 0x90,
        &|tcp| tcp.flags = 0x11,
        &|tcp| tcp.flags = 0x14,
        &|tcp| tcp.flags = 0x30,
    ];
    for change in alone {
        assert_eq!(with(change), [1, 1, 2]);
    }
    // Another flow does not disturb.
    assert_eq!(with(&|tcp| tcp.ports.0 += 1), [1, 1, 2]);
    let other = Tcp { ports: (3, 4), ..Tcp::default() };
    let mixed: Vec<_> =
        run.iter().zip(tcp_run(&other, &[100; 4])).flat_map(|(a, b)| [a.clone(), b]).collect();
    assert_eq!(sizes(&mixed), [4, 4]);
}

#[test]
fn identifications_count_or_stay() {
    let ids = |df, ids: [u16; 4]| {
        let base = Tcp { df, ..Tcp::default() };
        let one = |(index, id): (usize, u16)| {
            let seq = 1 + 10 * u32::try_from(index).unwrap();
            Tcp { id, seq, payload: vec![1; 10], ..base.clone() }.build()
        };
        sizes(&ids.into_iter().enumerate().map(one).collect::<Vec<_>>())
    };
    assert_eq!(ids(true, [0; 4]), [4]);
    assert_eq!(ids(true, [7; 4]), [4]);
    assert_eq!(ids(false, [7; 4]), [1, 1, 1, 1]);
    assert_eq!(ids(false, [65_534, 65_535, 0, 1]), [4]);
    assert_eq!(ids(true, [7, 7, 8, 9]), [2, 2]);
    assert_eq!(ids(true, [7, 8, 8, 8]), [2, 2]);
    assert_eq!(ids(true, [7, 9, 11, 13]), [1, 1, 1, 1]);
}

#[test]
fn damaged_packets_are_never_laundered() {
    for at in [10, 12, 36, 50] {
        let mut packets = tcp_run(&Tcp::default(), &[100; 4]);
        packets[1][at] ^= 1;
        let mut merger = Merger::new(Rules::default());
        let groups: Vec<_> = merger.merge(&packets).map(|group| written(&group)).collect();
        assert!(groups.contains(&(VnetHeader::default(), packets[1].clone())), "byte {at}");
    }
    let mut packets = tcp_run(&Tcp::default(), &[100; 4]);
    packets[1][50] ^= 1;
    let counts = |rules| Merger::new(rules).merge(&packets).map(|group| group.count()).collect::<Vec<_>>();
    assert_eq!(counts(Rules::default()), [1, 1, 2]);
    assert_eq!(counts(Rules { verify: false, ..Rules::default() }), [4]);
}

#[test]
fn zero_checksums_go_together_over_ipv4() {
    let udp = Udp { zero: true, ..Udp::default() };
    assert_eq!(sizes(&udp_run(&udp, &[100; 3])), [3]);
    let mut mixed = udp_run(&udp, &[100; 4]);
    mixed[2] = udp_run(&Udp::default(), &[100; 4])[2].clone();
    assert_eq!(sizes(&mixed), [2, 1, 1]);
    assert_eq!(sizes(&udp_run(&Udp { v6: true, ..udp }, &[100; 3])), [1, 1, 1]);
}

#[test]
fn switches_are_separate() {
    let packets = [tcp_run(&Tcp::default(), &[100; 2]), udp_run(&Udp::default(), &[100; 2])].concat();
    assert_eq!(check(Rules::default(), &packets), [2, 2]);
    assert_eq!(check(Rules { tcp: false, ..Rules::default() }, &packets), [1, 1, 2]);
    assert_eq!(check(Rules { udp: false, ..Rules::default() }, &packets), [2, 1, 1]);
    for port in [4789, 8472, 6081] {
        let packets = udp_run(&Udp { ports: (9, port), ..Udp::default() }, &[100; 2]);
        assert_eq!(check(Rules::default(), &packets), [2]);
        assert_eq!(check(Rules { tunnels: false, ..Rules::default() }, &packets), [1, 1]);
    }
}

#[test]
fn fragments_and_options_keep_their_place() {
    let run = udp_run(&Udp::default(), &[100; 4]);
    let mut fragment = run[1].clone();
    fragment[6] = 0x20;
    assert_eq!(sizes(&[run[0].clone(), fragment, run[1].clone(), run[2].clone()]), [1, 1, 2]);
    let options = [&[0x46][..], &run[1][1..20], &[1; 4], &run[1][20..]].concat();
    assert_eq!(sizes(&[run[0].clone(), options, run[1].clone(), run[2].clone()]), [1, 1, 2]);
    let v6 = udp_run(&Udp { v6: true, ..Udp::default() }, &[100; 3]);
    let extension = [&v6[1][..6], &[60], &v6[1][7..40], &[17, 0, 1, 4, 0, 0, 0, 0], &v6[1][40..]].concat();
    assert_eq!(sizes(&[v6[0].clone(), extension, v6[1].clone(), v6[2].clone()]), [1, 1, 2]);
    // Other protocols are nobody's flow.
    let mut ping = run[1].clone();
    ping[9] = 1;
    assert_eq!(sizes(&[run[0].clone(), ping, run[1].clone(), run[2].clone()]), [3, 1]);
}

#[derive(Clone, Debug)]
enum Step {
    Tcp { flow: u16, size: usize, v6: bool, twist: u8, push: bool },
    Udp { flow: u16, size: usize, v6: bool, zero: bool, df: bool, id: u16 },
    Fragment { flow: u16 },
    Bytes(Vec<u8>),
}

fn any_step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![4 => Just(1200_usize), 1 => 0_usize..1400];
    let datagram = prop_oneof![4 => Just(50_usize), 1 => 0_usize..60];
    prop_oneof![
        8 => (0_u16..3, size, any::<bool>(), prop_oneof![9 => Just(9_u8), 1 => 0_u8..9], proptest::bool::weighted(0.1))
            .prop_map(|(flow, size, v6, twist, push)| Step::Tcp { flow, size, v6, twist, push }),
        4 => (0_u16..3, datagram, any::<(bool, bool, bool)>(), 0_u16..3)
            .prop_map(|(flow, size, (v6, zero, df), id)| Step::Udp { flow, size, v6, zero, df, id }),
        1 => (0_u16..3).prop_map(|flow| Step::Fragment { flow }),
        1 => proptest::collection::vec(any::<u8>(), 0..100).prop_map(Step::Bytes),
    ]
}

/// Plays the steps: each TCP flow goes on where it was, with a twist now and then.
fn played(steps: Vec<Step>) -> Vec<Vec<u8>> {
    let mut flows: HashMap<(u16, bool), Tcp> = HashMap::new();
    let one = |step| match step {
        Step::Tcp { flow, size, v6, twist, push } => {
            let tcp = flows.entry((flow, v6)).or_insert(Tcp { v6, ports: (flow, 80), ..Tcp::default() });
            twist_tcp(tcp, twist);
            let packet =
                Tcp { flags: if push { 0x18 } else { 0x10 }, payload: vec![twist; size], ..tcp.clone() }
                    .build();
            tcp.seq = tcp.seq.wrapping_add(u32::try_from(size).unwrap());
            tcp.id = tcp.id.wrapping_add(1);
            packet
        }
        Step::Udp { flow, size, v6, zero, df, id } => {
            Udp { v6, zero, df, id, ports: (flow, 53), payload: vec![3; size], ..Udp::default() }.build()
        }
        Step::Fragment { flow } => {
            let mut packet = Udp { ports: (flow, 53), payload: vec![4; 50], ..Udp::default() }.build();
            packet[6] = 0x20;
            packet
        }
        Step::Bytes(bytes) => bytes,
    };
    steps.into_iter().map(one).collect()
}

fn twist_tcp(tcp: &mut Tcp, twist: u8) {
    match twist {
        0 => tcp.ack += 1,
        1 => tcp.seq = tcp.seq.wrapping_sub(1200),
        2 => tcp.id = tcp.id.wrapping_add(7),
        3 => tcp.window ^= 1,
        4 => tcp.tos ^= 3,
        5 => tcp.options = vec![1; (tcp.options.len() + 4) % 12],
        6 => tcp.df ^= true,
        7 => tcp.ttl ^= 1,
        8 => tcp.seq = u32::MAX - 1000,
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn merging_loses_and_reorders_nothing(
        steps in proptest::collection::vec(any_step(), 0..60), tcp: bool, udp: bool, tunnels: bool,
    ) {
        check(Rules { tcp, udp, tunnels, verify: true }, &played(steps));
    }

    #[test]
    fn cut_bursts_merge_into_the_same_burst(
        v6: bool, seq: u32, id: u16, size in 8_usize..1400, count in 2_usize..40, tail in 1_usize..8, push: bool,
    ) {
        use crate::{offload::split::split, plaintext::Plaintext};
        let payload = vec![6; size * (count - 1) + tail];
        let tcp = Tcp { v6, seq, id, flags: if push { 0x18 } else { 0x10 }, payload, ..Tcp::default() };
        let (mut burst, at) = (tcp.build(), if v6 { 40 } else { 20 });
        crate::testing::seed(&mut burst, at, TCP, 16);
        let header = VnetHeader {
            flags: vnet::NEEDS_CSUM,
            gso_type: if v6 { vnet::GSO_TCPV6 } else { vnet::GSO_TCPV4 },
            hdr_len: length(at + 20),
            gso_size: length(size),
            csum_start: length(at),
            csum_offset: 16,
        };
        let before = burst.clone();
        let segments: Vec<_> = split(header, &mut burst).unwrap().map(|segment| {
            let mut bytes = vec![0; segment.len()];
            segment.write(&mut bytes);
            bytes
        }).collect();
        let mut merger = Merger::new(Rules::default());
        let groups: Vec<_> = merger.merge(&segments).map(|group| written(&group)).collect();
        prop_assert_eq!(groups, [(header, before)]);
    }

    #[test]
    fn random_bytes_never_panic(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 0..20), verify: bool, damage: usize, value: u8,
    ) {
        let mut run = tcp_run(&Tcp::default(), &[50; 4]);
        run.extend(packets);
        run[1][damage % 90] = value;
        let mut merger = Merger::new(Rules { verify, ..Rules::default() });
        let total: usize = merger.merge(&run).map(|group| group.packets().map(<[u8]>::len).sum::<usize>()).sum();
        prop_assert_eq!(total, run.iter().map(Vec::len).sum::<usize>());
    }
}
