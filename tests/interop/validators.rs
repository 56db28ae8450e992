//! Our predictions of other validators' verdicts, held against the programs; and every profile of ours before all of them.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "validators/envoy.rs"]
mod envoy;
#[path = "validators/programs.rs"]
mod programs;

use std::{collections::BTreeMap, fs, path::Path};

use isthmus_lab::{
    bins::Bins,
    corpus::{Case, corpus},
    forge::{Forged, ca_params},
    peers::{ENVOY, installed},
    sandbox,
};
use isthmus_pki::{
    Authority, Curve, Key, Profile, Serial, TrustDomain,
    authority::{Reason, Revoked, crl_to_pem},
    bundle::to_pem,
    families::{Family, predict},
};
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use programs::{Go, Purpose, Verdicts, certtool, openssl, run};

/// Predictions that differ from the program's verdict.
fn wrong(family: Family, cases: &[Case], real: impl Fn(&Case) -> Verdicts) -> Vec<String> {
    let compare = |case: &Case| {
        let (predicted, real) = (predict(family, &case.question()), real(case));
        let accepts = real.iter().all(String::is_empty);
        (predicted.accepts != accepts).then(|| format!("{}: {predicted:?}, really {real:?}", case.name))
    };
    cases.iter().filter_map(compare).collect()
}

