//! Many datagrams with one system call.

use std::{
    array, io,
    mem::{self, size_of},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use libc::{c_int, c_uint, iovec, mmsghdr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// Datagrams in a batch at most.
pub(in crate::tunnel) const BATCH: usize = 64;
/// Room for any datagram, so that none is ever cut. Pages that no datagram reached cost nothing.
const ROOM: usize = 65_536;

/// Memory for one batch of received datagrams.
pub(in crate::tunnel) struct ReceiveBatch {
    buffers: Vec<u8>,
    lengths: [usize; BATCH],
    sources: [Option<SocketAddr>; BATCH],
    received: usize,
}

impl ReceiveBatch {
    pub(in crate::tunnel) fn new() -> Self {
        Self { buffers: vec![0; BATCH * ROOM], lengths: [0; BATCH], sources: [None; BATCH], received: 0 }
    }

    /// Takes what has arrived, up to [`BATCH`] datagrams, without waiting; replaces the last batch. An empty batch: nothing there.
    pub(in crate::tunnel) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.received = 0;
        let mut names = [zeroed_address(); BATCH];
        let mut buffers = self.buffers.chunks_exact_mut(ROOM);
        let mut vectors: [iovec; BATCH] = array::from_fn(|_| {
            let buffer = buffers.next().expect("BATCH buffers were allocated");
            iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }
        });
        let (names_at, vectors_at) = (names.as_mut_ptr(), vectors.as_mut_ptr());
        // In bounds: i is below BATCH, the length of both arrays.
        let mut headers: [mmsghdr; BATCH] =
            array::from_fn(|i| header(names_at.wrapping_add(i), address_room(), vectors_at.wrapping_add(i)));
        // SAFETY: every header points to a distinct name and a distinct iovec, and each iovec to a distinct part of `self.buffers`
        // with its length; all of them live, unmoved and otherwise unused, until the call returns.
        let result = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count(BATCH),
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        self.received = match usize::try_from(result) {
            Ok(received) => received.min(BATCH),
            Err(_) => return empty(io::Error::last_os_error()),
        };
        for i in 0..self.received {
            self.lengths[i] = usize::try_from(headers[i].msg_len).unwrap_or(ROOM).min(ROOM);
            self.sources[i] = decode(&names[i]);
        }
        Ok(self.received)
    }

    /// The datagrams of the batch with their sources.
    pub(in crate::tunnel) fn iter(&self) -> impl Iterator<Item = (&[u8], SocketAddr)> {
        let buffers =
            self.buffers.chunks_exact(ROOM).zip(&self.lengths).zip(&self.sources).take(self.received);
        buffers.filter_map(|((buffer, length), source)| Some((&buffer[..*length], (*source)?)))
    }
}

/// Sends the first of `messages` (up to [`BATCH`]) without waiting; how many the kernel took, at least one.
pub(in crate::tunnel) fn send(socket: BorrowedFd<'_>, messages: &[(&[u8], SocketAddr)]) -> io::Result<usize> {
    let messages = &messages[..messages.len().min(BATCH)];
    let mut names = [zeroed_address(); BATCH];
    let mut vectors: [iovec; BATCH] = array::from_fn(|i| {
        let bytes = messages.get(i).map_or(&[][..], |(bytes, _)| bytes);
        iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    });
    let lengths: [socklen_t; BATCH] =
        array::from_fn(|i| messages.get(i).map_or(0, |(_, to)| encode(*to, &mut names[i])));
    let (names_at, vectors_at) = (names.as_mut_ptr(), vectors.as_mut_ptr());
    // In bounds: i is below BATCH, the length of both arrays.
    let mut headers: [mmsghdr; BATCH] =
        array::from_fn(|i| header(names_at.wrapping_add(i), lengths[i], vectors_at.wrapping_add(i)));
    // SAFETY: the first `messages.len()` headers point to names of the stated length and to iovecs over the borrowed messages, all
    // alive until the call returns. sendmmsg only reads through them, so the cast away from const writes nothing.
    let result = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count(messages.len()), libc::MSG_DONTWAIT)
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn header(name: *mut sockaddr_storage, name_length: socklen_t, vector: *mut iovec) -> mmsghdr {
    // SAFETY: `mmsghdr` is plain old data; zeros are null pointers, empty lengths and no flags.
    let mut header: mmsghdr = unsafe { mem::zeroed() };
    header.msg_hdr.msg_name = name.cast();
    header.msg_hdr.msg_namelen = name_length;
    header.msg_hdr.msg_iov = vector;
    header.msg_hdr.msg_iovlen = 1;
    header
}

