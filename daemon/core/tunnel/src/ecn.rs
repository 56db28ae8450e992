//! Explicit congestion notification: the two low bits of an IP header's traffic class (RFC 3168).

/// The ECN field of an IP header (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The transport does not understand ECN.
    #[default]
    NotEct = 0,
    /// ECN-capable, ECT(1).
    Ect1 = 1,
    /// ECN-capable, ECT(0).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// From the low two bits of a traffic class; the others are ignored.
    pub fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The low two bits of a traffic class.
    pub fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_names_agree() {
        for bits in 0..4 {
            assert_eq!(Ecn::from_bits(0xfc | bits).bits(), bits);
        }
        assert_eq!(
            [Ecn::from_bits(1), Ecn::from_bits(2), Ecn::from_bits(3)],
            [Ecn::Ect1, Ecn::Ect0, Ecn::Ce]
        );
    }
}
