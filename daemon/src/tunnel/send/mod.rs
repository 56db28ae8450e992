//! From an outbox to the network, in as few system calls as the kernel allows, and without losing what it refuses.

mod pack;
mod trouble;

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use isthmus_tunnel::buffer::Outbox;

use super::{
    histogram::Histogram,
    offload::{Offload, Offloads},
    sys::{Message, SendSpace},
};
use trouble::{Trouble, Way};

/// What a sender does when the socket is full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// Waits a moment: back-pressure for the one who reads the TUN device.
    Wait,
    /// Drops: for those who must not stand still.
    Drop,
}

/// How long a sender waits for room in the socket before it gives a datagram up.
const PATIENCE: Duration = Duration::from_millis(10);

/// The way to the kernel: one pair of sockets, or a stand-in that refuses what some kernel refuses.
pub(super) trait Wire {
    /// Sends the first of `messages`, which are of one family; how many were taken, at least one.
    fn send(&self, space: &mut SendSpace, messages: &[Message<'_>]) -> io::Result<usize>;

    /// Waits until there may be room, `PATIENCE` at most.
    fn wait(&self, v6: bool, patience: Duration);
}

/// Sends outboxes; one for each thread that does.
pub(super) struct Sender {
    space: SendSpace,
    trouble: Trouble,
    /// Where datagrams turned out larger than the route takes.
    narrow: Vec<SocketAddr>,
}

impl Sender {
    pub(super) fn new() -> Self {
        Self { space: SendSpace::new(), trouble: Trouble::default(), narrow: Vec::new() }
    }

    /// Sends everything in order; the number of datagrams that the kernel did not take.
    pub(super) fn send(
        &mut self,
        wire: &impl Wire,
        offloads: &Offloads,
        outbox: &Outbox,
        when_full: WhenFull,
        now: Instant,
        batches: &Histogram,
    ) -> u64 {
        let merge = offloads.is_on(Offload::UdpGso);
        let packed = pack::messages(outbox, |path, size| merge && self.trouble.may_merge(path, size, now));
        let messages: Vec<Message<'_>> = packed.map(|message| self.trouble.improve(message, now)).collect();
        let runs = messages.chunk_by(|a, b| is_v6(a) == is_v6(b));
        runs.map(|run| self.send_run(wire, run, when_full, now, batches)).sum()
    }

    /// Where datagrams turned out larger than the route takes, since the last call. They were sent all the same, in fragments.
    pub(super) fn take_narrow(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.narrow)
    }

    /// Sends messages of one family.
    fn send_run(
        &mut self,
        wire: &impl Wire,
        mut run: &[Message<'_>],
        when_full: WhenFull,
        now: Instant,
        batches: &Histogram,
    ) -> u64 {
        let (mut dropped, mut waited, mut again) = (0, false, false);
        while let Some(first) = run.first() {
            match wire.send(&mut self.space, run) {
                Ok(sent) => {
                    let sent = sent.clamp(1, run.len());
                    run[..sent].iter().for_each(|message| batches.record(pack::datagrams(message)));
                    (run, waited, again) = (&run[sent..], false, false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_full(&error) && when_full == WhenFull::Wait && !waited => {
                    wire.wait(is_v6(first), PATIENCE);
                    waited = true;
                }
                // The socket may have been in use for a probe just then (`Sockets::send_whole`).
                Err(error) if is_too_big(&error) && first.segment.is_none() && !again => again = true,
                Err(error) => {
                    (waited, again) = (false, false);
                    dropped += self.otherwise(wire, first, &error, now, batches);
                    run = &run[1..];
                }
            }
        }
        dropped
    }

    /// The kernel refused this message as it is. Another way may do: from an address that it chooses itself, datagram by datagram.
    /// What works is remembered, so that the next batch goes that way at once.
    fn otherwise(
        &mut self,
        wire: &impl Wire,
        message: &Message<'_>,
        error: &io::Error,
        now: Instant,
        batches: &Histogram,
    ) -> u64 {
        let total = pack::datagrams(message);
        if is_full(error) {
            return total;
        }
        let mut left = message.bytes;
        for way in Way::all(message) {
            let before = left.len();
            left = self.try_way(wire, message, left, way, batches);
            if left.len() < before {
                let narrow = self.trouble.note(message, way, error, now);
                self.narrow.extend(narrow.filter(|remote| !self.narrow.contains(remote)));
            }
            if left.is_empty() {
                return 0;
            }
        }
        tracing::trace!(%error, to = %message.path.remote, "datagram not sent");
        // A datagram that nothing helps is given up alone; those behind it are not its fault.
        let size = message.segment.map_or(left.len(), usize::from).min(left.len());
        let rest = &left[size..];
        if rest.is_empty() {
            return 1;
        }
        1 + self.otherwise(wire, &Message { bytes: rest, ..*message }, error, now, batches)
    }

    /// Sends `bytes` of the message one way, until that fails; what is left.
    fn try_way<'a>(
        &mut self,
        wire: &impl Wire,
        message: &Message<'a>,
        mut bytes: &'a [u8],
        way: Way,
        batches: &Histogram,
    ) -> &'a [u8] {
        while !bytes.is_empty() {
            let next = way.apply(&Message { bytes, ..*message });
            match wire.send(&mut self.space, &[next]) {
                Ok(_) => {
                    batches.record(pack::datagrams(&next));
                    bytes = &bytes[next.bytes.len()..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_full(&error) => {
                    wire.wait(is_v6(message), PATIENCE);
                    if wire.send(&mut self.space, &[next]).is_err() {
                        return bytes;
                    }
                    bytes = &bytes[next.bytes.len()..];
                }
                Err(_) => return bytes,
            }
        }
        bytes
    }
}

fn is_v6(message: &Message<'_>) -> bool {
    message.path.remote.is_ipv6()
}

fn is_too_big(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests;
