//! Kernel routes as rtnetlink messages, and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteProtocol, RouteScope,
        RouteType, RouteVia,
    },
};

use crate::fib::plan::{KernelRoute, Target};

/// The request for one family's routes of one table. The attribute counts where `table` does not fit the header.
pub(super) fn dump(family: AddressFamily, table: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.attributes.push(RouteAttribute::Table(table));
    message
}

/// The message that installs a route.
///
/// Its scope is universe even without a router, so that the kernel never resolves another route's next hop through it: what is
/// inside the tunnel is found by the data plane's table, not by recursion.
pub(super) fn install(route: &KernelRoute, table: u32) -> RouteMessage {
    let mut message = base(route, table);
    message.header.kind = RouteType::Unicast;
    message.header.scope = RouteScope::Universe;
    message.attributes.extend(target(route));
    message.attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(source.into())));
    message
}

/// The message that removes a route; the kernel compares what it names, the protocol above all.
pub(super) fn remove(route: &KernelRoute, table: u32) -> RouteMessage {
    let mut message = base(route, table);
    message.header.scope = RouteScope::NoWhere;
    message.attributes.extend(target(route));
    message
}

/// Reads a route of a dump. `None` for another table, for what is no forwarding route, and for routes that apply to some packets
/// only (by type of service or source prefix): neither do we install such, nor do they compete with ours.
pub(super) fn read(message: &RouteMessage, table: u32) -> Option<KernelRoute> {
    let header = &message.header;
    if table_of(message) != table || header.tos != 0 || header.source_prefix_length != 0 {
        return None;
    }
    let forwarding = [
        RouteType::Unicast,
        RouteType::BlackHole,
        RouteType::Unreachable,
        RouteType::Prohibit,
        RouteType::Throw,
    ];
    if !forwarding.contains(&header.kind) {
        return None;
    }
    let mut route = KernelRoute {
        prefix: IpNet::new(unspecified(header.address_family)?, header.destination_prefix_length).ok()?,
        metric: 0,
        protocol: header.protocol.into(),
        target: read_target(header, &message.attributes),
        source: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => {
                route.prefix = IpNet::new(ip(address)?, header.destination_prefix_length).ok()?;
            }
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            _ => {}
        }
    }
    Some(route)
}

fn base(route: &KernelRoute, table: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = match route.prefix {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    };
    message.header.destination_prefix_length = route.prefix.prefix_len();
    message.header.protocol = RouteProtocol::from(route.protocol);
    message.header.table = u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    message.attributes = vec![
        RouteAttribute::Table(table),
        RouteAttribute::Destination(route.prefix.network().into()),
        RouteAttribute::Priority(route.metric),
    ];
    message
}

fn target(route: &KernelRoute) -> Option<RouteAttribute> {
    match &route.target {
        Target::Device(index) => Some(RouteAttribute::Oif(*index)),
        Target::Gateways(gateways) => match gateways.as_slice() {
            [] => None,
            [one] => Some(gateway(&route.prefix, *one)),
            many => Some(RouteAttribute::MultiPath(
                many.iter().map(|one| next_hop(&route.prefix, *one)).collect(),
            )),
        },
        Target::Other => None,
    }
}

fn next_hop(prefix: &IpNet, address: IpAddr) -> RouteNextHop {
    let mut next_hop = RouteNextHop::default();
    next_hop.attributes.push(gateway(prefix, address));
    next_hop
}

/// RTA_VIA carries the other family's address (an IPv4 prefix through an IPv6 router, RFC 8950).
fn gateway(prefix: &IpNet, address: IpAddr) -> RouteAttribute {
    match (prefix, address) {
        (IpNet::V4(_), IpAddr::V6(_)) => RouteAttribute::Via(RouteVia::from(address)),
        _ => RouteAttribute::Gateway(address.into()),
    }
}

fn table_of(message: &RouteMessage) -> u32 {
    let wide = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    wide.unwrap_or(u32::from(message.header.table))
}

fn read_target(header: &RouteHeader, attributes: &[RouteAttribute]) -> Target {
    if header.kind != RouteType::Unicast {
        return Target::Other;
    }
    let mut device = None;
    let mut gateways = Vec::new();
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Encap(_) | RouteAttribute::NhId(_) => return Target::Other,
            RouteAttribute::MultiPath(next_hops) => match next_hops.iter().map(read_next_hop).collect() {
                Some(addresses) => gateways = addresses,
                None => return Target::Other,
            },
            other => gateways.extend(read_gateway(other)),
        }
    }
    gateways.sort();
    match (device, gateways.is_empty()) {
        (_, false) => Target::Gateways(gateways),
        (Some(index), true) => Target::Device(index),
        (None, true) => Target::Other,
    }
}

/// The router of one of several next hops, if it is as we would install it: by address, with the common weight.
fn read_next_hop(next_hop: &RouteNextHop) -> Option<IpAddr> {
    let encapsulated =
        next_hop.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::Encap(_)));
    if encapsulated || next_hop.hops != 0 {
        return None;
    }
    next_hop.attributes.iter().find_map(read_gateway)
}

fn read_gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some(IpAddr::V4(*address)),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

fn unspecified(family: AddressFamily) -> Option<IpAddr> {
    match family {
        AddressFamily::Inet => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        AddressFamily::Inet6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::plan::{METRIC, PROTOCOL};

    fn route(prefix: &str, target: Target) -> KernelRoute {
        KernelRoute {
            prefix: prefix.parse().unwrap(),
            metric: METRIC,
            protocol: PROTOCOL,
            target,
            source: None,
        }
    }

    fn gateways(addresses: &[&str]) -> Target {
        Target::Gateways(addresses.iter().map(|address| address.parse().unwrap()).collect())
    }

    #[test]
    fn reads_back_what_it_installs() {
        let mut with_source = route("10.0.0.0/8", Target::Device(7));
        with_source.source = Some("10.99.0.1".parse().unwrap());
        let routes = [
            with_source,
            route("0.0.0.0/0", gateways(&["192.0.2.1"])),
            route("10.0.0.0/8", gateways(&["192.0.2.1", "192.0.2.2"])),
            route("10.0.0.0/8", gateways(&["2001:db8::1"])),
            route("10.0.0.0/8", gateways(&["192.0.2.1", "2001:db8::1"])),
            route("2001:db8::/32", Target::Device(7)),
            route("::/0", gateways(&["2001:db8::1", "2001:db8::2"])),
        ];
        for table in [1, 254, 255, 256, 70_000] {
            for route in &routes {
                assert_eq!(read(&install(route, table), table).as_ref(), Some(route));
                assert_eq!(read(&install(route, table), 2), None);
            }
        }
    }

    #[test]
    fn what_we_would_not_install_is_told_apart() {
        let mut blackhole = install(&route("10.0.0.0/8", Target::Device(7)), 254);
        blackhole.header.kind = RouteType::BlackHole;
        assert_eq!(read(&blackhole, 254).unwrap().target, Target::Other);

        let mut weighted = install(&route("10.0.0.0/8", gateways(&["192.0.2.1", "192.0.2.2"])), 254);
        for attribute in &mut weighted.attributes {
            if let RouteAttribute::MultiPath(next_hops) = attribute {
                next_hops[0].hops = 9;
            }
        }
        assert_eq!(read(&weighted, 254).unwrap().target, Target::Other);

        let mut local = install(&route("10.0.0.1/32", Target::Device(7)), 254);
        local.header.kind = RouteType::Local;
        assert_eq!(read(&local, 254), None);
    }
}
