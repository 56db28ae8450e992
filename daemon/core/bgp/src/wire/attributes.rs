//! Path attributes as types, and how each one's value is read (RFC 4271 section 5, RFC 7606 section 7).

use std::{
    collections::HashSet,
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use super::{
    as_path::{AsPath, PathFault},
    attribute_rules,
    reader::Reader,
    update::{Disposition, UpdateContext},
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
    pub(in crate::wire) const EXTENDED_COMMUNITIES: u8 = 16;
    pub(in crate::wire) const AS4_PATH: u8 = 17;
    pub(in crate::wire) const AS4_AGGREGATOR: u8 = 18;
    pub(in crate::wire) const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
    pub(in crate::wire) const AIGP: u8 = 26;
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

impl Raw<'_> {
    /// The attribute as a NOTIFICATION quotes it (RFC 4271 section 6.3).
    pub(super) fn to_data(self) -> Vec<u8> {
        let length = self.value.len();
        let mut data = Vec::with_capacity(4 + length);
        match u8::try_from(length) {
            Ok(short) if self.flags & flag::EXTENDED_LENGTH == 0 => {
                data.extend_from_slice(&[self.flags, self.code, short]);
            }
            _ => {
                data.extend_from_slice(&[self.flags | flag::EXTENDED_LENGTH, self.code]);
                // Its own length field had two octets at most.
                data.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
            }
        }
        data.extend_from_slice(self.value);
        data
    }
}

/// The attribute field, cut at every attribute's end as far as that goes.
pub(super) struct Field<'a> {
    whole: &'a [u8],
    /// Its end falls on an attribute's end (RFC 7606 section 4).
    pub(super) complete: bool,
    /// Attributes in it.
    pub(super) count: usize,
}

