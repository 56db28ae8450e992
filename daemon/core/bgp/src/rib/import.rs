//! Which received paths may be used (RFC 4271 section 9.1.2).

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{NextHopRule, NextHops};
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
    /// Its next hop is an address of this node.
    OwnNextHop,
    /// Its session leads to a tunnel peer, and its next hop is not behind that peer.
    OtherPeerNextHop,
    /// Its session leads over the tunnel, and its next hop does not.
    OutsideNextHop,
    /// Its session led over the tunnel, and no tunnel peer has the neighbor's address any more.
    LostTunnel,
    /// Its session is outside the tunnel, and its next hop is behind a tunnel peer.
    TunnelNextHop,
    /// Its next hop is on no subnet that we share with the neighbor (RFC 4271 section 6.3).
    OffLinkNextHop,
    /// Its next hop is link-local, and no interface goes with it.
    LinkLocalNextHop,
    /// Its next hop is an IPv4 address written as an IPv6 one.
    MappedNextHop,
    /// Its next hop is a loopback address.
    LoopbackNextHop,
    /// Its prefix is not one that packets are routed by: multicast, link-local, loopback, reserved, IPv4 written as IPv6.
    Prefix,
}

impl Ineligible {
    /// True if the next hop is what is wrong: a neighbor that is set up right sends no such path.
    pub fn is_next_hop(self) -> bool {
        match self {
            Self::Policy | Self::OwnAsn | Self::Reflected | Self::Prefix => false,
            Self::OwnNextHop
            | Self::OtherPeerNextHop
            | Self::OutsideNextHop
            | Self::LostTunnel
            | Self::TunnelNextHop
            | Self::OffLinkNextHop
            | Self::LinkLocalNextHop
            | Self::MappedNextHop
            | Self::LoopbackNextHop => true,
        }
    }
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Policy => "refused by the import policy",
            Self::OwnAsn => "our own AS is on its AS_PATH",
            Self::Reflected => "it started here and was reflected back",
            Self::OwnNextHop => "its next hop is an address of this node",
            Self::OtherPeerNextHop => "its next hop is not behind the tunnel peer that the session leads to",
            Self::OutsideNextHop => {
                "its next hop is behind no tunnel peer, but the session leads over the tunnel"
            }
            Self::LostTunnel => "no tunnel peer has the neighbor's address any more",
            Self::TunnelNextHop => {
                "its next hop is behind a tunnel peer, but the session is outside the tunnel"
            }
            Self::OffLinkNextHop => "its next hop is on no subnet that we share with the neighbor",
            Self::LinkLocalNextHop => "its next hop is link-local",
            Self::MappedNextHop => "its next hop is an IPv4 address written as IPv6",
            Self::LoopbackNextHop => "its next hop is a loopback address",
            Self::Prefix => {
                "its prefix is multicast, link-local, loopback, reserved or an IPv4 one written as IPv6"
            }
        })
    }
}

/// What a peer's paths are judged by.
#[derive(Clone, Debug)]
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
    pub policy: Arc<Policy>,
    /// Where the session leads, and which next hops are usable because of that.
    pub next_hops: NextHopRule,
}

impl ImportRules {
    /// `None`: the path may be used.
    pub fn judge(&self, prefix: &IpNet, attributes: &Attributes) -> Option<Ineligible> {
        let next_hop = attributes.next_hop;
        let reflected = attributes.rare().originator_id == Some(self.router_id)
            || attributes.rare().cluster_list.contains(&self.router_id);
        let found = [
            (!is_routable(prefix), Ineligible::Prefix),
            (attributes.as_path.contains(self.local_asn), Ineligible::OwnAsn),
            (reflected, Ineligible::Reflected),
            (self.policy.rules().is_empty(), Ineligible::Policy),
            (self.is_own(next_hop), Ineligible::OwnNextHop),
            (is_link_local(next_hop), Ineligible::LinkLocalNextHop),
            (next_hop.to_canonical() != next_hop, Ineligible::MappedNextHop),
            (next_hop.is_loopback() && !self.peer.is_loopback(), Ineligible::LoopbackNextHop),
        ];
        let found = found.into_iter().find(|(applies, _)| *applies).map(|(_, why)| why);
        found.or_else(|| self.next_hops.judge(next_hop))
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

/// Prefixes inside these are never routed by (RFC 6890, RFC 4291). The default routes contain them and are fine.
const MARTIANS: [IpNet; 9] = [
    // This network, loopback, link-local; multicast and what is reserved above it.
    v4([0, 0, 0, 0], 8),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([224, 0, 0, 0], 3),
    // Unspecified, loopback, IPv4 written as IPv6, link-local, multicast.
    v6([0, 0, 0, 0, 0, 0, 0, 0], 128),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128),
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
];

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length))
}

