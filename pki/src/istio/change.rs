//! What to put into `cacerts`, in a new mesh and in one that runs.
//!
//! Istiod that runs refuses another root-cert.pem unless ISTIO_MULTIROOT_MESH is true and one set of roots contains the other
//! (istio/istio#59909), and a workload believes a new issuer only when it has the root already (istio/istio#53961). So a root changes
//! in three updates: both roots under the old issuer, then the new issuer, then the old root goes.

use std::collections::BTreeSet;

use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::{CA_CERT, CA_CRL, CA_KEY, CERT_CHAIN, Cacerts, Files, ROOT_CERT};
use crate::{bundle::to_pem, x509::Certificate};

/// One update of a mesh that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A new mesh, or a renewal under the same roots.
    All,
    /// Our root beside the old ones; the issuer stays.
    AddRoot,
    /// Our issuer; the roots stay.
    Switch,
    /// Only our roots.
    DropOld,
}

/// Our side.
pub struct Signer {
    /// The signing CA, then CAs between it and the root.
    pub chain: Vec<Certificate>,
    /// PEM of its key.
    pub key: Zeroizing<Vec<u8>>,
    /// Our roots, the one that matters first: Istio's metrics follow the first.
    pub roots: Vec<Certificate>,
    /// PEM of revocation lists; empty: none.
    pub crls: String,
}

/// Why a step is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The roots in place and ours are not comparable.
    #[error(
        "the mesh trusts other roots than ours, and istiod does not replace roots at once: run the steps add-root, switch and drop-old one after another, and restart workloads between them where certificates live long"
    )]
    OtherRoots,
    /// A step of a change without anything in place.
    #[error("there is no CA in place that this step could start from; in a new mesh leave --step away")]
    NothingInPlace,
    /// Switching before all workloads can know our root.
    #[error(
        "our root is not in root-cert.pem yet: run the step add-root first, and wait until every namespace's istio-ca-root-cert has it"
    )]
    RootUnknown,
    /// Dropping the root that still issues.
    #[error(
        "the CA in place was not issued by our roots: run the step switch first, and wait until every workload has a certificate of it"
    )]
    OldIssuer,
    /// What is in place lacks something.
    #[error("the CA in place can't be kept: {0} is missing")]
    Incomplete(&'static str),
}

/// The files after one step. `in_place` are those of the Secret `cacerts`, or of `istio-ca-secret` where istiod made its own CA.
pub fn plan(step: Step, ours: &Signer, in_place: Option<&Files>) -> Result<Files, Refusal> {
    let found = in_place.and_then(|files| Cacerts::read("in place", files));
    let old = found.as_ref().map(trusted).unwrap_or_default();
    match (step, &found) {
        (Step::All, None) => Ok(files(ours, &ours.roots)),
        (Step::All, Some(_)) if same(&old, &ours.roots) => Ok(files(ours, &ours.roots)),
        (Step::All, Some(_)) => Err(Refusal::OtherRoots),
        (_, None) => Err(Refusal::NothingInPlace),
        (Step::AddRoot, Some(found)) => keep_issuer(in_place, found, &union(&old, &ours.roots)),
        (Step::Switch, Some(_)) if !contains(&old, &ours.roots) => Err(Refusal::RootUnknown),
        (Step::Switch, Some(_)) => Ok(files(ours, &union(&ours.roots, &old))),
        (Step::DropOld, Some(found)) if !issued_by(found, &ours.roots) => Err(Refusal::OldIssuer),
        (Step::DropOld, Some(_)) if !contains(&old, &ours.roots) => Err(Refusal::RootUnknown),
        (Step::DropOld, Some(_)) => Ok(files(ours, &ours.roots)),
    }
}

/// Roots that workloads have now. Istiod's own CA has no root-cert.pem: it is its own root.
fn trusted(files: &Cacerts) -> Vec<Certificate> {
    let roots = &files.root_cert.certificates;
    if roots.is_empty() { files.ca_cert.certificates.clone() } else { roots.clone() }
}

fn digests(list: &[Certificate]) -> BTreeSet<&str> {
    list.iter().map(|c| c.facts.sha256.as_str()).collect()
}

fn same(a: &[Certificate], b: &[Certificate]) -> bool {
    digests(a) == digests(b)
}

fn contains(all: &[Certificate], some: &[Certificate]) -> bool {
    digests(all).is_superset(&digests(some))
}

fn union(first: &[Certificate], then: &[Certificate]) -> Vec<Certificate> {
    let mut all = first.to_vec();
    all.extend(then.iter().filter(|c| !contains(first, std::slice::from_ref(c))).cloned());
    all
}

fn issued_by(files: &Cacerts, roots: &[Certificate]) -> bool {
    let top = files.cert_chain.certificates.last().or(files.ca_cert.certificates.first());
    top.is_some_and(|top| roots.iter().any(|root| top.names_as_issuer(root) && top.is_signed_by(root)))
}

fn keep_issuer(in_place: Option<&Files>, found: &Cacerts, roots: &[Certificate]) -> Result<Files, Refusal> {
    let file = |name: &'static str| {
        in_place.and_then(|files| files.get(name)).cloned().ok_or(Refusal::Incomplete(name))
    };
    let [ca, key] = if found.tls { ["tls.crt", "tls.key"] } else { [CA_CERT, CA_KEY] };
    let ca_cert = file(ca)?;
    // Istiod's own CA has no chain either; all four must be there.
    let chain =
        if found.tls { ca_cert.clone() } else { file(CERT_CHAIN).unwrap_or_else(|_| ca_cert.clone()) };
    let mut files = Files::from([
        (CA_CERT.to_owned(), ca_cert),
        (CA_KEY.to_owned(), file(key)?),
        (CERT_CHAIN.to_owned(), chain),
        (ROOT_CERT.to_owned(), pem(roots)),
    ]);
    files.extend(file(CA_CRL).ok().map(|lists| (CA_CRL.to_owned(), lists)));
    Ok(files)
}

/// The root is no part of cert-chain.pem: every peer has it, and it would be in every handshake twice (istio/istio#39001).
fn files(ours: &Signer, roots: &[Certificate]) -> Files {
    let mut files = Files::from([
        (CA_CERT.to_owned(), pem(&ours.chain[..ours.chain.len().min(1)])),
        (CA_KEY.to_owned(), ours.key.clone()),
        (CERT_CHAIN.to_owned(), pem(&ours.chain)),
        (ROOT_CERT.to_owned(), pem(roots)),
    ]);
    if !ours.crls.is_empty() {
        files.insert(CA_CRL.to_owned(), Zeroizing::new(ours.crls.clone().into_bytes()));
    }
    files
}

fn pem(list: &[Certificate]) -> Zeroizing<Vec<u8>> {
    let list: Vec<CertificateDer<'_>> = list.iter().map(|c| c.der.clone()).collect();
    Zeroizing::new(to_pem(&list).into_bytes())
}
