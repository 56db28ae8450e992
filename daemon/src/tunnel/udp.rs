//! The outer sockets: one for each family on the same port.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use isthmus_tunnel::buffer::Outbox;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{setsockopt, sockopt},
};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Error, sys};

/// 10 ms at 10 Gb/s.
const RECEIVE_BUFFER: usize = 16 << 20;
const SEND_BUFFER: usize = 2 << 20;
/// How long a sender waits for room in the socket before it gives a datagram up.
const PATIENCE: Duration = Duration::from_millis(10);

/// Both sockets.
pub(super) struct Sockets {
    v4: Socket,
    /// Absent where the kernel has no IPv6.
    v6: Option<Socket>,
    port: u16,
}

/// What a sender does when the socket is full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// Waits a moment: back-pressure for the one who reads the TUN device.
    Wait,
    /// Drops: for those who must not stand still.
    Drop,
}

impl Sockets {
    /// Binds both; port 0 lets the kernel choose one.
    pub(super) fn bind(port: u16) -> Result<Self, Error> {
        let fail = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => Error::PortInUse(port),
            _ => Error::Socket { port, reason: source },
        };
        let v4 = open(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, port).into()).map_err(fail)?;
        let bound = v4.local_addr().map_err(fail)?.as_socket().map_or(port, |address| address.port());
        let v6 = match open(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, bound).into()) {
            Ok(socket) => Some(socket),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => {
                tracing::warn!(%error, "this host has no IPv6: peers with IPv6 endpoints cannot be reached");
                None
            }
            Err(error) => return Err(fail(error)),
        };
        Ok(Self { v4, v6, port: bound })
    }

    /// The port both are bound to.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The sockets to receive from.
    pub(super) fn all(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.v4).chain(&self.v6).map(AsFd::as_fd)
    }

    /// Sends everything in order; the number of datagrams that the kernel did not take.
    pub(super) fn send(&self, outbox: &Outbox, when_full: WhenFull) -> u64 {
        let mut dropped = 0;
        let mut messages = outbox.iter().peekable();
        while let Some(&(_, to)) = messages.peek() {
            let mut run: [(&[u8], SocketAddr); sys::BATCH] = [(&[], to); sys::BATCH];
            let mut length = 0;
            while let Some(message) =
                messages.next_if(|(_, next)| length < sys::BATCH && next.is_ipv4() == to.is_ipv4())
            {
                run[length] = message;
                length += 1;
            }
            dropped += self.send_run(&run[..length], when_full);
        }
        dropped
    }

    /// Sends messages of one family.
    fn send_run(&self, mut run: &[(&[u8], SocketAddr)], when_full: WhenFull) -> u64 {
        let v6 = run.first().is_some_and(|(_, to)| to.is_ipv6());
        let Some(socket) = (if v6 { self.v6.as_ref() } else { Some(&self.v4) }) else {
            return u64::try_from(run.len()).unwrap_or(u64::MAX);
        };
        let (mut dropped, mut waited) = (0, false);
        while !run.is_empty() {
            match sys::send(socket.as_fd(), run) {
                Ok(sent) => {
                    run = &run[sent.max(1)..];
                    waited = false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_full(&error) && when_full == WhenFull::Wait && !waited => {
                    wait_for_room(socket.as_fd());
                    waited = true;
                }
                Err(error) => {
                    tracing::trace!(%error, to = %run[0].1, "datagram not sent");
                    run = &run[1..];
                    dropped += 1;
                }
            }
        }
        dropped
    }
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

fn wait_for_room(socket: BorrowedFd<'_>) {
    let timeout = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::ZERO);
    // Whatever it says, the next attempt to send decides.
    let _ = poll(&mut [PollFd::new(socket, PollFlags::POLLOUT)], timeout);
}

fn open(domain: Domain, address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    // Best effort: without CAP_NET_ADMIN the kernel caps both at net.core.{r,w}mem_max.
    if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    }
    if setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
        let _ = socket.set_send_buffer_size(SEND_BUFFER);
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_in_use_is_named_with_a_remedy() {
        let first = Sockets::bind(0).unwrap();
        let error = Sockets::bind(first.port()).err().unwrap().to_string();
        assert!(error.contains(&format!("UDP port {}", first.port())), "{error}");
        assert!(error.contains("`listen`"), "{error}");
    }

    #[test]
    fn families_are_mixed_and_refusals_counted() {
        let (from, to) = (Sockets::bind(0).unwrap(), Sockets::bind(0).unwrap());
        let v4: SocketAddr = (Ipv4Addr::LOCALHOST, to.port()).into();
        let v6: SocketAddr = (Ipv6Addr::LOCALHOST, to.port()).into();
        let mut outbox = Outbox::new();
        for n in 0..200_u8 {
            outbox.push(&[n; 100], if n % 3 == 0 && to.v6.is_some() { v6 } else { v4 });
        }
        outbox.push(&[0; 10], "0.0.0.0:0".parse().unwrap());
        outbox.push(&[200; 100], v4);
        assert_eq!(from.send(&outbox, WhenFull::Wait), 1);
        let (mut batch, mut received) = (sys::ReceiveBatch::new(), Vec::new());
        for socket in to.all() {
            let mut last = None;
            while batch.receive(socket).unwrap() > 0 {
                for (bytes, _) in batch.iter() {
                    assert!(last < Some(bytes[0]), "order is kept within a family");
                    last = Some(bytes[0]);
                    received.push(bytes[0]);
                }
            }
        }
        received.sort_unstable();
        assert_eq!(received, (0..=200).collect::<Vec<u8>>());
    }
}
