//! For each check a broken and a sound input, made by our own code or by [`forge`](crate::testing::forge).

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

/// istio/istio#4640 and istio-csr#155.
#[test]
fn check_1_an_intermediate_missing_from_the_chain() {
    sound(1, vec![fresh().builder("a")]);
    let mesh = fresh();
    let mut no_ca = mesh.builder("a");
    put(&mut no_ca, "cert-chain.pem", &to_pem([&mesh.root.der]));
    one(1, no_ca, Severity::Error, "d/cert-chain.pem", "certificate 1", "not the signing CA");
    let mut twice = mesh.builder("a");
    put(&mut twice, "cert-chain.pem", &to_pem([&mesh.ca.der, &mesh.root.der, &mesh.root.der]));
    one(1, twice, Severity::Warn, "d/cert-chain.pem", "certificate 3", "is there twice");
    let mut bare = mesh.builder("a");
    put(&mut bare, "bare.pem", &to_pem([&mesh.leaf.der]));
    one(1, bare, Severity::Error, "d/bare.pem", "issuer", "CN=site is missing");
    // A CA below a CA, of which only ca-cert.pem knows.
    let upper_root = Forged::root(ca_params("root", None));
    let upper = upper_root.issue(ca_params("upper", Some(1)));
    let lower = upper.issue(ca_params("lower", Some(0)));
    let deep = |chain: &[&CertificateDer<'static>]| {
        let mut builder = ClusterBuilder::new("a");
        put(&mut builder, "ca-cert.pem", &to_pem([&lower.der]));
        put(&mut builder, "ca-key.pem", &lower.key.to_pem());
        put(&mut builder, "root-cert.pem", &to_pem([&upper_root.der]));
        put(&mut builder, "cert-chain.pem", &to_pem(chain.iter().copied()));
        builder
    };
    one(1, deep(&[&lower.der]), Severity::Error, "d/cert-chain.pem", "issuer", "CN=upper");
    sound(1, vec![deep(&[&lower.der, &upper.der])]);
}

#[test]
fn check_2_roots_that_differ_between_clusters() {
    let (a, b) = (fresh(), fresh());
    sound(2, vec![a.builder("a"), a.builder("b")]);
    broken(
        2,
        vec![a.builder("a"), b.builder("b")],
        Severity::Error,
        "a: d/root-cert.pem",
        "SHA-256",
        "which b: d/root-cert.pem has",
    );
    let mut namespace = a.builder("a");
    let map = serde_json::json!({"kind": "ConfigMap", "metadata": {"name": "istio-ca-root-cert", "namespace": "shop"}, "data": {"root-cert.pem": to_pem([&b.root.der])}});
    namespace.document("x", map.to_string().as_bytes(), NOW);
    one(
        2,
        namespace,
        Severity::Error,
        "ConfigMap shop/istio-ca-root-cert/root-cert.pem",
        "SHA-256",
        "lacks the root",
    );
}

#[test]
fn check_3_what_istiod_refuses() {
    let mesh = fresh();
    sound(3, vec![mesh.builder("a")]);
    let mut leaf = mesh.builder("a");
    put(&mut leaf, "ca-cert.pem", &to_pem([&mesh.leaf.der]));
    put(&mut leaf, "ca-key.pem", &mesh.leaf.key.to_pem());
    one(3, leaf, Severity::Error, "d/ca-cert.pem", "basicConstraints", "is a leaf, not a CA");
    let mut some = ClusterBuilder::new("a");
    put(&mut some, "ca-cert.pem", &to_pem([&mesh.ca.der]));
    one(3, some, Severity::Error, "d/root-cert.pem", "file", "is missing");
}

#[test]
fn check_4_a_root_that_is_none() {
    let mesh = fresh();
    sound(4, vec![mesh.builder("a")]);
    let mut builder = mesh.builder("a");
    put(&mut builder, "root-cert.pem", &to_pem([&mesh.ca.der]));
    one(4, builder, Severity::Warn, "d/root-cert.pem", "issuer", "is an intermediate");
    // Issuer and subject are the same name, the signature is another root's.
    let impostor = mesh.root.issue(ca_params("root", Some(1)));
    let mut builder = mesh.builder("a");
    put(&mut builder, "root-cert.pem", &to_pem([&mesh.root.der, &impostor.der]));
    one(4, builder, Severity::Error, "d/root-cert.pem", "signature", "its own key did not sign it");
}

