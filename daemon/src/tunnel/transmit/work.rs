//! What one peer is to carry.

use std::vec;

use isthmus_tunnel::{
    buffer::Plaintext,
    ecn::Ecn,
    fragment::fragment,
    offload::split::{Segment, Split},
    table::Slot,
};

/// What one read from the device yields for a peer.
pub(super) struct Work<'a> {
    pub(super) peer: Slot,
    pub(super) pieces: Pieces<'a>,
}

/// The packets of a burst, or the fragments of packets that are too long for their peer.
#[derive(Clone)]
pub(super) enum Pieces<'a> {
    Segments(Split<'a>),
    Fragments(vec::IntoIter<Vec<u8>>),
}

/// One packet to seal.
pub(super) enum Piece<'a> {
    Segment(Segment<'a>),
    Fragment(Vec<u8>),
}

impl<'a> Pieces<'a> {
    /// The packets as fragments of at most `mtu` bytes; `None`: their sender does not allow that. Not for the fast path.
    pub(super) fn fragments(split: Split<'a>, mtu: u16) -> Option<Self> {
        let mut fragments = Vec::new();
        for segment in split {
            let packet = written(&segment);
            fragments.extend(fragment(&packet, mtu).ok()?.map(|fragment| written(&fragment)));
        }
        Some(Self::Fragments(fragments.into_iter()))
    }
}

fn written(packet: &impl Plaintext) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    packet.write(&mut bytes);
    bytes
}

/// The packets of a whole run.
pub(super) fn pieces<'a>(run: &[Work<'a>]) -> impl ExactSizeIterator<Item = Piece<'a>> {
    let left = run.iter().map(|work| work.pieces.len()).sum();
    Exactly { pieces: run.iter().flat_map(|work| work.pieces.clone()), left }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        match self {
            Self::Segments(split) => split.next().map(Piece::Segment),
            Self::Fragments(fragments) => fragments.next().map(Piece::Fragment),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Segments(split) => split.size_hint(),
            Self::Fragments(fragments) => fragments.size_hint(),
        }
    }
}

impl ExactSizeIterator for Pieces<'_> {}

impl Plaintext for Piece<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Segment(segment) => segment.len(),
            Self::Fragment(fragment) => fragment.len(),
        }
    }

    fn write(&self, into: &mut [u8]) {
        match self {
            Self::Segment(segment) => segment.write(into),
            Self::Fragment(fragment) => into.copy_from_slice(fragment),
        }
    }

    fn ecn(&self) -> Ecn {
        match self {
            Self::Segment(segment) => segment.ecn(),
            Self::Fragment(fragment) => Ecn::of(fragment),
        }
    }
}

/// An iterator that knows its length.
struct Exactly<I> {
    pieces: I,
    left: usize,
}

impl<I: Iterator> Iterator for Exactly<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.left = self.left.saturating_sub(1);
        self.pieces.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<I: Iterator> ExactSizeIterator for Exactly<I> {}

#[cfg(test)]
mod tests {
    use isthmus_tunnel::{
        offload::{
            split::split,
            vnet::{self, VnetHeader},
        },
        packet,
    };

    use super::*;

    /// A burst of two UDP datagrams of 1000 bytes of payload each.
    fn burst(dont_fragment: bool) -> (VnetHeader, Vec<u8>) {
        let mut bytes = vec![0; 20 + 8 + 2000];
        let [high, low] = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        bytes[..12].copy_from_slice(&[0x45, 0, high, low, 0, 7, 0, 0, 64, 17, 0, 0]);
        bytes[6] = if dont_fragment { 0x40 } else { 0 };
        bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        bytes[24..26].copy_from_slice(&2008_u16.to_be_bytes());
        let header = VnetHeader {
            flags: vnet::NEEDS_CSUM,
            gso_type: vnet::GSO_UDP_L4,
            hdr_len: 28,
            gso_size: 1000,
            csum_start: 20,
            csum_offset: 6,
        };
        (header, bytes)
    }

    #[test]
    fn a_burst_that_may_be_fragmented_is() {
        let (header, mut bytes) = burst(false);
        let pieces = Pieces::fragments(split(header, &mut bytes).unwrap(), 600).unwrap();
        let work = Work { peer: 0, pieces };
        let sizes: Vec<usize> = pieces_of(&work);
        assert_eq!(sizes, [596, 452, 596, 452]);
        let (header, mut bytes) = burst(true);
        assert!(Pieces::fragments(split(header, &mut bytes).unwrap(), 600).is_none());
    }

    fn pieces_of(work: &Work<'_>) -> Vec<usize> {
        let pieces = pieces(std::slice::from_ref(work));
        assert_eq!(pieces.len(), work.pieces.len());
        pieces
            .map(|piece| {
                let bytes = written(&piece);
                assert_eq!(packet::parse(&bytes).unwrap().bytes.len(), bytes.len());
                bytes.len()
            })
            .collect()
    }
}
