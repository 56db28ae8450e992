//! Routes in the kernel's own words: what is there now, and what was changed while somebody watched.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use anyhow::{Context, Result, anyhow, bail};
use futures_util::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol},
};
use rtnetlink::{
    Handle, MulticastGroup, RouteMessageBuilder,
    packet_core::{NetlinkMessage, NetlinkPayload},
    sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE},
};

use crate::{link::link_name, netns::Netns};

/// The main table, the only one the lab looks at.
const MAIN: u8 = 254;
/// The longest datagram that the kernel sends.
const MAX_DATAGRAM: usize = 32 * 1024;

/// One route of the main table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRoute {
    /// Where to.
    pub prefix: IpNet,
    /// The next router; `None`: straight to the link.
    pub gateway: Option<IpAddr>,
    /// The interface; empty where several next hops each have their own.
    pub interface: String,
    /// The preferred source address.
    pub source: Option<IpAddr>,
    /// Who made it: 73 is ours.
    pub protocol: u8,
    /// The lower, the better.
    pub metric: u32,
}

/// As `ip route` prints it, so that a failed comparison can be read.
impl fmt::Display for KernelRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.prefix)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " dev {} proto {}", self.interface, self.protocol)?;
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        write!(f, " metric {}", self.metric)
    }
}

/// A change that somebody made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteEvent {
    /// False: it was removed.
    pub added: bool,
    /// Of which route.
    pub prefix: IpNet,
    /// Whose route.
    pub protocol: u8,
}

/// Gathers the changes of one namespace's main table from its making on.
pub struct RouteEvents {
    socket: Socket,
}

impl Netns {
    /// Routes of both families, in order; link-local ones come and go on their own time and are left out.
    ///
    /// # Errors
    /// When netlink fails.
    pub fn routes(&self) -> Result<Vec<KernelRoute>> {
        let routes = self.netlink(async |handle| {
            let mut routes = Vec::new();
            for message in dump(&handle).await? {
                routes.extend(describe(&handle, &message).await?);
            }
            Ok(routes)
        });
        let mut routes = routes.with_context(|| format!("routes in {}", self.name()))?;
        routes.retain(|route| !is_link_local(&route.prefix));
        routes.sort();
        Ok(routes)
    }

    /// Those of [`Netns::routes`] with this protocol number.
    ///
    /// # Errors
    /// When netlink fails.
    pub fn routes_of(&self, protocol: u8) -> Result<Vec<KernelRoute>> {
        let mut routes = self.routes()?;
        routes.retain(|route| route.protocol == protocol);
        Ok(routes)
    }

    /// Adds a route as another program would, with its own protocol number and metric.
    ///
    /// # Errors
    /// When `via` is on no link or this prefix has a route with this metric.
    pub fn add_foreign_route(&self, prefix: IpNet, via: IpAddr, protocol: u8, metric: u32) -> Result<()> {
        self.netlink(async |handle| {
            let route = RouteMessageBuilder::<IpAddr>::new()
                .destination_prefix(prefix.addr(), prefix.prefix_len())?
                .gateway(via)?
                .protocol(RouteProtocol::from(protocol))
                .priority(metric);
            Ok(handle.route().add(route.build()).execute().await?)
        })
        .with_context(|| format!("route {prefix} via {via} in {}", self.name()))
    }

    /// Removes the route to this prefix that has this protocol number.
    ///
    /// # Errors
    /// When there is none.
    pub fn delete_route(&self, prefix: IpNet, protocol: u8) -> Result<()> {
        self.netlink(async |handle| {
            let mut routes = dump(&handle).await?.into_iter();
            let wanted = |message: &RouteMessage| {
                prefix_of(message) == Some(prefix) && u8::from(message.header.protocol) == protocol
            };
            let route = routes.find(wanted).context("there is no such route")?;
            Ok(handle.route().del(route).execute().await?)
        })
        .with_context(|| format!("removing route {prefix} proto {protocol} in {}", self.name()))
    }

    /// Starts to gather changes; nothing after the return of this is missed.
    ///
    /// # Errors
    /// When no netlink socket can be opened.
    pub fn watch_routes(&self) -> Result<RouteEvents> {
        let socket = self.run(|| -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            let groups = [MulticastGroup::Ipv4Route, MulticastGroup::Ipv6Route];
            let groups = groups.iter().fold(0, |groups, group| groups | 1 << (*group as u32 - 1));
            socket.bind(&SocketAddr::new(0, groups))?;
            socket.set_non_blocking(true)?;
            Ok(socket)
        })?;
        Ok(RouteEvents { socket: socket.context("watching routes")? })
    }
}

impl RouteEvents {
    /// The changes since the last call, in order.
    ///
    /// # Errors
    /// When there were more than the kernel keeps.
    pub fn take(&mut self) -> Result<Vec<RouteEvent>> {
        let mut events = Vec::new();
        loop {
            let mut buffer = Vec::with_capacity(MAX_DATAGRAM);
            match self.socket.recv(&mut buffer, 0) {
                Ok(_) => read(&buffer, &mut events)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(events),
                Err(error) => bail!("route announcements: {error}"),
            }
        }
    }
}

fn read(mut datagram: &[u8], events: &mut Vec<RouteEvent>) -> Result<()> {
    while !datagram.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram)
            .map_err(|error| anyhow!("a route announcement: {error}"))?;
        let length = usize::try_from(message.header.length)?.next_multiple_of(4);
        events.extend(event(message.payload));
        datagram = datagram.get(length..).unwrap_or_default();
    }
    Ok(())
}

fn event(payload: NetlinkPayload<RouteNetlinkMessage>) -> Option<RouteEvent> {
    let (added, message) = match payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message)) => (true, message),
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(message)) => (false, message),
        _ => return None,
    };
    let protocol = message.header.protocol.into();
    (message.header.table == MAIN).then_some(RouteEvent { added, prefix: prefix_of(&message)?, protocol })
}

/// Every route of the main table.
async fn dump(handle: &Handle) -> Result<Vec<RouteMessage>> {
    let mut all = Vec::new();
    for query in
        [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()]
    {
        let routes: Vec<RouteMessage> = handle.route().get(query).execute().try_collect().await?;
        all.extend(routes.into_iter().filter(|route| route.header.table == MAIN));
    }
    Ok(all)
}

async fn describe(handle: &Handle, message: &RouteMessage) -> Result<Option<KernelRoute>> {
    let Some(prefix) = prefix_of(message) else { return Ok(None) };
    let mut route = KernelRoute {
        prefix,
        gateway: None,
        interface: String::new(),
        source: None,
        protocol: message.header.protocol.into(),
        metric: 0,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Gateway(address) => route.gateway = ip(address),
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Oif(index) => route.interface = link_name(handle, *index).await?,
            _ => {}
        }
    }
    Ok(Some(route))
}

/// A default route has no destination attribute.
fn prefix_of(message: &RouteMessage) -> Option<IpNet> {
    let length = message.header.destination_prefix_length;
    let destination = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => Some(ip(address)),
        _ => None,
    });
    let any = || match message.header.address_family {
        AddressFamily::Inet => Some(Ipv4Addr::UNSPECIFIED.into()),
        AddressFamily::Inet6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    };
    IpNet::new(destination.unwrap_or_else(any)?, length).ok()
}

fn is_link_local(prefix: &IpNet) -> bool {
    matches!(prefix, IpNet::V6(prefix) if prefix.addr().is_unicast_link_local())
}

/// `None` for addresses of other families.
pub(crate) fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
