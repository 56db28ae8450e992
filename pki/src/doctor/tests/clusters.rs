//! Checks of what a cluster holds and how it is set up, and of clusters against each other.

use super::*;

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
