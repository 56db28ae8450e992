//! The outer sockets: for each worker one of each family, all on the same port.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{setsockopt, sockopt},
};
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    Error,
    send::Wire,
    sys::{self, Message, SendSpace},
};

/// 10 ms at 10 Gb/s.
const RECEIVE_BUFFER: usize = 16 << 20;
const SEND_BUFFER: usize = 2 << 20;
/// The mark of our datagrams, for routing rules and firewalls. It has no bit that kube-proxy (0x4000, 0x8000), Cilium (0x0f00), Calico
/// (0xffff0000), Tailscale (0xff0000) or the VPC CNI of AWS (0x80) gives a meaning.
pub(super) const MARK: u32 = 0x73;

/// Both sockets of one worker.
pub(super) struct Sockets {
    v4: Socket,
    /// Absent where the kernel has no IPv6.
    v6: Option<Socket>,
    port: u16,
}

/// Binds `workers` pairs to one port; port 0 lets the kernel choose one. The kernel keeps each far end at one of the pairs.
pub(super) fn bind(port: u16, workers: usize) -> Result<Vec<Sockets>, Error> {
    // Another isthmusd must not get the port, so the first pair is bound without sharing it; the others join.
    let first = Sockets::bind(port, false)?;
    let port = first.port;
    let mut pairs = vec![first];
    while pairs.len() < workers {
        pairs.iter().try_for_each(Sockets::share_port)?;
        pairs.push(Sockets::bind(port, true)?);
    }
    Ok(pairs)
}

impl Sockets {
    fn bind(port: u16, shared: bool) -> Result<Self, Error> {
        let fail = |source| failure(port, source);
        let v4 = open(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, port).into(), shared).map_err(fail)?;
        let bound = v4.local_addr().map_err(fail)?.as_socket().map_or(port, |address| address.port());
        let v6 = match open(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, bound).into(), shared) {
            Ok(socket) => Some(socket),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => {
                tracing::warn!(%error, "this host has no IPv6: peers with IPv6 endpoints cannot be reached");
                None
            }
            Err(error) => return Err(fail(error)),
        };
        Ok(Self { v4, v6, port: bound })
    }

    fn share_port(&self) -> Result<(), Error> {
        let both = std::iter::once(&self.v4).chain(&self.v6);
        let mut results = both.map(|socket| socket.set_reuse_port(true));
        results.try_for_each(|result| result).map_err(|source| failure(self.port, source))
    }

    /// The port both are bound to.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The sockets to receive from.
    pub(super) fn all(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.v4).chain(&self.v6).map(AsFd::as_fd)
    }

    /// Whether the kernel may merge what arrives.
    pub(super) fn accept_merged(&self, on: bool) -> io::Result<()> {
        self.all().try_for_each(|socket| sys::accept_merged(socket, on))
    }

    /// Sends one datagram that must arrive whole or not at all; `Ok(false)`: it is too big for the link.
    ///
    /// The kernel knows that wish only of a whole socket. While this call lasts, mostly microseconds, it holds for other threads'
    /// datagrams too: what does not fit the link is refused and sent again, what does not fit the path behind it is lost.
    pub(super) fn send_whole(&self, space: &mut SendSpace, message: &Message<'_>) -> io::Result<bool> {
        let v6 = message.path.remote.is_ipv6();
        let socket = self.of(v6)?;
        sys::discover_mtu(socket, v6)?;
        let sent = space.send(socket, &[*message]);
        sys::keep_fragments_possible(socket, v6)?;
        match sent {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn of(&self, v6: bool) -> io::Result<BorrowedFd<'_>> {
        let socket = if v6 { self.v6.as_ref() } else { Some(&self.v4) };
        socket.map(AsFd::as_fd).ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
    }
}

impl Wire for Sockets {
    fn send(&self, space: &mut SendSpace, messages: &[Message<'_>]) -> io::Result<usize> {
        let v6 = messages.first().is_some_and(|message| message.path.remote.is_ipv6());
        space.send(self.of(v6)?, messages)
    }

    fn wait(&self, v6: bool, patience: Duration) {
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        if let Ok(socket) = self.of(v6) {
            // Whatever it says, the next attempt to send decides.
            let _ = poll(&mut [PollFd::new(socket, PollFlags::POLLOUT)], timeout);
        }
    }
}

fn failure(port: u16, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::AddrInUse => Error::PortInUse(port),
        _ => Error::Socket { port, reason: source },
    }
}

fn open(domain: Domain, address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let v6 = domain == Domain::IPV6;
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if v6 {
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
    if let Err(error) = socket.set_mark(MARK) {
        tracing::debug!(%error, "outer datagrams carry no mark");
    }
    sys::report_packet_info(socket.as_fd(), v6)?;
    sys::keep_fragments_possible(socket.as_fd(), v6)?;
    socket.set_reuse_port(shared)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_in_use_is_named_with_a_remedy() {
        for workers in [1, 3] {
            let first = bind(0, workers).unwrap();
            for others in [1, 2] {
                let error = bind(first[0].port(), others).err().unwrap().to_string();
                assert!(error.contains(&format!("UDP port {}", first[0].port())), "{error}");
                assert!(error.contains("`listen`"), "{error}");
            }
        }
    }

    #[test]
    fn workers_share_the_port_and_a_far_end_stays_with_one() {
        let pairs = bind(0, 4).unwrap();
        let mut used = [0; 4];
        for _ in 0..32 {
            let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..4 {
                far.send_to(b"x", ("127.0.0.1", pairs[0].port())).unwrap();
            }
            let mut batch = sys::ReceiveBatch::new();
            let got: Vec<usize> = pairs
                .iter()
                .map(|pair| {
                    batch.receive(pair.v4.as_fd()).unwrap();
                    batch.datagrams().count()
                })
                .collect();
            let at = got.iter().position(|count| *count == 4).unwrap_or_else(|| panic!("scattered: {got:?}"));
            used[at] += 1;
        }
        assert!(used.iter().filter(|count| **count > 0).count() > 1, "{used:?}");
    }
}
