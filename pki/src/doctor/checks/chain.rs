//! Checks 1, 15 and 16: what a peer gets in a handshake must lead to a root by itself.

use time::OffsetDateTime;

use super::super::{Cluster, Inventory, Leaf, finding::Reporter};
use crate::{istio::Cacerts, x509::Certificate};

/// CAs below the anchor that webpki follows.
const WEBPKI_CAS: usize = 6;
/// Longest way that is followed.
const MAX_DEPTH: usize = 16;

/// From a certificate upwards through `pool`, by names, key identifiers and signatures; the anchor last if it is reached.
fn way_up<'a>(
    start: &'a Certificate,
    pool: &[&'a Certificate],
    anchors: &[&'a Certificate],
) -> (Vec<&'a Certificate>, bool) {
    let mut way = vec![start];
    while way.len() < MAX_DEPTH {
        let last = way[way.len() - 1];
        if anchors.iter().any(|a| a.der == last.der) {
            return (way, true);
        }
        let issues = |c: &&&Certificate| last.names_as_issuer(c) && last.is_signed_by(c) && c.der != last.der;
        let Some(next) = anchors.iter().find(issues).or_else(|| pool.iter().find(issues)) else { break };
        way.push(next);
    }
    (way, false)
}

pub(super) fn complete(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    for cluster in &inventory.clusters {
        if let Some(files) = &cluster.cacerts {
            report.looked();
            plugged(files, report);
        }
        for leaf in cluster.leaves.iter().filter(|_| !cluster.anchors().is_empty()) {
            report.looked();
            presented(leaf, cluster, report);
        }
    }
}

fn plugged(files: &Cacerts, report: &mut Reporter) {
    let Some(ca) = files.ca_cert.certificates.first() else { return };
    let place = &files.cert_chain.place;
    match files.cert_chain.certificates.first() {
        Some(first) if first.der == ca.der => {}
        Some(first) => report.error(
            place,
            "certificate 1",
            format!("it is {}, not the signing CA {}", first.label(), ca.label()),
            "put ca-cert.pem at the start of cert-chain.pem: workloads send leaf and cert-chain.pem, nothing else",
        ),
        None => {
            let what = format!("the signing CA {} is missing: no certificate can be read from the file", ca.label());
            return report.error(place, "certificate 1", what, "write ca-cert.pem and the CAs above it into cert-chain.pem");
        }
    }
    let pool: Vec<_> = files.cert_chain.certificates.iter().collect();
    let anchors: Vec<_> = files.root_cert.certificates.iter().collect();
    let (way, reached) = way_up(ca, &pool, &anchors);
    if !reached {
        let top = way[way.len() - 1];
        let what = format!(
            "the issuer of {} ({}) is neither there nor in root-cert.pem",
            top.label(),
            top.facts.issuer
        );
        report.error(place, "issuer", what, "append that intermediate to cert-chain.pem");
    }
    repeated(&files.cert_chain.certificates, place, report);
}

/// istio/istio#39001.
fn repeated(chain: &[Certificate], place: &str, report: &mut Reporter) {
    for (index, certificate) in chain.iter().enumerate() {
        if chain[..index].iter().any(|c| c.der == certificate.der) {
            let field = format!("certificate {}", index + 1);
            report.warn(
                place,
                &field,
                format!("{} is there twice", certificate.label()),
                "remove one: every handshake carries it",
            );
        }
    }
}

fn presented(leaf: &Leaf, cluster: &Cluster, report: &mut Reporter) {
    let Some((first, rest)) = leaf.chain.split_first() else { return };
    let pool: Vec<_> = rest.iter().collect();
    let (way, reached) = way_up(first, &pool, &cluster.anchors());
    let top = way[way.len() - 1];
    if !reached && !top.facts.self_issued {
        let what = format!("the chain ends at {}; its issuer {} is missing", top.label(), top.facts.issuer);
        report.error(
            &leaf.place,
            "issuer",
            what,
            "send every intermediate after the leaf; for Istio, complete cert-chain.pem",
        );
    }
}

pub(super) fn stale(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    for cluster in &inventory.clusters {
        for leaf in cluster.leaves.iter().filter(|leaf| leaf.chain.len() > 1) {
            report.looked();
            if let Some((issuer, wanted)) = stale_issuer(leaf, cluster) {
                let what = format!(
                    "authority key identifier {wanted}, but the CA that follows in the chain, {}, has {}{}",
                    issuer.label(),
                    issuer.facts.subject_key_id.as_deref().unwrap_or("none"),
                    if signed_by_current(leaf, cluster) { "; the leaf is of the current CA" } else { "" },
                );
                let remedy = "replace the whole chain with the leaf: take certificate and chain from the same issuance";
                report.error(&leaf.place, "authorityKeyIdentifier", what, remedy);
            }
        }
    }
}

/// The CA of the right name but the wrong key, and the key identifier that is wanted.
fn stale_issuer<'a>(leaf: &'a Leaf, cluster: &'a Cluster) -> Option<(&'a Certificate, &'a str)> {
    let (first, rest) = leaf.chain.split_first()?;
    let wanted = first.facts.authority_key_id.as_deref()?;
    let anchors = cluster.anchors();
    let known = rest.iter().chain(anchors);
    let fits = |c: &Certificate| c.facts.subject_key_id.as_deref() == Some(wanted);
    if known.into_iter().any(fits) {
        return None;
    }
    Some((rest.iter().find(|c| c.facts.is_ca())?, wanted))
}

fn signed_by_current(leaf: &Leaf, cluster: &Cluster) -> bool {
    cluster.signing_ca().is_some_and(|ca| leaf.chain.first().is_some_and(|l| l.is_signed_by(ca)))
}

pub(super) fn path_length(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    for cluster in &inventory.clusters {
        let anchors = cluster.anchors();
        let pool: Vec<_> = cluster.cas().map(|(_, c)| c).collect();
        for (place, ca) in cluster.cas() {
            report.looked();
            // A leaf comes below each CA; a CA that may not issue CAs is the last one.
            let (way, _) = way_up(ca, &pool, &anchors);
            measure(place, &way, report);
        }
    }
}

fn measure(place: &str, way: &[&Certificate], report: &mut Reporter) {
    for (depth, ca) in way.iter().enumerate().skip(1) {
        let below = way[..depth].iter().filter(|c| !c.facts.self_issued).count();
        let allowed =
            ca.facts.basic_constraints.and_then(|b| b.path_len).and_then(|n| usize::try_from(n).ok());
        if allowed.is_some_and(|allowed| below > allowed) {
            let what = format!(
                "{} allows {} CAs below it, {} makes {below}",
                ca.label(),
                allowed.unwrap_or(0),
                way[0].label()
            );
            report.error(
                place,
                "pathLenConstraint",
                what,
                "have the upper CA signed with a larger pathLen, or sign with that CA itself",
            );
        }
    }
    if way.len() > WEBPKI_CAS + 1 {
        let what = format!("{} CAs between leaf and root; webpki follows {WEBPKI_CAS}", way.len() - 1);
        report.error(place, "chain", what, "use fewer intermediates");
    }
}
