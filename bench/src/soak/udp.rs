//! One way of numbered datagrams, and round trips.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use isthmus_lab::netns::Netns;

use super::silence::{Outages, Silences};
use crate::sandboxed::note;

/// Between two datagrams.
const INTERVAL: Duration = Duration::from_millis(2);
/// Between two round trips.
const ECHO_INTERVAL: Duration = Duration::from_millis(100);
/// How long an answer may take, and how long the last datagrams may be under way.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many datagrams out of order are told of at once, to be seen beside the events.
const TOLD: u64 = 10;
/// Octets of a datagram.
const LENGTH: usize = 200;
/// Numbers back to which a duplicate is told from one that is only late.
const WINDOW: usize = 4096;

/// Datagrams from one end to the other.
pub(super) struct OneWay {
    stop: Arc<AtomicBool>,
    /// The sender's own: the receiver listens for a while longer.
    sender: JoinHandle<u64>,
    receiver: JoinHandle<(Tally, Silences)>,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
}

/// What arrived.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Different datagrams.
    pub(super) received: u64,
    /// Those of them that came after one with a higher number.
    pub(super) reordered: u64,
    /// Those that had come before.
    pub(super) duplicates: u64,
    /// Received ones that were sent while the cable was down.
    in_outage: u64,
    highest: u64,
    /// The number that was last seen at this place, and one.
    seen: Vec<u64>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Datagrams sent.
    pub(super) sent: u64,
    /// Datagrams that did not arrive although the cable was up when they were sent.
    pub(super) unexplained: u64,
    /// Of them arrived.
    pub(super) tally: Tally,
    /// The pauses.
    pub(super) silences: Silences,
}

impl OneWay {
    /// From `near` to `address` in `far`.
    ///
    /// # Errors
    /// When the address is not there.
    pub(super) fn start(
        near: &Netns,
        far: &Netns,
        address: SocketAddr,
        outages: &Arc<Outages>,
    ) -> Result<Self> {
        let to = far.run(|| UdpSocket::bind(address))?.with_context(|| format!("listening on {address}"))?;
        to.set_read_timeout(Some(Duration::from_millis(100)))?;
        let from = near.run(|| UdpSocket::bind("0.0.0.0:0"))??;
        let (stop, sent, received) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let sender = thread::spawn({
            let (stop, sent, outages) = (Arc::clone(&stop), Arc::clone(&sent), Arc::clone(outages));
            move || send(&from, address, &sent, &outages, &stop)
        });
        let receiver = thread::spawn({
            let (stop, received) = (Arc::clone(&stop), Arc::clone(&received));
            move || receive(&to, address, &received, &stop)
        });
        Ok(Self { stop, sender, receiver, sent, received })
    }

    /// Datagrams so far: sent, received.
    pub(super) fn counts(&self) -> (u64, u64) {
        // In this order: what is under way is not lost.
        let received = self.received.load(Ordering::Relaxed);
        (self.sent.load(Ordering::Relaxed), received)
    }

    /// Ends the sending and waits for the last datagrams. `None`: a thread of its own panicked.
    pub(super) fn finish(self) -> Option<Outcome> {
        self.stop.store(true, Ordering::Relaxed);
        let in_outage = self.sender.join().ok()?;
        let (tally, silences) = self.receiver.join().ok()?;
        let sent = self.sent.load(Ordering::Relaxed);
        let unexplained = (sent - in_outage).saturating_sub(tally.received - tally.in_outage);
        Some(Outcome { sent, unexplained, tally, silences })
    }
}

/// How many were sent while the cable was down.
fn send(socket: &UdpSocket, to: SocketAddr, sent: &AtomicU64, outages: &Outages, stop: &AtomicBool) -> u64 {
    let (mut datagram, mut due, mut in_outage) = ([0x55; LENGTH], Instant::now(), 0);
    for number in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let down = outages.is_down();
        in_outage += u64::from(down);
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        datagram[8] = u8::from(down);
        // One that is refused is lost.
        let _ = socket.send_to(&datagram, to);
        sent.store(number + 1, Ordering::Relaxed);
        due += INTERVAL;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    in_outage
}

