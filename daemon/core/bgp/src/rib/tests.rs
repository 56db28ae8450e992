use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::wire::{AsPath, Origin};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn neighbor(id: u8, external: bool) -> Source {
    let id4 = Ipv4Addr::new(10, 99, 0, id);
    Source::Peer(Arc::new(Neighbor {
        id: PeerId(id.into()),
        name: format!("peer{id}").into(),
        address: id4.into(),
        router_id: id4,
        asn: if external { 65_002 } else { 65_001 },
        external,
        client: false,
    }))
}

fn empty(multipath: Multipath) -> Rib {
    Rib::new(multipath, Seed::new(7))
}

fn announce(rib: &mut Rib, prefix: IpNet, source: &Source, attributes: Attributes) -> Change {
    announce_path(rib, prefix, 0, source, attributes, None)
}

fn announce_path(
    rib: &mut Rib,
    prefix: IpNet,
    path_id: u32,
    source: &Source,
    attributes: Attributes,
    ineligible: Option<Ineligible>,
) -> Change {
    let attributes = rib.intern(attributes);
    let bundle = rib.bundle(source.clone(), attributes, None);
    rib.announce(prefix, path_id, &bundle, ineligible).unwrap()
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
        let mut rib = empty(multipath);
        for index in order {
            let (source, attributes) = paths[*index].clone();
            announce(&mut rib, net("10.0.0.0/8"), &source, attributes);
        }
        let found = rib.paths(net("10.0.0.0/8"));
        let of = |source: &Source| found.iter().find(|path| path.source() == source).unwrap().verdict();
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
            Step::LocalPref,
        ),
        ((external(2), attributes(&[1])), (external(1), attributes(&[1, 2])), Step::AsPathLength),
        (
            (external(2), attributes(&[1])),
            (external(1), changed(&[2], |a| a.origin = Origin::Egp)),
            Step::Origin,
        ),
        (
            (external(2), changed(&[1], |a| a.med = Some(5))),
            (external(1), changed(&[1], |a| a.med = Some(9))),
            Step::Med,
        ),
        ((external(2), attributes(&[1])), (external(1), changed(&[1], |a| a.med = Some(9))), Step::Med),
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
    let expected = [Verdict::Best, Verdict::Lost(Step::ClusterList), Verdict::Lost(Step::Address)];
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
    let expected = [Verdict::Lost(Step::Med), Verdict::Best, Verdict::Lost(Step::RouterId)];
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
    let mut rib = empty(Multipath::default());
    let one = PeerId(1);
    let source = neighbor(1, true);
    let put =
        |rib: &mut Rib, prefix: &str, why| announce_path(rib, net(prefix), 0, &source, attributes(&[1]), why);
    assert_eq!(put(&mut rib, "10.0.0.0/8", None), Change::Best);
    assert_eq!(put(&mut rib, "10.0.0.0/8", None), Change::None, "the same again changes nothing");
    assert_eq!(put(&mut rib, "2001:db8::/32", Some(Ineligible::Policy)), Change::Paths);
    let counts = |received, accepted| Counts { received, accepted, best: accepted, stale: [0, 0] };
    assert_eq!(rib.counts(one), counts([1, 1], [1, 0]));
    assert_eq!(rib.counts(one).filtered(), 1);
    assert_eq!(put(&mut rib, "10.0.0.0/8", Some(Ineligible::OwnAsn)), Change::Lost);
    assert_eq!(rib.counts(one), counts([1, 1], [0, 0]));
    let imported = |_: IpNet, _: &Arc<Attributes>| Imported { effective: None, ineligible: None };
    let mut changed = rib.reconsider(one, imported);
    changed.sort();
    assert_eq!(changed, [(net("10.0.0.0/8"), Change::Best), (net("2001:db8::/32"), Change::Best)]);
    assert!(rib.reconsider(one, imported).is_empty());
    assert_eq!(rib.counts(one), counts([1, 1], [1, 1]));
    assert_eq!(rib.withdraw(net("10.0.0.0/8"), Some(one), 7), Change::None, "another path");
    assert_eq!(rib.withdraw(net("10.0.0.0/8"), Some(one), 0), Change::Lost);
    assert_eq!(rib.withdraw(net("10.0.0.0/8"), Some(one), 0), Change::None);
    assert_eq!(rib.withdraw_peer(one, Families::ALL), [(net("2001:db8::/32"), Change::Lost)]);
    assert_eq!(rib.counts(one), Counts::default());
    assert!(rib.is_empty());
}

