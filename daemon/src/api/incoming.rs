//! Connections of the control API as its server wants them.

use std::{io, time::Duration};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::operator::Operator;
use crate::{
    connections::{Guest, Room},
    unix_socket::Mended,
};

/// Most connections at a time.
const PLACES: usize = 128;
/// How long to wait when accepting fails, out of descriptors most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts in a task of its own until the stream is dropped; never fails.
pub(super) fn incoming(listener: UnixListener) -> ReceiverStream<io::Result<Guest<Mended<UnixStream>>>> {
    let (sender, connections) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = accept(&listener, &sender) => {}
            () = sender.closed() => {}
        }
    });
    ReceiverStream::new(connections)
}

async fn accept(listener: &UnixListener, connections: &mpsc::Sender<io::Result<Guest<Mended<UnixStream>>>>) {
    let room = Room::new(PLACES);
    loop {
        match listener.accept().await {
            // An error means that the server is gone: the select above ends this loop.
            Ok((stream, _)) => _ = connections.send(Ok(room.admit(Mended::new(stream)).await)).await,
            Err(error) => {
                tracing::warn!(%error, "control API: accept failed; trying again in a moment");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Connected for Guest<Mended<UnixStream>> {
    type ConnectInfo = Operator;

    fn connect_info(&self) -> Operator {
        Operator::of(self.get_ref().get_ref())
    }
}
