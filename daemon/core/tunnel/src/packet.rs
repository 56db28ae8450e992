//! Inner IP packets: checked lengths, addresses and a hash that stays the same for all packets of one flow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use crate::headers::{self, TCP, UDP};

/// An IP packet whose header agrees with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The packet, without whatever followed it in the buffer.
    pub bytes: &'a [u8],
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Hash of the flow; see [`parse`].
    pub flow: u64,
}

impl Packet<'_> {
    /// Source and destination port of a UDP packet, or of the first fragment of one.
    pub fn udp_ports(&self) -> Option<(u16, u16)> {
        let found = headers::transport(self.bytes).filter(|found| found.protocol == UDP && !found.later)?;
        let [a, b, c, d] = *self.bytes.get(found.at..)?.first_chunk()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }
}

/// Why bytes are not an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Nothing there.
    #[error("empty packet")]
    Empty,
    /// Neither 4 nor 6.
    #[error("IP version {0}, expected 4 or 6")]
    Version(u8),
    /// Ends before its header does.
    #[error("{have} bytes, but the header needs {need}")]
    ShortHeader {
        /// Bytes there are.
        have: usize,
        /// Bytes the header needs.
        need: usize,
    },
    /// IPv4 IHL below five words.
    #[error("IPv4 header length of {0} bytes is below 20")]
    HeaderLength(usize),
    /// The length field names fewer bytes than the header, or more than there are.
    #[error("length field says {says} bytes, the buffer has {have}")]
    Length {
        /// What the length field says.
        says: usize,
        /// Bytes there are.
        have: usize,
    },
}

/// Protocols besides TCP and UDP that have their ports at the front (IANA numbers).
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Reads an IPv4 or IPv6 packet and cuts off what follows it (padding).
///
/// The flow hash covers addresses, protocol and ports. Fragments, of which only the first has ports, hash addresses and protocol
/// (IPv4) or addresses and flow label (IPv6), so that all fragments of a packet take one path.
///
/// # Errors
/// When version, header length or total length do not fit the bytes.
pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let first = *bytes.first().ok_or(Malformed::Empty)?;
    match first >> 4 {
        4 => parse_v4(bytes),
        6 => parse_v6(bytes),
        version => Err(Malformed::Version(version)),
    }
}

fn parse_v4(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let header = head::<20>(bytes)?;
    let header_length = usize::from(header[0] & 0x0f) * 4;
    if header_length < 20 {
        return Err(Malformed::HeaderLength(header_length));
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total < header_length || total > bytes.len() {
        return Err(Malformed::Length { says: total, have: bytes.len() });
    }
    let bytes = &bytes[..total];
    let source = [header[12], header[13], header[14], header[15]];
    let destination = [header[16], header[17], header[18], header[19]];
    let addresses = u64::from(u32::from_be_bytes(source)) << 32 | u64::from(u32::from_be_bytes(destination));
    let flow = hash(&[addresses, transport(bytes, 0)]);
    Ok(Packet {
        bytes,
        source: Ipv4Addr::from(source).into(),
        destination: Ipv4Addr::from(destination).into(),
        flow,
    })
}

fn parse_v6(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let header = head::<40>(bytes)?;
    let total = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if total > bytes.len() {
        return Err(Malformed::Length { says: total, have: bytes.len() });
    }
    let bytes = &bytes[..total];
    let source = u128::from_be_bytes(array(&header[8..24]));
    let destination = u128::from_be_bytes(array(&header[24..40]));
    let label = u32::from_be_bytes([0, header[1] & 0x0f, header[2], header[3]]);
    let flow =
        hash(&[high(source), low(source), high(destination), low(destination), transport(bytes, label)]);
    Ok(Packet {
        bytes,
        source: Ipv6Addr::from(source).into(),
        destination: Ipv6Addr::from(destination).into(),
        flow,
    })
}

/// What identifies the flow beyond its addresses: protocol and ports, or of one of several fragments what they have in common.
fn transport(packet: &[u8], label: u32) -> u64 {
    let Some(found) = headers::transport(packet) else { return u64::from(label) };
    match (found.version, found.fragment) {
        (6, true) => 1 << 63 | u64::from(label),
        (_, true) => u64::from(found.protocol) << 32,
        (_, false) => u64::from(found.protocol) << 32 | u64::from(ports(found.protocol, &packet[found.at..])),
    }
}

/// Source and destination port where the protocol has them at the front, else 0.
fn ports(protocol: u8, transport: &[u8]) -> u32 {
    match (protocol, transport) {
        (TCP | UDP | DCCP | SCTP | UDP_LITE, [a, b, c, d, ..]) => u32::from_be_bytes([*a, *b, *c, *d]),
        _ => 0,
    }
}

fn head<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], Malformed> {
    bytes.first_chunk().ok_or(Malformed::ShortHeader { have: bytes.len(), need: N })
}

