use std::slice::from_ref;

use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa};
use time::Duration;
use zeroize::Zeroizing;

use super::*;
use crate::{
    bundle::to_pem,
    testing::{
        Fabric, NOW,
        forge::{Forged, ca_params, leaf_params, uri_constraint},
    },
    x509::Certificate,
};

fn certificate(forged: &Forged) -> Certificate {
    Certificate::parse(&forged.der).unwrap()
}

fn signer(root: &Forged, ca: &Forged) -> Signer {
    Signer {
        chain: vec![certificate(ca)],
        key: Zeroizing::new(ca.key.to_pem().as_bytes().to_vec()),
        roots: vec![certificate(root)],
        crls: String::new(),
    }
}

fn pair(name: &str) -> (Forged, Forged) {
    let mut params = ca_params(name, Some(1));
    params.not_after = NOW + Duration::days(3650);
    let root = Forged::root(params);
    let ca = root.issue(ca_params(&format!("{name} site"), Some(0)));
    (root, ca)
}

fn sound() -> Files {
    let (root, ca) = pair("a");
    plan(Step::All, &signer(&root, &ca), None).unwrap()
}

fn complaints(files: &Files) -> Vec<Complaint> {
    accept(&Cacerts::read("d", files).unwrap(), NOW)
}

fn about(files: &Files) -> Vec<(&'static str, String)> {
    complaints(files).into_iter().map(|c| (c.file, c.field)).collect()
}

fn bytes(pem: String) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(pem.into_bytes())
}

#[test]
fn what_we_export_is_accepted() {
    assert_eq!(complaints(&sound()), []);
    // What our own profiles issue.
    let fabric = Fabric::new("td");
    let ours = Signer {
        chain: vec![Certificate::parse(fabric.site.certificate()).unwrap()],
        key: Zeroizing::new(fabric.site_key_pem().as_bytes().to_vec()),
        roots: vec![Certificate::parse(&fabric.root_certificate()).unwrap()],
        crls: String::new(),
    };
    let files = plan(Step::All, &ours, None).unwrap();
    assert_eq!(complaints(&files), []);
    assert_eq!(files.keys().collect::<Vec<_>>(), [CA_CERT, CA_KEY, CERT_CHAIN, ROOT_CERT]);
    // istio/istio#39001: nothing twice in a handshake, and the first of the chain is the CA.
    assert_eq!(files[CERT_CHAIN], files[CA_CERT]);
}

/// istio/istio#55696.
#[test]
fn a_part_of_the_files_is_refused_by_name() {
    for name in REQUIRED {
        let mut files = sound();
        files.remove(name);
        assert_eq!(about(&files), [(name, "file".to_owned())]);
    }
    let mut generated = sound();
    generated.insert(ISTIO_GENERATED.into(), Zeroizing::default());
    assert_eq!(about(&generated), [(ISTIO_GENERATED, "key".to_owned())]);
    assert!(Cacerts::read("d", &Files::new()).is_none());
}

#[test]
fn keys_must_be_readable_and_fit() {
    let (_, other) = pair("b");
    let mut files = sound();
    files.insert(CA_KEY.into(), bytes(other.key.to_pem().to_string()));
    let found = complaints(&files);
    assert!(found[0].file == CA_KEY && found[0].what.contains("does not belong"), "{found:?}");
    files.insert(CA_KEY.into(), bytes(other.key.to_encrypted_pem(b"x", &[0; 16], &[0; 16]).unwrap()));
    let found = complaints(&files);
    assert!(found[0].file == CA_KEY && found[0].what.contains("encrypted"), "{found:?}");
}

/// istio/istio#27605 and #27800.
#[test]
fn a_leaf_given_as_ca_is_named() {
    let (root, ca) = pair("a");
    let leaf = ca.issue(leaf_params("spiffe://td/a"));
    let mut ours = signer(&root, &leaf);
    ours.chain.push(certificate(&ca));
    let files = plan(Step::All, &ours, None).unwrap();
    let found = complaints(&files);
    assert!(found[0].field == "basicConstraints" && found[0].what.contains("is a leaf"), "{found:?}");
}

