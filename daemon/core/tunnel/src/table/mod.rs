//! The routing snapshot: longest prefix -> path group -> live peer.
//!
//! Built once, then only read; a change builds the next one. What changes without a new snapshot is liveness: one bit for each peer,
//! shared by every prefix and every snapshot, so that a dead peer costs one store however many prefixes lead to it. A packet costs the
//! same with one prefix and with a hundred thousand ([`trie`]), and nothing of it takes a lock.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, atomic::AtomicBool},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::packet::Packet;
use group::{Group, Members};
use trie::Trie;

mod builder;
mod group;
mod router;
mod trie;

#[cfg(test)]
mod tests;

pub use builder::Builder;
pub use router::Router;

/// A peer's place in a snapshot. Places of different snapshots have nothing to do with each other.
pub type Slot = u32;

/// A peer as the table sees it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Identity for rendezvous hashing: the same in every snapshot, different for every peer.
    pub key: u64,
    /// Set while the peer answers.
    pub live: Arc<AtomicBool>,
}

/// A finished snapshot.
#[derive(Debug, Default)]
pub struct Table {
    members: Members,
    groups: Vec<Group>,
    v4: Trie<u32>,
    v6: Trie<u128>,
    /// Endpoints are canonical and sorted.
    underlay: Underlay,
}

/// What decides, beside the prefixes, which outer addresses our own routes lead into the tunnel.
#[derive(Clone, Debug, Default)]
pub struct Underlay {
    /// The overlay's own networks: the kernel routes them to the TUN device whatever we do.
    pub overlay: Vec<IpNet>,
    /// Outer addresses of peers as configured: a prefix that holds one is never made a route of the kernel.
    pub endpoints: Vec<IpAddr>,
}

impl Table {
    /// Starts a snapshot over these peers; a peer's slot is its position.
    pub fn builder(members: Vec<Member>) -> Builder {
        Builder::new(members)
    }

    /// The peer to carry this packet: by longest prefix of its destination, then by flow over the group's live members. If none is
    /// live the flow is spread over all of them: a packet may wake the tunnel up, and a drop never does. `None`: no route.
    pub fn route(&self, packet: &Packet<'_>) -> Option<Slot> {
        self.members.choose(&self.group(packet.destination)?.selected, packet.flow)
    }

    /// True if packets from `source` may come from this peer: it is among all candidates of the longest prefix that covers the
    /// address, selected or not (feasible reverse path, RFC 3704 section 2.3).
    pub fn is_feasible(&self, source: IpAddr, peer: Slot) -> bool {
        self.group(source).is_some_and(|group| group.is_feasible(peer))
    }

    /// Answers the same questions for a batch, where many packets have the same addresses.
    pub fn router(&self) -> Router<'_> {
        Router::new(self)
    }

    /// True if what we send to this outer address would enter the tunnel: it lies in the overlay, or the longest prefix that covers
    /// it leads to a peer and holds no configured endpoint. Nobody may be sought there.
    pub fn captures(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if self.underlay.overlay.iter().any(|net| net.contains(&address)) {
            return true;
        }
        let Some((prefix, group)) = self.longest(address) else { return false };
        !group.selected.is_empty() && !self.underlay.holds_endpoint(prefix)
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// True without any prefix.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the prefixes occupy.
    pub fn size(&self) -> usize {
        self.v4.size() + self.v6.size()
    }

    fn group(&self, address: IpAddr) -> Option<&Group> {
        let group = match address {
            IpAddr::V4(address) => self.v4.find(address.to_bits()).group,
            IpAddr::V6(address) => self.v6.find(address.to_bits()).group,
        };
        self.groups.get(group as usize)
    }

    /// The longest prefix that covers the address, and its group.
    fn longest(&self, address: IpAddr) -> Option<(IpNet, &Group)> {
        let (prefix, group) = match address {
            IpAddr::V4(address) => {
                let route = self.v4.find(address.to_bits());
                (Ipv4Net::new(Ipv4Addr::from_bits(route.prefix), route.length).ok()?.into(), route.group)
            }
            IpAddr::V6(address) => {
                let route = self.v6.find(address.to_bits());
                (Ipv6Net::new(Ipv6Addr::from_bits(route.prefix), route.length).ok()?.into(), route.group)
            }
        };
        Some((prefix, self.groups.get(group as usize)?))
    }
}

impl Underlay {
    /// The first endpoint from the prefix's first address on is in it, or none is.
    fn holds_endpoint(&self, prefix: IpNet) -> bool {
        let next = self.endpoints.partition_point(|endpoint| *endpoint < prefix.network());
        self.endpoints.get(next).is_some_and(|endpoint| prefix.contains(endpoint))
    }
}
