//! Path attributes as types, and how each one's value is read (RFC 4271 section 5, RFC 7606 section 7).

use std::{
    collections::HashSet,
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use super::{
    as_path::{AsPath, PathFault},
    reader::Reader,
    update::{Disposition, Peering, UpdateContext},
};

/// Attribute flags (RFC 4271 section 4.3).
pub(super) mod flag {
    pub(in crate::wire) const OPTIONAL: u8 = 0x80;
    pub(in crate::wire) const TRANSITIVE: u8 = 0x40;
    pub(in crate::wire) const PARTIAL: u8 = 0x20;
    pub(in crate::wire) const EXTENDED_LENGTH: u8 = 0x10;
    /// The four that mean something.
    pub(in crate::wire) const ALL: u8 = 0xf0;
}

/// Attribute type codes.
pub(super) mod kind {
    pub(in crate::wire) const ORIGIN: u8 = 1;
    pub(in crate::wire) const AS_PATH: u8 = 2;
    pub(in crate::wire) const NEXT_HOP: u8 = 3;
    pub(in crate::wire) const MED: u8 = 4;
    pub(in crate::wire) const LOCAL_PREF: u8 = 5;
    pub(in crate::wire) const ATOMIC_AGGREGATE: u8 = 6;
    pub(in crate::wire) const AGGREGATOR: u8 = 7;
    pub(in crate::wire) const COMMUNITIES: u8 = 8;
    pub(in crate::wire) const ORIGINATOR_ID: u8 = 9;
    pub(in crate::wire) const CLUSTER_LIST: u8 = 10;
    pub(in crate::wire) const MP_REACH: u8 = 14;
    pub(in crate::wire) const MP_UNREACH: u8 = 15;
    pub(in crate::wire) const AS4_PATH: u8 = 17;
    pub(in crate::wire) const AS4_AGGREGATOR: u8 = 18;
    pub(in crate::wire) const LARGE_COMMUNITY: u8 = 32;
    pub(in crate::wire) const ONLY_TO_CUSTOMER: u8 = 35;
}

/// How a route came into BGP; smaller is better (RFC 4271 section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// From inside its AS.
    Igp,
    /// From EGP.
    Egp,
    /// By other means.
    Incomplete,
}

impl Origin {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Igp => 0,
            Self::Egp => 1,
            Self::Incomplete => 2,
        }
    }
}

/// A community (RFC 1997).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Community(pub u32);

impl Community {
    /// The link is about to go down: any other way is better (RFC 8326).
    pub const GRACEFUL_SHUTDOWN: Self = Self(0xffff_0000);
    /// Not beyond this AS (or confederation).
    pub const NO_EXPORT: Self = Self(0xffff_ff01);
    /// To no peer at all.
    pub const NO_ADVERTISE: Self = Self(0xffff_ff02);
    /// Not to external peers.
    pub const NO_EXPORT_SUBCONFED: Self = Self(0xffff_ff03);
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::GRACEFUL_SHUTDOWN => f.write_str("graceful-shutdown"),
            Self::NO_EXPORT => f.write_str("no-export"),
            Self::NO_ADVERTISE => f.write_str("no-advertise"),
            Self::NO_EXPORT_SUBCONFED => f.write_str("no-export-subconfed"),
            Self(value) => write!(f, "{}:{}", value >> 16, value & 0xffff),
        }
    }
}

/// Who made an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aggregator {
    /// Its AS.
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
}

/// An optional transitive attribute that this speaker does not know: passed on with its value untouched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Opaque {
    /// Attribute flags, Partial set (RFC 4271 section 5).
    pub flags: u8,
    /// Type code.
    pub code: u8,
    /// Value, byte for byte.
    pub value: Vec<u8>,
}

/// A large community (RFC 8092): administrator, and two numbers that mean what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeCommunity(pub u32, pub u32, pub u32);

impl LargeCommunity {
    pub(super) fn octets(self) -> [u8; 12] {
        let [a, b, c] = [self.0, self.1, self.2].map(u32::to_be_bytes);
        [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3]]
    }

    pub(super) fn from_octets([a, b, c, d, e, f, g, h, i, j, k, l]: [u8; 12]) -> Self {
        let number = |octets| u32::from_be_bytes(octets);
        Self(number([a, b, c, d]), number([e, f, g, h]), number([i, j, k, l]))
    }
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.0, self.1, self.2)
    }
}

