//! `[fib]`: from the file's words to a configuration that cannot be wrong.

use std::time::Duration;

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
