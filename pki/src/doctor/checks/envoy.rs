//! Check 7: a proxy without a certificate.

use time::OffsetDateTime;

use super::super::{EnvoyAdmin, Inventory, finding::Reporter};

pub(super) fn secrets(inventory: &Inventory, _: OffsetDateTime, report: &mut Reporter) {
    for envoy in inventory.clusters.iter().flat_map(|c| &c.envoys) {
        report.looked();
        if envoy.certificates.as_ref().is_some_and(Vec::is_empty) {
            let remedy = "read the agent's log for CSR errors; then connect to istiod:15012 with the root of the namespace's istio-ca-root-cert";
            report.error(&envoy.place, "certificates", "the proxy holds no certificate of its own", remedy);
        }
        counters(envoy, report);
    }
}

fn counters(envoy: &EnvoyAdmin, report: &mut Reporter) {
    for (name, value) in envoy.stats.iter().filter(|(_, value)| *value > 0) {
        if name.ends_with("context_secrets_not_ready") {
            let remedy = "the secret never came over SDS: look at the agent, then at istiod";
            report.error(
                &envoy.place,
                name,
                format!("{value} connections met a context without its secret"),
                remedy,
            );
        } else if name.contains("sds")
            && (name.ends_with("update_failure") || name.ends_with("update_rejected"))
        {
            report.warn(
                &envoy.place,
                name,
                format!("{value} updates failed or were refused"),
                "look for the reason in Envoy's log",
            );
        } else if name.contains("fail_verify") {
            report.warn(
                &envoy.place,
                name,
                format!("{value} peers were refused"),
                "compare root sets and trust domains (checks 2, 8 and 9)",
            );
        }
    }
}
