use std::collections::BTreeMap;

use proptest::prelude::*;
use rcgen::{CertificateRevocationListParams, Issuer, KeyIdMethod, RevokedCertParams, SerialNumber};
use time::Duration;

use super::*;
use crate::{
    Authority, Curve, Facts, Key, Profile,
    bundle::to_pem,
    testing::{Fabric, NOW, domain, serial},
};

const DRAFT: &str = r#"
trust_domain = "td"
sequence = 7
refresh_hint = "1m"
[[root]]
certificate = "root.pem"
state = "active"
[[site]]
name = "s"
ids = ["/ns/payments"]
[[site.ca]]
certificate = "site.pem"
state = "active"
"#;

fn files() -> BTreeMap<String, Vec<u8>> {
    let fabric = Fabric::shared();
    let pem = |der| to_pem([der]).into_bytes();
    BTreeMap::from([
        ("root.pem".to_owned(), pem(fabric.root.certificate())),
        ("site.pem".to_owned(), pem(fabric.site.certificate())),
    ])
}

fn draft(text: &str) -> Result<Charter, Error> {
    let files = files();
    from_toml(text, NOW.unix_timestamp(), &mut |name| files.get(name).cloned().ok_or("no such file".into()))
}

fn charter() -> Charter {
    draft(DRAFT).unwrap()
}

fn trusted() -> Vec<CertificateDer<'static>> {
    vec![Fabric::shared().root.certificate().clone()]
}

/// A root of the same trust domain.
fn another_root() -> Authority {
    Authority::root(&domain("td"), Key::generate(Curve::P384).unwrap(), Duration::days(9), serial(), NOW)
        .unwrap()
}

fn as_root(authority: &Authority, state: RootState) -> Root {
    let key = KeyHash::of(authority.facts());
    Root { certificate: authority.certificate().clone(), key, state }
}

#[test]
fn what_is_signed_is_read_back_and_wanders_from_root_to_root() {
    let fabric = Fabric::shared();
    let first = charter();
    let file = sealed::seal(&first, &[&fabric.root]).unwrap();
    assert_eq!(sealed::open(file.as_bytes(), &trusted(), NOW).unwrap(), first);
    // The next one brings a second root; the one after drops the first and is signed by both.
    let new = another_root();
    let mut last = first.clone();
    (last.sequence, last.roots, last.sites) = (9, vec![as_root(&new, RootState::Active)], vec![]);
    let file = sealed::seal(&last, &[&new, &fabric.root]).unwrap();
    for trusts in [trusted(), vec![new.certificate().clone()]] {
        assert_eq!(sealed::open(file.as_bytes(), &trusts, NOW).unwrap(), last);
    }
    let (_, signers) = sealed::look(file.as_bytes()).unwrap();
    assert_eq!(signers.len(), 2);
}

#[test]
fn strangers_and_torn_files_are_refused() {
    let fabric = Fabric::shared();
    let stranger = another_root();
    let file = sealed::seal(&charter(), &[&stranger]).unwrap();
    let refused = sealed::open(file.as_bytes(), &trusted(), NOW).unwrap_err();
    assert!(
        matches!(&refused, Error::Stranger { signers } if signers.contains(&stranger.facts().key_sha256))
    );
    // A site CA hangs on a trusted root and is none.
    let by_site = sealed::seal(&charter(), &[&fabric.site]).unwrap();
    assert!(matches!(sealed::open(by_site.as_bytes(), &trusted(), NOW), Err(Error::Stranger { .. })));
    // A root that is no longer valid signs nothing.
    let good = sealed::seal(&charter(), &[&fabric.root]).unwrap();
    let late = NOW + Duration::days(3651);
    assert!(matches!(sealed::open(good.as_bytes(), &trusted(), late), Err(Error::Stranger { .. })));
    // A believed signature beside another text does not lend it belief.
    let mut other = charter();
    other.sequence = 8;
    let other = sealed::seal(&other, &[&stranger]).unwrap();
    for torn in [format!("{good}{other}"), format!("{other}{good}")] {
        assert_eq!(sealed::open(torn.as_bytes(), &trusted(), NOW), Err(Error::Torn(2)));
    }
    assert_eq!(sealed::open(good.repeat(5).as_bytes(), &trusted(), NOW), Err(Error::Signatures(5)));
    assert_eq!(sealed::open(b"", &trusted(), NOW), Err(Error::Signatures(0)));
    assert!(matches!(sealed::open(&[0xff], &trusted(), NOW), Err(Error::Text(_))));
    assert!(matches!(sealed::seal(&charter(), &[]), Err(Error::Signatures(0))));
}

