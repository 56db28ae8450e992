//! An inner packet, from the TUN device or out of a tunnel: its bounds hold, its hash is steady, and the table answers for it.
#![no_main]

use std::sync::{Arc, LazyLock, atomic::AtomicBool};

use isthmus_tunnel::packet;
use isthmus_tunnel::table::{Member, Table};
use libfuzzer_sys::fuzz_target;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let member = |key| Member { key, live: Arc::new(AtomicBool::new(true)) };
    let mut builder = Table::builder(vec![member(1), member(2)]);
    builder.route("0.0.0.0/0".parse().expect("valid"), &[0, 1], &[]);
    builder.route("10.0.0.0/8".parse().expect("valid"), &[1], &[0]);
    builder.route("fd00::/8".parse().expect("valid"), &[0], &[]);
    builder.build()
});

fuzz_target!(|data: &[u8]| {
    let Ok(packet) = packet::parse(data) else { return };
    assert!(data.starts_with(packet.bytes), "a packet is the front of its buffer");
    assert_eq!(packet::parse(packet.bytes), Ok(packet), "what follows a packet does not change it");
    let slot = TABLE.route(&packet);
    assert_eq!(slot, TABLE.route(&packet), "a flow stays where it is");
    if packet.destination.is_ipv4() {
        assert!(slot.is_some(), "there is a default route");
    }
    let _ = TABLE.is_feasible(packet.source, 0);
});
