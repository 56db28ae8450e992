//! UPDATE (RFC 4271 section 4.3) under the error rules of RFC 7606.
//!
//! The prefixes are located before anything is judged, so that "treat as withdraw" has something to withdraw. Then, mildest first:
//! 1. discard the attribute: the route stands without it;
//! 2. treat as withdraw: the routes of this UPDATE go, the session stays;
//! 3. session reset: only when the prefixes cannot be found, or when an error worse than 1 stands beside no reachable prefix at all
//!    (section 5.2: then nothing says what it spoiled).

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use super::{
    AsPath, Attributes, Nlri, Notification, attribute_rules,
    attributes::{Collected, Field, Raw, flag, is_host, kind},
    code, nlri,
    reader::Reader,
};
use crate::{Families, Family};

/// Whether the neighbor is of our AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peering {
    /// Same AS.
    Internal,
    /// Another AS: this one.
    External {
        /// The neighbor's AS number.
        asn: u32,
    },
}

/// What was negotiated, as far as an UPDATE's meaning depends on it.
#[derive(Clone, Copy, Debug)]
pub struct UpdateContext {
    /// AS numbers in AS_PATH are four octets wide: both sides sent the capability.
    pub four_octet: bool,
    /// Kind of neighbor.
    pub peering: Peering,
    /// Families of the session; prefixes of others are ignored.
    pub families: Families,
    /// Families in which the neighbor puts a path identifier before each prefix (RFC 7911).
    pub add_path: Families,
    /// IPv4 prefixes may have an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
}

/// How a fault inside an UPDATE was dealt with; the worst one of a message counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disposition {
    /// The attribute is ignored.
    DiscardAttribute,
    /// The message's prefixes are withdrawn.
    TreatAsWithdraw,
}

/// A fault that did not end the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Type code of the attribute; 0 when it is about the message.
    pub attribute: u8,
    /// What was done.
    pub disposition: Disposition,
    /// What is wrong, to follow the attribute's number.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attribute {
            0 => f.write_str(&self.what),
            code => write!(f, "attribute {code} ({}) {}", attribute_rules::name(code), self.what),
        }
    }
}

/// Prefixes that share attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Their attributes.
    pub attributes: Attributes,
    /// At least one prefix, all of one family.
    pub prefixes: Vec<Nlri>,
}

/// What an UPDATE says, faults already dealt with. Withdrawals come before announcements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Prefixes to withdraw.
    pub withdrawn: Vec<Nlri>,
    /// At most one for each family.
    pub announced: Vec<Announcement>,
    /// The family whose initial dump is complete (RFC 4724 section 2).
    pub end_of_rib: Option<Family>,
    /// Faults, for the log.
    pub faults: Vec<Fault>,
}

impl Update {
    /// Decodes a message body.
    ///
    /// # Errors
    /// The NOTIFICATION to end the session with.
    pub fn decode(body: &[u8], context: &UpdateContext) -> Result<Self, Notification> {
        let mut reader = Reader::new(body);
        let withdrawn = reader.long_block().ok_or_else(malformed)?;
        let attributes = reader.long_block().ok_or_else(malformed)?;
        let field = Field::new(attributes);
        let located = Located::find(withdrawn, &field, reader.rest(), context)?;
        let mut judged = Judged::default();
        if !field.complete {
            judged.fault(0, Disposition::TreatAsWithdraw, "the last attribute runs past the attribute field");
        }
        // Beside MP_REACH alone NEXT_HOP says nothing (RFC 4760 section 3), so nothing it says is a fault.
        let relevant = |raw: &Raw<'_>| raw.code != kind::NEXT_HOP || !located.reached.is_empty();
        judged.collect(field.iter().filter(relevant), context);
        judged.check_mandatory(&located, context);
        judged.apply(located, field.count)
    }
}

fn malformed() -> Notification {
    Notification::new(code::UPDATE, code::update::ATTRIBUTE_LIST)
}

fn bad_network() -> Notification {
    Notification::new(code::UPDATE, code::update::NETWORK_FIELD)
}

fn bad_optional(raw: Raw<'_>) -> Notification {
    Notification::with_data(code::UPDATE, code::update::OPTIONAL_ATTRIBUTE, raw.to_data())
}

/// Every prefix of the message, wherever it stands.
#[derive(Default)]
struct Located {
    withdrawn: Vec<Nlri>,
    reached: Vec<Nlri>,
    mp_reached: Vec<Nlri>,
    mp_next_hop: Option<IpAddr>,
    mp_reach: bool,
    mp_unreach: Option<Family>,
    empty: bool,
}

