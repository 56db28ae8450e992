//! What one peer is to carry.

use isthmus_tunnel::{
    buffer::Plaintext,
    ecn::Ecn,
    fragment::{Fragment, Fragments},
    offload::split::{Segment, Split},
    table::Slot,
};

/// What one read from the device yields for a peer.
pub(super) struct Work<'a> {
    pub(super) peer: Slot,
    pub(super) pieces: Pieces<'a>,
}

/// The packets of a burst, or the fragments of a packet that is too long for its peer.
#[derive(Clone)]
pub(super) enum Pieces<'a> {
    Segments(Split<'a>),
    Fragments(Fragments<'a>),
}

/// One packet to seal.
pub(super) enum Piece<'a> {
    Segment(Segment<'a>),
    Fragment(Fragment<'a>),
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
            Self::Fragment(fragment) => fragment.write(into),
        }
    }

    fn ecn(&self) -> Ecn {
        match self {
            Self::Segment(segment) => segment.ecn(),
            Self::Fragment(fragment) => fragment.ecn(),
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
