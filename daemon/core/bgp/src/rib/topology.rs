//! Which next hops a peer may name. A next hop directs our packets, and not every place that fits into an UPDATE is the peer's to
//! direct them to.
//!
//! The rule, by where the session leads. Its address leads over the tunnel if it lies, by longest prefix, in a tunnel peer's own
//! prefixes, which is how next hops resolve too.
//!
//! | session | usable next hops |
//! |---|---|
//! | any | none of this node's own addresses |
//! | external, over the tunnel | those behind the same tunnel peer |
//! | internal, over the tunnel | those behind any tunnel peer |
//! | was over the tunnel when it came up, is not now | none: whoever it was with has no say any more |
//! | external, outside, the peer on a link of ours | the peer, and the subnets of that link (RFC 4271 sections 5.1.3 and 6.3) |
//! | external, outside, several hops away | those behind no tunnel peer |
//! | internal, outside | any: a border router of our own AS may pass on next hops as it got them |

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use prefix_trie::joint::JointPrefixMap;

use super::Ineligible;

/// What lies around this node, as far as next hops are judged by it.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    own: BTreeSet<IpAddr>,
    links: Vec<Vec<IpNet>>,
    tunnel: JointPrefixMap<IpNet, Arc<str>>,
    underlay: BTreeSet<IpAddr>,
}

impl Topology {
    /// `own`: every address of this node. `links`: for each interface the subnets that are directly connected by it. `tunnel`: each
    /// tunnel peer's own prefixes with its name.
    pub fn new(
        own: impl IntoIterator<Item = IpAddr>,
        links: impl IntoIterator<Item = Vec<IpNet>>,
        tunnel: impl IntoIterator<Item = (IpNet, Arc<str>)>,
    ) -> Self {
        Self {
            own: own.into_iter().collect(),
            links: links.into_iter().collect(),
            tunnel: tunnel.into_iter().map(|(prefix, peer)| (prefix.trunc(), peer)).collect(),
            underlay: BTreeSet::new(),
        }
    }

    /// The same with the outer endpoints of the tunnel peers: the addresses that tunnel packets themselves are sent to.
    #[must_use]
    pub fn with_underlay(self, endpoints: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { underlay: endpoints.into_iter().collect(), ..self }
    }

    /// The tunnel peer that an address is behind.
    pub fn tunnel_peer(&self, address: IpAddr) -> Option<&Arc<str>> {
        self.tunnel.get_lpm(&IpNet::from(address)).map(|(_, peer)| peer)
    }

    /// True if an address is on a link of ours: not behind a tunnel peer, and on a connected subnet or link-local itself.
    pub fn is_on_link(&self, address: IpAddr) -> bool {
        let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        link_local || (self.tunnel_peer(address).is_none() && !self.shared_subnets(address).is_empty())
    }

    /// True if a route to `prefix` would take over the packets to an address that it covers: nothing that is there without BGP, a
    /// connected subnet or a tunnel peer's prefix, is as long as it.
    fn would_capture(&self, prefix: &IpNet, address: IpAddr) -> bool {
        if prefix.prefix_len() == 0 || !prefix.contains(&address) {
            return false;
        }
        let is_closer = |known: &IpNet| known.contains(&address) && known.prefix_len() >= prefix.prefix_len();
        let tunnel = self.tunnel.get_lpm(&IpNet::from(address)).map(|(prefix, _)| prefix);
        !tunnel.is_some_and(|known| is_closer(&known)) && !self.links.iter().flatten().any(is_closer)
    }

    /// Subnets of every link that an address is on.
    fn shared_subnets(&self, address: IpAddr) -> Vec<IpNet> {
        let links = self.links.iter().filter(|link| link.iter().any(|subnet| subnet.contains(&address)));
        links.flatten().copied().collect()
    }
}

impl PartialEq for Topology {
    fn eq(&self, other: &Self) -> bool {
        let tunnel = self.tunnel.iter().eq(other.tunnel.iter());
        tunnel && self.own == other.own && self.links == other.links && self.underlay == other.underlay
    }
}

/// The rule for one session.
#[derive(Clone, Debug)]
pub struct NextHopRule {
    topology: Arc<Topology>,
    peer: IpAddr,
    scope: Scope,
}

