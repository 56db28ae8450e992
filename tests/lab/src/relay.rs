//! A host between two gateways: carries their datagrams, and does to them what a network may do.

use std::{
    net::SocketAddr,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{netns::Netns, probe::MarkedSocket};

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passing {
    /// Which end sent it: 0 or 1.
    pub from: usize,
    /// The payload of UDP.
    pub bytes: Vec<u8>,
    /// TOS byte or traffic class; its low two bits are the ECN field.
    pub tos: u8,
}

/// Carries until it is dropped.
#[derive(Debug)]
pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// What end `i` sends to `faces[i]` leaves `faces[1 - i]` for the other end: each end knows the other by the face before it. `treat`
    /// says what becomes of each datagram: itself, nothing, others.
    ///
    /// # Errors
    /// When a face is no free address of `netns`.
    pub fn start(
        netns: &Netns,
        faces: [SocketAddr; 2],
        ends: [SocketAddr; 2],
        treat: impl FnMut(Passing) -> Vec<Passing> + Send + 'static,
    ) -> Result<Self> {
        let sockets = [MarkedSocket::bind(netns, faces[0])?, MarkedSocket::bind(netns, faces[1])?];
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || carry(&sockets, ends, treat, &stop)
        });
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(
    sockets: &[MarkedSocket; 2],
    ends: [SocketAddr; 2],
    mut treat: impl FnMut(Passing) -> Vec<Passing>,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        let mut both = [0, 1].map(|n| PollFd::new(sockets[n].as_fd(), PollFlags::POLLIN));
        let _ = poll(&mut both, PollTimeout::from(50u8));
        for from in 0..2 {
            while let Some(passing) = receive(&sockets[from], from, ends[from]) {
                for Passing { from, bytes, tos } in treat(passing) {
                    // Lost, if the kernel does not take it: networks do that.
                    let _ = sockets[1 - from].send(ends[1 - from], &bytes, tos);
                }
            }
        }
    }
}

/// The next datagram of this end; strangers may knock here too. `None`: nothing is there now.
fn receive(socket: &MarkedSocket, from: usize, end: SocketAddr) -> Option<Passing> {
    loop {
        match socket.try_receive() {
            Ok(Some(marked)) if marked.from == end => {
                return Some(Passing { from, bytes: marked.bytes, tos: marked.tos });
            }
            Ok(None) => return None,
            // An error is what a host said to an earlier datagram.
            Ok(Some(_)) | Err(_) => {}
        }
    }
}