#[test]
fn sequence_only_rises() {
    let current = charter();
    let with = |sequence, hint| Charter { sequence, refresh_hint: hint, ..charter() };
    assert_eq!(current.succeeds(&current), Ok(Succession::Same));
    assert_eq!(with(8, 60).succeeds(&current), Ok(Succession::New));
    assert_eq!(with(7, 61).succeeds(&current), Err(Error::Fork(7)));
    assert_eq!(with(6, 60).succeeds(&current), Err(Error::Backwards { current: 7, offered: 6 }));
    let foreign = Charter { trust_domain: domain("other"), sequence: 8, ..charter() };
    assert!(matches!(foreign.succeeds(&current), Err(Error::OtherFabric { .. })));
}

#[test]
fn rules_name_the_place() {
    type Change = fn(&mut Charter);
    let broken: [(Change, &str); 14] = [
        (|c| c.sequence = 0, "sequence"),
        (|c| c.sequence = MAX_SEQUENCE + 1, "sequence"),
        (|c| c.issued_at = -1, "issued_at"),
        (|c| c.refresh_hint = 0, "refresh_hint"),
        (|c| c.roots.clear(), "root"),
        (|c| c.roots[0].state = RootState::Retiring, "root"),
        (|c| c.roots.push(c.roots[0].clone()), "root "),
        (|c| c.trust_domain = domain("other"), "root "),
        (|c| c.sites.push(c.sites[0].clone()), "site \"s\""),
        (|c| c.sites[0].name = "S".into(), "site \"S\""),
        (|c| c.sites[0].ids.push("/site/t".into()), "site \"s\""),
        (|c| c.sites[0].ids.push(String::new()), "site \"s\""),
        (|c| c.sites[0].cas[0].root = None, "site \"s\", CA "),
        (|c| c.crls.push(vec![0x30, 0]), "CRL 1"),
    ];
    for (change, wanted) in broken {
        let mut charter = charter();
        change(&mut charter);
        let refused = sealed::seal(&charter, &[&Fabric::shared().root]).unwrap_err();
        assert!(
            matches!(&refused, Error::Rule { place, .. } if place.starts_with(wanted)),
            "{wanted}: {refused}"
        );
    }
}

#[test]
fn one_key_serves_one_site_and_no_root_is_a_site_ca() {
    let mut twice = charter();
    let mut other = twice.sites[0].clone();
    other.name = "t".into();
    twice.sites.push(other);
    assert!(twice.check().unwrap_err().to_string().contains("pinned twice"));
    let mut root = charter();
    root.sites[0].cas[0].key = root.roots[0].key.clone();
    assert!(root.check().unwrap_err().to_string().contains("a root's key"));
}

#[test]
fn a_root_stays_while_a_believed_ca_hangs_on_it() {
    let mut charter = charter();
    charter.roots = vec![as_root(&another_root(), RootState::Active)];
    assert!(charter.check().unwrap_err().to_string().contains("keep that root"));
    charter.sites[0].cas[0].state = CaState::Revoked;
    assert_eq!(charter.check(), Ok(()));
}

