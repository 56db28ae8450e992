//! `certs doctor` and what `certs inspect` shows beside certificates: offline, no daemon.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{Run, run};

/// Runs where there is no daemon.
fn offline(arguments: &str) -> Run {
    run(Path::new("/nonexistent"), arguments)
}

#[test]
fn nothing_to_look_at_is_a_mistake_in_usage() {
    let run = offline("certs doctor");
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("--context"), "{run:?}");
}

#[test]
fn a_broken_directory_is_named_with_file_field_and_remedy() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().display();
    let root = rcgen::generate_simple_self_signed(["x".to_owned()]).expect("a certificate").cert.pem();
    fs::write(dir.path().join("ca-cert.pem"), root + "-----BEGIN CERTIFICATE-----\nAAAA\n").expect("written");
    // Not looked at: neither its name nor its ending says certificate.
    fs::write(dir.path().join("notes.txt"), "-----BEGIN CERTIFICATE-----\n").expect("written");
    let run = offline(&format!("certs doctor -o json {place}"));
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains(&format!("isthmusctl: reading {place}")), "{run:?}");
    let document: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(
        (&document["schema"], &document["worst"]),
        (&"isthmus.v1/certs-doctor".into(), &"error".into())
    );
    let findings = document["findings"].as_array().expect("a list");
    let of = |check: u64| findings.iter().find(|f| f["check"] == check).expect("every check says something");
    assert_eq!(of(12)["file"], format!("{place}/ca-cert.pem"));
    assert!(of(12)["field"].as_str().is_some_and(|field| field.starts_with("block 2 ")), "{:#}", of(12));
    assert_eq!((&of(3)["file"], &of(3)["field"]), (&format!("{place}/ca-key.pem").into(), &"file".into()));
    for field in ["what", "why", "remedy"] {
        assert!(of(3)[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    assert_eq!(of(17)["severity"], "skipped");
    let table = offline(&format!("certs doctor {place}"));
    assert!(table.stdout.contains("Why it hurts") && table.stdout.contains("istiod-accepts"), "{table:?}");
}

#[test]
fn what_holds_nothing_to_look_at_gets_no_clean_bill() {
    let dir = tempfile::tempdir().expect("a directory");
    let request = "-----BEGIN CERTIFICATE REQUEST-----\nMIIB";
    let settings = "kind: Service\napiVersion: v1\nmetadata:\n  name: web\n";
    fs::create_dir(dir.path().join("empty")).expect("made");
    for (name, text) in [("cut.pem", request), ("web.yaml", settings), ("values.yaml", "replicas: 2\n")] {
        fs::write(dir.path().join(name), text).expect("written");
    }
    for name in ["empty", "cut.pem", "web.yaml", "values.yaml"] {
        let place = dir.path().join(name).display().to_string();
        let run = offline(&format!("certs doctor -o json {place}"));
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(&format!("nothing to look at in {place}")), "{run:?}");
        let document: Value = serde_json::from_str(&run.stdout).expect("JSON");
        assert_eq!((&document["worst"], &document["errors"]), (&"skipped".into(), &0.into()));
    }
    // Beside something that is wrong the wrong comes first.
    fs::write(dir.path().join("bad.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        .expect("written");
    let place = dir.path().display();
    let run = offline(&format!("certs doctor {place}/empty {place}/bad.pem"));
    assert_eq!(run.code, Some(1), "{run:?}");
}

#[test]
fn a_named_pipe_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("pipe.pem");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    for command in ["certs doctor", "certs inspect", "certs doctor --envoy-admin"] {
        let run = offline(&format!("{command} {}", pipe.display()));
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains("pipe.pem: a named pipe"), "{run:?}");
    }
}

#[test]
fn a_file_that_is_not_there_is_told_by_its_name() {
    let run = offline("certs doctor /nonexistent/ca.pem");
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("/nonexistent/ca.pem"), "{run:?}");
}

#[test]
fn bundles_and_tokens_are_inspected() {
    let dir = tempfile::tempdir().expect("a directory");
    let show = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("written");
        offline(&format!("certs inspect -o json {}", path.display()))
    };
    let bundle =
        show("bundle.json", r#"{"spiffe_sequence":7,"keys":[{"kty":"EC","use":"jwt-svid","kid":"a"}]}"#);
    let document: Value = serde_json::from_str(&bundle.stdout).expect("JSON");
    assert_eq!((bundle.code, &document["items"][0]["type"]), (Some(0), &"bundle".into()));
    assert_eq!(document["items"][0]["keys"][0]["key_id"], "a");
    // {"alg":"none"} and {}: refused, and the signature is shown nowhere.
    let token = show("token", "eyJhbGciOiJub25lIn0.e30.c2VjcmV0");
    let document: Value = serde_json::from_str(&token.stdout).expect("JSON");
    assert_eq!((token.code, &document["items"][0]["type"]), (Some(1), &"token".into()));
    assert!(!token.stdout.contains("c2VjcmV0"));
}
