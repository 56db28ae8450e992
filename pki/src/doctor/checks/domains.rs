//! Checks 8 and 9: trust domains that do not fit.

use std::collections::BTreeSet;

use time::OffsetDateTime;

use super::super::{Cluster, Inventory, finding::Reporter};
use crate::id::SpiffeId;

/// A trust domain, and where it was seen.
struct Seen {
    domain: String,
    place: String,
    field: &'static str,
}

pub(super) fn ambient(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    if !inventory.clusters.iter().any(|c| c.ambient) {
        // Without ztunnel aliases help: check 9 has it. A CA of another domain than the mesh's is wrong everywhere.
        return inventory.clusters.iter().for_each(|c| own_ca(c, report));
    }
    let seen: Vec<Seen> = inventory.clusters.iter().flat_map(seen).collect();
    let Some(first) = seen.first() else { return };
    for other in &seen {
        report.looked();
        if other.domain != first.domain {
            let what = format!("trust domain {:?}, but {} has {:?}", other.domain, first.place, first.domain);
            report.error(&other.place, other.field, what, "give every cluster the same meshConfig.trustDomain, that of the CA; aliases do not help in ambient mode");
        }
    }
}

fn own_ca(cluster: &Cluster, report: &mut Reporter) {
    let (Some(mesh), Some(ca)) = (&cluster.mesh, ca_domain(cluster)) else { return };
    report.looked();
    if mesh.trust_domain != ca {
        let what = format!("trustDomain is {:?}, the signing CA was made for {ca:?}", mesh.trust_domain);
        report.error(
            &mesh.place,
            "trustDomain",
            what,
            format!(
                "set meshConfig.trustDomain to {ca}: verifiers that bind a CA to its domain refuse the rest"
            ),
        );
    }
}

pub(super) fn sidecar(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    let seen: Vec<Seen> = inventory.clusters.iter().flat_map(seen).collect();
    for cluster in &inventory.clusters {
        let Some(mesh) = &cluster.mesh else { continue };
        report.looked();
        let mut known: BTreeSet<&str> = mesh.aliases.iter().map(String::as_str).collect();
        known.insert(&mesh.trust_domain);
        for stranger in seen.iter().filter(|s| !known.contains(s.domain.as_str())) {
            let what = format!(
                "trust domain {:?} of {} is neither trustDomain nor an alias",
                stranger.domain, stranger.place
            );
            report.error(&mesh.place, "trustDomainAliases", what, "use one trust domain for all, or add it to trustDomainAliases; an alias also widens every AuthorizationPolicy");
        }
    }
    // Without meshConfig: peers of several domains, and nothing that says they may.
    let domains: BTreeSet<&str> = seen.iter().map(|s| s.domain.as_str()).collect();
    if inventory.clusters.iter().all(|c| c.mesh.is_none()) && !seen.is_empty() {
        report.looked();
        let odd = seen.iter().find(|s| s.domain != seen[0].domain);
        if let Some(odd) = odd.filter(|_| domains.len() > 1) {
            let what =
                format!("trust domain {:?}, but {} has {:?}", odd.domain, seen[0].place, seen[0].domain);
            report.error(&odd.place, odd.field, what, "use one trust domain for all that share a root");
        }
    }
}

fn ca_domain(cluster: &Cluster) -> Option<String> {
    domain(cluster.signing_ca()?.facts.uris.first()?)
}

fn domain(uri: &str) -> Option<String> {
    SpiffeId::parse(uri).ok().map(|id| id.trust_domain().to_string())
}

fn seen(cluster: &Cluster) -> Vec<Seen> {
    let mesh = cluster.mesh.iter().map(|m| Seen {
        domain: m.trust_domain.clone(),
        place: m.place.clone(),
        field: "trustDomain",
    });
    let seen = |uri: &String, place: &str| {
        Some(Seen { domain: domain(uri)?, place: place.to_owned(), field: "URI SAN" })
    };
    let files =
        cluster.certificates().flat_map(|(place, c)| c.facts.uris.iter().map(move |uri| (place, uri)));
    let files = files.filter_map(|(place, uri)| seen(uri, place));
    let envoys = cluster.envoys.iter().flat_map(|e| {
        e.certificates.iter().flatten().flat_map(|c| &c.uris).filter_map(|uri| seen(uri, &e.place))
    });
    mesh.chain(files).chain(envoys).collect()
}
