//! The threads from the network to the TUN device.

use std::{hash::RandomState, io, os::fd::BorrowedFd, sync::Arc};

use isthmus_tunnel::{
    Identity, Now,
    buffer::{Datagram, Opened, Outbox},
    receive::{self, Receiver as Classifier},
};

use super::{
    deliver::Deliverer,
    engine::{Engine, now},
    send::{Sender, WhenFull},
    snapshot::Snapshot,
    sockets::Sockets,
    sys::ReceiveBatch,
    transmit::{self, Duty},
    tun::Queue,
};

/// Batches from one socket before the other has its turn.
const TURN: usize = 16;
/// After so few datagrams the thread has time to look after the device, too.
const FEW: u64 = transmit::FEW as u64;
/// What was opened is delivered before more than this many bytes wait for that.
const ENOUGH: usize = 64 * 1024;

/// Runs until the engine stops. What the network or a peer sends never ends it.
///
/// # Errors
/// When waiting itself fails, or the device is gone.
pub(super) fn run(
    engine: &Engine,
    queue: &Queue,
    sockets: &Sockets,
    identity: Arc<Identity>,
    duty: &Duty,
) -> io::Result<()> {
    let mut receiver = Receiver::new(identity);
    (0..).zip(sockets.all()).try_for_each(|(number, socket)| duty.little().add(socket, number))?;
    let mut waiter = engine.waiter(duty.little().clone())?;
    while waiter.wait()? {
        if waiter.has(Duty::QUEUE) {
            duty.answer(engine, queue, sockets)?;
        }
        for (_, socket) in (0..).zip(sockets.all()).filter(|(number, _)| waiter.has(*number)) {
            receiver.turn(engine, queue, sockets, socket, duty)?;
        }
    }
    Ok(())
}

struct Receiver {
    batch: ReceiveBatch,
    opener: Opener,
    deliverer: Deliverer,
}

/// What turns datagrams into inner packets.
struct Opener {
    classifier: Classifier,
    outbox: Outbox,
    sender: Sender,
}

impl Receiver {
    fn new(identity: Arc<Identity>) -> Self {
        let hashers = [RandomState::new(), RandomState::new()];
        Self {
            batch: ReceiveBatch::new(),
            opener: Opener {
                classifier: Classifier::new(identity, rand::random(), hashers, now()),
                outbox: Outbox::new(),
                sender: Sender::new(),
            },
            deliverer: Deliverer::new(),
        }
    }

    /// Takes what one socket has.
    fn turn(
        &mut self,
        engine: &Engine,
        queue: &Queue,
        sockets: &Sockets,
        socket: BorrowedFd<'_>,
        duty: &Duty,
    ) -> io::Result<()> {
        for _ in 0..TURN {
            match self.batch.receive(socket) {
                Ok(more) => {
                    match self.forward(engine, queue, sockets) {
                        0..=FEW if !more => duty.answer(engine, queue, sockets)?,
                        _ => duty.call(queue)?,
                    }
                    if !more {
                        break;
                    }
                }
                // An ICMP error from some host that we sent to: it says nothing about the next datagram.
                Err(error) => tracing::debug!(%error, "the socket reports an error"),
            }
        }
        Ok(())
    }

    /// Opens the batch run by run, and writes what may enter; how many datagrams it had.
    fn forward(&mut self, engine: &Engine, queue: &Queue, sockets: &Sockets) -> u64 {
        let (snapshot, now) = (engine.snapshot.load(), now());
        let sizes = self.batch.message_sizes().inspect(|size| engine.batches.udp_receive.record(*size));
        let taken = sizes.sum();
        let mut delivery = self.deliverer.start(engine, &snapshot, queue);
        let mut datagrams = self.batch.datagrams().peekable();
        let mut inbox: Vec<Opened<'_>> = Vec::new();
        while let Some(first) = datagrams.next() {
            let key = receive::session_of(first.bytes);
            let mut size = first.bytes.len();
            let more = std::iter::from_fn(|| {
                datagrams.next_if(|next| {
                    let joins = key.is_some() && size < ENOUGH && receive::session_of(next.bytes) == key;
                    size += if joins { next.bytes.len() } else { 0 };
                    joins
                })
            });
            if let Some(slot) = self.opener.open(engine, &snapshot, first, more, now, &mut inbox) {
                delivery.accept(slot, inbox.drain(..));
            }
        }
        delivery.finish();
        self.opener.answer(engine, sockets, now);
        taken
    }
}

impl Opener {
    /// Opens a run of datagrams of one session; the peer that it is with.
    fn open<'a>(
        &mut self,
        engine: &Engine,
        snapshot: &Snapshot,
        first: Datagram<'a>,
        more: impl Iterator<Item = Datagram<'a>>,
        now: Now,
        inbox: &mut Vec<Opened<'a>>,
    ) -> Option<isthmus_tunnel::table::Slot> {
        let found = self.classifier.classify(&snapshot.demux, first.bytes, first.path, now, &mut self.outbox);
        let slot = match found {
            Ok(slot) => slot,
            Err(reason) => {
                engine.drops.add(reason, 1 + u64::try_from(more.count()).unwrap_or(0));
                return None;
            }
        };
        let peer = snapshot.peer(slot)?;
        let captures = |address| snapshot.table.captures(address);
        let before = (peer.is_up(), peer.session.mtu());
        let run = std::iter::once(first).chain(more);
        let sooner = peer.session.open(run, captures, now, &mut self.outbox, inbox);
        if sooner || before != (peer.is_up(), peer.session.mtu()) {
            engine.look_at(peer);
        }
        Some(slot)
    }

    /// Sends what there is to answer.
    fn answer(&mut self, engine: &Engine, sockets: &Sockets, now: Now) {
        engine.send(&mut self.sender, sockets, &mut self.outbox, WhenFull::Drop, now);
    }
}
