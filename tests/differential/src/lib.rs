//! Examples for the tests in `tests/`: announcements of every kind that our encoder writes.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use isthmus_bgp::Families;
use isthmus_bgp::wire::{
    Aggregator, AsPath, Attributes, Community, Encoding, LargeCommunity, Nlri, Opaque, Peering, UpdateContext,
};
use proptest::prelude::*;

/// The neighbor's AS number in external sessions.
const NEIGHBOR: u32 = 65_001;

/// What a session negotiated, and whom with.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Of another AS.
    pub external: bool,
    /// AS numbers of four octets.
    pub four_octet: bool,
    /// Prefixes have path identifiers.
    pub path_ids: bool,
    /// IPv4 prefixes may have IPv6 next hops.
    pub extended_next_hop: bool,
}

impl Session {
    /// How messages are written for it.
    pub fn encoding(&self) -> Encoding {
        Encoding {
            four_octet: self.four_octet,
            add_path: if self.path_ids { Families::ALL } else { Families::NONE },
            extended_next_hop: self.extended_next_hop,
            link_local: None,
        }
    }

    /// How the far side reads them.
    pub fn context(&self) -> UpdateContext {
        UpdateContext {
            four_octet: self.four_octet,
            peering: if self.external { Peering::External { asn: NEIGHBOR } } else { Peering::Internal },
            families: Families::ALL,
            add_path: self.encoding().add_path,
            extended_next_hop: self.extended_next_hop,
        }
    }

    /// Makes of any attributes those that such a neighbor may send.
    fn admit(&self, attributes: &mut Attributes) {
        if self.external {
            attributes.as_path = attributes.as_path.prepended(NEIGHBOR);
            attributes.local_pref = None;
            attributes.change_rare(|rare| (rare.originator_id, rare.cluster_list) = (None, Vec::new()));
        }
    }
}

/// Sessions of every kind, attributes and prefixes that go over them.
pub fn examples() -> impl Strategy<Value = (Session, Attributes, Vec<Nlri>)> {
    any::<([bool; 4], bool)>().prop_flat_map(|([external, four_octet, path_ids, extended], v6)| {
        let extended_next_hop = extended && !v6;
        let session = Session { external, four_octet, path_ids, extended_next_hop };
        let attributes = attributes(v6 || extended_next_hop).prop_map(move |mut attributes| {
            session.admit(&mut attributes);
            attributes
        });
        (Just(session), attributes, prefixes(v6, path_ids))
    })
}

/// Extended communities that are route targets, and an attribute that nobody knows: both are passed on as they are.
fn opaque() -> impl Strategy<Value = Vec<Opaque>> {
    let target = any::<[u8; 6]>().prop_map(|[a, b, c, d, e, f]| [0, 2, a, b, c, d, e, f]);
    let targets = prop::collection::vec(target, 1..20).prop_map(|all| (16, all.concat()));
    let unknown = prop::collection::vec(any::<u8>(), 0..300).prop_map(|value| (99, value));
    let long = |value: &[u8]| if value.len() > 255 { 0x10u8 } else { 0 };
    (prop::option::of(targets), prop::option::of(unknown)).prop_map(move |(targets, unknown)| {
        let opaque =
            |flags, (code, value): (u8, Vec<u8>)| Opaque { flags: flags | long(&value), code, value };
        targets.map(|it| opaque(0xc0, it)).into_iter().chain(unknown.map(|it| opaque(0xe0, it))).collect()
    })
}

/// Attributes with a next hop of this family.
pub fn attributes(v6: bool) -> impl Strategy<Value = Attributes> {
    let next_hop = if v6 { IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]) } else { [10, 0, 0, 1].into() };
    (
        prop::collection::vec(1u32.., 0..300),
        any::<(Option<u32>, Option<u32>, bool)>(),
        prop::collection::vec(any::<u32>(), 0..80),
        prop::collection::btree_set(any::<(u32, u32, u32)>(), 0..30),
        (
            prop::option::of((1u32.., any::<u32>())),
            any::<Option<u32>>(),
            prop::collection::vec(any::<u32>(), 0..4),
        ),
        (any::<Option<u32>>(), opaque()),
    )
        .prop_map(
            move |(
                path,
                (med, local_pref, atomic),
                communities,
                large,
                (aggregator, originator, clusters),
                (otc, opaque),
            )| {
                let mut attributes = Attributes::originated(next_hop);
                attributes.as_path = AsPath::new(path);
                (attributes.med, attributes.local_pref) = (med, local_pref);
                attributes.communities = communities.into_iter().map(Community).collect();
                attributes.change_rare(|rare| {
                    rare.atomic_aggregate = atomic;
                    rare.aggregator = aggregator.map(|(asn, id)| Aggregator { asn, router_id: id.into() });
                    rare.originator_id = originator.map(Ipv4Addr::from);
                    rare.cluster_list = clusters.into_iter().map(Ipv4Addr::from).collect();
                    rare.large_communities =
                        large.into_iter().map(|(a, b, c)| LargeCommunity(a, b, c)).collect();
                    rare.only_to_customer = otc;
                    rare.opaque = opaque;
                });
                attributes
            },
        )
}

/// Unicast prefixes of one family: NetGauze takes no others in a unicast UPDATE, while we leave that to policy.
pub fn prefixes(v6: bool, path_ids: bool) -> impl Strategy<Value = Vec<Nlri>> {
    let one = (any::<u128>(), 8u8..=128, 1u32..).prop_map(move |(address, bits, path_id)| {
        let mut octets = address.to_be_bytes();
        octets[0] = if v6 { 0x20 } else { 1 + octets[0] % 126 };
        let [a, b, c, d, ..] = octets;
        let address = if v6 { IpAddr::from(octets) } else { IpAddr::from([a, b, c, d]) };
        let bits = if v6 { bits } else { 8 + bits % 25 };
        let prefix = IpNet::new(address, bits).expect("in range").trunc();
        Nlri { prefix, path_id: if path_ids { path_id } else { 0 } }
    });
    prop::collection::vec(one, 1..400)
}
