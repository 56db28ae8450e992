//! What the packet arithmetic costs: `cargo bench -p isthmus-tunnel --bench offload`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use isthmus_tunnel::{
    checksum,
    offload::{
        merge::{Merger, Rules},
        split::split,
        vnet::{GSO_TCPV4, GSO_UDP_L4, NEEDS_CSUM, VnetHeader},
    },
    plaintext::Plaintext,
};

/// MSS of a tunnel with MTU 1420, with timestamps.
const MSS: usize = 1368;
const HEADERS: usize = 52;
/// Segments of the largest burst.
const SEGMENTS: usize = 47;

/// A burst of TCP as the kernel hands it over.
fn tcp_burst() -> (VnetHeader, Vec<u8>) {
    let total = u16::try_from(HEADERS + MSS * SEGMENTS).expect("below 64 KiB").to_be_bytes();
    let mut packet = vec![0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend([3, 232, 7, 208, 0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    packet.extend((0..MSS * SEGMENTS).map(|i| u8::try_from(i % 251).expect("below 251")));
    let gso_size = u16::try_from(MSS).expect("small");
    let header = VnetHeader {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: 52,
        gso_size,
        csum_start: 20,
        csum_offset: 16,
    };
    (header, packet)
}

/// 64 datagrams of `size` bytes in one read.
fn udp_burst(size: u16) -> (VnetHeader, Vec<u8>) {
    let total = (28 + 64 * size).to_be_bytes();
    let mut packet = vec![0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend([3, 232, 7, 208, 0, 0, 0, 0]);
    packet.resize(28 + 64 * usize::from(size), 7);
    let header = VnetHeader {
        flags: NEEDS_CSUM,
        gso_type: GSO_UDP_L4,
        hdr_len: 28,
        gso_size: size,
        csum_start: 20,
        csum_offset: 6,
    };
    (header, packet)
}

/// Writes every segment into its slot; the slots are what the tunnel would encrypt in.
fn write_all(header: VnetHeader, packet: &mut [u8], slots: &mut [u8]) -> usize {
    let mut used = 0;
    for segment in split(header, packet).expect("a sound burst") {
        segment.write(&mut slots[used + 16..used + 16 + segment.len()]);
        used += segment.len() + 32;
    }
    used
}

fn segments((header, mut packet): (VnetHeader, Vec<u8>)) -> Vec<Vec<u8>> {
    let segments = split(header, &mut packet).expect("a sound burst");
    segments
        .map(|segment| {
            let mut bytes = vec![0; segment.len()];
            segment.write(&mut bytes);
            bytes
        })
        .collect()
}

fn checksums(criterion: &mut Criterion) {
    let packet = vec![0xa5; 1420];
    let mut copy = packet.clone();
    let mut group = criterion.benchmark_group("checksum of 1420 bytes");
    group.throughput(Throughput::Bytes(1420));
    group.bench_function("sum", |bencher| bencher.iter(|| checksum::sum(black_box(&packet))));
    group.bench_function("copy and sum", |bencher| {
        bencher.iter(|| checksum::copy_and_sum(black_box(&mut copy), black_box(&packet)));
    });
    group.bench_function("copy alone", |bencher| {
        bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(&packet)));
    });
}

fn splits(criterion: &mut Criterion) {
    let mut slots = vec![0; 128 * 1024];
    for (name, (header, mut packet)) in [("TCP 47 x 1368", tcp_burst()), ("UDP 64 x 64", udp_burst(64))] {
        let mut group = criterion.benchmark_group("split");
        group.throughput(Throughput::Bytes(packet.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| write_all(header, black_box(&mut packet), black_box(&mut slots)));
        });
    }
}

fn merges(criterion: &mut Criterion) {
    let verified = Rules::default();
    let trusted = Rules { verify: false, ..verified };
    let cases = [
        ("TCP 47 x 1368, verified", tcp_burst(), verified),
        ("TCP 47 x 1368, trusted", tcp_burst(), trusted),
        ("UDP 64 x 64, verified", udp_burst(64), verified),
    ];
    for (name, burst, rules) in cases {
        let packets = segments(burst);
        let mut merger = Merger::new(rules);
        let mut group = criterion.benchmark_group("merge");
        group.throughput(Throughput::Bytes(packets.iter().map(|packet| packet.len() as u64).sum()));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                merger
                    .merge(black_box(&packets))
                    .map(|group| group.payloads().map(<[u8]>::len).sum::<usize>())
                    .sum::<usize>()
            });
        });
    }
}

criterion_group!(benches, checksums, splits, merges);
criterion_main!(benches);
