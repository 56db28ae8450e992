//! What can go wrong when the tunnel starts or changes, whose fault it is, and the remedy.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why the tunnel did not start or did not change. Each says everything in its own line: none has a `source`, which would be printed
/// a second time.
#[derive(Debug, Error)]
pub enum Error {
    /// The private key could not be made.
    #[error("cannot create the private key file {}: {reason}. {remedy}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        reason: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The TUN device could not be opened or attached.
    #[error("cannot open the TUN device {interface:?}: {problem}. {remedy}")]
    Tun {
        /// The interface name.
        interface: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The device is there but could not be set up.
    #[error("cannot set {what} on {interface:?}: {reason}{}{remedy}", if remedy.is_empty() { "" } else { ". " })]
    Interface {
        /// The interface name.
        interface: String,
        /// "MTU", "address 10.99.0.1/24", ...
        what: String,
        /// What the kernel said.
        reason: String,
        /// What to do; empty where the kernel's words are all we know.
        remedy: &'static str,
    },
    /// Another process holds the UDP port.
    #[error(
        "UDP port {0} is in use by another process (another isthmusd or WireGuard? `ss -ulpn` shows it). \
         Stop that process, or set another `listen` in [tunnel]"
    )]
    PortInUse(u16),
    /// The UDP socket could not be made.
    #[error("cannot listen on UDP port {port}: {reason}")]
    Socket {
        /// The port.
        port: u16,
        /// What the kernel said.
        reason: io::Error,
    },
    /// A thread, an eventfd or a netlink socket could not be made.
    #[error("cannot {what}: {reason}")]
    System {
        /// "start the transmit thread", ...
        what: &'static str,
        /// What the kernel said.
        reason: io::Error,
    },
    /// The kernel does not do this offload.
    #[error("{offload} cannot be switched on: {reason}. It stays off, and packets flow without it")]
    Offload {
        /// Name of the switch.
        offload: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// The change needs a restart. Nothing was applied.
    #[error("{0}: this needs a restart of isthmusd; nothing of the new [tunnel] section was applied")]
    NeedsRestart(String),
    /// The tunnel was stopped.
    #[error("the tunnel is stopped")]
    Stopped,
}
