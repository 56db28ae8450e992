use super::*;
use crate::{
    policy::{Action, Change, Condition, MedChange, Rule},
    rib::Neighbor,
};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn attributes(path: &[u32]) -> Attributes {
    let mut attributes = Attributes::originated(address("10.99.0.9"));
    attributes.as_path = AsPath::new(path.to_vec());
    attributes
}

fn target(external: bool) -> ExportTarget {
    ExportTarget {
        peer: PeerId(50),
        address: address("10.99.0.50"),
        router_id: Ipv4Addr::new(10, 99, 0, 50),
        asn: if external { 65_050 } else { 65_001 },
        external,
        client: false,
        local_asn: 65_001,
        cluster_id: Ipv4Addr::new(10, 99, 0, 1),
        own: NextHops { v4: Some(Ipv4Addr::new(10, 99, 0, 1)), v6: None, link_local: None },
        families: Families::ALL,
        extended_next_hop: false,
        role: None,
        policy: Policy::all(),
        next_hop: NextHopMode::Standard,
        remove_private_as: false,
        shutting_down: false,
    }
}

fn source(external: bool, client: bool) -> Source {
    Source::Peer(Arc::new(Neighbor {
        id: PeerId(1),
        name: "one".into(),
        address: address("10.99.0.2"),
        router_id: Ipv4Addr::new(10, 99, 0, 2),
        asn: if external { 65_002 } else { 65_001 },
        external,
        client,
    }))
}

fn bundle(source: Source, attributes: Attributes) -> Arc<Bundle> {
    Arc::new(Bundle { source, received: Arc::new(attributes), effective: None })
}

fn external() -> Source {
    source(true, false)
}

fn sent(bundle: &Bundle, target: &ExportTarget) -> Result<Attributes, Withheld> {
    export(net("10.0.0.0/8"), bundle, target)
}

fn with_rule(change: Change, target: ExportTarget) -> ExportTarget {
    let rule = Rule { condition: Condition::default(), change, action: Action::Accept };
    ExportTarget { policy: Arc::new(Policy::new("test", vec![rule]).unwrap()), ..target }
}

#[test]
fn leak_matrix() {
    use Withheld::{InternalToInternal, NoAdvertise, NoExport};
    const OTHER: Community = Community(0x0001_0002);
    // Source, community, and what keeps it from an external peer, an internal one, and a client of ours.
    let cases = [
        (external(), OTHER, [None; 3]),
        (external(), Community::NO_EXPORT, [Some(NoExport), None, None]),
        (external(), Community::NO_EXPORT_SUBCONFED, [Some(NoExport), None, None]),
        (external(), Community::NO_ADVERTISE, [Some(NoAdvertise); 3]),
        (source(false, false), OTHER, [None, Some(InternalToInternal), None]),
        (source(false, false), Community::NO_EXPORT, [Some(NoExport), Some(InternalToInternal), None]),
        (source(false, true), Community::NO_EXPORT, [Some(NoExport), None, None]),
        (source(false, true), Community::NO_ADVERTISE, [Some(NoAdvertise); 3]),
        (Source::Local, OTHER, [None; 3]),
        (Source::Local, Community::NO_EXPORT, [Some(NoExport), None, None]),
        (Source::Local, Community::NO_ADVERTISE, [Some(NoAdvertise); 3]),
    ];
    let client = ExportTarget { client: true, ..target(false) };
    for (source, community, expected) in cases {
        let mut attributes = attributes(&[65_002]);
        attributes.communities = [community].into();
        let bundle = bundle(source, attributes);
        let found = [&target(true), &target(false), &client].map(|target| sent(&bundle, target).err());
        assert_eq!(found, expected, "{:?} {community}", bundle.source());
    }
}