fn zeroed_address() -> sockaddr_storage {
    // SAFETY: `sockaddr_storage` is plain old data; zeros are the family AF_UNSPEC.
    unsafe { mem::zeroed() }
}

fn address_room() -> socklen_t {
    length_of::<sockaddr_storage>()
}

fn length_of<T>() -> socklen_t {
    socklen_t::try_from(size_of::<T>()).expect("socket addresses are short")
}

fn count(messages: usize) -> c_uint {
    c_uint::try_from(messages).expect("at most BATCH")
}

/// Nothing to receive is an empty batch, not an error.
fn empty(error: io::Error) -> io::Result<usize> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    }
}

fn encode(address: SocketAddr, storage: &mut sockaddr_storage) -> socklen_t {
    let at: *mut sockaddr_storage = storage;
    match address {
        SocketAddr::V4(v4) => {
            let name = sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: `sockaddr_storage` is at least as large and as strictly aligned as every socket address; we hold it mutably.
            unsafe { at.cast::<sockaddr_in>().write(name) };
            length_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let name = sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { at.cast::<sockaddr_in6>().write(name) };
            length_of::<sockaddr_in6>()
        }
    }
}

fn decode(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let at: *const sockaddr_storage = storage;
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is large and aligned enough for every address, and any bytes are a valid `sockaddr_in`.
            let name = unsafe { at.cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for `sockaddr_in6`.
            let name = unsafe { at.cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(name.sin6_port), 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

fn family(number: c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).expect("address families are small numbers")
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsFd, time::Duration};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    fn addresses_survive_the_kernel_form() {
        for text in ["192.0.2.7:51820", "[2001:db8::7]:1", "[fe80::1%3]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut storage = zeroed_address();
            encode(address, &mut storage);
            assert_eq!(decode(&storage), Some(address));
        }
        assert_eq!(decode(&zeroed_address()), None);
    }

    fn exchange(loopback: &str) {
        let (from, to) = (UdpSocket::bind(loopback).unwrap(), UdpSocket::bind(loopback).unwrap());
        let target = to.local_addr().unwrap();
        let sent: Vec<Vec<u8>> = (0..100_u8).map(|n| vec![n; usize::from(n)]).collect();
        let messages: Vec<(&[u8], SocketAddr)> =
            sent.iter().map(|bytes| (bytes.as_slice(), target)).collect();
        let mut done = 0;
        while done < messages.len() {
            done += send(from.as_fd(), &messages[done..]).unwrap();
        }
        let (mut batch, mut received) = (ReceiveBatch::new(), Vec::new());
        while received.len() < sent.len() {
            let timeout = PollTimeout::try_from(Duration::from_secs(5)).unwrap();
            assert_eq!(poll(&mut [PollFd::new(to.as_fd(), PollFlags::POLLIN)], timeout), Ok(1));
            batch.receive(to.as_fd()).unwrap();
            for (bytes, source) in batch.iter() {
                assert_eq!(source, from.local_addr().unwrap());
                received.push(bytes.to_vec());
            }
        }
        assert_eq!(received, sent);
        assert_eq!(batch.receive(to.as_fd()).unwrap(), 0);
        assert_eq!(batch.iter().count(), 0);
    }

    #[test]
    fn batches_keep_order_length_and_source() {
        exchange("127.0.0.1:0");
        if UdpSocket::bind("[::1]:0").is_ok() {
            exchange("[::1]:0");
        }
    }
}
