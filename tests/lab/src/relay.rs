//! A host between two gateways: carries their datagrams, and does to them what a network may do.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
    },
};
use socket2::{Domain, Socket, Type};

use crate::netns::Netns;

/// Bursts of the gateways must find room.
const BUFFER: usize = 8 << 20;

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
        let sockets = netns.run(|| -> io::Result<[UdpSocket; 2]> { Ok([open(faces[0])?, open(faces[1])?]) })?;
        let sockets = sockets.with_context(|| format!("relay at {faces:?} in {}", netns.name()))?;
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

fn open(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    if at.is_ipv4() {
        socket.set_recv_tos_v4(true)?;
    } else {
        socket.set_recv_tclass_v6(true)?;
    }
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        socket.set_recv_buffer_size(BUFFER)?;
    }
    socket.bind(&at.into())?;
    Ok(socket.into())
}

fn carry(
    sockets: &[UdpSocket; 2],
    ends: [SocketAddr; 2],
    mut treat: impl FnMut(Passing) -> Vec<Passing>,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        let mut both = [0, 1].map(|n| PollFd::new(sockets[n].as_fd(), PollFlags::POLLIN));
        let _ = poll(&mut both, PollTimeout::from(50u8));
        for from in 0..2 {
            while let Some(passing) = receive(&sockets[from], from, ends[from]) {
                treat(passing).iter().for_each(|passing| send(sockets, ends, passing));
            }
        }
    }
}

/// `None`: nothing is there now.
fn receive(socket: &UdpSocket, from: usize, end: SocketAddr) -> Option<Passing> {
    let mut buffer = vec![0; 65_536];
    loop {
        let mut pieces = [IoSliceMut::new(&mut buffer)];
        let mut space = nix::cmsg_space!(i32);
        let received = recvmsg::<SockaddrStorage>(
            socket.as_raw_fd(),
            &mut pieces,
            Some(&mut space),
            MsgFlags::MSG_DONTWAIT,
        );
        match received {
            Ok(message) => {
                let (length, sender) = (message.bytes, message.address.and_then(address));
                let tos = message.cmsgs().into_iter().flatten().find_map(tos);
                // Strangers may knock here too.
                if sender == Some(end) {
                    buffer.truncate(length);
                    return Some(Passing { from, bytes: buffer, tos: tos.unwrap_or(0) });
                }
            }
            Err(nix::Error::EAGAIN) => return None,
            // An answer to something sent before: the end is not there.
            Err(_) => {}
        }
    }
}

fn address(storage: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|address| SocketAddr::V4((*address).into()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|address| SocketAddr::V6((*address).into())))
}

fn tos(message: ControlMessageOwned) -> Option<u8> {
    match message {
        ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
        ControlMessageOwned::Ipv6TClass(class) => u8::try_from(class).ok(),
        _ => None,
    }
}

fn send(sockets: &[UdpSocket; 2], ends: [SocketAddr; 2], passing: &Passing) {
    let to = 1 - passing.from;
    let (address, class) = (SockaddrStorage::from(ends[to]), i32::from(passing.tos));
    let control = match ends[to] {
        SocketAddr::V4(_) => ControlMessage::Ipv4Tos(&passing.tos),
        SocketAddr::V6(_) => ControlMessage::Ipv6TClass(&class),
    };
    let pieces = [IoSlice::new(&passing.bytes)];
    let socket = sockets[to].as_raw_fd();
    // Lost, if the kernel does not take it: networks do that.
    let _ = sendmsg(socket, &pieces, &[control], MsgFlags::empty(), Some(&address));
}
