//! Prefixes on the wire (RFC 4271 section 4.3): length in bits, then as many octets as that takes.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::reader::Reader;
use crate::Family;

/// Every prefix of a field; `None` if the field cannot be cut into prefixes. Bits behind the length are ignored.
pub(super) fn decode(field: &[u8], family: Family) -> Option<Vec<IpNet>> {
    let mut reader = Reader::new(field);
    let mut prefixes = Vec::new();
    while let Some(bits) = reader.u8() {
        let octets = reader.take(usize::from(bits).div_ceil(8))?;
        prefixes.push(prefix(family, bits, octets)?.trunc());
    }
    Some(prefixes)
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

/// Octets that a prefix takes.
pub(super) fn wire_length(prefix: &IpNet) -> usize {
    1 + usize::from(prefix.prefix_len()).div_ceil(8)
}

/// Appends a prefix.
pub(super) fn encode(prefix: &IpNet, out: &mut Vec<u8>) {
    out.push(prefix.prefix_len());
    let octets = wire_length(prefix) - 1;
    match prefix.trunc() {
        IpNet::V4(net) => out.extend_from_slice(&net.addr().octets()[..octets]),
        IpNet::V6(net) => out.extend_from_slice(&net.addr().octets()[..octets]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields() {
        let v4 = |bytes: &[u8]| {
            decode(bytes, Family::Ipv4Unicast).map(|p| p.iter().map(IpNet::to_string).collect::<Vec<_>>())
        };
        assert_eq!(v4(&[]), Some(vec![]));
        assert_eq!(v4(&[0]), Some(vec!["0.0.0.0/0".into()]));
        assert_eq!(v4(&[16, 10, 1, 9, 10, 0xff]), Some(vec!["10.1.0.0/16".into(), "10.128.0.0/9".into()]));
        assert_eq!(v4(&[33, 1, 2, 3, 4, 5]), None);
        assert_eq!(v4(&[24, 1, 2]), None);
        assert_eq!(decode(&[129; 18], Family::Ipv6Unicast), None);
        assert_eq!(
            decode(&[64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 1], Family::Ipv6Unicast),
            Some(vec!["2001:db8:0:1::/64".parse().unwrap()])
        );
    }

    proptest! {
        #[test]
        fn round_trip_v4(address: u32, bits in 0u8..=32) {
            let net = IpNet::from(Ipv4Net::new(address.into(), bits).unwrap().trunc());
            let mut bytes = Vec::new();
            encode(&net, &mut bytes);
            prop_assert_eq!(bytes.len(), wire_length(&net));
            prop_assert_eq!(decode(&bytes, Family::Ipv4Unicast), Some(vec![net]));
        }

        #[test]
        fn round_trip_v6(address: u128, bits in 0u8..=128) {
            let net = IpNet::from(Ipv6Net::new(address.into(), bits).unwrap().trunc());
            let mut bytes = Vec::new();
            encode(&net, &mut bytes);
            prop_assert_eq!(decode(&bytes, Family::Ipv6Unicast), Some(vec![net]));
        }
    }
}
