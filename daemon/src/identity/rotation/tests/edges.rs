//! Each check of what comes from outside at its edge.

use super::*;

#[test]
fn a_key_is_named_by_eight_digits_or_more_of_one_ca() {
    let site = Site1::new();
    let state = site.open().state();
    let key = state.active().unwrap().key.clone();
    assert_eq!(find_key(&state, &key.as_str()[..8]).unwrap(), key);
    assert_eq!(find_key(&state, key.as_str()).unwrap(), key);
    for digits in ["", &key.as_str()[..7], &key.as_str()[1..20], "zzzzzzzzzz"] {
        assert!(matches!(find_key(&state, digits), Err(Error::Key(_))), "{digits}");
    }
    let mut twice = state.clone();
    twice.cas.push(state.cas[0].clone());
    assert!(find_key(&twice, key.as_str()).is_err(), "of two nobody knows which is meant");
}

#[test]
fn only_a_roots_list_with_the_ca_in_it_revokes() {
    let site = Site1::new();
    let rotation = site.open();
    let bad = rotation.state().active().unwrap().key.clone();
    let taint = Verb::Taint(bad.to_string(), String::new());
    assert!(order(&rotation, taint, Some("a test")).applied);
    let refused = |crl: Vec<u8>| {
        let verb = Verb::Revoke(bad.to_string(), crl);
        rotation.order(&request(verb, None), false, SystemTime::now()).unwrap_err().to_string()
    };
    let now = OffsetDateTime::now_utc();
    let until = now + time::Duration::DAY;
    let empty = site.root.sign_crl(&[], 1, now, until).unwrap().to_vec();
    assert!(refused(empty).contains("does not list that CA"));
    let theirs = root(YEAR).sign_crl(&[], 1, now, until).unwrap().to_vec();
    assert!(refused(theirs).contains("no root in force signed it"));
    assert!(refused(b"0".to_vec()).contains("not one CRL in DER"));
    // Before the taint nothing is revoked, list or not.
    let early = Site1::new();
    let machine = early.open();
    let good = machine.state().active().unwrap().key.to_string();
    let refusal = order(&machine, Verb::Revoke(good, early.crl(1)), Some("a test")).refusal.unwrap();
    assert!(refusal.to_string().contains("`rotate taint` comes first"));
}