#[test]
fn a_community_that_the_policy_adds_counts() {
    let mut change = Change::default();
    change.communities.add = vec![Community::NO_EXPORT];
    let learned = bundle(external(), attributes(&[65_002]));
    assert_eq!(sent(&learned, &with_rule(change.clone(), target(true))).err(), Some(Withheld::NoExport));
    let inside = sent(&learned, &with_rule(change, target(false))).unwrap();
    assert_eq!(*inside.communities, [Community::NO_EXPORT]);
    let mut strip = Change::default();
    strip.communities.remove = vec![Community::NO_ADVERTISE.into()];
    let mut secret = attributes(&[65_002]);
    secret.communities = [Community::NO_ADVERTISE].into();
    let found = sent(&bundle(external(), secret), &with_rule(strip, target(true)));
    assert_eq!(found.err(), Some(Withheld::NoAdvertise), "who said so did not mean our policy");
}

#[test]
fn other_reasons_to_withhold() {
    let learned = bundle(external(), attributes(&[65_002]));
    let why = |prefix: &str, target: ExportTarget| export(net(prefix), &learned, &target).err();
    let v4 = Families::from_iter([Family::Ipv4Unicast]);
    let cases = [
        ("10.0.0.0/8", ExportTarget { policy: Policy::none(), ..target(true) }, Withheld::Policy),
        ("10.0.0.0/8", ExportTarget { peer: PeerId(1), ..target(true) }, Withheld::LearnedFromIt),
        ("2001:db8::/32", target(true), Withheld::NoNextHop),
        ("2001:db8::/32", target(false), Withheld::NoNextHop),
        ("2001:db8::/32", ExportTarget { families: v4, ..target(true) }, Withheld::Family),
        (
            "10.0.0.0/8",
            ExportTarget { address: address("10.99.0.9"), ..target(false) },
            Withheld::NextHopIsPeer,
        ),
    ];
    for (prefix, target, expected) in cases {
        assert_eq!(why(prefix, target), Some(expected), "{prefix}");
    }
}

#[test]
fn what_an_external_peer_is_sent() {
    let mut learned = attributes(&[65_002]);
    learned.med = Some(7);
    learned.local_pref = Some(300);
    learned.change_rare(|rare| {
        rare.originator_id = Some(Ipv4Addr::new(1, 1, 1, 1));
        rare.cluster_list = vec![Ipv4Addr::new(2, 2, 2, 2)];
    });
    learned.communities = [Community(5)].into();
    let mut expected = attributes(&[65_001, 65_002]);
    expected.next_hop = address("10.99.0.1");
    expected.communities = [Community(5)].into();
    assert_eq!(sent(&bundle(source(false, false), learned), &target(true)), Ok(expected));
}

#[test]
fn what_an_internal_peer_is_sent() {
    let mut learned = attributes(&[65_002]);
    learned.med = Some(7);
    let mut expected = learned.clone();
    expected.local_pref = Some(100);
    assert_eq!(sent(&bundle(external(), learned), &target(false)), Ok(expected));
    let own = sent(&bundle(Source::Local, attributes(&[])), &target(false)).unwrap();
    assert_eq!(own.next_hop, address("10.99.0.1"));
    assert!(own.as_path.is_empty());
}

#[test]
fn reflection() {
    let client = ExportTarget { client: true, ..target(false) };
    let cases = [
        (false, &target(false), false),
        (false, &client, true),
        (true, &target(false), true),
        (true, &client, true),
    ];
    for (from_client, target, passes) in cases {
        let learned = bundle(source(false, from_client), attributes(&[65_002]));
        assert_eq!(sent(&learned, target).is_ok(), passes, "client {from_client} to {}", target.client);
    }
    let reflected = sent(&bundle(source(false, true), attributes(&[65_002])), &target(false)).unwrap();
    assert_eq!(reflected.rare().originator_id, Some(Ipv4Addr::new(10, 99, 0, 2)));
    assert_eq!(reflected.rare().cluster_list, [Ipv4Addr::new(10, 99, 0, 1)]);
    assert_eq!(reflected.next_hop, address("10.99.0.9"), "RFC 4456 section 10");
    let mut again = attributes(&[65_002]);
    again.change_rare(|rare| {
        rare.originator_id = Some(Ipv4Addr::new(7, 7, 7, 7));
        rare.cluster_list = vec![Ipv4Addr::new(8, 8, 8, 8)];
    });
    let again = bundle(source(false, true), again);
    let rare = sent(&again, &target(false)).unwrap().rare().clone();
    assert_eq!(rare.originator_id, Some(Ipv4Addr::new(7, 7, 7, 7)), "who was first stays");
    assert_eq!(rare.cluster_list, [Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::new(8, 8, 8, 8)]);
    let originator = ExportTarget { router_id: Ipv4Addr::new(7, 7, 7, 7), ..target(false) };
    assert_eq!(sent(&again, &originator).err(), Some(Withheld::LearnedFromIt));
    let plain = sent(&bundle(external(), attributes(&[65_002])), &client).unwrap();
    assert_eq!(plain.rare().originator_id, None, "from outside: that is no reflection");
}

