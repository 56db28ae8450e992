//! A rehearsal says what would be done, and leaves everything as it is.

use crate::rig::{Ceremony, NODE_SIGN};

#[test]
fn a_rehearsal_changes_nothing_and_needs_no_secret() {
    let ceremony = Ceremony::new();
    let plan =
        "trust_domain = \"fabric.example\"\n[[site]]\nname = \"aws-use1\"\n[[site.node]]\nname = \"gw1\"\n";
    ceremony.write("plan.toml", plan, 0o644);
    let before = ceremony.everything();
    for (arguments, words) in [
        ("root init --trust-domain a --out r", "made the root of trust domain a"),
        ("root init --trust-domain a --out r --shares 2/3 --share-out s", "split 2 of 3"),
        ("root init --trust-domain a --out r --token pkcs11:object=x --module m", "pkcs11:object=x"),
        ("site csr --site b --trust-domain fabric.example --count 3 --out b", "b/site-ca-3.csr"),
        ("site sign --csr site/site-ca.csr --root root --site aws-use1 --out x", "x/site-ca.pem"),
        ("node csr --site b --name n --trust-domain a --out n", "n/node.key"),
        (&format!("{NODE_SIGN} --replace"), "signed spiffe://fabric.example/site/aws-use1/node/gw1"),
        ("crl sign --root root --out x --count 2 --revoke site/site-ca.pem", "x/crl-2.pem"),
        ("sitting root --plan plan.toml --requests site --root root --out x", "x/aws-use1/site-ca.pem"),
        (
            "sitting site --plan plan.toml --site aws-use1 --requests node --ca site/site-ca.pem --ca-key site/site-ca.key --out x",
            "x/gw1/node.pem",
        ),
    ] {
        let out = ceremony.ok(&format!("{arguments} --dry-run"));
        assert!(out.starts_with("dry run, nothing was made; it would be: "), "{arguments}: {out}");
        assert!(out.contains(words), "{arguments}: {out}");
        let json = ceremony.json(&format!("{arguments} --dry-run"));
        assert_eq!(json["dry_run"], true, "{json}");
        assert!(json["schema"].as_str().unwrap().starts_with("isthmus."), "{json}");
    }
    assert_eq!(ceremony.everything(), before);
}

#[test]
fn a_rehearsal_refuses_what_the_real_thing_would() {
    let ceremony = Ceremony::new();
    ceremony.fails(
        "site sign --csr site/site-ca.csr --root root --site other --out x --dry-run",
        &["of site \"aws-use1\""],
    );
    ceremony.fails("site csr --site a --trust-domain b --out site --dry-run", &["not overwritten"]);
    ceremony.fails(&format!("{NODE_SIGN} --dry-run"), &["not overwritten"]);
}

/// spiffe/spire#5097, smallstep/certificates#381, cert-manager#5864, istio#59766: a child that outlives its issuer.
#[test]
fn a_lifetime_is_cut_to_the_issuers_and_said_so() {
    let ceremony = Ceremony::empty();
    ceremony.write("pass", crate::rig::PASSPHRASE, 0o600);
    ceremony.ok("root init --trust-domain a --out root --passphrase-file pass --lifetime 10m");
    ceremony.ok("site csr --site s --trust-domain a --out site");
    let sign = "site sign --csr site/site-ca.csr --root root --site s --lifetime 1h --passphrase-file pass";
    let rehearsed = ceremony.json(&format!("{sign} --dry-run"));
    let signed = ceremony.json(sign);
    for json in [&rehearsed, &signed] {
        let warning = json["warnings"][0].as_str().unwrap();
        assert!(warning.contains("shorter than asked for") && warning.starts_with("50m"), "{warning}");
    }
    let end = |file: &str| ceremony.json(&format!("inspect {file}"))["items"][0]["not_after"].clone();
    assert_eq!(end("site/site-ca.pem"), end("root/root.pem"));
}
