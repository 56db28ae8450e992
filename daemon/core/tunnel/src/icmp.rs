//! The answer to a packet that is too big for the way to its peer: without it, path MTU discovery hangs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    checksum::{fold, pseudo_v6, sum},
    headers::{DONT_FRAGMENT, ICMP, ICMP_V6, Transport, V4, V6, length, put, transport, word},
};

/// Longest answer over IPv4 (RFC 1812 section 4.3.2.3) and over IPv6 (RFC 4443 section 3.2), in bytes; room for either.
const LONGEST_V4: usize = 576;
/// See [`too_big`].
pub const LONGEST: usize = 1280;
const HEADER: usize = 8;

const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const PACKET_TOO_BIG: u8 = 2;
/// Internetwork control (RFC 1812 section 4.3.2.5).
const PRECEDENCE: u8 = 0xc0;
const HOP_LIMIT: u8 = 64;

/// Writes the answer to `packet`, which did not fit `mtu` bytes, from `own` to its sender: "fragmentation needed" with the next hop's
/// MTU (RFC 1191), or "packet too big" (RFC 4443 section 3.2). As much of the packet is quoted as 576 or 1,280 bytes and `out` hold.
/// The MTU told over IPv6 is at least 1,280, which every link has. Returns the length of the answer; [`LONGEST`] bytes are room enough.
///
/// `None` if there must be no answer: to ICMP errors, to senders that are no single host, to fragments but the first, to multicast and
/// broadcast over IPv4, and to IPv4 packets without DF, which are to be fragmented. `None` too if `own` is of the other family, the
/// packet is malformed or `out` does not hold the headers. Callers limit the rate.
pub fn too_big(packet: &[u8], mtu: u16, own: IpAddr, out: &mut [u8]) -> Option<usize> {
    let found = transport(packet).filter(|found| !found.later)?;
    match own {
        IpAddr::V4(own) if found.version == 4 => too_big_v4(packet, &found, mtu, own, out),
        IpAddr::V6(own) if found.version == 6 => too_big_v6(packet, &found, mtu, own, out),
        _ => None,
    }
}

fn too_big_v4(packet: &[u8], found: &Transport, mtu: u16, own: Ipv4Addr, out: &mut [u8]) -> Option<usize> {
    let header = packet.first_chunk::<V4>()?;
    let [.., a, b, c, d, e, f, g, h] = *header;
    let (source, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
    let error = found.protocol == ICMP && !is_query(packet.get(found.at).copied());
    let fragmentable = word(header, 6) & DONT_FRAGMENT == 0;
    if error || fragmentable || !is_host(source) || destination.is_multicast() || destination.is_broadcast() {
        return None;
    }
    let total = (V4 + HEADER + packet.len()).min(LONGEST_V4).min(out.len());
    let out = &mut out[..total];
    let (ip, icmp) = out.split_at_mut_checked(V4)?;
    let quoted = quote(icmp, packet)?;
    // Small enough never to be fragmented, so the identification means nothing (RFC 6864).
    ip.copy_from_slice(&[
        0x45, PRECEDENCE, 0, 0, 0, 0, 0x40, 0, HOP_LIMIT, ICMP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ]);
    put(ip, 2, length(V4 + HEADER + quoted));
    ip[12..16].copy_from_slice(&own.octets());
    ip[16..20].copy_from_slice(&source.octets());
    put(ip, 10, !sum(ip));
    let [high, low] = mtu.to_be_bytes();
    icmp[..HEADER].copy_from_slice(&[UNREACHABLE, FRAGMENTATION_NEEDED, 0, 0, 0, 0, high, low]);
    put(icmp, 2, !sum(icmp));
    Some(total)
}

fn too_big_v6(packet: &[u8], found: &Transport, mtu: u16, own: Ipv6Addr, out: &mut [u8]) -> Option<usize> {
    let header = packet.first_chunk::<V6>()?;
    let source = Ipv6Addr::from(*header[8..].first_chunk::<16>()?);
    // Error messages are the types below 128, redirects behave like one.
    let error =
        found.protocol == ICMP_V6 && packet.get(found.at).is_none_or(|kind| *kind < 128 || *kind == 137);
    if error || source.is_unspecified() || source.is_multicast() || source.is_loopback() {
        return None;
    }
    let total = (V6 + HEADER + packet.len()).min(LONGEST).min(out.len());
    let out = &mut out[..total];
    let (ip, icmp) = out.split_at_mut_checked(V6)?;
    let quoted = quote(icmp, packet)?;
    ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, ICMP_V6, HOP_LIMIT]);
    put(ip, 4, length(HEADER + quoted));
    ip[8..24].copy_from_slice(&own.octets());
    ip[24..40].copy_from_slice(&source.octets());
    let [high, low] = mtu.max(1280).to_be_bytes();
    icmp[..HEADER].copy_from_slice(&[PACKET_TOO_BIG, 0, 0, 0, 0, 0, high, low]);
    let addresses = ip[8..].first_chunk()?;
    let pseudo = pseudo_v6(addresses, ICMP_V6, length(icmp.len()).into());
    put(icmp, 2, !fold(pseudo + u64::from(sum(icmp))));
    Some(total)
}

/// Puts as much of the packet behind the ICMP header as there is room for; how much that was.
fn quote(icmp: &mut [u8], packet: &[u8]) -> Option<usize> {
    let room = icmp.get_mut(HEADER..)?;
    room.copy_from_slice(packet.get(..room.len())?);
    Some(room.len())
}

