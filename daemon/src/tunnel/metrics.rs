//! Metrics, copied from the counters when somebody reads them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;

use super::{BatchSizes, engine::Engine, peer::Peer};
use crate::scrape::{self, Update};

const UP: &str = "isthmus_tunnel_up";
const RECEIVED_BYTES: &str = "isthmus_tunnel_receive_bytes_total";
const SENT_BYTES: &str = "isthmus_tunnel_transmit_bytes_total";
const RECEIVED_PACKETS: &str = "isthmus_tunnel_receive_packets_total";
const SENT_PACKETS: &str = "isthmus_tunnel_transmit_packets_total";
const HANDSHAKE: &str = "isthmus_tunnel_last_handshake_timestamp_seconds";
const DROPS: &str = "isthmus_tunnel_drops_total";
const PEER_DROPS: &str = "isthmus_tunnel_peer_drops_total";
const MTU: &str = "isthmus_tunnel_peer_mtu_bytes";
const OFFLOAD: &str = "isthmus_tunnel_offload_active";
const BATCHES: &str = "isthmus_tunnel_batch_packets_bucket";
const BATCHES_SUM: &str = "isthmus_tunnel_batch_packets_sum";
const BATCHES_COUNT: &str = "isthmus_tunnel_batch_packets_count";

/// Says what each metric of the tunnel as a whole is.
pub(super) fn describe() {
    describe_counter!(
        DROPS,
        "Packets dropped, by reason; endpoint_refused ones were taken, but not where they came from"
    );
    describe_gauge!(OFFLOAD, "1 while the offload is in use");
    describe_counter!(
        BATCHES,
        "System calls of the packet path, by how many packets one carried at most (le)"
    );
    describe_counter!(BATCHES_SUM, "Packets that the system calls of the packet path carried");
    describe_counter!(BATCHES_COUNT, "System calls of the packet path");
}

fn describe_peers() {
    describe_gauge!(UP, "1 while the peer answers");
    describe_counter!(RECEIVED_BYTES, "Bytes of inner packets received from the peer");
    describe_counter!(SENT_BYTES, "Bytes of inner packets sent to the peer");
    describe_counter!(RECEIVED_PACKETS, "Inner packets received from the peer");
    describe_counter!(SENT_PACKETS, "Inner packets sent to the peer");
    describe_gauge!(HANDSHAKE, "Unix time of the last completed handshake; absent before the first");
    describe_counter!(
        PEER_DROPS,
        "Packets to or from the peer that were dropped, by reason; endpoint_refused ones were carried; zeros are left out"
    );
    describe_gauge!(MTU, "Longest inner packet that is sent to the peer in one piece");
}

/// Copies all counters whenever metrics are read, until the result is dropped.
pub(super) fn publish(engine: &Arc<Engine>) -> Update {
    let engine = Arc::downgrade(engine);
    scrape::at_reading(move || engine.upgrade().map(|engine| update(&engine)).unwrap_or_default())
}

/// The metrics of the tunnel as a whole go to the registry, those of its peers are returned.
fn update(engine: &Engine) -> String {
    let peers = &engine.snapshot.load().peers;
    for (reason, own) in engine.drops.iter() {
        let total: u64 = own + peers.iter().map(|peer| peer.counters.drops.get(reason)).sum::<u64>();
        counter!(DROPS, "reason" => reason.as_str()).absolute(total);
    }
    for status in engine.offloads.status() {
        let active = if status.active { 1.0 } else { 0.0 };
        gauge!(OFFLOAD, "offload" => status.offload.as_str()).set(active);
    }
    for (call, sizes) in engine.batches.sizes() {
        update_batches(call, &sizes);
    }
    render(peers)
}

/// In a registry that is made anew each time: peers come and go, and a registry forgets nothing.
fn render(peers: &[Arc<Peer>]) -> String {
    let registry = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&registry, || {
        describe_peers();
        peers.iter().for_each(|peer| update_peer(peer));
    });
    registry.handle().render()
}

/// In the shape of a histogram, so that `histogram_quantile` works on it.
fn update_batches(call: &'static str, sizes: &BatchSizes) {
    for (bound, batches) in &sizes.cumulative {
        let bound = bound.map_or("+Inf".to_owned(), |bound| bound.to_string());
        counter!(BATCHES, "call" => call, "le" => bound).absolute(*batches);
    }
    counter!(BATCHES_SUM, "call" => call).absolute(sizes.packets);
    let count = sizes.cumulative.last().map_or(0, |(_, count)| *count);
    counter!(BATCHES_COUNT, "call" => call).absolute(count);
}

fn update_peer(peer: &Peer) {
    let name = || Arc::clone(&peer.name);
    let count = |total: &AtomicU64| total.load(Ordering::Relaxed);
    gauge!(UP, "peer" => name()).set(if peer.is_up() { 1.0 } else { 0.0 });
    counter!(RECEIVED_BYTES, "peer" => name()).absolute(count(&peer.counters.received_bytes));
    counter!(SENT_BYTES, "peer" => name()).absolute(count(&peer.counters.sent_bytes));
    counter!(RECEIVED_PACKETS, "peer" => name()).absolute(count(&peer.counters.received_packets));
    counter!(SENT_PACKETS, "peer" => name()).absolute(count(&peer.counters.sent_packets));
    gauge!(MTU, "peer" => name()).set(f64::from(peer.session.mtu()));
    if let Some(seconds) = peer.last_handshake_at() {
        // Exact: seconds of this era are far below 2^53.
        gauge!(HANDSHAKE, "peer" => name()).set(seconds as f64);
    }
    for (reason, packets) in peer.counters.drops.iter().filter(|(_, packets)| *packets > 0) {
        counter!(PEER_DROPS, "peer" => name(), "reason" => reason.as_str()).absolute(packets);
    }
}