impl Located {
    fn find(
        withdrawn: &[u8],
        field: &Field<'_>,
        reached: &[u8],
        context: &UpdateContext,
    ) -> Result<Self, Notification> {
        let path_ids = context.add_path.contains(Family::Ipv4Unicast);
        let prefixes = |field| nlri::decode(field, Family::Ipv4Unicast, path_ids).ok_or_else(bad_network);
        let mut located = Self {
            withdrawn: prefixes(withdrawn)?,
            reached: prefixes(reached)?,
            empty: withdrawn.is_empty() && field.count == 0 && reached.is_empty(),
            ..Self::default()
        };
        if !context.families.contains(Family::Ipv4Unicast) {
            located.withdrawn.clear();
            located.reached.clear();
        }
        if let Some(raw) = only_mp(field, kind::MP_UNREACH)? {
            located.add_mp_unreach(raw.value, context).ok_or_else(|| bad_optional(raw))?;
        }
        if let Some(raw) = only_mp(field, kind::MP_REACH)? {
            located.mp_reach = true;
            located.add_mp_reach(raw.value, context).ok_or_else(|| bad_optional(raw))?;
        }
        Ok(located)
    }

    /// `None`: it cannot be cut into prefixes.
    fn add_mp_unreach(&mut self, value: &[u8], context: &UpdateContext) -> Option<()> {
        let mut reader = Reader::new(value);
        let (afi, safi) = reader.u16().zip(reader.u8())?;
        let Some(family) = Family::from_codes(afi, safi).filter(|f| context.families.contains(*f)) else {
            return Some(());
        };
        let prefixes = nlri::decode(reader.rest(), family, context.add_path.contains(family))?;
        self.mp_unreach = prefixes.is_empty().then_some(family);
        self.withdrawn.extend(prefixes);
        Some(())
    }

    /// `None`: it cannot be cut into prefixes, or its next hop has a length that the family does not have.
    fn add_mp_reach(&mut self, value: &[u8], context: &UpdateContext) -> Option<()> {
        let mut reader = Reader::new(value);
        let (afi, safi) = reader.u16().zip(reader.u8())?;
        let next_hop = reader.short_block()?;
        let _reserved = reader.u8()?;
        let Some(family) = Family::from_codes(afi, safi).filter(|f| context.families.contains(*f)) else {
            return Some(());
        };
        let path_ids = context.add_path.contains(family);
        self.mp_reached = nlri::decode(reader.rest(), family, path_ids)?;
        let extended = context.extended_next_hop;
        self.mp_next_hop = mp_next_hop(family, next_hop, extended)?;
        Some(())
    }

    fn reaches_something(&self) -> bool {
        self.mp_reach || !self.reached.is_empty()
    }

    /// The two ways to say End-of-RIB: nothing at all, or an MP_UNREACH_NLRI of nothing and nothing else.
    fn end_of_rib(&self, attributes: usize) -> Option<Family> {
        match self.mp_unreach {
            Some(family) if attributes == 1 && self.withdrawn.is_empty() && !self.reaches_something() => {
                Some(family)
            }
            None if self.empty => Some(Family::Ipv4Unicast),
            _ => None,
        }
    }
}

/// The MP attribute of this type. Of these two RFC 7606 forgives neither a second one (section 3 g) nor wrong flags (section 5.3): who
/// sent them made them itself, for they are not transitive. The answer is that of RFC 4760 section 7.
fn only_mp<'a>(field: &Field<'a>, code: u8) -> Result<Option<Raw<'a>>, Notification> {
    let mut found = field.iter().filter(|raw| raw.code == code);
    let first = found.next();
    if found.next().is_some() {
        return Err(malformed());
    }
    match first {
        Some(raw) if raw.flags & (flag::OPTIONAL | flag::TRANSITIVE) != flag::OPTIONAL => {
            Err(bad_optional(raw))
        }
        first => Ok(first),
    }
}

/// `None`: a length that the family cannot have. `Some(None)`: no address that a packet could be sent to.
fn mp_next_hop(family: Family, field: &[u8], extended: bool) -> Option<Option<IpAddr>> {
    match (family, field.len()) {
        (Family::Ipv4Unicast, 4) => {
            let address = std::net::Ipv4Addr::from(<[u8; 4]>::try_from(field).ok()?);
            Some(is_host(address).then_some(address.into()))
        }
        (Family::Ipv4Unicast, 16 | 32) if extended => Some(ipv6_next_hop(field)),
        (Family::Ipv6Unicast, 16 | 32) => Some(ipv6_next_hop(field)),
        _ => None,
    }
}

