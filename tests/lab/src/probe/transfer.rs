//! One TCP transfer whose content is checked at the far end.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};

use crate::netns::Netns;

/// A transfer that arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Payload octets.
    pub bytes: u64,
    /// From connecting until the far end had confirmed the content.
    pub took: Duration,
}

/// Receives one transfer and answers with what it received: 8 octets of count, 8 of checksum.
#[derive(Debug)]
pub struct TcpSink {
    address: SocketAddr,
    thread: JoinHandle<Result<()>>,
}

impl TcpSink {
    /// Listens on `address` in `netns`, for at most `limit`.
    ///
    /// # Errors
    /// When the address is not there or the port is taken.
    pub fn start(netns: &Netns, address: SocketAddr, limit: Duration) -> Result<Self> {
        let bound = netns.run(|| TcpListener::bind(address))?;
        let listener = bound.with_context(|| format!("listening on {address} in {}", netns.name()))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { address, thread: thread::spawn(move || serve(&listener, limit)) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the end of the transfer.
    ///
    /// # Errors
    /// When nobody came in time or the connection broke.
    pub fn finish(self) -> Result<()> {
        self.thread.join().map_err(|_| anyhow!("the sink panicked"))?
    }
}

fn serve(listener: &TcpListener, limit: Duration) -> Result<()> {
    let mut stream = accept(listener, limit)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(limit))?;
    let (mut count, mut checksum, mut buffer) = (0u64, CHECKSUM_START, vec![0; 65536]);
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            length => {
                checksum = fnv1a(checksum, &buffer[..length]);
                count += u64::try_from(length)?;
            }
        }
    }
    stream.write_all(&count.to_be_bytes())?;
    Ok(stream.write_all(&checksum.to_be_bytes())?)
}

const CHECKSUM_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: it need only notice octets that are lost, doubled, moved or changed by accident.
fn fnv1a(checksum: u64, octets: &[u8]) -> u64 {
    octets.iter().fold(checksum, |sum, octet| (sum ^ u64::from(*octet)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn accept(listener: &TcpListener, limit: Duration) -> Result<TcpStream> {
    crate::wait::until("a TCP connection", limit, || match listener.accept() {
        Ok((stream, _)) => Ok(stream),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(anyhow!("nobody came")),
        Err(error) => Err(error.into()),
    })
}

/// Sends `bytes` octets of a fixed pseudo-random stream from `netns` to a [`TcpSink`], and checks what it says it got.
///
/// # Errors
/// When it can't connect, stalls for longer than `limit`, or the content arrived changed.
pub fn send(netns: &Netns, to: SocketAddr, bytes: u64, limit: Duration) -> Result<Transfer> {
    netns
        .run(|| {
            let start = Instant::now();
            let mut stream = TcpStream::connect_timeout(&to, limit)?;
            stream.set_write_timeout(Some(limit))?;
            stream.set_read_timeout(Some(limit))?;
            let checksum = pour(&mut stream, bytes)?;
            stream.shutdown(Shutdown::Write)?;
            ensure!(number(&mut stream)? == bytes, "another number of octets arrived");
            ensure!(number(&mut stream)? == checksum, "the content arrived changed");
            Ok(Transfer { bytes, took: start.elapsed() })
        })?
        .with_context(|| format!("TCP from {} to {to}", netns.name()))
}

fn pour(stream: &mut TcpStream, bytes: u64) -> Result<u64> {
    let (mut left, mut checksum, mut word, mut buffer) = (bytes, CHECKSUM_START, 1u64, vec![0; 65536]);
    while left > 0 {
        for eight in buffer.chunks_exact_mut(8) {
            // xorshift64: any stream will do whose blocks differ.
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            eight.copy_from_slice(&word.to_be_bytes());
        }
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        checksum = fnv1a(checksum, &buffer[..length]);
        stream.write_all(&buffer[..length])?;
        left -= u64::try_from(length)?;
    }
    Ok(checksum)
}

fn number(stream: &mut TcpStream) -> Result<u64> {
    let mut octets = [0; 8];
    stream.read_exact(&mut octets).context("no receipt")?;
    Ok(u64::from_be_bytes(octets))
}