#[test]
fn check_5_an_anchor_that_only_rustls_takes() {
    sound(5, vec![fresh().builder("a")]);
    let expired = mesh_of(|p| p.not_after = NOW - Duration::days(1), same, same);
    one(5, expired.builder("a"), Severity::Error, "d/root-cert.pem", "validity", "rustls goes on");
    let short = mesh_of(|p| p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)), same, same);
    one(5, short.builder("a"), Severity::Error, "d/ca-cert.pem", "pathLenConstraint", "pathLen of 0");
}

#[test]
fn check_6_certificates_near_their_end() {
    let mesh = fresh();
    sound(6, vec![mesh.builder("a")]);
    let at = |now| faults_at(6, vec![mesh.builder("a")], now);
    let ca = |found: &[Finding]| found.iter().find(|f| f.file == "d/ca-cert.pem").map(|f| f.severity);
    assert_eq!(ca(&at(NOW + Duration::days(40))), None);
    assert_eq!(ca(&at(NOW + Duration::days(46))), Some(Severity::Warn), "half of its life");
    assert_eq!(ca(&at(NOW + Duration::days(70))), Some(Severity::Error), "a quarter");
    let expired = at(NOW + Duration::days(91));
    assert!(
        expired
            .iter()
            .any(|f| f.file == "d/cert-chain.pem" && f.field == "notAfter" && f.what.contains("expired"))
    );
    assert!(at(NOW + Duration::days(46)).iter().all(|f| f.file != "d/root-cert.pem"));
    // A CA of two days: workloads of 24 hours get less from its second day on.
    let short = mesh_of(same, |p| p.not_after = NOW + Duration::hours(47), same);
    one(6, short.builder("a"), Severity::Warn, "d/ca-cert.pem", "notAfter", "soon workloads get less");
    let shorter = mesh_of(same, |p| p.not_after = NOW + Duration::hours(23), same);
    one(6, shorter.builder("a"), Severity::Error, "d/ca-cert.pem", "notAfter", "get less");
}

#[test]
fn check_7_a_proxy_without_a_certificate() {
    let certs = |entries: &str| {
        let mut builder = ClusterBuilder::new("a");
        builder.envoy("proxy", format!("{{\"certificates\":[{entries}]}}").as_bytes());
        builder
    };
    let chain = r#"{"cert_chain":[{"subject_alt_names":[{"uri":"spiffe://td/a"}],"valid_from":"2026-06-01T11:59:00Z"}]}"#;
    sound(7, vec![certs(chain)]);
    one(7, certs(""), Severity::Error, "proxy", "certificates", "holds no certificate");
    let stats = |text: &str| {
        let mut builder = ClusterBuilder::new("a");
        builder.envoy("stats", text.as_bytes());
        builder
    };
    let name = "listener.0.0.0.0_15006.server_ssl_socket_factory.downstream_context_secrets_not_ready";
    sound(7, vec![stats(&format!("{name}: 0\ncluster.x.upstream_cx_total: 7\n"))]);
    one(7, stats(&format!("{name}: 3\n")), Severity::Error, "stats", name, "3 connections");
    one(
        7,
        stats("cluster.sds-grpc.update_rejected: 2\n"),
        Severity::Warn,
        "stats",
        "cluster.sds-grpc.update_rejected",
        "2 updates",
    );
}

fn with_mesh(mesh: &Mesh, name: &str, yaml: &str, ambient: bool) -> ClusterBuilder {
    let mut builder = mesh.builder(name);
    let map = serde_json::json!({"kind": "ConfigMap", "metadata": {"name": "istio", "namespace": "istio-system"}, "data": {"mesh": yaml}});
    builder.document("x", map.to_string().as_bytes(), NOW);
    if ambient {
        let set = serde_json::json!({"kind": "DaemonSet", "metadata": {"name": "ztunnel", "namespace": "istio-system"}});
        builder.document("x", set.to_string().as_bytes(), NOW);
    }
    builder
}

