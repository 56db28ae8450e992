use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    prefixes,
    routes::{Candidate, NextHop, Path, Route, Source},
};

const TUN: u32 = 7;
const ETHERNET: u32 = 2;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn config() -> Config {
    Config {
        install: true,
        table: 254,
        interface: Some("isthmus0".into()),
        stale_time: Duration::from_secs(120),
    }
}

fn peer() -> Hop {
    Hop::Peer("azure".into())
}

fn via(address: &str) -> Hop {
    Hop::Gateway(ip(address))
}

fn route(prefix: IpNet, hops: &[Hop], selected: bool) -> Route {
    let path = |hop: &Hop| Path {
        hop: hop.clone(),
        candidate: Candidate {
            next_hop: match hop {
                Hop::Peer(peer) => NextHop::Peer(peer.clone()),
                Hop::Gateway(address) => NextHop::Address(*address),
                Hop::LinkLocal { address, interface } => {
                    NextHop::LinkLocal { address: *address, interface: *interface }
                }
            },
            neighbor: None,
            selected,
        },
    };
    let group = PathGroup { source: Source::Bgp, paths: hops.iter().map(path).collect() };
    Route { prefix, group: group.into() }
}

fn ours(prefix: &str, target: Target) -> KernelRoute {
    KernelRoute { prefix: net(prefix), metric: METRIC, protocol: PROTOCOL, target, source: None }
}

fn through_tun(prefix: &str) -> KernelRoute {
    let source = Some(if prefix.contains(':') { ip("fd7a::1") } else { ip("10.99.0.1") });
    KernelRoute { source, ..ours(prefix, Target::Device(TUN)) }
}

fn gateways(addresses: &[&str]) -> Target {
    Target::Gateways(addresses.iter().map(|address| Gateway::from(ip(address))).collect())
}

/// A node as it is after the tunnel has come up: connected subnets on the wire and on the TUN interface.
fn kernel(extra: &[KernelRoute]) -> Kernel {
    let connected = |prefix: &str, index| KernelRoute {
        metric: if prefix.contains(':') { 256 } else { 0 },
        protocol: 2,
        ..ours(prefix, Target::Device(index))
    };
    let mut kernel = Kernel::default();
    kernel.link = Some(Link {
        index: TUN,
        v4: Some("10.99.0.1".parse().unwrap()),
        v6: Some("fd7a::1".parse().unwrap()),
    });
    for route in [
        connected("192.0.2.0/24", ETHERNET),
        connected("2001:db8::/64", ETHERNET),
        connected("10.99.0.0/24", TUN),
        connected("fd7a::/64", TUN),
    ] {
        kernel.insert(route);
    }
    extra.iter().cloned().for_each(|route| kernel.insert(route));
    kernel
}

fn board(routes: impl IntoIterator<Item = Route>) -> Wanted {
    let mut board: Wanted = prefixes::table();
    for route in routes {
        board.insert(route.prefix, route.group);
    }
    board
}

fn step(prefix: &str, hops: &[Hop], kernel: &Kernel) -> Step {
    let board = board([route(net(prefix), hops, true)]);
    let underlay = [ip("198.51.100.2"), ip("2001:db8:ffff::2")];
    decide(
        net(prefix),
        false,
        kernel,
        Rules { config: &config(), board: &board, underlay: &underlay, memory: &Memory::default() },
    )
}

#[test]
fn becomes_a_kernel_route() {
    for (prefix, hops, expected) in [
        ("10.20.0.0/16", vec![peer()], through_tun("10.20.0.0/16")),
        ("fd20::/48", vec![peer(), peer()], through_tun("fd20::/48")),
        ("10.20.0.0/16", vec![via("192.0.2.9")], ours("10.20.0.0/16", gateways(&["192.0.2.9"]))),
        (
            "10.20.0.0/16",
            vec![via("192.0.2.9"), via("192.0.2.8"), via("192.0.2.9")],
            ours("10.20.0.0/16", gateways(&["192.0.2.8", "192.0.2.9"])),
        ),
        ("fd20::/48", vec![via("2001:db8::9")], ours("fd20::/48", gateways(&["2001:db8::9"]))),
        ("10.20.0.0/16", vec![via("2001:db8::9")], ours("10.20.0.0/16", gateways(&["2001:db8::9"]))),
        // Peers win over routers.
        ("10.20.0.0/16", vec![via("192.0.2.9"), peer()], through_tun("10.20.0.0/16")),
        // A default route may lead to a router, and a tunnel may carry a part of the overlay's subnet's neighbourhood.
        ("0.0.0.0/0", vec![via("192.0.2.9")], ours("0.0.0.0/0", gateways(&["192.0.2.9"]))),
        ("10.99.0.0/16", vec![peer()], through_tun("10.99.0.0/16")),
        ("::fffe:0:0/95", vec![via("2001:db8::9")], ours("::fffe:0:0/95", gateways(&["2001:db8::9"]))),
    ] {
        let step = step(prefix, &hops, &kernel(&[]));
        assert_eq!(step.operations, [Operation::Add(expected)], "{prefix} {hops:?}");
        assert_eq!(step.state, Some(KernelState::Installed));
    }
}

