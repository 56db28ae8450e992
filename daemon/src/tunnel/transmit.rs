//! The thread from the TUN device to the network.

use std::{io, os::fd::AsFd, time::Instant};

use isthmus_tunnel::{buffer::Outbox, counters::Drop, packet, peer::Plain, table::Slot};

use super::{
    engine::Engine,
    snapshot::Snapshot,
    tun::{Tun, VNET_HEADER},
    udp::WhenFull,
};

/// Packets in a batch at most.
const BATCH: usize = 64;

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
        while transmitter.fill(tun)? {
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
        let batch = &mut self.items[..self.filled];
        for item in batch.iter_mut() {
            match route(&snapshot, item.packet()) {
                Ok(peer) => item.peer = peer,
                Err(reason) => {
                    engine.drops.add(reason, 1);
                    item.peer = Slot::MAX;
                }
            }
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

fn route(snapshot: &Snapshot, bytes: &[u8]) -> Result<Slot, Drop> {
    let packet = packet::parse(bytes).map_err(|_| Drop::Malformed)?;
    snapshot.table.route(&packet).ok_or(Drop::NoRoute)
}

impl Item {
    fn packet(&self) -> &[u8] {
        &self.buffer[VNET_HEADER..VNET_HEADER + self.length]
    }

    fn plain(&mut self) -> Plain<'_> {
        Plain { buffer: &mut self.buffer[VNET_HEADER..], length: self.length }
    }
}
