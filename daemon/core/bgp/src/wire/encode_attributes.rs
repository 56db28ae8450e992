//! Path attributes out, once for all messages that carry them.

use std::net::{IpAddr, Ipv6Addr};

use super::{
    Attributes, EncodeError, Encoding,
    as_path::two_octets,
    attributes::{flag, kind},
    encode::length_field,
};
use crate::{AS_TRANS, Family};

/// Attributes as they stand on the wire, for any number of messages.
#[derive(Clone, Debug)]
pub struct EncodedAttributes {
    /// All but MP_REACH_NLRI.
    block: Vec<u8>,
    /// An IPv6 next hop, whose place is in MP_REACH_NLRI.
    mp_next_hop: Option<MpNextHop>,
    encoding: Encoding,
}

impl EncodedAttributes {
    /// Encodes them for peers with this encoding.
    ///
    /// # Errors
    /// An attribute longer than 65535 octets.
    pub fn new(attributes: &Attributes, encoding: &Encoding) -> Result<Self, EncodeError> {
        let mut block = Vec::with_capacity(128);
        encode_block(attributes, encoding.four_octet, &mut block)?;
        let mp_next_hop = match attributes.next_hop {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(MpNextHop::new(address, encoding.link_local)),
        };
        Ok(Self { block, mp_next_hop, encoding: *encoding })
    }

    pub(super) fn block(&self) -> &[u8] {
        &self.block
    }

    pub(super) fn encoding(&self) -> &Encoding {
        &self.encoding
    }

    /// The next hop as MP_REACH_NLRI needs it; `None` if this family's is the NEXT_HOP attribute.
    pub(super) fn mp_next_hop(&self, family: Family) -> Result<Option<&MpNextHop>, EncodeError> {
        match (family, &self.mp_next_hop) {
            (Family::Ipv4Unicast, None) => Ok(None),
            (Family::Ipv4Unicast, Some(next_hop)) if self.encoding.extended_next_hop => Ok(Some(next_hop)),
            (Family::Ipv6Unicast, Some(next_hop)) => Ok(Some(next_hop)),
            _ => Err(EncodeError { what: "next hop of the other family", length: 0, limit: 0 }),
        }
    }
}

/// Length octet and address or addresses.
#[derive(Clone, Debug)]
pub(super) struct MpNextHop {
    octets: [u8; 33],
    length: usize,
}

impl MpNextHop {
    /// One address, or the global one and the link-local one behind it (RFC 2545 section 3).
    fn new(address: Ipv6Addr, link_local: Option<(Ipv6Addr, Ipv6Addr)>) -> Self {
        let mut octets = [0; 33];
        octets[0] = 16;
        octets[1..17].copy_from_slice(&address.octets());
        let Some((_, second)) = link_local.filter(|(global, _)| *global == address) else {
            return Self { octets, length: 17 };
        };
        octets[0] = 32;
        octets[17..].copy_from_slice(&second.octets());
        Self { octets, length: 33 }
    }

    /// Octets of the addresses, without the length octet.
    pub(super) fn len(&self) -> usize {
        self.length - 1
    }

    /// The length octet and the addresses.
    pub(super) fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }
}