#[test]
fn the_charter_in_force_may_be_published_again_and_another_under_its_number_not() {
    let site = Site1::new();
    let rotation = site.open();
    let charter = site.charter(&rotation, 1, &[&site.root]);
    assert!(site.publish(&rotation, &charter).applied);
    let before = journal(&site).len();
    let again = site.publish(&rotation, &charter);
    assert!(!again.applied && again.refusal.is_none() && again.effects.is_empty(), "{again:?}");
    assert_eq!(again.notes, ["charter 1 is in force already: nothing to do"]);
    assert_eq!(journal(&site).len(), before);
    let file = |charter: &Charter| sealed::seal(charter, &[&site.root]).unwrap().into_bytes();
    for (sequence, hint, words) in [(1, 61, "another charter with sequence 1"), (0, 60, "sequence")] {
        let other = Charter { sequence, refresh_hint: hint, ..charter.clone() };
        let Ok(text) = sealed::seal(&other, &[&site.root]) else { continue };
        let verb = Verb::Publish(text.into_bytes());
        let error = rotation.order(&request(verb, Some("x")), false, SystemTime::now()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let stranger = sealed::seal(&Charter { sequence: 2, ..charter.clone() }, &[&root(YEAR)]).unwrap();
    let verb = Verb::Publish(stranger.into_bytes());
    let error = rotation.order(&request(verb, Some("x")), false, SystemTime::now()).unwrap_err();
    assert!(error.to_string().contains("no root that this node trusts now"), "{error}");
    // What drops nothing is not retired, whatever the command.
    let verb = Verb::RetireRoot(file(&Charter { sequence: 2, ..charter }));
    assert!(order(&rotation, verb, Some("x")).refusal.unwrap().to_string().contains("root publish"));
}

#[test]
fn a_crash_between_charter_and_state_is_caught_up_with_and_a_lost_charter_is_told() {
    let site = Site1::new();
    let rotation = site.open();
    let first = site.charter(&rotation, 1, &[&site.root]);
    assert!(site.publish(&rotation, &first).applied);
    let state = fs::read(site.state_dir().join("state.json")).unwrap();
    let next = site.charter(&rotation, 2, &[&site.root]);
    assert!(site.publish(&rotation, &next).applied);
    drop(rotation);
    // The charter's file was replaced, the state was not.
    fs::write(site.state_dir().join("state.json"), state).unwrap();
    let rotation = site.open();
    assert_eq!(rotation.state().charter_sequence(), 2);
    let again = Rotation::open(&site.state_dir()).unwrap();
    assert_eq!(again.state().charter_sequence(), 2, "and that is written down");
    drop((rotation, again));
    // The other way round nobody knows what was in force.
    fs::write(site.state_dir().join("charter.jws"), sealed::seal(&first, &[&site.root]).unwrap()).unwrap();
    let error = Rotation::open(&site.state_dir()).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("charter.jws") && error.contains("charter 2 was in force and this is 1"),
        "{error}"
    );
    fs::remove_file(site.state_dir().join("charter.jws")).unwrap();
    let error = Rotation::open(&site.state_dir()).map(drop).unwrap_err().to_string();
    assert!(error.contains("charter 2 was in force and this is 0"), "{error}");
}

#[test]
fn what_is_heard_is_bounded_and_only_what_a_root_signed() {
    let site = Site1::new();
    let rotation = site.open();
    let heard = |crls: Vec<Vec<u8>>| Heard { crls, ..Heard::default() };
    let now = OffsetDateTime::now_utc();
    let stranger = root(YEAR).sign_crl(&[], 1, now, now + time::Duration::DAY).unwrap().to_vec();
    assert!(!rotation.hear(&heard(vec![stranger, b"0".to_vec(), Vec::new()]), SystemTime::now()).news);
    let lists: Vec<Vec<u8>> = (0..70).map(|number| site.crl(number)).collect();
    assert!(rotation.hear(&heard(lists.clone()), SystemTime::now()).news);
    assert_eq!(rotation.crls(), lists[69..], "the newest is heard, however many were there before");
    assert!(!rotation.hear(&heard(lists), SystemTime::now()).news, "and those before it are no news");
}

/// Each statement is a few kilobytes that every node of the fabric keeps and tells on.
#[test]
fn who_holds_one_ca_can_not_keep_the_taints_of_others_out() {
    use isthmus_pki::rotation::taint;

    let site = Site1::new();
    let rotation = site.open();
    let ca = || site.new_ca();
    let thief = ca();
    let many = (0..300).map(|since| taint::seal(&thief, since, "mine").unwrap());
    assert!(rotation.hear(&Heard { taints: many.collect(), ..Heard::default() }, SystemTime::now()).news);
    assert_eq!(rotation.taints().len(), 1);
    let other = ca();
    let heard = Heard { taints: vec![taint::seal(&other, 0, "").unwrap()], ..Heard::default() };
    assert!(rotation.hear(&heard, SystemTime::now()).news);
    assert_eq!(rotation.taints().len(), 2);
    // All places of its site taken: who orders is told that nobody else will hear.
    for _ in 0..20 {
        let taints = vec![taint::seal(&ca(), 0, "").unwrap()];
        rotation.hear(&Heard { taints, ..Heard::default() }, SystemTime::now());
    }
    assert_eq!(rotation.taints().len(), 16);
    let own = rotation.state().active().unwrap().key.to_string();
    let outcome = order(&rotation, Verb::Taint(own, "sold".into()), Some("a test"));
    let told = outcome.notes.iter().find(|note| note.contains("no room"));
    assert!(outcome.applied && told.is_some_and(|note| note.contains("publish a charter")), "{outcome:?}");
    assert!(site.reconcile(&rotation, None).unwrap().issuer.is_none(), "and here it is refused");
}

/// A statement about a CA of ours that came from outside is obeyed here as if it had been ordered, once.
#[test]
fn a_taint_of_our_own_ca_that_is_heard_stops_it() {
    let site = Site1::new();
    let rotation = site.open();
    let ca = crate::identity::issuing::load_authority(&site.issuer).unwrap();
    let statement = isthmus_pki::rotation::taint::seal(&ca, 7, "found on a stick").unwrap();
    let heard = Heard { taints: vec![statement], ..Heard::default() };
    assert!(rotation.hear(&heard, SystemTime::now()).news);
    let key = KeyHash::of(ca.facts());
    assert_eq!(rotation.state().ca(&key).unwrap().phase, Phase::Tainted);
    assert!(site.reconcile(&rotation, None).unwrap().issuer.is_none());
    assert!(journal(&site).iter().any(|line| line["by"] == "a statement from another node"));
    let lines = journal(&site).len();
    assert!(!rotation.hear(&heard, SystemTime::now()).news);
    // Said by another instance of the same CA, in other words: nothing more to do.
    let other = isthmus_pki::rotation::taint::seal(&ca, 8, "and sold on").unwrap();
    assert!(!rotation.hear(&Heard { taints: vec![other], ..Heard::default() }, SystemTime::now()).news);
    assert_eq!(journal(&site).len(), lines);
}

/// As on a full disk: what could not be obeyed when it was heard is obeyed later, though nobody says it again.
#[test]
fn a_taint_that_could_not_be_obeyed_is_obeyed_later() {
    let site = Site1::new();
    let rotation = site.open();
    let ca = crate::identity::issuing::load_authority(&site.issuer).unwrap();
    let statement = isthmus_pki::rotation::taint::seal(&ca, 7, "found on a stick").unwrap();
    let blocked = rotation.lock().dir.join("journal.jsonl");
    fs::remove_file(&blocked).ok();
    fs::create_dir_all(&blocked).unwrap();
    rotation.hear(&Heard { taints: vec![statement], ..Heard::default() }, SystemTime::now());
    let phase = || rotation.state().ca(&KeyHash::of(ca.facts())).unwrap().phase;
    assert_eq!(phase(), Phase::Active);
    // It is refused before it is obeyed, and without any file of the configuration.
    let believed = rotation.believed(SystemTime::now()).unwrap();
    assert!(believed.store().policy().check_ca(ca.facts()).is_err());
    assert!(!rotation.obey_again(SystemTime::now()));
    fs::remove_dir(&blocked).unwrap();
    assert!(rotation.obey_again(SystemTime::now()));
    assert_eq!(phase(), Phase::Tainted);
    assert!(!rotation.obey_again(SystemTime::now()), "once");
}

/// A directory where the next file would be made: nothing can be replaced, and the journal can be written.
fn full_disk(site: &Site1) -> PathBuf {
    let in_the_way = site.state_dir().join("state.new");
    fs::create_dir(&in_the_way).unwrap();
    in_the_way
}

#[test]
fn a_taint_that_could_not_be_written_down_is_done_when_it_is_ordered_again() {
    let site = Site1::new();
    let rotation = site.open();
    let next = site.prepare(&rotation);
    let bad = rotation.state().cas[0].key.clone();
    let written = || fs::read_to_string(site.state_dir().join("state.json")).unwrap();
    let (before, file) = (rotation.state(), written());
    let taint = || request(Verb::Taint(bad.to_string(), "sold".into()), None);
    let disk = full_disk(&site);
    let error = rotation.order(&taint(), false, SystemTime::now()).unwrap_err().to_string();
    assert!(error.contains("state.json"), "{error}");
    assert_eq!((rotation.state(), written(), rotation.taints().len()), (before, file, 0));
    assert_eq!(journal(&site).last().unwrap()["outcome"], "failed");
    fs::remove_dir(disk).unwrap();
    let outcome = rotation.order(&taint(), false, SystemTime::now()).unwrap();
    assert!(outcome.applied && outcome.condemns, "{outcome:?}");
    assert_eq!(rotation.state().active().unwrap().key, next);
    assert!(written().contains("tainted") && rotation.taints().len() == 1);
}

#[test]
fn a_taint_that_is_ordered_again_makes_up_for_what_is_missing() {
    let site = Site1::new();
    let rotation = site.open();
    let bad = rotation.state().active().unwrap().key.clone();
    let taint = |dry_run| {
        let request = request(Verb::Taint(bad.to_string(), "sold".into()), Some("a test"));
        rotation.order(&request, dry_run, SystemTime::now()).unwrap()
    };
    assert!(taint(false).applied);
    let lines = journal(&site).len();
    // As if neither the statement could be signed nor the file be written.
    rotation.lock().taints = Default::default();
    let path = site.state_dir().join("state.json");
    fs::remove_file(&path).unwrap();
    let dry = taint(true);
    assert!(!dry.again && rotation.taints().is_empty() && !path.exists(), "{dry:?}");
    let outcome = taint(false);
    assert!(
        outcome.again && !outcome.applied && !outcome.condemns && outcome.effects.is_empty(),
        "{outcome:?}"
    );
    assert_eq!(rotation.taints().len(), 1);
    assert_eq!(Rotation::open(&site.state_dir()).unwrap().taints(), rotation.taints());
    assert_eq!(journal(&site).len(), lines);
}

#[test]
fn what_was_heard_and_not_written_down_is_written_with_the_next_occasion() {
    let site = Site1::new();
    let rotation = site.open();
    let statement = isthmus_pki::rotation::taint::seal(&site.new_ca(), 7, "").unwrap();
    let heard = Heard { taints: vec![statement], ..Heard::default() };
    let kept = || Rotation::open(&site.state_dir()).unwrap().taints().len();
    let disk = full_disk(&site);
    assert!(rotation.hear(&heard, SystemTime::now()).news, "in force all the same");
    assert_eq!((rotation.taints().len(), kept()), (1, 0));
    fs::remove_dir(disk).unwrap();
    assert!(!rotation.hear(&heard, SystemTime::now()).news);
    assert_eq!(kept(), 1);
    let disk = full_disk(&site);
    report(&rotation, "gw1", 1);
    fs::remove_dir(disk).unwrap();
    site.reconcile(&rotation, None).unwrap();
    assert!(Rotation::open(&site.state_dir()).unwrap().fleet().knows("gw1"));
}

/// Every file below, with what is in it.
fn files_of(dir: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let Ok(entries) = fs::read_dir(dir) else { return Default::default() };
    entries.map(|entry| entry.unwrap().path()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn who_only_checks_changes_nothing_on_disk_whatever_the_charter_says() {
    let mut site = Site1::new();
    let rotation = site.open();
    // The next root, known beside the first, with a CA under the first that was requested and comes too late.
    let second = root(YEAR);
    let both = site.charter(&rotation, 1, &[&site.root, &second]);
    assert!(site.publish(&rotation, &both).applied);
    let late = site.prepare(&rotation);
    let key_file = site.state_dir().join(format!("ca-{}.key", late.short()));
    let spki = Key::generate(Curve::P256).unwrap();
    let moved = sign(&second, spki.public().spki());
    fs::write(&site.issuer.certificate, to_pem([&moved])).unwrap();
    site.reconcile(&rotation, None).unwrap();
    // A charter that drops the first root: the CAs under it go, and their keys.
    let mut next = site.charter(&rotation, 2, &[&second]);
    next.sites[0].cas.retain(|ca| ca.root == Some(KeyHash::of(second.facts())));
    let file = site.dir.path().join("charter.jws");
    fs::write(&file, sealed::seal(&next, &[&site.root]).unwrap()).unwrap();
    let later = SystemTime::now() + Duration::from_secs(2 * 3600);
    let reconcile = |keep| {
        let inputs = Inputs {
            bundle: &site.bundle,
            charter: Some(&file),
            longest_leaf: Duration::from_secs(3600),
            issuer: Some(&site.issuer),
            site: Some(SITE),
        };
        rotation.reconcile(&inputs, later, keep).unwrap().bundle.anchors().to_vec()
    };
    let (before, state) = (files_of(&site.state_dir()), rotation.state());
    assert_eq!(reconcile(false), [second.certificate().clone()], "what would be in force is known");
    assert_eq!(files_of(&site.state_dir()), before);
    assert_eq!(rotation.state(), state);
    assert!(key_file.exists());
    assert_eq!(reconcile(true), [second.certificate().clone()]);
    assert!(!key_file.exists() && rotation.state().charter_sequence() == 2);
    site.root = second;
}

#[test]
fn a_state_with_everything_at_its_bound_is_read_back_and_a_longer_one_is_not_written() {
    use isthmus_pki::rotation::{MAX_NODES, taint};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.json");
    let mut store = Store::open(dir.path()).unwrap();
    for node in 0..MAX_NODES {
        let report = Report {
            charter_sequence: u64::MAX,
            bundle_sequence: u64::MAX,
            svid_issuer: Some(KeyHash::of_spki(b"x")),
            // Two bytes of JSON each.
            svid_serial: "\"".repeat(128),
            svid_not_after: i64::MIN,
            version: "\"".repeat(64),
            at: i64::MAX,
        };
        store.fleet.report(&format!("{node:063}"), report).unwrap();
    }
    store.save().unwrap();
    let rest = MAX_TAINTS * taint::MAX_LEN + 2 * MAX_CRL_BYTES + (1 << 20);
    let length = usize::try_from(fs::metadata(&path).unwrap().len()).unwrap();
    assert!(length + rest <= 16 << 20, "{length} and {rest} bytes");
    assert_eq!(Store::open(dir.path()).unwrap().fleet.nodes().count(), MAX_NODES);
    let error = disk::replace(&path, &vec![b' '; (16 << 20) + 1]).unwrap_err().to_string();
    assert!(error.contains("state.json") && error.contains("16777216"), "{error}");
    assert_eq!(fs::metadata(&path).unwrap().len(), length as u64, "the old one is there");
}
