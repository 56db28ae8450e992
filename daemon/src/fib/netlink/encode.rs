//! Route messages as bytes: `struct nlmsghdr`, `struct rtmsg` and attributes, as rtnetlink(7) draws them. Written by hand because a
//! hundred thousand of them are a matter of milliseconds then; the tests hold them against another implementation.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::fib::plan::{Gateway, KernelRoute, Target};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_NOWHERE: u8 = 255;
const TYPE_UNSPECIFIED: u8 = 0;
const TYPE_UNICAST: u8 = 1;

const NLM_F_DUMP: u16 = 0x300;

/// Offset of `nlmsg_flags` in a message.
const FLAGS: usize = 6;

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// Install, provided that nothing has its place.
    Add(&'a KernelRoute),
    /// Install in the place of what is there.
    Replace(&'a KernelRoute),
    /// Remove; the kernel compares what the message names, the protocol above all.
    Remove(&'a KernelRoute),
}

impl Request<'_> {
    fn route(&self) -> &KernelRoute {
        let (Self::Add(route) | Self::Replace(route) | Self::Remove(route)) = self;
        route
    }

    fn kind_and_flags(&self) -> (u16, u16) {
        match self {
            Self::Add(_) => (RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL),
            Self::Replace(_) => (RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE),
            Self::Remove(_) => (RTM_DELROUTE, NLM_F_REQUEST),
        }
    }
}

/// What a dump tells of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    /// Interfaces.
    Links,
    /// Addresses of interfaces.
    Addresses,
    /// IPv4 or IPv6 routes of a table.
    Routes {
        /// Of IPv6, rather than IPv4.
        v6: bool,
        /// The table.
        table: u32,
    },
}

/// Appends a request to tell everything of a kind.
pub(super) fn ask(out: &mut Vec<u8>, question: Question, sequence: u32) {
    let start = out.len();
    let (kind, mut header) = match question {
        Question::Links => (RTM_GETLINK, vec![0; 16]),
        Question::Addresses => (RTM_GETADDR, vec![0; 8]),
        Question::Routes { .. } => (RTM_GETROUTE, vec![0; 12]),
    };
    push_start(out, kind, NLM_F_REQUEST | NLM_F_DUMP, sequence);
    if let Question::Routes { v6, .. } = question {
        header[0] = if v6 { AF_INET6 } else { AF_INET };
    }
    out.extend(header);
    if let Question::Routes { table, .. } = question {
        push_attribute(out, RTA_TABLE, &table.to_ne_bytes());
    }
    set_message_length(out, start);
}

/// Appends a message. The kernel answers it only if it refuses.
///
/// A route's scope is universe even without a router, so that the kernel never resolves another route's next hop through it: what is
/// inside the tunnel is found by the data plane's table, not by recursion.
pub(super) fn push(out: &mut Vec<u8>, request: Request<'_>, table: u32, sequence: u32) {
    let start = out.len();
    let (kind, flags) = request.kind_and_flags();
    let route = request.route();
    push_start(out, kind, flags, sequence);
    push_header(out, request, table);
    push_attribute(out, RTA_TABLE, &table.to_ne_bytes());
    push_address(out, RTA_DST, route.prefix.network());
    push_attribute(out, RTA_PRIORITY, &route.metric.to_ne_bytes());
    push_target(out, route);
    if let (Some(source), Request::Add(_) | Request::Replace(_)) = (route.source, request) {
        push_address(out, RTA_PREFSRC, source);
    }
    set_message_length(out, start);
}

/// Has the message that starts at `start` answered in any case.
pub(super) fn acknowledge(out: &mut [u8], start: usize) {
    out[start + FLAGS] |= NLM_F_ACK.to_ne_bytes()[0];
    out[start + FLAGS + 1] |= NLM_F_ACK.to_ne_bytes()[1];
}

/// `struct nlmsghdr`; the length follows.
fn push_start(out: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32) {
    out.extend([0; 4]);
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]);
}

fn set_message_length(out: &mut [u8], start: usize) {
    let length = u32::try_from(out.len() - start).expect("a route has at most 64 next hops");
    out[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

/// `struct rtmsg`.
fn push_header(out: &mut Vec<u8>, request: Request<'_>, table: u32) {
    let route = request.route();
    let family = if matches!(route.prefix, IpNet::V4(_)) { AF_INET } else { AF_INET6 };
    let (scope, kind) = match request {
        Request::Remove(_) => (SCOPE_NOWHERE, TYPE_UNSPECIFIED),
        Request::Add(_) | Request::Replace(_) => (SCOPE_UNIVERSE, TYPE_UNICAST),
    };
    // A number that does not fit is in its attribute.
    let table = u8::try_from(table).unwrap_or(0);
    out.extend([family, route.prefix.prefix_len(), 0, 0, table, route.protocol, scope, kind]);
    out.extend([0; 4]);
}

fn push_target(out: &mut Vec<u8>, route: &KernelRoute) {
    match &route.target {
        Target::Device(index) => push_attribute(out, RTA_OIF, &index.to_ne_bytes()),
        Target::Gateways(gateways) => match **gateways {
            [] => {}
            [one] => {
                if let Some(index) = one.interface {
                    push_attribute(out, RTA_OIF, &index.to_ne_bytes());
                }
                push_gateway(out, &route.prefix, one);
            }
            ref many => push_nested(out, RTA_MULTIPATH, |out| {
                many.iter().for_each(|one| push_next_hop(out, &route.prefix, *one));
            }),
        },
        Target::Other => {}
    }
}

/// `struct rtnexthop`, of the common weight.
fn push_next_hop(out: &mut Vec<u8>, prefix: &IpNet, gateway: Gateway) {
    let start = out.len();
    out.extend([0; 4]);
    out.extend(gateway.interface.unwrap_or(0).to_ne_bytes());
    push_gateway(out, prefix, gateway);
    set_length(out, start);
}

/// RTA_VIA carries the other family's address (an IPv4 prefix through an IPv6 router, RFC 8950).
fn push_gateway(out: &mut Vec<u8>, prefix: &IpNet, gateway: Gateway) {
    match (prefix, gateway.address) {
        (IpNet::V4(_), IpAddr::V6(address)) => push_nested(out, RTA_VIA, |out| {
            out.extend(u16::from(AF_INET6).to_ne_bytes());
            out.extend(address.octets());
        }),
        (_, address) => push_address(out, RTA_GATEWAY, address),
    }
}

fn push_address(out: &mut Vec<u8>, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => push_attribute(out, kind, &address.octets()),
        IpAddr::V6(address) => push_attribute(out, kind, &address.octets()),
    }
}

fn push_attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    push_nested(out, kind, |out| out.extend_from_slice(value));
}

