use super::*;
use crate::renewal::RenewWithin;

/// One site: CA "one" under root "a" issues, charter 1 pins it, node n1 has all of it.
pub(super) fn site() -> (State, Fleet) {
    let mut state = State { longest_leaf: DAY, ..State::default() };
    state.trust(&[key("a")], START);
    assert!(state.adopt(&ca("one", "a", START, 90), START));
    let mut fleet = Fleet::default();
    let first = view(1, &[("a", RootState::Active)], &[("one", CaState::Active)]);
    carry_out(&mut state, &order(Command::Publish(first)), &mut fleet, START).unwrap();
    fleet.report("n1", report(1, "one", START + DAY, START)).unwrap();
    (state, fleet)
}

pub(super) fn prepared(state: &mut State, name: &str, root: &str, now: i64) {
    state.request(key(name), now);
    let command = Command::Install(ca(name, root, now, 90));
    carry_out(state, &order(command), &mut Fleet::default(), now).unwrap();
}

pub(super) fn refused(state: &State, command: Command, fleet: &Fleet, now: i64) -> Vec<Obstacle> {
    plan(state, &order(command), fleet, now).unwrap_err().obstacles
}

pub(super) fn lags(obstacles: &[Obstacle]) -> Vec<&str> {
    let lag = |obstacle: &Obstacle| match obstacle {
        Obstacle::Lagging(lag) => Some(lag.node.clone()),
        _ => None,
    };
    let names: Vec<String> = obstacles.iter().filter_map(lag).collect();
    names.into_iter().map(|name| &*name.leak()).collect()
}

#[test]
fn an_intermediate_changes_hands_step_by_step() {
    let (mut state, mut fleet) = site();
    let none = refused(&state, Command::Activate, &fleet, START);
    assert!(matches!(&none[..], [Obstacle::Impossible(why)] if why.contains("intermediate prepare")));
    assert_eq!(plan(&state, &order(Command::Prepare), &fleet, START).unwrap(), [Effect::MakeKey]);
    prepared(&mut state, "two", "a", START);
    // Not pinned yet: nodes would refuse its leaves.
    let unpinned = refused(&state, Command::Activate, &fleet, START);
    assert!(matches!(&unpinned[..], [Obstacle::Impossible(why)] if why.contains("not pinned")));
    let both = view(2, &[("a", RootState::Active)], &[("one", CaState::Active), ("two", CaState::Prepared)]);
    carry_out(&mut state, &order(Command::Publish(both)), &mut fleet, START + 1).unwrap();
    // n1 has charter 1.
    let lagging = refused(&state, Command::Activate, &fleet, START + 60);
    assert_eq!(lags(&lagging), ["n1"]);
    let words = lagging[0].to_string();
    assert_eq!(words, "node n1 lags: has charter 1 of 2, heard 1 min ago");

    fleet.report("n1", report(2, "one", START + DAY, START + 90)).unwrap();
    assert_eq!(state.renew_within(1), None);
    let effects = carry_out(&mut state, &order(Command::Activate), &mut fleet, START + 100).unwrap();
    assert!(
        matches!(&effects[..], [Effect::Switch { to, .. }, Effect::Reissue { window: JITTER, .. }] if *to == key("two"))
    );
    assert_eq!(state.active().unwrap().key, key("two"));
    // Who holds something of the old one is told, and so many at a time that the issuer can serve them.
    assert_eq!(state.renew_within(1), Some(RenewWithin { cas: vec![key("one")], seconds: JITTER }));
    assert_eq!(state.renew_within(10_000).unwrap().seconds, 200);
    // The old one lives as long as its last leaf can.
    let Phase::Retiring(until) = state.ca(&key("one")).unwrap().phase else { panic!("retiring") };
    assert!(until >= START + 100 + DAY);
    assert!(matches!(refused(&state, Command::Retire, &fleet, until)[..], [Obstacle::TooEarly { .. }]));
    assert_eq!(state.next_due(START + 100), Some(until + 1));
    assert_eq!(state.due(until), None);
    assert_eq!(state.due(until + 1), Some(Command::Retire));
    // A node that says its leaf of the old CA lives holds it back.
    fleet.report("n1", report(2, "one", until + 500, until)).unwrap();
    assert_eq!(lags(&refused(&state, Command::Retire, &fleet, until + 1)), ["n1"]);
    fleet.report("n1", report(2, "two", until + DAY, until + 1)).unwrap();
    carry_out(&mut state, &order(Command::Retire), &mut fleet, until + 1).unwrap();
    assert_eq!(state.ca(&key("one")).unwrap().phase, Phase::Gone);
    // The configuration may still name it: it does not come back.
    assert!(!state.adopt(&ca("one", "a", START, 90), until + 2));
}

