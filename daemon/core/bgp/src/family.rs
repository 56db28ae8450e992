//! Address families that the speaker carries.

use std::fmt;

use ipnet::IpNet;

/// An address family and subsequent address family (RFC 4760).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// AFI 1, SAFI 1.
    Ipv4Unicast,
    /// AFI 2, SAFI 1.
    Ipv6Unicast,
}

impl Family {
    /// Every family, in the order in which they are dumped.
    pub const ALL: [Self; 2] = [Self::Ipv4Unicast, Self::Ipv6Unicast];

    /// The family that a prefix belongs to.
    pub fn of(prefix: &IpNet) -> Self {
        match prefix {
            IpNet::V4(_) => Self::Ipv4Unicast,
            IpNet::V6(_) => Self::Ipv6Unicast,
        }
    }

    /// Address family identifier.
    pub fn afi(self) -> u16 {
        match self {
            Self::Ipv4Unicast => 1,
            Self::Ipv6Unicast => 2,
        }
    }

    /// Subsequent address family identifier.
    pub fn safi(self) -> u8 {
        1
    }

    /// The family with these identifiers, if it is one of ours.
    pub fn from_codes(afi: u16, safi: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|family| (family.afi(), family.safi()) == (afi, safi))
    }

    /// Position in [`Family::ALL`].
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Ipv4Unicast => 0,
            Self::Ipv6Unicast => 1,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4Unicast => "ipv4-unicast",
            Self::Ipv6Unicast => "ipv6-unicast",
        })
    }
}

/// A set of families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families([bool; 2]);

impl Families {
    /// No family.
    pub const NONE: Self = Self([false; 2]);
    /// Every family.
    pub const ALL: Self = Self([true; 2]);

    /// True if the family is in the set.
    pub fn contains(self, family: Family) -> bool {
        self.0[family.index()]
    }

    /// Adds a family.
    pub fn insert(&mut self, family: Family) {
        self.0[family.index()] = true;
    }

    /// Takes a family out.
    pub fn remove(&mut self, family: Family) {
        self.0[family.index()] = false;
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Families in the set.
    pub fn iter(self) -> impl Iterator<Item = Family> {
        Family::ALL.into_iter().filter(move |family| self.contains(*family))
    }

    /// Families in both sets.
    pub fn intersection(self, other: Self) -> Self {
        self.iter().filter(|family| other.contains(*family)).collect()
    }
}

impl FromIterator<Family> for Families {
    fn from_iter<T: IntoIterator<Item = Family>>(families: T) -> Self {
        let mut set = Self::NONE;
        families.into_iter().for_each(|family| set.insert(family));
        set
    }
}
