use super::*;
use crate::{
    Family,
    wire::{AsPath, Attributes, Community, LargeCommunity, Origin},
};

fn attributes() -> Attributes {
    let mut attributes = Attributes::originated("192.0.2.1".parse().unwrap());
    attributes.as_path = AsPath::new(vec![65_001, 65_005, 65_002]);
    attributes.communities = ["65001:1", "65002:7"].map(|text| text.parse().unwrap()).into();
    attributes.change_rare(|rare| rare.large_communities = vec![LargeCommunity(65_001, 1, 2)]);
    attributes
}

fn evaluate(rules: Vec<Rule>, prefix: &str) -> Outcome {
    let policy = Policy::new("test", rules).unwrap();
    let attributes = attributes();
    let prefix = prefix.parse().unwrap();
    let route = Route { prefix, attributes: &attributes, neighbor: Some("azure"), local_asn: 65_000 };
    let outcome = policy.evaluate(&route);
    assert_eq!(policy.explain(&route).outcome, outcome);
    outcome
}

fn accept(condition: Condition) -> Rule {
    Rule { condition, change: Change::default(), action: Action::Accept }
}

fn prefixes(prefix: &str, ge: Option<u8>, le: Option<u8>) -> Vec<PrefixPattern> {
    vec![PrefixPattern::with_bounds(prefix.parse().unwrap(), ge, le).unwrap()]
}

#[test]
fn each_condition_holds_and_does_not() {
    let matches = |change: &dyn Fn(&mut Condition)| {
        let mut condition = Condition::default();
        change(&mut condition);
        matches!(evaluate(vec![accept(condition)], "10.20.1.0/24"), Outcome::Accept(_))
    };
    let net = |text: &str| text.parse().unwrap();
    type Case<'a> = (&'a dyn Fn(&mut Condition), bool);
    let cases: &[Case<'_>] = &[
        (&|_| {}, true),
        (&|c| c.prefixes = prefixes("10.20.0.0/16", None, Some(24)), true),
        (&|c| c.prefixes = prefixes("10.20.0.0/16", None, Some(23)), false),
        (&|c| c.prefixes = prefixes("10.20.0.0/16", Some(25), None), false),
        (&|c| c.prefixes = prefixes("10.20.0.0/16", None, None), false),
        (&|c| c.prefixes = prefixes("10.20.1.0/24", None, None), true),
        (&|c| c.prefixes = prefixes("0.0.0.0/0", None, Some(32)), true),
        (&|c| c.prefixes = prefixes("::/0", None, Some(128)), false),
        (&|c| c.family = Some(Family::Ipv4Unicast), true),
        (&|c| c.family = Some(Family::Ipv6Unicast), false),
        (&|c| c.neighbors = vec!["aws".into(), "azure".into()], true),
        (&|c| c.neighbors = vec!["aws".into()], false),
        (&|c| c.originated = Some(false), true),
        (&|c| c.originated = Some(true), false),
        (&|c| c.next_hops = vec![net("192.0.2.0/24")], true),
        (&|c| c.next_hops = vec![net("10.0.0.0/8")], false),
        (&|c| c.origin = Some(Origin::Igp), true),
        (&|c| c.origin = Some(Origin::Incomplete), false),
        (&|c| c.as_path.contains = vec![1, 65_005], true),
        (&|c| c.as_path.contains = vec![1], false),
        (&|c| c.as_path.origin = vec![65_002], true),
        (&|c| c.as_path.origin = vec![65_001], false),
        (&|c| c.as_path.neighbor = vec![65_001], true),
        (&|c| c.as_path.neighbor = vec![65_002], false),
        (&|c| c.as_path.length = Some(2..=3), true),
        (&|c| c.as_path.length = Some(0..=0), false),
        (&|c| c.as_path.patterns = vec!["65001 * 65002".parse().unwrap()], true),
        (&|c| c.as_path.patterns = vec!["65001 65002".parse().unwrap()], false),
        (&|c| c.communities.any = vec!["65001:*".parse().unwrap()], true),
        (&|c| c.communities.all = vec!["65001:*".parse().unwrap(), "65003:*".parse().unwrap()], false),
        (&|c| c.large_communities.any = vec!["65001:*:2".parse().unwrap()], true),
        (&|c| c.large_communities.any = vec!["65001:*:3".parse().unwrap()], false),
    ];
    for (index, (change, expected)) in cases.iter().enumerate() {
        assert_eq!(matches(*change), *expected, "case {index}");
    }
}