#[test]
fn a_sixth_of_its_life_before_the_end_the_prepared_one_takes_over_by_itself() {
    let (mut state, fleet) = site();
    assert!(state.alarms(START + 44 * DAY).is_empty());
    assert!(state.alarms(START + 46 * DAY)[0].contains("none is prepared"));
    prepared(&mut state, "two", "a", START + 46 * DAY);
    assert!(state.alarms(START + 46 * DAY).is_empty());
    // A sixth of 90 days is more than a week, so a week counts.
    let switch = START + 83 * DAY;
    assert_eq!(state.next_due(START + 46 * DAY), Some(switch));
    assert_eq!((state.due(switch - 1), state.due(switch)), (None, Some(Command::Activate)));
    // Also then nobody is left behind.
    assert!(plan(&state, &order(Command::Activate), &fleet, switch).is_err());
}

#[test]
fn a_root_changes_hands_step_by_step() {
    let (mut state, mut fleet) = site();
    let (a, b) = (("a", RootState::Active), ("b", RootState::Active));
    let early = plan(&state, &order(Command::Install(ca("two", "b", START, 90))), &fleet, START);
    assert!(early.unwrap_err().to_string().contains("was not made here"));
    state.request(key("two"), START);
    let early = plan(&state, &order(Command::Install(ca("two", "b", START, 90))), &fleet, START);
    assert!(early.unwrap_err().to_string().contains("is not trusted here"));

    let both = view(2, &[a, b], &[("one", CaState::Active), ("two", CaState::Prepared)]);
    let dropping = view(2, &[b], &[("one", CaState::Active)]);
    let wrong = refused(&state, Command::Publish(dropping.clone()), &fleet, START);
    assert!(matches!(&wrong[..], [Obstacle::Impossible(why)] if why.contains("root retire")));
    let wrong = refused(&state, Command::RetireRoot(both.clone()), &fleet, START);
    assert!(matches!(&wrong[..], [Obstacle::Impossible(why)] if why.contains("root publish")));
    carry_out(&mut state, &order(Command::Publish(both.clone())), &mut fleet, START).unwrap();
    let again = refused(&state, Command::Publish(both), &fleet, START);
    assert!(matches!(&again[..], [Obstacle::Impossible(why)] if why.contains("never goes back")));
    carry_out(&mut state, &order(Command::Install(ca("two", "b", START, 90))), &mut fleet, START).unwrap();

    // Three hints, the fleet, Istio: each named.
    let obstacles = refused(&state, Command::ActivateRoot, &fleet, START + 10);
    assert_eq!(lags(&obstacles), ["n1"]);
    assert!(obstacles.contains(&Obstacle::IstioUnchecked));
    assert!(obstacles.iter().any(|o| matches!(o, Obstacle::TooEarly { until, .. } if *until == START + 900)));
    assert_eq!(obstacles.len(), 3);
    fleet.report("n1", report(2, "one", START + DAY, START + 20)).unwrap();
    let mut said = order(Command::ActivateRoot);
    assert_eq!(refused(&state, Command::ActivateRoot, &fleet, START + 900), [Obstacle::IstioUnchecked]);
    said.istio_checked = Some("certs doctor on east and west".into());
    carry_out(&mut state, &said, &mut fleet, START + 900).unwrap();
    let Phase::Retiring(until) = state.ca(&key("one")).unwrap().phase else { panic!("retiring") };

    // The old root goes after the last leaf under it.
    let drop = Command::RetireRoot(view(3, &[b], &[("one", CaState::Revoked), ("two", CaState::Active)]));
    assert_eq!(lags(&refused(&state, drop.clone(), &fleet, START + 1000)), ["n1"]);
    fleet.report("n1", report(2, "two", until + DAY, START + 2000)).unwrap();
    assert!(matches!(refused(&state, drop.clone(), &fleet, until)[..], [Obstacle::TooEarly { .. }]));
    carry_out(&mut state, &order(drop), &mut fleet, until + 1).unwrap();
    assert_eq!(state.roots.iter().map(|root| &root.key).collect::<Vec<_>>(), [&key("b")]);
    assert_eq!(state.ca(&key("one")).unwrap().phase, Phase::Gone);
}

