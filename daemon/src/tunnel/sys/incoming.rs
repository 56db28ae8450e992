//! Receiving many datagrams with one system call.

use std::{
    array, io, mem,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use isthmus_tunnel::buffer::{Datagram, OuterPath};
use libc::{c_uint, iovec, mmsghdr, sockaddr_storage};

use super::{
    address,
    control::{Control, Received},
};

/// Messages in a batch at most; with `UDP_GRO` each holds up to 64 datagrams.
const MESSAGES: usize = 16;
/// Room for any message, so that none is ever cut. Pages that no message reached cost nothing.
const ROOM: usize = 65_536;

/// Memory for one batch of received datagrams.
pub(in crate::tunnel) struct ReceiveBatch {
    buffers: Vec<u8>,
    names: Box<[sockaddr_storage; MESSAGES]>,
    controls: Box<[Control; MESSAGES]>,
    messages: [Message; MESSAGES],
    received: usize,
}

/// One received message.
#[derive(Clone, Copy, Default)]
struct Message {
    length: usize,
    source: Option<SocketAddr>,
    about: Received,
}

impl ReceiveBatch {
    pub(in crate::tunnel) fn new() -> Self {
        Self {
            buffers: vec![0; MESSAGES * ROOM],
            names: Box::new([address::zeroed(); MESSAGES]),
            controls: Box::new(array::from_fn(|_| Control::new())),
            messages: [Message::default(); MESSAGES],
            received: 0,
        }
    }

    /// Takes what has arrived without waiting; replaces the last batch. True if there may be more.
    pub(in crate::tunnel) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        self.received = 0;
        let mut buffers = self.buffers.chunks_exact_mut(ROOM);
        let mut vectors: [iovec; MESSAGES] = array::from_fn(|_| {
            let buffer = buffers.next().expect("MESSAGES buffers were allocated");
            iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }
        });
        let mut headers: [mmsghdr; MESSAGES] =
            array::from_fn(|i| header(&mut self.names[i], &mut vectors[i], &mut self.controls[i]));
        // SAFETY: every header points to a distinct name, iovec and control buffer with their true lengths, and each iovec to a
        // distinct part of `self.buffers`; all of them live, unmoved and otherwise unused, until the call returns.
        let result = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                c_uint::try_from(MESSAGES).expect("a small number"),
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(result) else { return nothing(io::Error::last_os_error()) };
        self.received = received.min(MESSAGES);
        for (i, header) in headers[..self.received].iter().enumerate() {
            self.messages[i] = Message {
                length: usize::try_from(header.msg_len).unwrap_or(ROOM).min(ROOM),
                source: address::decode(&self.names[i]),
                about: self.controls[i].parse(header.msg_hdr.msg_controllen),
            };
        }
        Ok(self.received == MESSAGES)
    }

    /// How many datagrams each message of the batch holds.
    pub(in crate::tunnel) fn message_sizes(&self) -> impl Iterator<Item = u64> {
        let sizes = self.messages[..self.received].iter().map(Message::count);
        sizes.map(|count| u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// The datagrams of the batch in order of arrival: merged messages come apart again.
    pub(in crate::tunnel) fn datagrams(&mut self) -> impl Iterator<Item = Datagram<'_>> {
        let messages = self.messages[..self.received].iter().zip(self.buffers.chunks_exact_mut(ROOM));
        messages.filter_map(|(message, buffer)| message.datagrams(buffer)).flatten()
    }
}

impl Message {
    fn datagrams<'a>(&self, buffer: &'a mut [u8]) -> Option<impl Iterator<Item = Datagram<'a>> + use<'a>> {
        let path = OuterPath { remote: self.source?, local: self.about.local };
        let ecn = self.about.ecn;
        // An empty datagram has no chunk; there is nothing in it anyway.
        let chunks = buffer[..self.length].chunks_mut(self.segment());
        Some(chunks.map(move |bytes| Datagram { bytes, path, ecn }))
    }

    fn segment(&self) -> usize {
        self.about.segment.unwrap_or(self.length).max(1)
    }

    fn count(&self) -> usize {
        self.length.div_ceil(self.segment())
    }
}

fn header(name: &mut sockaddr_storage, vector: &mut iovec, control: &mut Control) -> mmsghdr {
    // SAFETY: `mmsghdr` is plain old data; zeros are null pointers, empty lengths and no flags.
    let mut header: mmsghdr = unsafe { mem::zeroed() };
    header.msg_hdr.msg_name = ptr::from_mut(name).cast();
    header.msg_hdr.msg_namelen = address::room();
    header.msg_hdr.msg_iov = vector;
    header.msg_hdr.msg_iovlen = 1;
    header.msg_hdr.msg_control = control.as_mut_ptr().cast();
    header.msg_hdr.msg_controllen = Control::room();
    header
}

/// Nothing to receive is an empty batch, not an error.
fn nothing(error: io::Error) -> io::Result<bool> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
        _ => Err(error),
    }
}