#[test]
fn changes_of_a_path_that_is_not_the_best_are_no_news() {
    let mut rib = empty(SINGLE);
    let prefix = net("10.0.0.0/8");
    let (one, two) = (neighbor(1, true), neighbor(2, true));
    assert_eq!(announce(&mut rib, prefix, &one, attributes(&[1])), Change::Best);
    assert_eq!(announce(&mut rib, prefix, &two, attributes(&[2, 3])), Change::Paths);
    assert_eq!(announce(&mut rib, prefix, &two, attributes(&[2, 4])), Change::Paths);
    assert_eq!(announce(&mut rib, prefix, &one, attributes(&[1, 5])), Change::Best, "other attributes");
    assert_eq!(rib.withdraw(prefix, Some(PeerId(2)), 0), Change::Paths);
    assert_eq!(announce(&mut rib, prefix, &two, attributes(&[2])), Change::Best);
    assert_eq!(rib.withdraw(prefix, Some(PeerId(2)), 0), Change::Best, "the other one is the best now");
}

#[test]
fn a_source_with_add_path_has_several_paths() {
    let mut rib = empty(SINGLE);
    let (prefix, source) = (net("10.0.0.0/8"), neighbor(1, true));
    for id in 1..=3 {
        let asns = vec![9; usize::try_from(id).unwrap()];
        announce_path(&mut rib, prefix, id, &source, attributes(&asns), None);
    }
    let ids = |rib: &Rib| {
        rib.paths(prefix).iter().map(|path| (path.received_id(), path.local_id())).collect::<Vec<_>>()
    };
    assert_eq!(ids(&rib), [(1, 1), (2, 2), (3, 3)]);
    assert_eq!(rib.best(prefix).unwrap().received_id(), 1);
    announce_path(&mut rib, prefix, 3, &source, attributes(&[]), None);
    assert_eq!(rib.best(prefix).unwrap().received_id(), 3);
    assert_eq!(rib.withdraw(prefix, Some(PeerId(1)), 3), Change::Best);
    assert_eq!(ids(&rib), [(1, 1), (2, 2)]);
    assert_eq!(rib.counts(PeerId(1)).received, [2, 0]);
    for id in 10..10 + 62 {
        announce_path(&mut rib, prefix, id, &source, attributes(&[1]), None);
    }
    let one_more = rib.intern(attributes(&[1]));
    let one_more = rib.bundle(source.clone(), one_more, None);
    assert_eq!(rib.announce(prefix, 99, &one_more, None), Err(TooManyPaths));
    assert_eq!(rib.counts(PeerId(1)).received, [64, 0]);
    assert!(rib.announce(prefix, 10, &one_more, None).is_ok(), "a known one may change");
}

#[test]
fn stale_paths_come_last_and_go_at_the_end() {
    let mut rib = empty(SINGLE);
    let (a, b) = (net("10.0.0.0/8"), net("2001:db8::/32"));
    let (one, two) = (neighbor(1, true), neighbor(2, true));
    announce(&mut rib, a, &one, attributes(&[1]));
    announce(&mut rib, b, &one, attributes(&[1]));
    announce(&mut rib, a, &two, attributes(&[2, 3, 4]));
    let mut changed = rib.mark_stale(PeerId(1), Families::ALL);
    changed.sort();
    assert_eq!(changed, [(a, Change::Best), (b, Change::Paths)], "no other path, no news");
    assert!(rib.mark_stale(PeerId(1), Families::ALL).is_empty());
    assert_eq!(
        rib.counts(PeerId(1)),
        Counts { received: [1, 1], accepted: [1, 1], best: [0, 1], stale: [1, 1] }
    );
    let verdict = |rib: &Rib| rib.paths(a).iter().map(Path::verdict).collect::<Vec<_>>();
    assert_eq!(verdict(&rib), [Verdict::Lost(Step::Stale), Verdict::Best]);
    // Its session is back: announced again, it is as good as before.
    let restarted = neighbor(1, true);
    assert_eq!(announce(&mut rib, a, &restarted, attributes(&[1])), Change::Best);
    assert_eq!(rib.sweep_stale(PeerId(1), Families::ALL), [(b, Change::Lost)]);
    assert_eq!(
        rib.counts(PeerId(1)),
        Counts { received: [1, 0], accepted: [1, 0], best: [1, 0], stale: [0, 0] }
    );
}

