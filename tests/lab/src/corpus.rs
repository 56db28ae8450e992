//! Good and broken chains on which validators differ: to hold our predictions against the programs.

use anyhow::Result;
use isthmus_pki::families::Question;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

use crate::forge::{Forged, ca_params, leaf_params, uri_constraint};

/// One question to a validator.
pub struct Case {
    /// What is special about it.
    pub name: &'static str,
    /// Leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Anchors.
    pub roots: Vec<CertificateDer<'static>>,
    /// Revocation lists; empty: revocation is not looked at.
    pub crls: Vec<Vec<u8>>,
    /// The validator's clock.
    pub at: OffsetDateTime,
    /// PEM of the leaf's key.
    pub key: String,
}

impl Case {
    /// As [`isthmus_pki::families`] wants it.
    pub fn question(&self) -> Question<'_> {
        Question { chain: &self.chain, roots: &self.roots, crls: &self.crls, now: self.at }
    }
}

/// A root, a CA and a leaf, before they become cases.
struct Mesh {
    root: Forged,
    ca: Forged,
    leaf: Forged,
    at: OffsetDateTime,
}

type Change<'a> = &'a dyn Fn(&mut CertificateParams);

fn same(_: &mut CertificateParams) {}

fn mesh(at: OffsetDateTime, root: Change<'_>, ca: Change<'_>, leaf: Change<'_>) -> Result<Mesh> {
    let mut params = ca_params("root", Some(1), at)?;
    params.not_after = at + Duration::days(3650);
    root(&mut params);
    let root = Forged::root(params)?;
    let mut params = ca_params("site", Some(0), at)?;
    ca(&mut params);
    let ca = root.issue(params)?;
    let mut params = leaf_params("spiffe://test.example/ns/a/sa/b", at)?;
    leaf(&mut params);
    let leaf = ca.issue(params)?;
    Ok(Mesh { root, ca, leaf, at })
}

impl Mesh {
    fn case(&self, name: &'static str) -> Case {
        Case {
            name,
            chain: vec![self.leaf.der.clone(), self.ca.der.clone()],
            roots: vec![self.root.der.clone()],
            crls: Vec::new(),
            at: self.at,
            key: self.leaf.key.serialize_pem(),
        }
    }
}

/// All of them, made to be judged at about `now`. It takes a few hundred signatures.
///
/// # Errors
/// When the library refuses to make one.
pub fn corpus(now: OffsetDateTime) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (name, root, ca, leaf) in spoiled(now) {
        cases.push(mesh(now, &*root, &*ca, &*leaf)?.case(name));
    }
    cases.extend(rearranged(now)?);
    cases.extend(revoked(now)?);
    cases.push(deep(now, "two CAs", &[None, Some(0)])?);
    cases.push(deep(now, "pathLen of a CA exceeded", &[Some(0), None])?);
    cases.push(deep(now, "seven CAs", &[None; 7])?);
    cases.push(generations(now, "120 roots of their own names", |n| format!("root {n}"))?);
    cases.push(generations(now, "120 roots of one name, no key identifiers", |_| "root".to_owned())?);
    Ok(cases)
}

type Spoil = Box<dyn Fn(&mut CertificateParams)>;

/// One certificate of three is changed.
fn spoiled(now: OffsetDateTime) -> Vec<(&'static str, Spoil, Spoil, Spoil)> {
    let none = || Box::new(same) as Spoil;
    let spoil = |change: fn(&mut CertificateParams, OffsetDateTime)| {
        Box::new(move |p: &mut CertificateParams| change(p, now)) as Spoil
    };
    let server = || spoil(|p, _| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let expired = || spoil(|p, now| p.not_after = now - Duration::minutes(1));
    let early = || spoil(|p, now| p.not_before = now + Duration::minutes(10));
    let no_sign = || spoil(|p, _| p.key_usages = vec![KeyUsagePurpose::CrlSign]);
    let no_usage = || spoil(|p, _| p.key_usages.clear());
    let constrain = |host: &'static str| {
        Box::new(move |p: &mut CertificateParams| p.custom_extensions.push(uri_constraint(host))) as Spoil
    };
    let critical = || {
        spoil(|p, _| {
            let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 55555, 1], vec![5, 0]);
            extension.set_criticality(true);
            p.custom_extensions.push(extension);
        })
    };
    vec![
        ("sound", none(), none(), none()),
        ("leaf expired", none(), none(), expired()),
        ("leaf not valid yet", none(), none(), early()),
        ("leaf for servers only", none(), none(), server()),
        ("leaf without key usages", none(), none(), spoil(|p, _| p.extended_key_usages.clear())),
        (
            "leaf that may not sign",
            none(),
            none(),
            spoil(|p, _| p.key_usages = vec![KeyUsagePurpose::KeyAgreement]),
        ),
        (
            "leaf that may only encipher keys",
            none(),
            none(),
            spoil(|p, _| p.key_usages = vec![KeyUsagePurpose::KeyEncipherment]),
        ),
        ("leaf with a critical extension of nobody's", none(), none(), critical()),
        ("CA expired", none(), expired(), none()),
        ("CA not valid yet", none(), early(), none()),
        ("CA for servers only", none(), server(), none()),
        ("CA without keyCertSign", none(), no_sign(), none()),
        ("CA without keyUsage", none(), no_usage(), none()),
        ("CA that is none", none(), spoil(|p, _| p.is_ca = IsCa::ExplicitNoCa), none()),
        ("CA that constrains URIs, fulfilled", none(), constrain("test.example"), none()),
        ("CA that constrains URIs, broken", none(), constrain("other.example"), none()),
        ("CA with a critical extension of nobody's", none(), critical(), none()),
        ("root expired", expired(), none(), none()),
        ("root not valid yet", early(), none(), none()),
        ("root for servers only", server(), none(), none()),
        ("root without keyCertSign", no_sign(), none(), none()),
        (
            "root with pathLen 0",
            spoil(|p, _| p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0))),
            none(),
            none(),
        ),
        ("root that constrains URIs, fulfilled", constrain("test.example"), none(), none()),
        ("root that constrains URIs, broken", constrain("other.example"), none(), none()),
        ("root with a critical extension of nobody's", critical(), none(), none()),
        ("root that is no CA", spoil(|p, _| p.is_ca = IsCa::ExplicitNoCa), none(), none()),
    ]
}