fn push_nested(out: &mut Vec<u8>, kind: u16, value: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 2]);
    out.extend(kind.to_ne_bytes());
    value(out);
    set_length(out, start);
    // The next one starts at a multiple of four; what we write has no other lengths than these and 18 (RTA_VIA).
    out.resize(start + (out.len() - start).next_multiple_of(4), 0);
}

/// The first two bytes of an attribute or a next hop say how long it is.
fn set_length(out: &mut [u8], start: usize) {
    let length = u16::try_from(out.len() - start).expect("64 next hops of 32 bytes at most");
    out[start..start + 2].copy_from_slice(&length.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::RouteNetlinkMessage;
    use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};

    use super::*;
    use crate::fib::{
        netlink::read,
        plan::{METRIC, PROTOCOL},
    };

    fn route(prefix: &str, target: Target) -> KernelRoute {
        let prefix = prefix.parse().unwrap();
        KernelRoute { prefix, metric: METRIC, protocol: PROTOCOL, target, source: None }
    }

    fn gateways(addresses: &[&str]) -> Target {
        Target::Gateways(
            addresses.iter().map(|address| Gateway::from(address.parse::<IpAddr>().unwrap())).collect(),
        )
    }

    fn on_link(addresses: &[(&str, u32)]) -> Target {
        let gateway = |(address, interface): &(&str, u32)| Gateway {
            address: address.parse().unwrap(),
            interface: Some(*interface),
        };
        Target::Gateways(addresses.iter().map(gateway).collect())
    }

    fn routes() -> Vec<KernelRoute> {
        let with_source = KernelRoute {
            source: Some("10.99.0.1".parse().unwrap()),
            ..route("10.0.0.0/8", Target::Device(7))
        };
        vec![
            with_source,
            route("0.0.0.0/0", gateways(&["192.0.2.1"])),
            route("10.0.0.0/8", gateways(&["192.0.2.1", "192.0.2.2"])),
            route("10.0.0.0/8", gateways(&["2001:db8::1"])),
            route("10.0.0.0/8", gateways(&["192.0.2.1", "2001:db8::1"])),
            route("10.0.0.0/8", on_link(&[("fe80::1", 3)])),
            route("2001:db8::/32", Target::Device(7)),
            route("2001:db8::/32", on_link(&[("fe80::1", 3)])),
            route("2001:db8::/32", on_link(&[("fe80::1", 3), ("fe80::1", 4)])),
            route("::/0", gateways(&["2001:db8::1", "2001:db8::2"])),
        ]
    }

    fn parse(bytes: &[u8]) -> NetlinkMessage<RouteNetlinkMessage> {
        NetlinkMessage::deserialize(bytes).unwrap()
    }

    #[test]
    fn another_implementation_reads_what_was_meant() {
        for table in [1, 254, 255, 256, 70_000] {
            for route in routes() {
                let mut bytes = Vec::new();
                push(&mut bytes, Request::Add(&route), table, 9);
                let message = parse(&bytes);
                assert_eq!(message.header.sequence_number, 9);
                assert_eq!(usize::try_from(message.header.length).unwrap(), bytes.len());
                let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(inner)) = message.payload
                else {
                    panic!("not a new route")
                };
                assert_eq!(read::route(&inner, table), Some(route.clone()));
                assert_eq!(read::route(&inner, 2), None);
            }
        }
    }

    #[test]
    fn messages_follow_each_other_and_ask_for_what_they_should() {
        let all = routes();
        let mut bytes = Vec::new();
        let mut starts = Vec::new();
        for (number, route) in (0..).zip(&all) {
            starts.push(bytes.len());
            push(&mut bytes, Request::Remove(route), 254, number);
        }
        let last = *starts.last().unwrap();
        acknowledge(&mut bytes, last);
        for (number, (start, route)) in (0..).zip(starts.iter().zip(&all)) {
            let message = parse(&bytes[*start..]);
            let flags = NLM_F_REQUEST | if *start == last { NLM_F_ACK } else { 0 };
            assert_eq!((message.header.sequence_number, message.header.flags), (number, flags));
            let NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(inner)) = message.payload else {
                panic!("not a removal")
            };
            assert_eq!(u8::from(inner.header.protocol), PROTOCOL);
            assert_eq!(inner.header.destination_prefix_length, route.prefix.prefix_len());
            assert_eq!(u8::from(inner.header.scope), SCOPE_NOWHERE);
        }
        let mut replace = Vec::new();
        push(&mut replace, Request::Replace(&all[0]), 254, 0);
        assert_eq!(parse(&replace).header.flags, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE);
    }
}
