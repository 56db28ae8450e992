//! One daemon for each table of a network namespace: two would take each other's routes for leftovers.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

use super::Error;

/// The right to change our routes in one table of this network namespace, as long as the value lives.
///
/// It is a socket with an abstract name: such names belong to the network namespace, as routes do, and go with the process however
/// it ends. Nobody is ever answered on it.
#[derive(Debug)]
pub(super) struct Lock {
    _socket: UnixListener,
}

impl Lock {
    /// Takes it.
    ///
    /// # Errors
    /// When another process has it, or no unix socket can be made.
    pub(super) fn take(table: u32) -> Result<Self, Error> {
        let name = SocketAddr::from_abstract_name(format!("isthmus-fib-{table}"));
        let socket = name.and_then(|name| UnixListener::bind_addr(&name));
        socket.map(|socket| Self { _socket: socket }).map_err(|reason| match reason.kind() {
            io::ErrorKind::AddrInUse => Error::Taken(table),
            _ => Error::Lock { table, reason },
        })
    }
}
