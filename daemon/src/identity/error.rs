//! Why the subsystem can't start, or a change can't be applied.

use tokio::task::JoinError;

use super::{audit, enroll, federation::FederationError, issuing, material, registration, rotation};
use crate::unix_socket;

/// Why the subsystem can't start, or a change can't be applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `[identity]`
    #[error(transparent)]
    Material(#[from] material::Error),
    /// `[issuer]`
    #[error(transparent)]
    Issuer(#[from] issuing::Error),
    /// `[audit]`
    #[error(transparent)]
    Audit(#[from] audit::Error),
    /// A `[[workload_api.entry]]`.
    #[error(transparent)]
    Entry(#[from] registration::Error),
    /// The Workload API's socket.
    #[error(transparent)]
    Socket(#[from] unix_socket::Error),
    /// `[federation]`
    #[error(transparent)]
    Federation(#[from] FederationError),
    /// The join tokens of an issuer.
    #[error(transparent)]
    Tokens(#[from] enroll::TokenError),
    /// The port of an issuer.
    #[error(transparent)]
    Listen(#[from] enroll::ListenError),
    /// An issuer without a trust bundle to check it against.
    #[error("[issuer] needs [identity]: its trust_bundle is what the site CA is checked against")]
    IssuerAlone,
    /// A Workload API without an issuer.
    #[error(
        "[workload_api] needs [issuer] on this node, or issuers in [identity]: else it has nothing to hand out"
    )]
    WorkloadApiAlone,
    /// Charter, site CAs that change hands, taints.
    #[error(transparent)]
    Rotation(#[from] rotation::Error),
    /// An order that can't be written down.
    #[error("nothing was done, since no order is carried out that is not in the audit log: {0}")]
    Unlogged(audit::Error),
    /// A join token of a node that lets nobody in.
    #[error("this node is no issuer: ask one that has [issuer] in its configuration")]
    NoIssuer,
    /// A rotation on a node that has nothing to rotate.
    #[error("this node has no [identity], so there is nothing to rotate")]
    NoIdentity,
    /// The thread that worked on it has ended before it was done, by a panic or because the daemon stops.
    #[error(
        "{work} was interrupted ({source}): `isthmusctl rotate status` shows whether it took effect; if not, ask again"
    )]
    Interrupted {
        /// What it worked on.
        work: &'static str,
        /// How it ended.
        source: JoinError,
    },
}