#[test]
fn all_conditions_of_a_rule_must_hold() {
    let mut condition = Condition { family: Some(Family::Ipv4Unicast), ..Condition::default() };
    condition.as_path.origin = vec![1];
    assert_eq!(evaluate(vec![accept(condition)], "10.20.1.0/24"), Outcome::Reject { rule: None });
}

#[test]
fn the_first_rule_that_matches_decides() {
    let inside = Condition { prefixes: prefixes("10.20.0.0/16", None, Some(24)), ..Condition::default() };
    let reject = Rule { condition: inside, ..Rule::default() };
    let rules = || vec![reject.clone(), accept(Condition::default())];
    assert_eq!(evaluate(rules(), "10.20.1.0/24"), Outcome::Reject { rule: Some(0) });
    assert!(matches!(evaluate(rules(), "10.21.1.0/24"), Outcome::Accept(Accepted { rule: 1, .. })));
    assert_eq!(evaluate(Vec::new(), "10.21.1.0/24"), Outcome::Reject { rule: None });
}

fn changed(change: Change) -> Accepted {
    let rule = Rule { condition: Condition::default(), change, action: Action::Accept };
    let Outcome::Accept(accepted) = evaluate(vec![rule], "10.20.1.0/24") else { panic!("rejected") };
    accepted
}

#[test]
fn each_change_is_made() {
    let attributes_of = |change| changed(change).attributes.expect("changed");
    let med = |change| attributes_of(Change { med: Some(change), ..Change::default() }).med;
    assert_eq!(attributes_of(Change { local_pref: Some(200), ..Change::default() }).local_pref, Some(200));
    assert_eq!(med(MedChange::Set(5)), Some(5));
    assert_eq!(med(MedChange::Add(5)), Some(5));
    assert_eq!(med(MedChange::Subtract(5)), Some(0));
    assert_eq!(med(MedChange::Remove), None);
    assert_eq!(MedChange::Add(5).of(Some(u32::MAX)), Some(u32::MAX));
    let prepend = |asn| Change { prepend: Some(Prepend { asn, count: 2 }), ..Change::default() };
    assert_eq!(attributes_of(prepend(None)).as_path.to_string(), "65000 65000 65001 65005 65002");
    assert_eq!(attributes_of(prepend(Some(7))).as_path.to_string(), "7 7 65001 65005 65002");
    let community = |text: &str| text.parse::<Community>().unwrap();
    let communities = ListChange {
        remove: vec!["65001:*".parse().unwrap()],
        add: vec![community("65002:7"), community("no-export")],
    };
    let kept = attributes_of(Change { communities, ..Change::default() }).communities;
    assert_eq!(*kept, [community("65002:7"), Community::NO_EXPORT]);
    let large_communities =
        ListChange { remove: vec!["*:*:*".parse().unwrap()], add: vec![LargeCommunity(1, 2, 3)] };
    let kept = attributes_of(Change { large_communities, ..Change::default() });
    assert_eq!(kept.rare().large_communities, [LargeCommunity(1, 2, 3)]);
}

#[test]
fn unchanged_attributes_are_not_copied() {
    assert_eq!(changed(Change::default()), Accepted { rule: 0, attributes: None, next_hop: None });
    let next_hop = Some(NextHopChange::SelfAddress);
    let accepted = changed(Change { next_hop, ..Change::default() });
    assert_eq!(accepted, Accepted { rule: 0, attributes: None, next_hop });
}

