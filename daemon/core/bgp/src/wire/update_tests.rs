use ipnet::IpNet;
use proptest::prelude::*;

use super::super::*;
use super::*;

const EBGP: UpdateContext = UpdateContext {
    four_octet: true,
    peering: Peering::External { asn: 65_001 },
    families: Families::ALL,
    add_path: Families::NONE,
    extended_next_hop: false,
};
const IBGP: UpdateContext = UpdateContext {
    four_octet: true,
    peering: Peering::Internal,
    families: Families::ALL,
    add_path: Families::NONE,
    extended_next_hop: false,
};

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const AS_PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9];
const NEXT_HOP: &[u8] = &[0x40, 3, 4, 10, 0, 0, 1];
/// 10.20.0.0/16.
const NLRI: &[u8] = &[16, 10, 20];

fn body(withdrawn: &[u8], attributes: &[&[u8]], nlri: &[u8]) -> Vec<u8> {
    let attributes = attributes.concat();
    let mut body = u16::try_from(withdrawn.len()).unwrap().to_be_bytes().to_vec();
    body.extend_from_slice(withdrawn);
    body.extend_from_slice(&u16::try_from(attributes.len()).unwrap().to_be_bytes());
    body.extend_from_slice(&attributes);
    body.extend_from_slice(nlri);
    body
}

/// What became of the UPDATE: the worst disposition in a letter.
fn outcome(attributes: &[&[u8]], context: &UpdateContext) -> &'static str {
    match Update::decode(&body(&[], attributes, NLRI), context) {
        Err(_) => "reset",
        Ok(update) if update.announced.is_empty() => {
            assert_eq!(update.withdrawn, ["10.20.0.0/16".parse().unwrap()], "withdrawing must withdraw");
            "withdraw"
        }
        Ok(update) if update.faults.is_empty() => "accept",
        Ok(_) => "discard",
    }
}

