//! Malformed attributes one by one, each beside an otherwise good announcement: what becomes of the route and of the attribute.
//!
//! The inputs and the dispositions of FRR are facts taken from its conformance suite (`bgp_rfc7606_*` of its topotests). Where we
//! answer otherwise, the row says why.

use super::super::*;
use super::*;

/// The route stands, and goes on with the attribute.
const PASS: &str = "pass";
/// The route stands without the attribute.
const DISCARD: &str = "discard";
/// The route is withdrawn.
const WITHDRAW: &str = "withdraw";

/// From an external neighbor and from an internal one.
type Outcome = (&'static str, &'static str);

const BOTH_DISCARD: Outcome = (DISCARD, DISCARD);
const BOTH_WITHDRAW: Outcome = (WITHDRAW, WITHDRAW);
const BOTH_PASS: Outcome = (PASS, PASS);
const BY_PEERING: Outcome = (DISCARD, WITHDRAW);

/// Type, flags, value; what FRR does; what we do instead and why.
type Case = (u8, u8, &'static str, Outcome, Option<(Outcome, &'static str)>);

const PARTIAL: &str = "RFC 7606 section 3 c is about Optional and Transitive only";
const BEFORE_FLAGS: &str = "from there it means nothing, however it looks (RFC 7606 sections 7.5, 7.9, 7.10)";
const FOUR_OCTET: &str = "from a four-octet speaker it is discarded unread (RFC 6793 section 4.1)";
const UNKNOWN: &str = "not an attribute of ours: passed on byte for byte (RFC 4271 section 5)";
const UNKNOWN_LOCAL: &str = "not an attribute of ours and not transitive: ignored (RFC 4271 section 5)";
const NEXT_HOP_TRACKING: &str = "a second speaker of this host may name it; from others the RIB refuses it";
const LENGTH_ONLY: &str = "RFC 9234 section 5 calls only another length than 4 malformed";