#[test]
fn check_8_trust_domains_in_ambient_mode() {
    let mesh = fresh();
    sound(8, vec![with_mesh(&mesh, "a", "trustDomain: td", true)]);
    let alias = "trustDomain: cluster.local\ntrustDomainAliases: [td]";
    broken(
        8,
        vec![with_mesh(&mesh, "a", alias, true)],
        Severity::Error,
        "d/ca-cert.pem",
        "URI SAN",
        "cluster.local",
    );
    // Without ambient mode: Istio's default beside a CA of a fabric.
    one(
        8,
        with_mesh(&mesh, "a", "enableTracing: true", false),
        Severity::Error,
        "ConfigMap istio-system/istio/mesh",
        "trustDomain",
        "\"td\"",
    );
}

#[test]
fn check_9_trust_domains_without_an_alias() {
    let mesh = fresh();
    let alias = "trustDomain: other\ntrustDomainAliases: [td]";
    sound(9, vec![with_mesh(&mesh, "a", alias, false)]);
    one(
        9,
        with_mesh(&mesh, "a", "trustDomain: other", false),
        Severity::Error,
        "ConfigMap istio-system/istio/mesh",
        "trustDomainAliases",
        "\"td\"",
    );
    let stranger =
        mesh_of(same, same, |p| p.subject_alt_names = vec![crate::testing::forge::uri("spiffe://other/a")]);
    one(9, stranger.builder("a"), Severity::Error, "d/leaf.pem", "URI SAN", "\"other\"");
}

#[test]
fn check_10_the_old_ca_still_signs() {
    let (mesh, old) = (fresh(), fresh());
    sound(10, vec![mesh.builder("a")]);
    let secret = |changed: OffsetDateTime| {
        let at = changed.format(&time::format_description::well_known::Rfc3339).unwrap();
        let data: serde_json::Map<_, _> = [
            ("ca-cert.pem", to_pem([&mesh.ca.der])),
            ("ca-key.pem", mesh.ca.key.to_pem().to_string()),
            ("root-cert.pem", to_pem([&mesh.root.der, &old.root.der])),
            ("cert-chain.pem", to_pem([&mesh.ca.der])),
        ]
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text.into()))
        .collect();
        let secret = serde_json::json!({"kind": "Secret", "metadata": {"name": "cacerts", "namespace": "istio-system", "managedFields": [{"time": at}]}, "stringData": data});
        let mut builder = ClusterBuilder::new("a");
        builder.document("x", secret.to_string().as_bytes(), NOW);
        put(&mut builder, "leaf.pem", &to_pem([&old.leaf.der, &old.ca.der]));
        builder
    };
    one(10, secret(NOW), Severity::Warn, "d/leaf.pem", "issuer", "not by the CA in the Secret");
    one(
        10,
        secret(NOW - Duration::hours(1)),
        Severity::Error,
        "d/leaf.pem",
        "issuer",
        "which was changed before",
    );
    let with_env = |value: &str| {
        let mut builder = secret(NOW);
        let env = serde_json::json!([{"name": "ISTIO_MULTIROOT_MESH", "value": value}]);
        let istiod = serde_json::json!({"kind": "Deployment", "metadata": {"name": "istiod", "namespace": "istio-system"}, "spec": {"template": {"spec": {"containers": [{"env": env}]}}}});
        builder.document("x", istiod.to_string().as_bytes(), NOW);
        builder
    };
    one(
        10,
        with_env("false"),
        Severity::Warn,
        "Deployment istio-system/istiod",
        "env",
        "ISTIO_MULTIROOT_MESH",
    );
    assert!(faults(10, vec![with_env("true")]).iter().all(|f| f.field != "env"));
}