#[test]
fn dispositions_of_rfc_7606() {
    let mut cases: Vec<(&[u8], &str, &str)> = vec![
        // (attribute beside a good ORIGIN, AS_PATH and NEXT_HOP; from eBGP; from iBGP)
        (&[0x80, 4, 4, 0, 0, 0, 7], "accept", "accept"),
        (&[0x80, 4, 3, 0, 0, 7], "withdraw", "withdraw"),
        (&[0x80, 4, 0], "withdraw", "withdraw"),
        (&[0xc0, 4, 4, 0, 0, 0, 7], "withdraw", "withdraw"),
        (&[0x40, 5, 4, 0, 0, 0, 7], "discard", "accept"),
        (&[0x40, 5, 3, 0, 0, 7], "discard", "withdraw"),
        (&[0xc0, 5, 4, 0, 0, 0, 7], "discard", "withdraw"),
        (&[0x40, 6, 0], "accept", "accept"),
        (&[0x40, 6, 1, 0], "discard", "discard"),
        (&[0xc0, 6, 0], "withdraw", "withdraw"),
        (&[0xc0, 7, 8, 0, 0, 0xfd, 0xe9, 10, 0, 0, 1], "accept", "accept"),
        (&[0xe0, 7, 8, 0, 0, 0xfd, 0xe9, 10, 0, 0, 1], "accept", "accept"),
        (&[0xc0, 7, 6, 0xfd, 0xe9, 10, 0, 0, 1], "discard", "discard"),
        (&[0xc0, 7, 8, 0, 0, 0, 0, 10, 0, 0, 1], "discard", "discard"),
        (&[0xc0, 8, 4, 0, 1, 0, 2], "accept", "accept"),
        (&[0xc0, 8, 5, 0, 1, 0, 2, 0], "withdraw", "withdraw"),
        (&[0xc0, 8, 0], "withdraw", "withdraw"),
        (&[0x80, 8, 4, 0, 1, 0, 2], "withdraw", "withdraw"),
        (&[0x80, 9, 4, 10, 0, 0, 9], "discard", "accept"),
        (&[0x80, 9, 3, 10, 0, 0], "discard", "withdraw"),
        (&[0x80, 10, 8, 10, 0, 0, 9, 10, 0, 0, 8], "discard", "accept"),
        (&[0x80, 10, 0], "discard", "withdraw"),
        (&[0xc0, 32, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3], "accept", "accept"),
        (&[0xc0, 32, 0], "withdraw", "withdraw"),
        (&[0xc0, 32, 11, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0], "withdraw", "withdraw"),
        (&[0x80, 32, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3], "withdraw", "withdraw"),
        (&[0xc0, 35, 4, 0, 0, 0xfd, 0xe9], "accept", "accept"),
        (&[0xc0, 35, 3, 0, 0xfd, 0xe9], "withdraw", "withdraw"),
        (&[0xc0, 35, 0], "withdraw", "withdraw"),
        (&[0x80, 35, 4, 0, 0, 0xfd, 0xe9], "withdraw", "withdraw"),
        (&[0xc0, 16, 8, 0, 2, 0, 1, 0, 0, 0, 2], "accept", "accept"),
        (&[0xc0, 16, 7, 0, 2, 0, 1, 0, 0, 0], "withdraw", "withdraw"),
        (&[0xc0, 16, 0], "withdraw", "withdraw"),
        (&[0x80, 16, 8, 0, 2, 0, 1, 0, 0, 0, 2], "withdraw", "withdraw"),
        (&[0xc0, 25, 0], "withdraw", "withdraw"),
        (&[0x80, 26, 3, 1, 0, 3], "accept", "accept"),
        (&[0xc0, 26, 3, 1, 0, 3], "discard", "discard"),
        // from a four-octet speaker
        (&[0xc0, 17, 6, 2, 1, 0, 1, 0, 0], "discard", "discard"),
        // unknown: optional transitive travels on, optional non-transitive is dropped in silence, well-known is not acceptable
        (&[0xc0, 23, 3, 0, 7, 0], "accept", "accept"),
        (&[0xd0, 23, 0, 3, 0, 7, 0], "accept", "accept"),
        (&[0x80, 200, 1, 9], "accept", "accept"),
        (&[0x40, 200, 1, 9], "withdraw", "withdraw"),
        (&[0xc0, 128, 4, 0, 0, 0xfd, 0xe9], "accept", "accept"),
        // duplicates: the first counts
        (ORIGIN, "discard", "discard"),
        (&[0x40, 1, 1, 9], "discard", "discard"),
        // MP attributes: wrong flags, unknown family
        (&[0xc0, 15, 3, 0, 2, 1], "reset", "reset"),
        (&[0x40, 15, 3, 0, 2, 1], "reset", "reset"),
        (&[0xc0, 14, 5, 0, 25, 70, 0, 0], "reset", "reset"),
        (&[0x00, 14, 5, 0, 25, 70, 0, 0], "reset", "reset"),
        (&[0xaf, 15, 3, 0, 25, 70], "accept", "accept"),
        (&[0x80, 15, 3, 0, 25, 70], "accept", "accept"),
        (&[0x80, 14, 5, 0, 25, 70, 0, 0], "accept", "accept"),
        // MP attributes that hide their prefixes
        (&[0x80, 15, 2, 0, 2], "reset", "reset"),
        (&[0x80, 15, 5, 0, 2, 1, 129, 0], "reset", "reset"),
        (&[0x80, 14, 4, 0, 2, 1, 16], "reset", "reset"),
        (&[0x80, 14, 9, 0, 2, 1, 4, 10, 0, 0, 1, 0], "reset", "reset"),
        // a length that runs past the field
        (&[0x80, 4, 200, 0], "withdraw", "withdraw"),
        (&[0x80], "withdraw", "withdraw"),
        (&[0x90, 4, 0], "withdraw", "withdraw"),
    ];
    let duplicate_mp = [[0x80, 15, 3, 0, 2, 1], [0x80, 15, 3, 0, 2, 1]].concat();
    cases.push((&duplicate_mp, "reset", "reset"));
    for (attribute, external, internal) in cases {
        let all = [ORIGIN, AS_PATH, NEXT_HOP, attribute];
        assert_eq!(outcome(&all, &EBGP), external, "eBGP {attribute:x?}");
        assert_eq!(outcome(&all, &IBGP), internal, "iBGP {attribute:x?}");
    }
}

