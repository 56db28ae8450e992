//! Step 6: what a person would look at.

use anyhow::{Result, bail};

use super::{
    fabric::Fabric,
    plan::{AZURE, Gateway},
    progress::Outcome,
};

/// Each must answer; `status` may also say "degraded" (5), since a peer is dead.
const QUESTIONS: [(&[&str], &[i32]); 5] = [
    (&["status"], &[0, 5]),
    (&["peers"], &[0]),
    (&["routes"], &[0]),
    (&["bgp", "neighbors"], &[0]),
    (&["certs"], &[0]),
];

/// The node that is shown: it saw a peer die.
pub(super) const SHOWN: &Gateway = &AZURE.gateways[0];

/// Prints what `isthmusctl` says of it.
pub(super) fn run(fabric: &Fabric) -> Result<Outcome> {
    let node = fabric.node(SHOWN.name)?;
    let mut details = String::new();
    for (arguments, accepted) in QUESTIONS {
        let output = node.ctl(arguments)?;
        let question = arguments.join(" ");
        if !output.status.code().is_some_and(|code| accepted.contains(&code)) {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            bail!("isthmusctl {question} on {}: {}: {said}", node.name(), output.status);
        }
        let answer = String::from_utf8_lossy(&output.stdout);
        details.push_str(&format!("\n{}$ isthmusctl {question}\n{answer}", node.name()));
    }
    Ok(Outcome {
        summary: format!("status, peers, routes, bgp neighbors and certs of {}", node.name()),
        details,
    })
}
