//! Which received paths may be used, and what becomes of their attributes (RFC 4271 section 9.1.2).

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ipnet::IpNet;

use super::{Guards, Neighbor, NextHopRule, NextHops};
use crate::{
    Family,
    policy::{self, NextHopChange, Outcome, Policy, Trace},
    wire::{Attributes, Community, Role},
};

/// Why a path is not used, whatever the others are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// The import policy says so; without one an external peer's routes are not used (RFC 8212).
    Policy,
    /// Our AS is on its path: it has been here.
    OwnAsn,
    /// The first AS on its path is not the peer's.
    FirstAsn,
    /// Its ORIGINATOR_ID or CLUSTER_LIST names us (RFC 4456 section 8).
    Reflected,
    /// Its OTC attribute says that the peer must not send it to us (RFC 9234 section 5).
    Leaked,
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
    /// It is a default route, and the peer may not send one.
    Default,
    /// It would carry the session that it came from.
    CoversPeer,
    /// It would carry the packets of a tunnel, and leads into one.
    CoversEndpoint,
}

impl Ineligible {
    /// True if the next hop is what is wrong: a neighbor that is set up right sends no such path.
    pub fn is_next_hop(self) -> bool {
        match self {
            Self::Policy
            | Self::OwnAsn
            | Self::FirstAsn
            | Self::Reflected
            | Self::Leaked
            | Self::Prefix
            | Self::Default
            | Self::CoversPeer
            | Self::CoversEndpoint => false,
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
            Self::FirstAsn => "the first AS on its AS_PATH is not the neighbor's",
            Self::Reflected => "it started here and was reflected back",
            Self::Leaked => "it is a route leak: its OTC attribute says that it is for customers only",
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
            Self::Default => "default routes are not taken from this neighbor (allow_default)",
            Self::CoversPeer => "it covers the neighbor's own address, and no route of ours to it is closer",
            Self::CoversEndpoint => "it leads into a tunnel, and covers the outer endpoint of one",
        })
    }
}

/// What becomes of a received path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Its attributes, if they changed.
    pub effective: Option<Attributes>,
    /// Why it is not used.
    pub ineligible: Option<Ineligible>,
}

/// What a peer's paths are judged by.
#[derive(Clone, Debug)]
pub struct ImportRules {
    /// Own AS number.
    pub local_asn: u32,
    /// Own BGP identifier.
    pub router_id: Ipv4Addr,
    /// The cluster that we reflect routes for.
    pub cluster_id: Ipv4Addr,
    /// Own addresses on the session.
    pub own: NextHops,
    /// The peer.
    pub neighbor: Arc<Neighbor>,
    /// What it may send.
    pub guards: Guards,
    /// What we are to it (RFC 9234).
    pub role: Option<Role>,
    /// The peer's import policy.
    pub policy: Arc<Policy>,
    /// Where the session leads, and which next hops are usable because of that.
    pub next_hops: NextHopRule,
}

impl ImportRules {
    /// What becomes of a path with this prefix and these attributes.
    pub fn import(&self, prefix: IpNet, received: &Attributes) -> Imported {
        let imported = self.import_attributes(prefix, received);
        Imported { ineligible: self.judge_prefix(prefix).or(imported.ineligible), ..imported }
    }

    /// The same for a prefix that [`ImportRules::judge_prefix`] has nothing against.
    pub fn import_attributes(&self, prefix: IpNet, received: &Attributes) -> Imported {
        match self.judge_path(received) {
            Some(why) => Imported { effective: None, ineligible: Some(why) },
            None => self.apply_policy(prefix, received),
        }
    }

    /// What depends on the prefix alone. `None`: nothing is wrong with it.
    pub fn judge_prefix(&self, prefix: IpNet) -> Option<Ineligible> {
        self.guards.judge(&prefix).or_else(|| self.next_hops.judge_prefix(prefix))
    }

    /// Prefixes with the same answer get the same from [`ImportRules::import_attributes`]. `None`: nobody knows.
    pub fn prefix_class(&self, prefix: &IpNet) -> Option<(Family, u64)> {
        self.policy.prefix_class(prefix).map(|class| (Family::of(prefix), class))
    }

    /// What the policy did to a path, rule by rule.
    pub fn explain(&self, prefix: IpNet, received: &Attributes) -> Trace {
        let marked = self.with_only_to_customer(received);
        self.policy.explain(&self.subject(prefix, marked.as_ref().unwrap_or(received)))
    }

