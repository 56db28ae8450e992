//! Key files that were replaced half-way, cut off or mixed up.

use crate::rig::{Ceremony, NODE_SIGN, mode, openssl_is_there};

const SIGN: &str =
    "site sign --csr site/site-ca.csr --root root --site aws-use1 --out x --passphrase-file pass";

#[test]
fn a_root_key_that_was_replaced_without_its_certificate() {
    let (ceremony, other) = (Ceremony::new(), Ceremony::new());
    ceremony.write("root/root.key", &other.read("root/root.key"), 0o600);
    ceremony.fails(SIGN, &["root/root.pem with root/root.key", "does not belong to the certificate"]);
    ceremony.write("root/root.pem", &other.read("root/root.pem"), 0o644);
    ceremony.ok(SIGN);
}

#[test]
fn a_root_key_that_was_cut_off() {
    let ceremony = Ceremony::new();
    let whole = ceremony.read("root/root.key");
    for length in [0, 10, whole.len() / 2, whole.len() - 20] {
        ceremony.write("root/root.key", &whole[..length], 0o600);
        ceremony.fails(SIGN, &["root/root.key"]);
    }
    // Another key's end after this one's beginning.
    let other = Ceremony::new().read("root/root.key");
    let half = whole.len() / 2;
    ceremony.write("root/root.key", &format!("{}{}", &whole[..half], &other[half..]), 0o600);
    ceremony.fails(SIGN, &["root/root.key"]);
    assert!(!ceremony.path("x").exists());
}

#[test]
fn two_keys_of_one_root_are_one_too_many() {
    let ceremony = Ceremony::new();
    ceremony.write("root/root.token", "pkcs11:token=a;object=b\n", 0o644);
    ceremony.fails(SIGN, &["root/root.key", "root/root.token", "both there"]);
    std::fs::remove_file(ceremony.path("root/root.key")).unwrap();
    ceremony.fails(&SIGN.replace(" --passphrase-file pass", " --pin-file pass"), &["no PKCS#11 module"]);
    ceremony.write("root/root.token", "nonsense", 0o644);
    ceremony.fails(SIGN, &["root/root.token", "pkcs11:"]);
}

#[test]
fn an_encrypted_site_ca_signs_when_its_passphrase_is_given() {
    let ceremony = Ceremony::new();
    ceremony.write("site-pass", "a passphrase of the site", 0o600);
    ceremony
        .ok("site csr --site b --trust-domain fabric.example --count 2 --out b --passphrase-file site-pass");
    for file in ["b/site-ca.key", "b/site-ca-2.key"] {
        assert!(ceremony.read(file).starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"), "{file}");
        assert_eq!(mode(&ceremony.path(file)), 0o600);
    }
    ceremony.ok("site sign --csr b/site-ca.csr --root root --site b --passphrase-file pass");
    ceremony.ok("node csr --site b --name gw1 --trust-domain fabric.example --out gw1");
    let sign = "node sign --csr gw1/node.csr --ca b/site-ca.pem --ca-key b/site-ca.key --site b --name gw1";
    ceremony.fails(&format!("{sign} --passphrase-file pass"), &["b/site-ca.key", "wrong passphrase"]);
    ceremony.ok(&format!("{sign} --passphrase-file site-pass"));
    ceremony.ok("verify --bundle root/root.pem --chain gw1/node.pem --key gw1/node.key");
    ceremony.write(
        "plan.toml",
        "trust_domain = \"fabric.example\"\n[[site]]\nname = \"b\"\n[[site.node]]\nname = \"gw1\"\n",
        0o644,
    );
    let sitting = "sitting site --plan plan.toml --site b --requests gw1 --ca b/site-ca.pem --ca-key b/site-ca.key --out signed";
    ceremony.ok(&format!("{sitting} --passphrase-file site-pass"));
    ceremony.ok("export istio --ca b/site-ca.pem --ca-key b/site-ca.key --passphrase-file site-pass --root root/root.pem --out cacerts");
    if openssl_is_there() {
        ceremony.openssl("pkey -in b/site-ca.key -passin file:site-pass -noout");
    }
    ceremony.write("short", "short", 0o600);
    ceremony.fails(
        "site csr --site c --trust-domain fabric.example --out c --passphrase-file short",
        &["at least 12"],
    );
    assert!(!ceremony.path("c").exists());
}

#[test]
fn a_site_ca_of_a_half_finished_renewal() {
    let ceremony = Ceremony::new();
    ceremony.ok("site csr --site aws-use1 --trust-domain fabric.example --out later");
    ceremony.write("site/site-ca.key", &ceremony.read("later/site-ca.key"), 0o600);
    ceremony.fails(
        &format!("{NODE_SIGN} --replace"),
        &["site/site-ca.pem with site/site-ca.key", "does not belong"],
    );
}
