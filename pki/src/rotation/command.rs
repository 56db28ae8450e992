//! What can be ordered, and what comes of it.

use serde::{Deserialize, Serialize};

use crate::{
    charter::{CaState, Charter, RootState},
    facts::Facts,
    keyhash::KeyHash,
};

/// A command with what the operator says to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// What to do.
    pub command: Command,
    /// Why the guards should be passed over; goes into the audit log.
    pub override_reason: Option<String>,
    /// The operator's word that Istio's `cacerts` of every cluster hold the new root: what was looked at.
    pub istio_checked: Option<String>,
}

/// What can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reissue every leaf now.
    Leaf,
    /// Make the key of the next site CA and a request for its certificate.
    Prepare,
    /// Take the certificate that the ceremony made for a key of ours.
    Install(CaFacts),
    /// Issue with the prepared CA of the same root.
    Activate,
    /// Forget CAs whose last leaf is dead.
    Retire,
    /// Put a charter in force that adds roots or changes pins.
    Publish(CharterView),
    /// Issue with the prepared CA of another root.
    ActivateRoot,
    /// Put a charter in force that drops a root.
    RetireRoot(CharterView),
    /// A site CA's key is in a stranger's hands.
    Taint(KeyHash),
    /// A root's CRL with the tainted CA is here.
    Revoke {
        /// Its key.
        ca: KeyHash,
        /// That very list is in force already.
        known: bool,
    },
    /// A node is gone for good: wait for it no longer.
    Forget(String),
}

impl Command {
    /// As `isthmusctl rotate` and the audit log call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Leaf => "leaf",
            Self::Prepare => "intermediate prepare",
            Self::Install(_) => "intermediate install",
            Self::Activate => "intermediate activate",
            Self::Retire => "intermediate retire",
            Self::Publish(_) => "root publish",
            Self::ActivateRoot => "root activate",
            Self::RetireRoot(_) => "root retire",
            Self::Taint(_) => "taint",
            Self::Revoke { .. } => "revoke",
            Self::Forget(_) => "forget",
        }
    }
}

/// What matters here of a site CA's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaFacts {
    /// Its key.
    pub key: KeyHash,
    /// The key of the root that signed it.
    pub root: KeyHash,
    /// First valid second.
    pub not_before: i64,
    /// Last valid second.
    pub not_after: i64,
}

impl CaFacts {
    /// Of a certificate that a root signed; the caller has checked that.
    pub fn new(ca: &Facts, root: &Facts) -> Self {
        Self {
            key: KeyHash::of(ca),
            root: KeyHash::of(root),
            not_before: ca.not_before,
            not_after: ca.not_after,
        }
    }
}

/// What matters here of a charter, seen from one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharterView {
    /// Its sequence.
    pub sequence: u64,
    /// Seconds.
    pub refresh_hint: u32,
    /// Its roots.
    pub roots: Vec<RootView>,
    /// The CAs that it pins for this site.
    pub pins: Vec<(KeyHash, CaState)>,
}

/// A root of a charter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootView {
    /// Its key.
    pub key: KeyHash,
    /// May CAs be made live under it?
    pub state: RootState,
}

impl CharterView {
    /// The charter as the site sees it.
    pub fn new(charter: &Charter, site: &str) -> Self {
        let root = |root: &crate::charter::Root| RootView { key: root.key.clone(), state: root.state };
        let pins = charter.site(site).map(|site| site.cas.as_slice()).unwrap_or_default();
        Self {
            sequence: charter.sequence,
            refresh_hint: charter.refresh_hint,
            roots: charter.roots.iter().map(root).collect(),
            pins: pins.iter().map(|ca| (ca.key.clone(), ca.state)).collect(),
        }
    }

    /// What it says of a CA of this site.
    pub fn pin(&self, key: &KeyHash) -> Option<CaState> {
        self.pins.iter().find(|(pinned, _)| pinned == key).map(|(_, state)| *state)
    }

    pub(super) fn has_root(&self, key: &KeyHash) -> bool {
        self.roots.iter().any(|root| root.key == *key)
    }
}

/// One thing to carry out. The order of a plan is the order in which they must happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write into the audit log that guards were passed over, before anything else.
    Overridden {
        /// The operator's reason.
        reason: String,
        /// What stood in the way.
        obstacles: Vec<String>,
    },
    /// Make a key for a site CA and a request, then call [`super::State::request`].
    MakeKey,
    /// Keep this certificate beside its key.
    Install(CaFacts),
    /// Put the charter in force: roots, pins and CRLs, and hand it on.
    ApplyCharter(CharterView),
    /// Issue with another CA from now on.
    Switch {
        /// Which one issues.
        to: KeyHash,
        /// The one that issued so far, and when its last leaf will be dead.
        from: Option<(KeyHash, i64)>,
    },
    /// Issue nothing until a CA is activated.
    StopIssuing,
    /// Give every holder a new leaf, spread over a window.
    Reissue {
        /// Seconds.
        window: u32,
        /// Why.
        reason: String,
    },
    /// Refuse what this CA issued, and say so to other nodes in a signed statement.
    Taint(KeyHash),
    /// Its root says the same: by a CRL, or in the charter.
    Revoke(KeyHash),
    /// Destroy the CA's key; nothing that it issued is alive.
    Drop(KeyHash),
    /// Strike the node from the fleet.
    Forget(String),
}

impl Effect {
    /// One line for people, as a dry run prints it.
    pub fn describe(&self) -> String {
        match self {
            Self::Overridden { reason, obstacles } => {
                format!("pass over {} because: {reason} (audited)", obstacles.join("; "))
            }
            Self::MakeKey => "make a key for the next site CA and a request for its certificate".into(),
            Self::Install(ca) => format!("keep the certificate of site CA {}", ca.key.short()),
            Self::ApplyCharter(view) => format!("put charter {} in force", view.sequence),
            Self::Switch { to, from: None } => format!("issue with site CA {}", to.short()),
            Self::Switch { to, from: Some((from, _)) } => {
                format!(
                    "issue with site CA {}; {} retires until its last leaf is dead",
                    to.short(),
                    from.short()
                )
            }
            Self::StopIssuing => "issue nothing until a CA is activated".into(),
            Self::Reissue { window, reason } => format!("reissue every leaf within {window} s: {reason}"),
            Self::Taint(ca) => format!("refuse whatever site CA {} issued, and tell other nodes", ca.short()),
            Self::Revoke(ca) => format!("hold site CA {} revoked", ca.short()),
            Self::Drop(ca) => format!("destroy the key of site CA {}: no leaf of it is alive", ca.short()),
            Self::Forget(node) => format!("wait no longer for node {node}"),
        }
    }
}
