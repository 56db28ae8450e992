//! IPv4 fragmentation (RFC 791 section 3.2) of packets that allow it and are too big for the way to their peer.

use thiserror::Error;

use crate::{
    checksum::sum,
    ecn::Ecn,
    headers::{DONT_FRAGMENT, MORE_FRAGMENTS, OFFSET, V4, length, put, word},
    plaintext::Plaintext,
};

const LONGEST_HEADER: usize = 60;
/// Flag in the type of an IP option: it belongs in every fragment.
const COPIED: u8 = 0x80;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// Why a packet is not cut into fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// No IPv4 packet, or one whose header does not fit its bytes or its checksum. IPv6 is fragmented by senders alone.
    #[error("no sound IPv4 header in {0} bytes")]
    Header(usize),
    /// The sender wants to hear of it instead; see [`crate::icmp::too_big`].
    #[error("don't-fragment is set")]
    DontFragment,
    /// IP options that run past their end.
    #[error("IP option at byte {0} runs past the header")]
    Option(usize),
    /// A fragment whose end is past 65,535 bytes, or which is not the last and no multiple of eight bytes long.
    #[error("fragment with an impossible end")]
    Fragment,
    /// No room for a header and eight bytes.
    #[error("MTU {0} holds no header and eight bytes of payload")]
    Mtu(u16),
}

/// Cuts an IPv4 packet into fragments of at most `mtu` bytes, each but the last a multiple of eight bytes of payload. A fragment is cut
/// further, and one packet that fits comes out as it is. The packet is cut to the length its header says.
///
/// # Errors
/// When the packet must not or cannot be cut.
pub fn fragment(packet: &[u8], mtu: u16) -> Result<Fragments<'_>, Refused> {
    let (header, payload) = sound(packet).ok_or(Refused::Header(packet.len()))?;
    let flags = word(header, 6);
    let fits = header.len() + payload.len() <= usize::from(mtu);
    if flags & DONT_FRAGMENT != 0 && !fits {
        return Err(Refused::DontFragment);
    }
    let end = usize::from(flags & OFFSET) * 8 + payload.len();
    if !fits && (end > 65_535 || (flags & MORE_FRAGMENTS != 0 && payload.len() % 8 != 0)) {
        return Err(Refused::Fragment);
    }
    let first = Header::of_first(header);
    let later = if fits { first } else { Header::of_later(header)? };
    let room = |header: usize| usize::from(mtu).saturating_sub(header);
    if !fits && room(header.len()) < 8 {
        return Err(Refused::Mtu(mtu));
    }
    let room = (room(header.len()), room(later.length));
    Ok(Fragments { first, later, room, rest: payload, at: 0, fits })
}

/// Header and payload. A wrong header checksum must not become a right one.
fn sound(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = packet.first_chunk::<V4>().filter(|header| header[0] >> 4 == 4)?;
    let size = usize::from(header[0] & 0x0f) * 4;
    let total = packet.get(..usize::from(word(header, 2)))?;
    let (header, payload) = total.split_at_checked(size.max(V4))?;
    (size >= V4 && sum(header) == 0xffff).then_some((header, payload))
}

/// A header that the fragments are numbered from.
#[derive(Clone, Copy, Debug)]
struct Header {
    bytes: [u8; LONGEST_HEADER],
    length: usize,
}

impl Header {
    fn of_first(header: &[u8]) -> Self {
        let mut bytes = [0; LONGEST_HEADER];
        bytes[..header.len()].copy_from_slice(header);
        Self { bytes, length: header.len() }
    }

    /// Only with the options that belong in every fragment, padded to four bytes.
    fn of_later(header: &[u8]) -> Result<Self, Refused> {
        let mut later = Self::of_first(&header[..V4]);
        let mut at = V4;
        while let Some(kind) = header.get(at).copied().filter(|kind| *kind != END_OF_OPTIONS) {
            let size =
                if kind == NO_OPERATION { 1 } else { usize::from(header.get(at + 1).copied().unwrap_or(0)) };
            let option = header.get(at..at + size).filter(|_| kind == NO_OPERATION || size >= 2);
            let option = option.ok_or(Refused::Option(at))?;
            if kind & COPIED != 0 {
                later.bytes[later.length..later.length + size].copy_from_slice(option);
                later.length += size;
            }
            at += size;
        }
        later.length = later.length.next_multiple_of(4);
        later.bytes[0] = 0x40 | u8::try_from(later.length / 4).expect("at most 15 words");
        Ok(later)
    }
}

/// The fragments of a packet, in order.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    first: Header,
    later: Header,
    /// Payload that fits behind the first header and behind the later ones.
    room: (usize, usize),
    rest: &'a [u8],
    /// Bytes of payload before `rest`; past its end once the last is out.
    at: usize,
    /// No need to cut.
    fits: bool,
}