fn array<const N: usize>(slice: &[u8]) -> [u8; N] {
    slice.try_into().expect("the slice is cut to N bytes by its caller")
}

fn high(address: u128) -> u64 {
    u64::try_from(address >> 64).expect("64 bits are left after the shift")
}

fn low(address: u128) -> u64 {
    u64::try_from(address & u128::from(u64::MAX)).expect("the mask leaves 64 bits")
}

/// Multiply and fold, then a finalizer, because the choice of a peer looks at all bits.
fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0x243f_6a88_85a3_08d3, |state, word| mix(state ^ word))
}

/// A bijection on 64 bits with good avalanche (the finalizer of SplitMix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::headers::{DESTINATION_OPTIONS, FRAGMENT};

    /// A UDP packet over IPv4 with `extra` bytes of payload.
    fn v4(source: [u8; 4], destination: [u8; 4], ports: [u8; 4], extra: usize) -> Vec<u8> {
        let total = u16::try_from(28 + extra).unwrap().to_be_bytes();
        let mut packet = vec![0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, UDP, 0, 0];
        packet.extend(source.iter().chain(&destination).chain(&ports));
        packet.resize(28 + extra, 0);
        packet
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 7, length[0], length[1], next, 64];
        packet.extend([0xfd; 16].iter().chain(&[0xfe; 16]).chain(payload));
        packet
    }

    #[test]
    fn padding_is_cut_off() {
        let whole = v4([10, 0, 0, 1], [10, 0, 0, 2], [1, 2, 3, 4], 5);
        let mut padded = whole.clone();
        padded.resize(48, 0);
        let packet = parse(&padded).unwrap();
        assert_eq!(packet.bytes, whole);
        assert_eq!(packet.source, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(packet.destination, IpAddr::from([10, 0, 0, 2]));
    }

    #[test]
    fn lengths_must_agree() {
        let good = v4([10, 0, 0, 1], [10, 0, 0, 2], [1, 2, 3, 4], 0);
        let with = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            parse(&packet).map(|p| p.bytes.len())
        };
        assert_eq!(with(3, 28), Ok(28));
        assert_eq!(with(3, 0), Err(Malformed::Length { says: 0, have: 28 }));
        assert_eq!(with(3, 19), Err(Malformed::Length { says: 19, have: 28 }));
        assert_eq!(with(3, 29), Err(Malformed::Length { says: 29, have: 28 }));
        assert_eq!(with(0, 0x44), Err(Malformed::HeaderLength(16)));
        assert_eq!(with(0, 0x4f), Err(Malformed::Length { says: 28, have: 28 }));
        assert_eq!(with(0, 0x55), Err(Malformed::Version(5)));
        assert_eq!(parse(&[]), Err(Malformed::Empty));
        assert_eq!(parse(&good[..19]), Err(Malformed::ShortHeader { have: 19, need: 20 }));
        let six = v6(UDP, &[0; 8]);
        assert_eq!(parse(&six[..47]), Err(Malformed::Length { says: 48, have: 47 }));
        assert_eq!(parse(&six[..39]), Err(Malformed::ShortHeader { have: 39, need: 40 }));
    }

    #[test]
    fn flow_is_the_five_tuple() {
        let flow = |ports, extra| parse(&v4([10, 0, 0, 1], [10, 0, 0, 2], ports, extra)).unwrap().flow;
        assert_eq!(flow([1, 2, 3, 4], 0), flow([1, 2, 3, 4], 100));
        assert_ne!(flow([1, 2, 3, 4], 0), flow([1, 2, 3, 5], 0));
    }

    #[test]
    fn fragments_of_one_packet_share_a_flow() {
        let mut first = v4([10, 0, 0, 1], [10, 0, 0, 2], [1, 2, 3, 4], 100);
        let mut second = v4([10, 0, 0, 1], [10, 0, 0, 2], [9, 9, 9, 9], 20);
        first[6] = 0x20;
        second[7] = 0x10;
        assert_eq!(parse(&first).unwrap().flow, parse(&second).unwrap().flow);

        let first = v6(FRAGMENT, &[UDP, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4]);
        let second = v6(FRAGMENT, &[UDP, 0, 0, 8, 0, 0, 0, 1, 9, 9, 9, 9]);
        assert_eq!(parse(&first).unwrap().flow, parse(&second).unwrap().flow);
    }

    #[test]
    fn ports_are_found_behind_extension_headers() {
        let plain = v6(UDP, &[1, 2, 3, 4, 0, 8, 0, 0]);
        let options = v6(DESTINATION_OPTIONS, &[UDP, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 8, 0, 0]);
        let atomic = v6(FRAGMENT, &[UDP, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 0, 8, 0, 0]);
        assert_eq!(parse(&plain).unwrap().flow, parse(&options).unwrap().flow);
        assert_eq!(parse(&plain).unwrap().flow, parse(&atomic).unwrap().flow);
    }

    #[test]
    fn udp_ports_are_those_of_whole_packets_and_first_fragments() {
        let ports = |bytes: &[u8]| parse(bytes).unwrap().udp_ports();
        let whole = v4([10, 0, 0, 1], [10, 0, 0, 2], [1, 2, 3, 4], 0);
        let with = |at: usize, value: u8| {
            let mut packet = whole.clone();
            packet[at] = value;
            ports(&packet)
        };
        assert_eq!(ports(&whole), Some((0x102, 0x304)));
        assert_eq!(with(6, 0x20), Some((0x102, 0x304)));
        assert_eq!(with(7, 1), None);
        assert_eq!(with(9, TCP), None);
        assert_eq!(with(0, 0x46), Some((0, 0)));
        assert_eq!(with(3, 23), None);

        assert_eq!(ports(&v6(UDP, &[1, 2, 3, 4])), Some((0x102, 0x304)));
        assert_eq!(ports(&v6(FRAGMENT, &[UDP, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4])), Some((0x102, 0x304)));
        assert_eq!(ports(&v6(FRAGMENT, &[UDP, 0, 0, 9, 0, 0, 0, 1, 1, 2, 3, 4])), None);
        assert_eq!(ports(&v6(FRAGMENT, &[TCP, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4])), None);
        assert_eq!(ports(&v6(TCP, &[1, 2, 3, 4])), None);
        assert_eq!(ports(&v6(UDP, &[1, 2, 3])), None);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), version in any::<Option<bool>>()) {
            if let (Some(six), Some(first)) = (version, bytes.first_mut()) {
                *first = if six { 0x60 } else { 0x45 };
            }
            if let Ok(packet) = parse(&bytes) {
                prop_assert!(packet.bytes.len() <= bytes.len());
                prop_assert!(packet.bytes.len() >= 20);
                packet.udp_ports();
            }
        }
    }
}
