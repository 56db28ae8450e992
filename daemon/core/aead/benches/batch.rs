//! Batches beside packet by packet: `cargo bench -p isthmus-aead --bench batch`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use isthmus_aead::{Key, Packet, TAG};

/// (packets, bytes of each)
const BATCHES: [(usize, usize); 9] =
    [(45, 1420), (16, 1420), (8, 1420), (4, 1420), (3, 1420), (2, 1420), (64, 64), (4, 64), (2, 64)];

fn batch(memory: &mut [u8], length: usize) -> Vec<Packet<'_>> {
    let slots = memory.chunks_exact_mut(length + 32);
    slots.zip(0..).map(|(slot, counter)| Packet::new(counter, &mut slot[16..])).collect()
}

fn seal_and_open(criterion: &mut Criterion) {
    for (count, length) in BATCHES {
        let mut group = criterion.benchmark_group(format!("{count} x {length}"));
        group.throughput(Throughput::Bytes((count * length) as u64));
        for (name, key) in [("single", Key::portable(&[7; 32])), ("batch", Key::new(&[7; 32]))] {
            let mut memory = vec![0; count * (length + 16 + TAG)];
            group.bench_function(format!("seal {name}"), |bencher| {
                bencher.iter(|| {
                    let mut packets = batch(&mut memory, length);
                    key.seal_batch(&mut packets);
                    assert!(packets[0].ok);
                });
            });
            key.seal_batch(&mut batch(&mut memory, length));
            let mut opened = memory.clone();
            group.bench_function(format!("open {name}"), |bencher| {
                bencher.iter(|| {
                    opened.copy_from_slice(&memory);
                    let mut packets = batch(&mut opened, length);
                    key.open_batch(&mut packets);
                    assert!(packets[0].ok);
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, seal_and_open);
criterion_main!(benches);
