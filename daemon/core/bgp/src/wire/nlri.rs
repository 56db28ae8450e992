//! Prefixes on the wire: length in bits, then as many octets as that takes (RFC 4271 section 4.3), behind a path identifier where the
//! session has them (RFC 7911 section 3).

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

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

    /// Appends it. Host bits that somebody left in are not sent.
    pub(super) fn encode(&self, path_ids: bool, out: &mut Vec<u8>) {
        if path_ids {
            out.extend_from_slice(&self.path_id.to_be_bytes());
        }
        let bits = self.prefix.prefix_len();
        out.push(bits);
        let octets = usize::from(bits).div_ceil(8);
        match self.prefix.trunc() {
            IpNet::V4(net) => out.extend_from_slice(&net.addr().octets()[..octets]),
            IpNet::V6(net) => out.extend_from_slice(&net.addr().octets()[..octets]),
        }
    }
}

/// Octets of a path identifier.
const PATH_ID_LENGTH: usize = 4;

/// Every prefix of a field; `None` if the field cannot be cut into prefixes. Bits behind the length are ignored.
pub(super) fn decode(field: &[u8], family: Family, path_ids: bool) -> Option<Vec<Nlri>> {
    let mut reader = Reader::new(field);
    // Most prefixes of a full message are three octets and their length.
    let mut found = Vec::with_capacity(field.len() / if path_ids { 8 } else { 4 });
    while !reader.is_empty() {
        let path_id = if path_ids { reader.u32()? } else { 0 };
        let bits = reader.u8()?;
        let octets = reader.take(usize::from(bits).div_ceil(8))?;
        found.push(Nlri { prefix: prefix(family, bits, octets)?.trunc(), path_id });
    }
    Some(found)
}

fn prefix(family: Family, bits: u8, octets: &[u8]) -> Option<IpNet> {
    Some(match family {
        Family::Ipv4Unicast => Ipv4Net::new(Ipv4Addr::from(padded::<4>(octets)?), bits).ok()?.into(),
        Family::Ipv6Unicast => Ipv6Net::new(Ipv6Addr::from(padded::<16>(octets)?), bits).ok()?.into(),
    })
}

fn padded<const N: usize>(octets: &[u8]) -> Option<[u8; N]> {
    let mut address = [0; N];
    address.get_mut(..octets.len())?.copy_from_slice(octets);
    Some(address)
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
        nlri.encode(path_ids, &mut bytes);
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
