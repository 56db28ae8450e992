//! How many of the prefixes the kernel sends by which router, as its own dump says (rtnetlink(7)).

use std::{
    net::Ipv4Addr,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use isthmus_lab::netns::Netns;
use nix::{
    libc,
    sys::{
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
            setsockopt, socket, sockopt,
        },
        time::TimeVal,
    },
};

const HEADER: usize = 16;
/// `struct rtmsg` behind it.
const ROUTE: usize = 12;
const LONGEST: usize = 64 << 10;
const PREFIX_LENGTH: u8 = 24;

/// Asks one kernel about its routes.
pub(super) struct Kernel {
    socket: OwnedFd,
}

impl Kernel {
    /// Of the main table in `netns`.
    ///
    /// # Errors
    /// When no socket can be made.
    pub(super) fn of(netns: &Netns) -> Result<Self> {
        let open = || -> nix::Result<OwnedFd> {
            let (kind, flags) = (SockType::Raw, SockFlag::SOCK_CLOEXEC);
            let socket = socket(AddressFamily::Netlink, kind, flags, SockProtocol::NetlinkRoute)?;
            setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(5, 0))?;
            bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
            Ok(socket)
        };
        Ok(Self { socket: netns.run(open)?.context("a socket to the kernel's routes")? })
    }

    /// Waits until so many prefixes go by `gateway` and no other way: when that was so.
    ///
    /// # Errors
    /// When it is not so within `limit`.
    pub(super) fn until(&self, count: u32, gateway: Ipv4Addr, limit: Duration) -> Result<Instant> {
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            let found = self.count(gateway)?;
            if found == count {
                return Ok(asked);
            }
            ensure!(began.elapsed() < limit, "{found} of {count} routes go by {gateway} after {limit:?}");
        }
    }

    /// How many prefixes go by this gateway alone.
    fn count(&self, gateway: Ipv4Addr) -> Result<u32> {
        send(self.socket.as_raw_fd(), &question(), MsgFlags::empty()).context("asking for routes")?;
        let (mut buffer, mut found) = (vec![0; LONGEST], 0);
        loop {
            let length =
                recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).context("reading routes")?;
            let mut datagram = &buffer[..length];
            while let Some(message) = first(datagram) {
                if is_last(message) {
                    return Ok(found);
                }
                found += u32::from(gateway_of(message) == Some(gateway));
                datagram = datagram.get(message.len().next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

/// `RTM_GETROUTE` for all of IPv4.
fn question() -> Vec<u8> {
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).expect("flags of 16 bits");
    let mut octets = u32::try_from(HEADER + ROUTE).expect("a few octets").to_ne_bytes().to_vec();
    octets.extend(libc::RTM_GETROUTE.to_ne_bytes());
    octets.extend(flags.to_ne_bytes());
    octets.extend([0; 8]);
    octets.push(u8::try_from(libc::AF_INET).expect("a small number"));
    octets.resize(HEADER + ROUTE, 0);
    octets
}

fn first(datagram: &[u8]) -> Option<&[u8]> {
    let length = u32::from_ne_bytes(*datagram.first_chunk()?);
    datagram.get(..usize::try_from(length).ok()?.max(HEADER))
}

fn is_last(message: &[u8]) -> bool {
    let kind = i32::from(u16::from_ne_bytes([message[4], message[5]]));
    [libc::NLMSG_DONE, libc::NLMSG_ERROR].contains(&kind)
}

/// Of a route to a /24 in the main table that has one.
fn gateway_of(message: &[u8]) -> Option<Ipv4Addr> {
    let (route, mut attributes) = message.get(HEADER..)?.split_at_checked(ROUTE)?;
    // Octet 1 of `struct rtmsg` is the length of the destination, octet 4 the table.
    if route[1] != PREFIX_LENGTH || route[4] != libc::RT_TABLE_MAIN {
        return None;
    }
    while let [low, high, kind, _, rest @ ..] = attributes {
        if u16::from(*kind) == libc::RTA_GATEWAY {
            return rest.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets));
        }
        let length = usize::from(u16::from_ne_bytes([*low, *high]));
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_found_behind_other_attributes() {
        let mut message = vec![44, 0, 0, 0];
        message.extend(libc::RTM_NEWROUTE.to_ne_bytes());
        message.extend([0; 10]);
        message.extend([2, 24, 0, 0, 254, 73, 0, 1, 0, 0, 0, 0]);
        message.extend([8, 0, 1, 0, 30, 0, 2, 0]); // RTA_DST
        message.extend([8, 0, 5, 0, 10, 0, 1, 2]); // RTA_GATEWAY
        assert_eq!(gateway_of(&message), Some(Ipv4Addr::new(10, 0, 1, 2)));
        assert_eq!(first(&message).map(<[u8]>::len), Some(44));
        message[17] = 25;
        assert_eq!(gateway_of(&message), None);
        for end in 0..message.len() {
            assert_eq!(first(&message[..end]), None);
            assert_eq!(gateway_of(&message[..end]), None);
        }
    }

    #[test]
    fn networks_of_the_rig_are_not_counted() {
        // They are on a link, without a gateway.
        let mut message = question();
        message[17] = 24;
        message[20] = 254;
        assert_eq!(gateway_of(&message), None);
    }
}
