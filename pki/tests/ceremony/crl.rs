//! Revocation lists, judged by OpenSSL.

use crate::rig::{Ceremony, openssl_is_there};

const SIGN: &str = "crl sign --root root --passphrase-file pass";

#[test]
fn openssl_refuses_what_is_revoked_and_nothing_else() {
    if !openssl_is_there() {
        return;
    }
    let ceremony = Ceremony::new();
    ceremony.ok("site csr --site b --trust-domain fabric.example --out b");
    ceremony.ok("site sign --csr b/site-ca.csr --root root --site b --passphrase-file pass");
    ceremony.ok(&format!("{SIGN} --out empty"));
    let check = |crl: &str, site: &str| {
        let chain =
            format!("verify -x509_strict -crl_check -CAfile root/root.pem -CRLfile {crl} {site}/site-ca.pem");
        let mut command = std::process::Command::new("openssl");
        let output = command.current_dir(ceremony.path("")).args(chain.split(' ')).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(check("empty/crl.pem", "site").0);
    ceremony.ok(&format!("{SIGN} --revoke site/site-ca.pem --reason ca_compromise --out crl"));
    let (good, said) = check("crl/crl.pem", "site");
    assert!(!good && said.contains("certificate revoked"), "{said}");
    assert!(check("crl/crl.pem", "b").0);
    let text = ceremony.openssl("crl -in crl/crl.pem -noout -text");
    assert!(text.contains("CA Compromise") && text.contains("X509v3 Authority Key Identifier"), "{text}");
    ceremony.openssl("crl -in crl/crl.pem -noout -CAfile root/root.pem");
}

#[test]
fn what_was_revoked_stays_revoked() {
    let ceremony = Ceremony::new();
    let first = ceremony.json(&format!("{SIGN} --revoke site/site-ca.pem --out one"));
    let second = ceremony.json(&format!("{SIGN} --previous one/crl.pem --revoke-serial 0a:0b --out two"));
    let serials = second["revoked"].as_array().unwrap();
    assert_eq!((serials.len(), &serials[0], &serials[1]), (2, &first["revoked"][0], &"0a0b".into()));
    assert!(second["warnings"][0].as_str().unwrap().contains("replace them all"));
    let stranger = Ceremony::new();
    stranger.write("theirs", &ceremony.read("one/crl.pem"), 0o644);
    stranger.fails(&format!("{SIGN} --previous theirs --out x"), &["theirs", "did not sign it"]);
    stranger.fails(
        &format!("{SIGN} --previous root/root.pem --out x"),
        &["root/root.pem", "earlier CRL", "\"CERTIFICATE\", not", "give the last list"],
    );
    for text in ["hello".to_owned(), first_half(&ceremony.read("one/crl.pem"))] {
        stranger.write("cut", &text, 0o644);
        stranger.fails(&format!("{SIGN} --previous cut --out x"), &["cut", "earlier CRL"]);
    }
}

fn first_half(text: &str) -> String {
    text[..text.len() / 2].to_owned()
}

#[test]
fn only_what_the_root_issued_is_revoked_by_it() {
    let ceremony = Ceremony::new();
    ceremony.fails(&format!("{SIGN} --revoke node/node.pem --out x"), &["node/node.pem", "not by this root"]);
    ceremony.fails(&format!("{SIGN} --revoke-serial xyz --out x"), &["--revoke-serial xyz"]);
    ceremony.fails(&format!("{SIGN} --revoke-serial 00 --out x"), &["not a serial number"]);
    for serial in ["0000", "80", ""] {
        ceremony
            .fails(&format!("{SIGN} --revoke-serial {serial} --out x --dry-run"), &["not a serial number"]);
    }
    for bad in ["--reason boredom", "--every 0s --count 3", "--every 0d"] {
        assert_eq!(ceremony.run(&format!("{SIGN} {bad} --out x")).status.code(), Some(2), "{bad}");
    }
    assert!(!ceremony.path("x").exists());
}

#[test]
fn a_root_does_not_revoke_itself() {
    let ceremony = Ceremony::new();
    let serial = ceremony.json("inspect root/root.pem")["items"][0]["serial"].as_str().unwrap().to_owned();
    for what in ["--revoke root/root.pem".to_owned(), format!("--revoke-serial {serial}")] {
        let remedy = ["this is a root", "make a new root", "trust bundle"];
        ceremony.fails(&format!("{SIGN} {what} --out x"), &remedy);
        ceremony.fails(&format!("{SIGN} {what} --out x --dry-run"), &remedy);
    }
    assert!(!ceremony.path("x").exists());
}

#[test]
fn lists_for_later_begin_one_after_the_other() {
    let ceremony = Ceremony::new();
    let json = ceremony.json(&format!("{SIGN} --count 3 --every 30d --overlap 10d --out crl"));
    let parts = json["parts"].as_array().unwrap();
    let date = |part: usize, field: &str| parts[part][field].as_str().unwrap().to_owned();
    assert!(
        date(0, "this_update") < date(1, "this_update") && date(1, "this_update") < date(0, "next_update")
    );
    if openssl_is_there() {
        let number = |file: &str| {
            let text = ceremony.openssl(&format!("crl -in crl/{file} -noout -crlnumber"));
            u64::from_str_radix(text.trim().trim_start_matches("crlNumber=0x"), 16).unwrap()
        };
        assert_eq!(number("crl-3.pem"), number("crl.pem") + 2);
    }
    ceremony.fails(&format!("{SIGN} --out crl"), &["crl/crl.pem", "not overwritten"]);
}
