//! Incoming connections: only configured neighbors get as far as the speaker.

use std::{
    collections::HashSet,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

use super::{Error, driver::Input, metrics};

/// Connections that the kernel completes before we look at them.
const BACKLOG: i32 = 64;
/// How long accepting rests when the process has no descriptors left.
const REST: Duration = Duration::from_millis(200);

/// Addresses of the configured neighbors.
pub(super) type Neighbors = Arc<HashSet<IpAddr>>;

/// Binds every address, or none.
pub(super) fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, Error> {
    let bind =
        |address: &SocketAddr| bind_one(*address, addresses).map_err(|error| Error::listen(*address, error));
    addresses.iter().map(bind).collect()
}

fn bind_one(address: SocketAddr, all: &[SocketAddr]) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` alone takes IPv4 as well; beside an IPv4 listener on its port it must not.
        let beside_v4 = all.iter().any(|other| other.is_ipv4() && other.port() == address.port());
        socket.set_only_v6(beside_v4)?;
    }
    // A restart must not wait for connections of the former run to time out.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Accepts until told to stop.
pub(super) async fn accept(
    listener: TcpListener,
    neighbors: watch::Receiver<Neighbors>,
    inputs: mpsc::Sender<Input>,
    stop: CancellationToken,
) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, remote)) => {
                if !admit(stream, remote, &neighbors, &inputs).await {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept BGP connections");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// False: the driver is gone.
async fn admit(
    stream: TcpStream,
    remote: SocketAddr,
    neighbors: &watch::Receiver<Neighbors>,
    inputs: &mpsc::Sender<Input>,
) -> bool {
    let remote = remote.ip().to_canonical();
    if !neighbors.borrow().contains(&remote) {
        tracing::debug!(%remote, "BGP connection refused: no neighbor is configured with this address");
        metrics::refused("unknown");
        return true;
    }
    inputs.send(Input::Accepted { stream, remote }).await.is_ok()
}
