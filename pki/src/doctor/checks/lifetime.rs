//! Check 6: what is left of each certificate's life.

use time::{Duration, OffsetDateTime};

use super::super::{Inventory, Severity, finding::Reporter};
use crate::{facts::utc, x509::Certificate};

pub(super) fn remaining(inventory: &Inventory, now: OffsetDateTime, report: &mut Reporter) {
    for cluster in &inventory.clusters {
        for (place, certificate) in cluster.certificates() {
            report.looked();
            if let Some((severity, what)) = judge(certificate, inventory.workload_ttl, now) {
                let what = format!("{}: {what}", certificate.label());
                match severity {
                    Severity::Error => report.error(place, "notAfter", what, remedy(certificate)),
                    _ => report.warn(place, "notAfter", what, remedy(certificate)),
                }
            }
        }
    }
}

fn remedy(certificate: &Certificate) -> &'static str {
    match (certificate.facts.is_ca(), certificate.facts.self_issued) {
        (true, true) => "bring in the next root: add it everywhere, switch issuers, then drop this one",
        (true, false) => {
            "have the CA signed again and put it in place, in ca-cert.pem and cert-chain.pem alike"
        }
        _ => "find out why it was not renewed at half of its life: the issuer's log, then the agent's",
    }
}

fn judge(certificate: &Certificate, ttl: Duration, now: OffsetDateTime) -> Option<(Severity, String)> {
    let facts = &certificate.facts;
    if let Some(why) = facts.out_of_date(now) {
        return Some((Severity::Error, why));
    }
    let left = facts.not_after - now.unix_timestamp();
    let life = (facts.not_after - facts.not_before).max(1);
    let percent = left.saturating_mul(100) / life;
    let until = format!("valid until {}, {percent} % of its life is left", utc(facts.not_after));
    let ttl = ttl.whole_seconds();
    if facts.is_ca() && left < ttl {
        return Some((Severity::Error, format!("{until}; workloads ask for {ttl} s and get less")));
    }
    if facts.is_ca() && left < ttl.saturating_mul(2) {
        return Some((
            Severity::Warn,
            format!("{until}; soon workloads get less than the {ttl} s that they ask for"),
        ));
    }
    // A root is replaced over months and is no reason for alarm at half of ten years.
    let (warn, error) = if facts.is_ca() && facts.self_issued { (25, 10) } else { (50, 25) };
    match percent {
        p if p < error => Some((Severity::Error, until)),
        p if p < warn => Some((Severity::Warn, until)),
        _ => None,
    }
}