#[derive(Clone, Debug)]
enum Scope {
    BehindPeer(Arc<str>),
    BehindAnyPeer,
    Nowhere,
    OnLink(Vec<IpNet>),
    Outside,
    Anywhere,
}

impl NextHopRule {
    /// `external`: the peer's AS is not ours. `came_over_tunnel`: since the session came up it has led over the tunnel.
    pub fn new(topology: Arc<Topology>, peer: IpAddr, external: bool, came_over_tunnel: bool) -> Self {
        let scope = match (topology.tunnel_peer(peer), external) {
            (Some(name), true) => Scope::BehindPeer(Arc::clone(name)),
            (Some(_), false) => Scope::BehindAnyPeer,
            (None, _) if came_over_tunnel => Scope::Nowhere,
            (None, false) => Scope::Anywhere,
            (None, true) => match topology.shared_subnets(peer) {
                none if none.is_empty() => Scope::Outside,
                subnets => Scope::OnLink(subnets),
            },
        };
        Self { topology, peer, scope }
    }

    /// `None`: a route to this prefix takes neither the session's own packets nor those of a tunnel away from where they go now. A route
    /// server that announces the network that it is in does the first (as Azure's does), and then the session flaps. Default routes are a
    /// question of its own ([`super::Guards`]).
    pub(super) fn judge_prefix(&self, prefix: IpNet) -> Option<Ineligible> {
        if self.topology.would_capture(&prefix, self.peer) {
            return Some(Ineligible::CoversPeer);
        }
        let into_tunnel = matches!(self.scope, Scope::BehindPeer(_) | Scope::BehindAnyPeer | Scope::Nowhere);
        let mut covered = self.topology.underlay.range(prefix.network()..=prefix.broadcast());
        let captured = covered.any(|endpoint| self.topology.would_capture(&prefix, *endpoint));
        (into_tunnel && captured).then_some(Ineligible::CoversEndpoint)
    }