#[test]
fn next_hops() {
    let own = address("10.99.0.1");
    let told = address("10.99.0.9");
    let mode = |next_hop, target: ExportTarget| ExportTarget { next_hop, ..target };
    let of = |source: Source, target: ExportTarget| {
        sent(&bundle(source, attributes(&[65_002])), &target).map(|sent| sent.next_hop)
    };
    let to_client = || ExportTarget { client: true, ..target(false) };
    let change = |next_hop| Change { next_hop: Some(next_hop), ..Change::default() };
    use NextHopMode::{SelfAddress, Standard, Unchanged};
    let cases = [
        (external(), mode(Standard, target(true)), own),
        (external(), mode(Standard, target(false)), told),
        (external(), mode(SelfAddress, target(false)), own),
        (external(), mode(Unchanged, target(true)), told),
        (source(false, false), mode(SelfAddress, to_client()), told),
        (source(false, false), with_rule(change(NextHopChange::SelfAddress), to_client()), own),
        (Source::Local, mode(Unchanged, target(true)), own),
        (external(), with_rule(change(NextHopChange::Unchanged), target(true)), told),
        (
            external(),
            with_rule(change(NextHopChange::Address(address("10.99.0.7"))), target(true)),
            address("10.99.0.7"),
        ),
    ];
    for (index, (source, target, expected)) in cases.into_iter().enumerate() {
        assert_eq!(of(source, target), Ok(expected), "case {index}");
    }
    let to_itself = with_rule(change(NextHopChange::PeerAddress), target(true));
    assert_eq!(of(external(), to_itself), Err(Withheld::NextHopIsPeer));
}

#[test]
fn next_hops_of_the_other_family() {
    let v6 = NextHops { v4: None, v6: Some("fd00::1".parse().unwrap()), link_local: None };
    let over_v6 = ExportTarget { own: v6, ..target(true) };
    let learned = bundle(external(), attributes(&[65_002]));
    assert_eq!(sent(&learned, &over_v6).err(), Some(Withheld::NoNextHop));
    let extended = ExportTarget { extended_next_hop: true, ..over_v6 };
    assert_eq!(sent(&learned, &extended).unwrap().next_hop, address("fd00::1"));
    let mut far = attributes(&[65_002]);
    far.next_hop = address("fd00::9");
    let far = bundle(external(), far);
    assert_eq!(sent(&far, &target(false)).err(), Some(Withheld::NoNextHop), "not agreed on with this one");
    let inside = ExportTarget { extended_next_hop: true, ..target(false) };
    assert_eq!(sent(&far, &inside).unwrap().next_hop, address("fd00::9"));
    let mut on_link = attributes(&[65_002]);
    on_link.next_hop = address("fe80::9");
    let found = sent(&bundle(external(), on_link), &inside).unwrap();
    assert_eq!(found.next_hop, address("10.99.0.1"), "that address means something on its own link only");
}

#[test]
fn metrics() {
    let mut learned = attributes(&[65_002]);
    learned.med = Some(7);
    let learned = bundle(external(), learned);
    assert_eq!(sent(&learned, &target(true)).unwrap().med, None);
    let add = || Change { med: Some(MedChange::Add(5)), ..Change::default() };
    assert_eq!(sent(&learned, &with_rule(add(), target(true))).unwrap().med, Some(5));
    assert_eq!(sent(&learned, &with_rule(add(), target(false))).unwrap().med, Some(12));
}

