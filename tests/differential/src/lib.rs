//! Examples for the tests in `tests/`: announcements of every kind that our encoder writes.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use isthmus_bgp::Families;
use isthmus_bgp::wire::{
    Aggregator, AsPath, Attributes, Community, Encoding, LargeCommunity, Nlri, Peering, UpdateContext,
};
use proptest::prelude::*;

/// A session of four-octet speakers in one AS, whose prefixes have path identifiers or have not.
pub fn encoding(path_ids: bool) -> Encoding {
    Encoding { add_path: if path_ids { Families::ALL } else { Families::NONE }, ..Encoding::FOUR_OCTET }
}

/// How the far side of it reads.
pub fn context(path_ids: bool) -> UpdateContext {
    UpdateContext {
        four_octet: true,
        peering: Peering::Internal,
        families: Families::ALL,
        add_path: encoding(path_ids).add_path,
        extended_next_hop: false,
    }
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
        any::<Option<u32>>(),
    )
        .prop_map(
            move |(
                path,
                (med, local_pref, atomic),
                communities,
                large,
                (aggregator, originator, clusters),
                otc,
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
