//! A fabric of several sites on a clock of its own.

use std::sync::Arc;

use isthmus_pki::{
    Authority, Bundle, Curve, Key, Profile, Serial, TrustDomain,
    jwt::{self, SigningKey},
    verify::Policy,
};
use proptest::prelude::*;
use time::{Duration, macros::datetime};

use super::*;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

fn hours(count: i64) -> OffsetDateTime {
    NOW + Duration::hours(count)
}

struct Fabric(Authority);

fn serial() -> Serial {
    Serial::from_random(rand::random())
}

impl Fabric {
    fn new(domain: &str) -> Self {
        let (domain, key) = (TrustDomain::parse(domain).unwrap(), Key::generate(Curve::P384).unwrap());
        Self(Authority::root(&domain, key, Duration::days(3650), serial(), NOW).unwrap())
    }

    fn site(&self, name: &str) -> Authority {
        let key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: name.into(), lifetime: Duration::days(90) };
        let issued = self.0.issue(&profile, &key.public(), serial(), NOW).unwrap();
        Authority::load(issued.certificate, key).unwrap()
    }

    fn bundle(&self) -> Bundle {
        Bundle::parse(self.0.certificate()).unwrap()
    }

    fn trust(&self) -> Trust {
        Trust::new(self.bundle())
    }
}

/// The sequence after one that was given at NOW: so many later changes, all within the second.
fn later(changes: u64) -> u64 {
    u64::try_from(NOW.unix_timestamp()).unwrap() + changes
}

fn key() -> SigningKey {
    SigningKey::new(Key::generate(Curve::P256).unwrap()).unwrap()
}

fn endorsed(ca: &Authority, key: &SigningKey, until: i64) -> Vec<u8> {
    jwt::endorse(ca, &key.public(), hours(until), NOW).unwrap().as_str().as_bytes().to_vec()
}

fn key_ids(ring: &Keyring) -> Vec<&str> {
    ring.endorsed().map(|key| key.authority().key_id.as_str()).collect()
}

fn heard(ring: &mut Keyring, texts: &[Vec<u8>], trust: &Trust) -> Vec<String> {
    ring.hear(texts, &[], trust, NOW).iter().map(ToString::to_string).collect()
}

#[test]
fn what_a_live_site_ca_endorsed_is_taken_once_and_kept_when_it_is_not_said_again() {
    let (fabric, [a, b]) = (Fabric::new("td"), [key(), key()]);
    let (s1, s2, trust) = (fabric.site("s1"), fabric.site("s2"), fabric.trust());
    let texts = [endorsed(&s2, &b, 24), endorsed(&s1, &a, 24)];
    let mut ring = Keyring::default();
    assert_eq!(heard(&mut ring, &texts, &trust), Vec::<String>::new());
    assert_eq!((key_ids(&ring), ring.sequence()), (vec![a.key_id(), b.key_id()], later(0)));
    let before = ring.clone();
    heard(&mut ring, &texts[..1], &trust);
    heard(&mut ring, &[], &trust);
    // The same key, endorsed anew as after a restart: no longer, so the text that others have stays.
    heard(&mut ring, &[endorsed(&s1, &a, 24)], &trust);
    ring.review(&trust, NOW);
    assert_eq!(ring, before);
    heard(&mut ring, &[endorsed(&s1, &a, 30)], &trust);
    assert_eq!(
        (ring.endorsed().count(), ring.sequence()),
        (2, later(0)),
        "it lives longer and is the same key"
    );
    ring.review(&trust, hours(26));
    assert_eq!((key_ids(&ring), ring.sequence()), (vec![a.key_id()], later(26 * 3600)));
}

