use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    Families, Policy,
    wire::{AsPath, Community, Origin},
};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn neighbor(id: u8, external: bool) -> Source {
    let id4 = Ipv4Addr::new(10, 99, 0, id);
    Source::Peer(Arc::new(Neighbor { id: PeerId(id.into()), address: id4.into(), router_id: id4, external }))
}

fn attributes(path: &[u32]) -> Attributes {
    let mut attributes = Attributes::originated("10.99.0.9".parse().unwrap());
    attributes.as_path = AsPath::new(path.to_vec());
    attributes
}

fn changed(path: &[u32], change: fn(&mut Attributes)) -> Attributes {
    let mut attributes = attributes(path);
    change(&mut attributes);
    attributes
}

/// Verdicts for these paths, whatever order they came in.
fn decided(paths: &[(Source, Attributes)], multipath: Multipath) -> Vec<Verdict> {
    let verdicts = |order: &[usize]| {
        let mut rib = Rib::new(multipath);
        for index in order {
            let (source, attributes) = paths[*index].clone();
            rib.announce(net("10.0.0.0/8"), source, Arc::new(attributes), None);
        }
        let found = rib.paths(&net("10.0.0.0/8"));
        let of = |source: &Source| found.iter().find(|path| path.source == *source).unwrap().verdict;
        paths.iter().map(|(source, _)| of(source)).collect::<Vec<_>>()
    };
    let mut order: Vec<usize> = (0..paths.len()).collect();
    let first = verdicts(&order);
    for _ in 0..paths.len() {
        order.rotate_left(1);
        assert_eq!(verdicts(&order), first, "the order of arrival must not matter");
    }
    order.reverse();
    assert_eq!(verdicts(&order), first, "the order of arrival must not matter");
    first
}

const SINGLE: Multipath = Multipath { maximum: 1, relax_as_path: true };

#[test]
fn each_step_decides_and_is_named() {
    use Verdict::{Best, Lost};
    let external = |id| neighbor(id, true);
    type Offer = (Source, Attributes);
    let cases: Vec<(Offer, Offer, Step)> = vec![
        (
            (Source::Local, attributes(&[])),
            (external(1), changed(&[1], |a| a.local_pref = Some(900))),
            Step::Local,
        ),
        (
            (neighbor(2, false), changed(&[1, 2, 3], |a| a.local_pref = Some(200))),
            (neighbor(1, false), attributes(&[1])),
            Step::LocalPref(100, 200),
        ),
        ((external(2), attributes(&[1])), (external(1), attributes(&[1, 2])), Step::AsPathLength(2, 1)),
        (
            (external(2), attributes(&[1])),
            (external(1), changed(&[2], |a| a.origin = Origin::Egp)),
            Step::Origin,
        ),
        (
            (external(2), changed(&[1], |a| a.med = Some(5))),
            (external(1), changed(&[1], |a| a.med = Some(9))),
            Step::Med(9, 5),
        ),
        ((external(2), attributes(&[1])), (external(1), changed(&[1], |a| a.med = Some(9))), Step::Med(9, 0)),
        ((external(2), attributes(&[1])), (neighbor(1, false), attributes(&[2])), Step::External),
        ((external(1), attributes(&[1])), (external(2), attributes(&[2])), Step::RouterId),
        (
            (
                neighbor(2, false),
                changed(&[1], |a| a.change_rare(|r| r.originator_id = Some(Ipv4Addr::new(1, 1, 1, 1)))),
            ),
            (neighbor(1, false), attributes(&[1])),
            Step::RouterId,
        ),
    ];
    for (winner, loser, step) in cases {
        assert_eq!(decided(&[winner, loser], SINGLE), [Best, Lost(step)]);
    }
}

