//! The charter with the real `isthmus-ca`: drafted, signed, verified, compared.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output},
};

use tempfile::TempDir;

struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        this.write("pass", "correct horse battery staple");
        fs::set_permissions(this.0.path().join("pass"), fs::Permissions::from_mode(0o600)).unwrap();
        for root in ["root-a", "root-b"] {
            this.ok(&format!("root init --trust-domain fabric.example --out {root} --passphrase-file pass"));
        }
        this.ok("site csr --site aws-use1 --trust-domain fabric.example --out site");
        this.ok("site sign --csr site/site-ca.csr --root root-a --site aws-use1 --passphrase-file pass");
        this
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn run(&self, arguments: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus-ca"));
        command.current_dir(self.0.path()).args(arguments.split(' ')).output().unwrap()
    }

    fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "isthmus-ca {arguments}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "isthmus-ca {arguments}");
        said(&output)
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn draft(sequence: u32, roots: &str) -> String {
    format!(
        "trust_domain = \"fabric.example\"\nsequence = {sequence}\n{roots}\n[[site]]\nname = \"aws-use1\"\nids = [\"/\"]\n\
         [[site.ca]]\ncertificate = \"site/site-ca.pem\"\nstate = \"active\"\n"
    )
}

fn root(name: &str, state: &str) -> String {
    format!("[[root]]\ncertificate = \"{name}/root.pem\"\nstate = \"{state}\"\n")
}

#[test]
fn a_charter_is_drafted_signed_and_followed_by_the_next() {
    let desk = Desk::new();
    desk.write("one.toml", &draft(1, &root("root-a", "active")));
    let sign = |name: &str, more: &str| {
        format!(
            "charter sign --charter {name}.toml --root root-a --passphrase-file pass --out {name}.jws{more}"
        )
    };
    let dry = desk.ok(&sign("one", " --dry-run"));
    assert!(
        dry.contains("dry run, nothing was made")
            && dry.contains("aws-use1 (IDs under: /)")
            && !desk.0.path().join("one.jws").exists(),
        "{dry}"
    );
    let signed = desk.ok(&sign("one", " --transcript transcript.jsonl --operator Alice"));
    let transcript = desk.ok("transcript verify transcript.jsonl --root root-a/root.pem");
    assert!(
        transcript.contains("charter file=\"one.jws\"") && transcript.contains("sequence=\"1\""),
        "{transcript}"
    );
    assert!(transcript.contains("aws-use1 (IDs under: /)"), "{transcript}");
    assert!(signed.contains("charter 1 of fabric.example") && signed.contains("signed by"), "{signed}");
    assert!(desk.refused(&sign("one", "")).contains("not overwritten"));
    assert!(
        desk.ok("charter verify one.jws --bundle root-a/root.pem")
            .contains("charter 1 of fabric.example holds")
    );
    let stranger = desk.refused("charter verify one.jws --bundle root-b/root.pem");
    assert!(stranger.contains("no root that this node trusts now"), "{stranger}");

    // Both roots, then the new one alone: signed by both, so that a node which knows either can follow.
    desk.write("two.toml", &draft(2, &(root("root-a", "retiring") + &root("root-b", "active"))));
    let two = desk.ok(&sign("two", " --after one.jws -o json"));
    assert!(two.contains("active -> retiring") && two.contains("new, active"), "{two}");
    let two: serde_json::Value = serde_json::from_str(&two).unwrap();
    assert_eq!(
        (&two["schema"], &two["sequence"], &two["after"]),
        (&"isthmus.charter-sign/v1".into(), &2.into(), &1.into())
    );
    assert_eq!((&two["charter"], two["signed_by"].as_array().unwrap().len()), (&"two.jws".into(), 1));
    assert!(desk.ok("charter diff one.jws two.jws").contains("active -> retiring"));
    assert!(desk.ok("charter diff two.jws one.jws").contains("a node would refuse it"));
    let back = desk.refused("charter verify one.jws --bundle root-a/root.pem --after two.jws");
    assert!(back.contains("never goes back"), "{back}");
    let early = desk.0.path().join("three.toml");
    fs::write(&early, draft(3, &root("root-b", "active"))).unwrap();
    assert!(desk.refused(&sign("three", "")).contains("keep that root"));
    let gone = draft(3, &root("root-b", "active"))
        .replace("state = \"active\"\n[[site]]", "state = \"active\"\n\n[[site]]");
    fs::write(
        &early,
        gone.replace("site-ca.pem\"\nstate = \"active\"", "site-ca.pem\"\nstate = \"revoked\""),
    )
    .unwrap();
    desk.ok("charter sign --charter three.toml --root root-a --root root-b --passphrase-file pass --passphrase-file pass --out three.jws");
    for known in ["root-a", "root-b"] {
        desk.ok(&format!("charter verify three.jws --bundle {known}/root.pem --after two.jws"));
    }
    assert!(desk.ok("charter show three.jws").contains("revoked: what it issued is refused"));
}
