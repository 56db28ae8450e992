//! Checks 10 and 17: whether the CA in the Secret is the CA that signs, and istio-csr's pin.

use time::OffsetDateTime;

use super::super::{Cluster, Inventory, Leaf, finding::Reporter};
use crate::{facts::utc, x509::Certificate};

/// Istiod backdates a leaf by two minutes and reads a Secret within a minute or two of its change, in seconds.
const SLACK: i64 = 300;

pub(super) fn in_use(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    for cluster in &inventory.clusters {
        let Some(ca) = cluster.signing_ca() else { continue };
        for leaf in &cluster.leaves {
            report.looked();
            signed(leaf, ca, cluster, report);
        }
        several_roots(cluster, report);
    }
}

fn signed(leaf: &Leaf, ca: &Certificate, cluster: &Cluster, report: &mut Reporter) {
    let Some(first) = leaf.chain.first().filter(|first| !first.is_signed_by(ca)) else { return };
    let issued = first.facts.not_before;
    let what = format!(
        "issued at {} by {}, not by the CA in the Secret, {}",
        utc(issued),
        first.facts.issuer,
        ca.label()
    );
    match cluster.cacerts_changed_at {
        Some(changed) if issued > changed + SLACK => report.error(
            &leaf.place,
            "issuer",
            format!("{what}, which was changed before, at {}", utc(changed)),
            "restart istiod; see in its log whether it refused the new roots (ISTIO_MULTIROOT_MESH, one set within the other)",
        ),
        _ => report.warn(&leaf.place, "issuer", what, "wait for its renewal, or restart the workload; if new ones look the same, restart istiod"),
    }
}

/// istio/istio#59909.
fn several_roots(cluster: &Cluster, report: &mut Reporter) {
    let Some(files) = cluster.cacerts.as_ref().filter(|c| c.root_cert.certificates.len() > 1) else { return };
    let Some(istiod) = cluster.istiod.first() else { return };
    report.looked();
    let set = cluster
        .istiod
        .iter()
        .any(|s| s.name == "ISTIO_MULTIROOT_MESH" && s.value.eq_ignore_ascii_case("true"));
    if !set {
        let what =
            format!("ISTIO_MULTIROOT_MESH is not true, and {} holds several roots", files.root_cert.place);
        report.warn(
            &istiod.place,
            "env",
            what,
            "set it: without it istiod refuses every change of root-cert.pem while it runs",
        );
    }
}

pub(super) fn istio_csr(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    for (place, args) in inventory.clusters.iter().filter_map(|c| c.istio_csr.as_ref()) {
        report.looked();
        let pinned =
            args.iter().enumerate().any(|(index, arg)| match arg.trim_start_matches('-').split_once('=') {
                Some(("root-ca-file", file)) => !file.is_empty(),
                None if arg.trim_start_matches('-') == "root-ca-file" => {
                    args.get(index + 1).is_some_and(|next| !next.starts_with('-'))
                }
                _ => false,
            });
        if !pinned {
            report.error(
                place,
                "--root-ca-file",
                "is not set",
                "mount the roots into istio-csr and give --root-ca-file",
            );
        }
    }
}