/// The attributes of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// ORIGIN.
    pub origin: Origin,
    /// AS_PATH, with AS4_PATH already merged in.
    pub as_path: AsPath,
    /// NEXT_HOP, or that of MP_REACH_NLRI: the global address, or the link-local one where there is no global.
    pub next_hop: IpAddr,
    /// MULTI_EXIT_DISC; absent counts as 0, the best.
    pub med: Option<u32>,
    /// LOCAL_PREF; absent counts as 100.
    pub local_pref: Option<u32>,
    /// COMMUNITIES, in the order of the message.
    pub communities: Box<[Community]>,
    /// `None` stands for all of them being absent, and never for anything else, so that equal attributes are equal.
    rare: Option<Box<Rare>>,
}

/// Attributes that few routes have: kept apart, so that the many do not pay for their room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rare {
    /// ATOMIC_AGGREGATE.
    pub atomic_aggregate: bool,
    /// AGGREGATOR.
    pub aggregator: Option<Aggregator>,
    /// ORIGINATOR_ID (RFC 4456): who brought the route into this AS, if a reflector passed it on.
    pub originator_id: Option<Ipv4Addr>,
    /// CLUSTER_LIST (RFC 4456).
    pub cluster_list: Vec<Ipv4Addr>,
    /// LARGE_COMMUNITY (RFC 8092), in the order of the message.
    pub large_communities: Vec<LargeCommunity>,
    /// Only to Customer (RFC 9234): the AS that said so.
    pub only_to_customer: Option<u32>,
    /// Everything else that must travel on.
    pub opaque: Vec<Opaque>,
    /// Which of the attributes in [`PARTIAL`] came with that flag: it never goes away again (RFC 4271 section 4.3).
    partial: u8,
}

/// Attributes that we know, and that somebody on the way may not have known.
const PARTIAL: [u8; 4] = [kind::AGGREGATOR, kind::COMMUNITIES, kind::LARGE_COMMUNITY, kind::ONLY_TO_CUSTOMER];

impl Rare {
    const NONE: Self = Self {
        atomic_aggregate: false,
        aggregator: None,
        originator_id: None,
        cluster_list: Vec::new(),
        large_communities: Vec::new(),
        only_to_customer: None,
        opaque: Vec::new(),
        partial: 0,
    };

    /// The Partial flag of an attribute in [`PARTIAL`], if it came with it.
    pub(super) fn partial_flag(&self, code: u8) -> u8 {
        if self.partial & partial_bit(code) == 0 { 0 } else { flag::PARTIAL }
    }
}

fn partial_bit(code: u8) -> u8 {
    PARTIAL.iter().position(|known| *known == code).map_or(0, |index| 1 << index)
}

impl Attributes {
    /// What a route has when it starts here.
    pub fn originated(next_hop: IpAddr) -> Self {
        Self {
            origin: Origin::Igp,
            as_path: AsPath::default(),
            next_hop,
            med: None,
            local_pref: None,
            communities: Box::default(),
            rare: None,
        }
    }

    /// The attributes that few routes have.
    pub fn rare(&self) -> &Rare {
        static NONE: Rare = Rare::NONE;
        self.rare.as_deref().unwrap_or(&NONE)
    }

    /// Changes them.
    pub fn change_rare(&mut self, change: impl FnOnce(&mut Rare)) {
        let mut rare = self.rare.take().unwrap_or_default();
        change(&mut rare);
        self.rare = (*rare != Rare::NONE).then_some(rare);
    }
}

/// One attribute, its value not yet looked at.
#[derive(Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) flags: u8,
    pub(super) code: u8,
    pub(super) value: &'a [u8],
}

/// Cuts the attribute field; false when its end does not fall on an attribute's end (RFC 7606 section 4).
pub(super) fn walk(field: &[u8]) -> (Vec<Raw<'_>>, bool) {
    let mut reader = Reader::new(field);
    let mut found = Vec::new();
    while !reader.is_empty() {
        match one(&mut reader) {
            Some(raw) => found.push(raw),
            None => return (found, false),
        }
    }
    (found, true)
}

fn one<'a>(reader: &mut Reader<'a>) -> Option<Raw<'a>> {
    let (flags, code) = (reader.u8()?, reader.u8()?);
    let extended = flags & flag::EXTENDED_LENGTH != 0;
    let value = if extended { reader.long_block() } else { reader.short_block() }?;
    Some(Raw { flags: flags & flag::ALL, code, value })
}

/// Attributes while they are collected.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) origin: Option<Origin>,
    pub(super) as_path: Option<AsPath>,
    as4_path: Option<AsPath>,
    pub(super) next_hop: Option<Ipv4Addr>,
    med: Option<u32>,
    local_pref: Option<u32>,
    as4_aggregator: Option<Aggregator>,
    communities: Box<[Community]>,
    rare: Rare,
}

