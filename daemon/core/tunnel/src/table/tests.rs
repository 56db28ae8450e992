use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::*;
use crate::packet::mix;

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
        (0..3000).map(|flow| table.route(&to(addresses[usize::from(flow % 2 == 0)], flow)).unwrap()).collect()
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

/// Addresses that meet: two of a kind part at any bit, and nearly all share their first octets.
fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        3 => (0..4_u8, 0..4_u8, any::<u8>()).prop_map(|(a, b, c)| IpAddr::from([10, a, b, c])),
        3 => (0..4_u16, 0..4_u16).prop_map(|(a, b)| IpAddr::from([0xfd00, a, 0, 0, 0, 0, 0, b])),
        3 => (0..32_u32).prop_map(|bit| Ipv4Addr::from_bits(0x0a01_0203 ^ (1 << bit)).into()),
        3 => (0..128_u32).prop_map(|bit| Ipv6Addr::from_bits(0xfd00_0001_0002 << 80 ^ (1 << bit)).into()),
        1 => any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
        1 => any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into()),
    ]
}

fn prefix() -> impl Strategy<Value = IpNet> {
    (address(), 0..=128_u8).prop_map(|(address, length)| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        IpNet::new(address, length % (most + 1)).unwrap()
    })
}

/// What the table replaces: every prefix is looked at.
#[derive(Default)]
struct Linear(Vec<(IpNet, Slot)>);

impl Linear {
    fn add(&mut self, prefix: IpNet, peer: Slot) {
        self.0.retain(|(other, _)| *other != prefix.trunc());
        self.0.push((prefix.trunc(), peer));
    }

    fn longest(&self, address: IpAddr) -> Option<(IpNet, Slot)> {
        let covering = self.0.iter().filter(|(prefix, _)| prefix.contains(&address));
        covering.max_by_key(|(prefix, _)| prefix.prefix_len()).copied()
    }
}

/// A table and its model over eight live peers.
fn both(routes: &[(IpNet, Slot)], endpoints: &[IpAddr]) -> (Table, Linear) {
    let (mut builder, mut model) = (Table::builder(members(&[true; 8])), Linear::default());
    for (prefix, peer) in routes {
        builder.route(*prefix, &[*peer], &[]);
        model.add(*prefix, *peer);
    }
    builder.underlay(Underlay { overlay: vec![], endpoints: endpoints.to_vec() });
    (builder.build(), model)
}

#[test]
fn prefixes_of_every_length_nest() {
    for (most, inside) in [(32, "10.1.2.3"), (128, "fd00:1:2:3:4:5:6:7")] {
        let inside: IpAddr = inside.parse().unwrap();
        let routes: Vec<(IpNet, Slot)> =
            (0..=most).map(|length| (IpNet::new(inside, length).unwrap(), u32::from(length % 8))).collect();
        for step in 1..5 {
            let routes: Vec<(IpNet, Slot)> = routes.iter().rev().step_by(step).copied().collect();
            let (table, model) = both(&routes, &[]);
            assert_eq!(table.len(), routes.len());
            for bit in 0..most {
                let address = match inside {
                    IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() ^ 1 << bit).into(),
                    IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() ^ 1 << bit).into(),
                };
                let expected = model.longest(address);
                assert_eq!(table.route(&to(address, 1)), expected.map(|(_, peer)| peer), "{address}");
                assert_eq!(
                    table.longest(address).map(|(prefix, _)| prefix),
                    expected.map(|(prefix, _)| prefix)
                );
            }
        }
    }
}

#[test]
fn the_extremes() {
    let (table, _) = both(&[], &[]);
    assert!(table.is_empty());
    assert_eq!(table.route(&to("0.0.0.0".parse().unwrap(), 0)), None);
    let nets = ["0.0.0.0/0", "0.0.0.0/32", "255.255.255.255/32", "::/0", "::/128"];
    let routes: Vec<(IpNet, Slot)> = nets.into_iter().map(net).zip(0..).collect();
    let (table, _) = both(&routes, &[]);
    assert_eq!(table.len(), 5);
    for (address, expected) in [
        ("0.0.0.0", 1),
        ("0.0.0.1", 0),
        ("255.255.255.255", 2),
        ("255.255.255.254", 0),
        ("::", 4),
        ("::1", 3),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 3),
    ] {
        assert_eq!(table.route(&to(address.parse().unwrap(), 0)), Some(expected), "{address}");
    }
}

#[test]
fn the_last_route_for_a_prefix_counts() {
    let (table, _) = both(
        &[(net("0.0.0.0/0"), 1), (net("10.1.0.0/16"), 2), (net("10.1.9.9/16"), 3), (net("0.0.0.0/0"), 4)],
        &[],
    );
    assert_eq!(table.len(), 2);
    assert_eq!(table.route(&to("10.1.1.1".parse().unwrap(), 0)), Some(3));
    assert_eq!(table.route(&to("10.2.1.1".parse().unwrap(), 0)), Some(4));
}

#[test]
fn a_large_table_is_a_small_one() {
    let mut builder = Table::builder(members(&[true]));
    for number in 0..20_000_u64 {
        let random = mix(number);
        let v4 = u32::try_from(random >> 32).unwrap();
        builder.route(Ipv4Net::new(Ipv4Addr::from_bits(v4), 24).unwrap().into(), &[0], &[]);
        let v6 = (0x2 << 124) | (u128::from(random) << 60);
        builder.route(Ipv6Net::new(Ipv6Addr::from_bits(v6), 48).unwrap().into(), &[0], &[]);
    }
    let table = builder.build();
    assert!(table.len() > 39_000);
    let each = table.size() / table.len();
    assert!(each < 100, "{each} bytes for each prefix");
}

proptest! {
    #[test]
    fn longest_prefix_agrees_with_a_linear_search(
        routes in proptest::collection::vec((prefix(), 0..8_u32), 0..60),
        addresses in proptest::collection::vec(address(), 1..60),
        endpoints in proptest::collection::vec(address(), 0..3),
    ) {
        let (table, model) = both(&routes, &endpoints);
        let mut router = table.router();
        prop_assert_eq!(table.len(), model.0.len());
        let ends = routes.iter().flat_map(|(prefix, _)| [prefix.network(), prefix.broadcast()]);
        for address in ends.chain(addresses) {
            let expected = model.longest(address);
            let peer = expected.map(|(_, peer)| peer);
            prop_assert_eq!(table.route(&to(address, 1)), peer);
            prop_assert_eq!(router.route(&to(address, 1)), peer);
            for other in 0..8 {
                prop_assert_eq!(table.is_feasible(address, other), peer == Some(other));
                prop_assert_eq!(router.is_feasible(address, other), peer == Some(other));
            }
            let captured = expected.is_some_and(|(prefix, _)| !endpoints.iter().any(|end| prefix.contains(end)));
            prop_assert_eq!(table.captures(address), captured);
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