#[test]
fn mandatory_attributes() {
    let bad_origin: &[u8] = &[0x40, 1, 1, 3];
    let long_origin: &[u8] = &[0x40, 1, 2, 0, 0];
    let other_as: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xea];
    let empty_path: &[u8] = &[0x40, 2, 0];
    let set: &[u8] = &[0x40, 2, 6, 1, 1, 0, 0, 0xfd, 0xe9];
    let short_hop: &[u8] = &[0x40, 3, 3, 10, 0, 0];
    let zero_hop: &[u8] = &[0x40, 3, 4, 0, 0, 0, 0];
    let group_hop: &[u8] = &[0x40, 3, 4, 224, 0, 0, 5];
    let cases: &[(&[&[u8]], &str, &str)] = &[
        (&[ORIGIN, AS_PATH, NEXT_HOP], "accept", "accept"),
        (&[NEXT_HOP, AS_PATH, ORIGIN], "accept", "accept"),
        (&[AS_PATH, NEXT_HOP], "withdraw", "withdraw"),
        (&[ORIGIN, NEXT_HOP], "withdraw", "withdraw"),
        (&[ORIGIN, AS_PATH], "withdraw", "withdraw"),
        (&[bad_origin, AS_PATH, NEXT_HOP], "withdraw", "withdraw"),
        (&[long_origin, AS_PATH, NEXT_HOP], "withdraw", "withdraw"),
        (&[ORIGIN, other_as, NEXT_HOP], "accept", "accept"),
        (&[ORIGIN, empty_path, NEXT_HOP], "withdraw", "accept"),
        (&[ORIGIN, set, NEXT_HOP], "withdraw", "withdraw"),
        (&[ORIGIN, AS_PATH, short_hop], "withdraw", "withdraw"),
        (&[ORIGIN, AS_PATH, zero_hop], "withdraw", "withdraw"),
        (&[ORIGIN, AS_PATH, group_hop], "withdraw", "withdraw"),
    ];
    for (attributes, external, internal) in cases {
        assert_eq!(outcome(attributes, &EBGP), *external, "eBGP {attributes:x?}");
        assert_eq!(outcome(attributes, &IBGP), *internal, "iBGP {attributes:x?}");
    }
}

#[test]
fn dispositions_of_a_two_octet_session() {
    let two = UpdateContext { four_octet: false, ..EBGP };
    let path: &[u8] = &[0x40, 2, 6, 2, 2, 0xfd, 0xe9, 0x5b, 0xa0];
    let cases: &[(&[u8], &str)] = &[
        // AGGREGATOR is as wide as the session's AS numbers
        (&[0xc0, 7, 6, 0xfd, 0xe9, 10, 0, 0, 1], "accept"),
        (&[0xc0, 7, 8, 0, 0, 0xfd, 0xe9, 10, 0, 0, 1], "discard"),
        (&[0xc0, 7, 6, 0, 0, 10, 0, 0, 1], "discard"),
        (&[0xc0, 17, 6, 2, 1, 0, 1, 0x11, 0x70], "accept"),
        // longer than AS_PATH: ignored without a fault (RFC 6793 section 4.2.3)
        (&[0xc0, 17, 14, 2, 3, 0, 1, 0x11, 0x70, 0, 1, 0x11, 0x71, 0, 1, 0x11, 0x72], "accept"),
        (&[0xc0, 17, 0], "discard"),
        (&[0xc0, 17, 2, 2, 0], "discard"),
        (&[0xc0, 17, 6, 9, 1, 0, 1, 0x11, 0x70], "discard"),
        (&[0xc0, 17, 6, 2, 1, 0, 0, 0, 0], "discard"),
        // a confederation's sequence is passed over; a set is a set wherever it hides (RFC 9774)
        (&[0xc0, 17, 12, 3, 1, 0, 0, 0, 9, 2, 1, 0, 1, 0x11, 0x70], "accept"),
        (&[0xc0, 17, 6, 1, 1, 0, 1, 0x11, 0x70], "withdraw"),
        (&[0xc0, 17, 6, 4, 1, 0, 1, 0x11, 0x70], "withdraw"),
        (&[0x80, 17, 6, 2, 1, 0, 1, 0x11, 0x70], "withdraw"),
        (&[0xc0, 18, 8, 0, 1, 0x11, 0x70, 10, 0, 0, 2], "accept"),
        (&[0xc0, 18, 7, 0, 1, 0x11, 0x70, 10, 0, 0], "discard"),
        (&[0xc0, 18, 8, 0, 0, 0, 0, 10, 0, 0, 2], "discard"),
        (&[0x40, 18, 8, 0, 1, 0x11, 0x70, 10, 0, 0, 2], "withdraw"),
    ];
    for (attribute, expected) in cases {
        assert_eq!(outcome(&[ORIGIN, path, NEXT_HOP, attribute], &two), *expected, "{attribute:x?}");
    }
}