fn receive(socket: &UdpSocket, at: SocketAddr, received: &AtomicU64, stop: &AtomicBool) -> (Tally, Silences) {
    let (mut tally, mut silences) = (Tally::default(), Silences::new(Instant::now()));
    let (mut buffer, mut stopped): (_, Option<Instant>) = ([0; LENGTH], None);
    while stopped.is_none_or(|at| at.elapsed() < PATIENCE) {
        if stopped.is_none() && stop.load(Ordering::Relaxed) {
            // What comes or does not come from here on is no pause of the flow.
            silences.heard(Instant::now());
            stopped = Some(Instant::now());
        }
        let Ok(LENGTH) = socket.recv(&mut buffer) else { continue };
        let Some(head) = buffer.first_chunk() else { continue };
        let (number, reordered) = (u64::from_be_bytes(*head), tally.reordered);
        tally.count(number, buffer[8] != 0);
        if tally.reordered > reordered && tally.reordered <= TOLD {
            note(&format!("{at}: datagram {number} came after {}\n", tally.highest));
        }
        received.store(tally.received, Ordering::Relaxed);
        if stopped.is_none() {
            silences.heard(Instant::now());
        }
    }
    (tally, silences)
}

impl Tally {
    fn count(&mut self, number: u64, in_outage: bool) {
        self.seen.resize(WINDOW, 0);
        let place = usize::try_from(number % WINDOW as u64).unwrap_or_default();
        if std::mem::replace(&mut self.seen[place], number + 1) == number + 1 {
            self.duplicates += 1;
            return;
        }
        self.received += 1;
        self.in_outage += u64::from(in_outage);
        self.reordered += u64::from(number < self.highest);
        self.highest = self.highest.max(number);
    }
}

/// Round trips to an echo, one after the other.
pub(super) struct RoundTrips {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Vec<f64>, u64)>,
}

impl RoundTrips {
    /// From `near` to the echo at `address`.
    ///
    /// # Errors
    /// When there is no socket.
    pub(super) fn start(near: &Netns, address: SocketAddr) -> Result<Self> {
        let socket = near.run(|| UdpSocket::bind("0.0.0.0:0"))??;
        socket.set_read_timeout(Some(PATIENCE))?;
        let stop = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&stop);
        Ok(Self { stop, thread: thread::spawn(move || round_trips(&socket, address, &seen)) })
    }

    /// Ends it: the times in ms, and how many got no answer. `None`: its thread panicked.
    pub(super) fn finish(self) -> Option<(Vec<f64>, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok()
    }
}

fn round_trips(socket: &UdpSocket, to: SocketAddr, stop: &AtomicBool) -> (Vec<f64>, u64) {
    let (mut times, mut unanswered) = (Vec::new(), 0);
    for number in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match round_trip(socket, to, number) {
            Some(time) => times.push(time.as_secs_f64() * 1e3),
            None => unanswered += 1,
        }
        thread::sleep(ECHO_INTERVAL);
    }
    (times, unanswered)
}

/// An answer that comes after its time is passed over by the next question.
fn round_trip(socket: &UdpSocket, to: SocketAddr, number: u64) -> Option<Duration> {
    let (start, mut buffer) = (Instant::now(), [0; 8]);
    socket.send_to(&number.to_be_bytes(), to).ok()?;
    while start.elapsed() < PATIENCE {
        let length = socket.recv(&mut buffer).ok()?;
        if length == buffer.len() && u64::from_be_bytes(buffer) == number {
            return Some(start.elapsed());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_and_double_datagrams_are_told_apart() {
        let mut tally = Tally::default();
        for number in [0, 1, 4, 2, 3, 3, 5, 0, 9000, 9001] {
            tally.count(number, number == 4);
        }
        assert_eq!((tally.received, tally.reordered, tally.duplicates, tally.in_outage), (8, 2, 2, 1));
    }
}