/// True if the ICMP message is known to be none of the errors: echo, router discovery, timestamp, information, address mask, and the
/// extended echo (RFC 1122 section 3.2.2, RFC 8335).
fn is_query(kind: Option<u8>) -> bool {
    matches!(kind, Some(0 | 8 | 9 | 10 | 13..=18 | 42 | 43))
}

/// True for the address of one host out there.
fn is_host(address: Ipv4Addr) -> bool {
    let reserved = address.octets()[0] >= 240 || address.octets()[0] == 0;
    !reserved && !address.is_multicast() && !address.is_loopback()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Udp, naive_sum, naive_transport_sum};

    fn own(v6: bool) -> IpAddr {
        if v6 { "fd00::1".parse().unwrap() } else { "192.0.2.9".parse().unwrap() }
    }

    fn answer(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
        let mut out = vec![0xaa; LONGEST];
        let length = too_big(packet, mtu, own(packet[0] >> 4 == 6), &mut out)?;
        out.truncate(length);
        Some(out)
    }

    #[test]
    fn v4_quotes_up_to_576_bytes() {
        for size in [0, 519, 520, 521, 1400] {
            let packet = Udp { payload: vec![5; size], ..Udp::default() }.build();
            let reply = answer(&packet, 1300).unwrap();
            assert_eq!(reply.len(), (packet.len() + 28).min(576));
            assert_eq!(usize::from(word(&reply, 2)), reply.len());
            assert_eq!(reply[..2], [0x45, 0xc0]);
            assert_eq!(reply[12..20], [192, 0, 2, 9, 10, 0, 0, 1]);
            assert_eq!(reply[20..22], [3, 4]);
            assert_eq!(word(&reply, 26), 1300);
            assert_eq!(reply[28..], packet[..reply.len() - 28]);
            assert_eq!((naive_sum(&reply[..20]), naive_sum(&reply[20..])), (0xffff, 0xffff));
        }
    }

    #[test]
    fn v6_quotes_up_to_1280_bytes() {
        for (size, mtu) in [(0, 1280), (1183, 1300), (1184, 1300), (1400, 1400), (9000, 900)] {
            let packet = Udp { v6: true, payload: vec![5; size], ..Udp::default() }.build();
            let reply = answer(&packet, mtu).unwrap();
            assert_eq!(reply.len(), (packet.len() + 48).min(1280));
            assert_eq!(usize::from(word(&reply, 4)), reply.len() - 40);
            assert_eq!(reply[24..40], packet[8..24]);
            assert_eq!(reply[40..42], [2, 0]);
            assert_eq!((word(&reply, 44), word(&reply, 46)), (0, mtu.max(1280)));
            assert_eq!(reply[48..], packet[..reply.len() - 48]);
            assert_eq!(naive_transport_sum(&reply, 40, ICMP_V6), 0xffff);
        }
    }

    #[test]
    fn a_short_buffer_quotes_less() {
        for v6 in [false, true] {
            let packet = Udp { v6, payload: vec![5; 100], ..Udp::default() }.build();
            let headers = if v6 { 48 } else { 28 };
            for room in 0..headers + 10 {
                let length = too_big(&packet, 1280, own(v6), &mut vec![0; room]);
                assert_eq!(length, (room >= headers).then_some(room));
            }
        }
    }

    #[test]
    fn no_answer_where_one_would_do_harm() {
        let silent = |v6, at: usize, bytes: &[u8]| {
            let mut packet = Udp { v6, payload: vec![5; 1400], ..Udp::default() }.build();
            packet[at..at + bytes.len()].copy_from_slice(bytes);
            answer(&packet, 1300).is_none()
        };
        assert!(!silent(false, 12, &[10, 0, 0, 1]));
        for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255, 255, 255, 255], [240, 0, 0, 1]] {
            assert!(silent(false, 12, &source));
        }
        for destination in [[224, 0, 0, 1], [255, 255, 255, 255]] {
            assert!(silent(false, 16, &destination));
        }
        assert!(silent(false, 6, &[0x00]), "without DF");
        assert!(!silent(false, 6, &[0x60]), "first fragment");
        assert!(silent(false, 6, &[0x60, 9]), "later fragment");
        assert!(!silent(true, 8, &[0xfd]));
        assert!(silent(true, 8, &[0; 16]));
        assert!(silent(true, 8, &[0xff]));
        assert!(!silent(true, 24, &[0xff]), "path MTU discovery of multicast, RFC 4443 section 2.4 (e.3)");
    }

    #[test]
    fn no_answer_to_icmp_errors() {
        let to = |v6, kind| {
            let mut packet = Udp { v6, payload: vec![5; 1400], ..Udp::default() }.build();
            let (protocol, at, number) = if v6 { (6, 40, ICMP_V6) } else { (9, 20, ICMP) };
            packet[protocol] = number;
            packet[at] = kind;
            answer(&packet, 1300).is_some()
        };
        let answered: Vec<u8> = (0..=255).filter(|kind| to(false, *kind)).collect();
        assert_eq!(answered, [0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 42, 43]);
        assert!((0..128).all(|kind| !to(true, kind)));
        assert!(to(true, 128) && to(true, 129) && !to(true, 137));
    }

    #[test]
    fn families_must_agree() {
        let packet = Udp::default().build();
        assert_eq!(too_big(&packet, 1300, own(true), &mut [0; 1280]), None);
        assert_eq!(too_big(&[], 1300, own(true), &mut [0; 1280]), None);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), v6: bool, mtu: u16, room in 0_usize..200) {
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x45 };
            }
            let length = too_big(&bytes, mtu, own(v6), &mut vec![0; room]);
            prop_assert!(length.is_none_or(|length| length <= room));
        }
    }
}
