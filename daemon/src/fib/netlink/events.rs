//! Hears that somebody changed routes, addresses or links. What changed is read from the kernel afterwards, so a lost event costs
//! nothing but the question.

use std::io;

use bytes::BytesMut;
use rtnetlink::{
    MulticastGroup,
    packet_core::NetlinkBuffer,
    sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE},
};

const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];
/// The longest datagram that the kernel sends (since Linux 4.9).
const MAX_DATAGRAM: usize = 32 * 1024;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
/// `rtm_table` when the table's number does not fit one byte.
const RT_TABLE_COMPAT: u8 = 252;
/// Offset of `rtm_table` in `struct rtmsg`.
const TABLE_OFFSET: usize = 4;

/// The kernel's announcements. Their queue is the socket's buffer, so it is bounded; overrun counts as a change.
pub(crate) struct Events {
    socket: TokioSocket,
    buffer: BytesMut,
    own: u32,
}

impl Events {
    /// Subscribes; changes made through the netlink port `own` are not reported.
    pub(super) fn open(own: u32) -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        let groups = GROUPS.iter().fold(0, |groups, group| groups | 1 << (*group as u32 - 1));
        socket.socket_mut().bind(&SocketAddr::new(0, groups))?;
        Ok(Self { socket, buffer: BytesMut::with_capacity(MAX_DATAGRAM), own })
    }

    /// Returns when something changed that may concern the routes of `table`. Cancel-safe.
    ///
    /// # Errors
    /// The socket is broken, a new one is needed.
    pub(crate) async fn changed(&mut self, table: u32) -> io::Result<()> {
        loop {
            self.buffer.clear();
            self.buffer.reserve(MAX_DATAGRAM);
            match self.socket.recv(&mut self.buffer).await {
                Ok(()) if concerns(&self.buffer, table, self.own) => return Ok(()),
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// True unless every message of the datagram is surely about something else.
fn concerns(mut datagram: &[u8], table: u32, own: u32) -> bool {
    while !datagram.is_empty() {
        let Ok(message) = NetlinkBuffer::new_checked(datagram) else { return true };
        let route = [RTM_NEWROUTE, RTM_DELROUTE].contains(&message.message_type());
        let elsewhere =
            route && message.payload().get(TABLE_OFFSET).is_some_and(|number| other(*number, table));
        if message.port_number() != own && !elsewhere {
            return true;
        }
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX).next_multiple_of(4);
        datagram = datagram.get(length..).unwrap_or_default();
    }
    false
}

fn other(number: u8, table: u32) -> bool {
    number != u8::try_from(table).unwrap_or(RT_TABLE_COMPAT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u16, port: u32, table: u8) -> Vec<u8> {
        let mut bytes = 28_u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 6]);
        bytes.extend(port.to_ne_bytes());
        bytes.extend([2, 24, 0, 0, table, 73, 0, 1, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn only_others_changes_to_our_table_count() {
        let link = 16;
        for (kind, port, number, table, expected) in [
            (RTM_NEWROUTE, 1, 254, 254, true),
            (RTM_DELROUTE, 1, 254, 254, true),
            (RTM_DELROUTE, 9, 254, 254, false),
            (RTM_NEWROUTE, 1, 255, 254, false),
            (RTM_NEWROUTE, 1, RT_TABLE_COMPAT, 70_000, true),
            (RTM_NEWROUTE, 1, 254, 70_000, false),
            (link, 1, 0, 254, true),
        ] {
            assert_eq!(
                concerns(&message(kind, port, number), table, 9),
                expected,
                "{kind} {port} {number} {table}"
            );
        }
        let both = [message(RTM_NEWROUTE, 9, 254), message(RTM_DELROUTE, 0, 254)].concat();
        assert!(concerns(&both, 254, 9));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), length in 0_u32..64) {
            concerns(&bytes, 254, 9);
            let framed = [length.to_ne_bytes().as_slice(), &bytes].concat();
            concerns(&framed, 254, 9);
        }
    }
}
