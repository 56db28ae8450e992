//! For each check a broken and a sound input, made by our own code or by [`forge`](crate::testing::forge).

mod chains;
mod clusters;

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa};
use rustls_pki_types::CertificateDer;
use time::Duration;

use super::*;
use crate::{
    bundle::to_pem,
    testing::{
        Fabric, NOW,
        forge::{Forged, ca_params, leaf_params, uri_constraint},
    },
};

/// A root, a site CA and a leaf, in files.
struct Mesh {
    root: Forged,
    ca: Forged,
    leaf: Forged,
}

fn same(_: &mut CertificateParams) {}

fn mesh_of(
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

fn fresh() -> Mesh {
    mesh_of(same, same, same)
}

impl Mesh {
    fn builder(&self, name: &str) -> ClusterBuilder {
        let mut builder = ClusterBuilder::new(name);
        put(&mut builder, "ca-cert.pem", &to_pem([&self.ca.der]));
        put(&mut builder, "ca-key.pem", &self.ca.key.to_pem());
        put(&mut builder, "root-cert.pem", &to_pem([&self.root.der]));
        put(&mut builder, "cert-chain.pem", &to_pem([&self.ca.der]));
        put(&mut builder, "leaf.pem", &to_pem([&self.leaf.der, &self.ca.der]));
        builder
    }
}

fn put(builder: &mut ClusterBuilder, name: &str, text: &str) {
    builder.file("d", name, text.as_bytes(), NOW);
}

/// The findings of one check that are no praise.
fn faults_at(check: u8, builders: Vec<ClusterBuilder>, now: OffsetDateTime) -> Vec<Finding> {
    let clusters = builders.into_iter().map(ClusterBuilder::finish).collect();
    let inventory = Inventory { clusters, ..Inventory::default() };
    let found =
        examine(&inventory, now).into_iter().filter(|f| f.check == check && f.severity > Severity::Ok);
    found.collect()
}

fn faults(check: u8, builders: Vec<ClusterBuilder>) -> Vec<Finding> {
    faults_at(check, builders, NOW)
}

/// The one fault of a broken input: where, and words that must be in it.
#[track_caller]
fn broken(
    check: u8,
    builders: Vec<ClusterBuilder>,
    severity: Severity,
    file: &str,
    field: &str,
    words: &str,
) {
    let found = faults(check, builders);
    let fits = |f: &Finding| {
        f.severity == severity && f.file.contains(file) && f.field == field && f.what.contains(words)
    };
    assert!(found.iter().any(fits), "{check}: {found:#?}");
    assert!(found.iter().all(|f| !f.remedy.is_empty() && !f.why.is_empty()));
}

#[track_caller]
fn sound(check: u8, builders: Vec<ClusterBuilder>) {
    let found = faults(check, builders);
    assert!(found.is_empty(), "{check}: {found:#?}");
}

fn one(check: u8, builder: ClusterBuilder, severity: Severity, file: &str, field: &str, words: &str) {
    broken(check, vec![builder], severity, file, field, words);
}

#[test]
fn two_sound_clusters_pass_every_check_that_has_something_to_look_at() {
    let fabric = Fabric::new("td");
    let mut builder = ClusterBuilder::new("ours");
    put(&mut builder, "ca-cert.pem", &to_pem([fabric.site.certificate()]));
    put(&mut builder, "ca-key.pem", &fabric.site_key_pem());
    put(&mut builder, "root-cert.pem", &to_pem([&fabric.root_certificate()]));
    put(&mut builder, "cert-chain.pem", &to_pem([fabric.site.certificate()]));
    put(&mut builder, "node.pem", &to_pem([&fabric.node("gw1").0, fabric.site.certificate()]));
    put(&mut builder, "root.pem", &to_pem([&fabric.root_certificate()]));
    let clusters = vec![builder.finish()];
    let found = examine(&Inventory { clusters, ..Inventory::default() }, NOW);
    assert_eq!(found.len(), 17, "{found:#?}");
    assert_eq!(found.iter().map(|f| f.check).collect::<Vec<_>>(), (1..=17).collect::<Vec<_>>());
    assert_eq!(worst(&found), Severity::Ok, "{found:#?}");
    let skipped: Vec<u8> =
        found.iter().filter(|f| f.severity == Severity::Skipped).map(|f| f.check).collect();
    assert_eq!(skipped, [7, 8, 17], "ambient, Envoy and istio-csr are not here");
}

proptest::proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        let mut builder = ClusterBuilder::new("a");
        for name in ["ca-cert.pem", "ca-key.pem", "root-cert.pem", "cert-chain.pem", "ca-crl.pem", "x"] {
            builder.file("d", name, &bytes, NOW);
        }
        builder.document("x", &bytes, NOW);
        builder.envoy("x", &bytes);
        examine(&Inventory { clusters: vec![builder.finish()], ..Inventory::default() }, NOW);
    }
}
