//! From a list of routes to the trie, in one pass.

use std::ops::Range;

use super::{
    Key, NO_GROUP, Route, Trie,
    node::{Link, Node, WAYS, Ways, place},
};

impl<K: Key + Default> Trie<K> {
    /// Of routes with the same prefix the last counts.
    pub(in super::super) fn build(mut routes: Vec<Route<K>>) -> Self {
        routes.push(Route::new(K::default(), 0, NO_GROUP));
        arrange(&mut routes);
        set_parents(&mut routes);
        let mut trie = Self { routes, nodes: Vec::new(), links: Vec::new(), root: Link::route(0) };
        if trie.routes.len() > 1 {
            trie.root = trie.region(1..trie.routes.len(), 0);
        }
        trie.nodes.shrink_to_fit();
        trie.links.shrink_to_fit();
        trie
    }

    /// What leads into a region: the place of the only route, or a new node. All routes of the region share the octets before `depth`
    /// and are longer than those.
    fn region(&mut self, routes: Range<usize>, depth: u8) -> Link {
        if routes.len() == 1 {
            return Link::route(routes.start);
        }
        let shared = self.shared_octets(&routes);
        let ways = self.ways(routes.clone(), shared);
        let ways = Ways::new(&ways, &mut self.links);
        self.nodes.push(Node { ways, inside: place(routes.start), depth: shared, skips: shared > depth });
        Link::node(self.nodes.len() - 1)
    }

    /// Octets that all routes have whole, and have in common. In this order the first and the last differ most, and a route that is a
    /// prefix of all others is the first. One that ends just here covers all ways of the node.
    fn shared_octets(&self, routes: &Range<usize>) -> u8 {
        let (first, last) = (&self.routes[routes.start], &self.routes[routes.end - 1]);
        let common = u8::try_from(first.prefix.common_bits(last.prefix) / 8).expect("at most 16 octets");
        common.min(first.length / 8)
    }

    /// Fills the ways from the surrounding route to ever longer ones.
    fn ways(&mut self, routes: Range<usize>, depth: u8) -> [Link; WAYS] {
        let mut ways = [Link::route(self.routes[routes.start].parent as usize); WAYS];
        let mut at = routes.start;
        while at < routes.end {
            let Route { prefix, length, .. } = self.routes[at];
            let octet = prefix.octet(depth);
            let first = usize::from(octet);
            let bits = length - depth * 8;
            let end = if bits <= 8 {
                ways[first..first + (1 << (8 - bits))].fill(Link::route(at));
                at + 1
            } else {
                let same = |route: &Route<K>| route.prefix.octet(depth) == octet;
                let end = at + self.routes[at..routes.end].partition_point(same);
                ways[first] = self.region(at..end, depth + 1);
                end
            };
            at = end;
        }
        ways
    }
}

impl<K: Key + Default> Default for Trie<K> {
    fn default() -> Self {
        Self::build(Vec::new())
    }
}

/// Sorts by prefix, shorter first, and keeps the last of equals. The stand-in arrives last and gives way to a route of length zero.
fn arrange<K: Key>(routes: &mut Vec<Route<K>>) {
    routes.sort_by_key(|route| (route.prefix, route.length));
    routes.dedup_by(|later, earlier| {
        let same = (later.prefix, later.length) == (earlier.prefix, earlier.length);
        if same && later.group != NO_GROUP {
            *earlier = *later;
        }
        same
    });
}

/// In this order the routes around one are those that have begun and not ended.
fn set_parents<K: Key>(routes: &mut [Route<K>]) {
    let mut around: Vec<u32> = Vec::new();
    for at in 0..routes.len() {
        let prefix = routes[at].prefix;
        while around.last().is_some_and(|parent| !routes[*parent as usize].covers(prefix)) {
            around.pop();
        }
        routes[at].parent = around.last().copied().unwrap_or(0);
        around.push(place(at));
    }
}
