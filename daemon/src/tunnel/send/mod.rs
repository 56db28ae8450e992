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

/// How long a probe holds the socket at most, in steps of [`PROBE`].
const PROBES: u32 = 5;
const PROBE: Duration = Duration::from_micros(200);
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
    /// The socket was full the last time.
    waited: bool,
}

/// One call of [`Sender::send`].
struct Job<'a, W> {
    wire: &'a W,
    when_full: WhenFull,
    now: Instant,
    batches: &'a Histogram,
}

impl Sender {
    pub(super) fn new() -> Self {
        Self { space: SendSpace::new(), trouble: Trouble::default(), narrow: Vec::new(), waited: false }
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
        self.waited = false;
        let job = Job { wire, when_full, now, batches };
        let runs = messages.chunk_by(|a, b| is_v6(a) == is_v6(b));
        runs.map(|run| self.send_run(&job, run)).sum()
    }

    /// True if the last call found the socket full.
    pub(super) fn had_to_wait(&self) -> bool {
        self.waited
    }

    /// Where datagrams turned out larger than the route takes, since the last call. They were sent all the same, in fragments.
    pub(super) fn take_narrow(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.narrow)
    }

    /// Sends messages of one family.
    fn send_run(&mut self, job: &Job<'_, impl Wire>, mut run: &[Message<'_>]) -> u64 {
        let mut dropped = 0;
        while let Some(first) = run.first() {
            match self.attempt(job, run) {
                Ok(sent) => run = &run[sent..],
                Err(error) => {
                    dropped += self.otherwise(job, first, &error);
                    run = &run[1..];
                }
            }
        }
        dropped
    }

    /// Sends the first of the messages; how many went. Waits once for room where that is allowed, and for the end of a probe.
    fn attempt(&mut self, job: &Job<'_, impl Wire>, run: &[Message<'_>]) -> io::Result<usize> {
        let (mut waited, mut probes) = (job.when_full == WhenFull::Drop, 0);
        loop {
            match job.wire.send(&mut self.space, run) {
                Ok(sent) => {
                    let sent = sent.clamp(1, run.len());
                    run[..sent].iter().for_each(|message| job.batches.record(pack::datagrams(message)));
                    return Ok(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_full(&error) && !waited => {
                    job.wire.wait(run.first().is_some_and(is_v6), PATIENCE);
                    (waited, self.waited) = (true, true);
                }
                // No datagram alone is too big, unless the socket is in use for a probe just now (`Sockets::send_whole`).
                Err(error) if is_too_big(&error) && is_alone(run) && probes < PROBES => {
                    probes += 1;
                    std::thread::sleep(PROBE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The kernel refused this message as it is. Another way may do: from an address that it chooses itself, datagram by datagram.
    /// What works is remembered, so that the next batch goes that way at once. The number of datagrams that no way was good for.
    fn otherwise(&mut self, job: &Job<'_, impl Wire>, message: &Message<'_>, error: &io::Error) -> u64 {
        if is_full(error) {
            return pack::datagrams(message);
        }
        let mut left = *message;
        let mut dropped = 0;
        while !left.bytes.is_empty() {
            for way in Way::all(&left, error) {
                left.bytes = self.try_way(job, &left, way, error);
            }
            if is_unreachable(error) {
                tracing::trace!(%error, to = %message.path.remote, "nothing can be sent there");
                return dropped + left_over(&left);
            }
            // A datagram that nothing helps is given up alone; those behind it are not its fault.
            let size = left.segment.map_or(left.bytes.len(), usize::from).min(left.bytes.len());
            dropped += u64::from(size > 0);
            left.bytes = &left.bytes[size..];
        }
        dropped
    }

    /// Sends the message one way, until that fails; what is left.
    fn try_way<'a>(
        &mut self,
        job: &Job<'_, impl Wire>,
        message: &Message<'a>,
        way: Way,
        error: &io::Error,
    ) -> &'a [u8] {
        let mut bytes = message.bytes;
        while !bytes.is_empty() {
            let next = way.apply(&Message { bytes, ..*message });
            if self.attempt(job, &[next]).is_err() {
                break;
            }
            bytes = &bytes[next.bytes.len()..];
        }
        if bytes.len() < message.bytes.len() {
            let narrow = self.trouble.note(message, way, error, job.now);
            self.narrow.extend(narrow.filter(|remote| !self.narrow.contains(remote)));
        }
        bytes
    }
}

fn left_over(message: &Message<'_>) -> u64 {
    if message.bytes.is_empty() { 0 } else { pack::datagrams(message) }
}

fn is_alone(run: &[Message<'_>]) -> bool {
    run.first().is_some_and(|first| first.segment.is_none())
}

fn is_v6(message: &Message<'_>) -> bool {
    message.path.remote.is_ipv6()
}

/// True if no datagram goes to that destination, whatever its size.
fn is_unreachable(error: &io::Error) -> bool {
    let codes = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENETDOWN, libc::EAFNOSUPPORT];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

fn is_too_big(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests;
