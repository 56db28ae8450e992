//! Builders of packets and naive models for the tests of the packet arithmetic.

use crate::headers::{TCP, UDP};

/// One's complement sum, one word at a time.
pub(crate) fn naive_sum(bytes: &[u8]) -> u16 {
    let mut total = 0_u32;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        if total > 0xffff {
            total -= 0xffff;
        }
    }
    u16::try_from(total).unwrap()
}

/// Sum over pseudo header and transport of a packet whose transport begins at `at`: 0xffff if its checksum is right.
pub(crate) fn naive_transport_sum(packet: &[u8], at: usize, protocol: u8) -> u16 {
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    let length = u32::try_from(packet.len() - at).unwrap();
    let pseudo = [addresses, &length.to_be_bytes(), &[0, 0, 0, protocol]].concat();
    naive_sum(&[&pseudo, &packet[at..]].concat())
}

/// Asserts that lengths and checksums of a TCP or UDP packet without IPv4 options are right.
pub(crate) fn assert_valid(packet: &[u8], at: usize, protocol: u8) {
    if packet[0] >> 4 == 4 {
        assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
        assert_eq!(naive_sum(&packet[..usize::from(packet[0] & 15) * 4]), 0xffff, "IPv4 header checksum");
    } else {
        assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
    }
    if protocol == UDP {
        assert_eq!(usize::from(u16::from_be_bytes([packet[at + 4], packet[at + 5]])), packet.len() - at);
        assert_ne!(packet[at + 6..at + 8], [0, 0], "a zero sum is sent as 0xffff");
    }
    assert_eq!(naive_transport_sum(packet, at, protocol), 0xffff, "transport checksum");
}

/// A TCP segment; `build` gives a packet with right lengths and checksums.
#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    pub v6: bool,
    pub tos: u8,
    pub ttl: u8,
    pub id: u16,
    pub df: bool,
    pub ports: (u16, u16),
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// A multiple of four bytes.
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    /// IPv6 extension headers, first header number and bytes; the last must name TCP.
    pub extensions: Option<(u8, Vec<u8>)>,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            v6: false,
            tos: 0,
            ttl: 64,
            id: 1,
            df: true,
            ports: (1000, 2000),
            seq: 1,
            ack: 77,
            flags: crate::headers::ACK,
            window: 500,
            options: vec![],
            payload: vec![],
            extensions: None,
        }
    }
}

impl Tcp {
    pub(crate) fn build(&self) -> Vec<u8> {
        let offset = u8::try_from(20 + self.options.len()).unwrap() << 2;
        let transport = [
            &self.ports.0.to_be_bytes()[..],
            &self.ports.1.to_be_bytes(),
            &self.seq.to_be_bytes(),
            &self.ack.to_be_bytes(),
            &[offset, self.flags],
            &self.window.to_be_bytes(),
            &[0, 0, 0, 0],
            &self.options,
            &self.payload,
        ]
        .concat();
        let (next, extensions) = self.extensions.clone().unwrap_or((TCP, vec![]));
        let mut packet =
            ip(self.v6, self.tos, self.ttl, self.id, self.df, next, extensions.len() + transport.len());
        packet.extend(extensions);
        let at = packet.len();
        packet.extend(transport);
        let sum = !naive_transport_sum(&packet, at, TCP);
        packet[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
        packet
    }
}

/// A UDP datagram; `build` gives a packet with right lengths and checksums.
#[derive(Clone, Debug)]
pub(crate) struct Udp {
    pub v6: bool,
    pub tos: u8,
    pub ttl: u8,
    pub id: u16,
    pub df: bool,
    pub ports: (u16, u16),
    pub payload: Vec<u8>,
    /// Without a checksum.
    pub zero: bool,
}

impl Default for Udp {
    fn default() -> Self {
        Self {
            v6: false,
            tos: 0,
            ttl: 64,
            id: 1,
            df: true,
            ports: (1000, 2000),
            payload: vec![],
            zero: false,
        }
    }
}

impl Udp {
    pub(crate) fn build(&self) -> Vec<u8> {
        let length = u16::try_from(8 + self.payload.len()).unwrap();
        let ports = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        let transport = [&ports[..], &length.to_be_bytes(), &[0, 0], &self.payload].concat();
        let mut packet = ip(self.v6, self.tos, self.ttl, self.id, self.df, UDP, transport.len());
        let at = packet.len();
        packet.extend(transport);
        if !self.zero {
            let sum = match !naive_transport_sum(&packet, at, UDP) {
                0 => 0xffff,
                sum => sum,
            };
            packet[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
        }
        packet
    }
}

/// An IP header for `length` bytes behind it.
fn ip(v6: bool, tos: u8, ttl: u8, id: u16, df: bool, protocol: u8, length: usize) -> Vec<u8> {
    if v6 {
        let length = u16::try_from(length).unwrap().to_be_bytes();
        let mut header = vec![0x60 | tos >> 4, tos << 4, 0, 9, length[0], length[1], protocol, ttl];
        header.extend([0xfd; 16].iter().chain(&[0xfe; 16]));
        return header;
    }
    let total = u16::try_from(20 + length).unwrap().to_be_bytes();
    let [high, low] = id.to_be_bytes();
    let flags = if df { 0x40 } else { 0 };
    let mut header = vec![0x45, tos, total[0], total[1], high, low, flags, 0, ttl, protocol, 0, 0];
    header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = !naive_sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Replaces the checksum of a packet by the sum of its pseudo header, as the kernel leaves it for a network card.
pub(crate) fn seed(packet: &mut [u8], at: usize, protocol: u8, offset: usize) {
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    let length = u32::try_from(packet.len() - at).unwrap();
    let sum = naive_sum(&[addresses, &length.to_be_bytes(), &[0, 0, 0, protocol]].concat());
    packet[at + offset..at + offset + 2].copy_from_slice(&sum.to_be_bytes());
}
