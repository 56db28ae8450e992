//! What each attribute may look like and what becomes of a route whose attribute does not: one row for each type that we know.
//!
//! `docs/reference/bgp.md` shows the same table to operators.

use super::{
    attributes::{Raw, flag, kind},
    update::{Disposition, Peering, UpdateContext},
};

/// One row.
pub(super) struct Rule {
    pub(super) code: u8,
    /// The Optional and Transitive flags that it must have; others always mean treat-as-withdraw (RFC 7606 section 3 c).
    flags: u8,
    length: Length,
    /// What a wrong length means, and a value that means nothing.
    pub(super) malformed: Disposition,
    from: From,
}

/// Lengths of a value.
enum Length {
    Exactly(usize),
    /// That many, once or more often.
    MultipleOf(usize),
    /// An AS number as wide as the session has them, and that many.
    AsNumberAnd(usize),
    /// Its reader knows.
    Any,
}

/// From whom it is taken at all.
enum From {
    Anybody,
    /// From an external neighbor it is discarded, however it looks.
    Internal,
    /// From a two-octet speaker; from others it is discarded, however it looks (RFC 6793 section 4.1).
    TwoOctet,
}

use Disposition::{DiscardAttribute as DISCARD, TreatAsWithdraw as WITHDRAW};
use From::{Anybody, Internal, TwoOctet};
use Length::{Any, AsNumberAnd, Exactly, MultipleOf};

const WELL_KNOWN: u8 = flag::TRANSITIVE;
const OPTIONAL: u8 = flag::OPTIONAL;
const PASSED_ON: u8 = flag::OPTIONAL | flag::TRANSITIVE;

#[rustfmt::skip]
pub(super) const RULES: [Rule; 19] = [
    rule(kind::ORIGIN,                      WELL_KNOWN, Exactly(1),     WITHDRAW, Anybody),  // RFC 7606 section 7.1
    rule(kind::AS_PATH,                     WELL_KNOWN, Any,            WITHDRAW, Anybody),  // 7.2, RFC 7607, RFC 9774
    rule(kind::NEXT_HOP,                    WELL_KNOWN, Exactly(4),     WITHDRAW, Anybody),  // 7.3
    rule(kind::MED,                         OPTIONAL,   Exactly(4),     WITHDRAW, Anybody),  // 7.4
    rule(kind::LOCAL_PREF,                  WELL_KNOWN, Exactly(4),     WITHDRAW, Internal), // 7.5
    rule(kind::ATOMIC_AGGREGATE,            WELL_KNOWN, Exactly(0),     DISCARD,  Anybody),  // 7.6
    rule(kind::AGGREGATOR,                  PASSED_ON,  AsNumberAnd(4), DISCARD,  Anybody),  // 7.7, RFC 7607
    rule(kind::COMMUNITIES,                 PASSED_ON,  MultipleOf(4),  WITHDRAW, Anybody),  // 7.8
    rule(kind::ORIGINATOR_ID,               OPTIONAL,   Exactly(4),     WITHDRAW, Internal), // 7.9
    rule(kind::CLUSTER_LIST,                OPTIONAL,   MultipleOf(4),  WITHDRAW, Internal), // 7.10
    // Flags and lengths of these two that are wrong end the session (5.3, 7.11, 7.12), before this table is asked.
    rule(kind::MP_REACH,                    OPTIONAL,   Any,            WITHDRAW, Anybody),
    rule(kind::MP_UNREACH,                  OPTIONAL,   Any,            WITHDRAW, Anybody),
    rule(kind::EXTENDED_COMMUNITIES,        PASSED_ON,  MultipleOf(8),  WITHDRAW, Anybody),  // 7.14
    rule(kind::AS4_PATH,                    PASSED_ON,  Any,            DISCARD,  TwoOctet), // RFC 6793 section 6
    rule(kind::AS4_AGGREGATOR,              PASSED_ON,  Exactly(8),     DISCARD,  TwoOctet), // RFC 6793 section 6
    rule(kind::IPV6_EXTENDED_COMMUNITIES,   PASSED_ON,  MultipleOf(20), WITHDRAW, Anybody),  // 7.15
    rule(kind::AIGP,                        OPTIONAL,   Any,            DISCARD,  Anybody),  // RFC 7311 section 3.2
    rule(kind::LARGE_COMMUNITY,             PASSED_ON,  MultipleOf(12), WITHDRAW, Anybody),  // RFC 8092 section 6
    rule(kind::ONLY_TO_CUSTOMER,            PASSED_ON,  Exactly(4),     WITHDRAW, Anybody),  // RFC 9234 section 5
];