type Verdict = Result<(), (Disposition, String)>;

fn discard(why: impl Into<String>) -> Verdict {
    Err((Disposition::DiscardAttribute, why.into()))
}

fn withdraw(why: impl Into<String>) -> Verdict {
    Err((Disposition::TreatAsWithdraw, why.into()))
}

impl Collected {
    /// Takes one attribute in. MP_REACH_NLRI and MP_UNREACH_NLRI are not for here: their prefixes are located first.
    pub(super) fn add(&mut self, raw: Raw<'_>, context: &UpdateContext) -> Verdict {
        let external = matches!(context.peering, Peering::External { .. });
        if external && matches!(raw.code, kind::LOCAL_PREF | kind::ORIGINATOR_ID | kind::CLUSTER_LIST) {
            return discard("means nothing from an external neighbor");
        }
        check_flags(raw)?;
        if raw.flags & flag::PARTIAL != 0 {
            self.rare.partial |= partial_bit(raw.code);
        }
        match raw.code {
            kind::ORIGIN => self.add_origin(raw.value),
            kind::AS_PATH => self.add_as_path(raw.value, context),
            kind::NEXT_HOP => self.add_next_hop(raw.value),
            kind::MED => number(raw.value).map(|med| self.med = Some(med)),
            kind::LOCAL_PREF => number(raw.value).map(|preference| self.local_pref = Some(preference)),
            kind::ATOMIC_AGGREGATE if raw.value.is_empty() => {
                self.rare.atomic_aggregate = true;
                Ok(())
            }
            kind::ATOMIC_AGGREGATE => discard("has a value"),
            kind::AGGREGATOR => {
                aggregator(raw.value, context.four_octet).map(|found| self.rare.aggregator = Some(found))
            }
            kind::COMMUNITIES => {
                numbers(raw.value).map(|all| self.communities = all.map(Community).collect())
            }
            kind::ORIGINATOR_ID => number(raw.value).map(|id| self.rare.originator_id = Some(id.into())),
            kind::CLUSTER_LIST => {
                numbers(raw.value).map(|all| self.rare.cluster_list = all.map(Ipv4Addr::from).collect())
            }
            kind::AS4_PATH | kind::AS4_AGGREGATOR if context.four_octet => {
                discard("from a speaker that sends four octets anyway (RFC 6793 section 4.1)")
            }
            kind::AS4_PATH => self.add_as4_path(raw.value),
            kind::LARGE_COMMUNITY => self.add_large_communities(raw.value),
            kind::ONLY_TO_CUSTOMER => number(raw.value).map(|asn| self.rare.only_to_customer = Some(asn)),
            kind::AS4_AGGREGATOR => {
                aggregator(raw.value, true).map(|found| self.as4_aggregator = Some(found))
            }
            _ => self.add_unknown(raw),
        }
    }

    fn add_origin(&mut self, value: &[u8]) -> Verdict {
        self.origin = Some(match value {
            [0] => Origin::Igp,
            [1] => Origin::Egp,
            [2] => Origin::Incomplete,
            _ => return withdraw("is not one of IGP, EGP, INCOMPLETE"),
        });
        Ok(())
    }

    fn add_as_path(&mut self, value: &[u8], context: &UpdateContext) -> Verdict {
        let path = AsPath::decode(value, context.four_octet);
        self.as_path = Some(path.map_err(|fault| (Disposition::TreatAsWithdraw, fault.to_string()))?);
        Ok(())
    }

    fn add_as4_path(&mut self, value: &[u8]) -> Verdict {
        match AsPath::decode(value, true) {
            Ok(path) if !path.is_empty() => self.as4_path = Some(path),
            Ok(_) => return discard("is empty"),
            Err(PathFault::Set) => return withdraw(PathFault::Set.to_string()),
            Err(fault) => return discard(fault.to_string()),
        }
        Ok(())
    }

    fn add_next_hop(&mut self, value: &[u8]) -> Verdict {
        let Ok(octets) = <[u8; 4]>::try_from(value) else { return withdraw("is not four octets") };
        let address = Ipv4Addr::from(octets);
        if !is_host(address) {
            return withdraw(format!("{address} is not a host"));
        }
        self.next_hop = Some(address);
        Ok(())
    }

