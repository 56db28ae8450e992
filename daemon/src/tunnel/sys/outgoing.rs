//! Sending many datagrams with one system call.

use std::{
    array, io, mem,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use isthmus_tunnel::{buffer::OuterPath, ecn::Ecn};
use libc::{c_uint, iovec, mmsghdr, sockaddr_storage};

use super::{address, control::Control};

/// Messages in a call at most.
const MESSAGES: usize = 32;

/// What to send: a datagram, or several of equal size that the kernel cuts apart.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnel) struct Message<'a> {
    pub(in crate::tunnel) bytes: &'a [u8],
    /// Bytes of each datagram (the last may be shorter); `None`: it is one datagram.
    pub(in crate::tunnel) segment: Option<u16>,
    pub(in crate::tunnel) path: OuterPath,
    pub(in crate::tunnel) ecn: Ecn,
}

/// Memory for what a call says beside the bytes.
pub(in crate::tunnel) struct SendSpace {
    names: Box<[sockaddr_storage; MESSAGES]>,
    controls: Box<[Control; MESSAGES]>,
}

impl SendSpace {
    pub(in crate::tunnel) fn new() -> Self {
        Self {
            names: Box::new([address::zeroed(); MESSAGES]),
            controls: Box::new(array::from_fn(|_| Control::new())),
        }
    }

    /// Sends the first of `messages` (up to [`MESSAGES`]) without waiting; how many the kernel took, at least one.
    pub(in crate::tunnel) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        messages: &[Message<'_>],
    ) -> io::Result<usize> {
        let messages = &messages[..messages.len().min(MESSAGES)];
        let mut vectors: [iovec; MESSAGES] = array::from_fn(|i| vector(messages.get(i)));
        // SAFETY: `mmsghdr` is plain old data; zeros are null pointers, empty lengths and no flags.
        let mut headers: [mmsghdr; MESSAGES] = unsafe { mem::zeroed() };
        for (i, message) in messages.iter().enumerate() {
            let header = &mut headers[i].msg_hdr;
            header.msg_namelen = address::encode(message.path.remote, &mut self.names[i]);
            header.msg_name = ptr::from_mut(&mut self.names[i]).cast();
            header.msg_iov = &raw mut vectors[i];
            header.msg_iovlen = 1;
            describe(message, &mut self.controls[i]);
            if self.controls[i].len() > 0 {
                header.msg_controllen = self.controls[i].len();
                header.msg_control = self.controls[i].as_mut_ptr().cast();
            }
        }
        // SAFETY: the first `messages.len()` headers point to names, control buffers and iovecs of the stated lengths, all alive until
        // the call returns. sendmmsg only reads through them, so the cast away from const in `vector` writes nothing.
        let result = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                c_uint::try_from(messages.len()).expect("at most MESSAGES"),
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

fn vector(message: Option<&Message<'_>>) -> iovec {
    let bytes = message.map_or(&[][..], |message| message.bytes);
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Only what differs from the defaults: a lone datagram in particular has no segment size, which some kernels refuse.
fn describe(message: &Message<'_>, control: &mut Control) {
    control.clear();
    if let Some(size) = message.segment {
        control.segment(size);
    }
    if message.ecn != Ecn::NotEct {
        control.ecn(message.path.remote.is_ipv6(), message.ecn);
    }
    if let Some(local) = message.path.local {
        control.source(local);
    }
}