#[rustfmt::skip]
const CASES: &[Case] = &[
    // ORIGIN
    (1, 0xc0, "00", BOTH_WITHDRAW, None),
    (1, 0x60, "00", BOTH_WITHDRAW, Some((BOTH_PASS, PARTIAL))),
    (1, 0x40, "", BOTH_WITHDRAW, None),
    (1, 0x40, "0000", BOTH_WITHDRAW, None),
    (1, 0x40, "03", BOTH_WITHDRAW, None),
    (1, 0x40, "04", BOTH_WITHDRAW, None),
    (1, 0x40, "ff", BOTH_WITHDRAW, None),
    // AS_PATH
    (2, 0xc0, "02010000fde9", BOTH_WITHDRAW, None),
    (2, 0x60, "02010000fde9", BOTH_WITHDRAW, Some((BOTH_PASS, PARTIAL))),
    (2, 0x40, "00010000fde9", BOTH_WITHDRAW, None),
    (2, 0x40, "05010000fde9", BOTH_WITHDRAW, None),
    (2, 0x40, "0200", BOTH_WITHDRAW, None),
    (2, 0x40, "02ff0000fde9", BOTH_WITHDRAW, None),
    (2, 0x40, "020100000000", BOTH_WITHDRAW, None),
    // NEXT_HOP
    (3, 0x40, "00000000", BOTH_WITHDRAW, None),
    (3, 0x40, "7f000001", BOTH_WITHDRAW, Some((BOTH_PASS, NEXT_HOP_TRACKING))),
    (3, 0x40, "e0000001", BOTH_WITHDRAW, None),
    // MULTI_EXIT_DISC
    (4, 0xc0, "0000000a", BOTH_WITHDRAW, None),
    (4, 0x80, "000000", BOTH_WITHDRAW, None),
    (4, 0x80, "000000000a", BOTH_WITHDRAW, None),
    (4, 0x80, "", BOTH_WITHDRAW, None),
    // LOCAL_PREF; FRR's suite sends it from an internal neighbor only
    (5, 0x40, "000000", BY_PEERING, None),
    (5, 0x40, "0000000064", BY_PEERING, None),
    (5, 0x40, "", BY_PEERING, None),
    (5, 0xc0, "00000064", BY_PEERING, None),
    // ATOMIC_AGGREGATE, AGGREGATOR
    (6, 0x40, "00", BOTH_DISCARD, None),
    (7, 0xc0, "0000fde90a", BOTH_DISCARD, None),
    (7, 0xc0, "0000fde90a0000", BOTH_DISCARD, None),
    (7, 0xc0, "0000fde90a00000200", BOTH_DISCARD, None),
    (7, 0xc0, "000000000a000002", BOTH_DISCARD, None),
    // COMMUNITIES
    (8, 0x80, "ffff0001", BOTH_WITHDRAW, None),
    (8, 0xc0, "", BOTH_WITHDRAW, None),
    (8, 0xc0, "ffff000100", BOTH_WITHDRAW, None),
    // ORIGINATOR_ID, CLUSTER_LIST
    (9, 0x80, "0a0000", BY_PEERING, None),
    (9, 0x80, "0a00000200", BY_PEERING, None),
    (9, 0xc0, "0a000002", BOTH_WITHDRAW, Some((BY_PEERING, BEFORE_FLAGS))),
    (10, 0x80, "", BY_PEERING, None),
    (10, 0x80, "0a00000200", BY_PEERING, None),
    (10, 0xc0, "0a000002", BOTH_WITHDRAW, Some((BY_PEERING, BEFORE_FLAGS))),
    // EXTENDED COMMUNITIES
    (16, 0x80, "0002fde900000001", BOTH_WITHDRAW, None),
    (16, 0xc0, "", BOTH_WITHDRAW, None),
    (16, 0xc0, "0002fde90000000100", BOTH_WITHDRAW, None),
    // AS4_PATH, AS4_AGGREGATOR
    (17, 0x80, "020100010001", BOTH_WITHDRAW, Some((BOTH_DISCARD, FOUR_OCTET))),
    (17, 0xc0, "000100010001", BOTH_DISCARD, None),
    (18, 0xc0, "0000fde90a0000", BOTH_DISCARD, None),
    (18, 0xc0, "0000fde90a00000200", BOTH_DISCARD, None),
    // PMSI_TUNNEL
    (22, 0x80, "00060000000a000002", BOTH_WITHDRAW, Some((BOTH_DISCARD, UNKNOWN_LOCAL))),
    (22, 0xc0, "00060000", BOTH_WITHDRAW, Some((BOTH_PASS, UNKNOWN))),
    (22, 0xc0, "00080000000a000002", BOTH_WITHDRAW, Some((BOTH_PASS, UNKNOWN))),
    (22, 0xc0, "00ff0000000a000002", BOTH_WITHDRAW, Some((BOTH_PASS, UNKNOWN))),
    (22, 0xc0, "00060000000a00000200", BOTH_WITHDRAW, Some((BOTH_PASS, UNKNOWN))),
    // Tunnel Encapsulation
    (23, 0x80, "00070000", BOTH_WITHDRAW, Some((BOTH_DISCARD, UNKNOWN_LOCAL))),
    (23, 0xc0, "000700", BOTH_WITHDRAW, Some((BOTH_PASS, UNKNOWN))),
    (23, 0xc0, "0007000401", BOTH_WITHDRAW, Some((BOTH_PASS, UNKNOWN))),
    (23, 0xc0, "0007000401ff", BOTH_WITHDRAW, Some((BOTH_PASS, UNKNOWN))),
    // IPv6 EXTENDED COMMUNITIES
    (25, 0x80, "000220010db80000000000000000000000010001", BOTH_WITHDRAW, None),
    (25, 0xc0, "", BOTH_WITHDRAW, None),
    (25, 0xc0, "000220010db8000000000000000000000001000100", BOTH_WITHDRAW, None),
    // AIGP, which we never use
    (26, 0xc0, "01000b0000000000000000000a", BOTH_DISCARD, None),
    (26, 0x80, "09000b0000000000000000000a", BOTH_DISCARD, None),
    (26, 0x80, "0100050000000000000000000a", BOTH_DISCARD, None),
    (26, 0x80, "", BOTH_DISCARD, None),
    // BGP-LS
    (29, 0xc0, "0400000100", BOTH_DISCARD, Some((BOTH_PASS, UNKNOWN))),
    (29, 0x80, "040000ff00", BOTH_DISCARD, None),
    (29, 0x80, "0400", BOTH_DISCARD, None),
    // LARGE_COMMUNITY
    (32, 0x80, "0000fde90000000100000002", BOTH_WITHDRAW, None),
    (32, 0xc0, "", BOTH_WITHDRAW, None),
    (32, 0xc0, "0000fde9000000010000000200", BOTH_WITHDRAW, None),
    // OTC
    (35, 0x80, "0000fde9", BOTH_WITHDRAW, None),
    (35, 0xc0, "0000fd", BOTH_WITHDRAW, None),
    (35, 0xc0, "0000fde900", BOTH_WITHDRAW, None),
    (35, 0xc0, "00000000", BOTH_WITHDRAW, Some((BOTH_PASS, LENGTH_ONLY))),
    // the next-hop capability, a draft
    (39, 0xc0, "00ff010001000100", BOTH_DISCARD, Some((BOTH_PASS, UNKNOWN))),
    (39, 0xc0, "0001010001ff00", BOTH_DISCARD, Some((BOTH_PASS, UNKNOWN))),
    // BGP Prefix-SID
    (40, 0x80, "010007000000000001", BOTH_DISCARD, None),
    (40, 0xc0, "0100ff000000", BOTH_DISCARD, Some((BOTH_PASS, UNKNOWN))),
    (40, 0xc0, "0100", BOTH_DISCARD, Some((BOTH_PASS, UNKNOWN))),
    (40, 0xc0, "010000", BOTH_DISCARD, Some((BOTH_PASS, UNKNOWN))),
    // types that nobody has
    (253, 0x80, "deadbeef", BOTH_DISCARD, None),
    (254, 0xc0, "deadbeef", BOTH_PASS, None),
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn attribute(code: u8, flags: u8, hex: &str) -> Vec<u8> {
    let value = bytes(hex);
    [&[flags, code, u8::try_from(value.len()).unwrap()], value.as_slice()].concat()
}

/// The attribute in the place of a good one of its type, if that is one of the mandatory three.
fn outcome_of(case: &[u8], context: &UpdateContext) -> &'static str {
    let others = [ORIGIN, AS_PATH, NEXT_HOP].into_iter().filter(|good| good[1] != case[1]);
    let all: Vec<_> = others.chain([case]).collect();
    let update = Update::decode(&body(&[], &all, NLRI), context).unwrap();
    let Some(announced) = update.announced.first() else {
        assert_eq!(update.withdrawn, ["10.20.0.0/16".parse().unwrap()], "withdrawing must withdraw");
        return WITHDRAW;
    };
    if sends(&announced.attributes, case[1]) { PASS } else { DISCARD }
}