/// The global address, or else the link-local one, of the forms that are in use: one address of either kind, a global and a
/// link-local one (RFC 2545 section 3), and, where there is no global, `::` or the link-local one in its place.
fn ipv6_next_hop(field: &[u8]) -> Option<IpAddr> {
    let (addresses, _) = field.as_chunks::<16>();
    let usable = addresses.iter().map(|octets| Ipv6Addr::from(*octets)).filter(is_host_v6);
    usable.min_by_key(|address| address.is_unicast_link_local()).map(IpAddr::V6)
}

fn is_host_v6(address: &Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}

/// Attributes and the worst that was found about them.
#[derive(Default)]
struct Judged {
    collected: Collected,
    faults: Vec<Fault>,
    worst: Option<Disposition>,
}

impl Judged {
    fn fault(&mut self, attribute: u8, disposition: Disposition, what: impl Into<String>) {
        self.worst = self.worst.max(Some(disposition));
        self.faults.push(Fault { attribute, disposition, what: what.into() });
    }

    fn collect<'a>(&mut self, raws: impl Iterator<Item = Raw<'a>>, context: &UpdateContext) {
        let mut seen = [false; 256];
        for raw in raws {
            if std::mem::replace(&mut seen[usize::from(raw.code)], true) {
                self.fault(raw.code, Disposition::DiscardAttribute, "appears again; the first counts");
                continue;
            }
            if let Err((disposition, what)) = self.collected.add(raw, context) {
                self.fault(raw.code, disposition, what);
            }
        }
    }

    /// RFC 7606 section 3 (d). Whose number is first on the path is not judged here: a route server's need not be (RFC 7947 section 2.2.2.1).
    fn check_mandatory(&mut self, located: &Located, context: &UpdateContext) {
        if !located.reaches_something() {
            return;
        }
        if self.collected.origin.is_none() && !self.blamed(kind::ORIGIN) {
            self.fault(kind::ORIGIN, Disposition::TreatAsWithdraw, "is missing");
        }
        let external = context.peering != Peering::Internal;
        match self.collected.as_path.as_ref().map(AsPath::is_empty) {
            None if !self.blamed(kind::AS_PATH) => {
                self.fault(kind::AS_PATH, Disposition::TreatAsWithdraw, "is missing");
            }
            Some(true) if external => {
                self.fault(kind::AS_PATH, Disposition::TreatAsWithdraw, "is empty, from another AS");
            }
            _ => {}
        }
    }

    fn blamed(&self, attribute: u8) -> bool {
        self.faults.iter().any(|fault| fault.attribute == attribute)
    }

    fn apply(mut self, mut located: Located, attributes: usize) -> Result<Update, Notification> {
        let spoiled = self.worst == Some(Disposition::TreatAsWithdraw);
        if spoiled && !located.reaches_something() {
            return Err(malformed());
        }
        let end_of_rib = located.end_of_rib(attributes);
        let mp_next_hop = located.mp_next_hop.take();
        let next_hop = self.collected.next_hop.map(IpAddr::V4);
        let mut announced = Vec::new();
        let mut attributes = std::mem::take(&mut self.collected).finish().filter(|_| !spoiled);
        let both = !located.reached.is_empty() && !located.mp_reached.is_empty();
        for (prefixes, next_hop, missing) in [
            (std::mem::take(&mut located.reached), next_hop, kind::NEXT_HOP),
            (std::mem::take(&mut located.mp_reached), mp_next_hop, kind::MP_REACH),
        ] {
            if prefixes.is_empty() {
                continue;
            }
            if next_hop.is_none() && !self.blamed(missing) {
                self.fault(missing, Disposition::TreatAsWithdraw, "gives no usable next hop");
            }
            // Each kind of NLRI has its own next hop and never borrows the other's.
            let common = if both { attributes.clone() } else { attributes.take() };
            match common.zip(next_hop) {
                Some((mut attributes, next_hop)) => {
                    attributes.next_hop = next_hop;
                    announced.push(Announcement { attributes, prefixes });
                }
                None => located.withdrawn.extend(prefixes),
            }
        }
        Ok(Update { withdrawn: located.withdrawn, announced, end_of_rib, faults: self.faults })
    }
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;
