//! The ceremony with the real `isthmus-ca`, judged by OpenSSL.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and says aloud what it skips"
)]

mod crl;
mod dry_run;
mod generations;
mod key_files;
mod manual;
mod plan;
mod rig;
mod shares;
mod terminal;
mod transcript;

use std::fs;

use rig::{Ceremony, NODE_SIGN, PASSPHRASE, mode, openssl_is_there};

#[test]
fn makes_a_fabric_that_verifies() {
    let ceremony = Ceremony::new();
    for (key, want) in [
        ("root/root.key", 0o600),
        ("site/site-ca.key", 0o600),
        ("node/node.key", 0o600),
        ("node/node.pem", 0o644),
    ] {
        assert_eq!(mode(&ceremony.path(key)), want, "{key}");
    }
    let id = "spiffe://fabric.example/site/aws-use1/node/gw1";
    let out = ceremony
        .ok(&format!("verify --bundle site/root.pem --chain node/node.pem --id {id} --key node/node.key"));
    assert!(out.starts_with(&format!("ok: {id} until ")), "{out}");
    assert!(ceremony.ok("root show root").contains("spiffe://fabric.example"));
    let json: serde_json::Value =
        serde_json::from_str(&ceremony.ok("inspect -o json node/node.pem")).unwrap();
    assert_eq!((&json["schema"], &json["items"][0]["uris"][0]), (&"isthmus.inspect/v1".into(), &id.into()));
}

#[test]
fn openssl_agrees() {
    if !openssl_is_there() {
        return;
    }
    let ceremony = Ceremony::new();
    for purpose in ["sslserver", "sslclient"] {
        let chain = "-CAfile root/root.pem -untrusted site/site-ca.pem node/node.pem";
        assert!(ceremony.openssl(&format!("verify -x509_strict -purpose {purpose} {chain}")).contains("OK"));
    }
    ceremony.openssl("verify -x509_strict -CAfile root/root.pem site/site-ca.pem");
    ceremony.openssl("verify -x509_strict -check_ss_sig -CAfile root/root.pem root/root.pem");
    ceremony.openssl("pkcs8 -in root/root.key -passin file:pass -out plain.key");
    let ours = ceremony.openssl("x509 -in root/root.pem -noout -pubkey");
    assert_eq!(ceremony.openssl("pkey -in plain.key -pubout"), ours);
    assert!(ceremony.openssl("req -in site/site-ca.csr -verify -noout").contains("OK"));
    assert!(ceremony.openssl("req -in node/node.csr -verify -noout").contains("OK"));
}

#[test]
fn of_an_openssl_request_only_the_key_is_taken() {
    if !openssl_is_there() {
        return;
    }
    let ceremony = Ceremony::new();
    ceremony.write(
        "req.cnf",
        "[req]\ndistinguished_name=dn\nreq_extensions=e\nprompt=no\n[dn]\nCN=evil\nOU=a\n\
         [e]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\nsubjectKeyIdentifier=hash\n\
         subjectAltName=URI:spiffe://fabric.example/victim,DNS:evil\n1.2.3.4=ASN1:UTF8:unknown\n",
        0o644,
    );
    ceremony.openssl("ecparam -name prime256v1 -genkey -noout -out evil.key");
    ceremony.openssl("req -new -key evil.key -config req.cnf -out evil.csr");
    ceremony.ok(
        "node sign --csr evil.csr --ca site/site-ca.pem --ca-key site/site-ca.key --site aws-use1 --name gw9",
    );
    let text = ceremony.openssl("x509 -in node.pem -noout -text");
    assert!(text.contains("URI:spiffe://fabric.example/site/aws-use1/node/gw9"), "{text}");
    for absent in ["evil", "victim", "CA:TRUE", "Certificate Sign", "1.2.3.4"] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    assert_eq!(
        ceremony.openssl("x509 -in node.pem -noout -pubkey"),
        ceremony.openssl("pkey -in evil.key -pubout")
    );
}

#[test]
fn nothing_is_overwritten() {
    let ceremony = Ceremony::new();
    let before = fs::read(ceremony.path("root/root.key")).unwrap();
    ceremony.fails(
        "root init --trust-domain fabric.example --out root --passphrase-file pass",
        &["root/root.pem", "not overwritten"],
    );
    ceremony
        .fails("site csr --site aws-use1 --trust-domain fabric.example --out site", &["site/site-ca.key"]);
    ceremony.fails(NODE_SIGN, &["node/node.pem", "not overwritten", "--replace"]);
    assert_eq!(fs::read(ceremony.path("root/root.key")).unwrap(), before);
}