#[test]
fn the_root_in_use_is_not_dropped() {
    let (state, fleet) = site();
    let drop = view(2, &[("b", RootState::Active)], &[("one", CaState::Active)]);
    let obstacles = refused(&state, Command::RetireRoot(drop), &fleet, START);
    assert!(matches!(&obstacles[..], [Obstacle::Impossible(why)] if why.contains("issues under a root")));
    let mut forced = order(Command::RetireRoot(view(2, &[("b", RootState::Active)], &[])));
    forced.override_reason = Some("I insist".into());
    assert!(plan(&state, &forced, &fleet, START).is_err(), "what can't work can't be overridden");
}

#[test]
fn an_override_is_written_down_first() {
    let (mut state, mut fleet) = site();
    prepared(&mut state, "two", "a", START);
    let both = view(2, &[("a", RootState::Active)], &[("one", CaState::Active), ("two", CaState::Prepared)]);
    carry_out(&mut state, &order(Command::Publish(both)), &mut fleet, START).unwrap();
    let mut forced = order(Command::Activate);
    forced.override_reason = Some("n1 is in the bin".into());
    let effects = plan(&state, &forced, &fleet, START).unwrap();
    let [Effect::Overridden { reason, obstacles }, Effect::Switch { .. }, Effect::Reissue { .. }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(reason, "n1 is in the bin");
    assert!(obstacles[0].starts_with("node n1 lags"));
    // Forgetting the node is the other way.
    carry_out(&mut state, &order(Command::Forget("n1".into())), &mut fleet, START).unwrap();
    assert!(plan(&state, &order(Command::Activate), &fleet, START).is_ok());
    assert!(plan(&state, &order(Command::Forget("n1".into())), &fleet, START).is_err());
}

#[test]
fn taint_moves_leaves_first_and_revoke_waits_for_them() {
    let (mut state, mut fleet) = site();
    let lonely = refused(&state, Command::Taint(key("one")), &fleet, START);
    assert_eq!(lonely, [Obstacle::NoSuccessor]);
    let mut forced = order(Command::Taint(key("one")));
    forced.override_reason = Some("thief".into());
    let effects = plan(&state, &forced, &fleet, START).unwrap();
    assert_eq!(effects[1..], [Effect::StopIssuing, Effect::Taint(key("one"))]);

    prepared(&mut state, "two", "a", START);
    let both = view(2, &[("a", RootState::Active)], &[("one", CaState::Active), ("two", CaState::Prepared)]);
    carry_out(&mut state, &order(Command::Publish(both)), &mut fleet, START).unwrap();
    fleet.report("n1", report(2, "one", START + DAY, START + 1)).unwrap();
    let before = state.bundle_sequence;
    let effects = carry_out(&mut state, &order(Command::Taint(key("one"))), &mut fleet, START + 2).unwrap();
    assert!(matches!(
        &effects[..],
        [Effect::Switch { to, .. }, Effect::Reissue { window: URGENT, .. }, Effect::Taint(bad)]
            if *to == key("two") && *bad == key("one")
    ));
    assert_eq!(state.tainted().collect::<Vec<_>>(), [&key("one")]);
    assert_eq!(state.renew_within(1), Some(RenewWithin { cas: vec![key("one")], seconds: URGENT }));
    assert!(state.bundle_sequence > before);
    assert!(!state.adopt(&ca("one", "a", START, 90), START + 3), "a tainted CA issues no more");
    assert_eq!(
        plan(&state, &order(Command::Taint(key("one"))), &fleet, START + 3),
        Ok(vec![]),
        "it is tainted"
    );

    assert_eq!(lags(&refused(&state, revoke("one"), &fleet, START + 3)), ["n1"]);
    fleet.report("n1", report(2, "two", START + DAY, START + 4)).unwrap();
    carry_out(&mut state, &order(revoke("one")), &mut fleet, START + 5).unwrap();
    assert_eq!(state.ca(&key("one")).unwrap().phase, Phase::Revoked);
    assert_eq!(plan(&state, &order(Command::Taint(key("one"))), &fleet, START + 6), Ok(vec![]));
    let early = refused(&state, revoke("two"), &fleet, START + 6);
    assert!(matches!(&early[..], [Obstacle::Impossible(why)] if why.contains("`rotate taint` comes first")));
    let unknown = refused(&state, Command::Taint(key("nobody's")), &fleet, START + 6);
    assert!(matches!(&unknown[..], [Obstacle::Impossible(why)] if why.contains("not one of this site's")));
}

fn revoke(name: &str) -> Command {
    Command::Revoke { ca: key(name), known: false }
}

#[test]
fn what_is_revoked_stays_revoked_since_the_first_time_and_takes_newer_lists() {
    let (mut state, mut fleet) = site();
    let mut forced = order(Command::Taint(key("one")));
    forced.override_reason = Some("thief".into());
    carry_out(&mut state, &forced, &mut fleet, START).unwrap();
    fleet.report("n1", report(1, "one", START, START)).unwrap();
    carry_out(&mut state, &order(revoke("one")), &mut fleet, START + 5).unwrap();
    let known = order(Command::Revoke { ca: key("one"), known: true });
    assert_eq!(plan(&state, &known, &fleet, START + 6), Ok(vec![]), "this list is in force");
    let newer = carry_out(&mut state, &order(revoke("one")), &mut fleet, START + 7).unwrap();
    assert_eq!(newer, [Effect::Revoke(key("one"))]);
    let ca = state.ca(&key("one")).unwrap();
    assert_eq!((ca.phase, ca.since), (Phase::Revoked, START + 5));
}

/// A charter's word is enough for us; others need a list, and the view says so until there is one.
#[test]
fn a_charter_revokes_and_what_is_still_to_be_done_is_shown() {
    let find = |state: &State, step: &str| {
        let lines = progress(state, &Fleet::default(), START + 9);
        lines.into_iter().find(|line| line.step.contains(step))
    };
    for tainted_before in [false, true] {
        let (mut state, mut fleet) = site();
        prepared(&mut state, "two", "a", START);
        let pins = |one| [("one", one), ("two", CaState::Prepared)];
        let root = [("a", RootState::Active)];
        if tainted_before {
            let word = Command::Publish(view(2, &root, &pins(CaState::Tainted)));
            carry_out(&mut state, &order(word), &mut fleet, START).unwrap();
            let line = find(&state, &format!("{} tainted", key("one").short())).unwrap();
            assert!(line.status == Status::Waiting && line.detail.contains("no CRL in force"), "{line:?}");
            fleet.report("n1", report(2, "two", START + DAY, START + 4)).unwrap();
        }
        let word = Command::Publish(view(3, &root, &pins(CaState::Revoked)));
        let effects = carry_out(&mut state, &order(word), &mut fleet, START + 5).unwrap();
        let taints = effects.iter().filter(|effect| matches!(effect, Effect::Taint(_))).count();
        assert_eq!(taints, usize::from(!tainted_before));
        assert_eq!(effects.last(), Some(&Effect::Revoke(key("one"))));
        assert_eq!(state.tainted().collect::<Vec<_>>(), [&key("one")]);

        let step = format!("{} revoked", key("one").short());
        let line = find(&state, &step).unwrap();
        assert!(line.status == Status::Waiting && line.detail.contains("no CRL in force"), "{line:?}");
        assert!(
            find(&state, &format!("revoke {}", key("one").short())).is_some(),
            "the list is still to come"
        );
        state.list(&key("one"), true);
        let line = find(&state, &step).unwrap();
        assert!(line.status == Status::Done && line.detail.contains("a CRL in force names it"), "{line:?}");
        assert_eq!(find(&state, &format!("revoke {}", key("one").short())), None);
    }
}

/// A charter that only confirms what is known is no incident: it waits for nodes like any other.
#[test]
fn a_charter_that_confirms_a_taint_waits_for_nodes() {
    let (mut state, mut fleet) = site();
    let pins = [("one", CaState::Tainted)];
    let word = Command::Publish(view(2, &[("a", RootState::Active)], &pins));
    carry_out(&mut state, &order(word), &mut fleet, START).unwrap();
    let word = view(3, &[("a", RootState::Active)], &[("one", CaState::Revoked)]);
    assert_eq!(lags(&refused(&state, Command::Publish(word), &fleet, START + 1)), ["n1"]);
}

/// The longest lived of the prepared CAs may be unusable: another one takes over.
#[test]
fn any_prepared_ca_that_can_issue_is_the_heir() {
    let (mut state, mut fleet) = site();
    for (name, days) in [("two", 90), ("three", 80), ("four", 85)] {
        state.request(key(name), START);
        let install = Command::Install(ca(name, "a", START, days));
        carry_out(&mut state, &order(install), &mut fleet, START).unwrap();
    }
    // "four" lives longer than "three" and is not pinned; "two" is in the same hands as "one".
    let pins = [("one", CaState::Tainted), ("two", CaState::Tainted), ("three", CaState::Prepared)];
    let word = Command::Publish(view(2, &[("a", RootState::Active)], &pins));
    let effects = carry_out(&mut state, &order(word), &mut fleet, START).unwrap();
    assert!(effects.iter().all(|effect| *effect != Effect::StopIssuing), "{effects:?}");
    assert_eq!(state.active().unwrap().key, key("three"));
    assert_eq!(state.tainted().count(), 2);
}

#[test]
fn a_charter_that_condemns_is_obeyed_though_nodes_lag() {
    let (mut state, mut fleet) = site();
    prepared(&mut state, "two", "a", START);
    fleet.report("n2", report(0, "one", START + DAY, START)).unwrap();
    let word = view(2, &[("a", RootState::Active)], &[("one", CaState::Tainted), ("two", CaState::Prepared)]);
    let effects = carry_out(&mut state, &order(Command::Publish(word)), &mut fleet, START + 1).unwrap();
    assert!(matches!(
        &effects[..],
        [Effect::ApplyCharter(_), Effect::Switch { to, .. }, Effect::Reissue { .. }, Effect::Taint(bad)]
            if *to == key("two") && *bad == key("one")
    ));
    // One that forgets a CA whose leaves live is a mistake.
    let forgets = view(3, &[("a", RootState::Active)], &[]);
    let obstacles = refused(&state, Command::Publish(forgets), &fleet, START + 2);
    assert!(matches!(&obstacles[..], [Obstacle::Impossible(why)] if why.contains("does not pin")));
}

#[test]
fn the_bundle_sequence_never_goes_back() {
    let (mut state, mut fleet) = site();
    let mut last = state.bundle_sequence;
    assert!(last >= u64::try_from(START).unwrap());
    // The clock was set back: it rises all the same.
    for sequence in 2..6 {
        let next = view(sequence, &[("a", RootState::Active)], &[("one", CaState::Active)]);
        fleet.report("n1", report(sequence - 1, "one", START + DAY, START)).unwrap();
        carry_out(&mut state, &order(Command::Publish(next)), &mut fleet, START - 1000).unwrap();
        assert!(state.bundle_sequence > last);
        last = state.bundle_sequence;
    }
}

#[test]
fn reports_are_bounded_and_only_get_newer() {
    let mut fleet = Fleet::default();
    assert_eq!(fleet.report("n1", report(2, "one", 10, 100)), Ok(true));
    assert_eq!(fleet.report("n1", report(2, "one", 10, 101)), Ok(false), "nothing new");
    assert_eq!(fleet.report("n1", report(1, "one", 10, 99)), Ok(false), "older than the last");
    assert!(fleet.behind(2, 200).is_empty());
    assert!(fleet.report(&"n".repeat(200), report(1, "one", 1, 1)).is_err());
    for index in 0..MAX_NODES - 1 {
        fleet.report(&format!("m{index}"), report(2, "one", 10, 100)).unwrap();
    }
    assert!(fleet.report("one more", report(2, "one", 10, 100)).is_err());
}

#[test]
fn progress_says_what_is_waited_for() {
    let (mut state, mut fleet) = site();
    prepared(&mut state, "two", "a", START);
    let both = view(2, &[("a", RootState::Active)], &[("one", CaState::Active), ("two", CaState::Prepared)]);
    carry_out(&mut state, &order(Command::Publish(both)), &mut fleet, START).unwrap();
    let find =
        |lines: &[Line], step: &str| lines.iter().find(|line| line.step.contains(step)).cloned().unwrap();
    let lines = progress(&state, &fleet, START + 60);
    let activate = find(&lines, "intermediate activate");
    assert_eq!(activate.status, Status::Waiting);
    assert!(activate.detail.contains("node n1 lags"), "{}", activate.detail);
    assert_eq!(find(&lines, "n1").status, Status::Waiting);
    fleet.report("n1", report(2, "one", START + DAY, START + 60)).unwrap();
    let lines = progress(&state, &fleet, START + 61);
    assert_eq!(find(&lines, "intermediate activate").status, Status::Ready);
    carry_out(&mut state, &order(Command::Activate), &mut fleet, START + 61).unwrap();
    let lines = progress(&state, &fleet, START + 62);
    assert_eq!(find(&lines, "reissue 1").status, Status::Waiting);
    assert_eq!(find(&lines, "intermediate retire").status, Status::Waiting);
    assert!(find(&lines, "retiring").detail.contains("last leaf"));
}

#[test]
fn the_state_survives_being_written_down() {
    let (mut state, fleet) = site();
    prepared(&mut state, "two", "a", START);
    state.apply(&Effect::Reissue { window: 5, reason: "x".into() }, START);
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
    let text = serde_json::to_string(&fleet).unwrap();
    assert_eq!(serde_json::from_str::<Fleet>(&text).unwrap(), fleet);
}
