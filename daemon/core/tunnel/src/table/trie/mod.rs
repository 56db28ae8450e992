//! Longest-prefix match in a fixed number of steps: a multibit trie that is built once and then only read.
//!
//! A node looks at one octet of the address. Its 256 ways on are stored as runs of equal ones: a bitmap says where runs start, so that
//! a rank in it finds the way. A way leads to the next node or to a route; routes shorter than a node's octet are spread over the ways
//! they cover, so nobody has to come back up. Two shortcuts keep it small, and with it the cache warm:
//! - octets that all routes of a region share are skipped; who arrives at such a node is compared with them;
//! - a route alone in its region needs no node; who arrives there is compared with it, and if it does not cover him the route
//!   around it does.
//!
//! So a look-up reads at most 4 nodes for IPv4 and 16 for IPv6, and usually two or three.

use node::{Link, Node, Way};

mod build;
mod node;

/// An address: its octets from the front.
pub(super) trait Key: Copy + Ord {
    /// The octet at this place, counted from zero.
    fn octet(self, at: u8) -> u8;
    /// How many leading bits are the same.
    fn common_bits(self, other: Self) -> u32;
}

impl Key for u32 {
    fn octet(self, at: u8) -> u8 {
        self.to_be_bytes()[usize::from(at)]
    }

    fn common_bits(self, other: Self) -> u32 {
        (self ^ other).leading_zeros()
    }
}

impl Key for u128 {
    fn octet(self, at: u8) -> u8 {
        self.to_be_bytes()[usize::from(at)]
    }

    fn common_bits(self, other: Self) -> u32 {
        (self ^ other).leading_zeros()
    }
}

/// A prefix and where it leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route<K> {
    /// Bits behind `length` are zero.
    pub(super) prefix: K,
    pub(super) length: u8,
    /// What the owner of the trie stored; [`NO_GROUP`] for the stand-in.
    pub(super) group: u32,
    /// Place of the longest route around this one.
    parent: u32,
}

/// The group of the stand-in for a default route that nobody added.
pub(super) const NO_GROUP: u32 = u32::MAX;

/// A finished trie. The first route is always that of length zero: one that was added, or a stand-in.
#[derive(Debug)]
pub(super) struct Trie<K> {
    /// By prefix, shorter first.
    routes: Vec<Route<K>>,
    nodes: Vec<Node>,
    links: Vec<Link>,
    root: Link,
}

impl<K: Key> Route<K> {
    pub(super) fn new(prefix: K, length: u8, group: u32) -> Self {
        Self { prefix, length, group, parent: 0 }
    }

    fn covers(&self, key: K) -> bool {
        key.common_bits(self.prefix) >= u32::from(self.length)
    }
}

impl<K: Key> Trie<K> {
    /// The longest route that covers the address; the stand-in if there is none.
    pub(super) fn find(&self, key: K) -> &Route<K> {
        let mut link = self.root;
        let last = loop {
            match link.way() {
                Way::Route(route) => break &self.routes[route],
                Way::Node(node) => {
                    let node = &self.nodes[node];
                    if node.skips && !self.passes(node, key) {
                        break &self.routes[node.inside as usize];
                    }
                    link = self.links[node.ways.rank(key.octet(node.depth))];
                }
            }
        };
        if last.covers(key) { last } else { &self.routes[last.parent as usize] }
    }

    /// Number of routes that were added.
    pub(super) fn len(&self) -> usize {
        self.routes.len() - usize::from(self.routes[0].group == NO_GROUP)
    }

    /// Bytes that it occupies.
    pub(super) fn size(&self) -> usize {
        size_of_val(&*self.routes) + size_of_val(&*self.nodes) + size_of_val(&*self.links)
    }

    /// True if the octets before the node's own are those of its region. If not, the answer is what surrounds the region: the parent
    /// of its first route.
    fn passes(&self, node: &Node, key: K) -> bool {
        key.common_bits(self.routes[node.inside as usize].prefix) >= u32::from(node.depth) * 8
    }
}