#[test]
fn only_the_families_asked_for_are_marked() {
    let mut rib = empty(SINGLE);
    let source = neighbor(1, true);
    for prefix in ["10.0.0.0/8", "2001:db8::/32"] {
        announce(&mut rib, net(prefix), &source, attributes(&[1]));
    }
    let v6 = Families::from_iter([Family::Ipv6Unicast]);
    assert_eq!(rib.mark_stale(PeerId(1), v6), [(net("2001:db8::/32"), Change::Paths)]);
    assert!(rib.sweep_stale(PeerId(1), Families::from_iter([Family::Ipv4Unicast])).is_empty());
    assert_eq!(rib.sweep_stale(PeerId(1), v6), [(net("2001:db8::/32"), Change::Lost)]);
    assert_eq!(rib.len(), 1);
}

#[test]
fn a_stale_path_does_not_outlive_its_next_hop() {
    let mut rib = empty(SINGLE);
    let (kept, gone) = (net("10.0.0.0/8"), net("10.1.0.0/16"));
    for prefix in [kept, gone] {
        announce(&mut rib, prefix, &neighbor(1, true), attributes(&[1]));
    }
    rib.mark_stale(PeerId(1), Families::ALL);
    let unusable = |prefix: IpNet, _: &Arc<Attributes>| {
        let ineligible = (prefix == gone).then_some(Ineligible::LostTunnel);
        Imported { effective: None, ineligible }
    };
    assert_eq!(rib.reconsider(PeerId(1), unusable), [(gone, Change::Lost)]);
    assert!(rib.paths(gone).is_empty(), "and a next hop that comes back does not revive it");
    assert_eq!(rib.paths(kept).len(), 1);
    // An import policy that refuses it only hides it, as it does with any path.
    let refused =
        |_: IpNet, _: &Arc<Attributes>| Imported { effective: None, ineligible: Some(Ineligible::Policy) };
    assert_eq!(rib.reconsider(PeerId(1), refused), [(kept, Change::Lost)]);
    assert_eq!(rib.paths(kept).len(), 1);
}

#[test]
fn a_refresh_sweeps_what_was_not_announced_again() {
    let mut rib = empty(SINGLE);
    let [again, gone, other] = ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"].map(net);
    let source = neighbor(1, true);
    for prefix in [again, gone, other] {
        announce(&mut rib, prefix, &source, attributes(&[1]));
    }
    rib.begin_refresh(PeerId(1), Family::Ipv4Unicast);
    assert_eq!(announce(&mut rib, again, &source, attributes(&[1])), Change::None);
    assert_eq!(rib.end_refresh(PeerId(1), Family::Ipv4Unicast), [(gone, Change::Lost)]);
    assert!(rib.end_refresh(PeerId(1), Family::Ipv4Unicast).is_empty());
    assert_eq!(rib.len(), 2);
}

#[test]
fn a_refresh_leaves_stale_paths_to_end_of_rib() {
    let mut rib = empty(SINGLE);
    let (stale, fresh) = (net("10.0.0.0/8"), net("10.1.0.0/16"));
    announce(&mut rib, stale, &neighbor(1, true), attributes(&[1]));
    rib.mark_stale(PeerId(1), Families::ALL);
    let source = neighbor(1, true);
    announce(&mut rib, fresh, &source, attributes(&[1]));
    rib.begin_refresh(PeerId(1), Family::Ipv4Unicast);
    assert_eq!(rib.end_refresh(PeerId(1), Family::Ipv4Unicast), [(fresh, Change::Lost)]);
    assert_eq!(rib.paths(stale).len(), 1);
    assert_eq!(rib.sweep_stale(PeerId(1), Families::ALL), [(stale, Change::Lost)]);
}