/// RUSTSEC-2026-0098.
#[test]
fn check_11_uri_constraints() {
    sound(11, vec![fresh().builder("a")]);
    let constrained = mesh_of(same, |p| p.custom_extensions.push(uri_constraint("td")), same);
    one(
        11,
        constrained.builder("a"),
        Severity::Error,
        "d/ca-cert.pem",
        "nameConstraints",
        "permitted [\"td\"]",
    );
}

/// istio/istio#56815, trust-manager#515: the bad root is named, the rest is kept.
#[test]
fn check_12_one_bad_root_among_good_ones() {
    let mesh = fresh();
    sound(12, vec![mesh.builder("a")]);
    let negative = mesh.root.with_negative_serial(&mesh.root.key);
    let mut builder = mesh.builder("a");
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    put(&mut builder, "root-cert.pem", &(to_pem([&negative]) + junk + &to_pem([&mesh.root.der])));
    let cluster = builder.finish();
    assert_eq!(cluster.cacerts.as_ref().unwrap().root_cert.certificates.len(), 1, "the good one is kept");
    let found = examine(&Inventory { clusters: vec![cluster], ..Inventory::default() }, NOW);
    let of = |check| found.iter().filter(move |f| f.check == check && f.severity > Severity::Ok);
    assert_eq!(of(12).count(), 2);
    assert!(of(12).any(|f| f.field.starts_with("block 1 ") && f.what.contains("negative serial")));
    assert!(of(12).any(|f| f.field.starts_with("block 2 ")));
    assert_eq!((of(3).count(), of(1).count()), (0, 0), "istiod starts with the good one");
    let mut beside = mesh.builder("a");
    put(&mut beside, "site-ca.key", &mesh.ca.key.to_pem());
    put(&mut beside, "values.yaml", "replicas: 3\n");
    sound(12, vec![beside]);
    let mut key = mesh.builder("a");
    put(&mut key, "x.pem", &(mesh.ca.key.to_pem().to_string() + &to_pem([&mesh.ca.der])));
    one(12, key, Severity::Error, "d/x.pem", "block 1 (line 1)", "PRIVATE KEY");
}

#[test]
fn check_13_clocks() {
    sound(13, vec![fresh().builder("a")]);
    let early = mesh_of(same, same, |p| p.not_before = NOW + Duration::seconds(90));
    one(13, early.builder("a"), Severity::Error, "d/leaf.pem", "notBefore", "90 s ahead");
    let lease = |seconds: i64| {
        let at = (NOW + Duration::seconds(seconds))
            .format(&time::format_description::well_known::Rfc3339)
            .unwrap();
        let lease = serde_json::json!({"kind": "Lease", "metadata": {"name": "n1", "namespace": "kube-node-lease"}, "spec": {"renewTime": at}});
        let mut builder = ClusterBuilder::new("a");
        builder.document("x", lease.to_string().as_bytes(), NOW);
        builder
    };
    for seconds in [0, 30, -30] {
        sound(13, vec![lease(seconds)]);
    }
    one(13, lease(45), Severity::Warn, "node n1", "clock", "45 s ahead");
    one(13, lease(90), Severity::Error, "node n1", "clock", "90 s ahead");
    one(13, lease(-100), Severity::Warn, "node n1", "clock", "90 s behind");
}

/// istio/istio#27193.
#[test]
fn check_14_key_usage_of_a_ca() {
    sound(14, vec![fresh().builder("a")]);
    let server = mesh_of(same, |p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth], same);
    one(14, server.builder("a"), Severity::Error, "d/ca-cert.pem", "extKeyUsage", "lacks clientAuth");
    let both = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    sound(14, vec![mesh_of(same, |p| p.extended_key_usages = both, same).builder("a")]);
}

/// cert-manager#5114 and #6554.
#[test]
fn check_15_a_leaf_with_the_old_ca_behind_it() {
    let mesh = fresh();
    sound(15, vec![mesh.builder("a")]);
    let old = mesh.root.issue(ca_params("site", Some(0)));
    let mut builder = mesh.builder("a");
    put(&mut builder, "leaf.pem", &to_pem([&mesh.leaf.der, &old.der]));
    one(
        15,
        builder,
        Severity::Error,
        "d/leaf.pem",
        "authorityKeyIdentifier",
        "the leaf is of the current CA",
    );
}

