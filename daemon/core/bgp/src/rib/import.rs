//! Which received paths may be used (RFC 4271 section 9.1.2).

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use ipnet::IpNet;

use super::NextHops;
use crate::{Policy, wire::Attributes};

/// Why a path is not used, whatever the others are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// The import policy says so; without one an external peer's routes are not used (RFC 8212).
    Policy,
    /// Our AS is on its path: it has been here.
    OwnAsn,
    /// Its ORIGINATOR_ID or CLUSTER_LIST names us (RFC 4456 section 8).
    Reflected,
    /// Its next hop is our own address.
    OwnNextHop,
    /// Its next hop is link-local, and no interface goes with it.
    LinkLocalNextHop,
    /// Its next hop is an IPv4 address written as an IPv6 one.
    MappedNextHop,
    /// Its next hop is a loopback address.
    LoopbackNextHop,
    /// Its prefix is not one that packets are routed by: multicast, link-local, loopback.
    Prefix,
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Policy => "refused by the import policy",
            Self::OwnAsn => "our own AS is on its AS_PATH",
            Self::Reflected => "it started here and was reflected back",
            Self::OwnNextHop => "its next hop is our own address",
            Self::LinkLocalNextHop => "its next hop is link-local",
            Self::MappedNextHop => "its next hop is an IPv4 address written as IPv6",
            Self::LoopbackNextHop => "its next hop is a loopback address",
            Self::Prefix => "its prefix is multicast, link-local or loopback",
        })
    }
}

/// What a peer's paths are judged by.
#[derive(Clone, Copy, Debug)]
pub struct ImportRules {
    /// Own AS number.
    pub local_asn: u32,
    /// Own BGP identifier.
    pub router_id: Ipv4Addr,
    /// Own addresses on the session.
    pub own: NextHops,
    /// The peer's address.
    pub peer: IpAddr,
    /// The peer's import policy.
    pub policy: Policy,
}

impl ImportRules {
    /// `None`: the path may be used.
    pub fn judge(&self, prefix: &IpNet, attributes: &Attributes) -> Option<Ineligible> {
        let next_hop = attributes.next_hop;
        let reflected = attributes.originator_id == Some(self.router_id)
            || attributes.cluster_list.contains(&self.router_id);
        let found = [
            (!is_routable(prefix), Ineligible::Prefix),
            (attributes.as_path.contains(self.local_asn), Ineligible::OwnAsn),
            (reflected, Ineligible::Reflected),
            (self.is_own(next_hop), Ineligible::OwnNextHop),
            (is_link_local(next_hop), Ineligible::LinkLocalNextHop),
            (next_hop.to_canonical() != next_hop, Ineligible::MappedNextHop),
            (next_hop.is_loopback() && !self.peer.is_loopback(), Ineligible::LoopbackNextHop),
            (self.policy == Policy::None, Ineligible::Policy),
        ];
        found.into_iter().find(|(applies, _)| *applies).map(|(_, why)| why)
    }

    fn is_own(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.own.v4 == Some(v4),
            IpAddr::V6(v6) => self.own.v6 == Some(v6),
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn is_routable(prefix: &IpNet) -> bool {
    let address = prefix.network();
    let loopback = address.is_loopback() && prefix.prefix_len() >= 8;
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() && prefix.prefix_len() >= 16,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let multicast = match prefix {
        IpNet::V4(net) => net.addr().octets()[0] >= 224,
        IpNet::V6(net) => net.addr().is_multicast(),
    };
    !(loopback || link_local || multicast)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::AsPath;

    #[test]
    fn judgements() {
        let rules = ImportRules {
            local_asn: 65_001,
            router_id: Ipv4Addr::new(10, 0, 0, 1),
            own: NextHops { v4: Some(Ipv4Addr::new(10, 99, 0, 1)), v6: Some("fd00::1".parse().unwrap()) },
            peer: "10.99.0.2".parse().unwrap(),
            policy: Policy::All,
        };
        let judge = |prefix: &str, next_hop: &str, change: fn(&mut Attributes)| {
            let mut attributes = Attributes::originated(next_hop.parse().unwrap());
            attributes.as_path = AsPath::new(vec![65_002]);
            change(&mut attributes);
            rules.judge(&prefix.parse().unwrap(), &attributes)
        };
        let same: fn(&mut Attributes) = |_| {};
        assert_eq!(judge("10.20.0.0/16", "10.99.0.2", same), None);
        assert_eq!(judge("0.0.0.0/0", "10.99.0.2", same), None);
        assert_eq!(judge("10.20.0.0/16", "10.99.0.1", same), Some(Ineligible::OwnNextHop));
        assert_eq!(judge("2001:db8::/32", "fd00::1", same), Some(Ineligible::OwnNextHop));
        assert_eq!(judge("2001:db8::/32", "fe80::1", same), Some(Ineligible::LinkLocalNextHop));
        assert_eq!(judge("2001:db8::/32", "::ffff:10.99.0.2", same), Some(Ineligible::MappedNextHop));
        assert_eq!(judge("10.20.0.0/16", "127.0.0.1", same), Some(Ineligible::LoopbackNextHop));
        for prefix in [
            "127.0.0.0/8",
            "224.0.0.0/4",
            "239.1.0.0/16",
            "ff00::/8",
            "fe80::/64",
            "::1/128",
            "169.254.1.0/24",
        ] {
            assert_eq!(judge(prefix, "10.99.0.2", same), Some(Ineligible::Prefix), "{prefix}");
        }
        let looped = judge("10.20.0.0/16", "10.99.0.2", |a| a.as_path = AsPath::new(vec![65_002, 65_001]));
        assert_eq!(looped, Some(Ineligible::OwnAsn));
        let reflected =
            judge("10.20.0.0/16", "10.99.0.2", |a| a.originator_id = Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(reflected, Some(Ineligible::Reflected));
        let none = ImportRules { policy: Policy::None, ..rules };
        let attributes = Attributes::originated("10.99.0.2".parse().unwrap());
        assert_eq!(none.judge(&"10.20.0.0/16".parse().unwrap(), &attributes), Some(Ineligible::Policy));
    }
}