#[test]
fn openssl_says_what_we_predict() {
    if !installed("openssl_says_what_we_predict", &["openssl"]) {
        return;
    }
    let cases = corpus(OffsetDateTime::now_utc()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let wrong = wrong(Family::OpenSsl, &cases, |case| {
        Purpose::BOTH.map(|purpose| openssl(dir.path(), case, purpose))
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn go_says_what_we_predict() {
    let Some(go) = Go::build() else { return };
    let cases = corpus(OffsetDateTime::now_utc()).unwrap();
    let verdicts = go.judge(&cases);
    let wrong = wrong(Family::Go, &cases, |case| verdicts[case.name].clone());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A real Envoy in both parts: shown the chain by a client, and by a server.
#[test]
fn envoy_says_what_we_predict() {
    const TEST: &str = "envoy_says_what_we_predict";
    if !installed(TEST, &[ENVOY]) {
        return;
    }
    sandbox::run(TEST, || {
        let cases = corpus(OffsetDateTime::now_utc()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let verdicts = envoy::judge(dir.path(), &cases, &cases[0]);
        let verdicts: BTreeMap<&str, Verdicts> = cases.iter().map(|case| case.name).zip(verdicts).collect();
        let wrong = wrong(Family::Envoy, &cases, |case| verdicts[case.name].clone());
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

/// GnuTLS has no family of ours: it must take what is sound, and refuse what is broken by everybody's rules.
#[test]
fn gnutls_tells_sound_from_broken() {
    if !installed("gnutls_tells_sound_from_broken", &["certtool"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for case in corpus(OffsetDateTime::now_utc()).unwrap() {
        match case.name {
            "sound" | "two CAs" | "root in the chain" => {
                assert_eq!(certtool(dir.path(), &case), "", "{}", case.name)
            }
            "leaf expired"
            | "CA expired"
            | "intermediate missing"
            | "another root of the same name"
            | "signature of the leaf damaged"
            | "CA that is none" => {
                assert_ne!(certtool(dir.path(), &case), "", "{}", case.name);
            }
            _ => {}
        }
    }
}

/// One of each kind of certificate that we issue.
struct Ours {
    root: Authority,
    site: Authority,
    site_key: Key,
    svid: CertificateDer<'static>,
    svid_key: Key,
    bare: CertificateDer<'static>,
}

fn serial() -> Serial {
    Serial::from_random(rand::random())
}

impl Ours {
    fn new(now: OffsetDateTime) -> Self {
        let domain = TrustDomain::parse("fabric.example").unwrap();
        let root = Authority::root(
            &domain,
            Key::generate(Curve::P384).unwrap(),
            Duration::days(3650),
            serial(),
            now,
        )
        .unwrap();
        let site_key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: "aws-use1".into(), lifetime: Duration::days(90) };
        let site = root.issue(&profile, &site_key.public(), serial(), now).unwrap();
        let copy = Key::from_pkcs8(&site_key.to_pkcs8()).unwrap();
        let site = Authority::load(site.certificate, copy).unwrap();
        let svid_key = Key::generate(Curve::P256).unwrap();
        let svid = |dns_names: Vec<String>| {
            let id = domain.member("/ns/payments/sa/api").unwrap();
            let profile = Profile::Svid { id, dns_names, lifetime: Duration::hours(1) };
            site.issue(&profile, &svid_key.public(), serial(), now).unwrap().certificate
        };
        let (named, bare) = (svid(vec!["api.payments.svc".into()]), svid(vec![]));
        Self { root, site, site_key, svid: named, svid_key, bare }
    }

    fn case(&self, now: OffsetDateTime) -> Case {
        Case {
            name: "ours",
            chain: vec![self.svid.clone(), self.site.certificate().clone()],
            roots: vec![self.root.certificate().clone()],
            crls: Vec::new(),
            at: now,
            key: self.svid_key.to_pem().to_string(),
        }
    }
}

#[test]
fn every_validator_takes_what_we_issue() {
    let now = OffsetDateTime::now_utc();
    let dir = tempfile::tempdir().unwrap();
    for svid in [false, true] {
        let ours = Ours::new(now);
        let mut case = ours.case(now);
        if svid {
            case.chain[0] = ours.bare.clone();
        }
        for family in Family::ALL {
            assert!(predict(family, &case.question()).accepts, "{family:?}");
        }
        if installed("every_validator_takes_what_we_issue", &["openssl"]) {
            let said = Purpose::BOTH.map(|purpose| openssl(dir.path(), &case, purpose));
            assert_eq!(said, ["", ""]);
        }
        if installed("every_validator_takes_what_we_issue", &["certtool"]) {
            assert_eq!(certtool(dir.path(), &case), "");
        }
        if let Some(go) = Go::build() {
            assert_eq!(go.judge(&[case])["ours"], ["", ""]);
        }
    }
}

#[test]
fn pkilint_has_nothing_against_our_profiles() {
    let lints = ["lint_pkix_cert", "lint_pkix_signer_signee_cert_chain"];
    if !installed("pkilint_has_nothing_against_our_profiles", &lints) {
        return;
    }
    let ours = Ours::new(OffsetDateTime::now_utc());
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, der: &CertificateDer<'_>| {
        fs::write(dir.path().join(name), to_pem([der])).unwrap();
        name.to_owned()
    };
    let (root, site) = (write("root", ours.root.certificate()), write("site", ours.site.certificate()));
    let (svid, bare) = (write("svid", &ours.svid), write("bare", &ours.bare));
    for file in [&root, &site, &svid, &bare] {
        lint(dir.path(), &["lint_pkix_cert", "lint", file]);
    }
    for (issuer, subject) in [(&root, &site), (&site, &svid), (&site, &bare)] {
        lint(dir.path(), &["lint_pkix_signer_signee_cert_chain", "lint", issuer, subject]);
    }
}

/// Lists of the root (of CAs alone) and of a site's CA, with and without an entry.
#[test]
fn pkilint_and_openssl_take_our_lists() {
    let now = OffsetDateTime::now_utc();
    let ours = Ours::new(now);
    let dir = tempfile::tempdir().unwrap();
    let list =
        |ca: &Authority, revoked: &[Revoked]| ca.sign_crl(revoked, 7, now, now + Duration::days(30)).unwrap();
    let serial = hex::decode(&ours.site.facts().serial).unwrap();
    let revoked = Revoked { serial, at: now, reason: Reason::KeyCompromise };
    let (root, site) = (list(&ours.root, &[]), list(&ours.site, &[]));
    let revoking = list(&ours.root, &[revoked]);
    if installed("pkilint_and_openssl_take_our_lists", &["lint_crl"]) {
        for (name, kind, der) in
            [("root", "ARL", &root), ("revoking", "ARL", &revoking), ("site", "CRL", &site)]
        {
            fs::write(dir.path().join(name), crl_to_pem(der)).unwrap();
            lint(dir.path(), &["lint_crl", "lint", "-t", kind, "-p", "PKIX", name]);
        }
    }
    if installed("pkilint_and_openssl_take_our_lists", &["openssl"]) {
        let mut case = ours.case(now);
        case.crls = vec![root.to_vec(), site.to_vec()];
        assert_eq!(openssl(dir.path(), &case, Purpose::Server), "");
        case.crls = vec![revoking.to_vec(), site.to_vec()];
        assert!(openssl(dir.path(), &case, Purpose::Server).contains("revoked"));
    }
}

/// Findings, less one: pkilint takes for a URL only what the schemes of the web make, and `spiffe` is none of them.
fn lint(dir: &Path, command: &[&str]) {
    let output = run(dir, &[&command[..2], &["-s", "WARNING", "-f", "JSON"], &command[2..]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let nodes = report["results"].as_array().unwrap().iter();
    let findings = nodes.flat_map(|node| node["finding_descriptions"].as_array().unwrap());
    let spiffe = |f: &&Value| {
        f["code"] == "pkix.invalid_uri_syntax" && f["message"].as_str().unwrap().contains("\"spiffe://")
    };
    let findings: Vec<&Value> = findings.filter(|f| !spiffe(f)).collect();
    assert!(findings.is_empty(), "{command:?}: {findings:#?}");
}

/// What `isthmus-ca export istio` writes, before Go doing what istiod does, and a handshake of Go with itself.
#[test]
fn istiod_starts_with_what_we_export() {
    let Some(go) = Go::build() else { return };
    let bins = Bins::build().unwrap();
    let now = OffsetDateTime::now_utc();
    let ours = Ours::new(now);
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    fs::write(file("root.pem"), to_pem([ours.root.certificate()])).unwrap();
    fs::write(file("site-ca.pem"), to_pem([ours.site.certificate()])).unwrap();
    isthmus_lab::files::write_secret(&file("site-ca.key"), &ours.site_key.to_pem()).unwrap();
    let ca = bins.isthmus_ca.display().to_string();
    let export = "export istio --ca site-ca.pem --ca-key site-ca.key --root root.pem --out cacerts";
    let exported = run(dir.path(), &[&[ca.as_str()][..], &export.split(' ').collect::<Vec<_>>()].concat());
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    assert_eq!(go.ask(&["istiod", file("cacerts").to_str().unwrap(), &now.unix_timestamp().to_string()]), "");
    // The same with a leaf in the CA's place is refused, by Go and before that by us.
    fs::write(file("leaf.pem"), to_pem([&ours.svid, ours.site.certificate()])).unwrap();
    isthmus_lab::files::write_secret(&file("leaf.key"), &ours.svid_key.to_pem()).unwrap();
    assert_eq!(go.ask(&["mtls", dir.path().to_str().unwrap(), &now.unix_timestamp().to_string()]), "");
    let export = "export istio --ca leaf.pem --ca-key leaf.key --root root.pem --out refused";
    let refused = run(dir.path(), &[&[ca.as_str()][..], &export.split(' ').collect::<Vec<_>>()].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("is a leaf, not a CA"), "{said}");
    assert!(!file("refused").exists());
}

/// Revocation lists of a CA in the eyes of GnuTLS and pkilint.
#[test]
fn lists_are_read_by_gnutls() {
    if !installed("lists_are_read_by_gnutls", &["certtool"]) {
        return;
    }
    let now = OffsetDateTime::now_utc();
    let root = Forged::root(ca_params("root", Some(1), now).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("root"), to_pem([&root.der])).unwrap();
    let list = isthmus_pki::x509::to_pem("X509 CRL", &root.crl(&[], now).unwrap());
    fs::write(dir.path().join("crl"), list).unwrap();
    let output =
        run(dir.path(), &["certtool", "--verify-crl", "--load-ca-certificate", "root", "--infile", "crl"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
