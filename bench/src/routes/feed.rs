//! UPDATE messages (RFC 4271 section 4.3) that are whole before the clock starts.
//!
//! They are written down here octet by octet, and not by our own codec, so that what feeds a speaker is not what is measured.

use std::{net::Ipv4Addr, ops::Range};

/// Prefixes that share their attributes, as in a table of the Internet.
const A_SET: u32 = 10;
/// Every message begins with it (section 4.1).
pub(super) const MARKER: [u8; 16] = [0xff; 16];
/// Marker, length, type.
pub(super) const HEADER: usize = 19;
/// The longest message.
const LONGEST: usize = 4096;
pub(super) const UPDATE: u8 = 2;
/// The first prefix; each is a /24 behind the one before it.
const FIRST: Ipv4Addr = Ipv4Addr::new(20, 0, 0, 0);
pub(super) const LENGTH: u8 = 24;
/// Octets of a /24 in a message.
const OCTETS: usize = 4;
/// Withdrawals that a message has room for, beside two empty lengths.
const WITHDRAWALS: usize = (LONGEST - HEADER - 4) / OCTETS;

/// What is fed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feed {
    /// Whose routes they are.
    pub(crate) asn: u32,
    /// Their next hop.
    pub(crate) next_hop: Ipv4Addr,
}

impl Feed {
    /// Announces the prefixes with these numbers.
    pub(crate) fn announce(self, prefixes: Range<u32>) -> Vec<u8> {
        let mut octets = Vec::new();
        for first in prefixes.clone().step_by(A_SET as usize) {
            let set = first..prefixes.end.min(first + A_SET);
            update(&mut octets, &[], &self.attributes(first / A_SET), &nlri(set));
        }
        octets
    }

    /// Withdraws the prefixes with these numbers, as many with a message as there is room for.
    pub(crate) fn withdraw(self, prefixes: Range<u32>) -> Vec<u8> {
        let mut octets = Vec::new();
        for some in nlri(prefixes).chunks(WITHDRAWALS * OCTETS) {
            update(&mut octets, some, &[], &[]);
        }
        octets
    }

    /// No two sets have the same.
    fn attributes(self, set: u32) -> Vec<u8> {
        let mut octets = vec![0x40, 1, 1, 0]; // ORIGIN: IGP
        octets.extend([0x40, 2, 14, 2, 3]); // AS_PATH: a sequence of three
        for asn in [self.asn, 4_201_000_000 + set % 1_000, 4_202_000_000 + set] {
            octets.extend(asn.to_be_bytes());
        }
        octets.extend([0x40, 3, 4]); // NEXT_HOP
        octets.extend(self.next_hop.octets());
        octets.extend([0xc0, 8, 4, 0xfd, 0xe8]); // COMMUNITIES: 65000:...
        octets.extend(&(set % 100).to_be_bytes()[2..]);
        octets
    }
}

/// The number of a prefix by its first three octets; `None` of those that are not ours.
pub(super) fn number([a, b, c]: [u8; 3]) -> Option<u32> {
    (u32::from_be_bytes([0, a, b, c])).checked_sub(FIRST.to_bits() >> 8)
}

fn nlri(prefixes: Range<u32>) -> Vec<u8> {
    let octets = |number: u32| {
        let [_, a, b, c] = ((FIRST.to_bits() >> 8) + number).to_be_bytes();
        [LENGTH, a, b, c]
    };
    prefixes.flat_map(octets).collect()
}

fn update(octets: &mut Vec<u8>, withdrawn: &[u8], attributes: &[u8], nlri: &[u8]) {
    let length = HEADER + 4 + withdrawn.len() + attributes.len() + nlri.len();
    octets.extend(MARKER);
    octets.extend(short(length));
    octets.push(UPDATE);
    octets.extend(short(withdrawn.len()));
    octets.extend(withdrawn);
    octets.extend(short(attributes.len()));
    octets.extend(attributes);
    octets.extend(nlri);
}

fn short(length: usize) -> [u8; 2] {
    u16::try_from(length).expect("no message is longer than 4096 octets").to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for prefix in [0, 1, 255, 256, 499_999, 999_999] {
            let octets = nlri(prefix..prefix + 1);
            assert_eq!(number([octets[1], octets[2], octets[3]]), Some(prefix));
        }
        assert_eq!(number([19, 255, 255]), None);
    }
}
