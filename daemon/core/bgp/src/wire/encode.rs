//! UPDATE messages out: as many prefixes as fit into one message (RFC 4271 section 4.3).
//!
//! Lengths are known before the first octet is written, so nothing is copied, and an encoder that fails leaves the buffer as it was.

use std::net::Ipv6Addr;

use super::{
    Attributes, EncodeError, HEADER_LENGTH, MAX_MESSAGE_LENGTH, MessageType, Nlri,
    attributes::{flag, kind},
    encode_attributes::EncodedAttributes,
    encode_header, nlri,
};
use crate::{Families, Family};

/// Octets for the two length fields of an UPDATE.
const LENGTH_FIELDS: usize = 4;
/// Room in an UPDATE for attributes and prefixes.
const ROOM: usize = MAX_MESSAGE_LENGTH - HEADER_LENGTH - LENGTH_FIELDS;
/// Flags, type and an extended length.
const ATTRIBUTE_HEADER: usize = 4;
/// AFI and SAFI.
const FAMILY_CODES: usize = 3;

/// What was negotiated, as far as the way to write an UPDATE depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// AS numbers in AS_PATH are four octets wide: both sides sent the capability (RFC 6793).
    pub four_octet: bool,
    /// Families in which we put a path identifier before each prefix (RFC 7911).
    pub add_path: Families,
    /// IPv4 prefixes may have an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
    /// Our global and our link-local address on a link shared with the peer: a next hop that is the first is sent with the second
    /// behind it (RFC 2545 section 3).
    pub link_local: Option<(Ipv6Addr, Ipv6Addr)>,
}

impl Encoding {
    /// What any two speakers of today have in common.
    pub const FOUR_OCTET: Self =
        Self { four_octet: true, add_path: Families::NONE, extended_next_hop: false, link_local: None };
}

/// Appends one UPDATE that announces the first prefixes of `nlri` (those of the first one's family); returns how many, at least one
/// unless there are none. For several messages with the same attributes use [`EncodedAttributes`].
///
/// # Errors
/// The attributes leave no room for a single prefix, or the next hop is not one that the family can have.
pub fn encode_announcement(
    attributes: &Attributes,
    nlri: &[Nlri],
    encoding: &Encoding,
    out: &mut Vec<u8>,
) -> Result<usize, EncodeError> {
    EncodedAttributes::new(attributes, encoding)?.encode(nlri, out)
}

impl EncodedAttributes {
    /// Appends one UPDATE that announces the first prefixes of `nlri` (those of the first one's family); returns how many, at least
    /// one unless there are none.
    ///
    /// # Errors
    /// The attributes leave no room for a single prefix, or the next hop is not one that the family can have.
    pub fn encode(&self, nlri: &[Nlri], out: &mut Vec<u8>) -> Result<usize, EncodeError> {
        let Some(family) = nlri.first().map(|nlri| Family::of(&nlri.prefix)) else { return Ok(0) };
        let next_hop = self.mp_next_hop(family)?;
        let reach = next_hop.map_or(0, |next_hop| ATTRIBUTE_HEADER + FAMILY_CODES + next_hop.len() + 2);
        let overhead = reach + self.block().len();
        let path_ids = self.encoding().add_path.contains(family);
        let (fitting, length) = fitting(nlri, path_ids, ROOM.saturating_sub(overhead));
        if fitting.is_empty() {
            return Err(EncodeError { what: "attributes", length: overhead, limit: ROOM });
        }
        let inside = if next_hop.is_some() { length } else { 0 };
        let attributes = length_field("attributes", overhead + inside)?;
        encode_header(MessageType::Update, LENGTH_FIELDS + overhead + length, out)?;
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&attributes);
        match next_hop {
            // First of all attributes, so that even a reader that stumbles finds it (RFC 7606 section 5.1).
            Some(next_hop) => {
                mp_header(kind::MP_REACH, family, reach - ATTRIBUTE_HEADER + length, out)?;
                out.extend_from_slice(next_hop.octets());
                out.push(0);
                nlri::encode(fitting, path_ids, out);
                out.extend_from_slice(self.block());
            }
            None => {
                out.extend_from_slice(self.block());
                nlri::encode(fitting, path_ids, out);
            }
        }
        Ok(fitting.len())
    }
}

/// Appends one UPDATE that withdraws the first prefixes of `nlri` (those of the first one's family); returns how many.
///
/// # Errors
/// None in practice: a message has room for at least one prefix.
pub fn encode_withdrawal(
    nlri: &[Nlri],
    encoding: &Encoding,
    out: &mut Vec<u8>,
) -> Result<usize, EncodeError> {
    let Some(family) = nlri.first().map(|nlri| Family::of(&nlri.prefix)) else { return Ok(0) };
    let path_ids = encoding.add_path.contains(family);
    let (fitting, length) = fitting(nlri, path_ids, ROOM - ATTRIBUTE_HEADER - FAMILY_CODES);
    withdrawal(family, length, out, |out| nlri::encode(fitting, path_ids, out))?;
    Ok(fitting.len())
}

/// Appends the End-of-RIB marker of a family (RFC 4724 section 2).
///
/// # Errors
/// None in practice: the marker always fits.
pub fn encode_end_of_rib(family: Family, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    withdrawal(family, 0, out, |_| ())
}

/// An UPDATE with nothing but `length` octets of withdrawn prefixes, which `write` appends.
fn withdrawal(
    family: Family,
    length: usize,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<(), EncodeError> {
    let field = length_field("withdrawn routes", length)?;
    match family {
        Family::Ipv4Unicast => {
            encode_header(MessageType::Update, LENGTH_FIELDS + length, out)?;
            out.extend_from_slice(&field);
            write(out);
            out.extend_from_slice(&[0, 0]);
        }
        Family::Ipv6Unicast => {
            let block = ATTRIBUTE_HEADER + FAMILY_CODES + length;
            let field = length_field("attributes", block)?;
            encode_header(MessageType::Update, LENGTH_FIELDS + block, out)?;
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&field);
            mp_header(kind::MP_UNREACH, family, FAMILY_CODES + length, out)?;
            write(out);
        }
    }
    Ok(())
}

/// Flags, type, length, and the family that both MP attributes begin with.
fn mp_header(code: u8, family: Family, length: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let field = length_field("attribute", length)?;
    out.extend_from_slice(&[flag::OPTIONAL | flag::EXTENDED_LENGTH, code]);
    out.extend_from_slice(&field);
    out.extend_from_slice(&family.afi().to_be_bytes());
    out.push(family.safi());
    Ok(())
}

pub(super) fn length_field(what: &'static str, length: usize) -> Result<[u8; 2], EncodeError> {
    u16::try_from(length).map(u16::to_be_bytes).map_err(|_| EncodeError { what, length, limit: 65_535 })
}

/// The leading prefixes of one family that fit into `room` octets, and how many octets they take.
fn fitting(nlri: &[Nlri], path_ids: bool, room: usize) -> (&[Nlri], usize) {
    let family = nlri.first().map(|nlri| Family::of(&nlri.prefix));
    let mut length = 0;
    let count = nlri.iter().take_while(|nlri| {
        let with = length + nlri.wire_length(path_ids);
        let fits = with <= room && Some(Family::of(&nlri.prefix)) == family;
        if fits {
            length = with;
        }
        fits
    });
    let count = count.count();
    (&nlri[..count], length)
}
