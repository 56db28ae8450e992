//! Metrics, copied from the counters once a second.

use std::sync::{Arc, atomic::Ordering};

use metrics::{counter, describe_counter, describe_gauge, gauge};

use super::{engine::Engine, peer::Peer};

const UP: &str = "isthmus_tunnel_up";
const RECEIVED_BYTES: &str = "isthmus_tunnel_receive_bytes_total";
const SENT_BYTES: &str = "isthmus_tunnel_transmit_bytes_total";
const RECEIVED_PACKETS: &str = "isthmus_tunnel_receive_packets_total";
const SENT_PACKETS: &str = "isthmus_tunnel_transmit_packets_total";
const HANDSHAKE: &str = "isthmus_tunnel_last_handshake_timestamp_seconds";
const DROPS: &str = "isthmus_tunnel_drops_total";

/// Says what each metric is.
pub(super) fn describe() {
    describe_gauge!(UP, "1 while the peer answers");
    describe_counter!(RECEIVED_BYTES, "Bytes of inner packets received from the peer");
    describe_counter!(SENT_BYTES, "Bytes of inner packets sent to the peer");
    describe_counter!(RECEIVED_PACKETS, "Inner packets received from the peer");
    describe_counter!(SENT_PACKETS, "Inner packets sent to the peer");
    describe_gauge!(HANDSHAKE, "Unix time of the last completed handshake; absent before the first");
    describe_counter!(
        DROPS,
        "Packets dropped, by reason; endpoint_refused ones were taken, but not where they came from"
    );
}

/// Copies all counters.
pub(super) fn update(engine: &Engine) {
    let peers = &engine.snapshot.load().peers;
    for peer in peers {
        update_peer(peer);
    }
    for (reason, own) in engine.drops.iter() {
        let total: u64 = own + peers.iter().map(|peer| peer.counters.drops.get(reason)).sum::<u64>();
        counter!(DROPS, "reason" => reason.as_str()).absolute(total);
    }
}

/// A peer that was removed is not up.
pub(super) fn removed(peer: &Peer) {
    gauge!(UP, "peer" => Arc::clone(&peer.name)).set(0.0);
}

fn update_peer(peer: &Peer) {
    let name = || Arc::clone(&peer.name);
    let count = |total: &std::sync::atomic::AtomicU64| total.load(Ordering::Relaxed);
    gauge!(UP, "peer" => name()).set(if peer.is_up() { 1.0 } else { 0.0 });
    counter!(RECEIVED_BYTES, "peer" => name()).absolute(count(&peer.counters.received_bytes));
    counter!(SENT_BYTES, "peer" => name()).absolute(count(&peer.counters.sent_bytes));
    counter!(RECEIVED_PACKETS, "peer" => name()).absolute(count(&peer.counters.received_packets));
    counter!(SENT_PACKETS, "peer" => name()).absolute(count(&peer.counters.sent_packets));
    if let Some(seconds) = peer.last_handshake_at() {
        // Exact: seconds of this era are far below 2^53.
        gauge!(HANDSHAKE, "peer" => name()).set(seconds as f64);
    }
}
