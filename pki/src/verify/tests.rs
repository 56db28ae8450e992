use proptest::prelude::*;
use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType};

use super::*;
use crate::{
    key::{Curve, Key},
    profile::Profile,
    testing::{Fabric, NOW, domain, serial},
};

fn check(fabric: &Fabric, leaf: CertificateDer<'static>) -> Result<Verified, Error> {
    let chain = [leaf, fabric.site.certificate().clone()];
    verify(&chain, &fabric.bundle().into(), Purpose::Client, NOW)
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

#[test]
fn a_sound_chain_says_who_it_is() {
    let fabric = Fabric::shared();
    let (leaf, _) = fabric.node("gw1");
    for purpose in [Purpose::Client, Purpose::Server] {
        let chain = [leaf.clone(), fabric.site.certificate().clone()];
        let verified = verify(&chain, &fabric.bundle().into(), purpose, NOW).unwrap();
        assert_eq!(verified.id.to_string(), "spiffe://td/site/s/node/gw1");
    }
}

#[test]
fn a_foreign_root_of_the_same_name_is_refused() {
    let (fabric, foreign) = (Fabric::shared(), Fabric::new("td"));
    let chain = [foreign.node("gw1").0, foreign.site.certificate().clone(), foreign.root_certificate()];
    let result = verify(&chain, &fabric.bundle().into(), Purpose::Server, NOW);
    assert!(matches!(&result, Err(Error::Path(why)) if why.contains("another root")), "{result:?}");
}

#[test]
fn one_domain_does_not_vouch_for_another() {
    // spiffe/spiffe#375: pooled bundles.
    let (fabric, other) = (Fabric::shared(), Fabric::new("other"));
    // The other domain's site CA signs an ID of ours; both bundles are loaded.
    let leaf = other.forge(|p| p.subject_alt_names = vec![uri("spiffe://td/site/s/node/gw1")]);
    let mut store = TrustStore::from(fabric.bundle());
    store.insert(other.bundle());
    let chain = [leaf, other.site.certificate().clone()];
    assert!(matches!(verify(&chain, &store, Purpose::Client, NOW), Err(Error::Path(_))));
    let unknown = verify(&[other.node("a").0], &fabric.bundle().into(), Purpose::Client, NOW);
    assert_eq!(unknown, Err(Error::UnknownTrustDomain(domain("other"))));
}

#[test]
fn a_ca_of_another_domain_on_the_path_is_refused() {
    let fabric = Fabric::shared();
    // Signed by our root, but made to serve another domain.
    let key = Key::generate(Curve::P256).unwrap();
    let profile = Profile::SiteCa { site: "s".into(), lifetime: time::Duration::days(1) };
    let params = profile.params(&domain("other"), serial(), NOW, None).unwrap();
    let issuer = rcgen::Issuer::from_params(&params, &key);
    let id = domain("td").member("/w").unwrap();
    let svid = Profile::Svid { id, dns_names: vec![], lifetime: time::Duration::hours(1) };
    let leaf_key = Key::generate(Curve::P256).unwrap();
    let leaf =
        svid.params(&domain("td"), serial(), NOW, None).unwrap().signed_by(&leaf_key, &issuer).unwrap();
    let stray = fabric.sign_with_root(&params, &key);
    let result = verify(&[leaf.der().clone(), stray], &fabric.bundle().into(), Purpose::Client, NOW);
    assert!(matches!(&result, Err(Error::OtherDomain { .. })), "{result:?}");
}

#[test]
fn dates_of_leaf_and_anchor_count() {
    let fabric = Fabric::shared();
    let chain = [fabric.node("gw1").0, fabric.site.certificate().clone()];
    let at = |now| verify(&chain, &fabric.bundle().into(), Purpose::Client, now);
    assert!(at(NOW - time::Duration::seconds(60)).is_ok());
    assert!(
        matches!(at(NOW - time::Duration::seconds(61)), Err(Error::OutOfDate(why)) if why.contains("check the clock"))
    );
    assert!(at(NOW + time::Duration::days(1)).is_ok());
    let late = NOW + time::Duration::days(1) + time::Duration::seconds(1);
    assert!(matches!(at(late), Err(Error::OutOfDate(why)) if why.contains("expired")));
    let root_gone = NOW + time::Duration::days(3651);
    assert!(matches!(at(root_gone), Err(Error::AnchorsOutOfDate { .. })));
}

#[test]
fn an_expired_site_ca_is_refused() {
    let fabric = Fabric::shared();
    let leaf = fabric.forge(|p| p.not_after = NOW + time::Duration::days(200));
    let chain = [leaf, fabric.site.certificate().clone()];
    let result = verify(&chain, &fabric.bundle().into(), Purpose::Client, NOW + time::Duration::days(91));
    assert!(matches!(&result, Err(Error::Path(why)) if why.contains("expired")), "{result:?}");
}

#[test]
fn two_uri_sans_are_refused_in_either_order() {
    // coproduct-opensource/nucleus#2362: the first spiffe URI won.
    let fabric = Fabric::shared();
    for names in
        [["spiffe://td/a", "spiffe://td/b"], ["spiffe://td/a", "https://b"], ["https://b", "spiffe://td/a"]]
    {
        let leaf = fabric.forge(|p| p.subject_alt_names = names.map(uri).to_vec());
        assert!(matches!(check(fabric, leaf), Err(Error::UriSans(_))), "{names:?}");
    }
    assert!(matches!(check(fabric, fabric.forge(|p| p.subject_alt_names.clear())), Err(Error::UriSans(_))));
}

#[test]
fn ids_are_taken_by_the_letter() {
    let fabric = Fabric::shared();
    for id in [
        "spiffe://TD/a",
        "spiffe://td/a/../b",
        "spiffe://td/a/",
        "spiffe://td//a",
        "spiffe://td/a%2fb",
        "spiffe://td:1/a",
        "https://td/a",
    ] {
        let leaf = fabric.forge(|p| p.subject_alt_names = vec![uri(id)]);
        assert!(matches!(check(fabric, leaf), Err(Error::Id(..))), "{id}");
    }
}

#[test]
fn a_ca_never_authenticates() {
    let fabric = Fabric::shared();
    let own_id = fabric.forge(|p| p.subject_alt_names = vec![uri("spiffe://td")]);
    let ca = fabric.forge(|p| p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let signer = fabric.forge(|p| p.key_usages.push(KeyUsagePurpose::KeyCertSign));
    for leaf in [own_id, ca, signer, fabric.site.certificate().clone()] {
        assert!(matches!(check(fabric, leaf), Err(Error::LeafIsCa(_))));
    }
    let silent = fabric.forge(|p| p.key_usages.clear());
    assert_eq!(check(fabric, silent), Err(Error::LeafKeyUsage));
}

#[test]
fn a_leaf_does_not_issue() {
    let fabric = Fabric::shared();
    let (middle, middle_key) = fabric.node("gw1");
    let issuer = rcgen::Issuer::from_ca_cert_der(&middle, &middle_key).unwrap();
    let id = domain("td").member("/victim").unwrap();
    let profile = Profile::Svid { id, dns_names: vec![], lifetime: time::Duration::hours(1) };
    let key = Key::generate(Curve::P256).unwrap();
    let leaf = profile.params(&domain("td"), serial(), NOW, None).unwrap().signed_by(&key, &issuer).unwrap();
    let chain = [leaf.der().clone(), middle, fabric.site.certificate().clone()];
    assert!(matches!(verify(&chain, &fabric.bundle().into(), Purpose::Client, NOW), Err(Error::Path(_))));
}

#[test]
fn a_ca_without_key_cert_sign_does_not_issue() {
    let fabric = Fabric::shared();
    let key = Key::generate(Curve::P256).unwrap();
    let profile = Profile::SiteCa { site: "s".into(), lifetime: time::Duration::days(1) };
    let mut params = profile.params(&domain("td"), serial(), NOW, None).unwrap();
    params.key_usages = vec![KeyUsagePurpose::CrlSign];
    let ca = fabric.sign_with_root(&params, &key);
    let issuer = rcgen::Issuer::from_params(&params, &key);
    let id = domain("td").member("/w").unwrap();
    let svid = Profile::Svid { id, dns_names: vec![], lifetime: time::Duration::hours(1) };
    let leaf_key = Key::generate(Curve::P256).unwrap();
    let leaf =
        svid.params(&domain("td"), serial(), NOW, None).unwrap().signed_by(&leaf_key, &issuer).unwrap();
    let result = verify(&[leaf.der().clone(), ca], &fabric.bundle().into(), Purpose::Client, NOW);
    assert!(matches!(&result, Err(Error::NotCa { .. })), "{result:?}");
}

#[test]
fn purpose_must_fit() {
    let fabric = Fabric::shared();
    let server_only = fabric.forge(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    assert!(matches!(check(fabric, server_only), Err(Error::Path(_))));
}

#[test]
fn a_missing_intermediate_is_named() {
    let fabric = Fabric::shared();
    let result = verify(&[fabric.node("gw1").0], &fabric.bundle().into(), Purpose::Client, NOW);
    assert!(matches!(&result, Err(Error::Path(why)) if why.contains("missing")), "{result:?}");
    assert_eq!(verify(&[], &fabric.bundle().into(), Purpose::Client, NOW), Err(Error::Empty));
    let many = vec![fabric.root_certificate(); MAX_CHAIN + 1];
    assert_eq!(
        verify(&many, &fabric.bundle().into(), Purpose::Client, NOW),
        Err(Error::TooLong(MAX_CHAIN + 1))
    );
}

#[test]
fn the_right_name_proves_nothing() {
    // rust-spiffe#328: a certificate that failed by its name only was taken for proven. Here self-signed, with the right ID.
    let fabric = Fabric::shared();
    let key = Key::generate(Curve::P256).unwrap();
    let id = domain("td").member("/site/s/node/gw1").unwrap();
    let profile = Profile::Svid { id, dns_names: vec!["gw1".into()], lifetime: time::Duration::hours(1) };
    let leaf = profile.params(&domain("td"), serial(), NOW, None).unwrap().self_signed(&key).unwrap();
    let alone = verify(&[leaf.der().clone()], &fabric.bundle().into(), Purpose::Server, NOW);
    assert!(matches!(alone, Err(Error::Path(_))), "{alone:?}");
    assert!(matches!(check(fabric, leaf.der().clone()), Err(Error::Path(_))));
}

#[test]
fn a_site_vouches_for_its_own_alone() {
    let fabric = Fabric::shared();
    let id = |path: &str| domain("td").member(path).unwrap();
    let foreign = check(fabric, fabric.svid(id("/site/t/node/gw1")).0);
    assert!(matches!(&foreign, Err(Error::Policy { reason: Refusal::OtherSite { .. }, .. })), "{foreign:?}");
    let shared = fabric.svid(id("/ns/a/sa/b")).0;
    assert!(check(fabric, shared.clone()).is_ok());
    let rules = Policy::new([("s".into(), vec!["/ns/b".into()])]).unwrap();
    let store = TrustStore::from(fabric.bundle()).with_policy(rules);
    let chain = [shared, fabric.site.certificate().clone()];
    let ruled = verify(&chain, &store, Purpose::Client, NOW);
    assert!(matches!(&ruled, Err(Error::Policy { reason: Refusal::NoRule { .. }, .. })), "{ruled:?}");
    // In a domain that is not ours the paths are their own affair.
    let mut federated = TrustStore::from(Fabric::new("other").bundle());
    federated.insert(fabric.bundle());
    let chain = [fabric.svid(id("/site/t/node/gw1")).0, fabric.site.certificate().clone()];
    assert!(verify(&chain, &federated, Purpose::Client, NOW).is_ok());
}

#[test]
fn a_tainted_key_vouches_for_nobody() {
    let fabric = Fabric::shared();
    let chain = [fabric.node("gw1").0, fabric.site.certificate().clone()];
    let with = |key: &Facts| {
        let policy = Policy::default().with_tainted([key.key_sha256.clone()]);
        verify(&chain, &TrustStore::from(fabric.bundle()).with_policy(policy), Purpose::Client, NOW)
    };
    assert!(matches!(with(fabric.site.facts()), Err(Error::Policy { reason: Refusal::Tainted(_), .. })));
    let root = with(fabric.root.facts());
    assert!(
        matches!(&root, Err(Error::AnchorsOutOfDate { reason, .. }) if reason.contains("tainted")),
        "{root:?}"
    );
}

#[test]
fn a_revoked_site_ca_is_refused() {
    let fabric = Fabric::shared();
    let chain = [fabric.node("gw1").0, fabric.site.certificate().clone()];
    let with = |crl| {
        verify(&chain, &TrustStore::from(fabric.bundle()).with_crls([crl]).unwrap(), Purpose::Client, NOW)
    };
    assert!(with(fabric.crl(&[], 1)).is_ok());
    assert!(with(fabric.crl(&[Fabric::new("td").site.facts()], 1)).is_ok());
    let revoked = with(fabric.crl(&[fabric.site.facts()], 1));
    assert!(matches!(&revoked, Err(Error::Path(why)) if why.contains("revoked")), "{revoked:?}");
}

/// A CA that the root signed after a change that our profiles would never make, and a chain below it.
fn chain_below(
    fabric: &Fabric,
    change: impl FnOnce(&mut rcgen::CertificateParams),
) -> [CertificateDer<'static>; 2] {
    let key = Key::generate(Curve::P256).unwrap();
    let profile = Profile::SiteCa { site: "s".into(), lifetime: time::Duration::days(1) };
    let mut params = profile.params(&domain("td"), serial(), NOW, None).unwrap();
    change(&mut params);
    let ca = fabric.sign_with_root(&params, &key);
    let issuer = rcgen::Issuer::from_params(&params, &key);
    let id = domain("td").member("/w").unwrap();
    let svid = Profile::Svid { id, dns_names: vec![], lifetime: time::Duration::hours(1) };
    let leaf_key = Key::generate(Curve::P256).unwrap();
    let leaf =
        svid.params(&domain("td"), serial(), NOW, None).unwrap().signed_by(&leaf_key, &issuer).unwrap();
    [leaf.der().clone(), ca]
}

#[test]
fn a_uri_name_constraint_is_refused_with_the_reason() {
    // RUSTSEC-2026-0098, rustls/webpki#514.
    let fabric = Fabric::shared();
    // permittedSubtrees [0] { GeneralSubtree { uniformResourceIdentifier [6] "td" } }
    let constraint = [&[0x30, 8, 0xa0, 6, 0x30, 4, 0x86, 2], b"td".as_slice()].concat();
    let chain = chain_below(fabric, |params| {
        let mut extension = rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 30], constraint);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
    });
    let result = verify(&chain, &fabric.bundle().into(), Purpose::Client, NOW);
    assert!(matches!(&result, Err(Error::UriConstraints { .. })), "{result:?}");
    assert!(result.unwrap_err().to_string().contains("ambient"));
    assert!(verify(&chain_below(fabric, |_| {}), &fabric.bundle().into(), Purpose::Client, NOW).is_ok());
}

#[test]
fn the_path_length_of_a_root_counts() {
    // webpki takes nothing but name and key from a root.
    let key = Key::generate(Curve::P256).unwrap();
    let mut params = Profile::Root { lifetime: time::Duration::days(10) }
        .params(&domain("td"), serial(), NOW, None)
        .unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let root = params.self_signed(&key).unwrap().der().clone();
    let issuer = rcgen::Issuer::from_params(&params, &key);
    let ca_key = Key::generate(Curve::P256).unwrap();
    let ca = Profile::SiteCa { site: "s".into(), lifetime: time::Duration::days(1) };
    let ca = ca.params(&domain("td"), serial(), NOW, None).unwrap();
    let ca_certificate = ca.signed_by(&ca_key, &issuer).unwrap().der().clone();
    let id = domain("td").member("/w").unwrap();
    let svid = Profile::Svid { id, dns_names: vec![], lifetime: time::Duration::hours(1) };
    let leaf_key = Key::generate(Curve::P256).unwrap();
    let issuer = rcgen::Issuer::from_params(&ca, &ca_key);
    let leaf =
        svid.params(&domain("td"), serial(), NOW, None).unwrap().signed_by(&leaf_key, &issuer).unwrap();
    let bundle = crate::Bundle::parse(&root).unwrap();
    let result = verify(&[leaf.der().clone(), ca_certificate], &bundle.into(), Purpose::Client, NOW);
    assert_eq!(result, Err(Error::PathLength { most: 0, below: 1 }));
}

proptest! {
    #[test]
    fn a_flipped_bit_never_passes(at in 0usize..4000, bit in 0u8..8) {
        let fabric = Fabric::shared();
        let mut leaf = fabric.forge(|_| {}).to_vec();
        let at = at % leaf.len();
        leaf[at] ^= 1 << bit;
        prop_assert!(check(fabric, leaf.into()).is_err());
    }
}
