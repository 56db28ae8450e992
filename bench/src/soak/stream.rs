//! One TCP connection for the whole run, both ways, its content checked octet for octet. It is never made again.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use isthmus_lab::netns::Netns;

use super::{pattern::Pattern, silence::Silences};

/// Octets of a write.
const CHUNK: usize = 16 * 1024;
/// Octets of a read at most.
const READ: usize = 64 * 1024;
/// How often a thread that waits for the network looks whether the run is over.
const BREATH: Duration = Duration::from_millis(200);
/// How long what was sent may take to arrive after the last write.
const DRAIN: Duration = Duration::from_secs(30);
/// A writer that was held up longer than this does not make up for all of it.
const CATCH_UP: Duration = Duration::from_millis(500);

/// A connection that lives.
pub(super) struct Connection {
    stop: Arc<AtomicBool>,
    halves: Vec<Half>,
}

/// One direction.
struct Half {
    shared: Arc<Shared>,
    writer: JoinHandle<()>,
    reader: JoinHandle<Silences>,
}

/// What both ends of a direction tell.
#[derive(Default)]
struct Shared {
    sent: AtomicU64,
    received: AtomicU64,
    trouble: Mutex<Option<String>>,
}

/// What came of one direction.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Octets that arrived, all of them right.
    pub(super) received: u64,
    /// Its pauses.
    pub(super) silences: Silences,
    /// Why it is none that lived.
    pub(super) trouble: Option<String>,
}

impl Connection {
    /// Connects `near` to `address` in `far`, and starts to send this many bits a second each way.
    ///
    /// # Errors
    /// When there is no connection.
    pub(super) fn start(near: &Netns, far: &Netns, address: SocketAddr, rate: f64) -> Result<Self> {
        let listener = far.run(|| TcpListener::bind(address))?.context("listening")?;
        let client = near.run(|| TcpStream::connect(address))?.context("connecting")?;
        let (server, _) = listener.accept().context("accepting")?;
        let stop = Arc::<AtomicBool>::default();
        let seed = u64::from(address.port()) * 2;
        let there = Half::start(&client, &server, seed, rate, &stop)?;
        let back = Half::start(&server, &client, seed + 1, rate, &stop)?;
        Ok(Self { stop, halves: vec![there, back] })
    }

    /// Octets that arrived so far, both ways.
    pub(super) fn received(&self) -> u64 {
        self.halves.iter().map(|half| half.shared.received.load(Ordering::Relaxed)).sum()
    }

    /// Why it does not live any more.
    pub(super) fn broken(&self) -> Option<String> {
        self.halves.iter().find_map(|half| half.shared.trouble().clone())
    }

    /// Ends the writing. Before [`Connection::finish`], so that all connections drain at once.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until all that was written has arrived: there and back.
    pub(super) fn finish(self) -> Vec<Outcome> {
        self.stop();
        self.halves.into_iter().map(Half::finish).collect()
    }
}

impl Half {
    fn start(from: &TcpStream, to: &TcpStream, seed: u64, rate: f64, stop: &Arc<AtomicBool>) -> Result<Self> {
        let (from, to, shared) = (from.try_clone()?, to.try_clone()?, Arc::<Shared>::default());
        from.set_write_timeout(Some(BREATH))?;
        to.set_read_timeout(Some(BREATH))?;
        let interval = Duration::try_from_secs_f64(CHUNK as f64 * 8.0 / rate)?;
        let writer = thread::spawn({
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(stop));
            move || shared.note(write(from, seed, interval, &shared.sent, &stop))
        });
        let reader = thread::spawn({
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(stop));
            move || {
                let mut silences = Silences::new(Instant::now());
                shared.note(read(to, seed, &shared.received, &stop, &mut silences));
                silences
            }
        });
        Ok(Self { shared, writer, reader })
    }

    fn finish(self) -> Outcome {
        let written = self.writer.join().is_ok();
        let silences = self.reader.join();
        let (sent, received) =
            (self.shared.sent.load(Ordering::Relaxed), self.shared.received.load(Ordering::Relaxed));
        let mut trouble = self.shared.trouble().clone();
        if trouble.is_none() && (!written || silences.is_err()) {
            trouble = Some("a thread of its own panicked".into());
        } else if trouble.is_none() && sent != received {
            trouble = Some(format!("of {sent} octets {received} arrived"));
        }
        Outcome { received, silences: silences.unwrap_or_else(|_| Silences::new(Instant::now())), trouble }
    }
}

impl Shared {
    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        // Nothing panics while it is held.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first reason counts.
    fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            self.trouble().get_or_insert(format!("{error:#}"));
        }
    }
}

/// At the end it closes its direction, so that the reader knows that nothing is missing.
fn write(
    mut stream: TcpStream,
    seed: u64,
    interval: Duration,
    sent: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let (mut pattern, mut chunk, mut due) = (Pattern::new(seed), vec![0; CHUNK], Instant::now());
    while !stop.load(Ordering::Relaxed) {
        pattern.fill(&mut chunk);
        match stream.write(&chunk) {
            Ok(length) => {
                pattern.advance(length);
                sent.store(pattern.offset(), Ordering::Relaxed);
            }
            Err(error) if is_pause(error.kind()) => continue,
            Err(error) => return Err(anyhow!("writing: {error}")),
        }
        let now = Instant::now();
        due = (due + interval).max(now.checked_sub(CATCH_UP).unwrap_or(now));
        thread::sleep(due.saturating_duration_since(now));
    }
    stream.shutdown(Shutdown::Write).context("closing")
}

fn read(
    mut stream: TcpStream,
    seed: u64,
    received: &AtomicU64,
    stop: &AtomicBool,
    silences: &mut Silences,
) -> Result<()> {
    let (mut pattern, mut buffer, mut scratch) = (Pattern::new(seed), vec![0; READ], vec![0; READ]);
    let mut deadline = None;
    loop {
        let read = stream.read(&mut buffer);
        // Not before the read: it may have waited for what comes of the stop.
        let stopped = stop.load(Ordering::Relaxed);
        match read {
            Ok(0) if stopped => return Ok(()),
            Ok(0) => return Err(anyhow!("the other end closed it")),
            Ok(length) => {
                silences.heard(Instant::now());
                let wrong = |place| anyhow!("octet {place} arrived wrong");
                pattern.check(&buffer[..length], &mut scratch).map_err(wrong)?;
                received.store(pattern.offset(), Ordering::Relaxed);
            }
            Err(error) if is_pause(error.kind()) => {}
            Err(error) => return Err(anyhow!("reading: {error}")),
        }
        let end = Instant::now() + DRAIN;
        if stopped && *deadline.get_or_insert(end) < Instant::now() {
            silences.heard(Instant::now());
            return Err(anyhow!("not all had arrived {DRAIN:?} after the last write"));
        }
    }
}

fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
