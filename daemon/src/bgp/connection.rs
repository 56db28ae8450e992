//! A connection's two tasks: one reads, one writes, neither knows what the bytes mean.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use bytes::BytesMut;
use isthmus_bgp::{ConnectionId, fsm::send_hold_time, rib::NextHops};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::timeout,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::driver::Input;

/// Most bytes handed over at once: small enough that timers are served in between.
const CHUNK: usize = 32 * 1024;
/// Chunks of one connection that wait to be looked at: a peer that floods waits for itself and not the others for it.
const UNREAD: usize = 2;
/// Buffers that wait for a slow peer's socket.
const WAITING: usize = 2;
/// How long a closing connection may take to carry its last words.
const PARTING: Duration = Duration::from_secs(1);
/// After this silence TCP asks whether the peer is there, so often and so many times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// So much later than the speaker TCP gives up on a peer that takes nothing.
const LAST_WORD: Duration = Duration::from_secs(30);

/// Who is at the ends of a connection.
pub(super) struct Ends {
    /// Configured name of the neighbor.
    pub(super) neighbor: Arc<str>,
    /// Our end.
    pub(super) local: IpAddr,
    /// Own next hops there.
    pub(super) own: NextHops,
}

/// What is read of one connection, and is not yet looked at; dropped, it makes room for more.
pub(super) struct Share {
    _place: OwnedSemaphorePermit,
}

/// The driver's end of a connection. Dropping it closes the connection.
pub(super) struct Connection {
    /// Whole messages for the peer; a free place means that the transport has room.
    pub(super) writer: mpsc::Sender<Vec<u8>>,
    pub(super) ends: Ends,
    last_words: oneshot::Sender<Vec<u8>>,
    /// Tells the reader.
    closing: DropGuard,
}

impl Connection {
    /// Starts both tasks. `room` is told when the writer can take more.
    pub(super) fn spawn(
        id: ConnectionId,
        stream: TcpStream,
        ends: Ends,
        inputs: mpsc::Sender<Input>,
        room: Arc<Notify>,
        tasks: &TaskTracker,
    ) -> Self {
        let (read, write) = stream.into_split();
        let (writer, buffers) = mpsc::channel(WAITING);
        let (last_words, parting) = oneshot::channel();
        let closing = CancellationToken::new();
        tasks.spawn(read_all(id, read, inputs, closing.clone()));
        tasks.spawn(write_all(write, buffers, parting, room));
        Self { writer, ends, last_words, closing: closing.drop_guard() }
    }

    /// Sends what was handed over before, then this, then closes; gives up on a peer that does not take it within a second.
    pub(super) fn close(self, last_words: Vec<u8>) {
        // A writer that is gone has nothing to say any more.
        let _ = self.last_words.send(last_words);
        drop(self.closing);
    }
}

/// Small messages leave at once. TCP gives up on a peer that acknowledges nothing, but only after the speaker's send hold timer had its
/// say (RFC 9687): it also counts a peer that is there and reads nothing, and that one is to be told why the session ends. Without a hold
/// time nobody sends anything for long, so TCP itself asks whether the peer is still there.
pub(super) fn set_options(stream: &TcpStream, hold_time: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let ask = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&ask.with_retries(KEEPALIVE_RETRIES))?;
    if !hold_time.is_zero() {
        SockRef::from(stream).set_tcp_user_timeout(Some(send_hold_time(hold_time) + LAST_WORD))?;
    }
    Ok(())
}

async fn read_all(
    id: ConnectionId,
    mut half: OwnedReadHalf,
    inputs: mpsc::Sender<Input>,
    closing: CancellationToken,
) {
    let (mut buffer, unread) = (BytesMut::new(), Arc::new(Semaphore::new(UNREAD)));
    loop {
        let place = Arc::clone(&unread).acquire_owned();
        // Nobody closes the semaphore.
        let Some(Ok(place)) = closing.run_until_cancelled(place).await else { break };
        buffer.reserve(CHUNK);
        let Some(read) = closing.run_until_cancelled(half.read_buf(&mut buffer)).await else { break };
        let input = match read {
            Ok(0) => Input::Closed { id, why: "peer closed the connection".into() },
            Ok(_) => Input::Bytes { id, bytes: buffer.split().freeze(), share: Share { _place: place } },
            Err(error) => Input::Closed { id, why: explain(&error) },
        };
        let ended = matches!(input, Input::Closed { .. });
        if inputs.send(input).await.is_err() || ended {
            return;
        }
    }
    // Closing with unread bytes resets the connection, and the reset can overtake our NOTIFICATION.
    let _ = timeout(PARTING, discard(half)).await;
}

async fn discard(mut half: OwnedReadHalf) {
    let mut buffer = vec![0; 4096];
    while half.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
}

async fn write_all(
    mut half: OwnedWriteHalf,
    mut buffers: mpsc::Receiver<Vec<u8>>,
    mut parting: oneshot::Receiver<Vec<u8>>,
    room: Arc<Notify>,
) {
    loop {
        let buffer = tokio::select! {
            biased;
            words = &mut parting => return part(half, buffers, words.unwrap_or_default()).await,
            buffer = buffers.recv() => buffer,
        };
        room.notify_one();
        let Some(buffer) = buffer else { return };
        let write = half.write_all(&buffer);
        tokio::pin!(write);
        tokio::select! {
            // The reader reports what is wrong with the connection.
            written = &mut write => if written.is_err() { return },
            words = &mut parting => {
                if timeout(PARTING, write).await.is_ok_and(|written| written.is_ok()) {
                    part(half, buffers, words.unwrap_or_default()).await;
                }
                return;
            }
        }
    }
}

async fn part(mut half: OwnedWriteHalf, mut buffers: mpsc::Receiver<Vec<u8>>, words: Vec<u8>) {
    let goodbye = async {
        while let Ok(buffer) = buffers.try_recv() {
            half.write_all(&buffer).await?;
        }
        half.write_all(&words).await?;
        half.shutdown().await
    };
    // Nobody is left to tell if this fails.
    let _ = timeout(PARTING, goodbye).await;
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset => "peer reset the connection".into(),
        io::ErrorKind::TimedOut => "peer acknowledged nothing for too long".into(),
        _ => format!("connection failed: {error}"),
    }
}
