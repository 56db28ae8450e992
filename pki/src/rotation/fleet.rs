//! The nodes that are known, and what each said last. Absence is never removal: a silent node is waited for until it is forgotten.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::keyhash::KeyHash;

/// Most nodes of one site; reports of more are refused.
pub const MAX_NODES: usize = 10_000;
/// Longest name of a node or version.
const MAX_TEXT: usize = 128;

/// What a node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Sequence of the charter that it has in force; 0: none.
    pub charter_sequence: u64,
    /// Sequence of the bundle that it serves; counted by each node for itself.
    pub bundle_sequence: u64,
    /// Serial number of its SVID, hex.
    pub svid_serial: String,
    /// Key of the CA that issued its SVID; `None`: it has none.
    pub svid_issuer: Option<KeyHash>,
    /// When its SVID ends.
    pub svid_not_after: i64,
    /// Of its software.
    pub version: String,
    /// When it said so, by our clock.
    pub at: i64,
}

/// A node that lags, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Its name.
    pub node: String,
    /// What it lacks, in words.
    pub what: String,
}

/// Every known node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    nodes: BTreeMap<String, Report>,
}

/// The fleet is full, or the report is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// [`MAX_NODES`] are known.
    #[error("{MAX_NODES} nodes are known; forget those that are gone with `isthmusctl rotate forget NODE`")]
    Full,
    /// A text that is too long.
    #[error("a name, serial number or version is longer than {MAX_TEXT} bytes")]
    TooLong,
}

impl Fleet {
    /// Takes a node's report; an older one than the last is ignored. Says whether anything but the time is new.
    pub fn report(&mut self, node: &str, report: Report) -> Result<bool, Refused> {
        if [node, &report.svid_serial, &report.version].iter().any(|text| text.len() > MAX_TEXT) {
            return Err(Refused::TooLong);
        }
        let Some(last) = self.nodes.get_mut(node) else {
            if self.nodes.len() >= MAX_NODES {
                return Err(Refused::Full);
            }
            self.nodes.insert(node.to_owned(), report);
            return Ok(true);
        };
        if report.at < last.at {
            return Ok(false);
        }
        let news = Report { at: last.at, ..report.clone() } != *last;
        *last = report;
        Ok(news)
    }

    /// Strikes a node; false if it was not known.
    pub fn forget(&mut self, node: &str) -> bool {
        self.nodes.remove(node).is_some()
    }

    /// Every node with its last report, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Report)> {
        self.nodes.iter().map(|(name, report)| (name.as_str(), report))
    }

    /// Is it known?
    pub fn knows(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Nodes whose charter is below `sequence`.
    pub fn behind(&self, sequence: u64, now: i64) -> Vec<Lag> {
        let late = self.nodes.iter().filter(|(_, report)| report.charter_sequence < sequence);
        let lag = |(node, report): (&String, &Report)| Lag {
            node: node.clone(),
            what: format!(
                "has charter {} of {sequence}, heard {} ago",
                report.charter_sequence,
                span(now - report.at)
            ),
        };
        late.map(lag).collect()
    }

    /// Nodes whose SVID one of these CAs issued, and that is alive.
    pub fn holding(&self, cas: &[KeyHash], now: i64) -> Vec<Lag> {
        let holds = |report: &Report| {
            report.svid_not_after >= now
                && report.svid_issuer.as_ref().is_some_and(|issuer| cas.contains(issuer))
        };
        let lag = |(node, report): (&String, &Report)| Lag {
            node: node.clone(),
            what: format!(
                "its SVID is of site CA {} and lives for another {}, heard {} ago",
                report.svid_issuer.as_ref().map_or("", |issuer| issuer.short()),
                span(report.svid_not_after - now),
                span(now - report.at)
            ),
        };
        self.nodes.iter().filter(|(_, report)| holds(report)).map(lag).collect()
    }
}

/// "3 h", rounded down: for people.
pub(super) fn span(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{} s", seconds.max(0)),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
