//! Each guard at its edge: the last moment, node or CA that it refuses, and the first that it lets through.

use super::{guards::*, *};

const ACTIVE_A: [(&str, RootState); 1] = [("a", RootState::Active)];

fn says(obstacles: &[Obstacle], words: &str) -> bool {
    matches!(obstacles, [Obstacle::Impossible(why)] if why.contains(words))
}

#[test]
fn leaves_are_reissued_where_they_are_issued_and_one_time_after_the_other() {
    let (mut state, mut fleet) = site();
    let nobody = refused(&State::default(), Command::Leaf, &fleet, START);
    assert!(says(&nobody, "no site CA issues on this node"), "{nobody:?}");
    let effects = carry_out(&mut state, &order(Command::Leaf), &mut fleet, START).unwrap();
    assert!(matches!(effects[..], [Effect::Reissue { window: JITTER, .. }]), "{effects:?}");
    let end = START + i64::from(JITTER);
    assert!(
        matches!(refused(&state, Command::Leaf, &fleet, end - 1)[..], [Obstacle::TooEarly { until, .. }] if until == end)
    );
    carry_out(&mut state, &order(Command::Leaf), &mut fleet, end).unwrap();
    assert_eq!(state.reissue.as_ref().unwrap().generation, 2);
    // Short leaves: nobody's may end while it waits for its turn.
    for (longest, window) in [(10, 1), (120, 2), (3600, JITTER)] {
        state.longest_leaf = longest;
        let effects = plan(&state, &order(Command::Leaf), &fleet, end + 3600).unwrap();
        assert!(
            matches!(effects[..], [Effect::Reissue { window: found, .. }] if found == window),
            "{effects:?}"
        );
    }
}

#[test]
fn four_cas_may_wait_and_thirty_two_are_remembered() {
    let (mut state, fleet) = site();
    for n in 0..4 {
        assert_eq!(plan(&state, &order(Command::Prepare), &fleet, START), Ok(vec![Effect::MakeKey]), "{n}");
        state.request(key(&format!("next{n}")), START);
    }
    assert!(says(
        &refused(&state, Command::Prepare, &fleet, START),
        "4 site CAs are requested or prepared already"
    ));

    let (mut state, fleet) = site();
    let dead = |n: usize, phase| Ca {
        key: key(&format!("dead{n}")),
        certificate: Some(ca(&format!("dead{n}"), "a", START, 90)),
        phase,
        since: START,
        pinned: None,
        listed: false,
    };
    state.cas.extend((0..30).map(|n| dead(n, Phase::Gone)));
    assert!(plan(&state, &order(Command::Prepare), &fleet, START).is_ok());
    state.cas.push(dead(30, Phase::Tainted));
    assert!(says(&refused(&state, Command::Prepare, &fleet, START), "32 site CAs are remembered"));
    // Those whose certificates have ended are forgotten with the next key, not a second before.
    state.request(key("new"), START + 90 * DAY);
    assert_eq!(state.cas.len(), 33);
    state.request(key("newer"), START + 90 * DAY + 1);
    assert_eq!(state.cas.len(), 3, "{:?}", state.cas);
}

#[test]
fn a_certificate_is_installed_for_a_key_that_waits_or_works() {
    let (mut state, mut fleet) = site();
    prepared(&mut state, "two", "a", START);
    // Again, with later dates: of the one that waits, and of the one that issues.
    for (name, phase) in [("two", Phase::Prepared), ("one", Phase::Active)] {
        let renewed = ca(name, "a", START, 120);
        carry_out(&mut state, &order(Command::Install(renewed.clone())), &mut fleet, START).unwrap();
        let known = state.ca(&key(name)).unwrap();
        assert_eq!((known.certificate.as_ref(), known.phase), (Some(&renewed), phase));
    }
    state.request(key("three"), START);
    let late = Command::Install(ca("three", "a", START, 1));
    assert!(says(&refused(&state, late.clone(), &fleet, START + DAY), "has expired"));
    assert!(plan(&state, &order(late), &fleet, START + DAY - 1).is_ok());
    for phase in [Phase::Retiring(START), Phase::Gone, Phase::Tainted, Phase::Revoked] {
        state.cas.iter_mut().filter(|ca| ca.key == key("two")).for_each(|ca| ca.phase = phase);
        let again = refused(&state, Command::Install(ca("two", "a", START, 90)), &fleet, START);
        assert!(says(&again, "prepare another"), "{again:?}");
    }
}