fn is_routable(prefix: &IpNet) -> bool {
    !MARTIANS.iter().any(|martian| martian.contains(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{rib::Topology, wire::AsPath};

    #[test]
    fn judgements() {
        let topology = Topology::new(
            [],
            [],
            [
                ("10.99.0.2/32".parse().unwrap(), "peer".into()),
                ("fd00::2/128".parse().unwrap(), "peer".into()),
            ],
        );
        let rules = ImportRules {
            local_asn: 65_001,
            router_id: Ipv4Addr::new(10, 0, 0, 1),
            own: NextHops { v4: Some(Ipv4Addr::new(10, 99, 0, 1)), v6: Some("fd00::1".parse().unwrap()) },
            peer: "10.99.0.2".parse().unwrap(),
            policy: Policy::all(),
            next_hops: NextHopRule::new(topology.into(), "10.99.0.2".parse().unwrap(), true, false),
        };
        let judge = |prefix: &str, next_hop: &str, change: fn(&mut Attributes)| {
            let mut attributes = Attributes::originated(next_hop.parse().unwrap());
            attributes.as_path = AsPath::new(vec![65_002]);
            change(&mut attributes);
            rules.judge(&prefix.parse().unwrap(), &attributes)
        };
        let same: fn(&mut Attributes) = |_| {};
        assert_eq!(judge("10.20.0.0/16", "10.99.0.2", same), None);
        for prefix in
            ["0.0.0.0/0", "126.0.0.0/7", "169.0.0.0/8", "223.255.255.0/24", "::/0", "::/64", "::fffe:0:0/96"]
        {
            assert_eq!(judge(prefix, "10.99.0.2", same), None, "{prefix}");
        }
        assert_eq!(judge("2001:db8::/32", "fd00::2", same), None);
        assert_eq!(judge("10.20.0.0/16", "10.99.0.3", same), Some(Ineligible::OtherPeerNextHop));
        assert_eq!(judge("10.20.0.0/16", "10.99.0.1", same), Some(Ineligible::OwnNextHop));
        assert_eq!(judge("2001:db8::/32", "fd00::1", same), Some(Ineligible::OwnNextHop));
        assert_eq!(judge("2001:db8::/32", "fe80::1", same), Some(Ineligible::LinkLocalNextHop));
        assert_eq!(judge("2001:db8::/32", "::ffff:10.99.0.2", same), Some(Ineligible::MappedNextHop));
        assert_eq!(judge("10.20.0.0/16", "127.0.0.1", same), Some(Ineligible::LoopbackNextHop));
        for prefix in [
            "127.0.0.0/8",
            "127.1.2.3/32",
            "0.0.0.0/32",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "255.255.255.255/32",
            "::/128",
            "::ffff:0:0/96",
            "::ffff:10.20.0.0/112",
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
        let reflected = judge("10.20.0.0/16", "10.99.0.2", |a| {
            a.change_rare(|r| r.originator_id = Some(Ipv4Addr::new(10, 0, 0, 1)))
        });
        assert_eq!(reflected, Some(Ineligible::Reflected));
        let none = ImportRules { policy: Policy::none(), ..rules };
        let attributes = Attributes::originated("10.99.0.2".parse().unwrap());
        assert_eq!(none.judge(&"10.20.0.0/16".parse().unwrap(), &attributes), Some(Ineligible::Policy));
    }
}
