//! Why a site CA can't be used, or did not issue.

use std::path::PathBuf;

use isthmus_pki::{SpiffeId, authority, csr, jwt, key, verify};
use isthmus_proto::WHY_IN_LOG;
use tonic::Status;

use super::limits::Limited;
use crate::identity::{audit, files::FileError};

/// Why a site CA can't be used or did not issue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The key is not where `[issuer]` says.
    #[error("[issuer] {place}: {reason}")]
    KeySource {
        /// Where it should be.
        place: String,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// Certificate and key are no CA.
    #[error("{certificate} and {key}: {reason}")]
    Authority {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// What is wrong with them.
        reason: Box<authority::Error>,
    },
    /// What it would issue is refused by our own verifier.
    #[error(
        "{certificate}: what this CA issues would be refused: {reason}; have it signed by the fabric's root with `isthmus-ca site sign`"
    )]
    Refused {
        /// File of the certificate.
        certificate: PathBuf,
        /// The verifier's verdict.
        reason: Box<verify::Error>,
    },
    /// The CA of another site.
    #[error("{certificate}: not the CA of site {site:?} that [node] names, but {subject}")]
    OtherSite {
        /// File of the certificate.
        certificate: PathBuf,
        /// From [node].
        site: String,
        /// From the certificate.
        subject: String,
    },
    /// A site CA that is out of its time, or revoked.
    #[error("{id}: {reason}")]
    Idle {
        /// For whom.
        id: SpiffeId,
        /// Why nothing is issued.
        reason: String,
    },
    /// Signing failed.
    #[error("{id}: {reason}")]
    Issue {
        /// For whom.
        id: SpiffeId,
        /// Why.
        reason: Box<authority::Error>,
    },
    /// No key, or no random bytes.
    #[error("the cryptographic library failed: {0}")]
    Library(#[from] key::Error),
    /// Not an ID that this requester may have from this site CA.
    #[error("{id}: {reason}")]
    NotAllowed {
        /// What was asked for.
        id: SpiffeId,
        /// Which rule says no.
        reason: &'static str,
    },
    /// Too many requests.
    #[error("{id}: {}", match limit {
        Limited::Requester => "this requester asks faster than [issuer] requester_rate allows; try again in a moment",
        Limited::Total => "more is asked for than [issuer] rate allows; try again in a moment",
    })]
    Limited {
        /// What was asked for.
        id: SpiffeId,
        /// Which limit.
        limit: Limited,
    },
    /// The request for a certificate is refused.
    #[error("the request for a certificate is refused: {0}")]
    Request(#[from] csr::Error),
    /// No issuer of the site gave one to this node.
    #[error("{id}: no issuer of this site gave a certificate: {reason}")]
    Remote {
        /// What was asked for.
        id: SpiffeId,
        /// What they said.
        reason: String,
    },
    /// A token that can't be made as it is asked for, or a key that can't be endorsed.
    #[error("{0}")]
    Token(jwt::Error),
    /// No key is published yet.
    #[error("there is no key for tokens yet; try again in a moment")]
    NoTokenKey,
    /// The file of the keys for tokens.
    #[error("{path}: {reason}; move the file away, and new keys are made: tokens of the old ones fail then")]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It could not be written down, so it does not happen.
    #[error(transparent)]
    Audit(#[from] audit::Error),
}

impl Error {
    /// Label of `isthmus_svid_refused_total`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotAllowed { .. } => "not_allowed",
            Self::Limited { limit: Limited::Requester, .. } => "requester_rate",
            Self::Limited { limit: Limited::Total, .. } => "rate",
            Self::Request(_) => "request",
            Self::Token(_) => "token",
            Self::Audit(_) => "audit",
            Self::Remote { .. } => "remote",
            Self::Library(_) => "library",
            _ => "site_ca",
        }
    }

    /// For the requester: what it can do something about, and nothing of this node's files.
    pub fn status(&self) -> Status {
        match self {
            Self::NotAllowed { .. } => Status::permission_denied("no identity issued"),
            Self::Limited { .. } => Status::resource_exhausted(self.to_string()),
            Self::Request(_) | Self::Token(jwt::Error::Claim(..) | jwt::Error::TooLong { .. }) => {
                Status::invalid_argument(self.to_string())
            }
            Self::Audit(_) => unavailable("the audit log can't be written, so nothing is issued now"),
            Self::Remote { .. } => unavailable("no issuer of this site gave a certificate"),
            _ => unavailable("the site CA can't issue now"),
        }
    }
}

fn unavailable(what: &str) -> Status {
    Status::unavailable(format!("{what}; {WHY_IN_LOG}"))
}
