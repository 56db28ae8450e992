//! Check 13: clocks that disagree.

use time::OffsetDateTime;

use super::super::{Cluster, Inventory, finding::Reporter};
use crate::facts::utc;

/// Our SVIDs are backdated by a minute, Istio's by two: beyond the smaller one somebody refuses a new certificate.
const BACKDATE: i64 = 60;
/// Half of it is where trouble begins to come and go.
const UNEASY: i64 = 30;

pub(super) fn skew(inventory: &Inventory, now: OffsetDateTime, report: &mut Reporter) {
    for cluster in &inventory.clusters {
        readings(cluster, report);
        begins(cluster, now.unix_timestamp(), report);
    }
}

fn readings(cluster: &Cluster, report: &mut Reporter) {
    for reading in &cluster.clocks {
        report.looked();
        let behind = reading.ours - reading.theirs;
        // Between the heartbeat and our look at it up to `age` seconds passed, which is no skew.
        let skew = if behind > 0 { (behind - reading.age).max(0) } else { -behind };
        if skew <= UNEASY {
            continue;
        }
        let direction = if behind > 0 { "behind" } else { "ahead" };
        let what = format!(
            "its clock says {}, ours {}: {skew} s {direction}",
            utc(reading.theirs),
            utc(reading.ours)
        );
        let remedy = "synchronise both with NTP; a node behind may also be one that is gone";
        if skew > BACKDATE && direction == "ahead" {
            report.error(&reading.place, "clock", what, remedy);
        } else {
            report.warn(&reading.place, "clock", what, remedy);
        }
    }
}

/// A certificate that begins in the future was issued by a clock ahead of ours.
fn begins(cluster: &Cluster, now: i64, report: &mut Reporter) {
    let files = cluster.certificates().map(|(place, c)| (place, c.facts.not_before));
    let envoys = cluster.envoys.iter().flat_map(|e| {
        e.certificates.iter().flatten().filter_map(|c| Some((e.place.as_str(), c.not_before?)))
    });
    for (place, begin) in files.chain(envoys) {
        report.looked();
        if begin > now {
            let what =
                format!("valid from {}, our clock says {}: {} s ahead", utc(begin), utc(now), begin - now);
            report.error(place, "notBefore", what, "compare this machine's clock with the issuer's");
        }
    }
}
