//! The parts of the trie, as small as they get.

/// Ways out of a node: one for each value of an octet.
pub(super) const WAYS: usize = 256;

/// A branching by one octet.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) ways: Ways,
    /// Place of the first route of this region.
    pub(super) inside: u32,
    /// The octet to branch by, counted from the front.
    pub(super) depth: u8,
    /// True if octets before it were not looked at on the way here.
    pub(super) skips: bool,
}

/// The ways out of a node as runs of equal ones.
#[derive(Debug)]
pub(super) struct Ways {
    /// A bit for each way that differs from the one before it; the first is set.
    starts: [u64; 4],
    /// Bits set in the words before each word.
    before: [u8; 4],
    /// Place of the first run's link.
    links: u32,
}

impl Ways {
    /// Appends a link for each run to `links`.
    pub(super) fn new(ways: &[Link; WAYS], links: &mut Vec<Link>) -> Self {
        let first = links.len();
        let (mut starts, mut before) = ([0; 4], [0; 4]);
        let mut previous = None;
        for (word, ways) in ways.chunks_exact(64).enumerate() {
            before[word] = u8::try_from(links.len() - first).expect("at most 192 runs in three words");
            for (bit, way) in ways.iter().enumerate() {
                if previous != Some(*way) {
                    starts[word] |= 1 << bit;
                    links.push(*way);
                    previous = Some(*way);
                }
            }
        }
        Self { starts, before, links: place(first) }
    }

    /// Place of the link for this octet.
    pub(super) fn rank(&self, octet: u8) -> usize {
        let (word, bit) = (usize::from(octet >> 6), octet & 63);
        let starts = (self.starts[word] & (u64::MAX >> (63 - bit))).count_ones();
        // The first way always starts a run, so the sum is at least one.
        (self.links + (u32::from(self.before[word]) + starts - 1)) as usize
    }
}

/// Where a way leads.
pub(super) enum Way {
    Node(usize),
    Route(usize),
}

/// A [`Way`] in four bytes: the highest bit tells the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link(u32);

const NODE: u32 = 1 << 31;

impl Link {
    pub(super) fn node(at: usize) -> Self {
        Self(place(at) | NODE)
    }

    pub(super) fn route(at: usize) -> Self {
        Self(place(at))
    }

    pub(super) fn way(self) -> Way {
        let at = (self.0 & !NODE) as usize;
        if self.0 & NODE == 0 { Way::Route(at) } else { Way::Node(at) }
    }
}

/// An index in the form it is stored.
pub(super) fn place(at: usize) -> u32 {
    u32::try_from(at).ok().filter(|at| at & NODE == 0).expect("2^31 routes do not fit into memory")
}
