//! Step 6: what a person would look at.

use anyhow::{Result, bail, ensure};

use super::{
    fabric::Fabric,
    plan::{AZURE, Gateway},
    progress::Outcome,
};

/// What is asked, the exit codes that are right, and what the answer must hold. `status` may say "degraded" (5): a peer is dead.
const QUESTIONS: [(&[&str], &[i32], &[&str]); 5] = [
    (&["status"], &[0, 5], &["azure-gw1", "spiffe://fabric.example/site/azure-eastus/node/azure-gw1"]),
    (&["peers"], &[0], &["aws-gw1", "aws-gw2", "onprem-gw1"]),
    (&["routes"], &[0], &["10.10.0.0/16", "fd10:10::/48", "10.30.0.0/16", "fd30:30::/48", "installed"]),
    (&["bgp", "neighbors"], &[0], &["aws-gw1", "aws-gw2", "onprem-gw1", "Established"]),
    (&["certs"], &[0], &["root", "site-ca", "node-svid"]),
];

/// The node that is shown: it saw a peer die.
pub(super) const SHOWN: &Gateway = &AZURE.gateways[0];

/// Prints what `isthmusctl` says of it.
pub(super) fn run(fabric: &Fabric) -> Result<Outcome> {
    let node = fabric.node(SHOWN.name)?;
    let mut details = String::new();
    for (arguments, accepted, expected) in QUESTIONS {
        let output = node.ctl(arguments)?;
        let question = arguments.join(" ");
        if !output.status.code().is_some_and(|code| accepted.contains(&code)) {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            bail!("isthmusctl {question} on {}: {}: {said}", node.name(), output.status);
        }
        let answer = String::from_utf8_lossy(&output.stdout);
        let missing: Vec<&str> = expected.iter().copied().filter(|word| !answer.contains(word)).collect();
        ensure!(missing.is_empty(), "isthmusctl {question} does not show {}:\n{answer}", missing.join(", "));
        details.push_str(&format!("\n{}$ isthmusctl {question}\n{answer}", node.name()));
    }
    Ok(Outcome {
        summary: format!("status, peers, routes, bgp neighbors and certs of {}", node.name()),
        details,
    })
}
