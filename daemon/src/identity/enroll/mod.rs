//! How a node gets its own SVID and keeps it: join tokens and the issuance service on nodes with the site's CA, and on every node the
//! agent that joins and renews.
//!
//! ```text
//!  issuer: tokens (register on disk) <- service <- accept (rate, TLS, guard) <==TLS 1.3==> client <- agent (when) -> state (on disk)
//! ```
//!
//! Along the same way comes what the fabric trusts: `sync` asks an issuer of the site, `peers` asks those of others, `fleet` is what an
//! issuer tells, and `keyring` keeps the JWT keys that were heard of.

mod accept;
pub(super) mod agent;
mod client;
mod disk;
mod fleet;
mod join;
mod keyring;
mod pace;
pub(super) mod peers;
mod rate;
mod register;
mod remote;
mod reserve;
mod server;
mod service;
pub(super) mod state;
pub(super) mod sync;
#[cfg(test)]
mod tests;
mod token;
mod tokens;

pub use disk::WriteError;
pub use fleet::{Fleet, NodeReport, Seen, Told, TrustState, View};
pub use keyring::{FileError as KeyringError, Keyring, Refused as KeyRefused};
pub(super) use keyring::{Keeper, Taken};
pub use peers::Peer;
pub use register::Record;
pub use remote::Remote;
pub use server::Error as ListenError;
pub(super) use server::Server;
pub use token::{NotAToken, Token};
pub use tokens::{Created, Error as TokenError, TTL_RANGE, Tokens};