/// Everything but MP_REACH_NLRI: what we know in the order of the type codes, then what we pass on in the order in which it came.
fn encode_block(attributes: &Attributes, four_octet: bool, block: &mut Vec<u8>) -> Result<(), EncodeError> {
    let rare = attributes.rare();
    put(flag::TRANSITIVE, kind::ORIGIN, &[attributes.origin.code()], block)?;
    put_as_path(kind::AS_PATH, flag::TRANSITIVE, attributes, four_octet, block)?;
    if let IpAddr::V4(next_hop) = attributes.next_hop {
        put(flag::TRANSITIVE, kind::NEXT_HOP, &next_hop.octets(), block)?;
    }
    if let Some(med) = attributes.med {
        put(flag::OPTIONAL, kind::MED, &med.to_be_bytes(), block)?;
    }
    if let Some(preference) = attributes.local_pref {
        put(flag::TRANSITIVE, kind::LOCAL_PREF, &preference.to_be_bytes(), block)?;
    }
    if rare.atomic_aggregate {
        put(flag::TRANSITIVE, kind::ATOMIC_AGGREGATE, &[], block)?;
    }
    put_aggregator(attributes, four_octet, block)?;
    let partial = rare.partial_flag(kind::COMMUNITIES);
    let communities = attributes.communities.iter().map(|community| community.0.to_be_bytes());
    put_list(PASSED_ON | partial, kind::COMMUNITIES, communities, block)?;
    if let Some(originator) = rare.originator_id {
        put(flag::OPTIONAL, kind::ORIGINATOR_ID, &originator.octets(), block)?;
    }
    put_list(flag::OPTIONAL, kind::CLUSTER_LIST, rare.cluster_list.iter().map(|id| id.octets()), block)?;
    if !four_octet && attributes.as_path.needs_four_octets() {
        put_as_path(kind::AS4_PATH, PASSED_ON, attributes, true, block)?;
    }
    put_as4_aggregator(attributes, four_octet, block)?;
    let partial = rare.partial_flag(kind::LARGE_COMMUNITY);
    let large = rare.large_communities.iter().map(|community| community.octets());
    put_list(PASSED_ON | partial, kind::LARGE_COMMUNITY, large, block)?;
    if let Some(asn) = rare.only_to_customer {
        let flags = PASSED_ON | rare.partial_flag(kind::ONLY_TO_CUSTOMER);
        put(flags, kind::ONLY_TO_CUSTOMER, &asn.to_be_bytes(), block)?;
    }
    rare.opaque.iter().try_for_each(|opaque| put(opaque.flags, opaque.code, &opaque.value, block))
}

/// Optional and transitive.
const PASSED_ON: u8 = flag::OPTIONAL | flag::TRANSITIVE;

fn put_as_path(
    code: u8,
    flags: u8,
    attributes: &Attributes,
    four_octet: bool,
    block: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    put_header(flags, code, attributes.as_path.wire_length(four_octet), block)?;
    attributes.as_path.encode(four_octet, block);
    Ok(())
}

fn put_aggregator(attributes: &Attributes, four_octet: bool, block: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Some(aggregator) = attributes.rare().aggregator else { return Ok(()) };
    let flags = PASSED_ON | attributes.rare().partial_flag(kind::AGGREGATOR);
    put_header(flags, kind::AGGREGATOR, if four_octet { 8 } else { 6 }, block)?;
    if four_octet {
        block.extend_from_slice(&aggregator.asn.to_be_bytes());
    } else {
        block.extend_from_slice(&two_octets(aggregator.asn).to_be_bytes());
    }
    block.extend_from_slice(&aggregator.router_id.octets());
    Ok(())
}

/// What AGGREGATOR has no room for towards a two-octet speaker (RFC 6793 section 4.2.2).
fn put_as4_aggregator(
    attributes: &Attributes,
    four_octet: bool,
    block: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let Some(aggregator) = attributes.rare().aggregator.filter(|_| !four_octet) else { return Ok(()) };
    if u32::from(two_octets(aggregator.asn)) != AS_TRANS || aggregator.asn == AS_TRANS {
        return Ok(());
    }
    put_header(PASSED_ON, kind::AS4_AGGREGATOR, 8, block)?;
    block.extend_from_slice(&aggregator.asn.to_be_bytes());
    block.extend_from_slice(&aggregator.router_id.octets());
    Ok(())
}

/// An attribute that is a list; none if the list is empty.
fn put_list<const N: usize>(
    flags: u8,
    code: u8,
    items: impl ExactSizeIterator<Item = [u8; N]>,
    block: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if items.len() == 0 {
        return Ok(());
    }
    put_header(flags, code, items.len() * N, block)?;
    items.for_each(|item| block.extend_from_slice(&item));
    Ok(())
}

fn put(flags: u8, code: u8, value: &[u8], block: &mut Vec<u8>) -> Result<(), EncodeError> {
    put_header(flags, code, value.len(), block)?;
    block.extend_from_slice(value);
    Ok(())
}

/// The extended length only where it is needed, or where it came so.
fn put_header(flags: u8, code: u8, length: usize, block: &mut Vec<u8>) -> Result<(), EncodeError> {
    match u8::try_from(length) {
        Ok(length) if flags & flag::EXTENDED_LENGTH == 0 => block.extend_from_slice(&[flags, code, length]),
        _ => {
            let field = length_field("attribute", length)?;
            block.extend_from_slice(&[flags | flag::EXTENDED_LENGTH, code]);
            block.extend_from_slice(&field);
        }
    }
    Ok(())
}
