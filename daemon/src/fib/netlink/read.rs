//! The kernel's answers, reduced to what the plan compares.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteType, RouteVia},
};

use crate::fib::plan::{Gateway, KernelRoute, Target};

/// Reads a route of a dump. `None` for another table, for what is no forwarding route, and for routes that apply to some packets
/// only (by type of service or source prefix): neither do we install such, nor do they compete with ours.
pub(super) fn route(message: &RouteMessage, table: u32) -> Option<KernelRoute> {
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
    let device = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    let mut gateways = Vec::new();
    for attribute in attributes {
        match attribute {
            RouteAttribute::Encap(_) | RouteAttribute::NhId(_) => return Target::Other,
            RouteAttribute::MultiPath(next_hops) => match next_hops.iter().map(read_next_hop).collect() {
                Some(all) => gateways = all,
                None => return Target::Other,
            },
            other => gateways.extend(read_gateway(other).map(|address| gateway(address, device))),
        }
    }
    gateways.sort_unstable();
    match (device, gateways.is_empty()) {
        (_, false) => Target::Gateways(gateways.into()),
        (Some(index), true) => Target::Device(index),
        (None, true) => Target::Other,
    }
}

/// The router of one of several next hops, if it is as we would install it: by address, with the common weight.
fn read_next_hop(next_hop: &RouteNextHop) -> Option<Gateway> {
    let encapsulated =
        next_hop.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::Encap(_)));
    if encapsulated || next_hop.hops != 0 {
        return None;
    }
    let address = next_hop.attributes.iter().find_map(read_gateway)?;
    Some(gateway(address, Some(next_hop.interface_index)))
}

/// The interface counts where the address alone does not say it: we name it for no others, the kernel tells it for all.
fn gateway(address: IpAddr, interface: Option<u32>) -> Gateway {
    let scoped = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    Gateway { address, interface: interface.filter(|_| scoped) }
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

    fn message(attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = 8;
        message.header.table = 254;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Destination(RouteAddress::Inet([10, 0, 0, 0].into()))];
        message.attributes.extend(attributes);
        message
    }

    fn next_hop(address: [u8; 4], hops: u8) -> RouteNextHop {
        let mut next_hop = RouteNextHop::default();
        next_hop.hops = hops;
        next_hop.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet(address.into())));
        next_hop
    }

    #[test]
    fn what_we_would_not_install_is_told_apart() {
        let mut blackhole = message(vec![RouteAttribute::Oif(7)]);
        assert_eq!(route(&blackhole, 254).unwrap().target, Target::Device(7));
        blackhole.header.kind = RouteType::BlackHole;
        assert_eq!(route(&blackhole, 254).unwrap().target, Target::Other);

        let several = |weight| {
            let next_hops = vec![next_hop([192, 0, 2, 1], 0), next_hop([192, 0, 2, 2], weight)];
            route(&message(vec![RouteAttribute::MultiPath(next_hops)]), 254).unwrap().target
        };
        assert!(matches!(several(0), Target::Gateways(two) if two.len() == 2));
        assert_eq!(several(9), Target::Other);

        let mut local = message(vec![RouteAttribute::Oif(7)]);
        local.header.kind = RouteType::Local;
        assert_eq!(route(&local, 254), None);
    }
}
