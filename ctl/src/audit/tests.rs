//! A log of three files with a real head, whole and damaged.

use std::fs;
use std::path::PathBuf;

use isthmus_pki::audit::{Chain, Entry, Head, Kind, names, proof};
use isthmus_pki::{Authority, Curve, Key, Profile, Serial, TrustDomain, bundle};
use tempfile::TempDir;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use super::cli::Conditions;
use super::*;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

struct Log {
    dir: TempDir,
    path: PathBuf,
}

fn serial(number: u8) -> Serial {
    Serial::from_random([number; 16])
}

fn site_ca(root: &Authority) -> Authority {
    let key = Key::generate(Curve::P256).expect("a key");
    let profile = Profile::SiteCa { site: "s".into(), lifetime: Duration::days(90) };
    let issued = root.issue(&profile, &key.public(), serial(2), NOW).expect("issued");
    Authority::load(issued.certificate, key).expect("a CA")
}

fn root() -> Authority {
    let domain = TrustDomain::parse("td").expect("valid");
    let key = Key::generate(Curve::P384).expect("a key");
    Authority::root(&domain, key, Duration::days(3650), serial(1), NOW).expect("a root")
}

impl Log {
    /// Three files of four records: one that opens it, three certificates with serials 1, 2, 3... The head covers all; `kept` is the
    /// one after the first file.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.jsonl");
        let (mut chain, mut kept) = (Chain::default(), None);
        for file in 0..3 {
            let first = chain.size() + 1;
            let mut text = Vec::new();
            chain.open(&entry(Kind::Opened, ""), &mut text);
            (1..4)
                .for_each(|n| chain.append(&entry(Kind::X509, &format!("{:02x}", file * 3 + n)), &mut text));
            let name = if file == 2 { "audit.jsonl".into() } else { names::full_file("audit.jsonl", first) };
            fs::write(dir.path().join(name), text).expect("written");
            kept = kept.or_else(|| Some(Head::of(chain.tree(), NOW)));
        }
        let (root, log) = (root(), Self { dir, path });
        log.write("root.pem", &bundle::to_pem([root.certificate()]));
        let site = site_ca(&root);
        let sign = |head: &Head| head.sign(&site).expect("signed");
        log.write("audit.jsonl.head", &sign(&Head::of(chain.tree(), NOW)));
        log.write("kept", &sign(&kept.expect("a first file")));
        log
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).expect("written");
    }

    fn verify(&self) -> Result<verify::VerifiedDocument, Failure> {
        verify::verify(&self.path, Some(&self.file("root.pem")), &[])
    }

    /// Changes a file and says what `verify` says then.
    fn broken(&self, name: &str, change: impl FnOnce(String) -> String) -> String {
        let path = self.dir.path().join(name);
        let text = fs::read_to_string(&path).expect("there");
        self.write(name, &change(text.clone()));
        let failure = self.verify().expect_err("broken");
        self.write(name, &text);
        let Failure::Told { code: 1, what, .. } = failure else { panic!("{failure:?}") };
        what
    }
}

fn entry(kind: Kind, serial: &str) -> Entry<'_> {
    Entry { time: NOW, kind, id: "spiffe://td/w", serial, not_after: None, requester: "", reason: "" }
}

fn json(document: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(document).expect("JSON")
}

#[test]
fn a_whole_log_agrees_with_its_head() {
    let log = Log::new();
    let document = json(&log.verify().expect("whole"));
    assert_eq!(
        (&document["first"], &document["last"], &document["head_met"]),
        (&1.into(), &12.into(), &true.into())
    );
    assert_eq!(document["head"]["root"], document["root"]);
    assert_eq!(document["head"]["trusted"], true);
    let head = json(&head::show(&log.path, None).expect("a head"));
    assert_eq!((&head["records"], &head["trusted"]), (&12.into(), &serde_json::Value::Null));
}

#[test]
fn the_first_break_is_named_by_file_and_line() {
    let log = Log::new();
    let what =
        log.broken("audit.jsonl.000000000005", |text| text.replacen("spiffe://td/w", "spiffe://td/x", 2));
    assert!(what.contains("audit.jsonl.000000000005: line 1: the line was changed"), "{what}");
    let what =
        log.broken("audit.jsonl", |text| text.lines().take(2).map(|line| format!("{line}\n")).collect());
    assert!(what.contains("the last 2 were removed"), "{what}");
    let what = log.broken("audit.jsonl", |text| text[..text.len() - 20].to_owned());
    assert!(what.contains("audit.jsonl: line 4") && what.contains("cut off"), "{what}");
    // A signature may end in an A by itself.
    let other = |text: &str| if text.ends_with('A') { 'Q' } else { 'A' };
    let what = log.broken("audit.jsonl.head", |text| format!("{}{}", &text[..text.len() - 1], other(text)));
    assert!(what.contains("audit.jsonl.head"), "{what}");
    let what = log.broken("root.pem", |_| bundle::to_pem([root().certificate()]));
    assert!(what.contains("not signed by a site CA of these roots"), "{what}");
}

#[test]
fn archived_files_may_be_away() {
    let log = Log::new();
    fs::remove_file(log.dir.path().join("audit.jsonl.000000000001")).expect("there");
    assert_eq!(json(&log.verify().expect("whole"))["first"], 5);
    let Err(Failure::Told { what, .. }) = prove::prove(&log.path, "07") else {
        panic!("no proof without them")
    };
    assert!(what.contains("begins with record 5"), "{what}");
}

