//! A sitting signs what its plan names: all of it, and nothing else.

use std::fs;

use crate::rig::{Ceremony, openssl_is_there};

const PLAN: &str = r#"
trust_domain = "fabric.example"
[[site]]
name = "aws"
requests = 3
lifetime = "90d"
every = "45d"
[[site.node]]
name = "gw1"
[[site.node]]
name = "gw2"
lifetime = "48h"
[[site]]
name = "azure"
[crl]
count = 2
every = "30d"
overlap = "10d"
"#;
const SITTING: &str = "sitting root --plan plan.toml --requests in --root root --out out --share shares/share-1.txt --share shares/share-2.txt";

/// Both sites have brought what the plan wants.
fn brought() -> Ceremony {
    let ceremony = Ceremony::split();
    ceremony.write("plan.toml", PLAN, 0o644);
    ceremony.ok("site csr --site aws --count 3 --trust-domain fabric.example --out in/aws");
    ceremony.ok("site csr --site azure --trust-domain fabric.example --out in/azure");
    ceremony
}

#[test]
fn one_sitting_signs_current_and_future_cas_and_lists() {
    let ceremony = brought();
    let json = ceremony.json(SITTING);
    assert_eq!(json["parts"].as_array().unwrap().len(), 5, "{json}");
    // Of a certificate that is not valid yet, inspect says so and fails.
    let facts = |file: &str| {
        let report = ceremony.run(&format!("inspect {file} -o json")).stdout;
        serde_json::from_slice::<serde_json::Value>(&report).unwrap()["items"][0].clone()
    };
    let begins = |file: &str| facts(file)["not_before"].as_i64().unwrap();
    let first = begins("out/aws/site-ca.pem");
    assert_eq!(begins("out/aws/site-ca-2.pem") - first, 45 * 86_400);
    assert_eq!(begins("out/aws/site-ca-3.pem") - first, 90 * 86_400);
    for file in
        ["out/aws/root.pem", "out/azure/site-ca.pem", "out/azure/root.pem", "out/crl.pem", "out/crl-2.pem"]
    {
        assert!(ceremony.path(file).exists(), "{file}");
    }
    if openssl_is_there() {
        let at = first + 3600 + 100 * 86_400;
        for (file, good) in [("site-ca-3.pem", true), ("site-ca.pem", false)] {
            let arguments = format!("verify -x509_strict -attime {at} -CAfile root/root.pem out/aws/{file}");
            let mut command = std::process::Command::new("openssl");
            let output = command.current_dir(ceremony.path("")).args(arguments.split(' ')).output().unwrap();
            assert_eq!(output.status.success(), good, "{file}");
        }
    }
    ceremony.fails(SITTING, &["out/aws/site-ca.pem", "not overwritten"]);
}

#[test]
fn the_nodes_of_a_site_are_signed_where_its_ca_is() {
    let ceremony = brought();
    ceremony.ok(SITTING);
    for node in ["gw1", "gw2"] {
        ceremony.ok(&format!(
            "node csr --site aws --name {node} --trust-domain fabric.example --out nodes/{node}"
        ));
    }
    let sitting = "sitting site --plan plan.toml --site aws --requests nodes --ca out/aws/site-ca.pem --ca-key in/aws/site-ca.key --out signed";
    ceremony.ok(&format!("{sitting} --transcript site.jsonl --operator Alice"));
    for node in ["gw1", "gw2"] {
        let id = format!("spiffe://fabric.example/site/aws/node/{node}");
        let key = format!("--key nodes/{node}/node.key");
        ceremony.ok(&format!("verify --bundle root/root.pem --chain signed/{node}/node.pem --id {id} {key}"));
    }
    ceremony.ok("transcript verify site.jsonl --root root/root.pem --ca out/aws/site-ca.pem");
    ceremony
        .fails("transcript verify site.jsonl --root root/root.pem", &["site.jsonl", "neither the root's"]);
    ceremony.ok("node csr --site aws --name gw3 --trust-domain fabric.example --out nodes/gw3");
    let again = sitting.replace("--out signed", "--out again");
    ceremony.fails(&again, &["nodes/gw3/node.csr", "no node of site aws in the plan", "nothing was signed"]);
    assert!(!ceremony.path("again").exists());
    let other = sitting.replace("out/aws", "out/azure").replace("--out signed", "--out again");
    ceremony.fails(&other, &["not the CA of site aws"]);
}