#[test]
fn the_last_steps_are_total() {
    let originated = |clusters: u8| {
        let mut attributes = attributes(&[1]);
        attributes.change_rare(|rare| {
            rare.originator_id = Some(Ipv4Addr::new(1, 1, 1, 1));
            rare.cluster_list = vec![Ipv4Addr::new(2, 2, 2, 2); clusters.into()];
        });
        attributes
    };
    let paths = [
        (neighbor(3, false), originated(1)),
        (neighbor(2, false), originated(2)),
        (neighbor(4, false), originated(1)),
    ];
    let expected = [Verdict::Best, Verdict::Lost(Step::ClusterList(2, 1)), Verdict::Lost(Step::Address)];
    assert_eq!(decided(&paths, SINGLE), expected);
}

#[test]
fn med_compares_within_one_neighboring_as_only() {
    // The classic trap: compared in pairs, the three have no best.
    let paths = [
        (neighbor(1, true), changed(&[100], |a| a.med = Some(10))),
        (neighbor(2, true), changed(&[200], |a| a.med = Some(1))),
        (neighbor(3, true), changed(&[100], |a| a.med = Some(5))),
    ];
    let expected = [Verdict::Lost(Step::Med(10, 5)), Verdict::Best, Verdict::Lost(Step::RouterId)];
    assert_eq!(decided(&paths, SINGLE), expected);
}

#[test]
fn multipath_takes_what_is_equal_for_forwarding() {
    let paths = [
        (neighbor(1, true), attributes(&[100])),
        (neighbor(2, true), attributes(&[100])),
        (neighbor(3, true), attributes(&[200])),
        (neighbor(4, true), attributes(&[100, 300])),
    ];
    let verdicts = |maximum, relax_as_path| {
        decided(&paths, Multipath { maximum, relax_as_path })
            .into_iter()
            .map(Verdict::selected)
            .collect::<Vec<_>>()
    };
    assert_eq!(verdicts(16, true), [true, true, true, false]);
    assert_eq!(verdicts(16, false), [true, true, false, false]);
    assert_eq!(verdicts(1, true), [true, false, false, false]);
}

#[test]
fn counts_follow_the_table() {
    let mut rib = Rib::default();
    let one = PeerId(1);
    let put = |rib: &mut Rib, prefix: &str, why| {
        rib.announce(net(prefix), neighbor(1, true), Arc::new(attributes(&[1])), why)
    };
    assert!(put(&mut rib, "10.0.0.0/8", None));
    assert!(!put(&mut rib, "10.0.0.0/8", None), "the same again changes nothing");
    assert!(put(&mut rib, "2001:db8::/32", Some(Ineligible::Policy)));
    assert_eq!(rib.counts(one), Counts { received: [1, 1], accepted: 1 });
    assert!(put(&mut rib, "10.0.0.0/8", Some(Ineligible::OwnAsn)));
    assert_eq!(rib.counts(one), Counts { received: [1, 1], accepted: 0 });
    assert_eq!(rib.reconsider(one, |_, _| None), [net("10.0.0.0/8"), net("2001:db8::/32")]);
    assert_eq!(rib.counts(one), Counts { received: [1, 1], accepted: 2 });
    assert!(rib.withdraw(net("10.0.0.0/8"), Some(one)));
    assert!(!rib.withdraw(net("10.0.0.0/8"), Some(one)));
    assert_eq!(rib.withdraw_peer(one), [net("2001:db8::/32")]);
    assert_eq!(rib.counts(one), Counts::default());
    assert_eq!(rib.prefixes().count(), 0);
}

fn target(external: bool) -> ExportTarget {
    ExportTarget {
        peer: PeerId(50),
        address: "10.99.0.50".parse().unwrap(),
        external,
        local_asn: 65_001,
        own: NextHops { v4: Some(Ipv4Addr::new(10, 99, 0, 1)), v6: None },
        families: Families::ALL,
        policy: Policy::all(),
    }
}

fn path(source: Source, attributes: Attributes) -> Path {
    Path { source, attributes: Arc::new(attributes), verdict: Verdict::Best }
}

