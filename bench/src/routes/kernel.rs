//! The kernel's routing table, as it tells of its changes (rtnetlink(7)).

use std::{
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use isthmus_lab::netns::Netns;
use nix::{
    errno::Errno,
    libc,
    sys::{
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt,
            socket, sockopt,
        },
        time::TimeVal,
    },
};

use super::{feed, held::Held, session::Voice};

const HEADER: usize = 16;
/// `struct rtmsg` behind it.
const ROUTE: usize = 12;
/// Room for the changes of a speaker that is faster than we are.
const BUFFER: usize = 256 << 20;
const LONGEST: usize = 64 << 10;

/// Counts the routes to fed prefixes from its making on.
pub(super) struct Watch {
    socket: OwnedFd,
    held: Held,
}

impl Watch {
    /// Starts to listen in `netns`.
    ///
    /// # Errors
    /// When no socket can be made or it may not have so large a buffer.
    pub(super) fn start(netns: &Netns) -> Result<Self> {
        let socket = netns.run(listen)?.context("listening to the kernel's routes")?;
        Ok(Self { socket, held: Held::default() })
    }

    /// Listens until there are routes to so many prefixes: when that was so.
    ///
    /// # Errors
    /// When it is not so within `limit`, the `feeder`'s session ends, or the kernel told more than we could hear.
    pub(super) fn until_held(&mut self, count: u32, limit: Duration, feeder: &Voice) -> Result<Instant> {
        let began = Instant::now();
        let mut buffer = vec![0; LONGEST];
        while self.held.count() != count {
            feeder.ensure_alive()?;
            ensure!(
                began.elapsed() < limit,
                "{} of {count} routes are there after {limit:?}",
                self.held.count()
            );
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => take(&buffer[..length], &mut self.held),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => bail!("the kernel told of more routes than there was room for"),
                Err(error) => return Err(error).context("listening to the kernel's routes"),
            }
        }
        Ok(Instant::now())
    }
}

fn listen() -> nix::Result<OwnedFd> {
    let socket =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 200_000))?;
    let groups = u32::try_from(libc::RTMGRP_IPV4_ROUTE).expect("a bit of a mask");
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(socket)
}

/// Takes every message of a datagram.
fn take(mut datagram: &[u8], held: &mut Held) {
    while let Some(message) = message(datagram) {
        if let Some((number, there)) = change(message) {
            held.set(number, there);
        }
        datagram = datagram.get(message.len().next_multiple_of(4)..).unwrap_or_default();
    }
}

fn message(datagram: &[u8]) -> Option<&[u8]> {
    let length = u32::from_ne_bytes(*datagram.first_chunk()?);
    datagram.get(..usize::try_from(length).ok()?.max(HEADER))
}

/// Which prefix, and whether there is a route to it now.
fn change(message: &[u8]) -> Option<(u32, bool)> {
    let there = match u16::from_ne_bytes([message[4], message[5]]) {
        libc::RTM_NEWROUTE => true,
        libc::RTM_DELROUTE => false,
        _ => return None,
    };
    let (route, mut attributes) = message.get(HEADER..)?.split_at_checked(ROUTE)?;
    // Octet 1 of `struct rtmsg` is the length of the destination, octet 4 the table.
    if route[1] != feed::LENGTH || route[4] != libc::RT_TABLE_MAIN {
        return None;
    }
    while let [low, high, kind, _, rest @ ..] = attributes {
        let length = usize::from(u16::from_ne_bytes([*low, *high]));
        if u16::from(*kind) == libc::RTA_DST {
            return Some((feed::number([*rest.first()?, *rest.get(1)?, *rest.get(2)?])?, there));
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A route to `20.0.2.0/24` in the main table, as a little-endian kernel tells of it.
    fn told(kind: u16) -> Vec<u8> {
        let mut message = vec![44, 0, 0, 0];
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend([2, 24, 0, 0, 254, 73, 0, 1, 0, 0, 0, 0]);
        message.extend([8, 0, 15, 0, 254, 0, 0, 0]); // RTA_TABLE
        message.extend([8, 0, 1, 0, 20, 0, 2, 0]); // RTA_DST
        message
    }

    #[test]
    fn routes_come_and_go_as_the_kernel_says() {
        let mut held = Held::default();
        take(&[told(libc::RTM_NEWROUTE), told(libc::RTM_NEWROUTE)].concat(), &mut held);
        assert_eq!(held.count(), 1);
        take(&told(libc::RTM_DELROUTE), &mut held);
        assert_eq!(held.count(), 0);
    }

    #[test]
    fn other_tables_and_lengths_are_not_counted() {
        for (at, value) in [(17, 25), (20, 255), (4, 20)] {
            let mut other = told(libc::RTM_NEWROUTE);
            other[at] = value;
            assert_eq!(change(&other), None);
        }
    }

    #[test]
    fn no_octets_make_it_panic() {
        let told = told(libc::RTM_NEWROUTE);
        for end in 0..told.len() {
            take(&told[..end], &mut Held::default());
            let mut short = told.clone();
            short[0] = u8::try_from(end).unwrap();
            take(&short, &mut Held::default());
        }
    }
}
