//! What strangers write into requests, certificates and tokens is shown as what it is: it neither drives the terminal nor forges a line.

use std::{fs, process::Command};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use isthmus_pki::text::is_hostile;

use crate::rig::{Ceremony, openssl_is_there};

/// Escape, line break, C1 control and a change of direction.
const HOSTILE: &str = "x\u{1b}[14A\nok: FORGED\u{9b}2J\u{202e}y";

/// Nothing of the output is hostile, no line is forged; what was said.
fn said(ceremony: &Ceremony, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus-ca"));
    let output = command.current_dir(ceremony.path("")).args(arguments).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!text.replace('\n', "").contains(is_hostile), "{arguments:?}: {text:?}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("ok: FORGED")), "{arguments:?}: {text}");
    (output.status.success(), text)
}

fn openssl(ceremony: &Ceremony, arguments: &[&str]) {
    let mut command = Command::new("openssl");
    let output = command.current_dir(ceremony.path("")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

const KEY: [&str; 6] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-utf8"];

#[test]
fn a_request_that_says_more_than_it_should_is_refused() {
    if !openssl_is_there() {
        return;
    }
    let ceremony = Ceremony::new();
    ceremony.write("plan.toml", "trust_domain = \"fabric.example\"\n[[site]]\nname = \"aws-use1\"\n", 0o644);
    let sign = ["site", "sign", "--csr", "fake.csr", "--root", "root", "--site", "aws-use1", "--out", "x"];
    let sign = [&sign[..], &["--passphrase-file", "pass"]].concat();
    for subject in
        [format!("/CN=Isthmus site CA aws-use1/O={HOSTILE}"), "/CN=Isthmus site CA aws-use1/O=a".into()]
    {
        let request = ["-keyout", "k", "-out", "fake.csr", "-subj", &subject];
        let name = ["-addext", "subjectAltName=URI:spiffe://fabric.example"];
        openssl(&ceremony, &[&["req", "-new"], &KEY[..], &request, &name].concat());
        for arguments in [
            &["csr", "review", "fake.csr", "--plan", "plan.toml"][..],
            &sign,
            &[&sign[..], &["--plan", "plan.toml"]].concat(),
            &[&sign[..], &["--dry-run"]].concat(),
        ] {
            let (fine, text) = said(&ceremony, arguments);
            assert!(!fine && text.contains("nothing else; make it with `isthmus-ca site csr`"), "{text}");
        }
        said(&ceremony, &["inspect", "fake.csr"]);
    }
    assert!(!ceremony.path("x").exists());
}

#[test]
fn what_a_certificate_says_can_not_forge_a_line() {
    if !openssl_is_there() {
        return;
    }
    let ceremony = Ceremony::new();
    let subject = format!("/CN={HOSTILE}");
    let make = ["-keyout", "k", "-out", "fake.pem", "-subj", &subject];
    let names = ["-addext", "subjectAltName=URI:spiffe://a/\u{1b}[2J,DNS:b\u{1b}[2J"];
    openssl(&ceremony, &[&["req", "-x509"], &KEY[..], &make, &names].concat());
    let (_, text) = said(&ceremony, &["inspect", "fake.pem"]);
    assert!(text.contains("CN=x\\u{1b}[14A\\nok: FORGED\\u{9b}2J\\u{202e}y"), "{text}");
    let (_, json) = said(&ceremony, &["inspect", "-o", "json", "fake.pem"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["items"][0]["subject"], format!("CN={HOSTILE}"), "a program gets it as it is");
    for arguments in [
        &["verify", "--bundle", "fake.pem", "--chain", "node/node.pem"][..],
        &["verify", "--bundle", "root/root.pem", "--chain", "fake.pem"],
        &["verify", "--bundle", "fake.pem", "--chain", "fake.pem", "--as", "all"],
        &["crl", "sign", "--root", "root", "--revoke", "fake.pem", "--out", "x"],
        &[
            "node",
            "sign",
            "--csr",
            "node/node.csr",
            "--ca",
            "fake.pem",
            "--ca-key",
            "k",
            "--site",
            "s",
            "--name",
            "n",
        ],
    ] {
        assert!(!said(&ceremony, arguments).0, "{arguments:?}");
    }
}

#[test]
fn nor_can_tokens_keys_and_names_of_files() {
    let ceremony = Ceremony::empty();
    let part = |value: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(serde_json::json!({"alg": "ES256", "kid": HOSTILE, HOSTILE: 1}));
    let claims = part(serde_json::json!({"sub": HOSTILE, "aud": [HOSTILE], "exp": 1}));
    ceremony.write("token", &format!("{header}.{claims}.AAAA"), 0o644);
    let keys = serde_json::json!({"keys": [{"kty": HOSTILE, "use": HOSTILE, "kid": HOSTILE}]});
    ceremony.write("jwks", &keys.to_string(), 0o644);
    let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": HOSTILE}, "data": {HOSTILE: "AAAA"}});
    ceremony.write("secret", &secret.to_string(), 0o644);
    ceremony.write(
        "block",
        &format!("-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n", HOSTILE.replace('\n', "")),
        0o644,
    );
    for file in ["token", "jwks", "secret", "block"] {
        let (_, text) = said(&ceremony, &["inspect", file]);
        assert!(text.contains("\\u{1b}[14A"), "{file}: {text}");
        said(&ceremony, &["inspect", "-o", "json", file]);
        assert!(!said(&ceremony, &["verify", "--bundle", file, "--chain", file]).0, "{file}");
        assert!(!said(&ceremony, &["verify", "--bundle", file, "--chain", file, "--as", "go"]).0, "{file}");
    }
    fs::write(ceremony.path(HOSTILE), "nothing").unwrap();
    assert!(!said(&ceremony, &["inspect", HOSTILE]).0);
    assert!(!said(&ceremony, &["csr", "review", HOSTILE, "--plan", HOSTILE]).0);
}
