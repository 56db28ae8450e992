//! A table as an MRT file (RFC 6396 section 4.3, RFC 8050): one peer index, then a record for each prefix.
//!
//! Records are appended to a buffer, and one that fails leaves it as it was. Times are seconds since 1970, and the caller's.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use crate::wire::{Attributes, EncodeError, EncodedAttributes, Encoding, encode_nlri};

/// Type TABLE_DUMP_V2.
const TABLE_DUMP_V2: u16 = 13;
const PEER_INDEX_TABLE: u16 = 1;
/// Time, type, subtype and length.
const HEADER_LENGTH: usize = 12;

/// A peer, as the index names it; entries refer to it by its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    pub asn: u32,
}

/// One path to a prefix.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Place of its peer in the index.
    pub peer: u16,
    /// When it was heard.
    pub originated: u32,
    /// Path identifier; written only in records that have them.
    pub path_id: u32,
    /// Its attributes.
    pub attributes: &'a Attributes,
}

/// Appends the peer index, which comes first in a file. `view` may be empty.
///
/// # Errors
/// More than 65535 peers, or a name longer than that many bytes.
pub fn encode_peer_index(
    time: u32,
    collector: Ipv4Addr,
    view: &str,
    peers: &[Peer],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    record(time, PEER_INDEX_TABLE, out, |out| {
        out.extend_from_slice(&collector.octets());
        out.extend_from_slice(&count("view name", view.len())?);
        out.extend_from_slice(view.as_bytes());
        out.extend_from_slice(&count("peers", peers.len())?);
        peers.iter().for_each(|peer| peer.encode(out));
        Ok(())
    })
}

impl Peer {
    fn encode(&self, out: &mut Vec<u8>) {
        // Bit 0: the address is IPv6. Bit 1: the AS number has four octets.
        out.push(0b10 | u8::from(self.address.is_ipv6()));
        out.extend_from_slice(&self.router_id.octets());
        match self.address {
            IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
        }
        out.extend_from_slice(&self.asn.to_be_bytes());
    }
}

/// Appends the paths to one prefix; `sequence` counts records from 0. With `path_ids` in the form of RFC 8050.
///
/// # Errors
/// More than 65535 paths, or attributes longer than that many octets.
pub fn encode_rib(
    time: u32,
    sequence: u32,
    prefix: IpNet,
    path_ids: bool,
    entries: &[Entry<'_>],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    record(time, subtype(&prefix, path_ids), out, |out| {
        out.extend_from_slice(&sequence.to_be_bytes());
        encode_nlri(&[prefix.into()], false, out);
        out.extend_from_slice(&count("paths", entries.len())?);
        entries.iter().try_for_each(|entry| entry.encode(path_ids, out))
    })
}

fn subtype(prefix: &IpNet, path_ids: bool) -> u16 {
    match (prefix, path_ids) {
        (IpNet::V4(_), false) => 2,
        (IpNet::V6(_), false) => 4,
        (IpNet::V4(_), true) => 8,
        (IpNet::V6(_), true) => 10,
    }
}

impl Entry<'_> {
    fn encode(&self, path_ids: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(&self.peer.to_be_bytes());
        out.extend_from_slice(&self.originated.to_be_bytes());
        if path_ids {
            out.extend_from_slice(&self.path_id.to_be_bytes());
        }
        // AS numbers have four octets here whatever the session had (RFC 6396 section 4.3.4).
        let attributes = EncodedAttributes::new(self.attributes, &Encoding::FOUR_OCTET)?;
        let length_at = out.len();
        out.extend_from_slice(&[0, 0]);
        attributes.write_table_dump(out)?;
        let length = count("attributes", out.len() - length_at - 2)?;
        out[length_at..length_at + 2].copy_from_slice(&length);
        Ok(())
    }
}

/// Appends a record whose body `write` appends; the length is filled in behind it.
fn record(
    time: u32,
    subtype: u16,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(&time.to_be_bytes());
    out.extend_from_slice(&TABLE_DUMP_V2.to_be_bytes());
    out.extend_from_slice(&subtype.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    let written = write(out).and_then(|()| length(out.len() - start - HEADER_LENGTH));
    match written {
        Ok(length) => out[start + HEADER_LENGTH - 4..start + HEADER_LENGTH].copy_from_slice(&length),
        Err(_) => out.truncate(start),
    }
    written.map(|_| ())
}

fn length(length: usize) -> Result<[u8; 4], EncodeError> {
    let limit = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
    u32::try_from(length).map(u32::to_be_bytes).map_err(|_| EncodeError { what: "record", length, limit })
}

fn count(what: &'static str, length: usize) -> Result<[u8; 2], EncodeError> {
    u16::try_from(length).map(u16::to_be_bytes).map_err(|_| EncodeError { what, length, limit: 65_535 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_index_byte_for_byte() {
        let peers = [
            Peer { router_id: [10, 0, 0, 2].into(), address: IpAddr::from([192, 0, 2, 2]), asn: 65_001 },
            Peer { router_id: [10, 0, 0, 3].into(), address: "2001:db8::3".parse().unwrap(), asn: 70_000 },
        ];
        let mut out = Vec::new();
        encode_peer_index(7, [10, 0, 0, 1].into(), "in", &peers, &mut out).unwrap();
        let mut expected = vec![0, 0, 0, 7, 0, 13, 0, 1, 0, 0, 0, 48, 10, 0, 0, 1, 0, 2, b'i', b'n', 0, 2];
        expected.extend([2, 10, 0, 0, 2, 192, 0, 2, 2, 0, 0, 0xfd, 0xe9]);
        expected.extend([3, 10, 0, 0, 3, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
        expected.extend([0, 1, 0x11, 0x70]);
        assert_eq!(out, expected);
    }

    #[test]
    fn a_record_has_the_short_form_of_mp_reach() {
        let attributes = Attributes::originated("2001:db8::1".parse().unwrap());
        let entry = Entry { peer: 1, originated: 9, path_id: 5, attributes: &attributes };
        let mut out = Vec::new();
        encode_rib(7, 3, "2001:db8::/32".parse().unwrap(), true, &[entry], &mut out).unwrap();
        let mut expected = vec![0, 0, 0, 7, 0, 13, 0, 10, 0, 0, 0, 50, 0, 0, 0, 3, 32, 0x20, 1, 0xd, 0xb8];
        // One path: peer 1, time 9, identifier 5, and 27 octets of attributes.
        expected.extend([0, 1, 0, 1, 0, 0, 0, 9, 0, 0, 0, 5, 0, 27]);
        expected.extend([0x80, 14, 17, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        expected.extend([0x40, 1, 1, 0, 0x40, 2, 0]);
        assert_eq!(out, expected);
    }

    #[test]
    fn what_does_not_fit_leaves_nothing_behind() {
        let mut attributes = Attributes::originated([10, 0, 0, 1].into());
        attributes.communities = vec![crate::wire::Community(1); 17_000].into();
        let entry = Entry { peer: 0, originated: 0, path_id: 0, attributes: &attributes };
        let mut out = vec![1];
        let refused = encode_rib(0, 0, "10.0.0.0/8".parse().unwrap(), false, &[entry], &mut out);
        assert!(refused.is_err());
        assert_eq!(out, [1]);
    }
}
