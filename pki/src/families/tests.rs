use std::slice::from_ref;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};
use time::Duration;

use super::*;
use crate::testing::{
    NOW,
    forge::{Forged, ca_params, leaf_params, uri_constraint},
};

const GO: &str = "go";
const ALL: [&str; 4] = ["go", "openssl", "rustls", "envoy"];

struct Mesh {
    root: Forged,
    ca: Forged,
    leaf: Forged,
}

fn mesh(
    root: impl FnOnce(&mut CertificateParams),
    ca: impl FnOnce(&mut CertificateParams),
    leaf: impl FnOnce(&mut CertificateParams),
) -> Mesh {
    let mut params = ca_params("root", Some(1));
    params.not_after = NOW + Duration::days(3650);
    root(&mut params);
    let root = Forged::root(params);
    let mut params = ca_params("site", Some(0));
    ca(&mut params);
    let ca = root.issue(params);
    let mut params = leaf_params("spiffe://td/ns/a/sa/b");
    leaf(&mut params);
    let leaf = ca.issue(params);
    Mesh { root, ca, leaf }
}

fn same(_: &mut CertificateParams) {}

impl Mesh {
    /// Names of those who refuse.
    fn refused_by(&self) -> Vec<&'static str> {
        refused_by(&[self.leaf.der.clone(), self.ca.der.clone()], from_ref(&self.root.der), &[])
    }
}

fn refused_by(
    chain: &[CertificateDer<'static>],
    roots: &[CertificateDer<'static>],
    crls: &[Vec<u8>],
) -> Vec<&'static str> {
    let question = Question { chain, roots, crls, now: NOW };
    let verdicts = Family::ALL.map(|family| predict(family, &question));
    verdicts.iter().filter(|v| !v.accepts).map(|v| v.family.name()).collect()
}

#[test]
fn a_sound_chain_is_taken_by_all_and_damage_by_none() {
    let (sound, other) = (mesh(same, same, same), mesh(same, same, same));
    assert!(sound.refused_by().is_empty());
    let roots = [sound.root.der.clone()];
    assert_eq!(refused_by(from_ref(&sound.leaf.der), &roots, &[]), ALL, "an intermediate is missing");
    assert_eq!(refused_by(&[other.leaf.der, other.ca.der], &roots, &[]), ALL, "another root of that name");
    assert_eq!(refused_by(&[], &roots, &[]), ALL);
    assert_eq!(refused_by(&[vec![0x30, 0].into()], &roots, &[]), ALL);
}

#[test]
fn rustls_alone_does_not_see_the_dates_of_an_anchor_and_envoy_none_of_its_rights() {
    let expired = mesh(|p| p.not_after = NOW - Duration::days(1), same, same);
    assert_eq!(expired.refused_by(), ["go", "openssl", "envoy"]);
    let short = mesh(|p| p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)), same, same);
    assert_eq!(short.refused_by(), ["go", "openssl"]);
    let no_ca = mesh(|p| p.is_ca = IsCa::ExplicitNoCa, same, same);
    assert_eq!(no_ca.refused_by(), ["go", "openssl"]);
    let constrained = mesh(|p| p.custom_extensions.push(uri_constraint("other")), same, same);
    assert_eq!(constrained.refused_by(), ALL, "its name constraints count");
    let question = Question {
        chain: &[expired.leaf.der, expired.ca.der],
        roots: &[expired.root.der],
        crls: &[],
        now: NOW,
    };
    let told = differences(&Family::ALL.map(|family| predict(family, &question)));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("go, openssl, envoy refuse(s), rustls accept(s)"), "{told:?}");
}

/// RUSTSEC-2026-0098, rustls/webpki#514: rustls refuses the chain even though the constraint is fulfilled.
#[test]
fn rustls_alone_refuses_a_uri_constraint_that_is_fulfilled() {
    let fulfilled = mesh(same, |p| p.custom_extensions.push(uri_constraint("td")), same);
    assert_eq!(fulfilled.refused_by(), ["rustls"]);
    let broken = mesh(same, |p| p.custom_extensions.push(uri_constraint("other")), same);
    assert_eq!(broken.refused_by(), ALL);
}