#[test]
fn check_16_path_length() {
    sound(16, vec![fresh().builder("a")]);
    let root = Forged::root(ca_params("root", None));
    let upper = root.issue(ca_params("upper", Some(0)));
    let lower = upper.issue(ca_params("lower", Some(0)));
    let mut builder = ClusterBuilder::new("a");
    put(&mut builder, "root.pem", &to_pem([&root.der]));
    put(&mut builder, "cas.pem", &to_pem([&lower.der, &upper.der]));
    one(16, builder, Severity::Error, "d/cas.pem", "pathLenConstraint", "allows 0 CAs below it");
    let mut cas = vec![Forged::root(ca_params("root", None))];
    for depth in 0..7 {
        let next = cas.last().unwrap().issue(ca_params(&format!("ca {depth}"), None));
        cas.push(next);
    }
    let mut builder = ClusterBuilder::new("a");
    put(&mut builder, "root.pem", &to_pem([&cas[0].der]));
    put(&mut builder, "cas.pem", &to_pem(cas[1..].iter().rev().map(|c| &c.der)));
    one(16, builder, Severity::Error, "d/cas.pem", "chain", "webpki follows 6");
}

#[test]
fn check_17_istio_csr_without_a_root() {
    let csr = |args: &[&str]| {
        let spec = serde_json::json!({"template": {"spec": {"containers": [{"args": args}]}}});
        let object = serde_json::json!({"kind": "Deployment", "metadata": {"name": "cert-manager-istio-csr", "namespace": "cert-manager"}, "spec": spec});
        let mut builder = ClusterBuilder::new("a");
        builder.document("x", object.to_string().as_bytes(), NOW);
        builder
    };
    sound(17, vec![csr(&["--root-ca-file=/var/run/ca.pem"])]);
    sound(17, vec![csr(&["--root-ca-file", "/var/run/ca.pem"])]);
    for args in [&["--serving-address=0"][..], &["--root-ca-file="], &["--root-ca-file", "--x"]] {
        one(
            17,
            csr(args),
            Severity::Error,
            "Deployment cert-manager/cert-manager-istio-csr",
            "--root-ca-file",
            "is not set",
        );
    }
}

#[test]
fn a_dump_of_a_proxy_is_a_chain_and_a_set_of_roots() {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let mesh = fresh();
    let encode = |pem: String| BASE64_STANDARD.encode(pem);
    let dump = serde_json::json!({"dynamicActiveSecrets": [
        {"name": "default", "secret": {"tlsCertificate": {"certificateChain": {"inlineBytes": encode(to_pem([&mesh.leaf.der]))}}}},
        {"name": "ROOTCA", "secret": {"validationContext": {"trustedCa": {"inlineBytes": encode(to_pem([&mesh.root.der]))}}}},
    ]});
    let mut builder = ClusterBuilder::new("a");
    builder.document("proxy.json", dump.to_string().as_bytes(), NOW);
    one(1, builder, Severity::Error, "proxy.json: default", "issuer", "is missing");
}

#[test]
fn own_ca_of_istiod_is_its_own_root() {
    let mut params = ca_params("cluster.local", None);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "cluster.local");
    params.not_after = NOW + Duration::days(3650);
    let own = Forged::root(params);
    let secret = serde_json::json!({"kind": "Secret", "metadata": {"name": "istio-ca-secret", "namespace": "istio-system"}, "stringData": {"ca-cert.pem": to_pem([&own.der]), "ca-key.pem": own.key.to_pem().to_string(), "root-cert.pem": "", "cert-chain.pem": "", "istio-generated": ""}});
    let mut builder = ClusterBuilder::new("a");
    builder.document("x", secret.to_string().as_bytes(), NOW);
    for check in [1, 3, 4, 12] {
        let mut copy = ClusterBuilder::new("a");
        copy.document("x", secret.to_string().as_bytes(), NOW);
        sound(check, vec![copy]);
    }
    assert!(builder.finish().cacerts.is_some());
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
