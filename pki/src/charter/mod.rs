//! The charter: the fabric's constitution, signed by a root. This is its identity part: whom the fabric trusts, and who may issue what.
//!
//! ```text
//! charter.toml --Draft--> Charter --seal(root..)--> charter.jws --open(roots trusted now)--> Charter --succeeds(current)--> in force
//! ```
//!
//! A node takes a charter if a root that it trusts now signed it and its sequence is above the one in force. So a chain of charters
//! leads from one set of roots to the next, and an older one never comes back. See [`sealed`] for the file.

mod difference;
mod draft;
mod rules;
pub mod sealed;
#[cfg(test)]
mod tests;
mod wire;

use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

pub use difference::differences;
pub use draft::from_toml;
pub use rules::{MAX_CAS, MAX_CRLS, MAX_IDS, MAX_ROOTS, MAX_SEQUENCE, MAX_SITES};
pub use wire::read as from_json;

use crate::{
    bundle::{self, Bundle},
    id::TrustDomain,
    keyhash::KeyHash,
    statement,
};

/// What a charter says. What [`sealed::open`] and [`from_toml`] return has passed every rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charter {
    /// The fabric's one trust domain.
    pub trust_domain: TrustDomain,
    /// Strictly rising, 1..=[`MAX_SEQUENCE`].
    pub sequence: u64,
    /// When it was written, seconds since the Unix epoch.
    pub issued_at: i64,
    /// How often consumers of the bundle are asked to look again, 1 s..=1 day.
    pub refresh_hint: u32,
    /// Roots in force, 1..=[`MAX_ROOTS`].
    pub roots: Vec<Root>,
    /// Sites with their CAs.
    pub sites: Vec<Site>,
    /// DER CRLs, each signed by one of the roots.
    pub crls: Vec<Vec<u8>>,
}

/// A root in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// DER.
    pub certificate: CertificateDer<'static>,
    /// Its key.
    pub key: KeyHash,
    /// May CAs still be made live under it?
    pub state: RootState,
}

/// What a root is for. Both kinds are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RootState {
    /// CAs under it may be made live.
    Active,
    /// On its way out: what hangs on it stays valid, nothing new is made live under it.
    Retiring,
}

/// A site and its CAs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// As in `[node] site` and `/site/NAME/...`.
    pub name: String,
    /// Paths its CAs may issue beside their own `/site/NAME/...`: an ID is covered if its path equals one, or
    /// goes on with a slash; `/` covers all that is no site's own.
    pub ids: Vec<String>,
    /// Its CAs: what is not here is refused.
    pub cas: Vec<PinnedCa>,
}

/// A site CA that the charter speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedCa {
    /// Its key.
    pub key: KeyHash,
    /// The root that signed it; needed while it is believed.
    pub root: Option<KeyHash>,
    /// What is thought of it.
    pub state: CaState,
}

/// What the fabric thinks of a site CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaState {
    /// Made and signed, not issuing yet; already believed, so that it can start at any moment.
    Prepared,
    /// Issues.
    Active,
    /// No longer issues; what it issued lives on.
    Retiring,
    /// In a stranger's hands: what it issued is refused.
    Tainted,
    /// Tainted, and for good: its root should have it on a CRL too, for verifiers that read no charters.
    Revoked,
}

impl CaState {
    /// True if what it issued is accepted.
    pub fn is_believed(self) -> bool {
        matches!(self, Self::Prepared | Self::Active | Self::Retiring)
    }

    /// As the file writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Active => "active",
            Self::Retiring => "retiring",
            Self::Tainted => "tainted",
            Self::Revoked => "revoked",
        }
    }
}

impl RootState {
    /// As the file writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Retiring => "retiring",
        }
    }
}

/// Why a charter is refused. Nothing of a refused one applies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The JWS.
    #[error(transparent)]
    Statement(#[from] statement::Error),
    /// More signatures than anybody needs, or none.
    #[error("a charter has 1 to 4 lines, one signature each; this one has {0}")]
    Signatures(usize),
    /// Signatures over different texts in one file.
    #[error("line {0} signs another text than line 1; take the file as `isthmus-ca charter sign` wrote it")]
    Torn(usize),
    /// Nobody we trust signed it.
    #[error(
        "signed by {signers}, which is no root that this node trusts now; have it signed by one of those in force, or check that it is this fabric's charter"
    )]
    Stranger {
        /// Who signed.
        signers: String,
    },
    /// The text is no charter.
    #[error("{0}; fix it and sign it again")]
    Text(String),
    /// Written for later versions.
    #[error("charter format {0} is newer than this version understands (1); upgrade")]
    Version(u64),
    /// A rule is broken.
    #[error("{place}: {reason}")]
    Rule {
        /// Which part.
        place: String,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// An older one.
    #[error(
        "sequence {offered} is not above {current}, which is in force; a charter never goes back: raise `sequence` and sign it again"
    )]
    Backwards {
        /// In force.
        current: u64,
        /// Offered.
        offered: u64,
    },
    /// Two texts under one number.
    #[error(
        "another charter with sequence {0} is in force; two texts must not share a number: raise `sequence` and sign it again"
    )]
    Fork(u64),
    /// Another fabric's.
    #[error("it is the charter of {offered}, this node belongs to {current}")]
    OtherFabric {
        /// In force.
        current: TrustDomain,
        /// Offered.
        offered: TrustDomain,
    },
}

/// How an offered charter relates to the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succession {
    /// It is the one in force.
    Same,
    /// It comes after.
    New,
}

impl Charter {
    /// May it follow `current`?
    pub fn succeeds(&self, current: &Self) -> Result<Succession, Error> {
        let (current_domain, offered) = (current.trust_domain.clone(), self.trust_domain.clone());
        match self.sequence.cmp(&current.sequence) {
            _ if current_domain != offered => Err(Error::OtherFabric { current: current_domain, offered }),
            std::cmp::Ordering::Greater => Ok(Succession::New),
            std::cmp::Ordering::Equal if self == current => Ok(Succession::Same),
            std::cmp::Ordering::Equal => Err(Error::Fork(self.sequence)),
            std::cmp::Ordering::Less => {
                Err(Error::Backwards { current: current.sequence, offered: self.sequence })
            }
        }
    }

    /// The roots as a bundle, for verifiers and workloads.
    pub fn bundle(&self) -> Result<Bundle, bundle::Error> {
        let der: Vec<u8> = self.roots.iter().flat_map(|root| root.certificate.iter().copied()).collect();
        Bundle::parse(&der)
    }

    /// The site of this name.
    pub fn site(&self, name: &str) -> Option<&Site> {
        self.sites.iter().find(|site| site.name == name)
    }

    /// Every pinned CA with its site.
    pub fn cas(&self) -> impl Iterator<Item = (&Site, &PinnedCa)> {
        self.sites.iter().flat_map(|site| site.cas.iter().map(move |ca| (site, ca)))
    }
}
