//! Datagrams with the TOS byte of their IP header, which holds the ECN field.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
    },
};
use socket2::{Domain, Socket, Type};

use crate::netns::Netns;

/// Bursts must find room.
const BUFFER: usize = 8 << 20;

/// A received datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The payload.
    pub bytes: Vec<u8>,
    /// Who sent it.
    pub from: SocketAddr,
    /// TOS byte or traffic class; its low two bits are the ECN field.
    pub tos: u8,
}

/// A UDP socket that sends and receives them.
#[derive(Debug)]
pub struct MarkedSocket(Socket);

impl MarkedSocket {
    /// Binds `address` in `netns`.
    ///
    /// # Errors
    /// When the address is not there or the port is taken.
    pub fn bind(netns: &Netns, address: SocketAddr) -> Result<Self> {
        let socket = netns.run(|| open(address))?;
        Ok(Self(socket.with_context(|| format!("binding {address} in {}", netns.name()))?))
    }

    /// The port that it is bound to.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn port(&self) -> Result<u16> {
        Ok(self.0.local_addr()?.as_socket().context("a socket without a port")?.port())
    }

    /// From now on datagrams leave without a checksum, which IPv4 allows.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn omit_checksums(&self) -> io::Result<()> {
        let (on, size): (libc::c_int, _) = (1, libc::socklen_t::try_from(size_of::<libc::c_int>()));
        let size = size.map_err(io::Error::other)?;
        // SAFETY: the kernel reads `size` bytes from a live integer of that size.
        let result = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const on).cast(),
                size,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn send(&self, to: SocketAddr, bytes: &[u8], tos: u8) -> io::Result<()> {
        let (address, class) = (SockaddrStorage::from(to), i32::from(tos));
        let control = match to {
            SocketAddr::V4(_) => ControlMessage::Ipv4Tos(&tos),
            SocketAddr::V6(_) => ControlMessage::Ipv6TClass(&class),
        };
        let pieces = [IoSlice::new(bytes)];
        sendmsg(self.0.as_raw_fd(), &pieces, &[control], MsgFlags::empty(), Some(&address))?;
        Ok(())
    }

    /// What has arrived, without waiting; `None`: nothing.
    ///
    /// # Errors
    /// Those of the kernel, such as what hosts said to earlier datagrams.
    pub fn try_receive(&self) -> io::Result<Option<Marked>> {
        let mut buffer = vec![0; 65_536];
        let (mut pieces, mut space) = ([IoSliceMut::new(&mut buffer)], nix::cmsg_space!(i32));
        let flags = MsgFlags::MSG_DONTWAIT;
        let message =
            match recvmsg::<SockaddrStorage>(self.0.as_raw_fd(), &mut pieces, Some(&mut space), flags) {
                Err(nix::Error::EAGAIN) => return Ok(None),
                other => other?,
            };
        let (length, from) = (message.bytes, message.address.and_then(address));
        let tos = message.cmsgs()?.find_map(tos).unwrap_or(0);
        buffer.truncate(length);
        Ok(from.map(|from| Marked { bytes: buffer, from, tos }))
    }

    /// The next datagram.
    ///
    /// # Errors
    /// When none comes within `limit`.
    pub fn receive(&self, limit: Duration) -> Result<Marked> {
        loop {
            if let Some(marked) = self.try_receive()? {
                return Ok(marked);
            }
            let mut wanted = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            if poll(&mut wanted, PollTimeout::try_from(limit)?)? == 0 {
                bail!("no datagram within {limit:?}");
            }
        }
    }
}

impl AsFd for MarkedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn open(at: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    if at.is_ipv4() {
        socket.set_recv_tos_v4(true)?;
    } else {
        socket.set_only_v6(true)?;
        socket.set_recv_tclass_v6(true)?;
    }
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        socket.set_recv_buffer_size(BUFFER)?;
    }
    socket.bind(&at.into())?;
    Ok(socket)
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
