//! What "next hop self" means on a session: our address there, and for the other family one of the same interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use isthmus_bgp::{Family, rib::NextHops};
use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};

/// Own addresses for a session whose local end is `local`.
pub(super) fn own(local: IpAddr) -> NextHops {
    choose(local, &interface_addresses())
}

/// Why there is none for a family, for a person.
pub(super) fn missing(family: Family, local: IpAddr) -> String {
    format!(
        "{family} is not announced: the interface with our address {local} has no usable address of that family"
    )
}

fn interface_addresses() -> Vec<(String, IpAddr)> {
    let all = getifaddrs().inspect_err(|error| tracing::warn!(%error, "cannot list interface addresses"));
    let all = all.into_iter().flatten();
    all.filter_map(|entry| Some((entry.interface_name, ip(&entry.address?)?))).collect()
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

fn choose(local: IpAddr, addresses: &[(String, IpAddr)]) -> NextHops {
    let interface = addresses.iter().find(|(_, address)| *address == local).map(|(name, _)| name);
    let there = || {
        let of_interface = addresses.iter().filter(|(name, _)| Some(name) == interface);
        of_interface.map(|(_, address)| *address).filter(|address| usable(*address))
    };
    let first_v4 = || there().find_map(as_v4);
    let first_v6 = || there().find_map(as_v6);
    let local = Some(local).filter(|address| usable(*address));
    NextHops { v4: local.and_then(as_v4).or_else(first_v4), v6: local.and_then(as_v6).or_else(first_v6) }
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

    #[test]
    fn the_other_family_comes_from_the_same_interface() {
        let addresses: Vec<(String, IpAddr)> = [
            ("lo", "127.0.0.1"),
            ("eth0", "192.0.2.7"),
            ("eth0", "2001:db8::7"),
            ("isthmus0", "10.99.0.1"),
            ("isthmus0", "fe80::1"),
            ("isthmus0", "fd7a::1"),
            ("isthmus0", "fd7a::2"),
            ("wg9", "10.98.0.1"),
            ("vti0", "169.254.21.2"),
            ("vti0", "10.97.0.1"),
        ]
        .into_iter()
        .map(|(name, address)| (name.to_string(), address.parse().unwrap()))
        .collect();
        let own = |local: &str| {
            let hops = choose(local.parse().unwrap(), &addresses);
            (
                hops.v4.map(|a| a.to_string()).unwrap_or_default(),
                hops.v6.map(|a| a.to_string()).unwrap_or_default(),
            )
        };
        let pair = |v4: &str, v6: &str| (v4.to_string(), v6.to_string());
        assert_eq!(own("10.99.0.1"), pair("10.99.0.1", "fd7a::1"));
        assert_eq!(own("fd7a::2"), pair("10.99.0.1", "fd7a::2"));
        assert_eq!(own("fe80::1"), pair("10.99.0.1", "fd7a::1"));
        assert_eq!(own("10.98.0.1"), pair("10.98.0.1", ""));
        assert_eq!(own("203.0.113.1"), pair("203.0.113.1", ""), "an address that is on no interface");
    }

    #[test]
    fn loopback_is_found() {
        assert_eq!(own("127.0.0.1".parse().unwrap()).v4, Some(Ipv4Addr::LOCALHOST));
    }
}
