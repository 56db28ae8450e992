//! What the packet threads share, and how they wait.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use arc_swap::ArcSwap;
use isthmus_tunnel::{
    buffer::Outbox,
    counters::{Drop, Drops},
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

use super::{
    Error,
    snapshot::Snapshot,
    udp::{Sockets, WhenFull},
};

/// Shared by both packet threads and the control task.
pub(super) struct Engine {
    pub(super) snapshot: ArcSwap<Snapshot>,
    pub(super) sockets: Sockets,
    /// Drops that belong to no peer.
    pub(super) drops: Drops,
    stop: EventFd,
}

impl Engine {
    pub(super) fn new(snapshot: Snapshot, sockets: Sockets) -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = EventFd::from_flags(flags)
            .map_err(|error| Error::System { what: "make an eventfd", reason: error.into() })?;
        Ok(Self { snapshot: ArcSwap::from_pointee(snapshot), sockets, drops: Drops::default(), stop })
    }

    /// Sends and forgets what is in the outbox.
    pub(super) fn send(&self, outbox: &mut Outbox, when_full: WhenFull) {
        let dropped = self.sockets.send(outbox, when_full);
        if dropped > 0 {
            self.drops.add(Drop::Send, dropped);
        }
        outbox.clear();
    }

    /// A way to wait for these descriptors, or for the engine to stop.
    pub(super) fn waiter<'a>(&'a self, readable: impl Iterator<Item = BorrowedFd<'a>>) -> Waiter<'a> {
        let stop = PollFd::new(self.stop.as_fd(), PollFlags::POLLIN);
        let rest = readable.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        Waiter { descriptors: std::iter::once(stop).chain(rest).collect() }
    }

    /// Ends every [`Waiter::wait`], now and later.
    pub(super) fn stop(&self) {
        // It fails only when the counter is about to overflow, and then it is readable already.
        let _ = self.stop.write(1);
    }
}

/// Descriptors that a thread waits for; the first is the engine's stop signal.
pub(super) struct Waiter<'a> {
    descriptors: Vec<PollFd<'a>>,
}

impl Waiter<'_> {
    /// Waits until one of the descriptors has something (true) or the engine stops (false).
    pub(super) fn wait(&mut self) -> io::Result<bool> {
        loop {
            match poll(&mut self.descriptors, PollTimeout::NONE) {
                Ok(_) => return Ok(self.descriptors.first().is_some_and(|stop| stop.any() != Some(true))),
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, sync::Arc};

    use isthmus_tunnel::table::Underlay;

    use super::*;

    #[test]
    fn waiter_wakes_for_data_and_for_the_end() {
        let snapshot = Snapshot::new(Vec::new(), &[], Underlay::default());
        let engine = Arc::new(Engine::new(snapshot, Sockets::bind(0).unwrap()).unwrap());
        let mut waiter = engine.waiter(engine.sockets.all());
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"x", ("127.0.0.1", engine.sockets.port())).unwrap();
        assert!(waiter.wait().unwrap());
        let other = Arc::clone(&engine);
        let thread = std::thread::spawn(move || {
            let mut waiter = other.waiter(std::iter::empty());
            waiter.wait().unwrap()
        });
        engine.stop();
        assert!(!thread.join().unwrap());
        assert!(!waiter.wait().unwrap());
    }
}
