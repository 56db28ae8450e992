//! Many generations of CAs side by side, as after years of rotation.

use std::{collections::BTreeSet, env, fs, path::Path, process::Command};

use isthmus_pki::{
    Authority, Bundle, Curve, Facts, Key, Profile, Serial, TrustDomain,
    bundle::{self, to_pem},
    verify::{self, Purpose},
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

/// More than the 100 signatures that Go and webpki check in search of a path.
const GENERATIONS: usize = 120;

fn serial() -> Serial {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).unwrap();
    Serial::from_random(bytes)
}

/// spiffe/spire#4415, #4585: roots and intermediates of one subject are all tried as issuers, until the verifier gives up.
#[test]
fn a_hundred_and_twenty_generations_do_not_exhaust_a_verifier() {
    let (now, domain) = (OffsetDateTime::now_utc(), TrustDomain::parse("a").unwrap());
    let (mut roots, mut chain, mut subjects) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut last = None;
    for _ in 0..GENERATIONS {
        let key = Key::generate(Curve::P256).unwrap();
        let root = Authority::root(&domain, key, Duration::days(100), serial(), now).unwrap();
        let key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: "s".into(), lifetime: Duration::days(90) };
        let site = root.issue(&profile, &key.public(), serial(), now).unwrap().certificate;
        subjects.extend([root.facts().subject.clone(), Facts::parse(&site).unwrap().subject]);
        roots.push(root.certificate().clone());
        chain.push(site.clone());
        last = Some(Authority::load(site, key).unwrap());
    }
    assert_eq!(subjects.len(), 2 * GENERATIONS, "a subject of its own for each");
    let id = domain.member("/w").unwrap();
    let profile = Profile::Svid { id, dns_names: vec![], lifetime: Duration::hours(1) };
    let key = Key::generate(Curve::P256).unwrap().public();
    let leaf = last.unwrap().issue(&profile, &key, serial(), now).unwrap().certificate;
    judge(&to_pem([&leaf]), &to_pem(&chain), &to_pem(&roots));
    judge_ourselves(&leaf, &chain, &roots, now);
}

/// Our own verifier holds no more roots and reads no longer chain than it can search; both are filled, with those in use last.
fn judge_ourselves(
    leaf: &CertificateDer<'static>,
    chain: &[CertificateDer<'static>],
    roots: &[CertificateDer<'static>],
    now: OffsetDateTime,
) {
    assert!(matches!(Bundle::parse(to_pem(roots).as_bytes()), Err(bundle::Error::TooMany)));
    let last = |list: &[CertificateDer<'static>], count: usize| list[list.len() - count..].to_vec();
    let roots = Bundle::parse(to_pem(&last(roots, bundle::MAX_CERTIFICATES)).as_bytes()).unwrap();
    assert_eq!(roots.anchors().len(), bundle::MAX_CERTIFICATES);
    let presented: Vec<_> = [leaf.clone()].into_iter().chain(last(chain, verify::MAX_CHAIN - 1)).collect();
    for purpose in [Purpose::Client, Purpose::Server] {
        let verified = verify::verify(&presented, &roots.clone().into(), purpose, now).unwrap();
        assert_eq!(verified.id.to_string(), "spiffe://a/w");
    }
    let longer: Vec<_> = [leaf.clone()].into_iter().chain(last(chain, verify::MAX_CHAIN)).collect();
    let refused = verify::verify(&longer, &roots.into(), Purpose::Client, now);
    assert!(matches!(refused, Err(verify::Error::TooLong(_))), "{refused:?}");
}

/// By Go's crypto/x509, which says how many roots and intermediates it had, and how many paths it found.
fn judge(leaf: &str, chain: &str, roots: &str) {
    if !Command::new("go").arg("version").output().is_ok_and(|output| output.status.success()) {
        assert!(
            env::var("ISTHMUS_PEERS").as_deref() != Ok("required"),
            "go is missing and ISTHMUS_PEERS=required"
        );
        eprintln!("skipped: go is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("node.pem", leaf), ("chain.pem", chain), ("roots.pem", roots)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ceremony/generations.go");
    let mut go = Command::new("go");
    go.args(["run"]).arg(program).current_dir(dir.path()).env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
    let output = go.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("{GENERATIONS} {GENERATIONS} 1"));
}
