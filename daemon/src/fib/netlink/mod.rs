//! The only user of netlink for routes: reads one table, carries out operations, and hears of changes that others make.

mod encode;
mod events;
mod link;
mod read;
mod requests;
mod write;

use std::{
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use ipnet::IpNet;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
};
use rtnetlink::packet_core::{NetlinkDeserializable, NetlinkHeader};
use tokio::task::spawn_blocking;

use super::plan::{Kernel, Link, METRIC, Step};

pub(super) use events::{Events, Heard};
pub(super) use write::Outcome;

use encode::Question;
use requests::Requests;

/// A dump that somebody's changes interrupt is repeated this often; after that the next change or interval repairs it.
const DUMP_ATTEMPTS: usize = 5;
const RTM_NEWLINK: u16 = 16;

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

/// The way to ask and order. What it does takes the kernel's time, not ours, so it is done on threads that may block.
#[derive(Clone)]
pub(super) struct Netlink {
    requests: Arc<Mutex<Requests>>,
}

impl Netlink {
    /// Opens the request socket, and the one that hears of changes. Both belong to the network namespace of the calling thread.
    pub(super) fn open() -> Result<(Self, Events), SocketError> {
        let failed = |reason| SocketError { what: "open a route netlink socket", reason };
        let requests = Requests::open().map_err(failed)?;
        let events = Events::open(requests.port()).map_err(failed)?;
        Ok((Self { requests: Arc::new(Mutex::new(requests)) }, events))
    }

    /// Reads a table, the TUN interface and the links.
    pub(super) async fn read(&self, table: u32, interface: Option<&str>) -> Result<Kernel, SocketError> {
        let failed = |reason| SocketError { what: "read the kernel's routes", reason };
        // An interface that does not exist is an ordinary state: it is shown with each route that needs it. The name is looked up here,
        // because the namespace of a test belongs to its thread.
        let index = interface.and_then(|name| nix::net::if_::if_nametoindex(name).ok());
        self.blocking(move |requests| kernel(requests, table, index)).await.map_err(failed)
    }

    /// Carries out steps; each has an outcome.
    ///
    /// # Errors
    /// What became of them is unknown.
    pub(super) async fn carry_out(&self, table: u32, steps: Vec<Step>) -> Result<Vec<Outcome>, SocketError> {
        let failed = |reason| SocketError { what: "hear what became of kernel routes", reason };
        self.blocking(move |requests| write::carry_out(requests, table, steps)).await.map_err(failed)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Requests) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let requests = Arc::clone(&self.requests);
        let work = move || work(&mut requests.lock().unwrap_or_else(PoisonError::into_inner));
        spawn_blocking(work).await.unwrap_or_else(|_| Err(io::Error::other("isthmusd is stopping")))
    }
}

fn kernel(requests: &mut Requests, table: u32, interface: Option<u32>) -> io::Result<Kernel> {
    let mut kernel = Kernel::default();
    for _ in 0..DUMP_ATTEMPTS {
        kernel = Kernel::default();
        kernel.link = interface.map(|index| Link { index, ..Link::default() });
        let mut consistent = requests.ask(Question::Links, |kind, payload| {
            if let Some(news) = link::read(payload, kind != RTM_NEWLINK) {
                kernel.links.set(news.index, news.name, news.up);
            }
        })?;
        consistent &= requests.ask(Question::Addresses, |kind, payload| {
            if let Some(RouteNetlinkMessage::NewAddress(address)) = parse(kind, payload) {
                note_address(&mut kernel, &address);
            }
        })?;
        for v6 in [false, true] {
            consistent &= requests.ask(Question::Routes { v6, table }, |kind, payload| {
                if let Some(RouteNetlinkMessage::NewRoute(route)) = parse(kind, payload) {
                    read::route(&route, table).into_iter().for_each(|route| kernel.insert(route));
                }
            })?;
        }
        if consistent {
            break;
        }
    }
    Ok(kernel)
}

fn parse(kind: u16, payload: &[u8]) -> Option<RouteNetlinkMessage> {
    let mut header = NetlinkHeader::default();
    header.message_type = kind;
    RouteNetlinkMessage::deserialize(&header, payload).ok()
}

/// Notes an address as one of the TUN interface, and the subnet that it connects.
fn note_address(kernel: &mut Kernel, message: &AddressMessage) {
    let mut address = None;
    let mut far_end = None;
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(local) => address = Some(*local),
            // On a point-to-point link that is the far end, elsewhere our own.
            AddressAttribute::Address(other) => far_end = Some(*other),
            AddressAttribute::Flags(wide) => flags = *wide,
            _ => {}
        }
    }
    let index = message.header.index;
    if let Some(subnet) = far_end.or(address).and_then(|end| IpNet::new(end, message.header.prefix_len).ok())
        && !is_link_local(subnet.addr())
    {
        kernel.links.add_subnet(index, subnet);
    }
    if let (Some(link), Some(address)) =
        (kernel.link.as_mut().filter(|link| link.index == index), address.or(far_end))
    {
        note_own(link, address, flags);
    }
}

/// The kernel lists IPv4 addresses oldest first and IPv6 addresses newest first; the oldest is the one from the configuration.
fn note_own(link: &mut Link, address: IpAddr, flags: AddressFlags) {
    match address {
        IpAddr::V4(v4) if !is_link_local(address) => link.v4 = link.v4.or(Some(v4)),
        IpAddr::V6(v6) if !is_link_local(address) && usable(flags) => link.v6 = Some(v6),
        _ => {}
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn usable(flags: AddressFlags) -> bool {
    !flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed)
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

    /// Gone already, by itself or with its interface: what a removal wanted.
    pub(super) fn is_absence(&self) -> bool {
        [libc::ESRCH, libc::ENOENT, libc::ENODEV].contains(&self.errno)
    }
}
