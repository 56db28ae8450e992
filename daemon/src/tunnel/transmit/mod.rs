//! From the TUN device to the network: what is done, and which thread of a worker does it.

mod guard;
mod notices;
mod router;
mod work;

use std::{
    io,
    ops::Range,
    os::fd::AsFd,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use isthmus_tunnel::{Now, buffer::Outbox, offload::vnet};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{
    engine::{Engine, now},
    send::{Sender, WhenFull},
    snapshot::Snapshot,
    sockets::Sockets,
    tun::Queue,
    waiter::{Set, Woken},
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
/// Packets in a batch, either way, or batches in a turn, that are not much.
pub(super) const FEW: usize = 8;
/// Milliseconds without a packet after which there is little to do.
const QUIET: u8 = 2;

/// Looks after the device while there is much to do, until the engine stops.
///
/// # Errors
/// When the device is gone.
pub(super) fn run(engine: &Engine, queue: &Queue, sockets: &Sockets, duty: &Duty) -> io::Result<()> {
    let (calls, device) = (Set::new()?, Set::new()?);
    calls.add(duty.call.as_fd(), 0)?;
    device.add(queue.as_fd(), 0)?;
    let (mut calls, mut device) = (engine.waiter(calls)?, engine.waiter(device)?);
    while calls.wait()? {
        // Whatever it counts, one call is enough.
        let _ = duty.call.read();
        loop {
            match device.wait_for(QUIET.into())? {
                Woken::Ready => {
                    duty.turn(engine, queue, sockets)?;
                }
                Woken::Quiet => break duty.accept(queue)?,
                Woken::Stop => return Ok(()),
            }
        }
    }
    Ok(())
}

/// Who looks after a queue of the device. While there is little to do, the thread that receives from the network does that, too: then
/// no other thread has to wake up for an answer. When there is much it calls the other thread, which gives the queue back when nothing
/// came for [`QUIET`].
///
/// Whoever reads the queue holds the transmitter until what was read is sent, so the order of packets is that of the queue.
pub(super) struct Duty {
    transmitter: Mutex<Transmitter>,
    /// What the receiving thread waits for.
    little: Set,
    is_little: AtomicBool,
    /// Wakes the other thread.
    call: EventFd,
}

impl Duty {
    /// The number of the queue among what the receiving thread waits for.
    pub(super) const QUEUE: u64 = u64::MAX - 1;

    /// The queue belongs to the receiving thread, which waits with this for its sockets as well.
    pub(super) fn new(queue: &Queue) -> io::Result<Self> {
        let call = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let (transmitter, is_little) = (Mutex::default(), AtomicBool::new(false));
        let duty = Self { transmitter, little: Set::new()?, is_little, call };
        duty.accept(queue)?;
        Ok(duty)
    }

    /// What the receiving thread waits for.
    pub(super) fn little(&self) -> &Set {
        &self.little
    }

    /// In this order: [`Duty::call`] may remove the queue as soon as it sees that there is little to do.
    fn accept(&self, queue: &Queue) -> io::Result<()> {
        self.little.add(queue.as_fd(), Self::QUEUE)?;
        self.is_little.store(true, Ordering::Release);
        Ok(())
    }

    /// There is much to do: from now on the other thread looks after the queue. Only the receiving thread says so.
    pub(super) fn call(&self, queue: &Queue) -> io::Result<()> {
        if self.is_little.swap(false, Ordering::AcqRel) {
            self.little.remove(queue.as_fd())?;
            self.call.write(1)?;
        }
        Ok(())
    }

    /// Sends what the device has to say; true if that is much.
    fn turn(&self, engine: &Engine, queue: &Queue, sockets: &Sockets) -> io::Result<bool> {
        let mut transmitter = self.lock();
        for turn in 0..TURN {
            if !transmitter.fill(queue)? {
                return Ok(turn > FEW);
            }
            transmitter.forward(engine, queue, sockets);
            if transmitter.has_much() {
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// Looks for what a host had to say to what was just written to the device: that is sooner than the kernel says that it is there.
    pub(super) fn answer(&self, engine: &Engine, queue: &Queue, sockets: &Sockets) -> io::Result<()> {
        if self.is_little.load(Ordering::Acquire) && self.turn(engine, queue, sockets)? {
            self.call(queue)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Transmitter> {
        // A panic while it was held lost a batch; the next one starts afresh.
        self.transmitter.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// True if the batch was large, or the socket full.
    fn has_much(&self) -> bool {
        let bytes = self.packets.last().map_or(0, |last| last.end);
        self.packets.len() > FEW || bytes >= ENOUGH || self.sender.had_to_wait()
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
