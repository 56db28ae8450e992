//! Seventeen checks of meshes that share a root: each for a failure that people have met and could not read from its symptom.
//!
//! Fill an [`Inventory`] with [`ClusterBuilder`]s, from directories, Kubernetes objects or Envoy's admin pages, then [`examine`] it.
//! Nothing here reads a file, a clock or a network.

mod checks;
mod finding;
mod inventory;

pub use finding::{Finding, Severity};
pub use inventory::{
    ClockReading, Cluster, ClusterBuilder, EnvoyAdmin, EnvoyCertificate, Inventory, Leaf, Mesh, Setting,
};

use time::OffsetDateTime;

use checks::CHECKS;
use finding::Reporter;

/// Runs every check at `now`. Each says at least one line: that nothing is wrong, or that there was nothing to look at.
pub fn examine(inventory: &Inventory, now: OffsetDateTime) -> Vec<Finding> {
    let mut findings = Vec::new();
    for check in &CHECKS {
        let mut reporter = Reporter::new(check);
        (check.run)(inventory, now, &mut reporter);
        findings.extend(reporter.finish());
    }
    findings
}

/// The worst that was found.
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Skipped)
}

#[cfg(test)]
mod tests;
