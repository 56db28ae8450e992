//! Explicit congestion notification of IP headers (RFC 3168) and how a tunnel carries it (RFC 6040).

use thiserror::Error;

use crate::checksum;

/// The ECN field: the low two bits of the IPv4 TOS byte or the IPv6 traffic class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not understand ECN.
    #[default]
    NotEct = 0,
    /// ECN-capable transport, codepoint 1 (L4S, RFC 9331).
    Ect1 = 1,
    /// ECN-capable transport, codepoint 0.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

/// The congestion mark of the outer header cannot be told to an inner transport without ECN: the packet has to be dropped, which is
/// the signal that transport knows (RFC 6040 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("congestion mark on a packet whose transport has no ECN: drop it, the loss is the signal")]
pub struct CongestionLost;

impl Ecn {
    /// From a TOS byte or traffic class; only the low two bits count.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// The field of an IP packet; [`Ecn::NotEct`] for what is none.
    pub const fn of(packet: &[u8]) -> Self {
        match packet {
            [first, second, ..] if *first >> 4 == 4 => Self::from_bits(*second),
            [first, second, ..] if *first >> 4 == 6 => Self::from_bits(*second >> 4),
            _ => Self::NotEct,
        }
    }
}

/// Combines the field of the outer header into the inner packet that came out of the tunnel (RFC 6040 figure 4). The IPv4 header
/// checksum follows. What is no IP packet stays as it is.
///
/// # Errors
/// When the packet has to be dropped; it is unchanged then.
pub fn decapsulate(packet: &mut [u8], outer: Ecn) -> Result<(), CongestionLost> {
    let inner = Ecn::of(packet);
    let combined = combine(inner, outer)?;
    if combined != inner {
        mark(packet, combined);
    }
    Ok(())
}

fn combine(inner: Ecn, outer: Ecn) -> Result<Ecn, CongestionLost> {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => Err(CongestionLost),
        (Ecn::Ect0 | Ecn::Ect1, Ecn::Ce) => Ok(Ecn::Ce),
        (Ecn::Ect0, Ecn::Ect1) => Ok(Ecn::Ect1),
        (inner, _) => Ok(inner),
    }
}

fn mark(packet: &mut [u8], ecn: Ecn) {
    match packet {
        [first, tos, rest @ ..] if *first >> 4 == 4 => {
            let old = u16::from_be_bytes([*first, *tos]);
            *tos = *tos & !3 | ecn.bits();
            let new = u16::from_be_bytes([*first, *tos]);
            if let Some(field) = rest.get_mut(8..10) {
                let updated = checksum::update(u16::from_be_bytes([field[0], field[1]]), old, new);
                field.copy_from_slice(&updated.to_be_bytes());
            }
        }
        [first, second, ..] if *first >> 4 == 6 => *second = *second & !0x30 | ecn.bits() << 4,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Udp, naive_sum};

    const ALL: [Ecn; 4] = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];

    fn marked(v6: bool, ecn: Ecn) -> Vec<u8> {
        let mut packet = Udp { v6, payload: vec![7; 9], ..Udp::default() }.build();
        mark(&mut packet, ecn);
        packet
    }

    #[test]
    fn bits_are_those_of_the_header() {
        for ecn in ALL {
            assert_eq!(Ecn::from_bits(ecn.bits()), ecn);
            assert_eq!(Ecn::from_bits(ecn.bits() | 0xfc), ecn);
            assert_eq!(Ecn::of(&[0x45, 0xb8 | ecn.bits()]), ecn);
            assert_eq!(Ecn::of(&[0x6f, ecn.bits() << 4 | 0xcf]), ecn);
        }
        assert_eq!(Ecn::of(&[0x45]), Ecn::NotEct);
        assert_eq!(Ecn::of(&[0x55, 0xff]), Ecn::NotEct);
        assert_eq!(Ecn::of(&[]), Ecn::NotEct);
    }

    /// RFC 6040 figure 4, rows by inner field, columns by outer Not-ECT, ECT(0), ECT(1), CE.
    #[test]
    fn whole_table_of_rfc_6040() {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        let rows = [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
        ];
        for (v6, (inner, row)) in [false, true].into_iter().flat_map(|v6| rows.map(|row| (v6, row))) {
            for (outer, expected) in [NotEct, Ect0, Ect1, Ce].into_iter().zip(row) {
                let before = marked(v6, inner);
                let mut packet = before.clone();
                let result = decapsulate(&mut packet, outer);
                assert_eq!(result.is_err(), expected.is_none(), "{inner:?} in {outer:?}");
                assert_eq!(packet, marked(v6, expected.unwrap_or(inner)), "{inner:?} in {outer:?}");
                if !v6 {
                    assert_eq!(naive_sum(&packet[..20]), 0xffff);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn header_checksum_stays_right(tos: u8, id: u16, outer in 0_u8..4) {
            let mut packet = Udp { tos, id, payload: vec![1, 2, 3], ..Udp::default() }.build();
            let _ = decapsulate(&mut packet, Ecn::from_bits(outer));
            prop_assert_eq!(naive_sum(&packet[..20]), 0xffff);
            prop_assert_eq!(packet[1] >> 2, tos >> 2);
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..60), outer in 0_u8..4) {
            let before = bytes.clone();
            if decapsulate(&mut bytes, Ecn::from_bits(outer)).is_err() {
                prop_assert_eq!(bytes, before);
            }
        }
    }
}
