//! The thread from the network to the TUN device.

use std::{hash::RandomState, io, net::SocketAddr, os::fd::BorrowedFd, time::Instant};

use isthmus_tunnel::{
    buffer::{Inbox, Outbox},
    counters::Drop,
    packet,
    receive::Receiver as Classifier,
    table::Slot,
    x25519::StaticSecret,
};

use super::{
    engine::Engine,
    peer::Peer,
    snapshot::Snapshot,
    sys::{BATCH, ReceiveBatch},
    tun::Tun,
    udp::WhenFull,
};

/// Batches from one socket before the other has its turn.
const TURN: usize = 16;

/// Runs until the engine stops. What the network or a peer sends never ends it.
///
/// # Errors
/// When waiting itself fails.
pub(super) fn run(engine: &Engine, tun: &Tun, private: StaticSecret) -> io::Result<()> {
    let mut receiver = Receiver::new(private);
    let mut waiter = engine.waiter(engine.sockets.all());
    while waiter.wait()? {
        for socket in engine.sockets.all() {
            receiver.turn(engine, tun, socket);
        }
    }
    Ok(())
}

struct Receiver {
    classifier: Classifier,
    batch: ReceiveBatch,
    /// The peer of each datagram in the batch; `None`: dropped.
    slots: Vec<Option<Slot>>,
    outbox: Outbox,
    inbox: Inbox,
}

impl Receiver {
    fn new(private: StaticSecret) -> Self {
        Self {
            classifier: Classifier::new(private, [RandomState::new(), RandomState::new()], Instant::now()),
            batch: ReceiveBatch::new(),
            slots: Vec::with_capacity(BATCH),
            outbox: Outbox::new(),
            inbox: Inbox::new(),
        }
    }

    fn turn(&mut self, engine: &Engine, tun: &Tun, socket: BorrowedFd<'_>) {
        for _ in 0..TURN {
            match self.batch.receive(socket) {
                Ok(received) => {
                    self.forward(engine, tun);
                    if received < BATCH {
                        return;
                    }
                }
                // An ICMP error from some host that we sent to: it says nothing about the next datagram.
                Err(error) => tracing::debug!(%error, "the socket reports an error"),
            }
        }
    }

    /// Opens the batch, one lock for each run of datagrams of one peer, and writes what may enter.
    fn forward(&mut self, engine: &Engine, tun: &Tun) {
        let snapshot = engine.snapshot.load();
        let now = Instant::now();
        self.classify(engine, &snapshot, now);
        let mut run: Vec<(&[u8], SocketAddr)> = Vec::with_capacity(BATCH);
        let mut datagrams = self.batch.iter().zip(&self.slots).peekable();
        while let Some((datagram, slot)) = datagrams.next() {
            let Some(slot) = *slot else { continue };
            run.clear();
            run.push(datagram);
            while let Some((datagram, _)) = datagrams.next_if(|(_, next)| **next == Some(slot)) {
                run.push(datagram);
            }
            let Some(peer) = snapshot.peer(slot) else { continue };
            let captures = |address| snapshot.table.captures(address);
            peer.session().open(run.iter().copied(), captures, now, &mut self.outbox, &mut self.inbox);
            deliver(&snapshot, slot, peer, &self.inbox, tun);
            self.inbox.clear();
        }
        engine.send(&mut self.outbox, WhenFull::Drop);
    }

    fn classify(&mut self, engine: &Engine, snapshot: &Snapshot, now: Instant) {
        self.slots.clear();
        for (datagram, from) in self.batch.iter() {
            let slot = self.classifier.classify(&snapshot.demux, datagram, from, now, &mut self.outbox);
            self.slots.push(slot.map_err(|reason| engine.drops.add(reason, 1)).ok());
        }
    }
}

/// Writes the packets that this peer may send.
fn deliver(snapshot: &Snapshot, slot: Slot, peer: &Peer, inbox: &Inbox, tun: &Tun) {
    for bytes in inbox.iter() {
        if let Err(reason) = deliver_one(snapshot, slot, bytes, tun) {
            peer.counters.drops.add(reason, 1);
        }
    }
}

fn deliver_one(snapshot: &Snapshot, slot: Slot, bytes: &[u8], tun: &Tun) -> Result<(), Drop> {
    let packet = packet::parse(bytes).map_err(|_| Drop::Malformed)?;
    if !snapshot.table.is_feasible(packet.source, slot) {
        return Err(Drop::SourceNotFeasible);
    }
    tun.write(packet.bytes).map_err(|error| {
        tracing::trace!(%error, "the kernel refuses an inner packet");
        Drop::TunWrite
    })
}
