//! The plan of a ceremony: what is to be signed, written down before anybody brings a request. What is not in it is refused.
//!
//! ```toml
//! trust_domain = "fabric.example"
//!
//! [[site]]
//! name = "aws-use1"
//! requests = 3              # the CA for now and two for later
//! lifetime = "90d"
//! every = "45d"             # each later one begins this much after the one before
//!
//! [[site.node]]
//! name = "gw1"
//!
//! [crl]
//! count = 12                # lists signed ahead
//! every = "30d"
//! overlap = "10d"           # each holds this much longer than until the next one begins
//!
//! [[crl.revoked]]
//! serial = "4f00…"
//! reason = "ca_compromise"
//! since = "2026-05-01T00:00:00Z"
//! ```

mod file;
mod review;

use time::{Duration, OffsetDateTime};

pub use file::{Error, MAX_LEN};
pub use review::{Refusal, claimed_site};

use crate::{authority::Revoked, id::TrustDomain, key::Curve};

/// A plan that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whose.
    pub trust_domain: TrustDomain,
    /// Names differ.
    pub sites: Vec<Site>,
    /// Lists to be signed.
    pub crl: Option<Lists>,
}

/// A site of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// How many CAs: one for now, the others for later. At least 1.
    pub requests: usize,
    /// How long each of them holds.
    pub lifetime: Duration,
    /// From the beginning of one to that of the next; less than `lifetime`.
    pub every: Duration,
    /// What their keys must be.
    pub curve: Curve,
    /// Nodes whose first certificate is signed by hand. Names differ.
    pub nodes: Vec<Node>,
}

/// A node of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// How long its certificate holds.
    pub lifetime: Duration,
}

/// Revocation lists of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// How many. At least 1.
    pub count: u16,
    /// From the beginning of one to that of the next.
    pub every: Duration,
    /// How much longer each holds.
    pub overlap: Duration,
    /// What is revoked, in all of them.
    pub revoked: Vec<Revoked>,
}

impl Plan {
    /// The site of this name.
    pub fn site(&self, name: &str) -> Option<&Site> {
        self.sites.iter().find(|site| site.name == name)
    }
}

impl Site {
    /// When the `index`th CA begins to hold, give or take the backdating.
    pub fn starts(&self, index: usize, now: OffsetDateTime) -> OffsetDateTime {
        later(now, self.every, index)
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

impl Lists {
    /// First and last second of the `index`th list.
    pub fn period(&self, index: u16, now: OffsetDateTime) -> (OffsetDateTime, OffsetDateTime) {
        let begin = later(now, self.every, index.into());
        (begin, begin.saturating_add(self.every).saturating_add(self.overlap))
    }
}

fn later(now: OffsetDateTime, every: Duration, index: usize) -> OffsetDateTime {
    let times = i32::try_from(index).unwrap_or(i32::MAX);
    now.saturating_add(every.checked_mul(times).unwrap_or(Duration::MAX))
}