    /// `None`: packets may be sent to this next hop.
    pub(super) fn judge(&self, next_hop: IpAddr) -> Option<Ineligible> {
        let behind = self.topology.tunnel_peer(next_hop);
        // Only a second speaker on this very host has one of our addresses.
        if next_hop != self.peer && self.topology.own.contains(&next_hop) {
            return Some(Ineligible::OwnNextHop);
        }
        match &self.scope {
            Scope::BehindPeer(peer) => (behind != Some(peer)).then_some(Ineligible::OtherPeerNextHop),
            Scope::BehindAnyPeer => behind.is_none().then_some(Ineligible::OutsideNextHop),
            Scope::Nowhere => Some(Ineligible::LostTunnel),
            Scope::OnLink(_) | Scope::Outside if behind.is_some() => Some(Ineligible::TunnelNextHop),
            Scope::OnLink(subnets) => {
                let on_link = subnets.iter().any(|subnet| subnet.contains(&next_hop));
                (next_hop != self.peer && !on_link).then_some(Ineligible::OffLinkNextHop)
            }
            Scope::Outside | Scope::Anywhere => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use Ineligible::{
        LostTunnel, OffLinkNextHop, OtherPeerNextHop, OutsideNextHop, OwnNextHop, TunnelNextHop,
    };

    use proptest::prelude::*;

    use super::*;

    fn topology() -> Topology {
        let own = ["10.99.0.1", "fd7a::1", "10.10.0.1", "fd10::1", "192.0.2.1", "127.0.0.1"];
        let links: [&[&str]; 3] =
            [&["10.99.0.0/24", "fd7a::/64"], &["10.10.0.0/24", "fd10::/64"], &["192.0.2.0/30"]];
        let tunnel = [
            ("10.99.0.2/32", "azure"),
            ("fd7a::2/128", "azure"),
            ("172.16.0.0/12", "azure"),
            ("10.99.0.3/32", "onprem"),
            ("172.16.3.0/24", "onprem"),
        ];
        Topology::new(
            own.map(|address| address.parse().unwrap()),
            links.map(|link| link.iter().map(|subnet| subnet.parse().unwrap()).collect()),
            tunnel.map(|(prefix, peer)| (prefix.parse().unwrap(), peer.into())),
        )
    }

    fn judge(peer: &str, external: bool, next_hop: &str) -> Option<Ineligible> {
        let rule = NextHopRule::new(topology().into(), peer.parse().unwrap(), external, false);
        rule.judge(next_hop.parse().unwrap())
    }

    #[test]
    fn each_session_reaches_only_so_far() {
        const LAN_HOST: &str = "10.10.0.9";
        type Case = (&'static str, bool, &'static [(&'static str, Option<Ineligible>)]);
        let table: [Case; 5] = [
            (
                "10.99.0.2",
                true,
                &[
                    ("10.99.0.2", None),
                    ("fd7a::2", None),
                    ("172.16.0.9", None),
                    ("172.16.3.9", Some(OtherPeerNextHop)),
                    ("10.99.0.3", Some(OtherPeerNextHop)),
                    ("10.99.0.9", Some(OtherPeerNextHop)),
                    (LAN_HOST, Some(OtherPeerNextHop)),
                    ("192.0.2.2", Some(OtherPeerNextHop)),
                    ("203.0.113.9", Some(OtherPeerNextHop)),
                    ("10.99.0.1", Some(OwnNextHop)),
                    ("10.10.0.1", Some(OwnNextHop)),
                    ("192.0.2.1", Some(OwnNextHop)),
                    ("fd10::1", Some(OwnNextHop)),
                ],
            ),
            (
                "10.99.0.2",
                false,
                &[
                    ("10.99.0.2", None),
                    ("10.99.0.3", None),
                    (LAN_HOST, Some(OutsideNextHop)),
                    ("192.0.2.2", Some(OutsideNextHop)),
                    ("10.10.0.1", Some(OwnNextHop)),
                ],
            ),
            (
                "10.10.0.100",
                true,
                &[
                    ("10.10.0.100", None),
                    (LAN_HOST, None),
                    ("fd10::100", None),
                    ("fd7a::9", Some(OffLinkNextHop)),
                    ("192.0.2.2", Some(OffLinkNextHop)),
                    ("203.0.113.9", Some(OffLinkNextHop)),
                    ("10.99.0.2", Some(TunnelNextHop)),
                    ("10.10.0.1", Some(OwnNextHop)),
                    ("192.0.2.1", Some(OwnNextHop)),
                ],
            ),
            (
                "203.0.113.1",
                true,
                &[
                    ("203.0.113.1", None),
                    ("192.0.2.2", None),
                    ("10.99.0.2", Some(TunnelNextHop)),
                    ("fd10::1", Some(OwnNextHop)),
                ],
            ),
            (
                "10.10.0.100",
                false,
                &[
                    ("10.10.0.100", None),
                    ("10.99.0.2", None),
                    ("192.0.2.2", None),
                    ("192.0.2.1", Some(OwnNextHop)),
                ],
            ),
        ];
        for (peer, external, next_hops) in table {
            for (next_hop, expected) in next_hops {
                assert_eq!(judge(peer, external, next_hop), *expected, "{next_hop} of {peer}, {external}");
            }
        }
    }

    #[test]
    fn who_lost_the_tunnel_has_no_say() {
        for (external, peer) in [(true, "10.99.0.9"), (false, "10.99.0.9"), (true, "10.10.0.100")] {
            let rule = NextHopRule::new(topology().into(), peer.parse().unwrap(), external, true);
            assert_eq!(rule.judge(peer.parse().unwrap()), Some(LostTunnel));
            assert_eq!(rule.judge("192.0.2.2".parse().unwrap()), Some(LostTunnel));
        }
        let back = NextHopRule::new(topology().into(), "10.99.0.2".parse().unwrap(), true, true);
        assert_eq!(back.judge("10.99.0.2".parse().unwrap()), None);
    }

    #[test]
    fn a_second_speaker_of_this_host_may_name_itself() {
        assert_eq!(judge("127.0.0.1", true, "127.0.0.1"), None);
        assert_eq!(judge("127.0.0.1", true, "10.10.0.1"), Some(OwnNextHop));
    }

    #[test]
    fn routes_do_not_take_away_what_carries_them() {
        use Ineligible::{CoversEndpoint, CoversPeer};
        let around = Arc::new(topology().with_underlay(
            ["192.0.2.2", "198.51.100.7", "2001:db8::7"].map(|endpoint| endpoint.parse().unwrap()),
        ));
        let judge = |peer: &str, prefix: &str| {
            let rule = NextHopRule::new(Arc::clone(&around), peer.parse().unwrap(), true, false);
            rule.judge_prefix(prefix.parse().unwrap())
        };
        let over_tunnel = "10.99.0.2";
        let on_link = "10.10.0.100";
        // As Azure's route server does: far away, and it announces the network around itself.
        let far = "203.0.113.1";
        let cases = [
            (over_tunnel, "10.20.0.0/16", None),
            (over_tunnel, "10.99.0.0/24", None),
            (over_tunnel, "10.99.0.2/32", None),
            (over_tunnel, "198.51.100.0/24", Some(CoversEndpoint)),
            (over_tunnel, "198.51.100.7/32", Some(CoversEndpoint)),
            (over_tunnel, "128.0.0.0/1", Some(CoversEndpoint)),
            (over_tunnel, "2001:db8::/32", Some(CoversEndpoint)),
            // The connected /30 around that endpoint is closer, the one address is not.
            (over_tunnel, "192.0.2.0/24", None),
            (over_tunnel, "192.0.2.2/32", Some(CoversEndpoint)),
            (over_tunnel, "0.0.0.0/0", None),
            (on_link, "10.10.0.0/16", None),
            (on_link, "10.10.0.0/24", None),
            (on_link, "10.10.0.96/28", Some(CoversPeer)),
            (on_link, "198.51.100.0/24", None),
            (far, "203.0.113.0/24", Some(CoversPeer)),
            (far, "10.20.0.0/16", None),
            (far, "0.0.0.0/0", None),
        ];
        for (peer, prefix, expected) in cases {
            assert_eq!(judge(peer, prefix), expected, "{prefix} from {peer}");
        }
    }

    #[test]
    fn equal_if_it_judges_alike() {
        assert_eq!(topology(), topology());
        let fewer = Topology { links: Vec::new(), ..topology() };
        assert_ne!(fewer, topology());
        assert_ne!(topology().with_underlay(["192.0.2.2".parse().unwrap()]), topology());
        let renamed = topology().tunnel.iter().map(|(prefix, _)| (prefix, "other".into())).collect();
        assert_ne!(Topology { tunnel: renamed, ..topology() }, topology());
    }

    fn small_address() -> impl Strategy<Value = IpAddr> {
        (0u8..2, 0u8..4).prop_map(|(net, host)| IpAddr::from([10, 0, net, host]))
    }

    fn small_prefix() -> impl Strategy<Value = IpNet> {
        (small_address(), 22u8..=32)
            .prop_map(|(address, length)| IpNet::new(address, length).unwrap().trunc())
    }

    proptest! {
        #[test]
        fn nothing_leads_out_of_the_tunnel(
            own in prop::collection::vec(small_address(), 0..3),
            links in prop::collection::vec(prop::collection::vec(small_prefix(), 0..3), 0..3),
            tunnel in prop::collection::vec((small_prefix(), prop::sample::select(vec!["a", "b"])), 0..5),
            (peer, next_hop) in (small_address(), small_address()),
            external: bool,
        ) {
            let tunnel = tunnel.into_iter().map(|(prefix, name)| (prefix, name.into()));
            let topology = Arc::new(Topology::new(own.clone(), links, tunnel));
            let judged = NextHopRule::new(Arc::clone(&topology), peer, external, false).judge(next_hop);
            let (leads_to, behind) = (topology.tunnel_peer(peer), topology.tunnel_peer(next_hop));
            if judged.is_none() {
                prop_assert!(next_hop == peer || !own.contains(&next_hop));
                prop_assert!(leads_to.is_none() || behind.is_some());
                prop_assert!(!external || leads_to == behind);
            }
            let itself = NextHopRule::new(topology, peer, external, false).judge(peer);
            prop_assert_eq!(itself, None, "a peer may always name itself");
        }
    }
}
