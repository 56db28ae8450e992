//! Addresses of our interfaces: what "next hop self" means on a session, and what lies around us, which next hops are judged by.
//!
//! "Next hop self" is our address on the session, and for the other family one of the same interface.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use isthmus_bgp::{
    Family,
    rib::{NextHops, Topology},
};
use nix::{
    ifaddrs::{InterfaceAddress, getifaddrs},
    sys::socket::SockaddrStorage,
};

use crate::routes::Statics;

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    interface: String,
    address: IpAddr,
    /// What is directly connected by it; on a point-to-point link that is the far end.
    subnet: Option<IpNet>,
}

/// Every address of every interface.
///
/// # Errors
/// What the kernel said.
pub(super) fn interface_addresses() -> nix::Result<Vec<Entry>> {
    Ok(getifaddrs()?.filter_map(Entry::new).collect())
}

/// Own addresses for a session whose local end is `local`, on this interface if that is known: a link-local address may be on several.
pub(super) fn own(local: IpAddr, interface: Option<&str>) -> NextHops {
    let all = interface_addresses().inspect_err(|error| tracing::warn!(%error, "cannot list own addresses"));
    choose(local, interface, &all.unwrap_or_default())
}

/// What lies around a node with these addresses and tunnel peers. Link-local addresses are no next hops anyway, and come and go with
/// every container on the host.
pub(super) fn topology(entries: &[Entry], statics: &Statics) -> Topology {
    let lasting = || entries.iter().filter(|entry| usable(entry.address));
    let mut links = BTreeMap::<_, Vec<IpNet>>::new();
    for entry in lasting() {
        links.entry(&entry.interface).or_default().extend(entry.subnet);
    }
    Topology::new(lasting().map(|entry| entry.address), links.into_values(), statics.iter().cloned())
}

/// Why there is none for a family, for a person.
pub(super) fn missing(family: Family, local: IpAddr) -> String {
    format!(
        "{family} is not announced: the interface with our address {local} has no usable address of that family"
    )
}

impl Entry {
    fn new(found: InterfaceAddress) -> Option<Self> {
        let address = ip(&found.address?)?;
        let end = found.destination.as_ref().and_then(ip).unwrap_or(address);
        let mask = found.netmask.as_ref().and_then(ip);
        let subnet = mask.and_then(|mask| IpNet::with_netmask(end, mask).ok()).map(|net| net.trunc());
        Some(Self { interface: found.interface_name, address, subnet })
    }
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

fn choose(local: IpAddr, interface: Option<&str>, entries: &[Entry]) -> NextHops {
    let holder = || entries.iter().find(|entry| entry.address == local).map(|entry| entry.interface.as_str());
    let interface = interface.or_else(holder);
    let there = || {
        let of_interface = entries.iter().filter(|entry| Some(entry.interface.as_str()) == interface);
        let addresses = of_interface.map(|entry| entry.address);
        addresses.filter(|address| usable(*address) && !address.is_loopback())
    };
    let first_v4 = || there().find_map(as_v4);
    let first_v6 = || there().find_map(as_v6);
    let local = Some(local).filter(|address| usable(*address));
    let of_interface = entries.iter().filter(|entry| Some(entry.interface.as_str()) == interface);
    let link_local =
        of_interface.filter_map(|entry| as_v6(entry.address)).find(Ipv6Addr::is_unicast_link_local);
    NextHops {
        v4: local.and_then(as_v4).or_else(first_v4),
        v6: local.and_then(as_v6).or_else(first_v6),
        link_local,
    }
}

fn as_v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    }
}

fn as_v6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(v6) => Some(v6),
        IpAddr::V4(_) => None,
    }
}

fn usable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(of: &[(&str, &str)]) -> Vec<Entry> {
        let entry = |(interface, address): &(&str, &str)| {
            let net: IpNet = address.parse().unwrap();
            Entry { interface: (*interface).into(), address: net.addr(), subnet: Some(net.trunc()) }
        };
        of.iter().map(entry).collect()
    }

    #[test]
    fn the_other_family_comes_from_the_same_interface() {
        let addresses = entries(&[
            ("lo", "127.0.0.1/8"),
            ("eth0", "192.0.2.7/24"),
            ("eth0", "2001:db8::7/64"),
            ("isthmus0", "10.99.0.1/24"),
            ("isthmus0", "fe80::1/64"),
            ("isthmus0", "fd7a::1/64"),
            ("isthmus0", "fd7a::2/64"),
            ("wg9", "10.98.0.1/24"),
            ("eth0", "fe80::1/64"),
            ("vti0", "169.254.21.2/30"),
            ("vti0", "10.97.0.1/24"),
        ]);
        let own = |local: &str| {
            let (local, interface) =
                local.split_once('%').map_or((local, None), |(local, on)| (local, Some(on)));
            let hops = choose(local.parse().unwrap(), interface, &addresses);
            (
                hops.v4.map(|a| a.to_string()).unwrap_or_default(),
                hops.v6.map(|a| a.to_string()).unwrap_or_default(),
            )
        };
        let pair = |v4: &str, v6: &str| (v4.to_string(), v6.to_string());
        assert_eq!(own("10.99.0.1"), pair("10.99.0.1", "fd7a::1"));
        assert_eq!(own("fd7a::2"), pair("10.99.0.1", "fd7a::2"));
        assert_eq!(own("fe80::1%isthmus0"), pair("10.99.0.1", "fd7a::1"));
        assert_eq!(own("fe80::1%eth0"), pair("192.0.2.7", "2001:db8::7"), "the same on another interface");
        assert_eq!(own("10.98.0.1"), pair("10.98.0.1", ""));
        assert_eq!(own("203.0.113.1"), pair("203.0.113.1", ""), "an address that is on no interface");
    }

    #[test]
    fn loopback_is_found() {
        assert_eq!(own("127.0.0.1".parse().unwrap(), None).v4, Some(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn what_lies_around() {
        let statics: Statics = [("10.99.0.2/32".parse().unwrap(), "azure".into())].into();
        let found = topology(
            &entries(&[
                ("eth0", "192.0.2.7/24"),
                ("lan", "10.10.0.1/24"),
                ("eth0", "2001:db8::7/64"),
                ("eth0", "fe80::7/64"),
            ]),
            &statics,
        );
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        let expected = Topology::new(
            ["10.10.0.1", "192.0.2.7", "2001:db8::7"].map(|address| address.parse().unwrap()),
            [nets(&["192.0.2.0/24", "2001:db8::/64"]), nets(&["10.10.0.0/24"])],
            statics.iter().cloned(),
        );
        assert_eq!(found, expected);
    }

    #[test]
    fn the_kernel_knows_loopback_and_its_subnet() {
        let all = interface_addresses().unwrap();
        let expected = entries(&[("lo", "127.0.0.1/8")]).remove(0);
        assert!(all.contains(&expected), "{all:?}");
    }
}
