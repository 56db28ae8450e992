//! What a BGP connection's socket is told before anything is sent or read: how far its packets go and may come from, who signs them,
//! and how urgent they are.

mod sys;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
};

use ipnet::IpNet;
use socket2::{SockRef, Socket};
use tokio::net::TcpStream;

use super::{Error, Password, Transport};

/// Class selector 6, which routing protocols use so that a full link does not end their sessions (RFC 4594 section 3.2), as TOS.
const ROUTING: u32 = 0xc0;

/// Passwords by neighbors' addresses: the kernel knows no more of a neighbor.
pub(super) type Passwords = BTreeMap<IpNet, Password>;

/// Before connecting.
pub(super) fn prepare_dialing(socket: &Socket, remote: IpAddr, transport: &Transport) -> Result<(), String> {
    if let Some(password) = &transport.password {
        let signed = sys::set_signature(socket, remote.is_ipv6(), remote.into(), password.expose());
        signed.map_err(|error| format!("the kernel does not sign connections (TCP MD5): {error}"))?;
    }
    set_ttls(socket, remote, transport).map_err(|error| format!("cannot prepare a socket: {error}"))
}

/// Right after accepting. What was received until then was not yet held against the lowest TTL; but it came from where the first
/// packet came from, whose TTL nobody on the way could raise.
///
/// # Errors
/// Why the connection is not to be read.
pub(super) fn prepare_accepted(
    stream: &TcpStream,
    remote: IpAddr,
    transport: &Transport,
) -> Result<(), String> {
    set_ttls(stream, remote, transport).map_err(|error| format!("cannot prepare a socket: {error}"))?;
    let Some(lowest) = transport.reach.lowest_ttl() else { return Ok(()) };
    match sys::first_ttl(stream) {
        Ok(Some(ttl)) if ttl >= lowest => Ok(()),
        Ok(Some(ttl)) => {
            Err(format!("it comes from too far away: TTL {ttl}, and {lowest} is the least (RFC 5082)"))
        }
        Ok(None) => Err("the kernel does not know how far away it comes from (RFC 5082)".into()),
        Err(error) => Err(format!("cannot learn how far away it comes from (RFC 5082): {error}")),
    }
}

/// What a socket needs that is going to listen. Its answer to a SYN leaves before anybody knows whose the SYN is, with the one TTL that
/// every neighbor takes.
pub(super) fn prepare_listening(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    sys::save_syns(socket)?;
    // An IPv6 socket may serve IPv4 as well; what it answers is told by both.
    if address.is_ipv6() {
        socket.set_tclass_v6(ROUTING)?;
        socket.set_unicast_hops_v6(u8::MAX.into())?;
    }
    socket.set_ttl_v4(u8::MAX.into())?;
    socket.set_tos_v4(ROUTING)
}

/// Makes a listener demand these passwords instead of the former ones. If the kernel refuses one, the former ones stay.
pub(super) fn change_passwords(
    listener: &impl AsFd,
    address: SocketAddr,
    former: &Passwords,
    wanted: &Passwords,
) -> Result<(), Error> {
    let set = |from: &Passwords, to: &Passwords| -> Result<(), (IpNet, io::Error)> {
        let serves = |neighbor: &IpNet| address.is_ipv6() || neighbor.addr().is_ipv4();
        let set_one = |neighbor: IpNet, key: &[u8]| {
            sys::set_signature(listener, address.is_ipv6(), neighbor, key).map_err(|error| (neighbor, error))
        };
        for (neighbor, password) in to.iter().filter(|(neighbor, _)| serves(neighbor)) {
            if from.get(neighbor) != Some(password) {
                set_one(*neighbor, password.expose())?;
            }
        }
        let gone = from.keys().filter(|neighbor| serves(neighbor) && !to.contains_key(neighbor));
        gone.copied().try_for_each(|neighbor| set_one(neighbor, &[]))
    };
    set(former, wanted).map_err(|(neighbor, source)| {
        if set(wanted, former).is_err() {
            tracing::debug!(%address, "some passwords of the refused configuration stay in the listener");
        }
        Error::Password { neighbor, source }
    })
}

fn set_ttls(socket: &impl AsFd, remote: IpAddr, transport: &Transport) -> io::Result<()> {
    let options = SockRef::from(socket);
    let (v6, reach) = (remote.is_ipv6(), transport.reach);
    if v6 {
        options.set_tclass_v6(ROUTING)?
    } else {
        options.set_tos_v4(ROUTING)?
    }
    let ttl = reach.ttl().into();
    if v6 {
        options.set_unicast_hops_v6(ttl)?
    } else {
        options.set_ttl_v4(ttl)?
    }
    reach.lowest_ttl().map_or(Ok(()), |lowest| sys::set_lowest_ttl(socket, v6, lowest))
}

#[cfg(test)]
mod tests;