#[test]
fn stays_out_of_the_kernel_and_says_why() {
    for (prefix, hops, label, reason) in [
        ("10.99.0.2/32", vec![peer()], "not_wanted", "covered by isthmus0's subnet 10.99.0.0/24"),
        ("10.99.0.0/24", vec![peer()], "not_wanted", "covered by isthmus0's subnet 10.99.0.0/24"),
        ("fd7a::2/128", vec![peer()], "not_wanted", "covered by isthmus0's subnet fd7a::/64"),
        ("0.0.0.0/0", vec![peer()], "not_wanted", "covers 198.51.100.2"),
        ("198.51.100.0/24", vec![peer()], "not_wanted", "covers 198.51.100.2"),
        ("2001:db8::/32", vec![peer()], "not_wanted", "covers 2001:db8:ffff::2"),
        ("10.20.0.0/16", vec![], "not_wanted", "no path is selected"),
        ("224.0.0.0/8", vec![peer()], "not_wanted", "multicast"),
        ("127.0.0.1/32", vec![via("192.0.2.9")], "not_wanted", "loopback"),
        ("::1/128", vec![peer()], "not_wanted", "loopback"),
        ("fe80::/64", vec![peer()], "not_wanted", "link-local"),
        ("ff02::/16", vec![peer()], "not_wanted", "multicast"),
        ("::ffff:0:0/96", vec![peer()], "not_wanted", "IPv4-mapped"),
        ("::ffff:10.20.0.0/112", vec![peer()], "not_wanted", "IPv4-mapped"),
        ("::ffff:192.0.2.9/128", vec![via("2001:db8::9")], "not_wanted", "IPv4-mapped"),
        ("fd20::/48", vec![via("192.0.2.9")], "failed", "next hop 192.0.2.9 is IPv4"),
        ("fd20::/48", vec![via("fe80::9")], "failed", "link-local"),
        ("10.20.0.0/16", vec![via("10.99.0.77")], "failed", "lies behind isthmus0"),
    ] {
        let step = step(prefix, &hops, &kernel(&[]));
        let state = step.state.unwrap();
        assert_eq!(step.operations, [], "{prefix}");
        assert_eq!(state.label(), label, "{prefix}: {state}");
        assert!(state.reason().contains(reason), "{prefix}: {state}");
    }
}

#[test]
fn needs_the_interface() {
    let mut no_link = kernel(&[]);
    no_link.link = None;
    let missing = step("10.20.0.0/16", &[peer()], &no_link).state.unwrap();
    assert_eq!(missing.to_string(), "failed: interface isthmus0 does not exist");

    let bgp_only = Config { interface: None, ..config() };
    let prefix = net("10.20.0.0/16");
    let board = board([route(prefix, &[peer()], true)]);
    let step = decide(
        prefix,
        false,
        &no_link,
        Rules { config: &bgp_only, board: &board, underlay: &[], memory: &Memory::default() },
    );
    assert!(step.state.unwrap().reason().contains("no tunnel interface"));
}

#[test]
fn no_address_no_preferred_source() {
    let mut bare = kernel(&[]);
    bare.link = Some(Link { index: TUN, ..Link::default() });
    let step = step("10.20.0.0/16", &[peer()], &bare);
    assert_eq!(step.operations, [Operation::Add(ours("10.20.0.0/16", Target::Device(TUN)))]);
}

