//! The transcript of a whole ceremony.

use std::fs;

use crate::rig::{Ceremony, openssl_is_there};

const SHARES: &str = "--share shares/share-1.txt --share shares/share-3.txt";
const VERIFY: &str = "transcript verify t.jsonl --root root/root.pem";

/// Root, one site CA, one refusal, one list; all in t.jsonl.
fn recorded() -> Ceremony {
    let ceremony = Ceremony::empty();
    let record = "--transcript t.jsonl --operator Alice --operator Bob";
    ceremony.ok(&format!("root init --trust-domain a --out root --shares 2/3 --share-out shares {record}"));
    ceremony.ok("site csr --site s --trust-domain a --out site");
    let sign = format!("site sign --csr site/site-ca.csr --root root {SHARES} {record}");
    ceremony.ok(&format!("{sign} --site s"));
    ceremony.fails(&format!("{sign} --site t --out x"), &["of site \"s\""]);
    ceremony.ok(&format!("crl sign --root root --out crl {SHARES} {record}"));
    ceremony
}

#[test]
fn all_that_was_done_is_in_it_and_sealed() {
    let ceremony = recorded();
    let json = ceremony.json(VERIFY);
    assert_eq!((&json["seals"], &json["lines"]), (&4.into(), &14.into()), "{json}");
    let events: Vec<_> =
        json["events"].as_array().unwrap().iter().map(|e| e.as_str().unwrap().to_owned()).collect();
    let has = |words: &[&str]| events.iter().any(|event| words.iter().all(|word| event.contains(word)));
    let facts = ceremony.json("inspect site/site-ca.pem")["items"][0].clone();
    assert!(
        has(&["certificate", facts["sha256"].as_str().unwrap(), facts["serial"].as_str().unwrap()]),
        "{events:?}"
    );
    assert!(
        has(&["begin", "site sign", "Alice", "Bob", "isthmus-ca ", "AWS-LC", "clock_confirmed=\"no\""]),
        "{events:?}"
    );
    assert!(has(&["refusal", "this is the request of site"]), "{events:?}");
    assert!(has(&["crl", "this_update"]) && has(&["root", "shares 2 of 3"]), "{events:?}");
    let tool = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA256,
        &fs::read(env!("CARGO_BIN_EXE_isthmus-ca")).unwrap(),
    );
    assert!(has(&["begin", &hex::encode(tool)]), "{events:?}");
    let text = ceremony.read("t.jsonl");
    let share = ceremony.read("shares/share-1.txt");
    let data = share.lines().find(|line| line.starts_with("Data 1")).unwrap()[11..30].replace(' ', "");
    assert!(!text.contains(&data) && !text.contains("PRIVATE"));
}

#[test]
fn a_changed_or_shortened_transcript_is_found_out() {
    let ceremony = recorded();
    let text = ceremony.read("t.jsonl");
    let head = ceremony.json(VERIFY)["head_sha256"].clone();
    ceremony.write("t.jsonl", &text.replace("Bob", "Eve"), 0o644);
    ceremony.fails(VERIFY, &["t.jsonl", "line 2 does not follow"]);
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    ceremony.write("t.jsonl", &lines[..lines.len() - 1].concat(), 0o644);
    ceremony.fails(VERIFY, &["not sealed"]);
    ceremony.write("t.jsonl", &lines[..3].concat(), 0o644);
    assert_ne!(ceremony.json(VERIFY)["head_sha256"], head, "one that lost whole sittings has another head");
    ceremony.write("t.jsonl", &text[..text.len() - 5], 0o644);
    ceremony.fails(VERIFY, &["does not end"]);
    // Nor does a ceremony go on after a transcript that is not sound.
    let crl = format!("crl sign --root root --out crl2 {SHARES} --transcript t.jsonl");
    ceremony.fails(&crl, &["t.jsonl", "does not end"]);
    assert!(!ceremony.path("crl2").exists());
    let other = Ceremony::split();
    other.write("t.jsonl", &text, 0o644);
    other.fails(VERIFY, &["neither the root's"]);
}

#[test]
fn a_clock_that_people_contradict_stops_the_ceremony() {
    let ceremony = Ceremony::split();
    let crl = format!("crl sign --root root --out crl {SHARES} --transcript t.jsonl --clock-confirmed");
    ceremony.fails(
        &format!("{crl} 2020-01-01T00:00:00Z"),
        &["clock says", "2020-01-01T00:00:00Z", "set the clock"],
    );
    assert!(!ceremony.path("t.jsonl").exists() && !ceremony.path("crl").exists());
    let now = time::OffsetDateTime::now_utc();
    let now = now.format(&time::format_description::well_known::Rfc3339).unwrap();
    ceremony.ok(&format!("{crl} {now}"));
    assert!(ceremony.read("t.jsonl").contains(&format!("\"clock_confirmed\":\"{}", &now[..13])));
    assert_eq!(
        ceremony.run("crl sign --root root --out x --clock-confirmed 2020-01-01T00:00:00Z").status.code(),
        Some(2)
    );
}

