//! Connections of the metrics server: whoever leaves them open shuts out neither Prometheus nor the health checks.

use std::{io, net::SocketAddr, time::Duration};

use tokio::net::{TcpListener, TcpStream};

use crate::connections::{Guest, Room};

/// Most connections at a time.
const PLACES: usize = 64;
/// How long to wait when accepting fails, out of descriptors most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener whose connections are counted.
pub(super) struct Listener {
    listener: TcpListener,
    room: Room,
}

impl Listener {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, room: Room::new(PLACES) }
    }
}

impl axum::serve::Listener for Listener {
    type Io = Guest<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => return (self.room.admit(stream).await, from),
                Err(error) => {
                    tracing::warn!(%error, "metrics: accept failed; trying again in a moment");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
