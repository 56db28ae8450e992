//! Who is where: names, addresses and numbers of the demo's fabric, from documentation and private ranges only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The fabric.
pub(super) const TRUST_DOMAIN: &str = "fabric.example";
/// Port of the tunnels.
pub(super) const TUNNEL_PORT: u16 = 51820;
/// The site whose gateway is killed.
pub(super) const AWS: &Site = &SITES[0];
/// The site that serves it.
pub(super) const AZURE: &Site = &SITES[1];

/// One site; its addresses follow from its number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) name: &'static str,
    /// Begins the names of its machines.
    pub(super) short: &'static str,
    /// Second octet of its prefix.
    number: u8,
    pub(super) asn: u32,
    /// The site's own router, which only this site has: it speaks BGP to the gateways.
    pub(super) router_asn: Option<u32>,
    pub(super) gateways: &'static [Gateway],
}

/// One gateway; its overlay addresses follow from its number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gateway {
    pub(super) name: &'static str,
    number: u8,
    wan: Ipv4Addr,
}

/// The fabric's sites.
pub(super) const SITES: [Site; 3] = [
    Site {
        name: "aws-use1",
        short: "aws",
        number: 10,
        asn: 4_200_000_010,
        router_asn: Some(4_200_000_011),
        gateways: &[
            Gateway { name: "aws-gw1", number: 1, wan: Ipv4Addr::new(203, 0, 113, 0) },
            Gateway { name: "aws-gw2", number: 2, wan: Ipv4Addr::new(203, 0, 113, 4) },
        ],
    },
    Site {
        name: "azure-eastus",
        short: "azure",
        number: 20,
        asn: 4_200_000_020,
        router_asn: None,
        gateways: &[Gateway { name: "azure-gw1", number: 3, wan: Ipv4Addr::new(198, 51, 100, 0) }],
    },
    Site {
        name: "onprem-par",
        short: "onprem",
        number: 30,
        asn: 4_200_000_030,
        router_asn: None,
        gateways: &[Gateway { name: "onprem-gw1", number: 4, wan: Ipv4Addr::new(192, 0, 2, 0) }],
    },
];

impl Site {
    /// Name of the workload host.
    pub(super) fn host(&self) -> String {
        format!("{}-host", self.short)
    }

    /// What the site originates.
    pub(super) fn prefixes(&self) -> [IpNet; 2] {
        self.net([16, 48], 0)
    }

    /// A machine's addresses, with the prefix lengths of the link that all machines of the site share.
    fn lan(&self, machine: u8) -> [IpNet; 2] {
        self.net([24, 64], machine)
    }

    fn net(&self, [v4, v6]: [u8; 2], machine: u8) -> [IpNet; 2] {
        // Hexadecimal digits that read like the decimal number: fd10:10::/48 beside 10.10.0.0/16.
        let digits = u16::from(self.number / 10 * 16 + self.number % 10);
        let v6_address = Ipv6Addr::new(0xfd00 | digits, digits, 0, 0, 0, 0, 0, machine.into());
        [
            Ipv4Net::new_assert(Ipv4Addr::new(10, self.number, 0, machine), v4).into(),
            Ipv6Net::new_assert(v6_address, v6).into(),
        ]
    }

    /// The workload host's addresses.
    pub(super) fn host_lan(&self) -> [IpNet; 2] {
        self.lan(100)
    }

    /// The workload host's addresses, v4 then v6.
    pub(super) fn host_addresses(&self) -> [IpAddr; 2] {
        self.host_lan().map(|net| net.addr())
    }
}

impl Gateway {
    /// Its addresses towards the site's machines.
    pub(super) fn lan(&self, site: &Site) -> [IpNet; 2] {
        let place = site.gateways.iter().position(|gateway| gateway == self).unwrap_or_default();
        site.lan(u8::try_from(place + 1).unwrap_or(u8::MAX))
    }

    /// Its addresses inside the tunnels.
    pub(super) fn overlay(&self) -> [IpNet; 2] {
        [
            Ipv4Net::new_assert(Ipv4Addr::new(10, 99, 0, self.number), 24).into(),
            Ipv6Net::new_assert(Ipv6Addr::new(0xfd7a, 0, 0, 0, 0, 0, 0, self.number.into()), 64).into(),
        ]
    }

    /// Its link to the internet: (the gateway's addresses, the internet's addresses).
    pub(super) fn wan(&self) -> ([IpNet; 2], [IpNet; 2]) {
        (self.wan_end(2), self.wan_end(1))
    }

    fn wan_end(&self, end: u8) -> [IpNet; 2] {
        let [a, b, c, d] = self.wan.octets();
        [
            Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d + end), 30).into(),
            Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, self.number.into(), 0, 0, 0, 0, end.into()), 64)
                .into(),
        ]
    }

    /// The outer address by which `other` is reached: both families are used in the fabric.
    pub(super) fn outer_address(&self, other: &Self) -> IpAddr {
        let [v4, v6] = self.wan().0;
        if self.number + other.number > 6 { v6.addr() } else { v4.addr() }
    }
}

/// All gateways, each with its site.
pub(super) fn gateways() -> impl Iterator<Item = (&'static Site, &'static Gateway)> {
    SITES.iter().flat_map(|site| site.gateways.iter().map(move |gateway| (site, gateway)))
}

/// Gateways of the other sites.
pub(super) fn remote_gateways(of: &'static Site) -> impl Iterator<Item = (&'static Site, &'static Gateway)> {
    gateways().filter(move |(site, _)| site.name != of.name)
}

/// Every two sites, once.
pub(super) fn pairs() -> impl Iterator<Item = (&'static Site, &'static Site)> {
    (0..SITES.len()).flat_map(|a| (a + 1..SITES.len()).map(move |b| (&SITES[a], &SITES[b])))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn addresses_are_unique_and_inside_their_site() {
        let mut seen = BTreeSet::new();
        for (site, gateway) in gateways() {
            for (address, prefix) in gateway.lan(site).iter().zip(site.prefixes()) {
                assert!(prefix.contains(&address.addr()), "{address} {prefix}");
            }
            for net in gateway
                .lan(site)
                .iter()
                .chain(&gateway.overlay())
                .chain(&gateway.wan().0)
                .chain(&gateway.wan().1)
            {
                assert!(seen.insert(net.addr()), "{net} twice");
            }
        }
        for site in &SITES {
            assert!(site.host_addresses().iter().all(|address| seen.insert(*address)));
        }
        assert_eq!(SITES[0].prefixes().map(|p| p.to_string()), ["10.10.0.0/16", "fd10:10::/48"]);
        assert_eq!(SITES[0].host_lan().map(|p| p.to_string()), ["10.10.0.100/24", "fd10:10::64/64"]);
    }

    #[test]
    fn tunnels_use_both_outer_families_and_agree_on_it() {
        let mut families = BTreeSet::new();
        for (site, gateway) in gateways() {
            for (_, other) in remote_gateways(site) {
                assert_eq!(gateway.outer_address(other).is_ipv4(), other.outer_address(gateway).is_ipv4());
                families.insert(gateway.outer_address(other).is_ipv4());
            }
        }
        assert_eq!(families.len(), 2);
    }
}