    fn judge_path(&self, received: &Attributes) -> Option<Ineligible> {
        let rare = received.rare();
        let own_asns = received.as_path.asns().iter().filter(|asn| **asn == self.local_asn).count();
        let loops =
            rare.originator_id == Some(self.router_id) || rare.cluster_list.contains(&self.cluster_id);
        let first_is_wrong = self.neighbor.external
            && self.guards.enforce_first_as
            && received.as_path.first() != Some(self.neighbor.asn);
        let found = [
            (first_is_wrong, Ineligible::FirstAsn),
            (own_asns > usize::from(self.guards.allow_own_as), Ineligible::OwnAsn),
            (loops, Ineligible::Reflected),
            (self.is_leaked(rare.only_to_customer), Ineligible::Leaked),
        ];
        found.into_iter().find(|(applies, _)| *applies).map(|(_, why)| why)
    }

    /// RFC 9234 section 5, rules 1 and 2 of ingress.
    fn is_leaked(&self, only_to_customer: Option<u32>) -> bool {
        match (self.role, only_to_customer) {
            (Some(Role::Provider | Role::RouteServer), Some(_)) => true,
            (Some(Role::Peer), Some(asn)) => asn != self.neighbor.asn,
            _ => false,
        }
    }

    /// RFC 9234 section 5, rule 3 of ingress: what a provider, a peer or a route server sends is for customers only.
    fn with_only_to_customer(&self, received: &Attributes) -> Option<Attributes> {
        let from_above = matches!(self.role, Some(Role::Customer | Role::Peer | Role::RouteServerClient));
        (from_above && received.rare().only_to_customer.is_none()).then(|| {
            let mut marked = received.clone();
            marked.change_rare(|rare| rare.only_to_customer = Some(self.neighbor.asn));
            marked
        })
    }

    fn apply_policy(&self, prefix: IpNet, received: &Attributes) -> Imported {
        let mut effective = self.with_only_to_customer(received);
        let subject = self.subject(prefix, effective.as_ref().unwrap_or(received));
        let Outcome::Accept(accepted) = self.policy.evaluate(&subject) else {
            return Imported { effective: None, ineligible: Some(Ineligible::Policy) };
        };
        effective = accepted.attributes.or(effective);
        if let Some(next_hop) = accepted.next_hop.and_then(|change| self.next_hop(prefix, change)) {
            effective.get_or_insert_with(|| received.clone()).next_hop = next_hop;
        }
        if self.shuts_down(effective.as_ref().unwrap_or(received)) {
            effective.get_or_insert_with(|| received.clone()).local_pref = Some(0);
        }
        let ineligible = self.judge_next_hop(effective.as_ref().unwrap_or(received).next_hop);
        Imported { effective, ineligible }
    }

    fn subject<'a>(&'a self, prefix: IpNet, attributes: &'a Attributes) -> policy::Route<'a> {
        let neighbor = Some(&*self.neighbor.name);
        policy::Route { prefix, attributes, neighbor, local_asn: self.local_asn }
    }

    fn next_hop(&self, prefix: IpNet, change: NextHopChange) -> Option<IpAddr> {
        match change {
            NextHopChange::SelfAddress => self.own.of(Family::of(&prefix)),
            NextHopChange::PeerAddress => Some(self.neighbor.address),
            NextHopChange::Address(address) => Some(address),
            NextHopChange::Unchanged => None,
        }
    }

    /// RFC 8326 section 4.2. It comes after the policy: a policy that likes a neighbor must not keep traffic on a link that is about to
    /// go. One that wants to takes the community off.
    fn shuts_down(&self, attributes: &Attributes) -> bool {
        self.neighbor.external && attributes.communities.contains(&Community::GRACEFUL_SHUTDOWN)
    }

    fn judge_next_hop(&self, next_hop: IpAddr) -> Option<Ineligible> {
        let found = [
            (self.is_own(next_hop), Ineligible::OwnNextHop),
            // The neighbor itself is on a link that we know (RFC 2545 section 3); others may be on any.
            (is_link_local(next_hop) && next_hop != self.neighbor.address, Ineligible::LinkLocalNextHop),
            (next_hop.to_canonical() != next_hop, Ineligible::MappedNextHop),
            (next_hop.is_loopback() && !self.neighbor.address.is_loopback(), Ineligible::LoopbackNextHop),
        ];
        let found = found.into_iter().find(|(applies, _)| *applies).map(|(_, why)| why);
        found.or_else(|| self.next_hops.judge(next_hop))
    }

    fn is_own(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.own.v4 == Some(v4),
            IpAddr::V6(v6) => [self.own.v6, self.own.link_local].contains(&Some(v6)),
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
