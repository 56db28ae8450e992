//! Links, addresses and routes of a [`Netns`], by rtnetlink: no `ip` command is needed.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd,
};

use anyhow::{Context, Result, anyhow};
use futures_util::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::{
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{InfoData, InfoVeth, LinkAttribute, LinkMessage},
    route::{RouteAttribute, RouteMessage},
};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth, RouteMessageBuilder};

use crate::{netns::Netns, route::ip};

/// What the kernel would do with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteAnswer {
    /// The next router; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The interface it leaves by.
    pub interface: String,
    /// The source address it would get.
    pub source: Option<IpAddr>,
}

/// Joins two namespaces by a pair of interfaces, both up.
///
/// # Errors
/// When a name is taken or a namespace is missing.
pub fn veth(left: (&Netns, &str), right: (&Netns, &str)) -> Result<()> {
    let what = || format!("joining {}/{} and {}/{}", left.0.name(), left.1, right.0.name(), right.1);
    let far = right.0.open()?;
    left.0
        .netlink(async |handle: Handle| {
            let peer = LinkUnspec::new_with_name(right.1).setns_by_fd(far.as_raw_fd()).build();
            let pair = LinkVeth::new(left.1, right.1).set_info_data(InfoData::Veth(InfoVeth::Peer(peer)));
            Ok(handle.link().add(pair.build()).execute().await?)
        })
        .with_context(what)?;
    left.0.link_up(left.1)?;
    right.0.link_up(right.1)
}

impl Netns {
    /// Runs `work` with an rtnetlink handle of this namespace.
    ///
    /// # Errors
    /// Those of `work`, and when no netlink socket can be opened.
    pub fn netlink<T: Send>(&self, work: impl AsyncFnOnce(Handle) -> Result<T> + Send) -> Result<T> {
        self.block_on(|| async {
            let (connection, handle, _) = rtnetlink::new_connection().context("opening a netlink socket")?;
            let connection = tokio::spawn(connection);
            let result = work(handle).await;
            connection.abort();
            result
        })?
    }

    /// Makes a bridge that is up, with `ports` as its ports.
    ///
    /// # Errors
    /// When the name is taken or a port does not exist.
    pub fn bridge(&self, name: &str, ports: &[&str]) -> Result<()> {
        self.netlink(async |handle| Ok(handle.link().add(LinkBridge::new(name).build()).execute().await?))
            .with_context(|| format!("making bridge {name} in {}", self.name()))?;
        ports.iter().try_for_each(|port| self.enslave(port, name))
    }

    /// Makes `port` a port of `bridge`.
    ///
    /// # Errors
    /// When either does not exist.
    pub fn enslave(&self, port: &str, bridge: &str) -> Result<()> {
        self.change(port, async |handle, index| {
            let bridge = link_index(&handle, bridge).await?;
            set(&handle, LinkUnspec::new_with_index(index).controller(bridge).up().build()).await
        })
    }

