use super::*;
use crate::{
    policy::{Action, Change, Condition, Prepend, Rule},
    rib::Topology,
    wire::AsPath,
};

fn rules() -> ImportRules {
    let topology = Topology::new(
        [],
        [],
        [("10.99.0.2/32".parse().unwrap(), "peer".into()), ("fd00::2/128".parse().unwrap(), "peer".into())],
    );
    ImportRules {
        local_asn: 65_001,
        router_id: Ipv4Addr::new(10, 0, 0, 1),
        cluster_id: Ipv4Addr::new(10, 0, 0, 9),
        own: NextHops {
            v4: Some(Ipv4Addr::new(10, 99, 0, 1)),
            v6: Some("fd00::1".parse().unwrap()),
            link_local: None,
        },
        neighbor: Arc::new(Neighbor {
            id: crate::PeerId(1),
            name: "peer".into(),
            address: "10.99.0.2".parse().unwrap(),
            router_id: Ipv4Addr::new(10, 0, 0, 2),
            asn: 65_002,
            external: true,
            client: false,
        }),
        guards: Guards { allow_default: true, ..Guards::default() },
        role: None,
        policy: Policy::all(),
        next_hops: NextHopRule::new(topology.into(), "10.99.0.2".parse().unwrap(), true, false),
    }
}

fn received() -> Attributes {
    let mut attributes = Attributes::originated("10.99.0.2".parse().unwrap());
    attributes.as_path = AsPath::new(vec![65_002]);
    attributes
}

#[test]
fn judgements() {
    let judge = |prefix: &str, next_hop: &str, change: fn(&mut Attributes)| {
        let mut attributes = Attributes::originated(next_hop.parse().unwrap());
        attributes.as_path = AsPath::new(vec![65_002]);
        change(&mut attributes);
        rules().import(prefix.parse().unwrap(), &attributes).ineligible
    };
    let same: fn(&mut Attributes) = |_| {};
    assert_eq!(judge("10.20.0.0/16", "10.99.0.2", same), None);
    for prefix in
        ["0.0.0.0/0", "126.0.0.0/7", "169.0.0.0/8", "223.255.255.0/24", "::/0", "::/64", "::fffe:0:0/96"]
    {
        assert_eq!(judge(prefix, "10.99.0.2", same), None, "{prefix}");
    }
    assert_eq!(judge("2001:db8::/32", "fd00::2", same), None);
    assert_eq!(judge("10.20.0.0/16", "10.99.0.3", same), Some(Ineligible::OtherPeerNextHop));
    assert_eq!(judge("10.20.0.0/16", "10.99.0.1", same), Some(Ineligible::OwnNextHop));
    assert_eq!(judge("2001:db8::/32", "fd00::1", same), Some(Ineligible::OwnNextHop));
    assert_eq!(judge("2001:db8::/32", "fe80::1", same), Some(Ineligible::LinkLocalNextHop));
    assert_eq!(judge("2001:db8::/32", "::ffff:10.99.0.2", same), Some(Ineligible::MappedNextHop));
    assert_eq!(judge("10.20.0.0/16", "127.0.0.1", same), Some(Ineligible::LoopbackNextHop));
    for prefix in [
        "127.0.0.0/8",
        "127.1.2.3/32",
        "0.0.0.0/32",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "255.255.255.255/32",
        "::/128",
        "::ffff:0:0/96",
        "::ffff:10.20.0.0/112",
        "239.1.0.0/16",
        "ff00::/8",
        "fe80::/64",
        "::1/128",
        "169.254.1.0/24",
    ] {
        assert_eq!(judge(prefix, "10.99.0.2", same), Some(Ineligible::Prefix), "{prefix}");
    }
    let looped = judge("10.20.0.0/16", "10.99.0.2", |a| a.as_path = AsPath::new(vec![65_002, 65_001]));
    assert_eq!(looped, Some(Ineligible::OwnAsn));
    let reflected = judge("10.20.0.0/16", "10.99.0.2", |a| {
        a.change_rare(|r| r.originator_id = Some(Ipv4Addr::new(10, 0, 0, 1)))
    });
    assert_eq!(reflected, Some(Ineligible::Reflected));
    let none = ImportRules { policy: Policy::none(), ..rules() };
    assert_eq!(
        none.import("10.20.0.0/16".parse().unwrap(), &received()).ineligible,
        Some(Ineligible::Policy)
    );
    let strict = ImportRules { guards: Guards::default(), ..rules() };
    for default in ["0.0.0.0/0", "::/0"] {
        let imported = strict.import(default.parse().unwrap(), &received());
        assert_eq!(imported.ineligible, Some(Ineligible::Default));
    }
}

fn import(rules: &ImportRules, change: impl FnOnce(&mut Attributes)) -> Imported {
    let mut attributes = received();
    change(&mut attributes);
    rules.import("10.20.0.0/16".parse().unwrap(), &attributes)
}

fn path(asns: &[u32]) -> impl FnOnce(&mut Attributes) {
    let path = AsPath::new(asns.to_vec());
    |attributes| attributes.as_path = path
}

