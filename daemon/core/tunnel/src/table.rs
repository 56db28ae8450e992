//! The routing snapshot: longest prefix -> path group -> live peer.
//!
//! Built once, then only read; a change builds the next one. What changes without a new snapshot is liveness: one bit for each peer,
//! shared by every prefix and every snapshot, so that a dead peer costs one store however many prefixes lead to it.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;

use crate::packet::{Packet, mix};

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
    members: Vec<Member>,
    groups: Vec<Group>,
    v4: PrefixMap<Ipv4Net, u32>,
    v6: PrefixMap<Ipv6Net, u32>,
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

/// Prefixes with equal members share one group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    /// Who carries traffic.
    selected: Box<[Slot]>,
    /// Who may send from here; sorted.
    feasible: Box<[Slot]>,
}

/// Collects routes for a [`Table`].
#[derive(Debug)]
pub struct Builder {
    table: Table,
    known: HashMap<Group, u32>,
}

impl Table {
    /// Starts a snapshot over these peers; a peer's slot is its position.
    pub fn builder(members: Vec<Member>) -> Builder {
        Builder { table: Table { members, ..Table::default() }, known: HashMap::new() }
    }

    /// The peer to carry this packet: by longest prefix of its destination, then by flow over the group's live members. If none is
    /// live the flow is spread over all of them: a packet may wake the tunnel up, and a drop never does. `None`: no route.
    pub fn route(&self, packet: &Packet<'_>) -> Option<Slot> {
        match &*self.group(packet.destination)?.selected {
            [] => None,
            [only] => Some(*only),
            several => self.choose(several, packet.flow),
        }
    }

    /// True if packets from `source` may come from this peer: it is among all candidates of the longest prefix that covers the
    /// address, selected or not (feasible reverse path, RFC 3704 section 2.3).
    pub fn is_feasible(&self, source: IpAddr, peer: Slot) -> bool {
        self.group(source).is_some_and(|group| group.feasible.binary_search(&peer).is_ok())
    }

    /// True if what we send to this outer address would enter the tunnel: it lies in the overlay, or the longest prefix that covers
    /// it leads to a peer and holds no configured endpoint. Nobody may be sought there.
    pub fn captures(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if self.underlay.overlay.iter().any(|net| net.contains(&address)) {
            return true;
        }
        let Some((prefix, group)) = self.longest(address) else { return false };
        let carries = self.groups.get(usize::try_from(group).unwrap_or(usize::MAX));
        carries.is_some_and(|group| !group.selected.is_empty())
            && !self.underlay.endpoints.iter().any(|endpoint| prefix.contains(&endpoint.to_canonical()))
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// True without any prefix.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn group(&self, address: IpAddr) -> Option<&Group> {
        let index = match address {
            IpAddr::V4(address) => self.v4.get_lpm(&Ipv4Net::from(address))?.1,
            IpAddr::V6(address) => self.v6.get_lpm(&Ipv6Net::from(address))?.1,
        };
        self.groups.get(usize::try_from(*index).ok()?)
    }

    /// The longest prefix that covers the address, and the index of its group.
    fn longest(&self, address: IpAddr) -> Option<(IpNet, u32)> {
        match address {
            IpAddr::V4(address) => {
                self.v4.get_lpm(&Ipv4Net::from(address)).map(|(net, group)| (IpNet::from(net), *group))
            }
            IpAddr::V6(address) => {
                self.v6.get_lpm(&Ipv6Net::from(address)).map(|(net, group)| (IpNet::from(net), *group))
            }
        }
    }

    /// Highest random weight: a flow belongs to the live member with the highest score, so a member that goes takes only its own
    /// flows along, and one that comes takes only the flows where it scores highest.
    fn choose(&self, group: &[Slot], flow: u64) -> Option<Slot> {
        let score = |slot: &Slot| self.member(*slot).map_or(0, |member| mix(flow ^ mix(member.key)));
        let is_live =
            |slot: &&Slot| self.member(**slot).is_some_and(|member| member.live.load(Ordering::Relaxed));
        let live = group.iter().filter(is_live).max_by_key(|slot| score(slot));
        live.or_else(|| group.iter().max_by_key(|slot| score(slot))).copied()
    }

    fn member(&self, slot: Slot) -> Option<&Member> {
        self.members.get(usize::try_from(slot).ok()?)
    }
}