#[test]
fn leak_matrix() {
    use Withheld::{InternalToInternal, NoAdvertise, NoExport};
    let with = |community: Option<Community>| {
        let mut attributes = attributes(&[65_002]);
        attributes.communities = community.into_iter().collect();
        attributes
    };
    let (external, internal) = (neighbor(1, true), neighbor(1, false));
    let cases = [
        (&external, None, None, None),
        (&internal, None, None, Some(InternalToInternal)),
        (&Source::Local, None, None, None),
        (&external, Some(Community(0x0001_0002)), None, None),
        (&external, Some(Community::NO_EXPORT), Some(NoExport), None),
        (&external, Some(Community::NO_EXPORT_SUBCONFED), Some(NoExport), None),
        (&external, Some(Community::NO_ADVERTISE), Some(NoAdvertise), Some(NoAdvertise)),
        (&internal, Some(Community::NO_EXPORT), Some(NoExport), Some(InternalToInternal)),
        (&Source::Local, Some(Community::NO_EXPORT), Some(NoExport), None),
        (&Source::Local, Some(Community::NO_ADVERTISE), Some(NoAdvertise), Some(NoAdvertise)),
    ];
    for (source, community, to_external, to_internal) in cases {
        let path = path(source.clone(), with(community));
        let sent = |external| export(&net("10.0.0.0/8"), &path, &target(external)).err();
        assert_eq!(sent(true), to_external, "{source:?} {community:?} to eBGP");
        assert_eq!(sent(false), to_internal, "{source:?} {community:?} to iBGP");
    }
}

#[test]
fn other_reasons_to_withhold() {
    let learned = path(neighbor(1, true), attributes(&[65_002]));
    let sent = |prefix: &str, target: ExportTarget| export(&net(prefix), &learned, &target).err();
    assert_eq!(
        sent("10.0.0.0/8", ExportTarget { policy: Policy::none(), ..target(true) }),
        Some(Withheld::Policy)
    );
    assert_eq!(
        sent("10.0.0.0/8", ExportTarget { peer: PeerId(1), ..target(true) }),
        Some(Withheld::LearnedFromIt)
    );
    assert_eq!(sent("2001:db8::/32", target(true)), Some(Withheld::NoNextHop));
    let v4 = Families::from_iter([Family::Ipv4Unicast]);
    assert_eq!(sent("2001:db8::/32", ExportTarget { families: v4, ..target(true) }), Some(Withheld::Family));
    let itself = ExportTarget { address: "10.99.0.9".parse().unwrap(), ..target(false) };
    assert_eq!(sent("10.0.0.0/8", itself), Some(Withheld::NextHopIsPeer));
}

#[test]
fn what_an_external_peer_is_sent() {
    let learned = changed(&[65_002], |a| {
        a.med = Some(7);
        a.local_pref = Some(300);
        a.change_rare(|rare| {
            rare.originator_id = Some(Ipv4Addr::new(1, 1, 1, 1));
            rare.cluster_list = vec![Ipv4Addr::new(2, 2, 2, 2)];
        });
        a.communities = [Community(5)].into();
    });
    let sent = export(&net("10.0.0.0/8"), &path(neighbor(1, false), learned.clone()), &target(true)).unwrap();
    let mut expected = attributes(&[65_001, 65_002]);
    expected.next_hop = "10.99.0.1".parse().unwrap();
    expected.communities = [Community(5)].into();
    assert_eq!(sent, expected);
}

#[test]
fn what_an_internal_peer_is_sent() {
    let learned = changed(&[65_002], |a| a.med = Some(7));
    let sent = export(&net("10.0.0.0/8"), &path(neighbor(1, true), learned.clone()), &target(false)).unwrap();
    let mut expected = learned;
    expected.local_pref = Some(100);
    assert_eq!(sent, expected);
    let own = export(&net("10.0.0.0/8"), &path(Source::Local, attributes(&[])), &target(false)).unwrap();
    assert_eq!(own.next_hop, "10.99.0.1".parse::<IpAddr>().unwrap());
    assert!(own.as_path.is_empty());
}

