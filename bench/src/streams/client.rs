//! A connection, its calls of `FetchX509SVID`, one as a rule, and the messages that come (RFC 9113, gRPC over HTTP/2).

use std::{path::Path, time::Instant};

use anyhow::{Result, bail, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    sync::watch,
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
/// What the server may send in all, so that nothing has to be said about windows during a run.
const WINDOW: u32 = 1 << 30;
const PREFIX: usize = 5;

/// What the calls of a connection have had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Whole messages of the call that had the fewest.
    pub(super) messages: usize,
    /// Of the one that had the most.
    pub(super) most: usize,
    /// When the last was complete.
    pub(super) last: Instant,
}

/// Calls whose first answers have come.
pub(super) struct Client {
    stream: UnixStream,
    /// Of each call.
    messages: Vec<Messages>,
}

impl Client {
    /// Connects, calls so many times and waits for the first whole message of each.
    pub(super) async fn connect(socket: &Path, calls: u8) -> Result<Self> {
        let mut stream = UnixStream::connect(socket).await?;
        let said: Vec<u8> = [beginning()].into_iter().chain((0..calls).map(call)).flatten().collect();
        stream.write_all(&said).await?;
        let messages = (0..calls).map(|_| Messages::default()).collect();
        let mut client = Self { stream, messages };
        while client.progress().messages == 0 {
            client.frame().await?;
        }
        Ok(client)
    }

    /// The stream, and how others see what it has had.
    pub(super) fn watched(self) -> (Watched, watch::Receiver<Progress>) {
        let (sender, receiver) = watch::channel(self.progress());
        (Watched { client: self, sender }, receiver)
    }

    fn progress(&self) -> Progress {
        let whole = || self.messages.iter().map(|messages| messages.whole);
        let (fewest, most) = (whole().min().unwrap_or(0), whole().max().unwrap_or(0));
        Progress { messages: fewest, most, last: Instant::now() }
    }

    /// Reads one frame.
    async fn frame(&mut self) -> Result<()> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header).await?;
        let [a, b, c, kind, flags, .., stream] = header;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c]))?];
        self.stream.read_exact(&mut payload).await?;
        match kind {
            DATA => match self.messages.get_mut(usize::from(stream / 2)) {
                Some(messages) => messages.feed(&payload),
                None => bail!("content of a call that was not made: {stream}"),
            },
            SETTINGS if flags & ACK == 0 => self.stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            PING if flags & ACK == 0 => self.stream.write_all(&frame(PING, ACK, 0, &payload)).await?,
            HEADERS if flags & END_STREAM != 0 => bail!("the server ended the call"),
            RST_STREAM | GOAWAY => bail!("the server cut the call off: frame {kind}, {payload:?}"),
            _ => {}
        }
        ensure!(kind != DATA || flags & END_STREAM == 0, "the server ended the call");
        Ok(())
    }
}

/// A [`Client`] that tells what it has had.
pub(super) struct Watched {
    client: Client,
    sender: watch::Sender<Progress>,
}

impl Watched {
    /// Until the server ends it, which is an error.
    pub(super) async fn follow(mut self) -> Result<()> {
        loop {
            let before = self.client.progress();
            self.client.frame().await?;
            let now = self.client.progress();
            if (now.messages, now.most) != (before.messages, before.most) {
                self.sender.send_replace(now);
            }
        }
    }
}

/// Counts gRPC messages in what arrives: a flag, four bytes of length, the message.
#[derive(Default)]
struct Messages {
    whole: usize,
    prefix: Vec<u8>,
    left: usize,
}

impl Messages {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let wanted = if self.left > 0 { self.left } else { PREFIX - self.prefix.len() };
            let (now, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.left > 0 {
                self.left -= now.len();
            } else {
                self.prefix.extend_from_slice(now);
                let [_, a, b, c, d] = self.prefix[..] else { continue };
                self.prefix.clear();
                // On every machine that this runs on, a usize holds it.
                self.left = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
            }
            self.whole += usize::from(self.left == 0 && self.prefix.is_empty());
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Preface and settings.
fn beginning() -> Vec<u8> {
    // SETTINGS_INITIAL_WINDOW_SIZE is 4; the connection's own window is another matter.
    let settings = [&[0, 4][..], &WINDOW.to_be_bytes()].concat();
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &settings),
        frame(8, 0, 0, &WINDOW.to_be_bytes()),
    ]
    .concat()
}

/// The call of this number, with an empty message (headers as RFC 7541 section 6 has them, without Huffman code).
fn call(number: u8) -> Vec<u8> {
    let text = |value: &str| [&[u8::try_from(value.len()).unwrap_or(u8::MAX)], value.as_bytes()].concat();
    let named = |name: &str, value: &str| [vec![0], text(name), text(value)].concat();
    let headers = [
        vec![0x83, 0x86, 0x04],
        text("/SpiffeWorkloadAPI/FetchX509SVID"),
        vec![0x01],
        text("localhost"),
        named("content-type", "application/grpc"),
        named("te", "trailers"),
        named("workload.spiffe.io", "true"),
    ]
    .concat();
    let stream = 2 * number + 1;
    [frame(HEADERS, 4, stream, &headers), frame(DATA, END_STREAM, stream, &[0; PREFIX])].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_however_they_arrive() {
        let message = |length: u8| [vec![0, 0, 0, 0, length], vec![7; usize::from(length)]].concat();
        let wire = [message(3), message(0), message(10), message(1)].concat();
        for chunk in 1..wire.len() {
            let mut messages = Messages::default();
            wire.chunks(chunk).for_each(|bytes| messages.feed(bytes));
            assert_eq!((messages.whole, messages.left), (4, 0), "in pieces of {chunk}");
        }
        let mut partial = Messages::default();
        partial.feed(&wire[..6]);
        assert_eq!(partial.whole, 0);
    }
}
