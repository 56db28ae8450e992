//! UPDATE messages out: as many prefixes as fit into one message (RFC 4271 section 4.3).

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::{
    Attributes, EncodeError, HEADER_LENGTH, MAX_MESSAGE_LENGTH, MessageType,
    as_path::two_octets,
    attributes::{flag, kind},
    encode_message, nlri,
};
use crate::{AS_TRANS, Family};

/// Octets for the two length fields of an UPDATE.
const LENGTH_FIELDS: usize = 4;
/// Room in an UPDATE for attributes and prefixes.
const ROOM: usize = MAX_MESSAGE_LENGTH - HEADER_LENGTH - LENGTH_FIELDS;
/// Flags, type and an extended length.
const ATTRIBUTE_HEADER: usize = 4;

/// Appends one UPDATE that announces the first prefixes of `prefixes` (all of one family); returns how many, at least one unless
/// there are none.
///
/// # Errors
/// The attributes leave no room for a single prefix, or the next hop is not of the prefixes' family.
pub fn encode_announcement(
    attributes: &Attributes,
    prefixes: &[IpNet],
    four_octet: bool,
    out: &mut Vec<u8>,
) -> Result<usize, EncodeError> {
    let Some(family) = prefixes.first().map(Family::of) else { return Ok(0) };
    let common = common_attributes(attributes, four_octet)?;
    let (head, mut block) = match (family, attributes.next_hop) {
        (Family::Ipv4Unicast, IpAddr::V4(next_hop)) => (Vec::new(), with_next_hop(common, next_hop)?),
        (Family::Ipv6Unicast, IpAddr::V6(next_hop)) => {
            let mut head = vec![0, 2, 1, 16];
            head.extend_from_slice(&next_hop.octets());
            head.push(0);
            (head, common)
        }
        _ => return Err(EncodeError { what: "next hop of the other family", length: 0, limit: 0 }),
    };
    let overhead = block.len() + if head.is_empty() { 0 } else { ATTRIBUTE_HEADER + head.len() };
    let room = ROOM.saturating_sub(overhead);
    let (count, field) = pack(prefixes, room);
    if count == 0 {
        return Err(EncodeError { what: "attributes", length: overhead, limit: ROOM });
    }
    let mut trailing = Vec::new();
    if head.is_empty() {
        trailing = field;
    } else {
        let mut reach = Vec::new();
        put(flag::OPTIONAL | flag::EXTENDED_LENGTH, kind::MP_REACH, &[head, field].concat(), &mut reach)?;
        reach.extend(block);
        block = reach;
    }
    update(&[], &block, &trailing, out)?;
    Ok(count)
}

/// Appends one UPDATE that withdraws the first prefixes of `prefixes` (all of one family); returns how many.
///
/// # Errors
/// None in practice: a message has room for at least one prefix.
pub fn encode_withdrawal(prefixes: &[IpNet], out: &mut Vec<u8>) -> Result<usize, EncodeError> {
    let Some(family) = prefixes.first().map(Family::of) else { return Ok(0) };
    match family {
        Family::Ipv4Unicast => {
            let (count, field) = pack(prefixes, ROOM);
            update(&field, &[], &[], out)?;
            Ok(count)
        }
        Family::Ipv6Unicast => {
            let (count, field) = pack(prefixes, ROOM - ATTRIBUTE_HEADER - 3);
            update(&[], &unreach(family, &field)?, &[], out)?;
            Ok(count)
        }
    }
}

/// Appends the End-of-RIB marker of a family (RFC 4724 section 2).
///
/// # Errors
/// None in practice: the marker always fits.
pub fn encode_end_of_rib(family: Family, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match family {
        Family::Ipv4Unicast => update(&[], &[], &[], out),
        Family::Ipv6Unicast => update(&[], &unreach(family, &[])?, &[], out),
    }
}

fn unreach(family: Family, field: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let [high, low] = family.afi().to_be_bytes();
    let mut block = Vec::new();
    let value = [&[high, low, family.safi()], field].concat();
    put(flag::OPTIONAL | flag::EXTENDED_LENGTH, kind::MP_UNREACH, &value, &mut block)?;
    Ok(block)
}

fn update(withdrawn: &[u8], block: &[u8], reached: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut body = Vec::with_capacity(LENGTH_FIELDS + withdrawn.len() + block.len() + reached.len());
    for (what, part) in [("withdrawn routes", withdrawn), ("attributes", block)] {
        body.extend(length_field(what, part.len())?);
        body.extend_from_slice(part);
    }
    body.extend_from_slice(reached);
    encode_message(MessageType::Update, &body, out)
}

fn length_field(what: &'static str, length: usize) -> Result<[u8; 2], EncodeError> {
    u16::try_from(length).map(u16::to_be_bytes).map_err(|_| EncodeError { what, length, limit: 65_535 })
}