#[test]
fn a_ca_issues_within_its_dates_only_and_unpinned_without_a_charter() {
    let mut state = State { longest_leaf: DAY, ..State::default() };
    state.trust(&[key("a")], START);
    assert!(state.adopt(&ca("one", "a", START, 90), START));
    let mut fleet = Fleet::default();
    fleet.report("n1", report(0, "one", START + DAY, START)).unwrap();
    prepared(&mut state, "two", "a", START + 100);
    let activate = |at| plan(&state, &order(Command::Activate), &fleet, at);
    for (at, fits) in [(99, false), (100, true), (90 * DAY + 100, true), (90 * DAY + 101, false)] {
        let planned = activate(START + at);
        assert_eq!(planned.is_ok(), fits, "{at}: {planned:?}");
    }
    // The old one stays believed for the last leaf that may be under way.
    let effects = activate(START + 200).unwrap();
    let end = START + 200 + i64::from(URGENT) + DAY;
    assert!(
        matches!(&effects[0], Effect::Switch { from: Some((_, until)), .. } if *until == end),
        "{effects:?}"
    );
    // Never beyond its own end.
    let effects = activate(START + 90 * DAY - 10).unwrap();
    assert!(
        matches!(&effects[0], Effect::Switch { from: Some((_, until)), .. } if *until == START + 90 * DAY)
    );
}

#[test]
fn of_two_that_retire_the_one_that_is_over_goes() {
    let (mut state, mut fleet) = site();
    assert!(says(&refused(&state, Command::Retire, &fleet, START), "no site CA is retiring"));
    for (name, until) in [("early", START + 10), ("late", START + 20)] {
        state.request(key(name), START);
        state.cas.last_mut().unwrap().phase = Phase::Retiring(until);
    }
    let soonest = |at| {
        matches!(
            refused(&state, Command::Retire, &fleet, START + at)[..],
            [Obstacle::TooEarly { .. }, Obstacle::TooEarly { .. }]
        )
    };
    assert!(soonest(10), "the last leaf is alive in its last second");
    assert_eq!(
        carry_out(&mut state, &order(Command::Retire), &mut fleet, START + 11).unwrap(),
        [Effect::Drop(key("early"))]
    );
    assert_eq!(state.next_due(START + 11), Some(START + 21));
    assert_eq!((state.due(START + 20), state.due(START + 21)), (None, Some(Command::Retire)));
    // The clock stands at the very moment: it is not told of again and again.
    assert_eq!(state.next_due(START + 21), None);
}

#[test]
fn a_root_is_active_pinned_and_old_enough_before_a_ca_goes_live_under_it() {
    let both = [("a", RootState::Active), ("b", RootState::Active)];
    let pins = [("one", CaState::Active), ("two", CaState::Prepared)];
    let ready = |second: RootState| {
        let (mut state, mut fleet) = site();
        let roots = [both[0], ("b", second)];
        state.request(key("two"), START);
        carry_out(&mut state, &order(Command::Publish(view(2, &roots, &pins))), &mut fleet, START).unwrap();
        carry_out(&mut state, &order(Command::Install(ca("two", "b", START, 90))), &mut fleet, START)
            .unwrap();
        fleet.report("n1", report(2, "one", START + DAY, START)).unwrap();
        (state, fleet)
    };
    let (state, fleet) = ready(RootState::Retiring);
    assert!(says(&refused(&state, Command::ActivateRoot, &fleet, START + 900), "on its way out"));
    let (mut state, mut fleet) = ready(RootState::Active);
    assert!(says(&refused(&state, Command::Activate, &fleet, START + 900), "under the root in use"));
    let mut said = order(Command::ActivateRoot);
    for word in ["", " \t"] {
        said.istio_checked = Some(word.into());
        assert_eq!(
            plan(&state, &said, &fleet, START + 900).unwrap_err().obstacles,
            [Obstacle::IstioUnchecked]
        );
    }
    said.istio_checked = Some("certs doctor".into());
    assert!(matches!(
        plan(&state, &said, &fleet, START + 899).unwrap_err().obstacles[..],
        [Obstacle::TooEarly { .. }]
    ));
    // A later charter does not begin the wait anew, for roots and pins that it had before.
    carry_out(&mut state, &order(Command::Publish(view(3, &both, &pins))), &mut fleet, START + 800).unwrap();
    assert!(plan(&state, &said, &fleet, START + 900).is_ok(), "n1 has charter 2, which brought both");
    // One whose pin was taken out and came back is new.
    let unpinned = view(4, &both, &pins[..1]);
    fleet.report("n1", report(3, "one", START + DAY, START + 900)).unwrap();
    carry_out(&mut state, &order(Command::Publish(unpinned)), &mut fleet, START + 900).unwrap();
    fleet.report("n1", report(4, "one", START + DAY, START + 901)).unwrap();
    carry_out(&mut state, &order(Command::Publish(view(5, &both, &pins))), &mut fleet, START + 901).unwrap();
    assert_eq!(lags(&plan(&state, &said, &fleet, START + 901).unwrap_err().obstacles), ["n1"]);
}

