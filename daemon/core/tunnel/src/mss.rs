//! TCP learns what fits the tunnel from the maximum segment size of the handshake (RFC 9293 section 3.7.1), lowered on the way.

use crate::{
    checksum::update,
    headers::{SYN, TCP, V4, V6, put, transport, word},
};

const TCP_HEADER: usize = 20;
/// Where its flags are.
const FLAGS: usize = 13;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;

/// Lowers the MSS option of a SYN or SYN-ACK to what fits packets of `mtu` bytes without IP and TCP options (RFC 6691): `mtu` less 40
/// over IPv4, less 60 over IPv6. Never raises it, and adds none: without the option, senders keep to 536 and 1,220 bytes.
///
/// The checksum is corrected, not computed, so it must be a full one: this is for finished packets, not for what the TUN device hands
/// over with a partial checksum. True if the packet changed.
pub fn clamp(packet: &mut [u8], mtu: u16) -> bool {
    let Some(found) = transport(packet).filter(|found| found.protocol == TCP && !found.later) else {
        return false;
    };
    let ip = if found.version == 4 { V4 } else { V6 };
    let limit = usize::from(mtu).saturating_sub(ip + TCP_HEADER);
    let tcp = &mut packet[found.at..];
    let Some(at) = option(tcp) else { return false };
    let (old, new) = (word(tcp, at), u16::try_from(limit).expect("less than the MTU"));
    if old <= new {
        return false;
    }
    put(tcp, at, new);
    let checksum = word(tcp, 16);
    // One's complement sums don't mind swapped bytes, as long as all of them are.
    let updated = if at % 2 == 0 {
        update(checksum, old, new)
    } else {
        update(checksum, old.swap_bytes(), new.swap_bytes())
    };
    put(tcp, 16, updated);
    true
}

/// True for a TCP segment with SYN, which is what [`clamp`] may change. Looks no further than the fixed headers, so it costs every
/// packet little; a SYN behind IPv6 extension headers is left alone.
pub fn is_syn(packet: &[u8]) -> bool {
    let flags = match packet.first().map(|first| first >> 4) {
        Some(4) if packet.get(9) == Some(&TCP) => usize::from(packet[0] & 0x0f) * 4 + FLAGS,
        Some(6) if packet.get(6) == Some(&TCP) => V6 + FLAGS,
        _ => return false,
    };
    packet.get(flags).is_some_and(|flags| flags & SYN != 0)
}

/// Where the value of the MSS option of a SYN is.
fn option(tcp: &[u8]) -> Option<usize> {
    let header = tcp.first_chunk::<TCP_HEADER>()?;
    let options = tcp.get(..usize::from(header[12] >> 4) * 4).filter(|_| header[13] & SYN != 0)?;
    let mut at = TCP_HEADER;
    while let Some(kind) = options.get(at) {
        at += match *kind {
            END_OF_OPTIONS => return None,
            NO_OPERATION => 1,
            kind => match (kind, options.get(at + 1).copied().map(usize::from)?) {
                (MAXIMUM_SEGMENT_SIZE, 4) => return (at + 4 <= options.len()).then_some(at + 2),
                (_, 0 | 1) => return None,
                (_, length) => length,
            },
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        headers::ACK,
        testing::{Tcp, assert_valid},
    };

    fn syn(v6: bool, options: &[u8]) -> Tcp {
        Tcp { v6, flags: SYN, options: options.to_vec(), ..Tcp::default() }
    }

    #[test]
    fn only_lowers() {
        for (v6, at, mtu) in [(false, 20, 1420), (true, 40, 1440)] {
            for (mss, expected) in
                [(1460_u16, 1380_u16), (1381, 1380), (1380, 1380), (536, 536), (65_535, 1380)]
            {
                let [high, low] = mss.to_be_bytes();
                let mut packet = syn(v6, &[2, 4, high, low]).build();
                assert_eq!(clamp(&mut packet, mtu), mss != expected);
                assert_eq!(word(&packet, at + 22), expected);
                assert_valid(&packet, at, TCP);
            }
        }
    }

    #[test]
    fn options_are_walked() {
        let clamped = |options: &[u8]| clamp(&mut syn(false, options).build(), 1000);
        assert!(clamped(&[1, 1, 1, 1, 2, 4, 9, 9]));
        assert!(clamped(&[4, 2, 2, 4, 9, 9, 0, 0]));
        assert!(clamped(&[1, 2, 4, 9, 9, 0, 0, 0]));
        assert!(!clamped(&[0, 0, 0, 0, 2, 4, 9, 9]));
        assert!(!clamped(&[8, 0, 2, 4, 9, 9, 0, 0]));
        assert!(!clamped(&[8, 1, 2, 4, 9, 9, 0, 0]));
        assert!(!clamped(&[8, 200, 2, 4, 9, 9, 0, 0]));
        assert!(!clamped(&[2, 3, 9, 9]));
        assert!(!clamped(&[1, 1, 2, 4]));
        assert!(!clamped(&[1, 1, 1, 2]));
        assert!(!clamped(&[]));
    }

    #[test]
    fn only_syn_of_tcp() {
        let options = vec![2, 4, 9, 9];
        let both = Tcp { flags: SYN | ACK, options: options.clone(), ..Tcp::default() };
        assert!(clamp(&mut both.build(), 1000));
        assert!(!clamp(&mut Tcp { flags: ACK, ..both.clone() }.build(), 1000));
        let mut udp = both.build();
        udp[9] = 17;
        assert!(!clamp(&mut udp, 1000));
        let mut later = both.build();
        later[7] = 9;
        assert!(!clamp(&mut later, 1000));
        let behind = Tcp { v6: true, extensions: Some((60, vec![6, 0, 1, 4, 0, 0, 0, 0])), ..both };
        let mut packet = behind.build();
        assert!(clamp(&mut packet, 1280));
        assert_valid(&packet, 48, TCP);
    }

    proptest! {
        #[test]
        fn checksum_stays_right(v6: bool, pad in 0_usize..5, mss: u16, mtu: u16) {
            let [high, low] = mss.to_be_bytes();
            let mut options = [vec![1; pad], vec![2, 4, high, low]].concat();
            options.resize(12, 0);
            let mut packet = syn(v6, &options).build();
            clamp(&mut packet, mtu);
            let at = if v6 { 40 } else { 20 };
            assert_valid(&packet, at, TCP);
            prop_assert_eq!(word(&packet, at + 22 + pad), mss.min(mtu.saturating_sub(if v6 { 60 } else { 40 })));
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), v6: bool, mtu: u16) {
            if bytes.len() > 40 {
                bytes[0] = if v6 { 0x60 } else { 0x45 };
                bytes[if v6 { 6 } else { 9 }] = TCP;
            }
            clamp(&mut bytes, mtu);
        }
    }
}