/// Leading prefixes of one family that fit into `room`.
fn pack(prefixes: &[IpNet], room: usize) -> (usize, Vec<u8>) {
    let mut field = Vec::new();
    let mut count = 0;
    let family = prefixes.first().map(Family::of);
    for prefix in prefixes.iter().take_while(|prefix| Some(Family::of(prefix)) == family) {
        if field.len() + nlri::wire_length(prefix) > room {
            break;
        }
        nlri::encode(prefix, &mut field);
        count += 1;
    }
    (count, field)
}

/// NEXT_HOP goes in after AS_PATH, where its number puts it; any order is legal.
fn with_next_hop(mut common: Vec<u8>, next_hop: Ipv4Addr) -> Result<Vec<u8>, EncodeError> {
    put(flag::TRANSITIVE, kind::NEXT_HOP, &next_hop.octets(), &mut common)?;
    Ok(common)
}

/// Everything but the next hop.
fn common_attributes(attributes: &Attributes, four_octet: bool) -> Result<Vec<u8>, EncodeError> {
    let mut block = Vec::new();
    put(flag::TRANSITIVE, kind::ORIGIN, &[attributes.origin.code()], &mut block)?;
    let mut path = Vec::new();
    attributes.as_path.encode(four_octet, &mut path);
    put(flag::TRANSITIVE, kind::AS_PATH, &path, &mut block)?;
    if let Some(med) = attributes.med {
        put(flag::OPTIONAL, kind::MED, &med.to_be_bytes(), &mut block)?;
    }
    if let Some(preference) = attributes.local_pref {
        put(flag::TRANSITIVE, kind::LOCAL_PREF, &preference.to_be_bytes(), &mut block)?;
    }
    if attributes.rare().atomic_aggregate {
        put(flag::TRANSITIVE, kind::ATOMIC_AGGREGATE, &[], &mut block)?;
    }
    put_aggregator(attributes, four_octet, &mut block)?;
    let communities: Vec<u8> = attributes.communities.iter().flat_map(|c| c.0.to_be_bytes()).collect();
    put_unless_empty(flag::OPTIONAL | flag::TRANSITIVE, kind::COMMUNITIES, &communities, &mut block)?;
    let originator =
        attributes.rare().originator_id.map(|id| id.octets()).into_iter().flatten().collect::<Vec<u8>>();
    put_unless_empty(flag::OPTIONAL, kind::ORIGINATOR_ID, &originator, &mut block)?;
    let clusters: Vec<u8> = attributes.rare().cluster_list.iter().flat_map(|id| id.octets()).collect();
    put_unless_empty(flag::OPTIONAL, kind::CLUSTER_LIST, &clusters, &mut block)?;
    if !four_octet && attributes.as_path.needs_four_octets() {
        let mut path = Vec::new();
        attributes.as_path.encode(true, &mut path);
        put(flag::OPTIONAL | flag::TRANSITIVE, kind::AS4_PATH, &path, &mut block)?;
    }
    for opaque in &attributes.rare().opaque {
        put(opaque.flags, opaque.code, &opaque.value, &mut block)?;
    }
    Ok(block)
}

fn put_aggregator(attributes: &Attributes, four_octet: bool, block: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Some(aggregator) = attributes.rare().aggregator else { return Ok(()) };
    let flags = flag::OPTIONAL | flag::TRANSITIVE;
    let id = aggregator.router_id.octets();
    let long = [aggregator.asn.to_be_bytes(), id].concat();
    if four_octet {
        return put(flags, kind::AGGREGATOR, &long, block);
    }
    let short = two_octets(aggregator.asn);
    put(flags, kind::AGGREGATOR, &[&short.to_be_bytes()[..], &id].concat(), block)?;
    if u32::from(short) == AS_TRANS && aggregator.asn != AS_TRANS {
        put(flags, kind::AS4_AGGREGATOR, &long, block)?;
    }
    Ok(())
}

fn put_unless_empty(flags: u8, code: u8, value: &[u8], block: &mut Vec<u8>) -> Result<(), EncodeError> {
    if value.is_empty() { Ok(()) } else { put(flags, code, value, block) }
}

fn put(flags: u8, code: u8, value: &[u8], block: &mut Vec<u8>) -> Result<(), EncodeError> {
    match u8::try_from(value.len()) {
        Ok(length) if flags & flag::EXTENDED_LENGTH == 0 => block.extend([flags, code, length]),
        _ => {
            block.extend([flags | flag::EXTENDED_LENGTH, code]);
            block.extend(length_field("attribute", value.len())?);
        }
    }
    block.extend_from_slice(value);
    Ok(())
}