#[test]
fn equal_is_not_touched_different_is_replaced() {
    let equal = kernel(&[through_tun("10.20.0.0/16")]);
    assert_eq!(step("10.20.0.0/16", &[peer()], &equal).operations, []);

    let old = ours("10.20.0.0/16", gateways(&["192.0.2.9"]));
    let different = step("10.20.0.0/16", &[peer()], &kernel(std::slice::from_ref(&old)));
    assert_eq!(different.operations, [Operation::Replace { old, new: through_tun("10.20.0.0/16") }]);

    let other_metric = KernelRoute { metric: 20, ..through_tun("10.20.0.0/16") };
    let moved = step("10.20.0.0/16", &[peer()], &kernel(std::slice::from_ref(&other_metric)));
    assert_eq!(
        moved.operations,
        [Operation::Add(through_tun("10.20.0.0/16")), Operation::Delete(other_metric)],
        "the old one stays until the new one stands"
    );
}

#[test]
fn others_keep_their_place() {
    let theirs =
        |metric| KernelRoute { protocol: 4, metric, ..ours("10.20.0.0/16", gateways(&["192.0.2.1"])) };
    let occupied = step("10.20.0.0/16", &[peer()], &kernel(&[theirs(METRIC)]));
    assert_eq!(occupied.operations, []);
    assert_eq!(
        occupied.state.unwrap().to_string(),
        "failed: a static route to 10.20.0.0/16 has the metric 1073 that is ours"
    );

    let shadowed = step("10.20.0.0/16", &[peer()], &kernel(&[theirs(0)]));
    assert_eq!(shadowed.operations, [Operation::Add(through_tun("10.20.0.0/16"))]);
    assert_eq!(
        shadowed.state.unwrap().to_string(),
        "shadowed: the kernel prefers a static route to 10.20.0.0/16 with metric 0"
    );

    let behind_us = step("10.20.0.0/16", &[peer()], &kernel(&[theirs(4000)]));
    assert_eq!(behind_us.state, Some(KernelState::Installed));
}

#[test]
fn withdrawn_goes_adopted_waits() {
    let kernel = kernel(&[through_tun("10.20.0.0/16")]);
    let config = config();
    let (empty, memory): (Wanted, _) = (prefixes::table(), Memory::default());
    let rules = Rules { config: &config, board: &empty, underlay: &[], memory: &memory };
    let prefix = net("10.20.0.0/16");
    let delete = [Operation::Delete(through_tun("10.20.0.0/16"))];

    let waiting = decide(prefix, true, &kernel, rules);
    assert_eq!((waiting.operations.len(), waiting.state), (0, Some(KernelState::Stale)));

    let gone = decide(prefix, false, &kernel, rules);
    assert_eq!((gone.operations.as_slice(), gone.state), (delete.as_slice(), None));

    let off = Config { install: false, ..config.clone() };
    let board = board([route(prefix, &[peer()], true)]);
    let off = decide(
        prefix,
        false,
        &kernel,
        Rules { config: &off, board: &board, underlay: &[], memory: &Memory::default() },
    );
    assert_eq!(off.operations, delete);
    assert_eq!(off.state.unwrap().reason(), "fib.install is false");
}

#[test]
fn a_router_is_never_looked_for_inside_the_tunnel() {
    let config = config();
    let inside = route(net("fd20::/48"), &[peer()], true);
    let onward = route(net("fd21::/48"), &[via("fd20::9")], true);
    let board = board([inside, onward]);
    let memory = Memory::default();
    let rules = Rules { config: &config, board: &board, underlay: &[], memory: &memory };
    let step = decide(net("fd21::/48"), false, &kernel(&[]), rules);
    assert!(step.state.unwrap().reason().contains("lies behind isthmus0"));

    let wire = KernelRoute { protocol: 2, metric: 256, ..ours("fd20::/64", Target::Device(ETHERNET)) };
    let memory = Memory::default();
    let step = decide(net("fd21::/48"), false, &kernel(&[wire]), Rules { memory: &memory, ..rules });
    assert_eq!(step.state, Some(KernelState::Installed), "the wire's subnet is more specific");
}

/// A second wire, and which of the two work.
fn two_wires(first: bool, second: bool) -> Kernel {
    let mut kernel = kernel(&[]);
    for (index, name, subnet, up) in
        [(ETHERNET, "eth0", "192.0.2.1/24", first), (3, "eth1", "203.0.113.1/24", second)]
    {
        kernel.links.set(index, name.into(), up);
        kernel.links.add_subnet(index, net(subnet));
    }
    kernel
}

