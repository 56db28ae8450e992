//! The audit log: what was issued, and what was refused, in a file that only grows.
//!
//! ```text
//! issuing --> Log::record --> Writer: chain, one write(2) --> [always: fdatasync, shared by all who wait] --> the result leaves
//!                  |
//!                  +-- cannot be written: nothing leaves; tried again with each request, and each second by the keeper
//! keeper, a thread, a second after a record: fdatasync, what was suppressed, the signed head beside the log
//! ```
//!
//! The format and its proofs are [`isthmus_pki::audit`]; `docs/reference/audit.md` says what they are worth.

pub(super) mod disk;
mod head;
mod keeper;
mod log;
mod open;
mod refusals;
mod rotation;
#[cfg(test)]
pub(super) mod tests;
mod writer;

use std::path::PathBuf;

pub use log::{HeadSigner, Log};

/// Why there is no log, or why it can't be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its files can't be opened or read.
    #[error("audit log {path}: {reason}; check [audit] file and that isthmusd may write in its directory")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        reason: std::io::Error,
    },
    /// Two daemons, one log.
    #[error("audit log {path}: another process writes it; give each isthmusd its own [audit] file")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Somebody changed it.
    #[error(
        "audit log {path}: {reason}; look into it with `isthmusctl audit verify {path}`, then move its files away: a new log begins"
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// The first line that is wrong.
        reason: isthmus_pki::audit::Broken,
    },
    /// A record can't be written now.
    #[error("audit log {path} can't be written: {reason}; nothing is issued until it can")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        reason: String,
    },
}