#[test]
fn what_nobody_of_ours_signed_is_refused() {
    let (ours, same_name, other) = (Fabric::new("td"), Fabric::new("td"), Fabric::new("other"));
    // A partner's bundle is there, and still its CAs endorse nothing here.
    let trust = ours.trust().with_federated([other.bundle()]);
    let site = ours.site("s1");
    let sound = endorsed(&site, &key(), 24);
    let mut broken = sound.clone();
    *broken.last_mut().unwrap() = if broken.ends_with(b"A") { b'Q' } else { b'A' };
    let expired = jwt::endorse(&site, &key().public(), NOW + Duration::minutes(1), NOW).unwrap();
    let mut ring = Keyring::default();
    for (text, why) in [
        (endorsed(&same_name.site("s1"), &key(), 24), "not signed by a root"),
        (endorsed(&other.site("s1"), &key(), 24), "is not ours"),
        (broken, "does not hold"),
        (b"".to_vec(), "does not hold"),
        (b"\xff".to_vec(), "not UTF-8"),
        (vec![b'A'; 17 << 10], "does not hold"),
    ] {
        let refused = heard(&mut ring, &[text], &trust);
        assert!(refused.len() == 1 && refused[0].contains(why), "{why}: {refused:?}");
    }
    let late = ring.hear(&[expired.as_str().as_bytes().to_vec()], &[], &trust, hours(1));
    assert!(late[0].to_string().contains("expired"), "{late:?}");
    let many = vec![sound; MAX_HEARD + 1];
    assert!(heard(&mut ring, &many, &trust)[0].contains("only the first"));
    assert_eq!(ring.endorsed().count(), 1);
}

#[test]
fn own_keys_are_no_news() {
    let (fabric, key) = (Fabric::new("td"), key());
    let mut ring = Keyring::default();
    let own = [key.key_id().to_owned()];
    let refused = ring.hear(&[endorsed(&fabric.site("s1"), &key, 24)], &own, &fabric.trust(), NOW);
    assert!(refused.is_empty() && ring == Keyring::default());
}

#[test]
fn a_ca_that_falls_takes_its_keys_with_it_and_no_others() {
    let (fabric, [a, b]) = (Fabric::new("td"), [key(), key()]);
    let (s1, s2) = (fabric.site("s1"), fabric.site("s2"));
    let mut ring = Keyring::default();
    heard(&mut ring, &[endorsed(&s1, &a, 24), endorsed(&s2, &b, 24)], &fabric.trust());
    let under = |policy| Trust::under(fabric.bundle(), policy, Vec::new());
    let fallen = s1.facts().key_sha256.clone();
    for policy in [
        Policy::default().with_tainted([fallen]),
        // A charter that pins another key for that site.
        Policy::default().with_pins("s1", ["00".into()]),
    ] {
        let mut ring = ring.clone();
        ring.review(&under(policy.clone()), NOW);
        assert_eq!((key_ids(&ring), ring.texts().count(), ring.sequence()), (vec![b.key_id()], 1, later(1)));
        // Nor does it come back from those who have not heard.
        let refused = heard(&mut ring, &[endorsed(&s1, &a, 24)], &under(policy));
        assert!(refused.len() == 1 && key_ids(&ring) == [b.key_id()]);
    }
    let mut ring = ring.clone();
    ring.review(&Fabric::new("td").trust(), NOW);
    assert_eq!((ring.endorsed().count(), ring.texts().count()), (0, 0), "its root is gone");
}

#[test]
fn a_clock_that_was_set_back_loses_nothing() {
    let fabric = Fabric::new("td");
    let mut ring = Keyring::default();
    heard(&mut ring, &[endorsed(&fabric.site("s1"), &key(), 24)], &fabric.trust());
    ring.review(&fabric.trust(), OffsetDateTime::UNIX_EPOCH);
    assert_eq!((ring.endorsed().count(), ring.texts().count()), (0, 0), "not believed");
    assert!(ring.is_due(OffsetDateTime::UNIX_EPOCH), "and looked at again");
    let mut again = Keyring::parse(ring.to_text().as_bytes()).unwrap();
    again.review(&fabric.trust(), NOW);
    assert_eq!((again.endorsed().count(), again.sequence()), (1, later(2)));
    assert!(!again.is_due(hours(24)) && again.is_due(hours(25)));
}