#[test]
fn dispositions_of_as_path() {
    let cases: &[(&[u8], &str)] = &[
        (&[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9], "accept"),
        (&[0x50, 2, 0, 6, 2, 1, 0, 0, 0xfd, 0xe9], "accept"),
        (&[0x40, 2, 10, 2, 2, 0, 0, 0xfd, 0xe9, 0, 0, 0, 0], "withdraw"),
        (&[0x40, 2, 2, 2, 0], "withdraw"),
        (&[0x40, 2, 8, 2, 1, 0, 0, 0xfd, 0xe9, 2, 0], "withdraw"),
        (&[0x40, 2, 7, 2, 1, 0, 0, 0xfd, 0xe9, 2], "withdraw"),
        (&[0x40, 2, 6, 2, 2, 0, 0, 0xfd, 0xe9], "withdraw"),
        (&[0x40, 2, 4, 2, 1, 0xfd, 0xe9], "withdraw"),
        (&[0x40, 2, 6, 0, 1, 0, 0, 0xfd, 0xe9], "withdraw"),
        (&[0x40, 2, 6, 5, 1, 0, 0, 0xfd, 0xe9], "withdraw"),
        (&[0x40, 2, 12, 2, 1, 0, 0, 0xfd, 0xe9, 1, 1, 0, 0, 0, 9], "withdraw"),
        (&[0x40, 2, 12, 2, 1, 0, 0, 0xfd, 0xe9, 3, 1, 0, 0, 0, 9], "withdraw"),
        (&[0x40, 2, 12, 2, 1, 0, 0, 0xfd, 0xe9, 4, 1, 0, 0, 0, 9], "withdraw"),
        (&[0xc0, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9], "withdraw"),
        (&[0x00, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9], "withdraw"),
    ];
    for (path, expected) in cases {
        for context in [EBGP, IBGP] {
            assert_eq!(outcome(&[ORIGIN, path, NEXT_HOP], &context), *expected, "{path:x?}");
        }
    }
}

#[test]
fn flags_of_well_known_attributes() {
    for (attribute, at) in [(ORIGIN, 0), (NEXT_HOP, 2)] {
        for flags in [0x00, 0x80, 0xc0] {
            let wrong = [&[flags], &attribute[1..]].concat();
            let mut all = [ORIGIN, AS_PATH, NEXT_HOP];
            all[at] = &wrong;
            assert_eq!(outcome(&all, &EBGP), "withdraw", "{wrong:x?}");
        }
        // Partial and the unused bits are no fault.
        let odd = [&[attribute[0] | 0x2f], &attribute[1..]].concat();
        let mut all = [ORIGIN, AS_PATH, NEXT_HOP];
        all[at] = &odd;
        assert_eq!(outcome(&all, &EBGP), "accept", "{odd:x?}");
    }
}

#[test]
fn fields_that_hide_the_prefixes_reset() {
    let good = [ORIGIN, AS_PATH, NEXT_HOP];
    let long_withdrawn = [&[0xff, 0xff], &body(&[], &good, NLRI)[2..]].concat();
    let mut long_attributes = body(&[], &good, NLRI);
    long_attributes[3] = 0xff;
    for (bytes, subcode) in [
        (vec![], 1),
        (vec![0, 0, 0], 1),
        (long_withdrawn, 1),
        (long_attributes, 1),
        (body(&[33, 1, 2, 3, 4, 5], &good, NLRI), 10),
        (body(&[], &good, &[33, 1, 2, 3, 4, 5]), 10),
        (body(&[], &good, &[24, 1]), 10),
    ] {
        let refused = Update::decode(&bytes, &EBGP).unwrap_err();
        assert_eq!((refused.code, refused.subcode), (3, subcode), "{bytes:x?}");
    }
}

#[test]
fn spoiled_attributes_without_reachable_prefixes_reset() {
    let bad_med: &[u8] = &[0x80, 4, 1, 0];
    assert!(Update::decode(&body(&[16, 10, 20], &[bad_med], &[]), &EBGP).is_err());
    // what would only be discarded does no harm
    let discarded: &[u8] = &[0x40, 6, 1, 0];
    assert!(Update::decode(&body(&[16, 10, 20], &[discarded], &[]), &EBGP).is_ok());
}

#[test]
fn ipv4_prefixes_never_borrow_the_next_hop_of_mp_reach() {
    let mut reach = vec![0x80, 14, 30, 0, 2, 1, 16];
    reach.extend_from_slice(&Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets());
    reach.extend_from_slice(&[0, 64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 9]);
    let update = Update::decode(&body(&[], &[&reach, ORIGIN, AS_PATH], NLRI), &EBGP).unwrap();
    assert_eq!(update.withdrawn, ["10.20.0.0/16".parse().unwrap()]);
    assert_eq!(update.announced.len(), 1);
    assert_eq!(update.announced[0].prefixes, ["2001:db8:0:9::/64".parse().unwrap()]);
}

