//! The last step: daemons leave on SIGTERM, and nothing of theirs stays in the kernel.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{fabric::Fabric, progress::Outcome};

/// Routes of ours bear this protocol number.
const PROTOCOL: u8 = 73;

/// Stops every daemon and looks for leftovers in its namespace.
pub(super) fn run(fabric: Fabric) -> Result<Outcome> {
    let nodes = fabric.stop()?;
    for node in &nodes {
        let (name, netns) = (node.name(), node.netns());
        // The kernel takes the device away as the last file of the process closes.
        isthmus_lab::wait::until(&format!("{name} to leave nothing"), Duration::from_secs(5), || {
            ensure!(!netns.links()?.iter().any(|link| link == "isthmus0"), "isthmus0 is still there");
            let routes = netns.count_routes(PROTOCOL)?;
            ensure!(routes == 0, "{routes} routes of protocol {PROTOCOL} are still there");
            ensure!(!node.socket().exists(), "{} is still there", node.socket().display());
            Ok(())
        })
        .map_err(|error| node.blame(error))?;
    }
    Ok(format!("{} daemons left on SIGTERM, no device, route or socket stayed", nodes.len()).into())
}
