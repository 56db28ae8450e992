//! UDP: two ports to listen on, and for each session a port to send from.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt::Ipv4RecvTtl,
};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Error, Route, inner};

/// RFC 5883 section 5.
const MULTIHOP_PORT: u16 = 4784;
/// Where sessions send from (RFC 5881 section 4).
const FIRST_SOURCE_PORT: u16 = 49_152;
/// Ports tried before a session gives up; each is free with a likelihood near one.
const ATTEMPTS: usize = 64;
const TTL: u32 = 255;
/// Network control (CS6).
const TRAFFIC_CLASS: u32 = 0xc0;
/// A packet is 24 bytes; more is authenticated, which is discarded anyway.
const BUFFER: usize = 128;

/// A socket that hears one port over one family.
pub(super) struct Listener {
    socket: Socket,
    multihop: bool,
}

/// Ports that are listened on, opened when first needed.
#[derive(Default)]
pub(super) struct Listeners {
    all: Vec<Listener>,
}

impl Listeners {
    /// Listens on what these routes need.
    pub(super) fn open_for<'a>(&mut self, routes: impl Iterator<Item = &'a Route>) -> Result<(), Error> {
        for route in routes {
            let (remote, multihop) = match route {
                Route::Tunnel { .. } => continue,
                Route::Direct { remote, .. } => (remote, false),
                Route::Multihop { remote } => (remote, true),
            };
            if !self.all.iter().any(|one| one.multihop == multihop && one.is_v6() == remote.is_ipv6()) {
                self.all.push(Listener::bind(remote.is_ipv6(), multihop)?);
            }
        }
        Ok(())
    }

    pub(super) fn all(&self) -> &[Listener] {
        &self.all
    }
}

impl Listener {
    fn bind(v6: bool, multihop: bool) -> Result<Self, Error> {
        let port = if multihop { MULTIHOP_PORT } else { inner::PORT };
        let socket = listen(v6, port).map_err(|reason| Error::Listen { port, reason })?;
        Ok(Self { socket, multihop })
    }

    fn is_v6(&self) -> bool {
        self.socket.domain().is_ok_and(|domain| domain == Domain::IPV6)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next packet and who sent it, if there is one. Over one hop, `Err` tells of one that has crossed a router.
    pub(super) fn receive(&self, buffer: &mut [u8; BUFFER_SIZE]) -> io::Result<Option<Received>> {
        let mut control = nix::cmsg_space!(libc::c_int);
        let mut pieces = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message =
            match recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut pieces, Some(&mut control), flags)
            {
                Ok(message) => message,
                Err(nix::Error::EAGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
        let ttl = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::Ipv4Ttl(ttl) | ControlMessageOwned::Ipv6HopLimit(ttl) => Some(ttl),
            _ => None,
        });
        let from = message.address.as_ref().and_then(address);
        let length = message.bytes;
        let Some(from) = from else { return Ok(None) };
        let near = ttl == Some(255);
        Ok(Some(Received { from, length, route: route(from, self.multihop), near: near || self.multihop }))
    }
}

/// Room for one packet.
pub(super) const BUFFER_SIZE: usize = BUFFER;

/// A packet in the buffer.
pub(super) struct Received {
    pub(super) from: SocketAddr,
    pub(super) length: usize,
    pub(super) route: Route,
    /// It has not crossed a router, or may (RFC 5881 section 5).
    pub(super) near: bool,
}

fn route(from: SocketAddr, multihop: bool) -> Route {
    let remote = from.ip().to_canonical();
    let scope = match from {
        SocketAddr::V6(from) if from.ip().is_unicast_link_local() => from.scope_id(),
        _ => 0,
    };
    if multihop { Route::Multihop { remote } } else { Route::Direct { remote, scope } }
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6 = storage.as_sockaddr_in6()?;
    Some(SocketAddrV6::new(v6.ip(), v6.port(), 0, v6.scope_id()).into())
}

fn listen(v6: bool, port: u16) -> io::Result<Socket> {
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if v6 {
        socket.set_only_v6(true)?;
        socket.set_recv_hoplimit_v6(true)?;
    } else {
        setsockopt(&socket, Ipv4RecvTtl, &true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::new(any(v6), port).into())?;
    Ok(socket)
}

/// What a session sends by.
pub(super) struct Outlet {
    socket: UdpSocket,
    to: SocketAddr,
}

impl Outlet {
    /// `draw` gives random numbers for the port.
    pub(super) fn open(route: &Route, local: Option<IpAddr>, draw: impl FnMut() -> u16) -> io::Result<Self> {
        let remote = route.remote();
        let (port, scope) = match route {
            Route::Multihop { .. } => (MULTIHOP_PORT, 0),
            Route::Direct { scope, .. } => (inner::PORT, *scope),
            Route::Tunnel { .. } => (inner::PORT, 0),
        };
        let to = match remote {
            IpAddr::V4(remote) => SocketAddr::new(remote.into(), port),
            IpAddr::V6(remote) => SocketAddrV6::new(remote, port, 0, scope).into(),
        };
        let socket = source(remote.is_ipv6(), local, scope, draw)?;
        Ok(Self { socket: socket.into(), to })
    }

    pub(super) fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.socket.send_to(packet, self.to).map(drop)
    }
}

/// Bound to a free port of the range; ports tell sessions apart for whoever hashes flows.
fn source(v6: bool, local: Option<IpAddr>, scope: u32, mut draw: impl FnMut() -> u16) -> io::Result<Socket> {
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if v6 {
        socket.set_only_v6(true)?;
        socket.set_unicast_hops_v6(TTL)?;
        socket.set_tclass_v6(TRAFFIC_CLASS)?;
    } else {
        socket.set_ttl_v4(TTL)?;
        socket.set_tos_v4(TRAFFIC_CLASS)?;
    }
    let address = local.unwrap_or_else(|| any(v6));
    let mut attempts = (0..ATTEMPTS).map(|_| {
        let port = FIRST_SOURCE_PORT + draw() % (u16::MAX - FIRST_SOURCE_PORT);
        let address = match address {
            IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, scope).into(),
            IpAddr::V4(_) => SocketAddr::new(address, port),
        };
        socket.bind(&address.into())
    });
    let taken =
        |result: &io::Result<()>| matches!(result, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
    match attempts.find(|result| !taken(result)) {
        Some(bound) => bound?,
        None => return Err(io::ErrorKind::AddrInUse.into()),
    }
    drop(attempts);
    Ok(socket)
}

fn any(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}
