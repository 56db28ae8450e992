//! Where the transport header of an IP packet begins, for the modules that rewrite headers.

/// Protocol numbers (IANA).
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP_V6: u8 = 58;

/// Smallest IPv4 header and the IPv6 header, in bytes.
pub(crate) const V4: usize = 20;
pub(crate) const V6: usize = 40;

/// TCP flags (RFC 9293 section 3.1), byte 13 of its header.
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const CWR: u8 = 0x80;

/// IPv4 flags and fragment offset, the word at byte 6.
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;
pub(crate) const OFFSET: u16 = 0x1fff;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;

/// IPv6 extension headers that are walked; real packets have one or two.
const MAX_EXTENSIONS: usize = 8;

/// What lies behind the IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    /// 4 or 6.
    pub version: u8,
    /// Protocol of the header at `at`.
    pub protocol: u8,
    /// Where it begins; within the packet or at its end.
    pub at: usize,
    /// One of several fragments.
    pub fragment: bool,
    /// A fragment that is not the first: there is no transport header at `at`.
    pub later: bool,
    /// Behind a routing header: the final destination is not the one in the IPv6 header.
    pub routed: bool,
}

/// Finds the transport header; `None` if the IP headers do not fit the bytes. Length fields are not looked at.
pub(crate) fn transport(packet: &[u8]) -> Option<Transport> {
    match packet.first()? >> 4 {
        4 => transport_v4(packet),
        6 => transport_v6(packet),
        _ => None,
    }
}

fn transport_v4(packet: &[u8]) -> Option<Transport> {
    let header = packet.first_chunk::<V4>()?;
    let at = usize::from(header[0] & 0x0f) * 4;
    let fragment = word(header, 6);
    (V4..=packet.len()).contains(&at).then_some(Transport {
        version: 4,
        protocol: header[9],
        at,
        fragment: fragment & (OFFSET | MORE_FRAGMENTS) != 0,
        later: fragment & OFFSET != 0,
        routed: false,
    })
}

fn transport_v6(packet: &[u8]) -> Option<Transport> {
    let header = packet.first_chunk::<V6>()?;
    let mut found =
        Transport { version: 6, protocol: header[6], at: V6, fragment: false, later: false, routed: false };
    for _ in 0..MAX_EXTENSIONS {
        let Some(size) = extension(packet, &mut found) else { return Some(found) };
        found.protocol = *packet.get(found.at)?;
        found.at = (found.at + size <= packet.len()).then_some(found.at + size)?;
        if found.later {
            return Some(found);
        }
    }
    None
}

/// Size of the extension header at `found.at`, noting what it says; `None` if there is none.
fn extension(packet: &[u8], found: &mut Transport) -> Option<usize> {
    let rest = &packet[found.at..];
    let length = usize::from(rest.get(1).copied().unwrap_or(0));
    match found.protocol {
        HOP_BY_HOP | DESTINATION_OPTIONS => Some((length + 1) * 8),
        AUTHENTICATION => Some((length + 2) * 4),
        ROUTING => {
            found.routed = true;
            Some((length + 1) * 8)
        }
        FRAGMENT => {
            let offset = rest.get(2..4).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
            found.fragment |= offset & 0xfff9 != 0;
            found.later = offset & 0xfff8 != 0;
            Some(8)
        }
        _ => None,
    }
}

/// The 16-bit word at `at`, which the caller knows to be there.
pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Puts a 16-bit word at `at`, where the caller knows there is room.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// A length of at most 65 535 as a header field.
///
/// # Panics
/// When it is longer, which callers exclude.
pub(crate) fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("no part of an IP packet is longer than its 16-bit length field says")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, u8::try_from(payload.len()).unwrap(), next, 64];
        packet.extend([0xfd; 32].iter().chain(payload));
        packet
    }

    #[test]
    fn extension_headers_are_walked() {
        let found = |next, payload: &[u8]| transport(&v6(next, payload)).map(|t| (t.protocol, t.at));
        assert_eq!(found(TCP, &[]), Some((TCP, 40)));
        assert_eq!(found(HOP_BY_HOP, &[TCP, 0, 0, 0, 0, 0, 0, 0]), Some((TCP, 48)));
        assert_eq!(found(HOP_BY_HOP, &[TCP, 1, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(found(AUTHENTICATION, &[UDP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Some((UDP, 52)));
        assert_eq!(found(HOP_BY_HOP, &[0; 72]), None);
        let routed = transport(&v6(ROUTING, &[TCP, 0, 0, 0, 0, 0, 0, 0])).unwrap();
        assert!(routed.routed && !routed.fragment);
        let first = transport(&v6(FRAGMENT, &[UDP, 0, 0, 1, 0, 0, 0, 0])).unwrap();
        assert!(first.fragment && !first.later);
        let later = transport(&v6(FRAGMENT, &[UDP, 0, 0, 8, 0, 0, 0, 0])).unwrap();
        assert!(later.fragment && later.later);
        let atomic = transport(&v6(FRAGMENT, &[UDP, 0, 0, 0, 0, 0, 0, 0])).unwrap();
        assert!(!atomic.fragment && !atomic.later);
    }

    #[test]
    fn header_length_is_checked() {
        let mut packet = [0_u8; 24];
        for (first, expected) in
            [(0x44, None), (0x45, Some(20)), (0x46, Some(24)), (0x47, None), (0x55, None)]
        {
            packet[0] = first;
            assert_eq!(transport(&packet).map(|t| t.at), expected, "{first:#x}");
        }
        assert_eq!(transport(&[]), None);
    }
}