#[test]
fn next_lets_the_others_see_the_change() {
    let tag = "65000:1".parse::<Community>().unwrap();
    let communities = ListChange { remove: Vec::new(), add: vec![tag] };
    let next_hop = Some(NextHopChange::Unchanged);
    let first = Rule {
        condition: Condition::default(),
        change: Change { communities, next_hop, ..Change::default() },
        action: Action::Next,
    };
    let mut second = accept(Condition::default());
    second.condition.communities.any = vec![tag.into()];
    let Outcome::Accept(accepted) = evaluate(vec![first.clone(), second], "10.20.1.0/24") else {
        panic!("rejected")
    };
    assert_eq!((accepted.rule, accepted.next_hop), (1, next_hop));
    assert!(accepted.attributes.unwrap().communities.contains(&tag));
    assert_eq!(evaluate(vec![first], "10.20.1.0/24"), Outcome::Reject { rule: None });
}

#[test]
fn a_trace_says_what_each_rule_did() {
    let other = Condition { prefixes: prefixes("10.99.0.0/16", None, None), ..Condition::default() };
    let policy = Policy::new("test", vec![accept(other), Rule::default()]).unwrap();
    let attributes = attributes();
    let prefix = "10.20.1.0/24".parse().unwrap();
    let route = Route { prefix, attributes: &attributes, neighbor: None, local_asn: 1 };
    let steps: Vec<_> = policy.explain(&route).steps.iter().map(TraceStep::to_string).collect();
    assert_eq!(steps, ["rule 1: other prefix", "rule 2 rejects"]);
}

#[test]
fn built_in_policies() {
    let attributes = attributes();
    let prefix = "10.20.1.0/24".parse().unwrap();
    let route = Route { prefix, attributes: &attributes, neighbor: None, local_asn: 1 };
    let accepted = Accepted { rule: 0, attributes: None, next_hop: None };
    assert_eq!(Policy::all().evaluate(&route), Outcome::Accept(accepted));
    assert_eq!(Policy::none().evaluate(&route), Outcome::Reject { rule: None });
}

#[test]
fn size_is_bounded() {
    assert!(Policy::new("many", vec![Rule::default(); 1000]).is_ok());
    assert_eq!(
        Policy::new("many", vec![Rule::default(); 1001]).unwrap_err().to_string(),
        "1001 rules, and at most 1000 are possible"
    );
    let long = Condition { prefixes: vec![prefixes("::/0", None, None)[0]; 20_001], ..Condition::default() };
    assert!(Policy::new("long", vec![accept(long)]).is_err());
    let prepend = Some(Prepend { asn: None, count: 33 });
    let rule = Rule { change: Change { prepend, ..Change::default() }, ..Rule::default() };
    assert!(Policy::new("far", vec![rule]).is_err());
}

#[test]
fn prefixes_of_one_class_have_one_outcome() {
    let inside = Condition { prefixes: prefixes("10.20.0.0/16", None, Some(24)), ..Condition::default() };
    let policy = Policy::new("test", vec![Rule { condition: inside, ..Rule::default() }, Rule::default()]);
    let class = |text: &str| policy.as_ref().unwrap().prefix_class(&text.parse().unwrap());
    assert_eq!(class("10.20.1.0/24"), class("10.20.2.0/24"));
    assert_ne!(class("10.20.1.0/24"), class("10.21.1.0/24"));
    assert_eq!(Policy::all().prefix_class(&"10.0.0.0/8".parse().unwrap()), Some(0));
    let v4 = Condition { family: Some(Family::Ipv4Unicast), ..Condition::default() };
    let many = |count| Policy::new("many", vec![Rule { condition: v4.clone(), ..Rule::default() }; count]);
    assert_eq!(many(64).unwrap().prefix_class(&"10.0.0.0/8".parse().unwrap()), Some(u64::MAX));
    assert_eq!(many(65).unwrap().prefix_class(&"10.0.0.0/8".parse().unwrap()), None);
}
