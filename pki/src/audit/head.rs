//! A head: how long a log is and the hash over all of it. Signed, it is what a log can't be cut or rewritten behind.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::{hash::Hash, tree::Tree};

/// State of a log at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// How many records it covers.
    pub size: u64,
    /// Root of the tree over them.
    pub root: Hash,
    /// When it was made, seconds since the Unix epoch.
    pub iat: i64,
}

impl Head {
    /// Of a tree as it is now.
    pub fn of(tree: &Tree, now: OffsetDateTime) -> Self {
        Self { size: tree.size(), root: tree.root(), iat: now.unix_timestamp() }
    }
}
