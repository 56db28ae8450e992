//! The threads from the TUN device to the network.

mod guard;
mod notices;
mod router;
mod work;

use std::{
    io,
    ops::Range,
    os::fd::AsFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use isthmus_tunnel::{Now, buffer::Outbox, offload::vnet};

use super::{
    engine::{Engine, now},
    send::{Sender, WhenFull},
    snapshot::Snapshot,
    sockets::Sockets,
    tun::Queue,
};
use guard::Guard;
use notices::Notices;
use router::Router;
use work::Work;

/// Packets or bursts in a batch at most.
const BATCH: usize = 64;
/// A batch with this many bytes is sent on before more is read: what waits in it grows old.
const ENOUGH: usize = 32 * 1024;
/// The longest that the device hands us: header and packet.
const LONGEST: usize = vnet::LENGTH + 65_535;
/// Batches before the thread looks whether it is to stop.
const TURN: usize = 16;

/// Runs until the engine stops.
///
/// # Errors
/// When the device is gone.
pub(super) fn run(engine: &Engine, queue: &Queue, sockets: &Sockets, shared: &Shared) -> io::Result<()> {
    let mut waiter = engine.waiter(std::iter::once(queue.as_fd()))?;
    while waiter.wait()? {
        let mut transmitter = shared.lock();
        for _ in 0..TURN {
            if !transmitter.fill(queue)? {
                break;
            }
            transmitter.forward(engine, queue, sockets);
        }
    }
    Ok(())
}

/// The transmitter of a queue, shared by the two threads of a worker. Whoever holds it reads the queue and sends what was read, so the
/// order of packets is that of the queue.
#[derive(Default)]
pub(super) struct Shared(Mutex<Transmitter>);

impl Shared {
    /// Sends what the device has to say right now, unless the other thread is at it. For the thread that has just written to the
    /// device: the answer of a host behind it then needs no other thread to wake up.
    pub(super) fn answer(&self, engine: &Engine, queue: &Queue, sockets: &Sockets) {
        let Ok(mut transmitter) = self.0.try_lock() else { return };
        // This thread must not stand still: what there may be no room for is left to the other one.
        if transmitter.sender.had_to_wait() {
            return;
        }
        // An error is for the thread that waits for the device: it ends with it.
        if matches!(transmitter.fill(queue), Ok(true)) {
            transmitter.forward(engine, queue, sockets);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Transmitter> {
        // A panic while it was held lost a batch; the next one starts afresh.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Transmitter {
    memory: Vec<u8>,
    /// Where each packet of the batch lies in `memory`, its virtio header included; without gaps.
    packets: Vec<Range<usize>>,
    outbox: Outbox,
    sender: Sender,
    guard: Guard,
    notices: Notices,
}

impl Default for Transmitter {
    fn default() -> Self {
        Self {
            memory: vec![0; ENOUGH + LONGEST],
            packets: Vec::with_capacity(BATCH),
            outbox: Outbox::new(),
            sender: Sender::new(),
            guard: Guard::default(),
            notices: Notices::default(),
        }
    }
}

impl Transmitter {
    /// Reads what is there, up to a batch; false if there is nothing.
    fn fill(&mut self, queue: &Queue) -> io::Result<bool> {
        self.packets.clear();
        let mut used = 0;
        while self.packets.len() < BATCH && used < ENOUGH {
            let Some(length) = queue.read(&mut self.memory[used..used + LONGEST])? else { break };
            self.packets.push(used..used + length);
            used += length;
        }
        Ok(!self.packets.is_empty())
    }

    /// Routes, seals and sends the batch: each peer is asked once, and its packets keep their order.
    fn forward(&mut self, engine: &Engine, queue: &Queue, sockets: &Sockets) {
        let (snapshot, now) = (engine.snapshot.load(), now());
        let mut router =
            Router::new(engine, &snapshot, &mut self.guard, &mut self.notices, queue, now.instant);
        let mut work: Vec<Work<'_>> = Vec::with_capacity(self.packets.len());
        let mut rest = self.memory.as_mut_slice();
        for range in &self.packets {
            let (bytes, after) = rest.split_at_mut(range.len());
            rest = after;
            work.extend(router.route(bytes));
        }
        // Stable: the packets of a peer stay in the order in which they came.
        work.sort_by_key(|work| work.peer);
        for run in work.chunk_by(|a, b| a.peer == b.peer) {
            seal(engine, &snapshot, run, now, &mut self.outbox);
        }
        engine.send(&mut self.sender, sockets, &mut self.outbox, WhenFull::Wait, now);
    }
}

/// One lock and one look for the session, however many packets there are.
fn seal(engine: &Engine, snapshot: &Snapshot, run: &[Work<'_>], now: Now, outbox: &mut Outbox) {
    let Some(peer) = run.first().and_then(|work| snapshot.peer(work.peer)) else { return };
    if peer.session.seal(work::pieces(run), now, outbox) {
        engine.look_at(peer);
    }
}