#[test]
fn a_charter_keeps_the_pins_of_whoever_has_living_leaves() {
    let (mut state, mut fleet) = site();
    state.request(key("two"), START);
    carry_out(&mut state, &order(Command::Install(ca("two", "a", START, 90))), &mut fleet, START).unwrap();
    // A prepared one has no leaves: its pin may wait.
    assert!(
        plan(
            &state,
            &order(Command::Publish(view(2, &ACTIVE_A, &[("one", CaState::Active)]))),
            &fleet,
            START
        )
        .is_ok()
    );
    let forgets = Command::Publish(view(2, &ACTIVE_A, &[("two", CaState::Prepared)]));
    for (phase, at, fits) in [
        (Phase::Active, 0, false),
        (Phase::Retiring(START + 9), 9, false),
        (Phase::Retiring(START + 9), 10, true),
        (Phase::Gone, 0, true),
        (Phase::Tainted, 0, true),
    ] {
        state.cas[0].phase = phase;
        let planned = plan(&state, &order(forgets.clone()), &fleet, START + at);
        assert_eq!(planned.is_ok(), fits, "{phase:?} at {at}: {planned:?}");
    }
    // What retires is condemned while a leaf of it may live, and the prepared one at any time.
    for (which, phase, at, taints) in [
        (0, Phase::Retiring(START + 9), 9, 1),
        (0, Phase::Retiring(START + 9), 10, 0),
        (0, Phase::Gone, 0, 0),
        (1, Phase::Prepared, 0, 1),
        (1, Phase::Requested, 0, 0),
    ] {
        let mut state = state.clone();
        (state.cas[0].phase, state.cas[1].phase) = (Phase::Gone, Phase::Gone);
        state.cas[which].phase = phase;
        let pins = [("one", CaState::Tainted), ("two", CaState::Tainted)];
        let effects =
            plan(&state, &order(Command::Publish(view(2, &ACTIVE_A, &pins))), &fleet, START + at).unwrap();
        let found = effects.iter().filter(|effect| matches!(effect, Effect::Taint(_))).count();
        assert_eq!(
            (found, effects.contains(&Effect::StopIssuing)),
            (taints, false),
            "{phase:?}: {effects:?}"
        );
    }
}

#[test]
fn a_root_goes_when_nothing_under_it_lives() {
    let (mut state, mut fleet) = site();
    let both = [("a", RootState::Active), ("b", RootState::Active)];
    let pins = [("one", CaState::Active), ("two", CaState::Prepared), ("three", CaState::Prepared)];
    state.request(key("two"), START);
    state.request(key("three"), START);
    carry_out(&mut state, &order(Command::Publish(view(2, &both, &pins))), &mut fleet, START).unwrap();
    for (name, root) in [("two", "b"), ("three", "a")] {
        carry_out(&mut state, &order(Command::Install(ca(name, root, START, 90))), &mut fleet, START)
            .unwrap();
    }
    fleet.report("n1", report(2, "one", START + DAY, START)).unwrap();
    let mut said = order(Command::ActivateRoot);
    said.istio_checked = Some("certs doctor".into());
    carry_out(&mut state, &said, &mut fleet, START + 900).unwrap();
    let Phase::Retiring(until) = state.ca(&key("one")).unwrap().phase else { panic!("retiring") };
    let drop = |sequence| Command::RetireRoot(view(sequence, &both[1..], &[("two", CaState::Active)]));
    assert!(says(&refused(&state, drop(2), &fleet, until + 1), "never goes back"));
    // A node that has the old CA's leaf, or only the old charter.
    fleet.report("n1", report(2, "three", until + DAY, START + 900)).unwrap();
    assert_eq!(lags(&refused(&state, drop(3), &fleet, until + 1)), ["n1"]);
    fleet.report("n1", report(1, "two", until + DAY, START + 901)).unwrap();
    assert_eq!(lags(&refused(&state, drop(3), &fleet, until + 1)), ["n1"]);
    fleet.report("n1", report(2, "two", until + DAY, START + 902)).unwrap();
    assert!(matches!(refused(&state, drop(3), &fleet, until)[..], [Obstacle::TooEarly { .. }]));
    let effects = carry_out(&mut state, &order(drop(3)), &mut fleet, until + 1).unwrap();
    // The prepared CA under it goes too, with its key.
    assert_eq!(effects[1..], [Effect::Drop(key("one")), Effect::Drop(key("three"))]);
}