#[test]
fn a_clock_that_goes_ahead_for_a_moment_loses_nothing() {
    let (fabric, dir) = (Fabric::new("td"), tempfile::tempdir().unwrap());
    let (site, trust, path) = (fabric.site("s1"), Arc::new(fabric.trust()), dir.path().join("keys.json"));
    let keys = |keeper: &Keeper, trust: &Arc<Trust>, now: OffsetDateTime| {
        let keys = keeper.complete(trust, now.into()).own().jwt_authorities().len();
        assert_eq!(keeper.texts().len(), keys);
        keys
    };
    let keeper = Keeper::open(path.clone());
    let taken = keeper.hear(&[endorsed(&site, &key(), 24)], &[], &trust, NOW.into(), false);
    assert!(taken.news && !taken.refused);
    // Beyond the key, and beyond its CA.
    for ahead in [26, 24 * 365] {
        assert_eq!(keys(&keeper, &trust, hours(ahead)), 0, "not believed");
        assert_eq!(keys(&keeper, &trust, NOW), 1, "and not forgotten");
    }
    let keeper = Keeper::open(path);
    assert_eq!((keys(&keeper, &trust, hours(26)), keys(&keeper, &trust, NOW)), (0, 1), "nor at a start");
    // A taint is no matter of clocks.
    let policy = Policy::default().with_tainted([site.facts().key_sha256.clone()]);
    let tainting = Arc::new(Trust::under(fabric.bundle(), policy, Vec::new()));
    assert_eq!((keys(&keeper, &tainting, NOW), keys(&keeper, &trust, NOW)), (0, 0));
}

/// The successor of a CA is tainted: what the one before had endorsed of the same key falls too, and is not heard again.
#[test]
fn a_key_falls_for_every_ca_of_its_site_with_one_of_them() {
    let (fabric, key) = (Fabric::new("td"), key());
    let (one, two, other) = (fabric.site("s1"), fabric.site("s1"), fabric.site("s2"));
    let (trust, mut ring) = (fabric.trust(), Keyring::default());
    let texts = [endorsed(&one, &key, 24), endorsed(&two, &key, 24), endorsed(&other, &key, 24)];
    let untouched = endorsed(&one, &self::key(), 24);
    assert!(
        heard(&mut ring, &[texts.as_slice(), std::slice::from_ref(&untouched)].concat(), &trust).is_empty()
    );
    let policy = Policy::default().with_tainted([two.facts().key_sha256.clone()]);
    let tainting = Trust::under(fabric.bundle(), policy, Vec::new());
    ring.review(&tainting, NOW);
    let left: Vec<&[u8]> = ring.texts().map(str::as_bytes).collect();
    assert_eq!(left.len(), 2, "another site's word and another key stay");
    assert!(left.contains(&texts[2].as_slice()) && left.contains(&untouched.as_slice()));
    let refused = heard(&mut ring, &texts[..1], &tainting);
    assert!(refused[0].contains("has fallen"), "{refused:?}");
    // No endorsement of it can be valid any more then.
    ring.review(&tainting, NOW + LONGEST);
    assert!(ring.fallen.is_empty());
}

#[test]
fn what_is_kept_for_the_clocks_sake_makes_room() {
    let fabric = Fabric::new("td");
    let (trust, mut ring) = (fabric.trust(), Keyring::default());
    while ring.held.len() < MAX_KEYS {
        let site = fabric.site(&format!("s{}", ring.held.len()));
        let texts: Vec<_> =
            (0..MAX_PER_SITE.min(MAX_KEYS - ring.held.len())).map(|_| endorsed(&site, &key(), 1)).collect();
        assert_eq!(heard(&mut ring, &texts, &trust), Vec::<String>::new());
    }
    let new = [endorsed(&fabric.site("new"), &key(), 24)];
    assert!(heard(&mut ring, &new, &trust)[0].contains("no room"));
    ring.review_unsure(&trust, hours(2));
    assert_eq!((ring.held.len(), ring.endorsed().count()), (MAX_KEYS, 0));
    assert!(ring.hear(&new, &[], &trust, hours(2)).is_empty());
    assert_eq!((ring.held.len(), ring.endorsed().count()), (MAX_KEYS, 1));
    ring.review(&trust, hours(2));
    assert_eq!(ring.held.len(), 1, "the clock is right");
}