const fn rule(code: u8, flags: u8, length: Length, malformed: Disposition, from: From) -> Rule {
    Rule { code, flags, length, malformed, from }
}

/// The row of a type code.
pub(super) fn find(code: u8) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.code == code)
}

impl Rule {
    /// Judges everything but the value's meaning.
    pub(super) fn check(&self, raw: Raw<'_>, context: &UpdateContext) -> Result<(), (Disposition, String)> {
        match (&self.from, context.peering) {
            (Internal, Peering::External { .. }) => {
                return Err((DISCARD, "means nothing from an external neighbor".into()));
            }
            (TwoOctet, _) if context.four_octet => {
                return Err((DISCARD, "from a speaker that sends four octets anyway (RFC 6793)".into()));
            }
            _ => {}
        }
        if raw.flags & PASSED_ON != self.flags {
            // RFC 7311 section 3.2: AIGP with the Transitive flag is discarded; all others follow RFC 7606 section 3 c.
            let disposition = if self.code == kind::AIGP { DISCARD } else { WITHDRAW };
            return Err((disposition, format!("has flags {:#04x}", raw.flags)));
        }
        self.check_length(raw.value.len(), context)
    }

    fn check_length(&self, length: usize, context: &UpdateContext) -> Result<(), (Disposition, String)> {
        let asn = if context.four_octet { 4 } else { 2 };
        let fits = match self.length {
            Exactly(wanted) => length == wanted,
            AsNumberAnd(more) => length == asn + more,
            MultipleOf(unit) => length > 0 && length.is_multiple_of(unit),
            Any => true,
        };
        if fits { Ok(()) } else { Err((self.malformed, self.wrong_length(length, asn))) }
    }

    fn wrong_length(&self, length: usize, asn: usize) -> String {
        match self.length {
            MultipleOf(unit) => format!("is {length} octets, not a multiple of {unit}"),
            AsNumberAnd(more) => format!("is {length} octets, not {}", asn + more),
            Exactly(wanted) => format!("is {length} octets, not {wanted}"),
            Any => format!("is {length} octets"),
        }
    }
}

/// The registered name of an attribute.
pub(super) fn name(code: u8) -> &'static str {
    match code {
        1 => "ORIGIN",
        2 => "AS_PATH",
        3 => "NEXT_HOP",
        4 => "MULTI_EXIT_DISC",
        5 => "LOCAL_PREF",
        6 => "ATOMIC_AGGREGATE",
        7 => "AGGREGATOR",
        8 => "COMMUNITIES",
        9 => "ORIGINATOR_ID",
        10 => "CLUSTER_LIST",
        14 => "MP_REACH_NLRI",
        15 => "MP_UNREACH_NLRI",
        16 => "EXTENDED COMMUNITIES",
        17 => "AS4_PATH",
        18 => "AS4_AGGREGATOR",
        22 => "PMSI_TUNNEL",
        23 => "Tunnel Encapsulation",
        25 => "IPv6 EXTENDED COMMUNITIES",
        26 => "AIGP",
        32 => "LARGE_COMMUNITY",
        35 => "OTC",
        40 => "BGP Prefix-SID",
        128 => "ATTR_SET",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../../docs/reference/bgp.md");

    #[test]
    fn the_reference_page_has_every_row() {
        for rule in &RULES {
            let flags = match rule.flags {
                WELL_KNOWN => "well-known",
                OPTIONAL => "optional",
                _ => "optional transitive",
            };
            let row = format!("| {} | {} | {flags} |", rule.code, name(rule.code));
            assert!(PAGE.contains(&row), "{row}");
        }
    }

    #[test]
    fn rows_are_in_order_and_named() {
        assert!(RULES.is_sorted_by(|one, next| one.code < next.code));
        assert!(RULES.iter().all(|rule| name(rule.code) != "unknown"));
    }
}
