//! What the TUN device hands over becomes packets: bursts are cut (TSO, USO), partial checksums completed.

use thiserror::Error;

use super::vnet::{self, VnetHeader};
use crate::{
    checksum::{copy_and_sum, fold, sum},
    ecn::Ecn,
    headers::{self, CWR, FIN, PSH, TCP, UDP, V6, length, put, word},
    plaintext::Plaintext,
};

/// Segments that one burst may yield. The kernel cuts UDP bursts into at most 128; a TCP burst of 64 KiB is bounded by the smallest
/// MSS that Linux sends, 48 bytes (`tcp_min_snd_mss`) less 12 of timestamps: 1,820 segments. More would be work and memory that no
/// sender in good faith asks for.
pub const MAX_SEGMENTS: usize = 2048;

/// Why a packet and its header do not fit together. The kernel or whoever injected the packet is at fault; drop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The IP headers do not fit the bytes.
    #[error("no complete IP header in {0} bytes")]
    Ip(usize),
    /// The length field of the IP header does not say how long the burst is.
    #[error("IP length field says {says} bytes, the burst has {have}")]
    Length {
        /// What the field says, headers included.
        says: usize,
        /// Bytes there are.
        have: usize,
    },
    /// A kind of burst that was never offered to the kernel.
    #[error("burst of type {0:#04x}, which this side does not offer")]
    Type(u8),
    /// The packet is not what the type says.
    #[error("burst of type {gso_type:#04x} holds IPv{version} protocol {protocol}")]
    Mismatch {
        /// The type in the header.
        gso_type: u8,
        /// IP version of the packet.
        version: u8,
        /// Its transport protocol.
        protocol: u8,
    },
    /// A fragment cannot be a burst.
    #[error("burst that is an IP fragment")]
    Fragment,
    /// The transport header does not fit the bytes.
    #[error("transport header at {at} does not fit {have} bytes")]
    Transport {
        /// Where it should begin.
        at: usize,
        /// Bytes there are.
        have: usize,
    },
    /// Start or offset of the checksum is outside the packet or not that of the transport.
    #[error("checksum at {start} + {offset} does not fit {have} bytes or the transport header")]
    Checksum {
        /// `csum_start`.
        start: usize,
        /// `csum_offset`.
        offset: usize,
        /// Bytes there are.
        have: usize,
    },
    /// A burst for whose checksum nobody vouches.
    #[error("burst with neither a partial nor a verified checksum")]
    Unverified,
    /// Segments of no size.
    #[error("burst with a segment size of zero")]
    ZeroSize,
    /// More than [`MAX_SEGMENTS`].
    #[error("burst of {0} segments, at most {MAX_SEGMENTS} are cut")]
    Segments(usize),
}

/// Cuts what was read from the TUN device into the packets that leave.
///
/// A packet that is no burst comes out as it is, with its checksum completed in place if the header asks for that, wherever in the
/// packet it is (inside VXLAN or Geneve, say). A burst yields its segments; each has its own lengths, IPv4 identification, sequence
/// number and full checksums.
///
/// # Errors
/// When header and packet contradict each other, or the header asks for what was not offered. `hdr_len` is not looked at.
pub fn split(header: VnetHeader, packet: &mut [u8]) -> Result<Split<'_>, Malformed> {
    match header.gso_type {
        vnet::GSO_NONE => {
            if header.flags & vnet::NEEDS_CSUM != 0 {
                complete(header, packet)?;
            }
            Ok(Split { burst: None, rest: packet, size: packet.len(), index: 0, count: 1 })
        }
        _ => Burst::cut(header, packet),
    }
}

/// Adds what the partial checksum lacks.
fn complete(header: VnetHeader, packet: &mut [u8]) -> Result<(), Malformed> {
    let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
    if start + offset + 2 > packet.len() {
        return Err(Malformed::Checksum { start, offset, have: packet.len() });
    }
    let sum = !sum(&packet[start..]);
    // In UDP, a checksum of zero means that there is none (RFC 768).
    let sum = if sum == 0 && header.csum_offset == UDP_CHECKSUM { 0xffff } else { sum };
    put(packet, start + offset, sum);
    Ok(())
}

/// Smallest TCP header, in bytes.
const TCP_HEADER: usize = 20;
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;

/// The packets that one read yields, in order.
#[derive(Clone, Debug)]
pub struct Split<'a> {
    burst: Option<Burst<'a>>,
    rest: &'a [u8],
    size: usize,
    index: usize,
    count: usize,
}