#[test]
fn one_that_ends_a_little_later_is_no_news_and_one_that_ends_far_too_late_is_refused() {
    let (fabric, key) = (Fabric::new("td"), key());
    let (site, trust) = (fabric.site("s1"), fabric.trust());
    let until = |end| {
        let made = jwt::endorse(&site, &key.public(), hours(24) + end, NOW).unwrap();
        made.as_str().as_bytes().to_vec()
    };
    let mut ring = Keyring::default();
    heard(&mut ring, &[until(Duration::ZERO)], &trust);
    let before = ring.to_text();
    for later in [Duration::SECOND, Duration::HOUR - Duration::SECOND] {
        assert!(heard(&mut ring, &[until(later)], &trust).is_empty());
        assert_eq!(ring.to_text(), before, "{later}");
    }
    heard(&mut ring, &[until(Duration::HOUR)], &trust);
    assert!(ring.to_text() != before && ring.endorsed().count() == 1);
    let refused = heard(&mut ring, &[endorsed(&site, &key, 49)], &trust);
    assert!(refused.len() == 1 && refused[0].contains("longer than two days"), "{refused:?}");
    // A full site's places are changed by those that last an hour longer alone.
    let keys: Vec<SigningKey> = (0..=MAX_PER_SITE).map(|_| self::key()).collect();
    let texts: Vec<Vec<u8>> = keys.iter().map(|key| endorsed(&site, key, 26)).collect();
    heard(&mut ring, &texts, &trust);
    let full = ring.to_text();
    let a_little =
        jwt::endorse(&site, &self::key().public(), hours(26) + Duration::minutes(59), NOW).unwrap();
    assert!(heard(&mut ring, &[a_little.as_str().as_bytes().to_vec()], &trust)[0].contains("no room"));
    assert_eq!(ring.to_text(), full);
}

