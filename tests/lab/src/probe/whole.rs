//! UDP that nobody may fragment, and what its sender learns about the path.

use std::{
    io,
    mem::size_of,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    time::Duration,
};

use anyhow::{Context, Result};
use libc::{c_int, socklen_t};

use super::any;
use crate::netns::Netns;

/// How long an echo may take.
const PATIENCE: Duration = Duration::from_millis(300);

/// A socket with one far end. Its datagrams leave in one piece (DF, no IPv6 fragment header) or not at all.
#[derive(Debug)]
pub struct WholeUdp {
    socket: UdpSocket,
    v6: bool,
}

impl WholeUdp {
    /// From `netns` to `target`.
    ///
    /// # Errors
    /// When there is no route.
    pub fn connect(netns: &Netns, target: SocketAddr) -> Result<Self> {
        let open = || -> io::Result<Self> {
            let socket = UdpSocket::bind(SocketAddr::new(any(target.ip()), 0))?;
            let v6 = target.is_ipv6();
            if v6 {
                set(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
            } else {
                set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
            }
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.connect(target)?;
            Ok(Self { socket, v6 })
        };
        netns.run(open)?.with_context(|| format!("UDP from {} to {target}", netns.name()))
    }

    /// Sends a packet of `size` bytes, IP header included, to an echo; true if it comes back.
    ///
    /// # Errors
    /// `EMSGSIZE` when the sender knows that it does not fit.
    pub fn echo(&self, size: usize) -> io::Result<bool> {
        let payload = vec![0x5a; size - if self.v6 { 48 } else { 28 }];
        self.socket.send(&payload)?;
        let mut buffer = vec![0; payload.len() + 1];
        match self.socket.recv(&mut buffer) {
            Ok(length) => Ok(buffer[..length] == payload),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The largest packet that the kernel takes for this far end, IP header included, in bytes.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn path_mtu(&self) -> io::Result<usize> {
        let known = if self.v6 {
            get(&self.socket, libc::IPPROTO_IPV6, libc::IPV6_MTU)?
        } else {
            get(&self.socket, libc::IPPROTO_IP, libc::IP_MTU)?
        };
        usize::try_from(known).map_err(io::Error::other)
    }
}

fn set(socket: &UdpSocket, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: setsockopt reads one int through the pointer, which is valid for the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), int_length())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn get(socket: &UdpSocket, level: c_int, option: c_int) -> io::Result<c_int> {
    let (mut value, mut length) = (0, int_length());
    // SAFETY: getsockopt writes at most `length` bytes, an int, through the first pointer and a length through the second; both are
    // valid for the call.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn int_length() -> socklen_t {
    socklen_t::try_from(size_of::<c_int>()).expect("four bytes")
}
