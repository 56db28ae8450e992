//! Outgoing connections.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use tokio::{net::TcpStream, time::timeout};

/// An address that does not answer within this is not there now. The kernel sends a SYN at once, after 1 s and after 3 s; to wait
/// longer than for the third answer would only delay a fresh try, and with it the session after an outage.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Connects, from whatever source address the route to the peer has.
///
/// # Errors
/// Why not, for a person.
pub(super) async fn dial(address: IpAddr, port: u16) -> Result<TcpStream, String> {
    let target = SocketAddr::new(address, port);
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(target)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(explain(target, &error)),
        Err(_) => Err(format!("no answer from {target} within {} s", CONNECT_TIMEOUT.as_secs())),
    }
}

fn explain(target: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("peer refused the connection: nothing listens on {target}")
        }
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => format!("no route to {target}"),
        _ => format!("cannot connect to {target}: {error}"),
    }
}
