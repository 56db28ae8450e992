//! The only user of rtnetlink for routes: reads one table, carries out operations, and hears of changes that others make.

mod events;
mod message;

use std::{io, net::IpAddr};

use futures_util::StreamExt;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
};
use rtnetlink::{
    packet_core::{
        ErrorMessage, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REPLACE,
        NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, NlasIterator,
    },
    sys::AsyncSocket,
};

use super::plan::{Kernel, KernelRoute, Link, METRIC, Operation};

pub(super) use events::Events;

/// A dump that somebody's changes interrupt is repeated this often; after that the next change or interval repairs it.
const DUMP_ATTEMPTS: usize = 5;
/// A netlink header without its payload: what precedes the attributes of an error.
const HEADER_LENGTH: usize = 16;
/// `NLMSGERR_ATTR_MSG`: the kernel's own words about an error.
const ERROR_TEXT: u16 = 1;

/// The socket to the kernel is gone, or the kernel does not answer the question.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {reason}")]
pub struct SocketError {
    what: &'static str,
    reason: io::Error,
}

/// The kernel declined one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Positive error number.
    pub(super) errno: i32,
    /// The kernel's own words, often empty.
    pub(super) text: String,
}

/// A socket for requests.
#[derive(Clone)]
pub(super) struct Netlink {
    handle: rtnetlink::Handle,
}

impl Netlink {
    /// Opens the request socket, and the one that hears of changes. Both belong to the network namespace of the calling thread.
    pub(super) fn open() -> Result<(Self, Events), SocketError> {
        let failed = |reason| SocketError { what: "open a route netlink socket", reason };
        let (mut connection, handle, _) = rtnetlink::new_connection().map_err(failed)?;
        connection.set_forward_done(true);
        let socket = connection.socket_mut().socket_mut();
        let own = socket.bind_auto().map_err(failed)?;
        // Older kernels know neither; then errors have no words, and dumps are filtered by us alone.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_netlink_get_strict_chk(true);
        let events = Events::open(own.port_number()).map_err(failed)?;
        // The connection ends by itself when the last handle is dropped.
        tokio::spawn(connection);
        Ok((Self { handle }, events))
    }