/// The decision, written as the RFC tells it, over a plain list.
fn naive_best(paths: &BTreeMap<Option<u8>, (bool, Attributes)>) -> Option<Option<u8>> {
    let key = |id: &Option<u8>| {
        let (external, a) = &paths[id];
        let preference = u32::MAX - a.local_pref.unwrap_or(100);
        (id.is_some(), preference, a.as_path.len(), a.origin, a.med.unwrap_or(0), !*external, id.unwrap_or(0))
    };
    let survives = |id: &&Option<u8>| {
        let own = key(id);
        let before_med = |k: &(bool, u32, usize, Origin, u32, bool, u8)| (k.0, k.1, k.2, k.3);
        !paths.keys().any(|other| {
            let theirs = key(other);
            before_med(&theirs) < before_med(&own)
                || (before_med(&theirs) == before_med(&own)
                    && paths[other].1.as_path.first() == paths[*id].1.as_path.first()
                    && theirs.4 < own.4)
        })
    };
    let rest = |id: &&Option<u8>| {
        let key = key(id);
        (key.5, key.6)
    };
    paths.keys().filter(survives).min_by_key(rest).copied()
}

fn random_attributes() -> impl Strategy<Value = Attributes> {
    let small = prop::option::of(0u32..3);
    (small.clone(), small, prop::collection::vec(1u32..3, 1..3), 0usize..3).prop_map(
        |(med, preference, path, origin)| {
            let mut attributes = attributes(&path);
            attributes.med = med;
            attributes.local_pref = preference;
            attributes.origin = [Origin::Igp, Origin::Egp, Origin::Incomplete][origin];
            attributes
        },
    )
}

proptest! {
    #[test]
    fn agrees_with_a_naive_model(steps in prop::collection::vec(
        (0u8..3, prop::option::of(1u8..5), prop::option::of(random_attributes())), 1..60)
    ) {
        let prefixes = [net("10.0.0.0/8"), net("10.0.0.0/16"), net("2001:db8::/32")];
        let mut rib = Rib::new(Multipath::default());
        let mut model: BTreeMap<(IpNet, Option<u8>), (bool, Attributes)> = BTreeMap::new();
        for (prefix, id, attributes) in steps {
            let prefix = prefixes[usize::from(prefix)];
            let external = id.is_some_and(|id| id % 2 == 0);
            let source = id.map_or(Source::Local, |id| neighbor(id, external));
            match attributes {
                Some(attributes) => {
                    let shared = rib.intern(attributes.clone());
                    let known = model.insert((prefix, id), (external, attributes.clone()));
                    prop_assert_eq!(
                        rib.announce(prefix, source, shared, None),
                        known.map(|(_, a)| a) != Some(attributes)
                    );
                }
                None => {
                    let known = model.remove(&(prefix, id)).is_some();
                    prop_assert_eq!(rib.withdraw(prefix, id.map(|id| PeerId(id.into()))), known);
                }
            }
            for prefix in prefixes {
                let of_prefix = model.iter().filter(|((p, _), _)| *p == prefix);
                let of_prefix = of_prefix.map(|((_, id), path)| (*id, path.clone())).collect();
                let best = rib.best(&prefix).map(|path| path.source.peer());
                let expected = naive_best(&of_prefix).map(|id| id.map(|id| PeerId(id.into())));
                prop_assert_eq!(best, expected);
            }
            for id in 1..5u8 {
                let received = model.keys().filter(|(_, other)| *other == Some(id)).count();
                let counts = rib.counts(PeerId(id.into()));
                prop_assert_eq!(usize::try_from(counts.received.iter().sum::<u32>()).unwrap(), received);
                prop_assert_eq!(usize::try_from(counts.accepted).unwrap(), received);
            }
        }
    }
}