#[test]
fn crls_are_signed_by_a_root() {
    let fabric = Fabric::shared();
    let revoke = |key: &Key, ca: &Authority| {
        let params = CertificateRevocationListParams {
            this_update: NOW,
            next_update: NOW + Duration::days(30),
            crl_number: SerialNumber::from_slice(&[1]),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from_slice(&hex::decode(&fabric.site.facts().serial).unwrap()),
                revocation_time: NOW,
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let issuer = Issuer::from_ca_cert_der(ca.certificate(), key).unwrap();
        params.signed_by(&issuer).unwrap().der().to_vec()
    };
    let (root, key) = fabric.root_with_key();
    let crl = revoke(key, root);
    assert!(crate::signed_by::crl_lists(&crl, fabric.site.certificate()));
    assert!(!crate::signed_by::crl_lists(&crl, root.certificate()));
    let with = |crl: Vec<u8>| Charter { crls: vec![crl], ..charter() };
    let file = sealed::seal(&with(crl.clone()), &[root]).unwrap();
    assert_eq!(sealed::open(file.as_bytes(), &trusted(), NOW).unwrap().crls, [crl]);
    let stranger_key = Key::generate(Curve::P384).unwrap();
    assert!(with(revoke(&stranger_key, root)).check().is_err());
}

#[test]
fn a_draft_names_what_is_wrong_with_it() {
    for (from, to, wanted) in [
        ("sequence = 7", "sequence = 0", "sequence"),
        ("sequence = 7", "sequenz = 7", "unknown field `sequenz`"),
        ("\"1m\"", "\"soon\"", "refresh_hint \"soon\""),
        ("root.pem", "none.pem", "none.pem: no such file"),
        ("name = \"s\"", "name = \"t\"", "site.pem: it is of"),
        ("certificate = \"root.pem\"", "certificate = \"site.pem\"", "root "),
        ("state = \"active\"\n[[site]]", "state = \"fine\"\n[[site]]", "unknown variant `fine`"),
        ("/ns/payments", "/ns//payments", "ids"),
    ] {
        let text = DRAFT.replacen(from, to, 1);
        assert_ne!(text, DRAFT);
        let refused = draft(&text).unwrap_err().to_string();
        assert!(refused.contains(wanted), "{wanted}: {refused}");
    }
    let charter = charter();
    assert_eq!((charter.sequence, charter.refresh_hint), (7, 60));
    assert_eq!(charter.sites[0].cas[0].root.as_ref(), Some(&charter.roots[0].key));
}

#[test]
fn differences_are_told_in_lines() {
    let old = charter();
    assert!(differences(&old, &Charter { sequence: 8, ..charter() }).is_empty());
    let mut new = charter();
    new.roots[0].state = RootState::Retiring;
    new.roots.push(as_root(&another_root(), RootState::Active));
    new.sites[0].cas[0].state = CaState::Tainted;
    new.sites[0].ids = vec!["/ns/shop".into()];
    new.sites.push(Site { name: "t".into(), ids: vec![], cas: vec![] });
    let lines = differences(&old, &new);
    let (root, ca) = (&old.roots[0].key, &old.sites[0].cas[0].key);
    for wanted in [
        format!("root {root}: active -> retiring"),
        format!("root {}: new, active", new.roots[1].key),
        format!("site s: CA {ca}: active -> tainted"),
        "site s: IDs under /ns/payments: gone (was there)".to_owned(),
        "site s: IDs under /ns/shop: new, there".to_owned(),
        "site t: new".to_owned(),
    ] {
        assert!(lines.contains(&wanted), "{wanted}: {lines:#?}");
    }
    assert_eq!(lines.len(), 6, "{lines:#?}");
}

#[test]
fn a_later_version_is_called_later() {
    let text = String::from_utf8(wire::write(&charter()).unwrap()).unwrap();
    let later = text.replace(r#""version":1"#, r#""version":2,"asns":[]"#);
    assert_eq!(wire::read(later.as_bytes()), Err(Error::Version(2)));
    let unknown = text.replace(r#""version":1"#, r#""version":1,"asns":[]"#);
    assert!(matches!(wire::read(unknown.as_bytes()), Err(Error::Text(_))));
    let twice = text.replace(r#""version":1"#, r#""version":1,"sequence":9"#);
    assert!(matches!(wire::read(twice.as_bytes()), Err(Error::Text(_))), "a member twice");
}

#[test]
fn a_profile_signed_for_a_site_is_found_under_its_root() {
    let fabric = Fabric::shared();
    let key = Key::generate(Curve::P256).unwrap();
    let profile = Profile::SiteCa { site: "s".into(), lifetime: Duration::days(1) };
    let foreign = another_root().issue(&profile, &key.public(), serial(), NOW).unwrap().certificate;
    let text = format!("{DRAFT}[[site.ca]]\ncertificate = \"new.pem\"\nstate = \"prepared\"\n");
    let (mut all, pem) = (files(), to_pem([&foreign]).into_bytes());
    all.insert("new.pem".into(), pem);
    let refused = from_toml(&text, 0, &mut |name| Ok(all[name].clone())).unwrap_err().to_string();
    assert!(refused.contains("the root that signed it is not in this charter"), "{refused}");
    assert!(Facts::parse(fabric.site.certificate()).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_bytes_never_panic(bytes in any::<Vec<u8>>(), text in "[ -~\n]{0,300}") {
        let _ = sealed::open(&bytes, &[], NOW);
        let _ = sealed::look(text.as_bytes());
        let _ = wire::read(&bytes);
        let _ = draft(&text);
    }

    /// A changed text is refused or read, and never breaks a rule.
    #[test]
    fn what_is_read_obeys_the_rules(at in any::<prop::sample::Index>(), byte in 32_u8..127) {
        let mut text = wire::write(&charter()).unwrap();
        let index = at.index(text.len());
        text[index] = byte;
        if let Ok(read) = wire::read(&text) {
            prop_assert_eq!(read.check(), Ok(()));
            prop_assert_eq!(wire::read(&wire::write(&read).unwrap()).unwrap(), read);
        }
    }
}
