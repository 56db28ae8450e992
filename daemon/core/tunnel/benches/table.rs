//! What it costs to route a packet, to build a snapshot and to lose a peer. `cargo bench -p isthmus-tunnel --bench table -- --quick`

use std::{
    hint::black_box,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use criterion::{BenchmarkId, Criterion, Throughput};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use isthmus_tunnel::{
    packet::Packet,
    table::{Member, Slot, Table},
};

const PEERS: u32 = 1000;
const SIZES: [usize; 4] = [1, 1_000, 100_000, 1_000_000];
/// Host bits that every IPv4 prefix here leaves.
const HOST_V4: u64 = 0xf;
/// Packets in a round: many enough that caches hold no answers.
const ROUND: usize = 1 << 16;

fn main() {
    let mut criterion = Criterion::default().configure_from_args().measurement_time(Duration::from_secs(2));
    for (family, prefix, host) in [("v4", v4 as fn(u64) -> IpNet, HOST_V4), ("v6", v6, u64::MAX)] {
        lookup(&mut criterion, family, prefix, host);
    }
    build(&mut criterion);
    choose(&mut criterion);
    flip(&mut criterion);
    criterion.final_summary();
}

/// A packet's way to its peer, by number of prefixes: to random destinations, to one, and to one within a batch.
fn lookup(criterion: &mut Criterion, family: &str, prefix: fn(u64) -> IpNet, host: u64) {
    let mut group = criterion.benchmark_group(format!("route_{family}"));
    for size in SIZES {
        let prefixes = distinct(size, prefix);
        let table = table(&prefixes, 1);
        writeln!(io::stdout(), "{family}, {size} prefixes: {} bytes each", table.size() / table.len())
            .expect("stdout is open");
        let packets = packets(&prefixes, host);
        group.throughput(Throughput::Elements(packets.len() as u64));
        group.bench_function(BenchmarkId::new("random", size), |bencher| {
            bencher
                .iter(|| packets.iter().filter_map(|packet| table.route(packet)).map(u64::from).sum::<u64>());
        });
        group.throughput(Throughput::Elements(1));
        let one = packets[0];
        group.bench_function(BenchmarkId::new("one", size), |bencher| {
            bencher.iter(|| table.route(black_box(&one)))
        });
        let mut router = table.router();
        group.bench_function(BenchmarkId::new("batch", size), |bencher| {
            bencher.iter(|| router.route(black_box(&one)));
        });
    }
    group.finish();
}

/// A snapshot of 100,000 prefixes over 1,000 peers, in order as the routing board hands them out.
fn build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("build_100000");
    for (family, prefix) in [("v4", v4 as fn(u64) -> IpNet), ("v6", v6)] {
        let mut prefixes = distinct(100_000, prefix);
        prefixes.sort_unstable();
        group.bench_function(family, |bencher| bencher.iter_with_large_drop(|| table(&prefixes, 2)));
    }
    group.finish();
}

/// The choice of a live member, by number of members.
fn choose(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("choose");
    for width in [1, 2, 8] {
        let prefixes = distinct(1_000, v4);
        let table = table(&prefixes, width);
        let mut packet = packets(&prefixes, HOST_V4)[0];
        let mut router = table.router();
        group.bench_function(BenchmarkId::from_parameter(width), |bencher| {
            bencher.iter(|| {
                packet.flow = packet.flow.wrapping_add(0x9e37_79b9_7f4a_7c15);
                router.route(black_box(&packet))
            });
        });
    }
    group.finish();
}

/// A peer marked down, and the next packet's way over the other path, with 100,000 prefixes.
fn flip(criterion: &mut Criterion) {
    let prefixes = distinct(100_000, v4);
    let live = [true, true].map(|live| Arc::new(AtomicBool::new(live)));
    let members = (0..).zip(&live).map(|(key, live)| Member { key, live: Arc::clone(live) }).collect();
    let mut builder = Table::builder(members);
    prefixes.iter().for_each(|prefix| builder.route(*prefix, &[0, 1], &[]));
    let table = builder.build();
    let packets = packets(&prefixes, HOST_V4);
    let mut round = packets.iter().cycle();
    criterion.bench_function("down_to_other_path_100000", |bencher| {
        bencher.iter(|| {
            let packet = round.next().expect("endless");
            let was = table.route(packet).expect("covered") as usize;
            live[was].store(false, Ordering::Relaxed);
            let is = table.route(packet).expect("covered") as usize;
            assert_ne!(was, is);
            live[was].store(true, Ordering::Relaxed);
        });
    });
}

/// Every prefix leads to `width` of the peers.
fn table(prefixes: &[IpNet], width: u32) -> Table {
    let member = |key| Member { key: random(key), live: Arc::new(AtomicBool::new(true)) };
    let mut builder = Table::builder((0..u64::from(PEERS)).map(member).collect());
    for (number, prefix) in (0..).zip(prefixes) {
        let selected: Vec<Slot> = (number..number + width).map(|peer| peer % PEERS).collect();
        builder.route(*prefix, &selected, &[]);
    }
    builder.build()
}

fn distinct(size: usize, prefix: fn(u64) -> IpNet) -> Vec<IpNet> {
    let mut seen = std::collections::HashSet::new();
    (0..).map(|number| prefix(random(number))).filter(|prefix| seen.insert(*prefix)).take(size).collect()
}

/// /24 for the most part, as in the tables of the Internet, and shorter ones that they lie in.
fn v4(random: u64) -> IpNet {
    let length = [24, 24, 24, 24, 24, 23, 22, 22, 21, 20, 20, 19, 18, 16, 16, 28][(random & 15) as usize];
    Ipv4Net::new(Ipv4Addr::from_bits((random >> 32) as u32), length).expect("valid").trunc().into()
}

/// /48 for the most part, and shorter ones that some lie in, all of 2000::/8.
fn v6(random: u64) -> IpNet {
    let length = [48, 48, 48, 48, 48, 44, 40, 32, 32, 36, 29, 46, 47, 48, 48, 64][(random & 15) as usize];
    let bits = u128::from(random >> 8 | 0x20 << 56) << 64;
    Ipv6Net::new(Ipv6Addr::from_bits(bits), length).expect("valid").trunc().into()
}

/// To hosts of random prefixes.
fn packets(prefixes: &[IpNet], host: u64) -> Vec<Packet<'static>> {
    let packet = |number| {
        let pick = random(number ^ 0x5555) % prefixes.len() as u64;
        let pick = usize::try_from(pick).expect("below a length");
        let host = random(number ^ 0xaaaa) & host;
        let destination = match prefixes[pick] {
            IpNet::V4(net) => IpAddr::from(Ipv4Addr::from_bits(
                net.network().to_bits() | u32::try_from(host).expect("few bits"),
            )),
            IpNet::V6(net) => Ipv6Addr::from_bits(net.network().to_bits() | u128::from(host)).into(),
        };
        Packet { bytes: &[], source: destination, destination, flow: random(number) }
    };
    (0..ROUND as u64).map(packet).collect()
}

/// The finalizer of SplitMix64.
fn random(seed: u64) -> u64 {
    let x = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
