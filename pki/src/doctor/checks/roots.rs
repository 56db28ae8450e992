//! Checks 2, 4 and 5: the anchors.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;

use super::super::{Inventory, finding::Reporter};
use crate::x509::{Certificate, PemFile};

pub(super) fn equal(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    let sets: Vec<(String, &PemFile)> = inventory
        .clusters
        .iter()
        .flat_map(|cluster| {
            let own = cluster.cacerts.iter().map(|c| &c.root_cert).chain(&cluster.roots);
            own.filter(|f| !f.certificates.is_empty()).map(|f| (format!("{}: {}", cluster.name, f.place), f))
        })
        .collect();
    if sets.len() < 2 {
        return;
    }
    let all: BTreeMap<&str, &Certificate> =
        sets.iter().flat_map(|(_, f)| &f.certificates).map(|c| (c.facts.sha256.as_str(), c)).collect();
    for (place, file) in &sets {
        report.looked();
        let has: BTreeSet<&str> = file.certificates.iter().map(|c| c.facts.sha256.as_str()).collect();
        for (digest, root) in all.iter().filter(|(digest, _)| !has.contains(**digest)) {
            let from = sets.iter().find(|(_, f)| f.certificates.iter().any(|c| c.facts.sha256 == *digest));
            let from = from.map_or("", |(place, _)| place);
            let what = format!("lacks the root {} with SHA-256 {digest}, which {from} has", root.label());
            report.error(
                place,
                "SHA-256",
                what,
                "give every cluster the same set of roots: all roots to all clusters first, then new issuers",
            );
        }
    }
}

pub(super) fn are_roots(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    for (place, root) in anchors_of(inventory) {
        report.looked();
        if !root.facts.self_issued {
            let what = format!("{} is an intermediate: its issuer is {}", root.label(), root.facts.issuer);
            report.warn(
                place,
                "issuer",
                what,
                "put the root there; OpenSSL takes this one with -partial_chain only",
            );
        } else if !root.is_self_signed() {
            let what = format!("{} names itself as issuer, but its own key did not sign it", root.label());
            report.error(place, "signature", what, "take the root's certificate from the root CA again");
        } else if !root.facts.is_ca() {
            report.error(
                place,
                "basicConstraints",
                format!("{} is not a CA", root.label()),
                "put the root's certificate there",
            );
        }
    }
}

pub(super) fn anchors(inventory: &Inventory, now: OffsetDateTime, report: &mut Reporter) {
    for (place, root) in anchors_of(inventory) {
        report.looked();
        if let Some(why) = root.facts.out_of_date(now) {
            let what =
                format!("{}: {why}; rustls goes on with it, Go, OpenSSL and Envoy refuse", root.label());
            report.error(
                place,
                "validity",
                what,
                "bring in the next root: add it everywhere, switch issuers, then drop this one",
            );
        }
    }
    for cluster in &inventory.clusters {
        let issued = cluster.cas().filter(|(_, ca)| !ca.facts.self_issued);
        for (place, ca) in issued {
            let zero = |root: &&Certificate| root.facts.basic_constraints.and_then(|b| b.path_len) == Some(0);
            if let Some(root) = cluster
                .anchors()
                .into_iter()
                .filter(zero)
                .find(|r| ca.names_as_issuer(r) && ca.is_signed_by(r))
            {
                let what = format!(
                    "{} is below {}, whose pathLen of 0 allows no CA: rustls and Envoy ignore that, Go and OpenSSL refuse",
                    ca.label(),
                    root.label()
                );
                report.error(place, "pathLenConstraint", what, "make a root with pathLen 1 or more");
            }
        }
    }
}

fn anchors_of(inventory: &Inventory) -> impl Iterator<Item = (&str, &Certificate)> {
    let files =
        inventory.clusters.iter().flat_map(|c| c.cacerts.iter().map(|c| &c.root_cert).chain(&c.roots));
    files.flat_map(|file| file.certificates.iter().map(|c| (file.place.as_str(), c)))
}
