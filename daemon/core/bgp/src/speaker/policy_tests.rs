//! Policies, reflection, refresh and add-path through whole speakers.

use super::{net::*, *};
use crate::{
    Families, Family, Policy,
    policy::{Action, Change, Condition, PrefixPattern, Rule},
    rib::Step,
    wire::Community,
};

fn policy(rules: Vec<Rule>) -> Arc<Policy> {
    Arc::new(Policy::new("test", rules).unwrap())
}

fn rule(prefix: Option<&str>, change: Change, action: Action) -> Rule {
    let exact = |text: &str| PrefixPattern::exact(text.parse().unwrap());
    let condition = Condition { prefixes: prefix.map(exact).into_iter().collect(), ..Condition::default() };
    Rule { condition, change, action }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn reconfigure(net: &mut Net, n: usize, change: impl FnOnce(&mut Config)) -> Vec<String> {
    let mut changed = net.nodes[n].speaker.config().clone();
    change(&mut changed);
    let now = net.now;
    net.nodes[n].events.clear();
    let said = net.nodes[n].speaker.apply(changed, now);
    net.run(std::time::Duration::ZERO);
    let noticed = |event: &Event| matches!(event, Event::StateChanged { .. });
    assert!(!net.nodes[n].events.iter().any(noticed), "no session noticed");
    said
}

#[test]
fn an_import_policy_takes_effect_without_a_word_from_the_peer() {
    let mut net = pair();
    net.seconds(5);
    let prefer = Change { local_pref: Some(200), ..Change::default() };
    let rules = vec![rule(Some(TWO), prefer, Action::Accept), Rule::default()];
    let said = reconfigure(&mut net, 0, |config| config.peers[0].import = policy(rules));
    assert_eq!(said, ["neighbor node1: import policy changed"]);
    let report = &net.nodes[0].speaker.explain(TWO.parse().unwrap())[0];
    assert_eq!(report.path.attributes().local_pref, Some(200));
    assert_eq!(report.path.bundle().received().local_pref, None, "what came stays as it came");
    let shown = |table| {
        let question = Question { table, prefix: None, longer: false, peer: None };
        let entries = net.nodes[0].speaker.table_entries(&question, &[self::net(TWO)]);
        entries[0].paths[0].attributes.local_pref
    };
    assert_eq!((shown(Table::In), shown(Table::Best)), (None, Some(200)));
    let (name, trace) = report.import.as_ref().unwrap();
    assert_eq!((&**name, trace.steps[0].to_string()), ("test", "rule 1 accepts".into()));
    assert!(net.through(0, SIX).is_empty());
    let status = net.status(0, 1);
    assert_eq!((status.prefixes_accepted, status.prefixes_filtered, status.prefixes_best), (1, 1, 1));
    reconfigure(&mut net, 0, |config| config.peers[0].import = Policy::all());
    assert_eq!(net.through(0, SIX), ["node1"]);
}

#[test]
fn an_export_policy_takes_effect_and_withdraws_what_it_refuses() {
    let mut net = pair();
    net.seconds(5);
    let mut tag = Change::default();
    tag.communities.add = vec!["65001:7".parse().unwrap()];
    let tagged = policy(vec![rule(None, tag, Action::Accept)]);
    reconfigure(&mut net, 0, |config| config.peers[0].export = tagged);
    let communities =
        |net: &Net| net.nodes[1].speaker.paths(&ONE.parse().unwrap())[0].attributes().communities.clone();
    assert_eq!(*communities(&net), ["65001:7".parse::<Community>().unwrap()]);
    let report = net.nodes[0].speaker.explain_export("node1", ONE.parse().unwrap()).unwrap();
    assert_eq!(report.told[0].1, report.best.unwrap().unwrap().into());
    reconfigure(&mut net, 0, |config| config.peers[0].export = Policy::none());
    assert!(net.through(1, ONE).is_empty());
    assert_eq!(net.status(0, 1).prefixes_sent, 0);
}

#[test]
fn a_soft_reset_changes_nothing_that_is_right() {
    let mut net = pair();
    net.seconds(5);
    net.nodes.iter_mut().for_each(|node| (node.events.clear(), node.changed.clear()).0);
    let sent = net.status(0, 1).messages_sent;
    assert!(net.nodes[0].speaker.soft_reset("node1"));
    assert!(!net.nodes[0].speaker.soft_reset("nobody"));
    net.run(std::time::Duration::ZERO);
    assert_eq!(net.status(0, 1).messages_sent, sent);
    assert!(net.nodes.iter().all(|node| node.events.is_empty() && node.changed.is_empty()));
}

/// One AS: 0 and 2 don't know each other, 1 reflects.
fn reflected() -> Net {
    let client = |other| PeerConfig { route_reflector_client: true, ..peer(other, 65_001) };
    Net::new(vec![
        config(0, 65_001, &[ONE], vec![peer(1, 65_001)]),
        config(1, 65_001, &[], vec![client(0), peer(2, 65_001)]),
        config(2, 65_001, &["10.3.0.0/16"], vec![peer(1, 65_001)]),
    ])
}

#[test]
fn a_reflector_joins_its_clients_with_the_others() {
    let mut net = reflected();
    net.seconds(5);
    assert_eq!(net.through(2, ONE), ["node1"]);
    assert_eq!(net.through(0, "10.3.0.0/16"), ["node1"]);
    let paths = net.nodes[2].speaker.paths(&ONE.parse().unwrap());
    let attributes = paths[0].attributes();
    assert_eq!(attributes.next_hop, IpAddr::from(v4(0)), "packets need not pass the reflector");
    assert_eq!(
        (attributes.rare().originator_id, &*attributes.rare().cluster_list),
        (Some(v4(0)), &[v4(1)][..])
    );
    assert_eq!(net.nodes[0].speaker.paths(&ONE.parse().unwrap()).len(), 1, "not back to who it came from");
    assert_eq!(
        reconfigure(&mut net, 1, |config| config.cluster_id = Some([9, 9, 9, 9].into())),
        ["cluster ID changed"]
    );
    let paths = net.nodes[2].speaker.paths(&ONE.parse().unwrap());
    assert_eq!(paths[0].attributes().rare().cluster_list, [std::net::Ipv4Addr::from([9, 9, 9, 9])]);
}

#[test]
fn a_node_that_leaves_is_the_last_choice() {
    // 2 hears of 10.50/16 from 0 and from 1.
    let mut net = mesh(&[65_001, 65_002, 65_003]);
    for n in 0..2 {
        let now = net.now;
        let mut changed = net.nodes[n].speaker.config().clone();
        changed.announce.push("10.50.0.0/16".parse().unwrap());
        net.nodes[n].speaker.apply(changed, now);
    }
    net.seconds(5);
    assert_eq!(net.through(2, "10.50.0.0/16"), ["node0", "node1"]);
    let until = net.now + std::time::Duration::from_secs(10);
    net.nodes[0].speaker.drain(until);
    net.run(std::time::Duration::ZERO);
    assert_eq!(net.through(2, "10.50.0.0/16"), ["node1"]);
    assert!(!net.through(2, ONE).is_empty(), "what only it has stays reachable");
    let reports = net.nodes[2].speaker.explain("10.50.0.0/16".parse().unwrap());
    let lost = reports.iter().find_map(|report| report.comparison.as_ref()).unwrap();
    assert_eq!((lost.step, lost.to_string()), (Step::LocalPref, "lower LOCAL_PREF: 0 against 100".into()));
    let now = net.now;
    net.nodes[0].speaker.resume(now);
    net.run(std::time::Duration::ZERO);
    assert_eq!(net.through(2, "10.50.0.0/16"), ["node0", "node1"]);
}

#[test]
fn a_drained_node_has_no_sessions_until_it_is_taken_back() {
    let mut net = mesh(&[65_001, 65_002]);
    net.seconds(5);
    let until = net.now + std::time::Duration::from_secs(1);
    net.nodes[0].speaker.drain(until);
    net.seconds(60);
    assert!(net.nodes[0].events.contains(&Event::Drained));
    assert_eq!((net.status(0, 1).reason.as_str(), net.through(1, ONE).len()), ("drained", 0));
    // Neither the peer's dialing nor a reload brings it back.
    reconfigure(&mut net, 0, |config| config.peers[0].hold_time = 6);
    net.seconds(60);
    assert_eq!((net.status(0, 1).state, net.status(0, 1).established_count), (State::Idle, 1));
    let now = net.now;
    net.nodes[0].speaker.resume(now);
    net.seconds(60);
    assert_eq!(net.through(1, ONE), ["node0"]);
}

#[test]
fn no_more_prefixes_than_a_peer_bears() {
    let mut net = pair();
    let now = net.now;
    let mut limited = net.nodes[0].speaker.config().clone();
    limited.announce =
        ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"].map(|prefix| prefix.parse().unwrap()).into();
    limited.peers[0].max_prefixes_out = Some(2);
    net.nodes[0].speaker.apply(limited.clone(), now);
    net.seconds(5);
    assert_eq!(net.status(0, 1).prefixes_sent, 2);
    let alarms = |net: &Net| {
        let is_alarm = |event: &&Event| {
            matches!(event, Event::ExportLimit { limit: 2, family: Family::Ipv4Unicast, .. })
        };
        net.nodes[0].events.iter().filter(is_alarm).count()
    };
    assert_eq!(alarms(&net), 1);
    let page = net.nodes[0].speaker.page_out("node1", None, 10);
    let gone = page[0].0;
    reconfigure(&mut net, 0, |config| config.announce.retain(|prefix| *prefix != gone));
    assert_eq!(net.status(0, 1).prefixes_sent, 2, "there was room again");
    let said = reconfigure(&mut net, 0, |config| config.peers[0].max_prefixes_out = None);
    assert_eq!(said, ["neighbor node1: what it is sent changed"]);
}

#[test]
fn members_are_what_may_carry_traffic() {
    let mut net = mesh(&[65_001, 65_002, 65_003]);
    net.seconds(5);
    let speaker = &net.nodes[0].speaker;
    let mut members: Vec<_> =
        speaker.members(self::net(TWO)).map(|way| (way.next_hop, way.selected)).collect();
    members.sort();
    assert_eq!(members, [(v4(1).into(), true), (v4(2).into(), false)], "the direct way, and the one around");
    assert_eq!(
        speaker.members(self::net(ONE)).count(),
        0,
        "it starts here, and comes back to us only in circles"
    );
}

#[test]
fn pages_of_the_table() {
    let mut net = pair();
    net.seconds(5);
    let speaker = &net.nodes[0].speaker;
    let prefixes =
        |page: Vec<(IpNet, &[Path])>| page.into_iter().map(|(prefix, _)| prefix).collect::<Vec<_>>();
    let [one, two, six] = [ONE, TWO, SIX].map(self::net);
    assert_eq!(prefixes(speaker.page(None, 2)), [one, two]);
    assert_eq!(prefixes(speaker.page(Some(two), 2)), [six]);
    let from_peer: Vec<_> = speaker.page_in("node1", None, 9).into_iter().map(|(prefix, _)| prefix).collect();
    assert_eq!(from_peer, [two, six]);
    let to_peer: Vec<_> = speaker.page_out("node1", None, 9).into_iter().map(|(prefix, _)| prefix).collect();
    assert_eq!(to_peer, [one]);
    assert!(speaker.page_out("nobody", None, 9).is_empty());
}
#[test]
fn several_paths_where_they_were_agreed_on() {
    // 1 hears of 10.50/16 from 0 and 2, and tells 3 both.
    let offer = |peer: PeerConfig| {
        let mut offered = peer;
        offered.offer.add_path.send = Families::ALL;
        offered.offer.add_path.receive = Families::ALL;
        offered
    };
    let anycast = "10.50.0.0/16";
    let mut net = Net::new(vec![
        config(0, 65_000, &[anycast], vec![peer(1, 65_001)]),
        config(1, 65_001, &[], vec![peer(0, 65_000), peer(2, 65_002), offer(peer(3, 65_001))]),
        config(2, 65_002, &[anycast], vec![peer(1, 65_001)]),
        config(3, 65_001, &[], vec![offer(peer(1, 65_001))]),
    ]);
    net.seconds(5);
    let hops = |net: &Net| {
        let paths = net.nodes[3].speaker.paths(&self::net(anycast));
        let mut hops: Vec<_> = paths.iter().map(|path| path.attributes().next_hop.to_string()).collect();
        hops.sort();
        hops
    };
    assert_eq!(hops(&net), ["10.99.0.1", "10.99.0.3"]);
    assert_eq!(net.through(3, anycast), ["node1", "node1"], "and uses both");
    reconfigure(&mut net, 1, |config| config.peers[2].add_path = AddPathSelection::Best(0));
    assert_eq!(hops(&net).len(), 1);
    reconfigure(&mut net, 1, |config| config.peers[2].add_path = AddPathSelection::All);
    net.kill(0);
    net.run(std::time::Duration::ZERO);
    assert_eq!(hops(&net), ["10.99.0.3"]);
}