#[test]
fn the_path_is_judged_as_go_does() {
    let (root, _) = pair("a");
    let refuse = |spoil: &dyn Fn(&mut rcgen::CertificateParams)| {
        let mut params = ca_params("a site", Some(0));
        spoil(&mut params);
        !complaints(&plan(Step::All, &signer(&root, &root.issue(params)), None).unwrap()).is_empty()
    };
    assert!(refuse(&|p| p.not_after = NOW - Duration::days(1)), "expired");
    assert!(
        refuse(&|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
        "EKU without serverAuth"
    );
    assert!(
        !refuse(&|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
        "istiod itself does not mind"
    );
    assert!(
        !refuse(&|p| p.custom_extensions.push(uri_constraint("td"))),
        "Go evaluates it; ztunnel refuses it"
    );
    let (stranger, _) = pair("a");
    let (_, ca) = pair("b");
    assert!(!complaints(&plan(Step::All, &signer(&stranger, &ca), None).unwrap()).is_empty(), "another root");
    // The CA under a CA, whose middle one is only in cert-chain.pem.
    let mut params = ca_params("root 2", Some(2));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let deep_root = Forged::root(params);
    let deep_middle = deep_root.issue(ca_params("middle", Some(1)));
    let deep = deep_middle.issue(ca_params("cluster", Some(0)));
    let mut ours = signer(&deep_root, &deep);
    assert!(!complaints(&plan(Step::All, &ours, None).unwrap()).is_empty(), "the middle CA is missing");
    ours.chain.push(certificate(&deep_middle));
    assert_eq!(complaints(&plan(Step::All, &ours, None).unwrap()), []);
}

#[test]
fn the_tls_layout_is_known() {
    let (root, ca) = pair("a");
    let files = Files::from([
        ("tls.crt".to_owned(), bytes(to_pem([&ca.der]))),
        ("tls.key".to_owned(), bytes(ca.key.to_pem().to_string())),
        ("ca.crt".to_owned(), bytes(to_pem([&root.der]))),
    ]);
    let found = Cacerts::read("d", &files).unwrap();
    assert!(found.tls && found.cert_chain.certificates.len() == 2);
    assert_eq!(accept(&found, NOW), []);
}

#[test]
fn lists_are_wanted_of_every_ca() {
    let (root, ca) = pair("a");
    let pem_of = |lists: &[Vec<u8>]| -> String {
        lists.iter().map(|der| pem::encode(&pem::Pem::new("X509 CRL", der.clone()))).collect()
    };
    let with = |lists: &[Vec<u8>]| {
        let mut ours = signer(&root, &ca);
        ours.crls = pem_of(lists);
        complaints(&plan(Step::All, &ours, None).unwrap())
    };
    let (root_list, ca_list) = (root.crl(&[], NOW), ca.crl(&[], NOW));
    assert_eq!(with(&[root_list.clone(), ca_list.clone()]), []);
    assert!(with(from_ref(&root_list))[0].what.contains("a site"));
    assert!(with(from_ref(&ca_list))[0].what.contains("no list of"));
    assert!(with(&[root.crl(&[&ca.der], NOW), ca_list.clone()]).iter().any(|c| c.what.contains("revoked")));
    assert!(
        with(&[root.crl(&[], NOW - Duration::days(60)), ca_list]).iter().any(|c| c.field == "nextUpdate")
    );
}

/// istio/istio#53961, #57853 and #59909: a mesh with istiod's own CA comes under our root in three updates.
#[test]
fn a_running_mesh_changes_its_root_in_three_steps() {
    let mut params = ca_params("cluster.local", None);
    params.subject_alt_names.clear();
    let own = Forged::root(params);
    let own_secret = Files::from([
        (CA_CERT.to_owned(), bytes(to_pem([&own.der]))),
        (CA_KEY.to_owned(), bytes(own.key.to_pem().to_string())),
    ]);
    let (root, ca) = pair("a");
    let ours = signer(&root, &ca);
    let roots = |files: &Files| -> Vec<String> {
        PemFile::read("", &files[ROOT_CERT]).certificates.iter().map(|c| c.facts.subject.clone()).collect()
    };
    assert_eq!(plan(Step::All, &ours, Some(&own_secret)), Err(Refusal::OtherRoots));
    assert_eq!(plan(Step::Switch, &ours, Some(&own_secret)), Err(Refusal::RootUnknown));
    assert_eq!(plan(Step::AddRoot, &ours, None), Err(Refusal::NothingInPlace));
    let both = plan(Step::AddRoot, &ours, Some(&own_secret)).unwrap();
    assert_eq!(roots(&both), ["CN=cluster.local", "CN=a"]);
    assert_eq!((&both[CA_KEY], complaints(&both)), (&own_secret[CA_KEY], vec![]));
    assert_eq!(plan(Step::DropOld, &ours, Some(&both)), Err(Refusal::OldIssuer));
    let switched = plan(Step::Switch, &ours, Some(&both)).unwrap();
    assert_eq!(roots(&switched), ["CN=a", "CN=cluster.local"]);
    assert_eq!((&switched[CA_KEY], complaints(&switched)), (&ours.key, vec![]));
    let done = plan(Step::DropOld, &ours, Some(&switched)).unwrap();
    assert_eq!((roots(&done), complaints(&done)), (vec!["CN=a".to_owned()], vec![]));
    assert_eq!(plan(Step::All, &ours, Some(&done)), Ok(done.clone()), "a renewal");
}

#[test]
fn a_manifest_reads_back() {
    let files = sound();
    for text in [manifest(&files, "istio-system", Some("7")), manifest_yaml(&files, "istio-system")] {
        let [object] = crate::kubernetes::objects(text.as_bytes()).unwrap().try_into().ok().unwrap();
        assert_eq!(object.place(), "Secret istio-system/cacerts");
        assert_eq!(object.data, files);
        assert!(!text.contains(ISTIO_GENERATED));
    }
    assert!(manifest(&files, "n", Some("7")).contains(r#""resourceVersion":"7""#));
}