impl<'a> Iterator for Split<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        (self.index < self.count).then(|| {
            let (payload, rest) = self.rest.split_at(self.size.min(self.rest.len()));
            let segment =
                Segment { burst: self.burst, payload, index: self.index, last: self.index + 1 == self.count };
            self.rest = rest;
            self.index += 1;
            segment
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count - self.index, Some(self.count - self.index))
    }
}

impl ExactSizeIterator for Split<'_> {}

/// One packet of a [`Split`].
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Without one, `payload` is the whole packet.
    burst: Option<Burst<'a>>,
    payload: &'a [u8],
    index: usize,
    last: bool,
}

impl Plaintext for Segment<'_> {
    fn len(&self) -> usize {
        self.burst.map_or(0, |burst| burst.headers.len()) + self.payload.len()
    }

    fn write(&self, into: &mut [u8]) {
        match &self.burst {
            None => into.copy_from_slice(self.payload),
            Some(burst) => burst.write(self, into),
        }
    }

    fn ecn(&self) -> Ecn {
        Ecn::of(self.burst.map_or(self.payload, |burst| burst.headers))
    }
}

/// What the segments of a burst share.
#[derive(Clone, Copy, Debug)]
struct Burst<'a> {
    /// IP and transport header of the burst.
    headers: &'a [u8],
    /// Where the transport header begins.
    at: usize,
    udp: bool,
    /// Payload of every segment but the last.
    size: u16,
    /// Sum over what is the same in all IPv4 headers.
    ip_sum: u64,
    /// Sum over what is the same in all pseudo and transport headers.
    transport_sum: u64,
}