#[test]
fn next_hop_beside_mp_reach_alone_is_ignored() {
    let mut reach = vec![0x80, 14, 30, 0, 2, 1, 16];
    reach.extend_from_slice(&Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets());
    reach.extend_from_slice(&[0, 64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 9]);
    let nowhere: &[u8] = &[0x40, 3, 4, 0, 0, 0, 0];
    let update = Update::decode(&body(&[], &[&reach, ORIGIN, AS_PATH, nowhere], &[]), &EBGP).unwrap();
    assert!(update.faults.is_empty() && update.withdrawn.is_empty(), "{update:?}");
    assert_eq!(update.announced[0].prefixes, ["2001:db8:0:9::/64".parse().unwrap()]);
}

#[test]
fn ipv6_next_hops() {
    let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let none = Ipv6Addr::UNSPECIFIED;
    let hop = |addresses: &[Ipv6Addr]| {
        let field: Vec<_> = addresses.iter().flat_map(|a| a.octets()).collect();
        let found = mp_next_hop(Family::Ipv6Unicast, &field, false);
        assert_eq!(mp_next_hop(Family::Ipv4Unicast, &field, true), found, "RFC 8950");
        assert_eq!(mp_next_hop(Family::Ipv4Unicast, &field, false), None, "not negotiated");
        found
    };
    assert_eq!(hop(&[global]), Some(Some(global.into())));
    assert_eq!(hop(&[global, local]), Some(Some(global.into())));
    assert_eq!(hop(&[none, local]), Some(Some(local.into())));
    assert_eq!(hop(&[local, local]), Some(Some(local.into())));
    assert_eq!(hop(&[global, none]), Some(Some(global.into())));
    assert_eq!(hop(&[local]), Some(Some(local.into())));
    assert_eq!(hop(&[local, global]), Some(Some(global.into())));
    assert_eq!(hop(&[none]), Some(None));
    assert_eq!(hop(&[none, none]), Some(None));
    assert_eq!(hop(&[global, local, local]), None);
    assert_eq!(hop(&[]), None);
}

#[test]
fn our_link_local_address_goes_behind_our_global_one() {
    let global: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let local: Ipv6Addr = "fe80::1".parse().unwrap();
    let encoding = Encoding { link_local: Some((global, local)), ..Encoding::FOUR_OCTET };
    let next_hop_of = |address: Ipv6Addr| {
        let mut bytes = Vec::new();
        let attributes = Attributes::originated(address.into());
        encode_announcement(&attributes, &["2001:db8:9::/48".parse().unwrap()], &encoding, &mut bytes)
            .unwrap();
        // Behind the header, two lengths, the attribute's header and the family.
        let length = usize::from(bytes[30]);
        bytes[31..31 + length].to_vec()
    };
    assert_eq!(next_hop_of(global), [global.octets(), local.octets()].concat());
    assert_eq!(next_hop_of(local), local.octets());
    let third: Ipv6Addr = "2001:db8::3".parse().unwrap();
    assert_eq!(next_hop_of(third), third.octets(), "somebody else's next hop");
}

#[test]
fn ipv4_prefixes_take_an_ipv6_next_hop_only_where_it_was_negotiated() {
    let attributes = Attributes::originated("2001:db8::1".parse().unwrap());
    let mut out = Vec::new();
    let nlri = ["10.20.0.0/16".parse().unwrap()];
    assert!(
        encode_announcement(&attributes, &nlri, &Encoding::FOUR_OCTET, &mut out).is_err() && out.is_empty()
    );
    let extended = Encoding { extended_next_hop: true, ..Encoding::FOUR_OCTET };
    encode_announcement(&attributes, &nlri, &extended, &mut out).unwrap();
    let body = frame(&out).unwrap().unwrap().body;
    let update = Update::decode(body, &UpdateContext { extended_next_hop: true, ..IBGP }).unwrap();
    assert_eq!(update.announced, [Announcement { attributes, prefixes: nlri.to_vec() }]);
    let refused = Update::decode(body, &IBGP).unwrap_err();
    assert_eq!((refused.code, refused.subcode), (3, 9), "RFC 7606 section 7.11");
}

/// RFC 8092 section 3.
#[test]
fn large_communities_once_each() {
    let one = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
    let two = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 4];
    let value = [two, one, two].concat();
    let large = [&[0xe0, 32, 36][..], &value].concat();
    let update = Update::decode(&body(&[], &[ORIGIN, AS_PATH, NEXT_HOP, &large], NLRI), &EBGP).unwrap();
    let attributes = &update.announced[0].attributes;
    let texts: Vec<_> = attributes.rare().large_communities.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["1:2:4", "1:2:3"]);
    let mut sent = Vec::new();
    encode_announcement(attributes, &update.announced[0].prefixes, &Encoding::FOUR_OCTET, &mut sent).unwrap();
    let expected = [&[0xe0, 32, 24][..], &two, &one].concat();
    assert!(sent.windows(expected.len()).any(|window| window == expected), "Partial stays set");
}