#[test]
fn obstacles_of_one_node_are_told_once_and_one_that_can_not_be_passed_over_holds_all() {
    let (mut state, mut fleet) = site();
    let both = [("a", RootState::Active), ("b", RootState::Active)];
    state.request(key("two"), START);
    let pins = [("one", CaState::Active), ("two", CaState::Prepared)];
    carry_out(&mut state, &order(Command::Publish(view(2, &both, &pins))), &mut fleet, START).unwrap();
    carry_out(&mut state, &order(Command::Install(ca("two", "b", START, 90))), &mut fleet, START).unwrap();
    // Its root and its pin both wait for n1.
    assert_eq!(lags(&refused(&state, Command::ActivateRoot, &fleet, START + 900)), ["n1"]);
    let mixed = Refusal { obstacles: vec![Obstacle::NoSuccessor, Obstacle::Impossible("x".into())] };
    assert!(!mixed.can_be_overridden());
    assert!(Refusal { obstacles: vec![Obstacle::NoSuccessor, Obstacle::IstioUnchecked] }.can_be_overridden());
}

#[test]
fn a_node_holds_a_ca_until_the_last_second_of_its_svid() {
    let mut fleet = Fleet::default();
    fleet.report("n1", report(2, "one", 100, 50)).unwrap();
    let holding = |ca: &str, at| fleet.holding(&[key(ca)], at).len();
    assert_eq!((holding("one", 100), holding("one", 101), holding("two", 100)), (1, 0, 0));
    // A name of 128 bytes is one, and the fleet's last place is one.
    let mut fleet = Fleet::default();
    assert_eq!(fleet.report(&"n".repeat(128), report(1, "one", 1, 1)), Ok(true));
    assert!(fleet.report(&"n".repeat(129), report(1, "one", 1, 1)).is_err());
    // Two reports of one second: the later one counts.
    fleet.report("n2", report(1, "one", 1, 7)).unwrap();
    assert_eq!(fleet.report("n2", report(2, "one", 1, 7)), Ok(true));
    for n in 2..MAX_NODES {
        fleet.report(&format!("m{n}"), report(2, "one", 10, 100)).unwrap();
    }
    assert!(fleet.report("one more", report(2, "one", 10, 100)).is_err());
}

#[test]
fn the_trust_bundles_roots_raise_the_sequence_when_they_change_and_keep_their_dates() {
    let mut state = State::default();
    state.trust(&[key("a")], START);
    let first = (state.bundle_sequence, state.roots.clone());
    state.trust(&[key("a")], START + 9);
    assert_eq!((state.bundle_sequence, state.roots.clone()), first, "nothing is new");
    state.trust(&[key("b"), key("a")], START + 10);
    assert!(state.bundle_sequence > first.0);
    assert_eq!(state.roots.iter().map(|root| root.since).collect::<Vec<_>>(), [START + 10, START]);
}

#[test]
fn the_configurations_ca_may_be_renewed_or_replaced() {
    let (mut state, _) = site();
    let renewed = ca("one", "a", START, 180);
    assert!(state.adopt(&renewed, START + 1));
    assert_eq!(state.active().unwrap().certificate, Some(renewed));
    // Another key in the file: the old one goes its way, for a leaf's life.
    assert!(state.adopt(&ca("other", "a", START, 90), START + 2));
    assert_eq!(state.active().unwrap().key, key("other"));
    assert_eq!(state.ca(&key("one")).unwrap().phase, Phase::Retiring(START + 2 + DAY));
}