impl Builder {
    /// Adds a prefix (host bits are ignored). `selected` carry its traffic; they and `feasible` may send from it. A prefix without
    /// peers is no waste: it keeps its packets from falling through to a shorter prefix.
    pub fn route(&mut self, prefix: IpNet, selected: &[Slot], feasible: &[Slot]) {
        let mut feasible: Vec<Slot> = feasible.iter().chain(selected).copied().collect();
        feasible.sort_unstable();
        feasible.dedup();
        let group = self.intern(Group { selected: selected.into(), feasible: feasible.into() });
        match prefix.trunc() {
            IpNet::V4(prefix) => self.table.v4.insert(prefix, group),
            IpNet::V6(prefix) => self.table.v6.insert(prefix, group),
        };
    }

    /// Says what [`Table::captures`] needs to know beside the prefixes.
    pub fn underlay(&mut self, underlay: Underlay) {
        self.table.underlay = underlay;
    }

    /// The snapshot.
    pub fn build(self) -> Table {
        self.table
    }

    fn intern(&mut self, group: Group) -> u32 {
        if let Some(index) = self.known.get(&group) {
            return *index;
        }
        let index = u32::try_from(self.table.groups.len()).expect("fewer groups than IPv4 addresses");
        self.table.groups.push(group.clone());
        self.known.insert(group, index);
        index
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(live: &[bool]) -> Vec<Member> {
        (1..).zip(live).map(|(key, live)| Member { key, live: Arc::new(AtomicBool::new(*live)) }).collect()
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn to(destination: IpAddr, flow: u64) -> Packet<'static> {
        Packet { bytes: &[], source: destination, destination, flow: mix(flow) }
    }

    fn built(members: Vec<Member>, routes: &[(&str, &[Slot], &[Slot])]) -> Table {
        let mut builder = Table::builder(members);
        for (prefix, selected, feasible) in routes {
            builder.route(net(prefix), selected, feasible);
        }
        builder.build()
    }

    #[test]
    fn feasible_sources_are_all_candidates_of_the_longest_prefix() {
        let table = built(
            members(&[true, true, true]),
            &[("10.0.0.0/8", &[2], &[]), ("10.20.0.0/16", &[0], &[1]), ("10.20.30.0/24", &[], &[])],
        );
        let feasible = |address: &str| -> Vec<Slot> {
            (0..4).filter(|peer| table.is_feasible(address.parse().unwrap(), *peer)).collect()
        };
        assert_eq!(feasible("10.20.0.1"), [0, 1]);
        assert_eq!(feasible("10.21.0.1"), [2]);
        assert_eq!(feasible("10.20.30.1"), [0; 0]);
        assert_eq!(feasible("11.0.0.1"), [0; 0]);
        assert_eq!(feasible("::ffff:10.20.0.1"), [0; 0]);
    }

    #[test]
    fn outer_addresses_that_our_routes_lead_into_the_tunnel_are_captured() {
        let mut builder = Table::builder(members(&[true]));
        for (prefix, selected) in [
            ("0.0.0.0/0", &[0][..]),
            ("10.50.0.0/16", &[0]),
            ("10.50.7.0/24", &[]),
            ("fd50::/64", &[0]),
            ("2001:db8::/32", &[0]),
        ] {
            builder.route(net(prefix), selected, &[]);
        }
        builder.underlay(Underlay {
            overlay: vec![net("10.99.0.1/24"), net("fd7a::1/64")],
            endpoints: vec!["192.0.2.2".parse().unwrap(), "2001:db8::2".parse().unwrap()],
        });
        let table = builder.build();
        for (address, captured) in [
            ("10.50.0.9", true),
            ("::ffff:10.50.0.9", true),
            ("fd50::9", true),
            ("10.99.0.77", true),
            ("fd7a::77", true),
            // A prefix without peers goes through routers.
            ("10.50.7.1", false),
            // The default route holds a configured endpoint, and so does the IPv6 prefix.
            ("203.0.113.5", false),
            ("2001:db8::77", false),
            ("2001:4860::1", false),
        ] {
            assert_eq!(table.captures(address.parse().unwrap()), captured, "{address}");
        }
    }

    #[test]
    fn empty_group_hides_the_shorter_prefix() {
        let table = built(members(&[true]), &[("0.0.0.0/0", &[0], &[]), ("10.0.0.0/8", &[], &[])]);
        assert_eq!(table.route(&to("11.0.0.1".parse().unwrap(), 0)), Some(0));
        assert_eq!(table.route(&to("10.0.0.1".parse().unwrap(), 0)), None);
    }

    #[test]
    fn one_bit_moves_every_prefix_and_only_the_flows_it_must() {
        let members = members(&[true, true, true]);
        let table = built(members.clone(), &[("10.0.0.0/8", &[0, 1, 2], &[]), ("fd00::/8", &[2, 1, 0], &[])]);
        let addresses: [IpAddr; 2] = ["10.1.1.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let choices = || -> Vec<Slot> {
            (0..3000)
                .map(|flow| table.route(&to(addresses[usize::from(flow % 2 == 0)], flow)).unwrap())
                .collect()
        };
        let before = choices();
        for peer in 0..3 {
            let share = before.iter().filter(|choice| **choice == peer).count();
            assert!((850..1150).contains(&share), "peer {peer} carries {share} of 3000 flows");
        }
        members[1].live.store(false, Ordering::Relaxed);
        for (was, is) in before.iter().zip(choices()) {
            assert!(is == *was || *was == 1);
            assert_ne!(is, 1);
        }
        members[1].live.store(true, Ordering::Relaxed);
        assert_eq!(choices(), before);
        for member in &members {
            member.live.store(false, Ordering::Relaxed);
        }
        assert_eq!(choices(), before);
    }

    #[test]
    fn equal_groups_are_stored_once() {
        let table = built(
            members(&[true, true]),
            &[("10.1.0.0/16", &[0, 1], &[]), ("10.2.0.0/16", &[0, 1], &[1, 0]), ("10.3.0.0/16", &[0], &[1])],
        );
        assert_eq!((table.len(), table.groups.len()), (3, 2));
    }

    /// Addresses and prefixes from a small space, so that they meet.
    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            (0..4_u8, 0..4_u8, any::<u8>()).prop_map(|(a, b, c)| IpAddr::from([10, a, b, c])),
            (0..4_u16, 0..4_u16).prop_map(|(a, b)| IpAddr::from([0xfd00, a, 0, 0, 0, 0, 0, b])),
        ]
    }

    fn prefix() -> impl Strategy<Value = IpNet> {
        (address(), 0..=128_u8).prop_map(|(address, length)| {
            let most = if address.is_ipv4() { 32 } else { 128 };
            IpNet::new(address, length % (most + 1)).unwrap()
        })
    }

    proptest! {
        #[test]
        fn longest_prefix_agrees_with_a_linear_search(
            routes in proptest::collection::vec((prefix(), 0..8_u32), 0..40),
            addresses in proptest::collection::vec(address(), 1..40),
        ) {
            let mut builder = Table::builder(members(&[true; 8]));
            let mut model: Vec<(IpNet, Slot)> = Vec::new();
            for (prefix, peer) in routes {
                builder.route(prefix, &[peer], &[]);
                model.retain(|(other, _)| *other != prefix.trunc());
                model.push((prefix.trunc(), peer));
            }
            let table = builder.build();
            prop_assert_eq!(table.len(), model.len());
            for address in addresses {
                let covering = model.iter().filter(|(prefix, _)| prefix.contains(&address));
                let expected = covering.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, peer)| *peer);
                prop_assert_eq!(table.route(&to(address, 1)), expected);
                for peer in 0..8 {
                    prop_assert_eq!(table.is_feasible(address, peer), expected == Some(peer));
                }
            }
        }

        #[test]
        fn member_that_joins_or_leaves_moves_only_its_own_flows(keys in proptest::collection::hash_set(any::<u64>(), 2..8), flows in proptest::collection::vec(any::<u64>(), 1..200)) {
            let members: Vec<Member> =
                keys.iter().map(|key| Member { key: *key, live: Arc::new(AtomicBool::new(true)) }).collect();
            let all: Vec<Slot> = (0..u32::try_from(members.len()).unwrap()).collect();
            let last = all[all.len() - 1];
            let mut builder = Table::builder(members);
            builder.route(net("10.0.0.0/16"), &all, &[]);
            builder.route(net("10.1.0.0/16"), &all[..all.len() - 1], &[]);
            let table = builder.build();
            for flow in flows {
                let with = table.route(&to("10.0.0.1".parse().unwrap(), flow)).unwrap();
                let without = table.route(&to("10.1.0.1".parse().unwrap(), flow)).unwrap();
                prop_assert!(with == without || with == last);
            }
        }
    }
}