#[test]
fn guards_of_the_as_path() {
    assert_eq!(import(&rules(), path(&[65_003, 65_002])).ineligible, Some(Ineligible::FirstAsn));
    assert_eq!(import(&rules(), path(&[])).ineligible, Some(Ineligible::FirstAsn));
    let route_server = Guards { enforce_first_as: false, ..rules().guards };
    let lax = ImportRules { guards: route_server, ..rules() };
    assert_eq!(import(&lax, path(&[65_003, 65_002])).ineligible, None);
    let own_once = Guards { allow_own_as: 1, ..rules().guards };
    let lax = ImportRules { guards: own_once, ..rules() };
    assert_eq!(import(&lax, path(&[65_002, 65_001])).ineligible, None);
    assert_eq!(import(&lax, path(&[65_002, 65_001, 65_001])).ineligible, Some(Ineligible::OwnAsn));
}

#[test]
fn loops_of_route_reflection() {
    let in_list =
        |id: [u8; 4]| move |a: &mut Attributes| a.change_rare(|rare| rare.cluster_list = vec![id.into()]);
    assert_eq!(import(&rules(), in_list([10, 0, 0, 9])).ineligible, Some(Ineligible::Reflected));
    assert_eq!(import(&rules(), in_list([10, 0, 0, 1])).ineligible, None, "that is not our cluster");
}

#[test]
fn only_to_customer_on_the_way_in() {
    let otc = |asn: Option<u32>| move |a: &mut Attributes| a.change_rare(|rare| rare.only_to_customer = asn);
    let leaked = Some(Ineligible::Leaked);
    // Our role, the OTC attribute as it came, the verdict, and the attribute then.
    let cases = [
        (None, None, None, None),
        (None, Some(9), None, Some(9)),
        (Some(Role::Provider), None, None, None),
        (Some(Role::Provider), Some(9), leaked, Some(9)),
        (Some(Role::RouteServer), None, None, None),
        (Some(Role::RouteServer), Some(65_002), leaked, Some(65_002)),
        (Some(Role::Peer), None, None, Some(65_002)),
        (Some(Role::Peer), Some(65_002), None, Some(65_002)),
        (Some(Role::Peer), Some(9), leaked, Some(9)),
        (Some(Role::Customer), None, None, Some(65_002)),
        (Some(Role::Customer), Some(9), None, Some(9)),
        (Some(Role::RouteServerClient), None, None, Some(65_002)),
        (Some(Role::RouteServerClient), Some(9), None, Some(9)),
    ];
    for (role, came, verdict, then) in cases {
        let imported = import(&ImportRules { role, ..rules() }, otc(came));
        let found = imported.effective.map_or(came, |effective| effective.rare().only_to_customer);
        assert_eq!((imported.ineligible, found), (verdict, then), "{role:?} {came:?}");
    }
}

fn with_change(change: Change) -> ImportRules {
    let rule = Rule { condition: Condition::default(), change, action: Action::Accept };
    ImportRules { policy: Arc::new(Policy::new("test", vec![rule]).unwrap()), ..rules() }
}

#[test]
fn a_policy_changes_a_copy() {
    assert_eq!(import(&rules(), |_| {}), Imported { effective: None, ineligible: None });
    let prepend = Some(Prepend { asn: None, count: 2 });
    let effective = import(&with_change(Change { prepend, ..Change::default() }), |_| {}).effective.unwrap();
    assert_eq!(effective.as_path.to_string(), "65001 65001 65002", "our own AS is no loop here");
    let next_hop = |next_hop| {
        let imported = import(&with_change(Change { next_hop: Some(next_hop), ..Change::default() }), |a| {
            a.next_hop = "10.99.0.7".parse().unwrap();
        });
        (imported.effective.map(|effective| effective.next_hop.to_string()), imported.ineligible)
    };
    assert_eq!(next_hop(NextHopChange::PeerAddress), (Some("10.99.0.2".into()), None));
    assert_eq!(
        next_hop(NextHopChange::SelfAddress),
        (Some("10.99.0.1".into()), Some(Ineligible::OwnNextHop)),
        "packets would come back to us"
    );
    assert_eq!(next_hop(NextHopChange::Unchanged), (None, Some(Ineligible::OtherPeerNextHop)));
}

#[test]
fn a_link_about_to_go_is_the_last_choice_whatever_the_policy_likes() {
    let preferred = with_change(Change { local_pref: Some(200), ..Change::default() });
    let leaving = |a: &mut Attributes| a.communities = [Community::GRACEFUL_SHUTDOWN].into();
    assert_eq!(import(&preferred, |_| {}).effective.unwrap().local_pref, Some(200));
    assert_eq!(import(&preferred, leaving).effective.unwrap().local_pref, Some(0));
    assert_eq!(import(&rules(), leaving).effective.unwrap().local_pref, Some(0));
    let mut inside = rules();
    inside.neighbor = Arc::new(Neighbor { external: false, ..Neighbor::clone(&inside.neighbor) });
    inside.next_hops = NextHopRule::new(Topology::default().into(), inside.neighbor.address, false, false);
    assert_eq!(import(&inside, leaving).effective, None, "inside the AS the preference itself says it");
    let mut opted_out = Change::default();
    opted_out.communities.remove = vec![Community::GRACEFUL_SHUTDOWN.into()];
    assert_eq!(import(&with_change(opted_out), leaving).effective.unwrap().local_pref, None);
}