#[test]
fn the_longest_lived_takes_over_in_time_and_any_when_nobody_issues() {
    let (mut state, mut fleet) = site();
    let switch = START + 83 * DAY;
    assert_eq!((state.due(switch), state.next_due(START)), (None, None), "nobody to take over");
    for (name, days) in [("short", 91), ("long", 95), ("middle", 93)] {
        state.request(key(name), START);
        carry_out(&mut state, &order(Command::Install(ca(name, "a", START, days))), &mut fleet, START)
            .unwrap();
    }
    assert_eq!(state.next_due(START), Some(switch));
    let pins = ["short", "long", "middle"].map(|name| (name, CaState::Prepared));
    let all = view(2, &ACTIVE_A, &[&[("one", CaState::Active)], &pins[..]].concat());
    carry_out(&mut state, &order(Command::Publish(all)), &mut fleet, START).unwrap();
    fleet.report("n1", report(2, "one", START + DAY, START)).unwrap();
    let next = |state: &State| match &plan(state, &order(Command::Activate), &fleet, START + 1).unwrap()[0] {
        Effect::Switch { to, from } => (to.clone(), from.is_some()),
        other => panic!("{other:?}"),
    };
    assert_eq!(next(&state), (key("long"), true));
    // Nobody issues: then there is no root in use, and the same command does for each.
    state.apply(&Effect::StopIssuing, START + 1);
    assert_eq!(next(&state), (key("long"), false));
    assert_eq!(state.alarms(START + 1), ["no site CA issues"]);
    assert!(State::default().alarms(START).is_empty(), "a node that issues nothing misses nothing");
}

#[test]
fn the_alarm_comes_at_half_a_life_and_the_switch_a_sixth_or_a_week_before_the_end() {
    let (state, mut fleet) = site();
    assert!(state.alarms(START + 45 * DAY - 1).is_empty() && state.alarms(START + 45 * DAY).len() == 1);
    // One under another root is supply too.
    let mut other = state.clone();
    let both = [("a", RootState::Active), ("b", RootState::Active)];
    let pins = [("one", CaState::Active)];
    carry_out(&mut other, &order(Command::Publish(view(2, &both, &pins))), &mut fleet, START).unwrap();
    other.request(key("two"), START);
    carry_out(&mut other, &order(Command::Install(ca("two", "b", START, 90))), &mut fleet, START).unwrap();
    assert!(other.alarms(START + 45 * DAY).is_empty());
    assert_eq!(other.due(START + 84 * DAY), None, "a root is never changed by itself");
    // A CA of twelve days.
    let mut short = State { longest_leaf: DAY, ..State::default() };
    short.trust(&[key("a")], START);
    assert!(short.adopt(&ca("one", "a", START, 12), START));
    prepared(&mut short, "two", "a", START);
    assert_eq!(short.next_due(START), Some(START + 10 * DAY));
}

#[test]
fn the_view_offers_what_can_be_ordered_and_fills_no_screen() {
    let (mut state, mut fleet) = site();
    let steps = |state: &State, fleet: &Fleet| -> Vec<String> {
        let offered = ["intermediate activate", "root activate", "intermediate retire"];
        let lines = progress(state, fleet, START + 1);
        lines.into_iter().map(|line| line.step).filter(|step| offered.contains(&step.as_str())).collect()
    };
    assert!(steps(&state, &fleet).is_empty());
    let both = [("a", RootState::Active), ("b", RootState::Active)];
    let pins = [("one", CaState::Active), ("two", CaState::Prepared)];
    state.request(key("two"), START);
    carry_out(&mut state, &order(Command::Publish(view(2, &both, &pins))), &mut fleet, START).unwrap();
    carry_out(&mut state, &order(Command::Install(ca("two", "b", START, 90))), &mut fleet, START).unwrap();
    assert_eq!(steps(&state, &fleet), ["root activate"]);
    // Without one that issues it is no change of the root.
    let mut idle = state.clone();
    idle.apply(&Effect::StopIssuing, START);
    assert_eq!(steps(&idle, &fleet), ["intermediate activate", "intermediate retire"]);

    let detail = |fleet: &Fleet| {
        let lines = progress(&state, fleet, START + 900);
        lines.into_iter().find(|line| line.step == "root activate").unwrap().detail
    };
    // Istio is in the way too: three things, and then four.
    fleet.report("n2", report(1, "one", START + DAY, START)).unwrap();
    assert!(!detail(&fleet).contains("more"), "{}", detail(&fleet));
    fleet.report("n3", report(1, "one", START + DAY, START)).unwrap();
    assert!(detail(&fleet).ends_with("; and 1 more"), "{}", detail(&fleet));

    carry_out(&mut state, &order(Command::Leaf), &mut fleet, START).unwrap();
    let reissue = |at| progress(&state, &fleet, START + at).remove(0).status;
    assert_eq!((reissue(59), reissue(60)), (Status::Waiting, Status::Done));
}