    /// RFC 8092 section 3 and 6.
    fn add_large_communities(&mut self, value: &[u8]) -> Verdict {
        let (chunks, rest) = value.as_chunks::<12>();
        if chunks.is_empty() || !rest.is_empty() {
            return withdraw(format!("is {} octets, not a multiple of twelve", value.len()));
        }
        let mut seen = HashSet::with_capacity(chunks.len());
        let all = chunks.iter().map(|chunk| LargeCommunity::from_octets(*chunk));
        self.rare.large_communities = all.filter(|community| seen.insert(*community)).collect();
        Ok(())
    }

    fn add_unknown(&mut self, raw: Raw<'_>) -> Verdict {
        if raw.flags & flag::OPTIONAL == 0 {
            return withdraw("is well-known to the sender but not to us");
        }
        if raw.flags & flag::TRANSITIVE != 0 {
            let Raw { flags, code, value } = raw;
            self.rare.opaque.push(Opaque { flags: flags | flag::PARTIAL, code, value: value.to_vec() });
        }
        Ok(())
    }

    /// The attributes of the prefixes with this next hop; `None` if a mandatory one is missing.
    pub(super) fn finished(&self, next_hop: IpAddr) -> Option<Attributes> {
        // An aggregate made by a two-octet speaker: what came in four octets is older than it (RFC 6793 section 4.2.3).
        let stale =
            self.rare.aggregator.is_some_and(|a| self.as4_aggregator.is_some() && a.asn != crate::AS_TRANS);
        let as4_path = self.as4_path.clone().filter(|_| !stale);
        let as4_aggregator = self.as4_aggregator.filter(|_| !stale && self.rare.aggregator.is_some());
        let mut attributes = Attributes {
            origin: self.origin?,
            as_path: self.as_path.clone()?.merged(as4_path),
            next_hop,
            med: self.med,
            local_pref: self.local_pref,
            communities: self.communities.clone(),
            rare: None,
        };
        attributes.change_rare(|rare| {
            rare.clone_from(&self.rare);
            rare.aggregator = as4_aggregator.or(self.rare.aggregator);
        });
        Some(attributes)
    }
}

/// RFC 7606 section 3 (c): wrong Optional or Transitive flag on a known attribute.
pub(super) fn check_flags(raw: Raw<'_>) -> Verdict {
    let expected = match raw.code {
        kind::ORIGIN | kind::AS_PATH | kind::NEXT_HOP | kind::LOCAL_PREF | kind::ATOMIC_AGGREGATE => {
            flag::TRANSITIVE
        }
        kind::AGGREGATOR
        | kind::COMMUNITIES
        | kind::AS4_PATH
        | kind::AS4_AGGREGATOR
        | kind::LARGE_COMMUNITY
        | kind::ONLY_TO_CUSTOMER => flag::OPTIONAL | flag::TRANSITIVE,
        kind::MED | kind::ORIGINATOR_ID | kind::CLUSTER_LIST | kind::MP_REACH | kind::MP_UNREACH => {
            flag::OPTIONAL
        }
        _ => return Ok(()),
    };
    if raw.flags & (flag::OPTIONAL | flag::TRANSITIVE) == expected {
        return Ok(());
    }
    withdraw(format!("has flags {:#04x}", raw.flags))
}

/// An address that packets can be sent to.
pub(super) fn is_host(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first < 224
}

fn number(value: &[u8]) -> Result<u32, (Disposition, String)> {
    let octets: [u8; 4] = value
        .try_into()
        .map_err(|_| (Disposition::TreatAsWithdraw, format!("is {} octets, not four", value.len())))?;
    Ok(u32::from_be_bytes(octets))
}

fn numbers(value: &[u8]) -> Result<impl Iterator<Item = u32>, (Disposition, String)> {
    let (chunks, rest) = value.as_chunks::<4>();
    if chunks.is_empty() || !rest.is_empty() {
        return Err((
            Disposition::TreatAsWithdraw,
            format!("is {} octets, not a multiple of four", value.len()),
        ));
    }
    Ok(chunks.iter().map(|chunk| u32::from_be_bytes(*chunk)))
}

fn aggregator(value: &[u8], four_octet: bool) -> Result<Aggregator, (Disposition, String)> {
    let mut reader = Reader::new(value);
    let asn = if four_octet { reader.u32() } else { reader.u16().map(u32::from) };
    match (asn, reader.u32()) {
        (Some(asn), Some(id)) if asn != 0 && reader.is_empty() => {
            Ok(Aggregator { asn, router_id: id.into() })
        }
        _ => Err((Disposition::DiscardAttribute, "has a wrong length or AS 0".into())),
    }
}