impl<'a> Burst<'a> {
    fn cut(header: VnetHeader, packet: &'a [u8]) -> Result<Split<'a>, Malformed> {
        let found = headers::transport(packet).ok_or(Malformed::Ip(packet.len()))?;
        check_length(packet)?;
        let udp = check_kind(header.gso_type, found)?;
        check_checksum(header, found.at, packet.len(), udp)?;
        let end = transport_end(packet, found.at, udp)?;
        let (headers, payload) = packet.split_at(end);
        let count = check_count(header.gso_size, payload.len())?;
        let mut burst =
            Self { headers, at: found.at, udp, size: header.gso_size, ip_sum: 0, transport_sum: 0 };
        burst.ip_sum = burst.constant_ip();
        burst.transport_sum =
            burst.constant_transport() + burst.constant_pseudo(header, found, packet.len())?;
        Ok(Split { burst: Some(burst), rest: payload, size: usize::from(header.gso_size), index: 0, count })
    }

    /// The IPv4 header without total length, identification and checksum.
    fn constant_ip(&self) -> u64 {
        match self.headers[0] >> 4 {
            4 => {
                u64::from(sum(&self.headers[..2]))
                    + u64::from(sum(&self.headers[6..10]))
                    + u64::from(sum(&self.headers[12..self.at]))
            }
            _ => 0,
        }
    }

    /// The TCP header without sequence number, flags and checksum; the ports of UDP.
    fn constant_transport(&self) -> u64 {
        let transport = &self.headers[self.at..];
        let ports = u64::from(sum(&transport[..4]));
        if self.udp {
            return ports;
        }
        let offset = u64::from(transport[12]) << 8;
        ports
            + u64::from(sum(&transport[8..12]))
            + offset
            + u64::from(word(transport, 14))
            + u64::from(sum(&transport[18..]))
    }

    /// The pseudo header without its length. Behind a routing header the IPv6 header does not name the final destination, but the
    /// partial checksum of the kernel counts it.
    fn constant_pseudo(
        &self,
        header: VnetHeader,
        found: headers::Transport,
        total: usize,
    ) -> Result<u64, Malformed> {
        let protocol = u64::from(found.protocol);
        match found.version {
            4 => Ok(u64::from(sum(&self.headers[12..20])) + protocol),
            _ if !found.routed => Ok(u64::from(sum(&self.headers[8..40])) + protocol),
            _ if header.flags & vnet::NEEDS_CSUM != 0 => {
                let seed = word(self.headers, self.at + usize::from(header.csum_offset));
                Ok(u64::from(seed) + u64::from(!length(total - self.at)))
            }
            _ => Err(Malformed::Unverified),
        }
    }

    fn write(&self, segment: &Segment<'_>, into: &mut [u8]) {
        let total = into.len();
        let (head, body) = into.split_at_mut(self.headers.len());
        head.copy_from_slice(self.headers);
        let payload = u64::from(copy_and_sum(body, segment.payload));
        let (ip, transport) = head.split_at_mut(self.at);
        self.number_ip(ip, segment.index, total);
        let length = length(total - self.at);
        let constant = self.transport_sum + payload + u64::from(length);
        if self.udp {
            put(transport, 4, length);
            let sum = !fold(constant + u64::from(length));
            put(transport, usize::from(UDP_CHECKSUM), if sum == 0 { 0xffff } else { sum });
        } else {
            let numbers = self.number_tcp(transport, segment);
            put(transport, usize::from(TCP_CHECKSUM), !fold(constant + numbers));
        }
    }

    /// Total length, identification and checksum of IPv4, payload length of IPv6.
    fn number_ip(&self, ip: &mut [u8], index: usize, total: usize) {
        if ip[0] >> 4 == 6 {
            put(ip, 4, length(total - V6));
            return;
        }
        let (total, id) = (length(total), word(ip, 4).wrapping_add(length(index)));
        put(ip, 2, total);
        put(ip, 4, id);
        put(ip, 10, !fold(self.ip_sum + u64::from(total) + u64::from(id)));
    }

    /// Sequence number and flags of TCP; their sum.
    fn number_tcp(&self, tcp: &mut [u8], segment: &Segment<'_>) -> u64 {
        let first = u32::from(word(tcp, 4)) << 16 | u32::from(word(tcp, 6));
        let seq = first.wrapping_add(u32::from(length(segment.index)) * u32::from(self.size));
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        if !segment.last {
            tcp[13] &= !(FIN | PSH);
        }
        if segment.index > 0 {
            tcp[13] &= !CWR;
        }
        u64::from(seq >> 16) + u64::from(seq & 0xffff) + u64::from(tcp[13])
    }
}

fn check_length(packet: &[u8]) -> Result<(), Malformed> {
    let says =
        if packet[0] >> 4 == 4 { usize::from(word(packet, 2)) } else { V6 + usize::from(word(packet, 4)) };
    if says == packet.len() { Ok(()) } else { Err(Malformed::Length { says, have: packet.len() }) }
}

/// True for UDP, false for TCP.
fn check_kind(gso_type: u8, found: headers::Transport) -> Result<bool, Malformed> {
    let udp = match (gso_type & !vnet::GSO_ECN, found.version, found.protocol) {
        (vnet::GSO_TCPV4, 4, TCP) | (vnet::GSO_TCPV6, 6, TCP) => false,
        (vnet::GSO_UDP_L4, _, UDP) => true,
        (vnet::GSO_TCPV4 | vnet::GSO_TCPV6 | vnet::GSO_UDP_L4, version, protocol) => {
            return Err(Malformed::Mismatch { gso_type, version, protocol });
        }
        _ => return Err(Malformed::Type(gso_type)),
    };
    if found.fragment { Err(Malformed::Fragment) } else { Ok(udp) }
}

/// A burst has a partial checksum at its transport header, or the kernel verified it.
fn check_checksum(header: VnetHeader, at: usize, have: usize, udp: bool) -> Result<(), Malformed> {
    if header.flags & vnet::NEEDS_CSUM == 0 {
        return if header.flags & vnet::DATA_VALID == 0 { Err(Malformed::Unverified) } else { Ok(()) };
    }
    let (start, offset) = (usize::from(header.csum_start), usize::from(header.csum_offset));
    let expected = if udp { UDP_CHECKSUM } else { TCP_CHECKSUM };
    if start == at && header.csum_offset == expected {
        Ok(())
    } else {
        Err(Malformed::Checksum { start, offset, have })
    }
}

/// Where the transport header ends.
fn transport_end(packet: &[u8], at: usize, udp: bool) -> Result<usize, Malformed> {
    let missing = Malformed::Transport { at, have: packet.len() };
    let size = if udp { 8 } else { usize::from(*packet.get(at + 12).ok_or(missing)? >> 4) * 4 };
    if (!udp && size < TCP_HEADER) || at + size > packet.len() { Err(missing) } else { Ok(at + size) }
}

/// Number of segments; without payload it is one, the header.
fn check_count(size: u16, payload: usize) -> Result<usize, Malformed> {
    if size == 0 {
        return Err(Malformed::ZeroSize);
    }
    match payload.div_ceil(usize::from(size)).max(1) {
        count if count <= MAX_SEGMENTS => Ok(count),
        count => Err(Malformed::Segments(count)),
    }
}

#[cfg(test)]
mod tests;