/// The gateways of 10.20.0.0/16, whose paths are these, the selected ones first; or why there are none.
fn chosen(selected: &[&str], others: &[&str], kernel: &Kernel) -> Result<Vec<String>, String> {
    let hops = |addresses: &[&str]| addresses.iter().map(|address| via(address)).collect::<Vec<_>>();
    let prefix = net("10.20.0.0/16");
    let groups = [route(prefix, &hops(selected), true), route(prefix, &hops(others), false)];
    let paths = groups.iter().flat_map(|route| route.paths().to_vec()).collect();
    let mut board: Wanted = prefixes::table();
    board.insert(prefix, Arc::new(PathGroup { source: Source::Bgp, paths }));
    let (config, memory) = (config(), Memory::default());
    let step = decide(
        prefix,
        false,
        kernel,
        Rules { config: &config, board: &board, underlay: &[], memory: &memory },
    );
    match step.operations.as_slice() {
        [Operation::Add(KernelRoute { target: Target::Gateways(gateways), .. })] => {
            Ok(gateways.iter().map(|gateway| gateway.address.to_string()).collect())
        }
        _ => Err(step.state.unwrap().to_string()),
    }
}

#[test]
fn a_link_that_is_down_is_left() {
    let (one, other) = ("192.0.2.9", "203.0.113.9");
    let all =
        |addresses: &[&str]| Ok(addresses.iter().map(|address| (*address).to_owned()).collect::<Vec<_>>());
    let both = two_wires(true, true);
    assert_eq!(chosen(&[one, other], &[], &both), all(&[one, other]));
    assert_eq!(chosen(&[one], &[other], &both), all(&[one]), "the other one is not selected");
    let first_down = two_wires(false, true);
    assert_eq!(chosen(&[one, other], &[], &first_down), all(&[other]));
    assert_eq!(chosen(&[one], &[other], &first_down), all(&[other]), "BGP will say the same");
    let none = two_wires(false, false);
    let why = Err("failed: next hop 192.0.2.9 is behind eth0, which is down".to_owned());
    assert_eq!(chosen(&[one], &[other], &none), why, "a less specific route is better than a black hole");
    assert_eq!(chosen(&[one, other], &[], &none), why);
}

#[test]
fn a_router_that_no_interface_leads_to_does_not_spoil_the_others() {
    let (near, nowhere) = ("192.0.2.9", "198.18.0.1");
    let kernel = two_wires(true, true);
    assert_eq!(chosen(&[near, nowhere], &[], &kernel), Ok(vec![near.to_owned()]));
    assert_eq!(
        chosen(&[nowhere], &[near], &kernel),
        Ok(vec![nowhere.to_owned()]),
        "the kernel may know a way"
    );
}

#[test]
fn a_link_local_router_is_reached_by_its_interface() {
    let hop = Hop::LinkLocal { address: "fe80::9".parse().unwrap(), interface: 3 };
    let gateway = Gateway { address: ip("fe80::9"), interface: Some(3) };
    for prefix in ["fd20::/48", "10.20.0.0/16"] {
        let up = step(prefix, std::slice::from_ref(&hop), &two_wires(true, true));
        assert_eq!(up.operations, [Operation::Add(ours(prefix, Target::Gateways([gateway].into())))]);
        let down = step(prefix, std::slice::from_ref(&hop), &two_wires(true, false));
        assert_eq!(down.state.unwrap().reason(), "next hop fe80::9 is behind eth1, which is down");
    }
}

/// Linux's own rules for a route's place in a table, written down apart from [`Kernel`]: the metric is part of the key, the protocol
/// is not.
#[derive(Default)]
struct Linux {
    table: BTreeMap<(IpNet, u32), Vec<KernelRoute>>,
}

impl Linux {
    fn carry_out(&mut self, operation: &Operation) -> Result<(), &'static str> {
        match operation {
            Operation::Add(new) => {
                let slot = self.table.entry((new.prefix, new.metric)).or_default();
                if !slot.is_empty() {
                    return Err("EEXIST");
                }
                slot.push(new.clone());
            }
            Operation::Replace { new, .. } => {
                let slot = self.table.entry((new.prefix, new.metric)).or_default();
                if slot.is_empty() {
                    slot.push(new.clone());
                } else {
                    slot[0] = new.clone();
                }
            }
            Operation::Delete(old) => {
                let slot = self.table.entry((old.prefix, old.metric)).or_default();
                let found = slot.iter().position(|r| r.protocol == old.protocol && r.target == old.target);
                slot.remove(found.ok_or("ESRCH")?);
            }
        }
        Ok(())
    }

    fn routes(&self) -> impl Iterator<Item = &KernelRoute> {
        self.table.values().flatten()
    }

    fn foreign(&self) -> Vec<KernelRoute> {
        self.routes().filter(|route| !route.is_ours()).cloned().collect()
    }

    fn look(&self) -> Kernel {
        let mut kernel = Kernel::default();
        kernel.link = self::kernel(&[]).link;
        self.routes().cloned().for_each(|route| kernel.insert(route));
        kernel
    }
}

