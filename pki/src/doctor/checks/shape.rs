//! Checks 11, 12 and 14: certificates that some validator cannot stomach.

use time::OffsetDateTime;

use super::super::{Inventory, finding::Reporter};

pub(super) fn uri_constraints(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    for (place, ca) in inventory.clusters.iter().flat_map(|c| c.cas()) {
        report.looked();
        if let Some(constraints) = ca.constraints.as_ref().filter(|c| c.on_uris()) {
            let what = format!(
                "{} constrains URIs (2.5.29.30; permitted {:?}, excluded {:?})",
                ca.label(),
                constraints.permitted_uris,
                constraints.excluded_uris
            );
            report.error(place, "nameConstraints", what, "have the CA signed without name constraints; bind it to its IDs in the verifier's policy instead");
        }
    }
}

pub(super) fn readable(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    for cluster in &inventory.clusters {
        for file in cluster.files() {
            report.looked();
            for rejected in &file.rejected {
                report.error(
                    &file.place,
                    &rejected.place,
                    rejected.reason.clone(),
                    "remove that block, or replace it with a sound certificate; the others are good",
                );
            }
            if file.certificates.is_empty()
                && file.rejected.is_empty()
                && !cluster.leaves.iter().any(|l| l.place == file.place)
            {
                report.warn(&file.place, "PEM", "no PEM block in it", "give a file with BEGIN CERTIFICATE");
            }
        }
        for (place, why) in &cluster.unreadable {
            report.looked();
            report.error(place, "document", why.clone(), "take it from kubectl, istioctl or Envoy again");
        }
    }
}

pub(super) fn extended_key_usage(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    for (place, ca) in inventory.clusters.iter().flat_map(|c| c.cas()) {
        report.looked();
        let missing: Vec<&str> =
            ["serverAuth", "clientAuth"].into_iter().filter(|u| !ca.allows_usage(u)).collect();
        if !missing.is_empty() {
            let what = format!("{} lacks {}", ca.label(), missing.join(" and "));
            report.error(place, "extKeyUsage", what, "have the CA signed without extKeyUsage, or with both");
        }
    }
}
