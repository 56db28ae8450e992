//! Connections of the control API: counted, so that whoever leaves them open takes no descriptors from the rest of the daemon.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// Most connections at a time; those above are closed at once.
const MAX_CONNECTIONS: usize = 128;
/// How long to wait when accepting fails, out of descriptors most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that holds one of the places there are.
pub(super) struct Connection {
    stream: UnixStream,
    _place: OwnedSemaphorePermit,
}

/// Accepts in a task of its own until the stream is dropped; never fails.
pub(super) fn incoming(listener: UnixListener) -> ReceiverStream<io::Result<Connection>> {
    let (sender, connections) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = accept(&listener, &sender) => {}
            () = sender.closed() => {}
        }
    });
    ReceiverStream::new(connections)
}

async fn accept(listener: &UnixListener, connections: &mpsc::Sender<io::Result<Connection>>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match Arc::clone(&places).try_acquire_owned() {
                // An error means that the server is gone; the select above ends this loop.
                Ok(place) => _ = connections.send(Ok(Connection { stream, _place: place })).await,
                Err(_) => tracing::debug!("control API: connection refused, {MAX_CONNECTIONS} are open"),
            },
            Err(error) => {
                tracing::warn!(%error, "control API: accept failed; trying again in a moment");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_stream::StreamExt;

    use super::*;

    #[tokio::test]
    async fn those_above_the_limit_are_closed_and_a_place_that_is_left_is_given_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        let mut incoming = incoming(UnixListener::bind(&path).unwrap());
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..MAX_CONNECTIONS {
            theirs.push(UnixStream::connect(&path).await.unwrap());
            ours.push(incoming.next().await.unwrap().unwrap());
        }
        let mut refused = UnixStream::connect(&path).await.unwrap();
        assert_eq!(refused.read(&mut [0; 1]).await.unwrap(), 0);

        ours.pop();
        let mut admitted = UnixStream::connect(&path).await.unwrap();
        let mut connection = incoming.next().await.unwrap().unwrap();
        connection.write_all(b"x").await.unwrap();
        assert_eq!(admitted.read_u8().await.unwrap(), b'x');
    }
}
