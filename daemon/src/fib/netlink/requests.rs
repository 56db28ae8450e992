//! The socket that asks and orders. The kernel does what a message says before `send` returns, and its answers wait in the socket by
//! then: nothing here ever waits for anything else.

use std::{io, num::Wrapping};

use nix::sys::socket::{setsockopt, sockopt};
use rtnetlink::{
    packet_core::{NLM_F_DUMP_INTR, NetlinkBuffer, NlasIterator},
    sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE},
};

use super::{
    Refusal,
    encode::{self, Question, Request},
};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The longest datagram that the kernel sends (since Linux 4.9).
const MAX_DATAGRAM: usize = 32 * 1024;
/// Messages in one `send`: should the kernel refuse all of them, the answers fit into [`BUFFER`].
const BATCH: usize = 512;
/// Bytes after which a batch ends; well below what a socket takes at once unless configured otherwise (`net.core.wmem_default`).
const BATCH_BYTES: usize = 64 * 1024;
/// Bytes of answers that may wait.
const BUFFER: usize = 4 << 20;
/// Offset in `struct nlmsgerr`: after the error number and the header of the message that it is about.
const ERROR_ATTRIBUTES: usize = 20;
/// `NLMSGERR_ATTR_MSG`: the kernel's own words about an error.
const ERROR_TEXT: u16 = 1;

/// A socket for requests.
pub(super) struct Requests {
    socket: Socket,
    port: u32,
    sequence: Wrapping<u32>,
    out: Vec<u8>,
    answers: Vec<u8>,
}

impl Requests {
    /// Opens it in the network namespace of the calling thread.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        enlarge(&socket, BUFFER);
        // Older kernels know neither; then errors have no words, and dumps are filtered by us alone.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, port, sequence: Wrapping(0), out: Vec::new(), answers: Vec::new() })
    }

    /// The address that the kernel has given the socket.
    pub(super) fn port(&self) -> u32 {
        self.port
    }

    /// Carries out requests in their order; says which the kernel refused.
    ///
    /// Only the last message of a batch asks for an answer. The kernel answers those that it refuses in any case, by number, and in
    /// order: when the last one's answer is there, all others without an answer are carried out.
    ///
    /// # Errors
    /// An answer was lost: what became of the requests is unknown.
    pub(super) fn order(&mut self, requests: &[Request<'_>], table: u32) -> io::Result<Vec<Option<Refusal>>> {
        let mut refusals = Vec::with_capacity(requests.len());
        while refusals.len() < requests.len() {
            let batch = self.order_batch(&requests[refusals.len()..], table)?;
            refusals.extend(batch);
        }
        Ok(refusals)
    }

    /// A kind of things, each message told to `each` (type, payload). False if it changed meanwhile, so that some may be missing.
    ///
    /// # Errors
    /// The kernel refused, or an answer was lost.
    pub(super) fn ask(&mut self, question: Question, mut each: impl FnMut(u16, &[u8])) -> io::Result<bool> {
        let sequence = self.next_sequence();
        self.out.clear();
        encode::ask(&mut self.out, question, sequence);
        self.send()?;
        let mut consistent = true;
        let mut end = None;
        while end.is_none() {
            self.receive(|message| {
                consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                match message.kind {
                    _ if message.sequence != sequence => {}
                    NLMSG_DONE | NLMSG_ERROR => end = Some(number(message.payload)),
                    kind => each(kind, message.payload),
                }
            })?;
        }
        match end.map(i32::saturating_abs) {
            // A table that does not exist is an empty one.
            None | Some(0 | libc::ENOENT) => Ok(consistent),
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Carries out as many of the first requests as are sent at once.
    fn order_batch(&mut self, requests: &[Request<'_>], table: u32) -> io::Result<Vec<Option<Refusal>>> {
        let first = (self.sequence + Wrapping(1)).0;
        let count = self.encode(requests, table);
        self.send()?;
        let mut refusals = vec![None; count];
        let mut answered = false;
        while !answered {
            self.receive(|message| {
                let position = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                if message.kind != NLMSG_ERROR || position >= count {
                    return;
                }
                answered |= position + 1 == count;
                refusals[position] = refusal(message.payload);
            })?;
        }
        Ok(refusals)
    }

    /// Returns how many requests the batch has.
    fn encode(&mut self, requests: &[Request<'_>], table: u32) -> usize {
        self.out.clear();
        let (mut count, mut last) = (0, 0);
        for request in requests.iter().take(BATCH) {
            if self.out.len() >= BATCH_BYTES {
                break;
            }
            last = self.out.len();
            count += 1;
            let sequence = self.next_sequence();
            encode::push(&mut self.out, *request, table, sequence);
        }
        encode::acknowledge(&mut self.out, last);
        count
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence.0
    }

    fn send(&self) -> io::Result<()> {
        self.socket.send(&self.out, 0).map(drop)
    }

    /// Reads a datagram and tells of its messages.
    fn receive(&mut self, each: impl FnMut(Message<'_>)) -> io::Result<()> {
        self.answers.clear();
        self.answers.reserve(MAX_DATAGRAM);
        self.socket.recv(&mut self.answers, 0)?;
        messages(&self.answers).for_each(each);
        Ok(())
    }
}

/// Has the kernel keep so many bytes for a socket, or as many as it lets us.
pub(super) fn enlarge(socket: &Socket, bytes: usize) {
    if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        let _ = setsockopt(socket, sockopt::RcvBuf, &bytes);
    }
}

/// One message of a datagram.
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) port: u32,
    pub(super) payload: &'a [u8],
}

/// The messages of a datagram, as far as it is one.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(datagram).ok()?;
        let length = usize::try_from(message.length()).ok()?.next_multiple_of(4);
        let (kind, flags) = (message.message_type(), message.flags());
        let (sequence, port, payload) = (message.sequence_number(), message.port_number(), message.payload());
        datagram = datagram.get(length..).unwrap_or_default();
        Some(Message { kind, flags, sequence, port, payload })
    })
}

fn number(payload: &[u8]) -> i32 {
    payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes))
}

/// `None`: it is done.
fn refusal(payload: &[u8]) -> Option<Refusal> {
    let errno = number(payload).saturating_abs();
    let attributes = payload.get(ERROR_ATTRIBUTES..).unwrap_or_default();
    let text = NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == ERROR_TEXT);
    let text = text.map(|text| String::from_utf8_lossy(text.value()).trim_end_matches('\0').to_owned());
    (errno != 0).then(|| Refusal { errno, text: text.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(errno: i32, attributes: &[u8]) -> Vec<u8> {
        [&errno.to_ne_bytes()[..], &[0; 16], attributes].concat()
    }

    #[test]
    fn refusals_carry_the_kernels_words() {
        let attribute = [&12_u16.to_ne_bytes()[..], &ERROR_TEXT.to_ne_bytes(), b"no way\0\0"].concat();
        let refusal = refusal(&error(-libc::EHOSTUNREACH, &attribute)).unwrap();
        assert_eq!(refusal.errno, libc::EHOSTUNREACH);
        assert_eq!(refusal.explain(), "the kernel refuses it: no way (No route to host (os error 113))");
    }

    #[test]
    fn no_error_is_no_refusal() {
        assert_eq!(refusal(&error(0, &[])), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), length in 0_u32..64) {
            refusal(&bytes);
            assert!(messages(&bytes).count() < 200);
            let framed = [length.to_ne_bytes().as_slice(), &bytes].concat();
            assert!(messages(&framed).count() < 200);
        }
    }
}
