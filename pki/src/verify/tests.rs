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
    assert!(matches!(&result, Err(Error::Path(why)) if why.contains("another trust domain")), "{result:?}");
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
    assert!(matches!(&result, Err(Error::Path(why)) if why.contains("may not sign")), "{result:?}");
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