/// Nothing that the transcript does not have leaves: it is written first, and a disk that is full stops the ceremony.
#[test]
fn a_full_disk_under_the_transcript_stops_the_ceremony() {
    let ceremony = Ceremony::split();
    ceremony
        .on_a_full_disk(&format!("crl sign --root root --out crl {SHARES} --transcript t.jsonl"), "t.jsonl");
    assert!(!ceremony.path("crl").exists());
    assert_eq!(ceremony.read("t.jsonl"), "", "no half of a line stays");
    ceremony.ok(&format!("crl sign --root root --out crl {SHARES} --transcript t.jsonl"));
    ceremony.ok(VERIFY);
}

/// Whoever combines shares can sign everything: that it was done is worth a line.
#[test]
fn combining_shares_is_written_down_if_they_open_the_root() {
    let ceremony = Ceremony::split();
    let combine = format!("share combine {SHARES} --out p --transcript t.jsonl --operator Alice");
    ceremony.fails(&combine, &["--transcript needs --root DIR"]);
    ceremony.ok(&format!("{combine} --root root"));
    let events = ceremony.json(VERIFY)["events"].to_string();
    assert!(
        events.contains("combine file=") && events.contains("1 3") && events.contains("Alice"),
        "{events}"
    );
    assert!(!ceremony.read("t.jsonl").contains(ceremony.read("p").trim()), "not the passphrase itself");
    let other = Ceremony::split();
    let other_root = other.path("root");
    let foreign = combine.replace("--out p", "--out q");
    ceremony
        .fails(&format!("{foreign} --root {}", other_root.display()), &["is wrapped by the shares of set"]);
    assert!(!ceremony.path("q").exists());
}

/// What could not be written is not in the transcript: its seal would be that of a root that nobody has.
#[test]
fn a_full_disk_under_the_files_leaves_the_transcript_as_it_was() {
    let ceremony = Ceremony::empty();
    let init = "root init --trust-domain a --out root --shares 2/3 --share-out shares --transcript t.jsonl";
    ceremony.on_a_full_disk(init, "root/root.");
    assert_eq!(ceremony.everything(), [], "neither key, share nor a line in the transcript");
    ceremony.ok(init);
    ceremony.ok(VERIFY);
    ceremony.write(
        "plan.toml",
        "trust_domain = \"a\"\n[[site]]\nname = \"s\"\n[[site]]\nname = \"t\"\n",
        0o644,
    );
    for site in ["s", "t"] {
        ceremony.ok(&format!("site csr --site {site} --trust-domain a --out in/{site}"));
    }
    let sitting = format!(
        "sitting root --plan plan.toml --requests in --root root --out out {SHARES} --transcript t.jsonl"
    );
    let before = ceremony.everything();
    ceremony.on_a_full_disk(&sitting, "out/s/site-ca.pem");
    assert_eq!(ceremony.everything(), before);
    // The directory of the second site can't be made.
    ceremony.write("out", "a file", 0o644);
    ceremony.fails(&sitting, &["out/s"]);
    fs::remove_file(ceremony.path("out")).unwrap();
    fs::create_dir(ceremony.path("out")).unwrap();
    ceremony.write("out/t", "a file", 0o644);
    ceremony.fails(&sitting, &["out/t"]);
    fs::remove_dir_all(ceremony.path("out")).unwrap();
    assert_eq!(ceremony.everything(), before);
    ceremony.ok(&sitting);
    assert_eq!(ceremony.json(VERIFY)["seals"], 2);
}

/// Without this tool: the chain with sha256sum, a seal with OpenSSL.
#[test]
fn openssl_verifies_a_seal() {
    if !openssl_is_there() {
        return;
    }
    let ceremony = recorded();
    let text = ceremony.read("t.jsonl");
    let seal: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let field = |name: &str| seal[name].as_str().unwrap().to_owned();
    let message =
        format!("isthmus statement, transcript seal 1\n{} {} {}", seal["seq"], field("time"), field("prev"));
    ceremony.write("message", &message, 0o644);
    fs::write(ceremony.path("signature"), hex::decode(seal["event"]["signature"].as_str().unwrap()).unwrap())
        .unwrap();
    let key = ceremony.openssl("x509 -in root/root.pem -noout -pubkey");
    ceremony.write("root.pub", &key, 0o644);
    ceremony.openssl("dgst -sha384 -verify root.pub -signature signature message");
}
