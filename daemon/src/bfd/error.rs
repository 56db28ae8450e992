//! What can go wrong.

use std::io;

use thiserror::Error;

/// Why BFD does not do what it was asked for.
#[derive(Debug, Error)]
pub enum Error {
    /// A UDP port is not to be had.
    #[error("cannot listen on UDP port {port} for BFD: {reason}; does another BFD daemon run on this host?")]
    Listen {
        /// The port.
        port: u16,
        /// What the kernel says.
        reason: io::Error,
    },
    /// The kernel refuses something else.
    #[error("cannot {what}: {reason}")]
    System {
        /// What.
        what: &'static str,
        /// What the kernel says.
        reason: io::Error,
    },
    /// A session cannot be.
    #[error("BFD session {name}: {reason}")]
    Session {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
    /// The thread has ended.
    #[error("BFD is stopped")]
    Stopped,
}
