//! Traffic that says what happened to it. But for [`Spoofer`] it needs no privilege inside a namespace.

mod flows;
mod http;
mod marked;
mod metrics;
mod spoof;
mod stream;
mod transfer;
mod whole;

pub use flows::{Flow, FlowReport, Prober, UdpEcho};
pub use http::get;
pub use marked::{Marked, MarkedSocket};
pub use metrics::Metrics;
pub use spoof::Spoofer;
pub use stream::TcpStreaming;
pub use transfer::{TcpSink, Transfer, send};
pub use whole::WholeUdp;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};

use crate::{netns::Netns, wait};

/// Waits until a datagram from `netns` to an echo at `target` has come back.
///
/// # Errors
/// When none has within `limit`.
pub fn reach(netns: &Netns, target: SocketAddr, limit: Duration) -> Result<()> {
    netns.run(|| {
        let socket = UdpSocket::bind(SocketAddr::new(any(target.ip()), 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        wait::until(&format!("an echo from {target} to {}", netns.name()), limit, || once(&socket, target))
    })?
}

fn once(socket: &UdpSocket, target: SocketAddr) -> Result<()> {
    let mut buffer = [0; 64];
    // Errors of an earlier datagram (port or network unreachable) are reported on the next call: they say why.
    socket.connect(target).context("no route")?;
    socket.send(b"isthmus reach")?;
    match socket.recv(&mut buffer) {
        Ok(length) if &buffer[..length] == b"isthmus reach" => Ok(()),
        Ok(_) => Err(anyhow!("a strange answer")),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(anyhow!("no answer")),
        Err(error) => Err(error.into()),
    }
}

/// The unspecified address of the family of `like`.
fn any(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}
