//! BFD packets as they travel inside a tunnel: IP and UDP headers around them, made and checked here, since no kernel does.

use std::net::IpAddr;

use isthmus_tunnel::{checksum, packet};

/// Where single-hop BFD is listened for (RFC 5881 section 4).
pub(crate) const PORT: u16 = 3784;
/// What crossed a router has less (RFC 5881 section 5).
const TTL: u8 = 255;
const UDP: u8 = 17;
/// Network control (CS6), as other routing protocols use it.
const TRAFFIC_CLASS: u8 = 0xc0;

/// An inner packet to the BFD port that is sound and comes from the next hop.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inner<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) payload: &'a [u8],
}

/// Reads a packet; `None`: it is none for the BFD port, is damaged, is a fragment, or has come over a router.
pub(super) fn parse(bytes: &[u8]) -> Option<Inner<'_>> {
    let packet = packet::parse(bytes).ok()?;
    let bytes = packet.bytes;
    let (ttl, datagram, pseudo) = match packet.source {
        IpAddr::V4(_) => v4(bytes)?,
        IpAddr::V6(_) => v6(bytes)?,
    };
    let (header, _) = datagram.split_first_chunk::<8>()?;
    let [_, _, high, low, length_high, length_low, sum_high, sum_low] = *header;
    let length = usize::from(u16::from_be_bytes([length_high, length_low]));
    let datagram = datagram.get(..length).filter(|datagram| datagram.len() >= 8)?;
    // Over IPv4 a sender may leave the checksum out (RFC 768), over IPv6 not (RFC 8200 section 8.1).
    let unchecked = [sum_high, sum_low] == [0, 0];
    let total = checksum::fold(pseudo(length) + u64::from(checksum::sum(datagram)));
    let sound = if unchecked { packet.source.is_ipv4() } else { total == 0xffff };
    let ours = u16::from_be_bytes([high, low]) == PORT && ttl == TTL && sound;
    ours.then_some(Inner { source: packet.source, destination: packet.destination, payload: &datagram[8..] })
}

/// TTL, datagram, and the pseudo header's sum for a length.
type Parts<'a> = (u8, &'a [u8], Box<dyn Fn(usize) -> u64 + 'a>);

fn v4(bytes: &[u8]) -> Option<Parts<'_>> {
    let length = usize::from(bytes[0] & 0x0f) * 4;
    let (header, datagram) = bytes.split_at_checked(length)?;
    let addresses: &[u8; 8] = header.get(12..20)?.first_chunk()?;
    // Only "don't fragment" may be set.
    let whole = header[6] & !0x40 == 0 && header[7] == 0;
    let good = whole && header[9] == UDP && checksum::sum(header) == 0xffff;
    let pseudo = |length: usize| checksum::pseudo_v4(addresses, UDP, u16::try_from(length).unwrap_or(0));
    good.then(|| (header[8], datagram, Box::new(pseudo) as Box<dyn Fn(usize) -> u64>))
}

fn v6(bytes: &[u8]) -> Option<Parts<'_>> {
    let (header, datagram) = bytes.split_first_chunk::<40>()?;
    let addresses: &[u8; 32] = header[8..].first_chunk()?;
    let pseudo = |length: usize| checksum::pseudo_v6(addresses, UDP, u32::try_from(length).unwrap_or(0));
    (header[6] == UDP).then(|| (header[7], datagram, Box::new(pseudo) as Box<dyn Fn(usize) -> u64>))
}

/// The packet from one of our addresses to one of the peer's; `None`: they are of different families.
pub(super) fn build(source: IpAddr, destination: IpAddr, port: u16, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(payload.len() + 8).ok()?;
    let mut bytes = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let [high, low] = (length + 20).to_be_bytes();
            let mut header = vec![0x45, TRAFFIC_CLASS, high, low, 0, 0, 0x40, 0, TTL, UDP, 0, 0];
            header.extend(source.octets().into_iter().chain(destination.octets()));
            let sum = !checksum::sum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let [high, low] = length.to_be_bytes();
            let mut header = vec![0x60 | TRAFFIC_CLASS >> 4, 0, 0, 0, high, low, UDP, TTL];
            header.extend(source.octets().into_iter().chain(destination.octets()));
            header
        }
        _ => return None,
    };
    let at = bytes.len();
    bytes.extend(port.to_be_bytes().into_iter().chain(PORT.to_be_bytes()).chain(length.to_be_bytes()));
    bytes.extend([0, 0].iter().chain(payload));
    let pseudo = match bytes.len() - usize::from(length) {
        20 => checksum::pseudo_v4(bytes[12..20].first_chunk()?, UDP, length),
        _ => checksum::pseudo_v6(bytes[8..40].first_chunk()?, UDP, length.into()),
    };
    let sum = !checksum::fold(pseudo + u64::from(checksum::sum(&bytes[at..])));
    // Zero would say that there is none (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    bytes[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(v6: bool) -> (IpAddr, IpAddr) {
        let texts = if v6 { ["fd7a::1", "fd7a::2"] } else { ["10.99.0.1", "10.99.0.2"] };
        (texts[0].parse().unwrap(), texts[1].parse().unwrap())
    }

    #[test]
    fn what_is_built_is_read_and_any_damage_is_seen() {
        for v6 in [false, true] {
            let (source, destination) = pair(v6);
            let bytes = build(source, destination, 50_000, &[7; 24]).unwrap();
            assert_eq!(parse(&bytes), Some(Inner { source, destination, payload: &[7; 24] }));
            // Over IPv6 nothing protects traffic class and flow label.
            for at in if v6 { 4 } else { 0 }..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x04;
                assert_eq!(parse(&damaged), None, "byte {at}");
            }
            let mut padded = bytes.clone();
            padded.extend([0; 8]);
            assert!(parse(&padded).is_some());
            (0..bytes.len()).for_each(|length| assert_eq!(parse(&bytes[..length]), None));
        }
    }

    #[test]
    fn only_ipv4_may_leave_the_checksum_out() {
        for (v6, at) in [(false, 26), (true, 46)] {
            let (source, destination) = pair(v6);
            let mut bytes = build(source, destination, 50_000, &[7; 24]).unwrap();
            bytes[at..at + 2].fill(0);
            assert_eq!(parse(&bytes).is_some(), !v6);
        }
    }

    #[test]
    fn what_came_over_a_router_is_not_taken() {
        let (source, destination) = pair(true);
        let mut bytes = build(source, destination, 50_000, &[7; 24]).unwrap();
        bytes[7] = 254;
        assert_eq!(parse(&bytes), None);
        assert_eq!(build(source, "10.0.0.1".parse().unwrap(), 1, &[]), None);
    }

    proptest::proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100), v6: bool) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0x0f };
            }
            let _ = parse(&bytes);
        }
    }
}
