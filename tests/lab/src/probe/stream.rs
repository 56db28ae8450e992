//! A TCP connection that carries octets until it is told to stop.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use socket2::SockRef;

use crate::netns::Netns;

/// A sequence of this many octets repeats; no power of two, so that a lost segment shows.
const PERIOD: usize = 251;

/// One connection, one direction. Any octet that is lost, doubled or changed ends it with an error.
#[derive(Debug)]
pub struct TcpStreaming {
    stop: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    mss: [u32; 2],
    threads: [JoinHandle<Result<()>>; 2],
}

impl TcpStreaming {
    /// From `from` to `address`, which is in `to`. A standstill of more than `limit` is an error.
    ///
    /// # Errors
    /// When no connection comes about.
    pub fn start(from: &Netns, to: &Netns, address: SocketAddr, limit: Duration) -> Result<Self> {
        let listener = to.run(|| TcpListener::bind(address))?.context("listening")?;
        let connecting = thread::scope(|scope| {
            let sender = scope.spawn(|| from.run(|| TcpStream::connect_timeout(&address, limit)));
            let sender = sender.join().map_err(|_| anyhow!("the connecting thread panicked"))???;
            Ok::<_, anyhow::Error>((sender, listener.accept()?.0))
        });
        let (sender, receiver) = connecting.with_context(|| format!("connecting to {address}"))?;
        sender.set_write_timeout(Some(limit))?;
        receiver.set_read_timeout(Some(limit))?;
        let mss = [SockRef::from(&sender).tcp_mss()?, SockRef::from(&receiver).tcp_mss()?];
        let (stop, arrived) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let threads = [
            thread::spawn({
                let stop = Arc::clone(&stop);
                move || pour(sender, &stop)
            }),
            thread::spawn({
                let arrived = Arc::clone(&arrived);
                move || drain(receiver, &arrived)
            }),
        ];
        Ok(Self { stop, arrived, mss, threads })
    }

    /// Octets that have arrived so far.
    pub fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Payload octets of a segment when the connection began, at the sender and at the receiver.
    pub fn mss(&self) -> [u32; 2] {
        self.mss
    }

    /// Ends it after what is on its way; how much arrived.
    ///
    /// # Errors
    /// When the connection broke or stood still, or what arrived is not what was sent.
    pub fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("one end panicked"))??;
        }
        Ok(self.arrived.load(Ordering::Relaxed))
    }
}

fn pour(mut stream: TcpStream, stop: &AtomicBool) -> Result<()> {
    let block: Vec<u8> = (0..u8::MAX).take(PERIOD).collect::<Vec<_>>().repeat(64);
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&block).context("the sender stands still")?;
    }
    Ok(())
}

fn drain(mut stream: TcpStream, arrived: &AtomicU64) -> Result<()> {
    let (mut buffer, mut at) = (vec![0; 65536], 0);
    loop {
        let length = stream.read(&mut buffer).context("nothing arrives")?;
        if length == 0 {
            return Ok(());
        }
        for octet in &buffer[..length] {
            ensure!(usize::from(*octet) == at, "octet {octet} where {at} was sent");
            at = (at + 1) % PERIOD;
        }
        arrived.fetch_add(u64::try_from(length)?, Ordering::Relaxed);
    }
}