    /// Sets an interface up.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn link_up(&self, name: &str) -> Result<()> {
        self.change(name, async |handle, index| {
            set(&handle, LinkUnspec::new_with_index(index).up().build()).await
        })
    }

    /// Sets an interface down, as if its cable were pulled.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn link_down(&self, name: &str) -> Result<()> {
        self.change(name, async |handle, index| {
            set(&handle, LinkUnspec::new_with_index(index).down().build()).await
        })
    }

    /// Sets the largest packet, in octets, that an interface takes.
    ///
    /// # Errors
    /// When there is no such interface, or it refuses that size.
    pub fn set_mtu(&self, name: &str, mtu: u32) -> Result<()> {
        self.change(name, async |handle, index| {
            set(&handle, LinkUnspec::new_with_index(index).mtu(mtu).build()).await
        })
    }

    /// Removes an interface; the other end of a pair goes with it.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn delete_link(&self, name: &str) -> Result<()> {
        self.change(name, async |handle, index| Ok(handle.link().del(index).execute().await?))
    }

    /// Gives an interface an address that is usable at once.
    ///
    /// # Errors
    /// When there is no such interface or the address is there already.
    pub fn add_address(&self, link: &str, address: IpNet) -> Result<()> {
        self.change(link, async |handle, index| {
            let mut request = handle.address().add(index, address.addr(), address.prefix_len());
            if address.addr().is_ipv6() {
                let message = request.message_mut();
                message.header.flags |= AddressHeaderFlags::Nodad;
                message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            }
            Ok(request.execute().await?)
        })
        .with_context(|| format!("address {address}"))
    }

    /// Takes an address away from whichever interface has it.
    ///
    /// # Errors
    /// When none has.
    pub fn delete_address(&self, address: IpAddr) -> Result<()> {
        self.netlink(async |handle| {
            let all: Vec<AddressMessage> = handle.address().get().execute().try_collect().await?;
            let wanted = AddressAttribute::Address(address);
            let found = all.into_iter().find(|message| message.attributes.contains(&wanted));
            Ok(handle.address().del(found.context("no interface has it")?).execute().await?)
        })
        .with_context(|| format!("removing address {address} in {}", self.name()))
    }

    /// Routes `prefix` by the router `via`; a prefix of length zero is the default route.
    ///
    /// # Errors
    /// When `via` is on no link of ours, of the other family, or the prefix has a route.
    pub fn add_route(&self, prefix: IpNet, via: IpAddr) -> Result<()> {
        self.netlink(async |handle| {
            let route = RouteMessageBuilder::<IpAddr>::new()
                .destination_prefix(prefix.addr(), prefix.prefix_len())?;
            Ok(handle.route().add(route.gateway(via)?.build()).execute().await?)
        })
        .with_context(|| format!("route {prefix} via {via} in {}", self.name()))
    }

    /// Default route by `via`, in the family of `via`.
    ///
    /// # Errors
    /// As [`Netns::add_route`].
    pub fn add_default_route(&self, via: IpAddr) -> Result<()> {
        let any: IpAddr =
            if via.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        self.add_route(IpNet::new_assert(any, 0), via)
    }

    /// What the kernel would do with a packet to `destination`.
    ///
    /// # Errors
    /// When it has no route to it.
    pub fn route_to(&self, destination: IpAddr) -> Result<RouteAnswer> {
        self.netlink(async |handle| {
            let full = if destination.is_ipv4() { 32 } else { 128 };
            let query = RouteMessageBuilder::<IpAddr>::new().destination_prefix(destination, full)?.build();
            let found = handle.route().get(query).execute().try_next().await?.context("no answer")?;
            answer(&handle, &found).await
        })
        .with_context(|| format!("route to {destination} in {}", self.name()))
    }

    /// How many routes of both families bear this protocol number.
    ///
    /// # Errors
    /// When netlink fails.
    pub fn count_routes(&self, protocol: u8) -> Result<usize> {
        self.netlink(async |handle| {
            let mut count = 0;
            for query in [
                RouteMessageBuilder::<Ipv4Addr>::new().build(),
                RouteMessageBuilder::<Ipv6Addr>::new().build(),
            ] {
                let routes: Vec<RouteMessage> = handle.route().get(query).execute().try_collect().await?;
                count += routes.iter().filter(|route| u8::from(route.header.protocol) == protocol).count();
            }
            Ok(count)
        })
    }

    /// Names of all interfaces.
    ///
    /// # Errors
    /// When netlink fails.
    pub fn links(&self) -> Result<Vec<String>> {
        self.netlink(async |handle| {
            let links: Vec<LinkMessage> = handle.link().get().execute().try_collect().await?;
            Ok(links.iter().filter_map(name_of).collect())
        })
    }

    /// Writes a kernel setting of this namespace, such as `net.ipv4.ip_forward`.
    ///
    /// # Errors
    /// When there is no such setting or it can't be written.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        self.run(|| std::fs::write(&path, value))?
            .with_context(|| format!("setting {key} to {value} in {}", self.name()))
    }

    /// Makes this namespace a router of both families, which also takes packets that come back by another way.
    ///
    /// # Errors
    /// When a setting can't be written.
    pub fn forward(&self) -> Result<()> {
        self.sysctl("net.ipv4.ip_forward", "1")?;
        self.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        for which in ["all", "default"] {
            self.sysctl(&format!("net.ipv4.conf.{which}.rp_filter"), "0")?;
        }
        Ok(())
    }

    fn change(&self, link: &str, work: impl AsyncFnOnce(Handle, u32) -> Result<()> + Send) -> Result<()> {
        self.netlink(async |handle| {
            let index = link_index(&handle, link).await?;
            work(handle, index).await
        })
        .with_context(|| format!("interface {link} in {}", self.name()))
    }
}

async fn set(handle: &Handle, message: LinkMessage) -> Result<()> {
    Ok(handle.link().set(message).execute().await?)
}

async fn link_index(handle: &Handle, name: &str) -> Result<u32> {
    let found = handle.link().get().match_name(name.to_owned()).execute().try_next().await;
    let message = found.with_context(|| format!("no interface {name}"))?;
    Ok(message.ok_or_else(|| anyhow!("no interface {name}"))?.header.index)
}

fn name_of(link: &LinkMessage) -> Option<String> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })
}

async fn answer(handle: &Handle, route: &RouteMessage) -> Result<RouteAnswer> {
    let (mut gateway, mut index, mut source) = (None, None, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::Oif(oif) => index = Some(*oif),
            RouteAttribute::PrefSource(address) => source = ip(address),
            _ => {}
        }
    }
    let index = index.context("the kernel names no interface")?;
    Ok(RouteAnswer { gateway, interface: link_name(handle, index).await?, source })
}

/// The name of the interface with this number.
pub(crate) async fn link_name(handle: &Handle, index: u32) -> Result<String> {
    let link = handle.link().get().match_index(index).execute().try_next().await?;
    link.as_ref().and_then(name_of).context("the interface has gone")
}