const DONE: usize = usize::MAX;

impl<'a> Iterator for Fragments<'a> {
    type Item = Fragment<'a>;

    fn next(&mut self) -> Option<Fragment<'a>> {
        if self.at == DONE {
            return None;
        }
        let (header, room) = if self.at == 0 { (self.first, self.room.0) } else { (self.later, self.room.1) };
        let last = self.fits || self.rest.len() <= room;
        let (payload, rest) = self.rest.split_at(if last { self.rest.len() } else { room & !7 });
        let fragment = Fragment { header, payload, at: self.at, last };
        self.at = if last { DONE } else { self.at + payload.len() };
        self.rest = rest;
        Some(fragment)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.remaining();
        (count, Some(count))
    }
}

impl ExactSizeIterator for Fragments<'_> {}

impl Fragments<'_> {
    fn remaining(&self) -> usize {
        let (first, later) = self.room;
        match self.rest.len() {
            _ if self.at == DONE => 0,
            rest if self.fits || rest <= (if self.at == 0 { first } else { later }) => 1,
            rest if self.at == 0 => 1 + Self::of_later(rest - (first & !7), later),
            rest => Self::of_later(rest, later),
        }
    }

    /// The last takes what is left, even if that is no multiple of eight.
    fn of_later(rest: usize, room: usize) -> usize {
        1 + rest.saturating_sub(room).div_ceil(room & !7)
    }
}

/// One fragment of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    header: Header,
    payload: &'a [u8],
    /// Where the payload begins in that of the packet.
    at: usize,
    last: bool,
}

