//! Hears that somebody changed routes, addresses or links. A link's carrier and the removal of a route of ours are believed as they are
//! told; what else changed is read from the kernel afterwards, so a lost event costs nothing but the question.

use std::{io, time::Duration};

use bytes::BytesMut;
use rtnetlink::{
    MulticastGroup,
    sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE},
};
use socket2::{SockFilter, SockRef};

use netlink_packet_route::RouteNetlinkMessage;

use super::{
    link::{self, LinkNews},
    read::route,
    requests::{Message, enlarge, messages},
};
use crate::fib::plan::{KernelRoute, PROTOCOL};

const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];
/// The longest datagram that the kernel sends (since Linux 4.9).
const MAX_DATAGRAM: usize = 32 * 1024;
/// Bytes of events that may wait.
const BUFFER: usize = 1 << 20;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
/// `rtm_table` when the table's number does not fit one byte.
const RT_TABLE_COMPAT: u8 = 252;
/// Offset of `rtm_table` in `struct rtmsg`.
const TABLE_OFFSET: usize = 4;
/// Offset of `rtm_protocol` in `struct rtmsg`.
const PROTOCOL_OFFSET: usize = 5;
/// Offset of `nlmsg_pid` in `struct nlmsghdr`.
const PORT_OFFSET: u32 = 12;

/// The kernel's announcements. Their queue is the socket's buffer, so it is bounded; overrun counts as a change.
pub(crate) struct Events {
    socket: TokioSocket,
    buffer: BytesMut,
    own: u32,
}

/// What a datagram said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Something changed that may concern our routes, and only reading tells what.
    pub(crate) changed: bool,
    /// States of links.
    pub(crate) links: Vec<LinkNews>,
    /// Routes of ours that somebody removed.
    pub(crate) removed: Vec<KernelRoute>,
}

impl Heard {
    /// Something changed, and nobody knows what.
    fn overrun() -> Self {
        Self { changed: true, ..Self::default() }
    }

    fn is_news(&self) -> bool {
        self.changed || !self.removed.is_empty()
    }
}