fn prefixes() -> impl Strategy<Value = IpNet> {
    let v4 = (0_u8..3, prop_oneof![Just(8_u8), Just(16), Just(24)])
        .prop_map(|(second, len)| IpNet::new(IpAddr::from([10, second, 0, 0]), len).unwrap().trunc());
    prop_oneof![v4, Just(net("fd20::/48")), Just(net("fd21::/48")), Just(net("::/0"))]
}

fn hops() -> impl Strategy<Value = Vec<Hop>> {
    let hop =
        prop_oneof![Just(peer()), Just(via("192.0.2.1")), Just(via("192.0.2.2")), Just(via("2001:db8::1"))];
    vec(hop, 0..4)
}

fn targets() -> impl Strategy<Value = Target> {
    prop_oneof![
        Just(Target::Device(TUN)),
        Just(Target::Device(ETHERNET)),
        Just(gateways(&["192.0.2.1"])),
        Just(gateways(&["192.0.2.1", "192.0.2.2"])),
        Just(Target::Other),
    ]
}

fn kernel_routes() -> impl Strategy<Value = KernelRoute> {
    let protocol = prop_oneof![Just(PROTOCOL), Just(2_u8), Just(4), Just(12)];
    let metric = prop_oneof![Just(METRIC), Just(0_u32), Just(20), Just(5000)];
    (prefixes(), metric, protocol, targets()).prop_map(|(prefix, metric, protocol, target)| KernelRoute {
        prefix,
        metric,
        protocol,
        target,
        source: None,
    })
}

proptest! {
    /// Whatever is there at the start: afterwards ours are exactly those that are called installed, others' routes are as before,
    /// and a second look finds nothing to do.
    #[test]
    fn one_pass_reaches_what_is_wanted(
        there in vec(kernel_routes(), 0..12),
        routes in proptest::collection::btree_map(prefixes(), (hops(), any::<bool>()), 0..8),
        adopted in vec(prefixes(), 0..4),
        install in proptest::bool::weighted(0.9),
    ) {
        let mut linux = Linux::default();
        for route in there {
            // The kernel refuses an exact second copy.
            let slot = linux.table.entry((route.prefix, route.metric)).or_default();
            if !slot.contains(&route) {
                slot.push(route);
            }
        }
        let config = Config { install, ..config() };
        let underlay = [ip("10.2.0.9")];
        let foreign = linux.foreign();
        let mut kernel = linux.look();
        let board = board(routes.iter().map(|(prefix, (hops, selected))| route(*prefix, hops, *selected)));
        let memory = Memory::default();
        let rules = Rules { config: &config, board: &board, underlay: &underlay, memory: &memory };
        let known: BTreeSet<IpNet> = board.prefixes().chain(kernel.ours()).collect();

        for prefix in &known {
            let step = decide(*prefix, adopted.contains(prefix), &kernel, rules);
            for operation in step.operations {
                prop_assert_eq!(linux.carry_out(&operation), Ok(()));
                kernel.apply(operation);
            }
        }

        prop_assert_eq!(linux.foreign(), foreign);
        let again = linux.look();
        let memory = Memory::default();
        let rules = Rules { memory: &memory, ..rules };
        for prefix in &known {
            let step = decide(*prefix, adopted.contains(prefix), &again, rules);
            let ours: Vec<_> = again.at(*prefix).into_iter().filter(KernelRoute::is_ours).collect();
            match step.state {
                Some(KernelState::Installed | KernelState::Shadowed(_)) => {
                    let wanted = wanted(*prefix, board.get(*prefix).unwrap(), &again, rules).unwrap();
                    prop_assert_eq!(ours, [wanted]);
                }
                Some(KernelState::Stale) => prop_assert!(!ours.is_empty() && !board.contains(*prefix)),
                Some(KernelState::NotWanted(_) | KernelState::Failed(_)) | None => prop_assert!(ours.is_empty()),
            }
            prop_assert_eq!(step.operations, []);
        }
    }
}