/// True if an attribute of this type leaves with the route.
fn sends(attributes: &Attributes, code: u8) -> bool {
    let mut out = Vec::new();
    encode_announcement(attributes, &["10.20.0.0/16".parse().unwrap()], &Encoding::FOUR_OCTET, &mut out)
        .unwrap();
    let length = usize::from(u16::from_be_bytes([out[21], out[22]]));
    Field::new(&out[23..23 + length]).iter().any(|raw| raw.code == code)
}

#[test]
fn one_by_one() {
    for (code, flags, value, theirs, ours) in CASES {
        let (external, internal) = ours.map_or(*theirs, |(ours, _)| ours);
        let case = attribute(*code, *flags, value);
        assert_eq!(outcome_of(&case, &EBGP), external, "eBGP {code} {flags:#x} {value}");
        assert_eq!(outcome_of(&case, &IBGP), internal, "iBGP {code} {flags:#x} {value}");
    }
}

#[test]
fn a_row_that_claims_to_differ_does() {
    let same = CASES.iter().find(|case| case.4.is_some_and(|(ours, _)| ours == case.3));
    assert_eq!(same, None);
}

/// FRR says 3/1 for the first three; RFC 4760 section 7 has a subcode for an incorrect MP attribute.
#[test]
fn multiprotocol_attributes_that_hide_their_prefixes() {
    for (code, value) in [
        // next hops of 9 octets, of 64 where 17 are left, of 16 where 8 are
        (14, "0002010920010db80000000000004020010db800000001"),
        (14, "0002014020010db800000000000000000000000100"),
        (14, "0002011020010db800000000"),
        // a /64 of four octets
        (15, "0002014020010db8"),
    ] {
        let case = attribute(code, 0x80, value);
        let refused = Update::decode(&body(&[], &[&case, ORIGIN, AS_PATH], &[]), &EBGP).unwrap_err();
        assert_eq!(refused, Notification::with_data(3, 9, case), "{value}");
    }
}
