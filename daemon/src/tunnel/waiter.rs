//! How packet threads wait.

use std::{io, os::fd::BorrowedFd, sync::Arc};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Descriptors that a thread waits for, each known by a number; and the engine's stop signal.
pub(super) struct Waiter {
    set: Set,
    events: [EpollEvent; EVENTS],
    ready: usize,
}

/// The descriptors of a [`Waiter`], for those who change them while it waits.
#[derive(Clone)]
pub(super) struct Set(Arc<Epoll>);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Some descriptor has something.
    Ready,
    /// Nothing happened for so long.
    Quiet,
    /// The engine stops.
    Stop,
}

/// The number of the engine's stop signal.
const STOP: u64 = u64::MAX;
/// Descriptors told of at once: both sockets, the device and the stop signal.
const EVENTS: usize = 4;

impl Set {
    /// An empty one.
    ///
    /// # Errors
    /// When the kernel has no room for another epoll instance.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?)))
    }

    pub(super) fn add(&self, descriptor: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        Ok(self.0.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, number))?)
    }

    pub(super) fn remove(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.0.delete(descriptor)?)
    }
}

impl Waiter {
    /// Waits for what is in the set, and for the stop signal.
    pub(super) fn new(set: Set, stop: BorrowedFd<'_>) -> io::Result<Self> {
        set.add(stop, STOP)?;
        Ok(Self { set, events: [EpollEvent::empty(); EVENTS], ready: 0 })
    }

    /// Waits until one of the descriptors has something (true) or the engine stops (false).
    pub(super) fn wait(&mut self) -> io::Result<bool> {
        Ok(self.wait_for(EpollTimeout::NONE)? != Woken::Stop)
    }

    /// Waits no longer than this.
    pub(super) fn wait_for(&mut self, timeout: EpollTimeout) -> io::Result<Woken> {
        self.ready = loop {
            match self.set.0.wait(&mut self.events, timeout) {
                Ok(ready) => break ready,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        Ok(match self.ready {
            0 => Woken::Quiet,
            _ if self.has(STOP) => Woken::Stop,
            _ => Woken::Ready,
        })
    }

    /// True if the descriptor of this number had something when the last wait ended.
    pub(super) fn has(&self, number: u64) -> bool {
        self.events[..self.ready].iter().any(|event| event.data() == number)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nix::sys::eventfd::EventFd;

    use super::*;

    #[test]
    fn a_waiter_says_what_woke_it() {
        let [stop, one, two] = std::array::from_fn(|_| EventFd::new().unwrap());
        let set = Set::new().unwrap();
        set.add(one.as_fd(), 1).unwrap();
        let mut waiter = Waiter::new(set.clone(), stop.as_fd()).unwrap();
        assert_eq!(waiter.wait_for(EpollTimeout::ZERO).unwrap(), Woken::Quiet);
        set.add(two.as_fd(), 2).unwrap();
        two.write(1).unwrap();
        assert!(waiter.wait().unwrap() && waiter.has(2) && !waiter.has(1));
        set.remove(two.as_fd()).unwrap();
        assert!(set.remove(two.as_fd()).is_err());
        assert_eq!(waiter.wait_for(EpollTimeout::ZERO).unwrap(), Woken::Quiet);
        one.write(1).unwrap();
        stop.write(1).unwrap();
        assert!(!waiter.wait().unwrap());
    }
}
