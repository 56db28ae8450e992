//! The thread from the TUN device to the network.

use std::{io, os::fd::AsFd, time::Instant};

use isthmus_tunnel::{buffer::Outbox, counters::Drop, packet, peer::Plain, table::Slot};

use super::{
    engine::Engine,
    guard::Guard,
    snapshot::Snapshot,
    tun::{Tun, VNET_HEADER},
    udp::WhenFull,
};

/// Packets in a batch at most.
const BATCH: usize = 64;
/// Batches before the thread looks whether it is to stop.
const TURN: usize = 16;

/// One packet as read: virtio header, packet, room for padding.
struct Item {
    buffer: Box<[u8]>,
    /// Length of the packet without the header.
    length: usize,
    peer: Slot,
    /// Order of arrival.
    number: usize,
}

/// Runs until the engine stops.
///
/// # Errors
/// When the device is gone.
pub(super) fn run(engine: &Engine, tun: &Tun, mtu: u16) -> io::Result<()> {
    let mut transmitter = Transmitter::new(mtu);
    let mut waiter = engine.waiter(std::iter::once(tun.as_fd()));
    while waiter.wait()? {
        for _ in 0..TURN {
            if !transmitter.fill(tun)? {
                break;
            }
            transmitter.forward(engine);
        }
    }
    Ok(())
}

struct Transmitter {
    items: Vec<Item>,
    filled: usize,
    outbox: Outbox,
}

impl Transmitter {
    fn new(mtu: u16) -> Self {
        let size = VNET_HEADER + usize::from(mtu) + Plain::ROOM;
        let item = |number| Item { buffer: vec![0; size].into_boxed_slice(), length: 0, peer: 0, number };
        Self { items: (0..BATCH).map(item).collect(), filled: 0, outbox: Outbox::new() }
    }

    /// Reads what is there, up to a batch; false if there is nothing.
    fn fill(&mut self, tun: &Tun) -> io::Result<bool> {
        self.filled = 0;
        while let Some(item) = self.items.get_mut(self.filled) {
            let end = item.buffer.len() - Plain::ROOM;
            let Some(length) = tun.read(&mut item.buffer[..end])? else { break };
            item.length = length.saturating_sub(VNET_HEADER);
            item.number = self.filled;
            self.filled += 1;
        }
        Ok(self.filled > 0)
    }

    /// Routes, seals and sends the batch: each peer is locked once, and its packets keep their order.
    fn forward(&mut self, engine: &Engine) {
        let snapshot = engine.snapshot.load();
        let mut guard = Guard::new(&snapshot, engine.sockets.port());
        let batch = &mut self.items[..self.filled];
        for item in batch.iter_mut() {
            item.peer = route(engine, &snapshot, &mut guard, item.packet()).unwrap_or(Slot::MAX);
        }
        batch.sort_unstable_by_key(|item| (item.peer, item.number));
        let now = Instant::now();
        for run in batch.chunk_by_mut(|a, b| a.peer == b.peer) {
            if let Some(peer) = run.first().and_then(|item| snapshot.peer(item.peer)) {
                peer.session().seal(run.iter_mut().map(Item::plain), now, &mut self.outbox);
            }
        }
        engine.send(&mut self.outbox, WhenFull::Wait);
    }
}

/// The peer to carry the packet; `None`: dropped and counted.
fn route(engine: &Engine, snapshot: &Snapshot, guard: &mut Guard<'_>, bytes: &[u8]) -> Option<Slot> {
    let drop = |reason| {
        engine.drops.add(reason, 1);
        None
    };
    let Ok(packet) = packet::parse(bytes) else { return drop(Drop::Malformed) };
    if let Some(peer) = guard.sealed_for(&packet).and_then(|slot| snapshot.peer(slot)) {
        peer.counters.drops.add(Drop::OwnOuterPacket, 1);
        return None;
    }
    snapshot.table.route(&packet).or_else(|| drop(Drop::NoRoute))
}

impl Item {
    fn packet(&self) -> &[u8] {
        &self.buffer[VNET_HEADER..VNET_HEADER + self.length]
    }

    fn plain(&mut self) -> Plain<'_> {
        Plain { buffer: &mut self.buffer[VNET_HEADER..], length: self.length }
    }
}