#[test]
fn the_values_that_decided_can_be_asked_for() {
    let mut rib = empty(SINGLE);
    let prefix = net("10.0.0.0/8");
    announce(&mut rib, prefix, &neighbor(1, true), changed(&[1], |a| a.local_pref = Some(50)));
    announce(&mut rib, prefix, &neighbor(2, true), attributes(&[1, 2]));
    announce(&mut rib, prefix, &neighbor(3, true), attributes(&[3]));
    announce(&mut rib, prefix, &neighbor(4, true), attributes(&[3]));
    announce_path(&mut rib, prefix, 0, &neighbor(5, true), attributes(&[3]), Some(Ineligible::Policy));
    let found = rib.comparisons(prefix);
    let shown: Vec<_> = found.iter().map(|lost| lost.as_ref().map(Comparison::to_string)).collect();
    assert_eq!(
        shown,
        [
            Some("lower LOCAL_PREF: 50 against 100".into()),
            Some("longer AS_PATH: 2 against 1".into()),
            None,
            Some("higher BGP identifier: 10.99.0.4 against 10.99.0.3".into()),
            None,
        ]
    );
}

#[test]
fn memory_comes_back_after_a_burst() {
    let mut rib = empty(SINGLE);
    let source = neighbor(1, true);
    for n in 0..10_000u32 {
        let prefix = IpNet::new(Ipv4Addr::from(0x0a00_0000 | n << 8).into(), 24).unwrap();
        announce(&mut rib, prefix, &source, changed_med(n / 10));
    }
    let kept = rib.intern(changed_med(3));
    drop(source);
    rib.withdraw_peer(PeerId(1), Families::ALL);
    rib.tidy();
    assert_eq!(Arc::strong_count(&kept), 2, "the table and its bundles hold it no more");
}

fn changed_med(med: u32) -> Attributes {
    let mut attributes = attributes(&[1]);
    attributes.med = Some(med);
    attributes
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
        let mut rib = empty(Multipath::default());
        let sources: BTreeMap<Option<u8>, Source> = (1..5u8)
            .map(|id| (Some(id), neighbor(id, id % 2 == 0)))
            .chain([(None, Source::Local)])
            .collect();
        let mut model: BTreeMap<(IpNet, Option<u8>), (bool, Attributes)> = BTreeMap::new();
        for (prefix, id, attributes) in steps {
            let prefix = prefixes[usize::from(prefix)];
            let external = id.is_some_and(|id| id % 2 == 0);
            let source = sources[&id].clone();
            match attributes {
                Some(attributes) => {
                    let known = model.insert((prefix, id), (external, attributes.clone()));
                    let is_new = known.map(|(_, a)| a) != Some(attributes.clone());
                    let change = announce(&mut rib, prefix, &source, attributes);
                    prop_assert_eq!(change != Change::None, is_new);
                }
                None => {
                    let known = model.remove(&(prefix, id)).is_some();
                    let change = rib.withdraw(prefix, id.map(|id| PeerId(id.into())), 0);
                    prop_assert_eq!(change != Change::None, known);
                }
            }
            for prefix in prefixes {
                let of_prefix = model.iter().filter(|((p, _), _)| *p == prefix);
                let of_prefix = of_prefix.map(|((_, id), path)| (*id, path.clone())).collect();
                let best = rib.best(prefix).map(|path| path.source().peer());
                let expected = naive_best(&of_prefix).map(|id| id.map(|id| PeerId(id.into())));
                prop_assert_eq!(best, expected);
            }
            for id in 1..5u8 {
                let received = model.keys().filter(|(_, other)| *other == Some(id)).count();
                let counts = rib.counts(PeerId(id.into()));
                prop_assert_eq!(usize::try_from(counts.total()).unwrap(), received);
                prop_assert_eq!(counts.accepted, counts.received);
            }
        }
    }
}