#[test]
fn as4_path_of_any_length_and_place_harms_nothing() {
    let two = UpdateContext { four_octet: false, ..EBGP };
    let path: &[u8] = &[0x40, 2, 4, 2, 1, 0xfd, 0xe9];
    for length in 0..=5u8 {
        let mut four = vec![0xc0, 17, length];
        four.extend_from_slice(&[2, 1, 0, 1, 0][..usize::from(length)]);
        for order in [[&four[..], ORIGIN, path, NEXT_HOP], [ORIGIN, path, NEXT_HOP, &four[..]]] {
            let update = Update::decode(&body(&[], &order, NLRI), &two).unwrap();
            assert_eq!(update.announced[0].attributes.as_path.asns(), [65_001], "length {length}");
        }
    }
}

#[test]
fn two_octet_aggregator_decides_about_as4_path() {
    let two = UpdateContext { four_octet: false, ..EBGP };
    let path: &[u8] = &[0x40, 2, 6, 2, 2, 0xfd, 0xe9, 0x5b, 0xa0];
    let four: &[u8] = &[0xc0, 17, 6, 2, 1, 0, 1, 0x11, 0x70];
    let trans: &[u8] = &[0xc0, 7, 6, 0x5b, 0xa0, 10, 0, 0, 1];
    let plain: &[u8] = &[0xc0, 7, 6, 0xfd, 0xe9, 10, 0, 0, 1];
    let aggregator4: &[u8] = &[0xc0, 18, 8, 0, 1, 0x11, 0x70, 10, 0, 0, 2];
    let decoded = |aggregator: &[u8]| {
        let attributes = [ORIGIN, path, NEXT_HOP, four, aggregator, aggregator4];
        Update::decode(&body(&[], &attributes, NLRI), &two).unwrap().announced.remove(0).attributes
    };
    assert_eq!(decoded(trans).as_path.asns(), [65_001, 70_000]);
    assert_eq!(decoded(trans).rare().aggregator.unwrap().asn, 70_000);
    assert_eq!(decoded(plain).as_path.asns(), [65_001, 23_456]);
    assert_eq!(decoded(plain).rare().aggregator.unwrap().asn, 65_001);
}

#[test]
fn end_of_rib_of_each_family() {
    for family in Family::ALL {
        let mut bytes = Vec::new();
        encode_end_of_rib(family, &mut bytes).unwrap();
        let update = Update::decode(frame(&bytes).unwrap().unwrap().body, &EBGP).unwrap();
        assert_eq!(update, Update { end_of_rib: Some(family), ..Update::default() });
    }
}

#[test]
fn prefixes_of_other_families_are_ignored() {
    let v6_only = UpdateContext { families: Families::from_iter([Family::Ipv6Unicast]), ..EBGP };
    let update = Update::decode(&body(NLRI, &[ORIGIN, AS_PATH, NEXT_HOP], NLRI), &v6_only).unwrap();
    assert!(update.announced.is_empty() && update.withdrawn.is_empty());
}

#[test]
fn opaque_attributes_travel_byte_for_byte() {
    for flags in [0xc0u8, 0xd0, 0xe0, 0xf0] {
        for code in (11..=255u8).filter(|code| ![14, 15, 16, 17, 18, 25, 26, 32, 35].contains(code)) {
            for length in [0usize, 1, 255, 256, 1024] {
                if length > 255 && flags & 0x10 == 0 {
                    continue;
                }
                let mut attribute = vec![flags, code];
                match flags & 0x10 {
                    0 => attribute.push(u8::try_from(length).unwrap()),
                    _ => attribute.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes()),
                }
                attribute.extend((0..length).map(|n| u8::try_from(n % 251).unwrap()));
                let bytes = body(&[], &[ORIGIN, AS_PATH, NEXT_HOP, &attribute], NLRI);
                let first = Update::decode(&bytes, &EBGP).unwrap();
                let mut sent = Vec::new();
                encode_announcement(
                    &first.announced[0].attributes,
                    &first.announced[0].prefixes,
                    &Encoding::FOUR_OCTET,
                    &mut sent,
                )
                .unwrap();
                attribute[0] |= 0x20;
                assert!(
                    sent.windows(attribute.len()).any(|window| window == attribute),
                    "{flags:x} {code} {length}"
                );
                let second = Update::decode(frame(&sent).unwrap().unwrap().body, &EBGP).unwrap();
                assert_eq!(first.announced, second.announced);
            }
        }
    }
}

