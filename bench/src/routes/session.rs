//! The least of BGP that a speaker takes for a neighbor: OPEN, KEEPALIVE, and octets that were made before.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use isthmus_lab::netns::Netns;

use super::{
    feed::MARKER,
    held::{self, Held},
};

const OPEN: u8 = 1;
const NOTIFICATION: u8 = 3;
const KEEPALIVE: u8 = 4;
/// What we offer, in seconds.
const HOLD_TIME: u16 = 90;
/// We say something so often, for speakers that want to hear us every 9 s.
const KEEPALIVES: Duration = Duration::from_secs(2);
/// How long a wait may block before the clock is looked at.
const TICK: Duration = Duration::from_millis(200);
/// From the first try to a session.
const PATIENCE: Duration = Duration::from_secs(60);
const BUFFER: usize = 1 << 20;

/// Who we are in a session, and who is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) asn: u32,
    pub(crate) address: Ipv4Addr,
    pub(crate) neighbor: Ipv4Addr,
}

/// The writing half. Whoever writes holds it, so that no message is put into the middle of another.
#[derive(Clone)]
pub(crate) struct Voice {
    stream: Arc<Mutex<TcpStream>>,
    /// Whoever reads has seen the session's end.
    ended: Arc<AtomicBool>,
}

impl Voice {
    /// Writes messages, however long that takes.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn send(&self, octets: &[u8]) -> Result<()> {
        // A writer that panicked has left a piece of a message, and the speaker will say so.
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(octets).context("writing to the speaker")
    }

    /// # Errors
    /// When the session has ended: waiting is of no use.
    pub(crate) fn ensure_alive(&self) -> Result<()> {
        ensure!(!self.ended.load(Ordering::Relaxed), "the feeder's session has ended");
        Ok(())
    }

    /// The session has ended.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whoever writes routes keeps the session alive by that.
    fn keep_alive(&self) -> Result<()> {
        match self.stream.try_lock() {
            Ok(mut stream) => stream.write_all(&keepalive()).context("writing to the speaker"),
            Err(_) => Ok(()),
        }
    }
}

/// An established session: what was heard is counted, what is said was made before.
pub(super) struct Session {
    stream: TcpStream,
    voice: Voice,
    buffer: Vec<u8>,
    /// How much of the buffer is filled.
    filled: usize,
    held: Held,
    said: Instant,
    established: bool,
}

impl Session {
    /// Dials until the speaker takes the session, as it may still be starting.
    ///
    /// # Errors
    /// When it does not within a minute: what happened last.
    pub(super) fn establish(netns: &Netns, ends: Ends) -> Result<Self> {
        let began = Instant::now();
        loop {
            match Self::try_establish(netns, ends) {
                Ok(session) => return Ok(session),
                Err(error) if began.elapsed() > PATIENCE => {
                    return Err(error).context(format!("a session with {}", ends.neighbor));
                }
                Err(_) => sleep(TICK),
            }
        }
    }

    fn try_establish(netns: &Netns, ends: Ends) -> Result<Self> {
        let target = SocketAddr::from((ends.neighbor, 179));
        let stream = netns.run(|| TcpStream::connect_timeout(&target, Duration::from_secs(2)))??;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        let voice = Voice { stream: Arc::new(Mutex::new(stream.try_clone()?)), ended: Arc::default() };
        let (buffer, held) = (vec![0; BUFFER], Held::default());
        let mut session =
            Self { stream, voice, buffer, filled: 0, held, said: Instant::now(), established: false };
        session.voice.send(&open(ends))?;
        let limit = Instant::now() + Duration::from_secs(10);
        while !session.established {
            ensure!(Instant::now() < limit, "no answer to our OPEN");
            session.read()?;
        }
        Ok(session)
    }

    /// The half that writes, for another thread than the one that reads.
    pub(super) fn voice(&self) -> Voice {
        self.voice.clone()
    }

    /// Reads until so many prefixes are held: when that was so.
    ///
    /// # Errors
    /// When the session ends or the `feeder`'s, or it is not so within `limit`: how many are held.
    pub(super) fn until_held(&mut self, count: u32, limit: Duration, feeder: &Voice) -> Result<Instant> {
        let began = Instant::now();
        while self.held.count() != count {
            feeder.ensure_alive()?;
            ensure!(
                began.elapsed() < limit,
                "{} of {count} prefixes are there after {limit:?}",
                self.held.count()
            );
            self.read()?;
        }
        Ok(Instant::now())
    }

    /// Reads until no prefix has come or gone for so long.
    ///
    /// # Errors
    /// When the session ends.
    pub(super) fn until_quiet(&mut self, silence: Duration) -> Result<()> {
        let mut last = (Instant::now(), self.held.count());
        while last.0.elapsed() < silence {
            self.read()?;
            if self.held.count() != last.1 {
                last = (Instant::now(), self.held.count());
            }
        }
        Ok(())
    }

    /// One read from the connection; whether anything came.
    ///
    /// # Errors
    /// When the session ends.
    pub(super) fn read(&mut self) -> Result<bool> {
        if self.said.elapsed() > KEEPALIVES {
            self.said = Instant::now();
            self.voice.keep_alive()?;
        }
        let count = match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => bail!("the speaker closed the session"),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(error) => return Err(error).context("reading from the speaker"),
        };
        self.filled += count;
        let (mut answer, mut established) = (false, self.established);
        let stream = &self.buffer[..self.filled];
        let taken = held::take(stream, &mut self.held, |kind, octets| {
            match kind {
                OPEN => answer = true,
                KEEPALIVE => established = true,
                NOTIFICATION => bail!("the speaker says NOTIFICATION {:?}", octets.get(19..21)),
                _ => {}
            }
            Ok(())
        })?;
        self.buffer.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        self.established = established;
        if answer {
            self.voice.send(&keepalive())?;
        }
        Ok(true)
    }
}

fn keepalive() -> Vec<u8> {
    message(KEEPALIVE, &[])
}

/// IPv4 unicast and numbers of four octets (RFC 4760, RFC 6793).
fn open(ends: Ends) -> Vec<u8> {
    let mut body = vec![4];
    body.extend(u16::try_from(ends.asn).unwrap_or(23_456).to_be_bytes());
    body.extend(HOLD_TIME.to_be_bytes());
    body.extend(ends.address.octets());
    let [a, b, c, d] = ends.asn.to_be_bytes();
    // Their length, then one parameter: capabilities.
    body.extend([14, 2, 12, 1, 4, 0, 1, 0, 1, 65, 4, a, b, c, d]);
    message(OPEN, &body)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(19 + body.len()).expect("an OPEN is short");
    [&MARKER[..], &length.to_be_bytes(), &[kind], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_is_as_rfc_4271_draws_it() {
        let [us, them] = [1, 2].map(|last| Ipv4Addr::new(192, 0, 2, last));
        let octets = open(Ends { asn: 4_200_000_001, address: us, neighbor: them });
        assert_eq!(held::message(&octets).unwrap(), Some((OPEN, &octets[..])));
        assert_eq!(octets[19..29], [4, 0x5b, 0xa0, 0, 90, 192, 0, 2, 1, 14]);
        assert_eq!(octets[29..], [2, 12, 1, 4, 0, 1, 0, 1, 65, 4, 0xfa, 0x56, 0xea, 1]);
        assert_eq!(keepalive().len(), 19);
    }
}
