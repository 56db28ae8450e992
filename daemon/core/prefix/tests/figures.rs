//! Figures of decision 018. An own program, because it counts what the allocator gives.
//!
//! `cargo test -p isthmus-prefix --release -- --ignored --nocapture`

#![allow(clippy::print_stdout)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicIsize, Ordering},
    },
    time::Instant,
};

use ipnet::IpNet;
use isthmus_prefix::{PrefixTable, Seed};
use prefix_trie::joint::JointPrefixMap;

struct Counting;

static HELD: AtomicIsize = AtomicIsize::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PREFIXES: u32 = 100_000;

/// /24 after /24.
fn dense() -> Vec<IpNet> {
    (0..PREFIXES)
        .map(|n| {
            IpNet::new(Ipv4Addr::from(0x1400_0000 + (n << 8)).into(), 24).expect("24 is a length of IPv4")
        })
        .collect()
}

/// /24 all over the address space.
fn scattered() -> Vec<IpNet> {
    let spread = |n: u32| n.wrapping_mul(0x9e37_7901) << 8;
    (0..PREFIXES)
        .map(|n| IpNet::new(Ipv4Addr::from(spread(n)).into(), 24).expect("24 is a length of IPv4"))
        .collect()
}

/// Fills a table, asks it for everything, and says what both cost.
fn measure<T>(
    name: &str,
    keys: &[IpNet],
    empty: impl FnOnce() -> T,
    insert: impl Fn(&mut T, IpNet, Arc<u8>),
    get: impl Fn(&T, IpNet) -> bool,
) {
    let value = Arc::new(0);
    let held = HELD.load(Ordering::Relaxed);
    let began = Instant::now();
    let mut table = empty();
    keys.iter().for_each(|key| insert(&mut table, *key, Arc::clone(&value)));
    let filled = began.elapsed();
    let bytes = (HELD.load(Ordering::Relaxed) - held) / isize::try_from(PREFIXES).expect("it is small");
    let began = Instant::now();
    assert!(keys.iter().all(|key| get(&table, *key)));
    let found = began.elapsed();
    println!("{name}: {bytes} bytes, insert {:?}, get {:?}", filled / PREFIXES, found / PREFIXES);
}

fn compare(kind: &str, keys: &[IpNet]) {
    measure(
        &format!("{kind}, PrefixTable"),
        keys,
        || PrefixTable::new(Seed::new(1)),
        |table, key, value| drop(table.insert(key, value)),
        |table, key| table.get(key).is_some(),
    );
    measure(
        &format!("{kind}, prefix-trie"),
        keys,
        JointPrefixMap::<IpNet, Arc<u8>>::default,
        |table, key, value| drop(table.insert(key, value)),
        |table, key| table.get(&key).is_some(),
    );
    measure(
        &format!("{kind}, BTreeMap"),
        keys,
        BTreeMap::new,
        |table, key, value| drop(table.insert(key, value)),
        |table: &BTreeMap<IpNet, Arc<u8>>, key| table.contains_key(&key),
    );
}

#[test]
#[ignore = "measures; not a behaviour"]
fn prefix_tables() {
    compare("dense", &dense());
    compare("scattered", &scattered());
}