#[test]
fn key_usages_nest() {
    let server =
        |p: &mut CertificateParams| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    assert_eq!(mesh(same, server, same).refused_by(), ALL);
    assert_eq!(mesh(server, same, same).refused_by(), ["go", "openssl"], "the anchor's");
    let only = |usage| mesh(same, same, move |p| p.key_usages = vec![usage]).refused_by();
    assert_eq!(only(KeyUsagePurpose::KeyAgreement), ["envoy"], "of the leaf");
    assert_eq!(only(KeyUsagePurpose::KeyEncipherment), ["openssl", "envoy"], "a client has no use for it");
}

#[test]
fn rights_of_a_ca_count() {
    let none = mesh(same, |p| p.key_usages = vec![KeyUsagePurpose::CrlSign], same);
    assert_eq!(none.refused_by(), ["go", "openssl", "envoy"], "webpki does not look at keyCertSign");
    let leaf = mesh(same, |p| p.is_ca = IsCa::ExplicitNoCa, same);
    assert_eq!(leaf.refused_by(), ALL);
    let silent = mesh(same, |p| p.key_usages.clear(), same);
    assert_eq!(silent.refused_by(), ["openssl"], "-x509_strict wants a keyUsage in every CA");
}

#[test]
fn a_ca_is_no_peer_for_rustls() {
    let mesh = mesh(same, same, same);
    let refused = refused_by(&[mesh.ca.der], &[mesh.root.der], &[]);
    assert_eq!(refused, ["openssl", "rustls", "envoy"], "no digitalSignature; Go does not mind");
}

/// istio/istio#56815.
#[test]
fn go_alone_refuses_a_negative_serial_number() {
    let mesh = mesh(same, same, same);
    let leaf = mesh.leaf.with_negative_serial(&mesh.ca.key);
    let refused = refused_by(&[leaf, mesh.ca.der], &[mesh.root.der], &[]);
    assert!(refused.contains(&GO) && !refused.contains(&"openssl"), "{refused:?}");
}

/// spiffe/spire#4415: roots of one name use up Go's signature checks; subjects of their own do not.
#[test]
fn many_roots_of_one_name_exhaust_go() {
    let nameless = |p: &mut CertificateParams| p.use_authority_key_identifier_extension = false;
    let last = mesh(same, nameless, same);
    let mut same_name: Vec<_> = (0..119).map(|_| Forged::root(ca_params("root", Some(1))).der).collect();
    same_name.push(last.root.der.clone());
    let chain = [last.leaf.der.clone(), last.ca.der.clone()];
    assert!(refused_by(&chain, &same_name, &[]).contains(&GO));
    let mut own_names: Vec<_> =
        (0..119).map(|n| Forged::root(ca_params(&format!("root {n}"), Some(1))).der).collect();
    own_names.push(last.root.der.clone());
    assert!(!refused_by(&chain, &own_names, &[]).contains(&GO));
}

#[test]
fn an_anchor_that_is_no_root_is_refused_by_openssl() {
    let mesh = mesh(same, same, same);
    assert_eq!(refused_by(&[mesh.leaf.der], &[mesh.ca.der], &[]), ["openssl"]);
}

#[test]
fn lists_are_wanted_of_every_ca_and_go_looks_at_none() {
    let mesh = mesh(same, same, same);
    let (chain, roots) = ([mesh.leaf.der.clone(), mesh.ca.der.clone()], [mesh.root.der.clone()]);
    let (root_list, ca_list) = (mesh.root.crl(&[], NOW), mesh.ca.crl(&[], NOW));
    assert!(refused_by(&chain, &roots, &[root_list.clone(), ca_list.clone()]).is_empty());
    assert_eq!(refused_by(&chain, &roots, from_ref(&root_list)), ["openssl", "rustls", "envoy"]);
    let revoking = mesh.root.crl(&[&mesh.ca.der], NOW);
    assert_eq!(refused_by(&chain, &roots, &[revoking, ca_list.clone()]), ["openssl", "rustls", "envoy"]);
    let stale = mesh.root.crl(&[], NOW - Duration::days(40));
    let refused = refused_by(&chain, &roots, &[stale, ca_list]);
    assert!(
        refused.contains(&"openssl") && refused.contains(&"envoy") && !refused.contains(&GO),
        "{refused:?}"
    );
}
