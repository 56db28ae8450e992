//! Check 3: what istiod asks before it starts.

use time::OffsetDateTime;

use super::super::{Inventory, finding::Reporter};
use crate::istio;

pub(super) fn accepted(inventory: &Inventory, now: OffsetDateTime, report: &mut Reporter) {
    for files in inventory.clusters.iter().filter_map(|c| c.cacerts.as_ref()) {
        report.looked();
        for complaint in istio::accept(files, now) {
            report.error(&files.path(complaint.file), &complaint.field, complaint.what, complaint.remedy);
        }
    }
}