#[test]
fn private_numbers_stay_at_home() {
    let path = [64_512, 65_002, 70_000, 4_200_000_001, 65_050, 64_511];
    let learned = bundle(external(), attributes(&path));
    let hidden = ExportTarget { remove_private_as: true, ..target(true) };
    let found = sent(&learned, &hidden).unwrap().as_path;
    assert_eq!(found.asns(), [65_001, 70_000, 65_050, 64_511], "65050 is the peer: it sees its loop");
}

#[test]
fn only_to_customer_on_the_way_out() {
    let withheld = Err(Withheld::OnlyToCustomer);
    // Our role, the attribute that the route has, and what happens to it.
    let cases = [
        (None, None, Ok(None)),
        (None, Some(9), Ok(Some(9))),
        (Some(Role::Provider), None, Ok(Some(65_001))),
        (Some(Role::Provider), Some(9), Ok(Some(9))),
        (Some(Role::RouteServer), None, Ok(Some(65_001))),
        (Some(Role::RouteServer), Some(9), Ok(Some(9))),
        (Some(Role::Peer), None, Ok(Some(65_001))),
        (Some(Role::Peer), Some(9), withheld),
        (Some(Role::Customer), None, Ok(None)),
        (Some(Role::Customer), Some(9), withheld),
        (Some(Role::RouteServerClient), None, Ok(None)),
        (Some(Role::RouteServerClient), Some(9), withheld),
    ];
    for (role, only_to_customer, expected) in cases {
        let mut learned = attributes(&[65_002]);
        learned.change_rare(|rare| rare.only_to_customer = only_to_customer);
        let found = sent(&bundle(external(), learned), &ExportTarget { role, ..target(true) });
        assert_eq!(found.map(|sent| sent.rare().only_to_customer), expected, "{role:?} {only_to_customer:?}");
    }
}

#[test]
fn who_leaves_says_so() {
    let learned = bundle(external(), attributes(&[65_002]));
    let leaving = |external| ExportTarget { shutting_down: true, ..target(external) };
    assert_eq!(*sent(&learned, &leaving(true)).unwrap().communities, [Community::GRACEFUL_SHUTDOWN]);
    assert_eq!(sent(&learned, &leaving(false)).unwrap().local_pref, Some(0));
}

#[test]
fn the_cache_knows_what_the_result_depends_on() {
    let v4_only = Condition { family: Some(Family::Ipv4Unicast), ..Condition::default() };
    let rule = Rule { condition: v4_only, change: Change::default(), action: Action::Accept };
    let own = NextHops {
        v4: Some(Ipv4Addr::new(10, 99, 0, 1)),
        v6: Some("fd00::1".parse().unwrap()),
        link_local: None,
    };
    let policy = Arc::new(Policy::new("test", vec![rule]).unwrap());
    let target = ExportTarget { policy, own, ..target(true) };
    let learned = bundle(external(), attributes(&[65_002]));
    let mut cache = ExportCache::default();
    let mut made = 0;
    let mut ask = |prefix: &str, bundle: &Arc<Bundle>| {
        let result = cache.export(net(prefix), bundle, &target, |attributes| {
            made += 1;
            Arc::new(attributes)
        });
        result.map(|sent| sent.as_path.to_string())
    };
    for prefix in ["10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16"] {
        assert_eq!(ask(prefix, &learned), Ok("65001 65002".into()));
    }
    assert_eq!(ask("2001:db8::/32", &learned), Err(Withheld::Policy));
    assert_eq!(ask("10.0.0.0/8", &learned), Ok("65001 65002".into()));
    let other = bundle(external(), attributes(&[65_003]));
    assert_eq!(ask("10.0.0.0/8", &other), Ok("65001 65003".into()));
    assert_eq!(made, 3, "once each, and once more after the other family took its place");
}
