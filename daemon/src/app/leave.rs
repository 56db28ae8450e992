//! How the node goes: for good, for a restart, or drained by an operator (decision 021).

use super::{Node, bfd};
use crate::{
    bfd::SessionConfig,
    config::Config,
    lifecycle::{Service, Stage},
};

/// What `/readyz` and `isthmusctl status` say meanwhile.
const DRAINING: &str = "draining: neighbors move their traffic elsewhere";
const DRAINED: &str = "drained: `isthmusctl drain --undo` takes the node back";

/// True if packets find their way while the process is away. They do not through a tunnel, which lives in the process.
pub(super) fn is_hitless(config: &Config) -> bool {
    let installs = config.fib.as_ref().is_some_and(|fib| fib.install);
    let keeps = config.bgp.as_ref().is_some_and(|bgp| !bgp.graceful_restart.is_zero());
    installs && keeps && config.tunnel.is_none()
}

/// A stop without a drain before it is the first half of a restart, where one loses no packet.
pub(super) fn choose(service: &Service, hitless: bool) {
    if hitless {
        service.suspend();
    }
}

/// The paths that BFD watches: none once nobody sends anything here.
pub(super) fn watched(config: &Config, stage: Stage) -> Vec<SessionConfig> {
    match stage {
        Stage::Drained => Vec::new(),
        Stage::Serving | Stage::Draining { .. } | Stage::Suspended => bfd::wanted(config),
    }
}

impl Node {
    /// An operator takes the node out of service, or back. BGP follows by itself, and the FIB follows BGP.
    pub(super) async fn follow(&mut self, stage: Stage) {
        self.out_of_service = match stage {
            Stage::Draining { .. } => Some(self.readiness.wait_for(DRAINING)),
            Stage::Drained => Some(self.readiness.wait_for(DRAINED)),
            Stage::Serving | Stage::Suspended => None,
        };
        if self.parts.bgp.is_none() {
            // Nobody is to be told, and nobody has to move.
            self.parts.service.drained();
        }
        if let Some(handle) = &self.parts.bfd {
            // Sessions that go tell the peer that an administrator, not the path, ends them.
            if let Err(error) = handle.apply(watched(&self.config, stage)).await {
                tracing::warn!(%error, "BFD does not follow the drain");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_what_the_kernel_forwards_outlives_the_process() {
        let bgp = "[bgp]\nasn = 64512\nrouter_id = \"10.0.0.1\"\n";
        let table = [
            (format!("{bgp}[fib]\n"), true),
            (format!("{bgp}graceful_restart = \"0s\"\n[fib]\n"), false),
            (format!("{bgp}[fib]\ninstall = false\n"), false),
            (bgp.to_owned(), false),
            (format!("[tunnel]\n{bgp}[fib]\n"), false),
            ("[fib]\n".to_owned(), false),
        ];
        for (text, expected) in table {
            let config = crate::config::parse(Path::new("/nonexistent/c.toml"), &text).unwrap();
            assert_eq!(is_hitless(&config), expected, "{text}");
        }
    }
}