impl Events {
    /// Subscribes; changes made through the netlink port `own` are not reported.
    pub(super) fn open(own: u32) -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        enlarge(socket.socket_mut(), BUFFER);
        // Without the filter a burst of our own changes would fill the queue, and we'd read everything again for nothing.
        let _ = SockRef::from(&*socket.socket_mut()).attach_filter(&others(own));
        let groups = GROUPS.iter().fold(0, |groups, group| groups | 1 << (*group as u32 - 1));
        socket.socket_mut().bind(&SocketAddr::new(0, groups))?;
        Ok(Self { socket, buffer: BytesMut::with_capacity(MAX_DATAGRAM), own })
    }

    /// Returns when something changed that may concern the routes of `table`. Cancel-safe.
    ///
    /// # Errors
    /// The socket is broken, a new one is needed.
    pub(crate) async fn heard(&mut self, table: u32) -> io::Result<Heard> {
        loop {
            self.buffer.clear();
            self.buffer.reserve(MAX_DATAGRAM);
            match self.socket.recv(&mut self.buffer).await {
                Ok(()) => {
                    let heard = read(&self.buffer, table, self.own);
                    if heard.is_news() {
                        return Ok(heard);
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Ok(Heard::overrun());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What is there already, without waiting.
    ///
    /// # Errors
    /// As [`Events::heard`].
    pub(crate) async fn heard_already(&mut self, table: u32) -> Option<io::Result<Heard>> {
        tokio::time::timeout(Duration::ZERO, self.heard(table)).await.ok()
    }
}

/// A program for the kernel: drops what was changed through the port `own`.
fn others(own: u32) -> [SockFilter; 4] {
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    // The program reads in network order.
    let own = u32::from_be_bytes(own.to_ne_bytes());
    [
        SockFilter::new(LOAD, 0, 0, PORT_OFFSET),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, own),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}

/// Changed, unless every message of the datagram is surely about something else, or says all itself.
fn read(datagram: &[u8], table: u32, own: u32) -> Heard {
    let mut heard = Heard::default();
    for message in messages(datagram).filter(|message| message.port != own && !elsewhere(message, table)) {
        if let Some(route) = removed(&message, table) {
            heard.removed.push(route);
            continue;
        }
        heard.changed = true;
        if [RTM_NEWLINK, RTM_DELLINK].contains(&message.kind) {
            heard.links.extend(link::read(message.payload, message.kind == RTM_DELLINK));
        }
    }
    heard
}

/// The route of ours whose removal a message tells of.
fn removed(message: &Message<'_>, table: u32) -> Option<KernelRoute> {
    let ours = message.kind == RTM_DELROUTE && message.payload.get(PROTOCOL_OFFSET) == Some(&PROTOCOL);
    match ours.then(|| super::parse(message.kind, message.payload))? {
        Some(RouteNetlinkMessage::DelRoute(message)) => route(&message, table),
        _ => None,
    }
}

/// True for routes of other tables.
fn elsewhere(message: &Message<'_>, table: u32) -> bool {
    let route = [RTM_NEWROUTE, RTM_DELROUTE].contains(&message.kind);
    let ours = u8::try_from(table).unwrap_or(RT_TABLE_COMPAT);
    route && message.payload.get(TABLE_OFFSET).is_some_and(|number| *number != ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::plan::Target;

    fn message(kind: u16, port: u32, table: u8) -> Vec<u8> {
        let mut bytes = 28_u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 6]);
        bytes.extend(port.to_ne_bytes());
        bytes.extend([2, 24, 0, 0, table, 4, 0, 1, 0, 0, 0, 0]);
        bytes
    }

    /// 10.20.0.0/24 of this protocol, out of interface 7.
    fn removal(protocol: u8, port: u32) -> Vec<u8> {
        let mut bytes = message(RTM_DELROUTE, port, 254);
        bytes[21] = protocol;
        bytes.extend([8, 0, 1, 0, 10, 20, 0, 0, 8, 0, 4, 0]);
        bytes.extend(7_u32.to_ne_bytes());
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_removal_of_ours_says_which() {
        let heard = read(&removal(PROTOCOL, 1), 254, 9);
        assert!(!heard.changed);
        assert_eq!(heard.removed.len(), 1);
        assert_eq!(heard.removed[0].prefix, "10.20.0.0/24".parse().unwrap());
        assert_eq!(heard.removed[0].target, Target::Device(7));
        assert_eq!(read(&removal(PROTOCOL, 9), 254, 9), Heard::default(), "our own doing");
        assert_eq!(read(&removal(4, 1), 254, 9), Heard::overrun(), "another's route is read");
        let both = [removal(PROTOCOL, 1), message(RTM_NEWROUTE, 1, 254)].concat();
        let heard = read(&both, 254, 9);
        assert!(heard.changed && heard.removed.len() == 1);
    }

    #[test]
    fn only_others_changes_to_our_table_count() {
        let address = 20;
        for (kind, port, number, table, expected) in [
            (RTM_NEWROUTE, 1, 254, 254, true),
            (RTM_DELROUTE, 1, 254, 254, true),
            (RTM_DELROUTE, 9, 254, 254, false),
            (RTM_NEWROUTE, 1, 255, 254, false),
            (RTM_NEWROUTE, 1, RT_TABLE_COMPAT, 70_000, true),
            (RTM_NEWROUTE, 1, 254, 70_000, false),
            (address, 1, 0, 254, true),
        ] {
            let heard = read(&message(kind, port, number), table, 9);
            assert_eq!(heard.changed, expected, "{kind} {port} {number} {table}");
        }
        let both = [message(RTM_NEWROUTE, 9, 254), message(RTM_DELROUTE, 0, 254)].concat();
        assert!(read(&both, 254, 9).changed);
    }
}