#[test]
fn attributes_that_leave_no_room_are_refused() {
    let mut attributes = Attributes::originated("10.0.0.1".parse().unwrap());
    attributes.change_rare(|rare| rare.opaque.push(Opaque { flags: 0xe0, code: 99, value: vec![0; 4060] }));
    let mut out = Vec::new();
    let refused =
        encode_announcement(&attributes, &["10.20.0.0/16".parse().unwrap()], &Encoding::FOUR_OCTET, &mut out);
    assert!(refused.is_err() && out.is_empty());
}

fn attributes(v6: bool) -> impl Strategy<Value = Attributes> {
    let next_hop = if v6 {
        any::<u64>().prop_map(|low| IpAddr::V6((0x2001_0db8_u128 << 96 | u128::from(low)).into())).boxed()
    } else {
        (0x0100_0000u32..0xdfff_ffff).prop_map(|address| IpAddr::V4(address.into())).boxed()
    };
    let opaque = (prop::sample::select(vec![22u8, 23, 99]), prop::collection::vec(any::<u8>(), 0..300));
    (
        (prop::sample::select(vec![Origin::Igp, Origin::Egp, Origin::Incomplete]), next_hop),
        prop::collection::vec(1u32.., 0..300),
        (any::<Option<u32>>(), any::<Option<u32>>(), any::<bool>()),
        prop::option::of((1u32.., any::<u32>())),
        prop::collection::vec(any::<u32>().prop_map(Community), 0..20),
        (any::<Option<u32>>(), prop::collection::vec(any::<u32>(), 0..4)),
        (
            prop::option::of(opaque),
            prop::collection::btree_set(any::<(u32, u32, u32)>(), 0..20),
            any::<Option<u32>>(),
        ),
    )
        .prop_map(
            |(
                (origin, next_hop),
                path,
                (med, local_pref, atomic),
                aggregator,
                communities,
                reflected,
                (opaque, large, only_to_customer),
            )| {
                let mut attributes = Attributes::originated(next_hop);
                attributes.origin = origin;
                attributes.as_path = AsPath::new(path);
                (attributes.med, attributes.local_pref) = (med, local_pref);
                attributes.communities = communities.into();
                attributes.change_rare(|rare| {
                    rare.atomic_aggregate = atomic;
                    rare.aggregator = aggregator.map(|(asn, id)| Aggregator { asn, router_id: id.into() });
                    rare.originator_id = reflected.0.map(Into::into);
                    rare.cluster_list = reflected.1.into_iter().map(Into::into).collect();
                    rare.large_communities =
                        large.into_iter().map(|(a, b, c)| LargeCommunity(a, b, c)).collect();
                    rare.only_to_customer = only_to_customer;
                    let flags = |value: &[u8]| if value.len() > 255 { 0xf0 } else { 0xe0 };
                    rare.opaque.extend(opaque.map(|(code, value)| Opaque {
                        flags: flags(&value),
                        code,
                        value,
                    }));
                });
                attributes
            },
        )
}

fn prefixes(v6: bool, path_ids: bool) -> impl Strategy<Value = Vec<Nlri>> {
    prop::collection::vec(
        (any::<u128>(), 0u8..=128, any::<u32>()).prop_map(move |(address, bits, path_id)| {
            let net = if v6 {
                IpNet::new(IpAddr::V6(address.into()), bits)
            } else {
                IpNet::new(IpAddr::V4(u32::try_from(address >> 96).unwrap().into()), bits % 33)
            };
            Nlri { prefix: net.unwrap().trunc(), path_id: if path_ids { path_id } else { 0 } }
        }),
        1..1200,
    )
}

/// Attributes, prefixes that may have them, and a session that may carry them.
fn example() -> impl Strategy<Value = (Attributes, Vec<Nlri>, Encoding)> {
    any::<(bool, bool, bool, bool)>().prop_flat_map(|(v6_next_hop, v6, path_ids, four_octet)| {
        // IPv6 prefixes cannot have an IPv4 next hop.
        let v6 = v6 && v6_next_hop;
        let encoding = Encoding {
            four_octet,
            add_path: if path_ids { Families::ALL } else { Families::NONE },
            extended_next_hop: v6_next_hop && !v6,
            link_local: None,
        };
        (attributes(v6_next_hop), prefixes(v6, path_ids), Just(encoding))
    })
}