impl Plaintext for Fragment<'_> {
    fn len(&self) -> usize {
        self.header.length + self.payload.len()
    }

    fn write(&self, into: &mut [u8]) {
        let total = length(into.len());
        let (header, payload) = into.split_at_mut(self.header.length);
        payload.copy_from_slice(self.payload);
        header.copy_from_slice(&self.header.bytes[..self.header.length]);
        put(header, 2, total);
        let more = if self.last { 0 } else { MORE_FRAGMENTS };
        let flags = word(header, 6);
        put(header, 6, (flags + length(self.at / 8)) | more);
        put(header, 10, 0);
        put(header, 10, !sum(header));
    }

    fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.header.bytes[1])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Udp, naive_sum};

    fn written(packet: &[u8], mtu: u16) -> Result<Vec<Vec<u8>>, Refused> {
        let mut fragments = fragment(packet, mtu)?;
        let mut all = Vec::new();
        loop {
            let promised = fragments.len();
            let Some(fragment) = fragments.next() else { break };
            let mut bytes = vec![0xaa; fragment.len()];
            fragment.write(&mut bytes);
            assert_eq!(fragment.ecn(), Ecn::of(packet));
            assert_eq!(fragments.len() + 1, promised);
            all.push(bytes);
        }
        assert_eq!(fragments.len(), 0);
        Ok(all)
    }

    /// Puts the payloads where their offsets say; the first header, flags and all, leads.
    fn reassembled(fragments: &[Vec<u8>], base: usize) -> Vec<u8> {
        let mut payload = Vec::new();
        for (index, fragment) in fragments.iter().enumerate() {
            let header = usize::from(fragment[0] & 15) * 4;
            assert_eq!(naive_sum(&fragment[..header]), 0xffff);
            assert_eq!(usize::from(word(fragment, 2)), fragment.len());
            assert_eq!(usize::from(word(fragment, 6) & OFFSET) * 8, base + payload.len());
            let last = index + 1 == fragments.len();
            assert!(last || (word(fragment, 6) & MORE_FRAGMENTS != 0 && (fragment.len() - header) % 8 == 0));
            payload.extend(&fragment[header..]);
        }
        let header = usize::from(fragments[0][0] & 15) * 4;
        [&fragments[0][..header], &payload].concat()
    }

    fn packet(size: usize, options: &[u8]) -> Vec<u8> {
        let plain =
            Udp { df: false, tos: 2, payload: (0..=255).cycle().take(size).collect(), ..Udp::default() }
                .build();
        let mut packet = [&plain[..20], options, &plain[20..]].concat();
        packet[0] = 0x45 + u8::try_from(options.len() / 4).unwrap();
        let total = length(packet.len());
        put(&mut packet, 2, total);
        summed(packet)
    }

    fn summed(mut packet: Vec<u8>) -> Vec<u8> {
        let header = packet.len().min(usize::from(packet[0] & 15) * 4);
        put(&mut packet, 10, 0);
        let sum = !naive_sum(&packet[..header]);
        put(&mut packet, 10, sum);
        packet
    }

    /// Without what fragmentation sets anew.
    fn without_numbers(mut packet: Vec<u8>) -> Vec<u8> {
        packet[2..4].fill(0);
        packet[6..8].fill(0);
        packet[10..12].fill(0);
        packet
    }

    #[test]
    fn sizes_and_offsets() {
        let sizes: Vec<_> = written(&packet(2992, &[]), 1420).unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes, [20 + 1400, 20 + 1400, 20 + 200]);
        // The last one may fill the MTU to the byte.
        let sizes: Vec<_> =
            written(&packet(1400 + 1403 - 8, &[]), 1423).unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes, [20 + 1400, 20 + 1403]);
        assert_eq!(written(&packet(1392, &[]), 1420).unwrap().len(), 1);
    }

    #[test]
    fn only_options_with_the_copy_bit_are_repeated() {
        // Record route, not copied; router alert, copied; no-operation; loose source route, copied.
        let options = [7, 3, 4, 148, 4, 0, 0, 1, 131, 3, 4, 0];
        let fragments = written(&packet(100, &options), 64).unwrap();
        assert_eq!(fragments[0][20..32], options);
        for later in &fragments[1..] {
            assert_eq!(later[0], 0x47);
            assert_eq!(later[20..28], [148, 4, 0, 0, 131, 3, 4, 0]);
        }
    }

    #[test]
    fn what_must_not_be_cut() {
        let good = packet(100, &[]);
        let with = |at: usize, value: u8, mtu| {
            let mut packet = good.clone();
            packet[at] = value;
            written(&summed(packet), mtu).map(|fragments| fragments.len())
        };
        assert_eq!(with(6, 0x00, 68), Ok(3));
        assert_eq!(with(6, 0x40, 68), Err(Refused::DontFragment));
        assert_eq!(with(6, 0x40, 128), Ok(1));
        assert_eq!(with(6, 0x20, 68), Err(Refused::Fragment));
        assert_eq!(with(6, 0x1f, 68), Ok(3));
        let mut far = packet(200, &[]);
        put(&mut far, 6, 0x1fff);
        assert_eq!(written(&summed(far), 68), Err(Refused::Fragment));
        let mut damaged = good.clone();
        damaged[8] -= 1;
        assert_eq!(written(&damaged, 68), Err(Refused::Header(128)));
        assert_eq!(with(0, 0x65, 68), Err(Refused::Header(128)));
        assert_eq!(with(0, 0x44, 68), Err(Refused::Header(128)));
        assert_eq!(with(3, 129, 68), Err(Refused::Header(128)));
        assert_eq!(with(3, 19, 68), Err(Refused::Header(128)));
        assert_eq!(with(6, 0, 27), Err(Refused::Mtu(27)));
        assert_eq!(written(&packet(100, &[131, 5, 0, 0]), 68), Err(Refused::Option(20)));
        assert_eq!(written(&packet(100, &[1, 1, 1, 131]), 68), Err(Refused::Option(23)));
        assert_eq!(written(&packet(100, &[131, 1, 0, 0]), 68), Err(Refused::Option(20)));
    }

    proptest! {
        #[test]
        fn fragments_reassemble(size in 0_usize..9000, mtu in 68_u16..3000, options in prop_oneof![
            Just(vec![]), Just(vec![7, 3, 4, 0]), Just(vec![148, 4, 0, 0]), Just(vec![7, 3, 4, 148, 4, 0, 0, 1, 131, 3, 4, 0]),
        ]) {
            let packet = packet(size, &options);
            let fragments = written(&packet, mtu).unwrap();
            prop_assert!(fragments.iter().all(|fragment| fragment.len() <= usize::from(mtu)));
            prop_assert_eq!(word(fragments.last().unwrap(), 6) & MORE_FRAGMENTS, 0);
            prop_assert_eq!(without_numbers(reassembled(&fragments, 0)), without_numbers(packet));
        }

        #[test]
        fn fragments_of_fragments_reassemble(size in 100_usize..9000, mtu in 100_u16..3000, second in 68_u16..3000) {
            let packet = packet(size, &[148, 4, 0, 0]);
            let mut all = Vec::new();
            for fragment in written(&packet, mtu).unwrap() {
                let base = usize::from(word(&fragment, 6) & OFFSET) * 8;
                let pieces = written(&fragment, second).unwrap();
                prop_assert_eq!(without_numbers(reassembled(&pieces, base)), without_numbers(fragment));
                all.extend(pieces);
            }
            prop_assert_eq!(without_numbers(reassembled(&all, 0)), without_numbers(packet));
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), words in 5_u8..16, mtu in 0_u16..200) {
            if bytes.len() > 20 {
                bytes[0] = 0x40 | words;
                bytes[2] = 0;
                bytes = summed(bytes);
            }
            let _ = written(&bytes, mtu);
        }
    }
}