    /// Reads a table and the TUN interface.
    pub(super) async fn read(&self, table: u32, interface: Option<&str>) -> Result<Kernel, SocketError> {
        let mut kernel = Kernel::default();
        kernel.link = self.link(interface).await?;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            for route in self.routes(family, table).await? {
                kernel.insert(route);
            }
        }
        Ok(kernel)
    }

    /// Carries out one operation.
    pub(super) async fn execute(&self, table: u32, operation: &Operation) -> Result<(), Refusal> {
        match operation {
            Operation::Add(new) => self.install(table, new, NLM_F_EXCL).await,
            Operation::Delete(old) => self.remove(table, old).await,
            Operation::Replace { old, new } => {
                let outcome = self.install(table, new, NLM_F_REPLACE).await;
                if outcome.is_err() {
                    // The old way is known to be wrong: better a less specific route than that.
                    self.remove(table, old).await?;
                }
                outcome
            }
        }
    }

    async fn install(&self, table: u32, route: &KernelRoute, flag: u16) -> Result<(), Refusal> {
        let message = RouteNetlinkMessage::NewRoute(message::install(route, table));
        self.acknowledged(message, NLM_F_CREATE | flag).await
    }

    async fn remove(&self, table: u32, route: &KernelRoute) -> Result<(), Refusal> {
        let message = RouteNetlinkMessage::DelRoute(message::remove(route, table));
        match self.acknowledged(message, 0).await {
            // Gone already, by itself or with its interface: what we wanted.
            Err(refusal) if [libc::ESRCH, libc::ENOENT, libc::ENODEV].contains(&refusal.errno) => Ok(()),
            outcome => outcome,
        }
    }

    async fn acknowledged(&self, message: RouteNetlinkMessage, flags: u16) -> Result<(), Refusal> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let closed = |_| Refusal { errno: libc::ENOTCONN, text: "the netlink socket is closed".into() };
        let mut replies = self.handle.clone().request(request).map_err(closed)?;
        while let Some(reply) = replies.next().await {
            match reply.payload {
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(refusal(&error)),
                NetlinkPayload::Overrun(_) => {
                    return Err(Refusal {
                        errno: libc::ENOBUFS,
                        text: "the kernel's answer was lost".into(),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn routes(&self, family: AddressFamily, table: u32) -> Result<Vec<KernelRoute>, SocketError> {
        let question = RouteNetlinkMessage::GetRoute(message::dump(family, table));
        let answers = self.dump("read the kernel's routes", question).await?;
        let routes = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => message::read(route, table),
            _ => None,
        });
        Ok(routes.collect())
    }

    async fn link(&self, interface: Option<&str>) -> Result<Option<Link>, SocketError> {
        // An interface that does not exist is an ordinary state: it is shown with each route that needs it.
        let Some(index) = interface.and_then(|name| nix::net::if_::if_nametoindex(name).ok()) else {
            return Ok(None);
        };
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let mut link = Link { index, ..Link::default() };
        for answer in self.dump("read the kernel's addresses", question).await? {
            if let RouteNetlinkMessage::NewAddress(address) = answer
                && address.header.index == index
            {
                note_address(&mut link, &address);
            }
        }
        Ok(Some(link))
    }

    /// A consistent answer to a dump request, where the kernel can give one.
    async fn dump(
        &self,
        what: &'static str,
        question: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, SocketError> {
        let mut answers = Vec::new();
        for _ in 0..DUMP_ATTEMPTS {
            let consistent = self.dump_once(&question, &mut answers).await;
            if consistent.map_err(|reason| SocketError { what, reason })? {
                break;
            }
        }
        Ok(answers)
    }

    /// Fills `answers`; false if the table changed meanwhile.
    async fn dump_once(
        &self,
        question: &RouteNetlinkMessage,
        answers: &mut Vec<RouteNetlinkMessage>,
    ) -> io::Result<bool> {
        answers.clear();
        let mut consistent = true;
        let mut request = NetlinkMessage::from(question.clone());
        request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut replies = self.handle.clone().request(request).map_err(io::Error::other)?;
        while let Some(reply) = replies.next().await {
            consistent &= reply.header.flags & NLM_F_DUMP_INTR == 0;
            match reply.payload {
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Overrun(_) => return Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
                // A table that does not exist is an empty one.
                NetlinkPayload::Done(done) if ![0, -libc::ENOENT].contains(&done.code) => {
                    return Err(io::Error::from_raw_os_error(done.code.saturating_abs()));
                }
                NetlinkPayload::Done(_) => return Ok(consistent),
                _ => {}
            }
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the netlink socket was closed"))
    }
}

impl Refusal {
    /// What happened, whose fault it is and what to do, for the operator.
    pub(super) fn explain(&self) -> String {
        match self.errno {
            libc::EEXIST => format!("another program's route has the metric {METRIC} that is ours"),
            libc::EPERM => {
                "the kernel refuses route changes: isthmusd needs the capability CAP_NET_ADMIN".into()
            }
            errno if self.text.is_empty() => {
                format!("the kernel refuses it: {}", io::Error::from_raw_os_error(errno))
            }
            errno => {
                format!("the kernel refuses it: {} ({})", self.text, io::Error::from_raw_os_error(errno))
            }
        }
    }
}

fn refusal(error: &ErrorMessage) -> Refusal {
    let attributes = error.header.get(HEADER_LENGTH..).unwrap_or_default();
    let text = NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == ERROR_TEXT);
    let text = text.map(|text| String::from_utf8_lossy(text.value()).trim_end_matches('\0').to_owned());
    Refusal { errno: error.raw_code().saturating_abs(), text: text.unwrap_or_default() }
}

/// The kernel lists IPv4 addresses oldest first and IPv6 addresses newest first; the oldest is the one from the configuration.
fn note_address(link: &mut Link, message: &AddressMessage) {
    let mut address = None;
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(local) => address = Some(*local),
            AddressAttribute::Address(other) => address = address.or(Some(*other)),
            AddressAttribute::Flags(wide) => flags = *wide,
            _ => {}
        }
    }
    match address {
        Some(IpAddr::V4(v4)) if !v4.is_link_local() => link.v4 = link.v4.or(Some(v4)),
        Some(IpAddr::V6(v6)) if !v6.is_unicast_link_local() && usable(flags) => link.v6 = Some(v6),
        _ => {}
    }
}

fn usable(flags: AddressFlags) -> bool {
    !flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_carry_the_kernels_words() {
        let mut error = ErrorMessage::default();
        error.code = std::num::NonZeroI32::new(-libc::EHOSTUNREACH);
        error.header = vec![0; HEADER_LENGTH];
        error.header.extend_from_slice(&[12, 0, 1, 0]);
        error.header.extend_from_slice(b"no way\0\0");
        let refusal = refusal(&error);
        assert_eq!(refusal.errno, libc::EHOSTUNREACH);
        assert_eq!(refusal.explain(), "the kernel refuses it: no way (No route to host (os error 113))");
    }

    #[test]
    fn truncated_errors_have_no_words() {
        let mut error = ErrorMessage::default();
        error.code = std::num::NonZeroI32::new(i32::MIN);
        for length in 0..HEADER_LENGTH + 8 {
            error.header = vec![0xff; length];
            assert_eq!(refusal(&error).text, "");
        }
    }
}