/// Sound certificates in the wrong places.
fn rearranged(now: OffsetDateTime) -> Result<Vec<Case>> {
    let (sound, other) = (mesh(now, &same, &same, &same)?, mesh(now, &same, &same, &same)?);
    let case = |name, chain: &[&Forged], roots: &[&Forged]| Case {
        chain: chain.iter().map(|c| c.der.clone()).collect(),
        roots: roots.iter().map(|c| c.der.clone()).collect(),
        ..sound.case(name)
    };
    let mut negative = sound.case("negative serial number of the leaf");
    negative.chain[0] = sound.leaf.with_negative_serial(&sound.ca.key)?;
    let mut mixed = sound.case("negative serial number of one root beside the good one");
    mixed.roots.insert(0, other.root.with_negative_serial(&other.root.key)?);
    let mut forged = sound.case("signature of the leaf damaged");
    let mut damaged = forged.chain[0].to_vec();
    if let Some(last) = damaged.last_mut() {
        *last ^= 1;
    }
    forged.chain[0] = damaged.into();
    Ok(vec![
        case("intermediate missing", &[&sound.leaf], &[&sound.root]),
        case("another root of the same name", &[&sound.leaf, &sound.ca], &[&other.root]),
        case("two roots of one name", &[&sound.leaf, &sound.ca], &[&other.root, &sound.root]),
        case("another CA of the same name", &[&sound.leaf, &other.ca], &[&sound.root, &other.root]),
        case("root in the chain", &[&sound.leaf, &sound.ca, &sound.root], &[&sound.root]),
        case("an intermediate as the anchor", &[&sound.leaf], &[&sound.ca]),
        Case { key: sound.ca.key.serialize_pem(), ..case("a CA as the leaf", &[&sound.ca], &[&sound.root]) },
        negative,
        mixed,
        forged,
    ])
}

fn revoked(now: OffsetDateTime) -> Result<Vec<Case>> {
    let sound = mesh(now, &same, &same, &same)?;
    let case = |name, crls: Vec<Vec<u8>>| Case { crls, ..sound.case(name) };
    let (of_root, of_ca) = (sound.root.crl(&[], now)?, sound.ca.crl(&[], now)?);
    Ok(vec![
        case("lists of all, none revoked", vec![of_root.clone(), of_ca.clone()]),
        case("list of the CA missing", vec![of_root.clone()]),
        case("list of the root missing", vec![of_ca.clone()]),
        case("CA revoked", vec![sound.root.crl(&[&sound.ca], now)?, of_ca.clone()]),
        case("leaf revoked", vec![of_root, sound.ca.crl(&[&sound.leaf], now)?]),
        case("list of the root out of date", vec![sound.root.crl(&[], now - Duration::days(40))?, of_ca]),
    ])
}

/// A chain with as many CAs as path lengths are given, the upper ones first, under a root without limit.
fn deep(now: OffsetDateTime, name: &'static str, path_lens: &[Option<u8>]) -> Result<Case> {
    let root = Forged::root(ca_params("root", None, now)?)?;
    let mut cas: Vec<Forged> = Vec::new();
    for (depth, path_len) in path_lens.iter().enumerate() {
        let ca = cas.last().unwrap_or(&root).issue(ca_params(&format!("ca {depth}"), *path_len, now)?)?;
        cas.push(ca);
    }
    let leaf = cas.last().unwrap_or(&root).issue(leaf_params("spiffe://test.example/a", now)?)?;
    let mut chain = vec![leaf.der.clone()];
    chain.extend(cas.iter().rev().map(|ca| ca.der.clone()));
    Ok(Case { name, chain, roots: vec![root.der], crls: Vec::new(), at: now, key: leaf.key.serialize_pem() })
}

/// A bundle of 120 generations, the one in use last (spiffe/spire#4415).
fn generations(now: OffsetDateTime, name: &'static str, call: impl Fn(usize) -> String) -> Result<Case> {
    let last = mesh(now, &same, &|p| p.use_authority_key_identifier_extension = false, &same)?;
    let mut case = last.case(name);
    let mut roots = Vec::new();
    for n in 0..119 {
        roots.push(Forged::root(ca_params(&call(n), Some(1), now)?)?.der);
    }
    case.roots.splice(0..0, roots);
    Ok(case)
}