#[test]
fn search_finds_what_was_asked_for() {
    let log = Log::new();
    let find = |change: fn(&mut Conditions)| {
        let mut conditions = Conditions { id: None, serial: None, since: None, kind: None, limit: 1000 };
        change(&mut conditions);
        let document = json(&search::search(&log.path, conditions).expect("whole"));
        let numbers = document["records"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|r| r["seq"].as_u64().expect("a number"));
        (numbers.collect::<Vec<_>>(), document["earlier"].as_u64().expect("a number"))
    };
    assert_eq!(find(|c| c.serial = Some("05".into())), (vec![7], 0));
    assert_eq!(find(|c| c.kind = Some("opened".into())), (vec![1, 5, 9], 0));
    assert_eq!(find(|c| c.limit = 2), (vec![11, 12], 10));
    assert_eq!(find(|c| c.since = Some("2026-06-02".into())), (vec![], 0));
    assert_eq!(find(|c| c.id = Some("spiffe://td/*".into())).0.len(), 12);
}

#[test]
fn a_proof_convinces_who_has_the_head_alone() {
    let log = Log::new();
    let document = json(&prove::prove(&log.path, "05").expect("proven"));
    let text = document["signed_head"].as_str().expect("text");
    let head = isthmus_pki::audit::SignedHead::parse(text).expect("signed").head;
    let hash = |value: &serde_json::Value| {
        isthmus_pki::audit::Hash::from_hex(value.as_str().expect("text").as_bytes()).expect("a hash")
    };
    let path: Vec<_> = document["path"].as_array().expect("a list").iter().map(hash).collect();
    let leaf = hash(&document["record"]["hash"]);
    assert!(proof::verify_inclusion(leaf, 6, head.size, &path, head.root));
    assert!(matches!(prove::prove(&log.path, "ff"), Err(Failure::Told { .. })));
}

#[test]
fn who_kept_a_head_sees_that_the_log_continues_it() {
    let log = Log::new();
    let document = json(&verify::verify(&log.path, None, &[log.file("kept")]).expect("continued"));
    assert_eq!((&document["kept"][0]["records"], &document["kept"][0]["met"]), (&4.into(), &true.into()));

    let proof = serde_json::to_string(&consistency::prove(&log.path, &log.file("kept")).expect("proven"));
    log.write("proof.json", &proof.expect("JSON"));
    // What `audit head -o json` prints is as good as the file.
    let printed = head::show(&log.path, None).expect("a head");
    log.write("printed", &serde_json::to_string(&printed).expect("JSON"));
    // Without the log from here on.
    fs::remove_file(&log.path).expect("there");
    let check = |head: &str, roots: &str| {
        consistency::check(&log.file("proof.json"), &log.file(head), Some(&log.file(roots)))
    };
    let checked = json(&check("kept", "root.pem").expect("holds"));
    assert_eq!((&checked["first"], &checked["head"]["records"]), (&4.into(), &12.into()));
    assert_eq!(checked["head"]["trusted"], true);
    let Err(Failure::Told { code: 1, what, .. }) = check("printed", "root.pem") else {
        panic!("another start")
    };
    assert!(what.contains("begins at 4 records") && what.contains("covers 12"), "{what}");
    log.write("other.pem", &bundle::to_pem([root().certificate()]));
    let Err(Failure::Told { what, .. }) = check("kept", "other.pem") else { panic!("another root") };
    assert!(what.contains("not signed by a site CA of these roots"), "{what}");
}

#[test]
fn a_log_that_was_begun_anew_does_not_continue_the_head_that_was_kept() {
    let (log, other) = (Log::new(), Log::new());
    // The owner of the machine writes another history, and signs it.
    let mut chain = Chain::default();
    let mut text = Vec::new();
    chain.open(&entry(Kind::Opened, ""), &mut text);
    (1..12).for_each(|_| chain.append(&entry(Kind::X509, "ee"), &mut text));
    for full in ["audit.jsonl.000000000001", "audit.jsonl.000000000005"] {
        fs::remove_file(other.file(full)).expect("there");
    }
    other.write("audit.jsonl", &String::from_utf8(text).expect("JSON"));
    other.write("audit.jsonl.head", &Head::of(chain.tree(), NOW).sign(&site_ca(&root())).expect("signed"));
    assert!(verify::verify(&other.path, None, &[]).is_ok(), "by itself it is whole");
    for failure in [
        verify::verify(&other.path, None, &[log.file("kept")]).map(|_| ()).expect_err("another history"),
        consistency::prove(&other.path, &log.file("kept")).map(|_| ()).expect_err("another history"),
    ] {
        let Failure::Told { code: 1, what, .. } = failure else { panic!("{failure:?}") };
        assert!(what.contains("audit.jsonl: line 4") && what.contains("the signed head says"), "{what}");
    }
    // One that is shorter than what was seen.
    fs::copy(log.file("kept"), log.file("audit.jsonl.head")).expect("copied");
    let signed = Log::new();
    let Err(Failure::Told { what, help, .. }) =
        consistency::prove(&log.path, &signed.file("audit.jsonl.head"))
    else {
        panic!("a cut log")
    };
    assert!(what.contains("covers 12 records, the log's own head 4"), "{what}");
    assert!(help.is_some());
}
