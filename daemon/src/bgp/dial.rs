//! Outgoing connections.

use std::{
    io,
    net::{IpAddr, SocketAddr, SocketAddrV6},
    time::Duration,
};

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use super::{NeighborConfig, Place, Reach, Transport, socket::prepare_dialing};

/// An address that does not answer within this is not there now. The kernel sends a SYN at once, after 1 s and after 3 s; to wait
/// longer than for the third answer would only delay a fresh try, and with it the session after an outage.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Whom to connect to, and how.
pub(super) struct Target {
    place: Place,
    port: u16,
    pub(super) transport: Transport,
}

impl Target {
    pub(super) fn new(neighbor: &NeighborConfig) -> Self {
        Self {
            place: neighbor.place.clone(),
            port: neighbor.peer.port,
            transport: neighbor.transport.clone(),
        }
    }
}

/// Connects, from the configured address or from whatever source address the route to the peer has.
///
/// # Errors
/// Why not, for a person.
pub(super) async fn dial(target: &Target) -> Result<TcpStream, String> {
    let remote = socket_address(&target.place, target.place.address, target.port)?;
    let socket = prepare(target, remote)?;
    match timeout(CONNECT_TIMEOUT, socket.connect(remote)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(explain(target, remote, &error)),
        Err(_) => Err(no_answer(target, remote)),
    }
}

fn prepare(target: &Target, remote: SocketAddr) -> Result<TcpSocket, String> {
    let cannot = |error: io::Error| format!("cannot prepare a socket: {error}");
    let socket =
        Socket::new(Domain::for_address(remote), Type::STREAM, Some(Protocol::TCP)).map_err(cannot)?;
    socket.set_nonblocking(true).map_err(cannot)?;
    prepare_dialing(&socket, target.place.address, &target.transport)?;
    if let Some(local) = target.transport.local_address {
        let address = socket_address(&target.place, local, 0)?;
        let bound = socket.bind(&address.into());
        bound.map_err(|error| format!("cannot dial from local_address {local}: {error}"))?;
    }
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// With the interface's index where the address is link-local: it may be another one at each try.
fn socket_address(place: &Place, address: IpAddr, port: u16) -> Result<SocketAddr, String> {
    match (address, &place.interface) {
        (IpAddr::V6(v6), Some(interface)) if v6.is_unicast_link_local() => {
            let index = if_nametoindex(interface.as_str());
            let index = index.map_err(|_| format!("there is no interface {interface} now"))?;
            Ok(SocketAddrV6::new(v6, port, 0, index).into())
        }
        _ => Ok(SocketAddr::new(address, port)),
    }
}

fn explain(target: &Target, remote: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("peer refused the connection: nothing listens on {remote}")
        }
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => format!("no route to {remote}"),
        io::ErrorKind::TimedOut => no_answer(target, remote),
        _ => format!("cannot connect to {remote}: {error}"),
    }
}

/// What keeps answers away, as far as it is ours to change.
fn no_answer(target: &Target, remote: SocketAddr) -> String {
    let seconds = CONNECT_TIMEOUT.as_secs();
    let mut text = format!("no answer from {remote} within {seconds} s");
    if target.transport.password.is_some() {
        text += "; with another password there it would not answer";
    }
    match target.transport.reach {
        Reach::Ttl(ttl) if ttl.get() == 1 => text += "; if it is not on a link of ours it needs multihop",
        Reach::Secured(hops) => {
            text += &format!("; what comes over more than {hops} hops is dropped (ttl_security)");
        }
        Reach::Ttl(_) | Reach::Any => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(transport: Transport) -> Target {
        let place = Place { address: "192.0.2.1".parse().unwrap(), interface: None };
        Target { place, port: 179, transport }
    }

    #[test]
    fn silence_names_what_may_keep_it() {
        let remote = "192.0.2.1:179".parse().unwrap();
        let plain = no_answer(&target(Transport::default()), remote);
        assert_eq!(plain, "no answer from 192.0.2.1:179 within 4 s");
        let reach = Reach::Ttl(std::num::NonZeroU8::MIN);
        let near = no_answer(&target(Transport { reach, ..Transport::default() }), remote);
        assert!(near.ends_with("it needs multihop"), "{near}");
    }

    #[tokio::test]
    async fn an_interface_that_is_not_there_is_named() {
        let mut target = target(Transport::default());
        target.place = Place { address: "fe80::1".parse().unwrap(), interface: Some("no-such0".into()) };
        assert_eq!(dial(&target).await.unwrap_err(), "there is no interface no-such0 now");
    }
}
