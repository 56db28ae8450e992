//! Prefixes as keys: the address with its host bits cut, and the length, with no byte of padding.

use std::{
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A prefix of one family.
pub(crate) trait Key: Copy + Eq + Hash + Into<IpNet> {
    /// Length of an address of the family in bits.
    const BITS: u8;

    /// Length of the prefix in bits, at most [`Key::BITS`].
    fn length(self) -> u8;

    /// The prefix of this length, at most the own, that contains this one.
    fn parent(self, length: u8) -> Self;
}

/// An IPv4 prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct V4 {
    address: [u8; 4],
    length: u8,
}

/// An IPv6 prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct V6 {
    address: [u8; 16],
    length: u8,
}

/// A prefix of either family.
pub(crate) enum Either {
    V4(V4),
    V6(V6),
}

impl From<IpNet> for Either {
    fn from(prefix: IpNet) -> Self {
        match prefix {
            IpNet::V4(prefix) => Self::V4(prefix.into()),
            IpNet::V6(prefix) => Self::V6(prefix.into()),
        }
    }
}

impl From<IpAddr> for Either {
    fn from(address: IpAddr) -> Self {
        IpNet::from(address).into()
    }
}

impl From<Ipv4Net> for V4 {
    fn from(prefix: Ipv4Net) -> Self {
        Self { address: prefix.network().octets(), length: prefix.prefix_len() }
    }
}

impl From<Ipv6Net> for V6 {
    fn from(prefix: Ipv6Net) -> Self {
        Self { address: prefix.network().octets(), length: prefix.prefix_len() }
    }
}

impl From<V4> for IpNet {
    fn from(key: V4) -> Self {
        let net = Ipv4Net::new(Ipv4Addr::from(key.address), key.length);
        net.expect("the length came out of a prefix").into()
    }
}

impl From<V6> for IpNet {
    fn from(key: V6) -> Self {
        let net = Ipv6Net::new(Ipv6Addr::from(key.address), key.length);
        net.expect("the length came out of a prefix").into()
    }
}

impl Hash for V4 {
    /// One number, so that hashing is one multiplication.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(u32::from_be_bytes(self.address)) << 8 | u64::from(self.length));
    }
}

impl Hash for V6 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_be_bytes(self.address));
        state.write_u8(self.length);
    }
}

impl Key for V4 {
    const BITS: u8 = 32;

    fn length(self) -> u8 {
        self.length
    }

    fn parent(self, length: u8) -> Self {
        let mask = u32::MAX.checked_shl(u32::from(Self::BITS - length)).unwrap_or(0);
        Self { address: (u32::from_be_bytes(self.address) & mask).to_be_bytes(), length }
    }
}

impl Key for V6 {
    const BITS: u8 = 128;

    fn length(self) -> u8 {
        self.length
    }

    fn parent(self, length: u8) -> Self {
        let mask = u128::MAX.checked_shl(u32::from(Self::BITS - length)).unwrap_or(0);
        Self { address: (u128::from_be_bytes(self.address) & mask).to_be_bytes(), length }
    }
}