#[test]
fn a_renewal_replaces_the_certificate_and_nothing_else() {
    let ceremony = Ceremony::new();
    let read = |name: &str| fs::read(ceremony.path(name)).unwrap();
    let (key, certificate) = (read("node/node.key"), read("node/node.pem"));
    ceremony.ok(&format!("{NODE_SIGN} --replace"));
    ceremony.ok("verify --bundle root/root.pem --chain node/node.pem --key node/node.key");
    assert_ne!(read("node/node.pem"), certificate);
    assert_eq!((read("node/node.key"), mode(&ceremony.path("node/node.pem"))), (key, 0o644));
    let site = read("site/site-ca.pem");
    ceremony
        .ok("site sign --csr site/site-ca.csr --root root --site aws-use1 --passphrase-file pass --replace");
    assert_ne!(read("site/site-ca.pem"), site);
    // A replacement of what is not there yet is simply the first one; nothing else is left in the directory.
    ceremony.ok(&format!("{NODE_SIGN} --replace --out first"));
    let names = fs::read_dir(ceremony.path("first")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["node.pem"]);
}

#[test]
fn a_key_is_never_replaced() {
    let ceremony = Ceremony::new();
    let key = fs::read_to_string(ceremony.path("node/node.key")).unwrap();
    ceremony.write("node/node.pem", &key, 0o600);
    ceremony.fails(&format!("{NODE_SIGN} --replace"), &["node/node.pem", "private key", "move it away"]);
    assert_eq!(fs::read_to_string(ceremony.path("node/node.pem")).unwrap(), key);
}

#[test]
fn a_renewal_that_fails_leaves_the_old_certificate() {
    let ceremony = Ceremony::new();
    let before = fs::read(ceremony.path("node/node.pem")).unwrap();
    ceremony.on_a_full_disk(&format!("{NODE_SIGN} --replace"), "node/node.pem");
    assert_eq!(fs::read(ceremony.path("node/node.pem")).unwrap(), before);
    assert_eq!(fs::read_dir(ceremony.path("node")).unwrap().count(), 3, "key, request and certificate");
}

#[test]
fn a_full_disk_leaves_no_key_without_its_request() {
    let ceremony = Ceremony::new();
    // The key fits into what is left of the disk, a request with this name in it does not.
    let domain = "d".repeat(255);
    for (what, file) in [("node csr --name gw1", "new/node.csr"), ("site csr", "new/site-ca.csr")] {
        let command = format!("{what} --site aws-use1 --trust-domain {domain} --out new");
        ceremony.on_a_full_disk(&command, file);
        assert!(!ceremony.path("new").exists(), "{what}");
        ceremony.ok(&command);
        fs::remove_dir_all(ceremony.path("new")).unwrap();
    }
}

#[test]
fn names_that_the_daemon_refuses_are_refused() {
    let ceremony = Ceremony::new();
    let site_sign = "site sign --csr site/site-ca.csr --root root --passphrase-file pass --out x --site";
    for bad in ["Aws", "a.b", "a_b", "a-", &"a".repeat(64)] {
        for command in [
            format!("site csr --trust-domain fabric.example --out x --site {bad}"),
            format!("{site_sign} {bad}"),
            format!("node csr --site aws-use1 --trust-domain fabric.example --out x --name {bad}"),
            format!("node csr --name gw1 --trust-domain fabric.example --out x --site {bad}"),
            NODE_SIGN.replace("--name gw1", &format!("--out x --name {bad}")),
            NODE_SIGN.replace("--site aws-use1", &format!("--out x --site {bad}")),
        ] {
            let output = ceremony.run(&command);
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{command}: {message}");
            assert!(message.contains(bad) && message.contains("a-z, 0-9 and -"), "{command}: {message}");
        }
    }
    assert!(!ceremony.path("x").exists());
}

#[test]
fn the_request_of_another_site_is_not_signed() {
    let ceremony = Ceremony::new();
    // No passphrase is there to be read: it is refused before the root is opened.
    ceremony.fails(
        "site sign --csr site/site-ca.csr --root root --site azure --out x --passphrase-file absent",
        &[
            "site/site-ca.csr",
            "the request of site \"aws-use1\"",
            "--site says \"azure\"",
            "say --site aws-use1",
        ],
    );
    assert!(!ceremony.path("x").exists());
}

