//! Checks of single certificates and of the chains that they make.

use super::*;

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