#[test]
fn what_is_not_in_the_plan_is_refused_with_all_the_rest() {
    let ceremony = brought();
    ceremony.ok("site csr --site gcp --trust-domain fabric.example --out in/gcp");
    ceremony.fails(SITTING, &["in/gcp/site-ca.csr", "site \"gcp\" is not in the plan", "nothing was signed"]);
    fs::remove_dir_all(ceremony.path("in/gcp")).unwrap();
    // Azure's request in the directory of AWS, one too many there and one too few here: all told at once.
    fs::rename(ceremony.path("in/azure/site-ca.csr"), ceremony.path("in/aws/stray.csr")).unwrap();
    ceremony.fails(
        SITTING,
        &[
            "in/aws/stray.csr: this is the request of site \"azure\", not of site \"aws\"",
            "site azure: 0 requests are here",
        ],
    );
    fs::remove_file(ceremony.path("in/aws/stray.csr")).unwrap();
    fs::copy(ceremony.path("in/aws/site-ca.csr"), ceremony.path("in/aws/copy.csr")).unwrap();
    ceremony.fails(SITTING, &["same key as", "a key of its own"]);
    fs::remove_file(ceremony.path("in/aws/copy.csr")).unwrap();
    ceremony.ok("site csr --site azure --trust-domain other.example --out in/azure2");
    fs::copy(ceremony.path("in/azure2/site-ca.csr"), ceremony.path("in/azure/site-ca.csr")).unwrap();
    fs::remove_dir_all(ceremony.path("in/azure2")).unwrap();
    ceremony.fails(SITTING, &["in/azure/site-ca.csr", "another trust domain"]);
    assert!(!ceremony.path("out").exists());
}

#[test]
fn a_plan_for_another_root_or_with_a_mistake_is_refused() {
    let ceremony = brought();
    let other = PLAN.replace("fabric.example", "other.example");
    ceremony.write("plan.toml", &other, 0o644);
    ceremony.fails(SITTING, &["another trust domain"]);
    ceremony.write("plan.toml", &PLAN.replace("requests", "request"), 0o644);
    ceremony.fails(SITTING, &["plan.toml", "line 5", "request"]);
}

#[test]
fn a_review_shows_the_words_that_the_site_reads_out() {
    let ceremony = brought();
    let at_site = ceremony.json("site csr --site azure --trust-domain fabric.example --out again");
    let review = "csr review again/site-ca.csr --plan plan.toml";
    let at_root = ceremony.json(review);
    assert_eq!(at_root["words"], at_site["parts"][0]["words"]);
    assert_eq!(at_root["words"].as_array().unwrap().len(), 13);
    assert_eq!(at_root["sha256"], at_site["parts"][0]["sha256"]);
    if openssl_is_there() {
        ceremony.openssl("req -in again/site-ca.csr -outform DER -out der");
        let digest = ceremony.openssl("dgst -sha256 -r der");
        assert!(digest.starts_with(at_root["sha256"].as_str().unwrap()), "{digest}");
    }
    ceremony.fails(
        &format!("{review} --site aws"),
        &["again/site-ca.csr", "site \"azure\", not of site \"aws\""],
    );
    ceremony.fails("csr review in/aws/site-ca.csr --plan absent", &["absent"]);
    ceremony.ok("node csr --site aws --name gw1 --trust-domain fabric.example --out n");
    ceremony.fails("csr review n/node.csr --plan plan.toml", &["not the request of a site's CA"]);
    let sign = "site sign --csr in/aws/site-ca.csr --root root --site aws --out x --share shares/share-1.txt --share shares/share-2.txt";
    ceremony.write("narrow.toml", "trust_domain = \"fabric.example\"\n[[site]]\nname = \"azure\"\n", 0o644);
    ceremony.fails(&format!("{sign} --plan narrow.toml"), &["site \"aws\" is not in the plan"]);
    ceremony.ok(&format!("{sign} --plan plan.toml"));
}