/// How the far side reads what was written so.
fn reading(encoding: &Encoding) -> UpdateContext {
    UpdateContext {
        four_octet: encoding.four_octet,
        add_path: encoding.add_path,
        extended_next_hop: encoding.extended_next_hop,
        ..IBGP
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn announcements_round_trip((attributes, prefixes, encoding) in example()) {
        let encoded = EncodedAttributes::new(&attributes, &encoding).unwrap();
        let mut left = prefixes.as_slice();
        while !left.is_empty() {
            let mut bytes = Vec::new();
            let count = encoded.encode(left, &mut bytes).unwrap();
            prop_assert!(bytes.len() <= MAX_MESSAGE_LENGTH);
            let message = frame(&bytes).unwrap().unwrap();
            prop_assert_eq!(message.wire_length(), bytes.len());
            let update = Update::decode(message.body, &reading(&encoding)).unwrap();
            prop_assert_eq!(&update.faults, &vec![]);
            prop_assert_eq!(&update.announced[0].attributes, &attributes);
            prop_assert_eq!(&update.announced[0].prefixes[..], &left[..count]);
            left = &left[count..];
        }
    }

    #[test]
    fn withdrawals_round_trip((_, prefixes, encoding) in example()) {
        let mut left = prefixes.as_slice();
        while !left.is_empty() {
            let mut bytes = Vec::new();
            let count = encode_withdrawal(left, &encoding, &mut bytes).unwrap();
            prop_assert!(bytes.len() <= MAX_MESSAGE_LENGTH);
            let message = frame(&bytes).unwrap().unwrap();
            prop_assert_eq!(message.wire_length(), bytes.len());
            let update = Update::decode(message.body, &reading(&encoding)).unwrap();
            prop_assert_eq!(&update.withdrawn[..], &left[..count]);
            left = &left[count..];
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), four_octet: bool) {
        let _ = frame(&bytes);
        let _ = Notification::decode(&bytes).map(|n| n.to_string());
        let _ = (RouteRefresh::decode(&bytes, false), RouteRefresh::decode(&bytes, true));
        for context in [EBGP, IBGP] {
            let _ = Update::decode(&bytes, &UpdateContext { four_octet, ..context });
            let session = UpdateContext { add_path: Families::ALL, extended_next_hop: true, ..context };
            let _ = Update::decode(&bytes, &session);
        }
    }

    #[test]
    fn flipped_bytes_never_panic((attributes, prefixes, encoding) in example(), at: usize, value: u8) {
        let mut bytes = Vec::new();
        encode_announcement(&attributes, &prefixes[..1], &encoding, &mut bytes).unwrap();
        let at = HEADER_LENGTH + at % (bytes.len() - HEADER_LENGTH);
        bytes[at] = value;
        let _ = Update::decode(&bytes[HEADER_LENGTH..], &EBGP);
        let _ = Update::decode(&bytes[HEADER_LENGTH..], &reading(&encoding));
    }
}

/// `cargo test --release -p isthmus-bgp --lib speed_of_ -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, and only in a release build one"]
fn speed_of_an_update_with_500_prefixes() {
    const ROUNDS: u32 = 20_000;
    let prefixes: Vec<Nlri> = (0..500u32)
        .map(|n| IpNet::new(IpAddr::V4((0x0a00_0000 | n << 8).into()), 24).unwrap().into())
        .collect();
    let mut attributes = Attributes::originated("10.0.0.1".parse().unwrap());
    attributes.as_path = AsPath::new(vec![65_001, 65_002, 65_003]);
    attributes.communities = vec![Community(1), Community(2)].into();
    let encoded = EncodedAttributes::new(&attributes, &Encoding::FOUR_OCTET).unwrap();
    let mut out = Vec::new();
    let started = std::time::Instant::now();
    for _ in 0..ROUNDS {
        out.clear();
        assert_eq!(encoded.encode(&prefixes, &mut out), Ok(500));
    }
    let encoding = started.elapsed() / ROUNDS;
    let started = std::time::Instant::now();
    for _ in 0..ROUNDS {
        let update = Update::decode(std::hint::black_box(&out[HEADER_LENGTH..]), &EBGP).unwrap();
        assert_eq!(std::hint::black_box(update).announced[0].prefixes.len(), 500);
    }
    println!("encoded in {encoding:?}, decoded in {:?}", started.elapsed() / ROUNDS);
    let started = std::time::Instant::now();
    for _ in 0..ROUNDS {
        out.clear();
        assert_eq!(
            encode_announcement(&attributes, &prefixes[..10], &Encoding::FOUR_OCTET, &mut out),
            Ok(10)
        );
    }
    println!("10 prefixes with their attributes encoded in {:?}", started.elapsed() / ROUNDS);
}

#[path = "malformed_tests.rs"]
mod malformed;
