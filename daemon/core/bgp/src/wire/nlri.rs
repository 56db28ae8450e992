//! Prefixes on the wire: length in bits, then as many octets as that takes (RFC 4271 section 4.3), behind a path identifier where the
//! session has them (RFC 7911 section 3).

use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::reader::Reader;
use crate::Family;

/// A prefix, and which of its sender's paths to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nlri {
    /// The prefix, host bits zero.
    pub prefix: IpNet,
    /// Path identifier, a number of the sender's choice; 0 where the session has none in this direction and family.
    pub path_id: u32,
}

impl From<IpNet> for Nlri {
    fn from(prefix: IpNet) -> Self {
        Self { prefix, path_id: 0 }
    }
}

impl FromStr for Nlri {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<IpNet>().map(Self::from)
    }
}

impl Nlri {
    /// Octets that it takes.
    pub(super) fn wire_length(&self, path_ids: bool) -> usize {
        let identifier = if path_ids { PATH_ID_LENGTH } else { 0 };
        identifier + 1 + usize::from(self.prefix.prefix_len()).div_ceil(8)
    }

    /// Writes it to the front of `room`, which has [`LONGEST`] octets; returns how many it takes. A whole address is written, for copying
    /// a number of octets that the compiler knows takes a fraction of the time; what is too much the next one overwrites.
    fn write(&self, path_ids: bool, room: &mut [u8]) -> usize {
        let at = if path_ids { PATH_ID_LENGTH } else { 0 };
        room[..PATH_ID_LENGTH].copy_from_slice(&self.path_id.to_be_bytes());
        room[at] = self.prefix.prefix_len();
        match self.prefix.trunc() {
            IpNet::V4(net) => room[at + 1..at + 5].copy_from_slice(&net.addr().octets()),
            IpNet::V6(net) => room[at + 1..at + 17].copy_from_slice(&net.addr().octets()),
        }
        self.wire_length(path_ids)
    }
}

/// Octets of a path identifier.
const PATH_ID_LENGTH: usize = 4;
/// Octets of the longest prefix.
const LONGEST: usize = PATH_ID_LENGTH + 1 + 16;
/// Prefixes that are put together before they are appended.
const CHUNK: usize = 16;

/// Appends prefixes. Host bits that somebody left in are not sent.
pub(crate) fn encode(all: &[Nlri], path_ids: bool, out: &mut Vec<u8>) {
    let mut room = [0; CHUNK * LONGEST];
    for chunk in all.chunks(CHUNK) {
        let end = chunk.iter().fold(0, |at, nlri| at + nlri.write(path_ids, &mut room[at..]));
        out.extend_from_slice(&room[..end]);
    }
}

/// Every prefix of a field; `None` if the field cannot be cut into prefixes. Bits behind the length are ignored.
pub(super) fn decode(field: &[u8], family: Family, path_ids: bool) -> Option<Vec<Nlri>> {
    match family {
        Family::Ipv4Unicast => decode_with(field, path_ids, |octets: [u8; 4], bits| {
            Some(Ipv4Net::new(octets.into(), bits).ok()?.trunc().into())
        }),
        Family::Ipv6Unicast => decode_with(field, path_ids, |octets: [u8; 16], bits| {
            Some(Ipv6Net::new(octets.into(), bits).ok()?.trunc().into())
        }),
    }
}

/// `prefix` has to clear the bits behind the length.
fn decode_with<const N: usize>(
    field: &[u8],
    path_ids: bool,
    prefix: impl Fn([u8; N], u8) -> Option<IpNet>,
) -> Option<Vec<Nlri>> {
    let mut reader = Reader::new(field);
    // Most prefixes of a full message are three octets and their length.
    let mut found = Vec::with_capacity(field.len() / if path_ids { 8 } else { 4 });
    while !reader.is_empty() {
        let path_id = if path_ids { reader.u32()? } else { 0 };
        let bits = reader.u8()?;
        let octets = reader.leading(usize::from(bits).div_ceil(8))?;
        found.push(Nlri { prefix: prefix(octets, bits)?, path_id });
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields() {
        let v4 = |bytes: &[u8]| {
            let found = decode(bytes, Family::Ipv4Unicast, false);
            found.map(|all| all.iter().map(|nlri| nlri.prefix.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(v4(&[]), Some(vec![]));
        assert_eq!(v4(&[0]), Some(vec!["0.0.0.0/0".into()]));
        assert_eq!(v4(&[16, 10, 1, 9, 10, 0xff]), Some(vec!["10.1.0.0/16".into(), "10.128.0.0/9".into()]));
        assert_eq!(v4(&[33, 1, 2, 3, 4, 5]), None);
        assert_eq!(v4(&[24, 1, 2]), None);
        assert_eq!(decode(&[129; 18], Family::Ipv6Unicast, false), None);
        assert_eq!(
            decode(&[64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 1], Family::Ipv6Unicast, false),
            Some(vec![Nlri::from("2001:db8:0:1::/64".parse::<IpNet>().unwrap())])
        );
    }

    #[test]
    fn path_identifiers_stand_before_each_prefix() {
        let field = [0, 0, 0, 7, 8, 10, 0, 0, 1, 0, 0];
        let found = decode(&field, Family::Ipv4Unicast, true).unwrap();
        assert_eq!(found.iter().map(|nlri| nlri.path_id).collect::<Vec<_>>(), [7, 256]);
        assert_eq!(found[0].prefix, "10.0.0.0/8".parse().unwrap());
        assert_eq!(decode(&field[..4], Family::Ipv4Unicast, true), None, "an identifier of nothing");
        assert_eq!(decode(&field[..8], Family::Ipv4Unicast, true), None);
    }

    fn round_trip(nlri: Nlri, path_ids: bool) {
        let mut bytes = Vec::new();
        encode(&[nlri], path_ids, &mut bytes);
        assert_eq!(bytes.len(), nlri.wire_length(path_ids));
        assert_eq!(decode(&bytes, Family::of(&nlri.prefix), path_ids), Some(vec![nlri]));
    }

    proptest! {
        #[test]
        fn round_trip_v4(address: u32, bits in 0u8..=32, path_id: u32) {
            let prefix = IpNet::from(Ipv4Net::new(address.into(), bits).unwrap().trunc());
            round_trip(prefix.into(), false);
            round_trip(Nlri { prefix, path_id }, true);
        }

        #[test]
        fn round_trip_v6(address: u128, bits in 0u8..=128, path_id: u32) {
            let prefix = IpNet::from(Ipv6Net::new(address.into(), bits).unwrap().trunc());
            round_trip(prefix.into(), false);
            round_trip(Nlri { prefix, path_id }, true);
        }
    }
}
