//! `[fib]`: from the file's words to a configuration that cannot be wrong.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use crate::config::Checker;

/// A validated `[fib]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// False: compute, show, but install nothing.
    pub install: bool,
    /// Kernel routing table, 1..=4294967295; 254 is main.
    pub table: u32,
    /// The TUN device's name, if this node has tunnels: routes to tunnel peers leave through it.
    pub interface: Option<String>,
    /// How long adopted routes may wait for their session to come back before they are swept.
    pub stale_time: Duration,
}

/// The kernel's main table.
const MAIN_TABLE: u32 = 254;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    #[serde(default = "yes")]
    install: bool,
    table: Option<Spanned<u32>>,
}

fn yes() -> bool {
    true
}

impl RawConfig {
    pub(crate) fn check(
        self,
        c: &mut Checker<'_>,
        interface: Option<String>,
        stale_time: Duration,
    ) -> Option<Config> {
        let table = match self.table {
            None => MAIN_TABLE,
            Some(raw) => {
                // 0 means "unspecified" to the kernel, 255 is its own table of local addresses.
                let good = ![0, 255].contains(raw.get_ref());
                c.require(
                    good,
                    &raw,
                    "this routing table is the kernel's own",
                    "use 254 for the main table, or one of yours",
                )
                .then(|| raw.into_inner())?
            }
        };
        Some(Config { install: self.install, table, interface, stale_time })
    }
}