/// A number stands for one content and never goes back, not even if the file is gone with all that was in it.
#[test]
fn a_keyring_that_lost_its_file_goes_on_above_what_it_told() {
    let (fabric, [a, b, c]) = (Fabric::new("td"), [key(), key(), key()]);
    let (site, trust) = (fabric.site("s1"), fabric.trust());
    let mut ring = Keyring::beginning(NOW);
    for key in [&a, &b, &c] {
        heard(&mut ring, &[endorsed(&site, key, 24)], &trust);
    }
    let told = ring.sequence();
    let mut again = Keyring::beginning(NOW + Duration::minutes(1));
    assert!(again.sequence() > told, "nothing is told that is not numbered higher");
    again.hear(&[endorsed(&site, &a, 24)], &[], &trust, NOW + Duration::minutes(1));
    assert_eq!((told, again.sequence()), (later(3), later(61)));
    // A clock of the far future is not followed to where others lose digits.
    let mut ring =
        Keyring::parse(format!(r#"{{"sequence":{},"content":"","endorsements":[]}}"#, 1u64 << 50).as_bytes())
            .unwrap();
    heard(&mut ring, &[endorsed(&site, &a, 24)], &trust);
    assert_eq!(ring.sequence(), 1 << 50);
    assert!(Keyring::parse(ring.to_text().as_bytes()).is_ok());
}

#[test]
fn no_site_crowds_out_another() {
    let fabric = Fabric::new("td");
    let (greedy, modest, trust) = (fabric.site("greedy"), fabric.site("modest"), fabric.trust());
    let mut ring = Keyring::default();
    let keys: Vec<SigningKey> = (0..=MAX_PER_SITE).map(|_| key()).collect();
    let texts = |until: i64| keys.iter().map(|key| endorsed(&greedy, key, until)).collect::<Vec<_>>();
    let refused = heard(&mut ring, &texts(24), &trust);
    assert!(
        refused.len() == 1 && refused[0].contains("no room") && refused[0].contains("greedy"),
        "{refused:?}"
    );
    // One that lives longer takes the place of one that ends first.
    assert!(heard(&mut ring, &[endorsed(&greedy, &key(), 25)], &trust).is_empty());
    assert!(heard(&mut ring, &[endorsed(&modest, &key(), 24)], &trust).is_empty());
    assert_eq!(ring.endorsed().count(), MAX_PER_SITE + 1);
}

#[test]
fn a_full_site_keeps_every_key_that_signs() {
    let fabric = Fabric::new("td");
    let (before, now, trust) = (fabric.site("s1"), fabric.site("s1"), fabric.trust());
    // Five issuers in the middle of a change of key and CA.
    let mut ring = Keyring::default();
    let keys: Vec<SigningKey> = (0..10).map(|_| key()).collect();
    let both = |key| [endorsed(&before, key, 24), endorsed(&now, key, 24)];
    let texts: Vec<Vec<u8>> = keys.iter().flat_map(both).collect();
    assert!(heard(&mut ring, &texts, &trust).is_empty());
    assert_eq!(ring.endorsed().count(), 20);
    // Others come that live shorter: what is endorsed twice gives way, as long as there is such.
    let others: Vec<Vec<u8>> = (0..15).map(|_| endorsed(&now, &key(), 23)).collect();
    assert_eq!(heard(&mut ring, &others[..14], &trust), Vec::<String>::new());
    let refused = heard(&mut ring, &others[14..], &trust);
    assert!(refused.len() == 1 && refused[0].contains("no room"), "{refused:?}");
    let held = key_ids(&ring);
    assert!(held.len() == MAX_PER_SITE && keys.iter().all(|key| held.contains(&key.key_id())));
    // And a second word for one of them takes nobody's place.
    assert_eq!(heard(&mut ring, &texts, &trust).len(), 10);
    assert_eq!(key_ids(&ring).len(), MAX_PER_SITE);
}

#[test]
fn the_file_reads_back_and_is_bounded() {
    let fabric = Fabric::new("td");
    let mut ring = Keyring::default();
    heard(&mut ring, &[endorsed(&fabric.site("s1"), &key(), 24)], &fabric.trust());
    let text = ring.to_text();
    let mut again = Keyring::parse(text.as_bytes()).unwrap();
    assert_eq!((again.endorsed().count(), again.to_text()), (0, text.clone()), "nothing is believed unseen");
    again.review(&fabric.trust(), NOW);
    assert_eq!(again, ring);

    let file = |sequence: &str, content: &str, endorsements: &str| {
        let text =
            format!(r#"{{"sequence":{sequence},"content":"{content}","endorsements":[{endorsements}]}}"#);
        Keyring::parse(text.as_bytes()).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(file("1", "", "\"a\",\"a\""), Ok(()));
    let many = vec!["\"a\""; MAX_KEYS + 1].join(",");
    let long = format!("\"{}\"", "a".repeat(17 << 10));
    for (found, why) in [
        (file("1", "", &many), "more than 160"),
        (file("1", "", &long), "too long"),
        (file("9007199254740993", "", ""), "out of range"),
        (file("-1", "", ""), "not a file of endorsed JWT keys"),
        (file("1", &"a".repeat(65), ""), "out of range"),
        (file("1", "", "1"), "not a file of endorsed JWT keys"),
        (Keyring::parse(b"").map(drop).map_err(|e| e.to_string()), "not a file"),
        (
            Keyring::parse(&vec![b' '; 7 << 20]).map(drop).map_err(|e| e.to_string()),
            "more than 6291456 bytes",
        ),
    ] {
        assert!(found.clone().is_err_and(|error| error.contains(why)), "{why}: {found:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read_back(bytes in any::<Vec<u8>>(), endorsements in any::<Vec<String>>()) {
        let _ = Keyring::parse(&bytes);
        let list = serde_json::json!({"sequence": 1, "content": "", "endorsements": endorsements}).to_string();
        if let Ok(mut ring) = Keyring::parse(list.as_bytes()) {
            prop_assert_eq!(Keyring::parse(ring.to_text().as_bytes()).unwrap(), ring.clone());
            ring.review(&Fabric::new("td").trust(), NOW);
            prop_assert_eq!(ring.endorsed().count(), 0);
        }
    }
}