impl<'a> Field<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut reader = Reader::new(bytes);
        let (mut count, mut end) = (0, 0);
        while one(&mut reader).is_some() {
            count += 1;
            end = bytes.len() - reader.len();
        }
        Self { whole: &bytes[..end], complete: end == bytes.len(), count }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Raw<'a>> + use<'a> {
        let mut reader = Reader::new(self.whole);
        std::iter::from_fn(move || one(&mut reader))
    }
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
    /// Takes one attribute in, after its row of the table allows it. The prefixes of MP_REACH_NLRI and MP_UNREACH_NLRI are located
    /// elsewhere, and first.
    pub(super) fn add(&mut self, raw: Raw<'_>, context: &UpdateContext) -> Verdict {
        let Some(rule) = attribute_rules::find(raw.code) else { return self.add_unknown(raw) };
        rule.check(raw, context)?;
        if raw.flags & flag::PARTIAL != 0 {
            self.rare.partial |= partial_bit(raw.code);
        }
        self.read(raw, context)
    }

    /// Reads a value whose length is right.
    fn read(&mut self, raw: Raw<'_>, context: &UpdateContext) -> Verdict {
        let value = raw.value;
        match raw.code {
            kind::ORIGIN => return self.add_origin(value),
            kind::AS_PATH => return self.add_as_path(value, context),
            kind::NEXT_HOP => return self.add_next_hop(value),
            kind::MED => self.med = number(value),
            kind::LOCAL_PREF => self.local_pref = number(value),
            kind::ATOMIC_AGGREGATE => self.rare.atomic_aggregate = true,
            kind::AGGREGATOR => self.rare.aggregator = Some(aggregator(value, context.four_octet)?),
            kind::COMMUNITIES => self.communities = numbers(value).map(Community).collect(),
            kind::ORIGINATOR_ID => self.rare.originator_id = number(value).map(Ipv4Addr::from),
            kind::CLUSTER_LIST => self.rare.cluster_list = numbers(value).map(Ipv4Addr::from).collect(),
            kind::EXTENDED_COMMUNITIES | kind::IPV6_EXTENDED_COMMUNITIES => self.pass_on(raw, 0),
            kind::AS4_PATH => return self.add_as4_path(value),
            kind::AS4_AGGREGATOR => self.as4_aggregator = Some(aggregator(value, true)?),
            kind::LARGE_COMMUNITY => self.add_large_communities(value),
            kind::ONLY_TO_CUSTOMER => self.rare.only_to_customer = number(value),
            // The prefixes are located elsewhere; AIGP goes no further than the neighbor meant it to.
            _ => {}
        }
        Ok(())
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
        match AsPath::decode_as4(value) {
            Ok(path) if !path.is_empty() => self.as4_path = Some(path),
            Ok(_) => return discard("is empty"),
            Err(PathFault::Set) => return withdraw(PathFault::Set.to_string()),
            Err(fault) => return discard(fault.to_string()),
        }
        Ok(())
    }

    fn add_next_hop(&mut self, value: &[u8]) -> Verdict {
        let Some(address) = number(value).map(Ipv4Addr::from) else { return withdraw("is too short") };
        if !is_host(address) {
            return withdraw(format!("{address} is not a host"));
        }
        self.next_hop = Some(address);
        Ok(())
    }

    /// Each once (RFC 8092 section 3).
    fn add_large_communities(&mut self, value: &[u8]) {
        let (chunks, _) = value.as_chunks::<12>();
        let mut seen = HashSet::with_capacity(chunks.len());
        let all = chunks.iter().map(|chunk| LargeCommunity::from_octets(*chunk));
        self.rare.large_communities = all.filter(|community| seen.insert(*community)).collect();
    }

    /// RFC 4271 section 6.3 ends the session over a well-known attribute that is none. We only take the routes back: the prefixes are
    /// found, and whoever made the attribute up need not be the neighbor (the reasoning of RFC 7606 section 3 c).
    fn add_unknown(&mut self, raw: Raw<'_>) -> Verdict {
        if raw.flags & flag::OPTIONAL == 0 {
            return withdraw("is well-known to the sender but not to us");
        }
        if raw.flags & flag::TRANSITIVE != 0 {
            self.pass_on(raw, flag::PARTIAL);
        }
        Ok(())
    }

    fn pass_on(&mut self, raw: Raw<'_>, flags: u8) {
        let opaque = Opaque { flags: raw.flags | flags, code: raw.code, value: raw.value.to_vec() };
        self.rare.opaque.push(opaque);
    }

    /// The attributes, with a next hop that is still to be set; `None` if a mandatory one is missing.
    pub(super) fn finish(mut self) -> Option<Attributes> {
        // An aggregate made by a two-octet speaker: what came in four octets is older than it (RFC 6793 section 4.2.3).
        let made = self.rare.aggregator;
        let stale = made.is_some_and(|made| self.as4_aggregator.is_some() && made.asn != crate::AS_TRANS);
        let as4_path = self.as4_path.filter(|_| !stale);
        let as4_aggregator = self.as4_aggregator.filter(|_| !stale && made.is_some());
        self.rare.aggregator = as4_aggregator.or(made);
        Some(Attributes {
            origin: self.origin?,
            as_path: self.as_path?.merged(as4_path),
            next_hop: Ipv4Addr::UNSPECIFIED.into(),
            med: self.med,
            local_pref: self.local_pref,
            communities: self.communities,
            rare: (self.rare != Rare::NONE).then(|| Box::new(self.rare)),
        })
    }
}

/// An address that packets can be sent to.
pub(super) fn is_host(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first < 224
}

fn number(value: &[u8]) -> Option<u32> {
    Reader::new(value).u32()
}

fn numbers(value: &[u8]) -> impl Iterator<Item = u32> {
    let (chunks, _) = value.as_chunks::<4>();
    chunks.iter().map(|chunk| u32::from_be_bytes(*chunk))
}

fn aggregator(value: &[u8], four_octet: bool) -> Result<Aggregator, (Disposition, String)> {
    let mut reader = Reader::new(value);
    let asn = if four_octet { reader.u32() } else { reader.u16().map(u32::from) };
    match (asn, reader.u32()) {
        (Some(asn), Some(id)) if asn != 0 => Ok(Aggregator { asn, router_id: id.into() }),
        _ => Err((Disposition::DiscardAttribute, "is of AS 0 (RFC 7607)".into())),
    }
}