#[test]
fn the_request_of_another_fabric_is_not_signed() {
    let ceremony = Ceremony::new();
    ceremony.ok("site csr --site aws-use1 --trust-domain other.example --out other");
    let sign =
        "site sign --csr other/site-ca.csr --root root --site aws-use1 --out x --passphrase-file absent";
    for arguments in [sign.to_owned(), format!("{sign} --dry-run")] {
        ceremony.fails(
            &arguments,
            &["other/site-ca.csr", "spiffe://other.example", "another trust domain than fabric.example"],
        );
    }
    assert!(!ceremony.path("x").exists());
}

#[test]
fn errors_name_the_file_and_the_remedy() {
    let ceremony = Ceremony::new();
    let sign = "site sign --csr site/site-ca.csr --root root --site aws-use1 --out b --passphrase-file";
    ceremony.write("wrong", "not the passphrase", 0o600);
    ceremony.fails(&format!("{sign} wrong"), &["root/root.key", "wrong passphrase"]);
    ceremony.write("open", PASSPHRASE, 0o644);
    ceremony.fails(&format!("{sign} open"), &["open", "chmod 600"]);
    ceremony.fails(&format!("{sign} absent"), &["absent", "No such file"]);
    ceremony.write("short", "short", 0o600);
    ceremony.fails("root init --trust-domain a --out c --passphrase-file short", &["at least 12"]);
    assert!(!ceremony.path("c").exists() && !ceremony.path("b").exists());
    let node = NODE_SIGN.replace("--site aws-use1", "--site other");
    ceremony.fails(&(node + " --out d"), &["site/site-ca.pem", "not the CA of site other"]);
    let swapped = NODE_SIGN.replace("site/site-ca.key", "node/node.key");
    ceremony.fails(&(swapped + " --out d"), &["node/node.key", "does not belong"]);
    let leaf =
        NODE_SIGN.replace("site/site-ca.pem", "node/node.pem").replace("site/site-ca.key", "node/node.key");
    ceremony.fails(&(leaf + " --out d"), &["node/node.pem", "not a CA"]);
    ceremony.write("broken.csr", "hello", 0o644);
    ceremony.fails(&NODE_SIGN.replace("node/node.csr", "broken.csr").replace("gw1", "gw2"), &["broken.csr"]);
    assert_eq!(ceremony.run("root init --trust-domain Fabric --out e").status.code(), Some(2));
    assert_eq!(ceremony.run("nonsense").status.code(), Some(2));
}

#[test]
fn a_pipe_that_nobody_writes_to_is_refused() {
    let ceremony = Ceremony::new();
    assert!(std::process::Command::new("mkfifo").arg(ceremony.path("pipe")).status().unwrap().success());
    for arguments in [
        "inspect pipe",
        "csr review pipe --plan pipe",
        "verify --bundle root/root.pem --chain pipe",
        "crl sign --root root --passphrase-file pipe --out x",
        "transcript verify pipe --root root/root.pem",
    ] {
        ceremony.fails(arguments, &["pipe: is a named pipe", "give a file"]);
    }
    // What a shell makes of `<(…)` has its writer.
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", "\"$0\" inspect <(cat root/root.pem)", env!("CARGO_BIN_EXE_isthmus-ca")]);
    let output = shell.current_dir(ceremony.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn verify_refuses_a_foreign_root_a_wrong_key_and_another_id() {
    let (ceremony, foreign) = (Ceremony::new(), Ceremony::new());
    let foreign_root = foreign.path("root/root.pem");
    ceremony.fails(
        &format!("verify --bundle {} --chain node/node.pem", foreign_root.display()),
        &["node/node.pem", "another root"],
    );
    ceremony.fails(
        "verify --bundle root/root.pem --chain node/node.pem --key site/site-ca.key",
        &["site/site-ca.key", "does not belong"],
    );
    ceremony.fails(
        "verify --bundle root/root.pem --chain node/node.pem --id spiffe://fabric.example/x",
        &["belongs to spiffe://fabric.example/site/aws-use1/node/gw1"],
    );
    ceremony.fails("verify --bundle root/root.pem --chain site/site-ca.pem", &["never authenticates"]);
}
