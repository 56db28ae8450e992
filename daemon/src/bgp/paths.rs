//! What BGP knows about a path beside where it leads; asked for when a person wants to see it.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use isthmus_bgp::{
    Speaker,
    rib::{Path, Verdict},
};
use tokio::sync::oneshot;

use super::{Handle, handle::Command};

/// Prefixes in one question: between two questions the speaker does its work.
const PAGE: usize = 1024;

/// One usable path of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathNote {
    /// The neighbor it was learned from.
    pub neighbor: Arc<str>,
    /// NEXT_HOP.
    pub next_hop: IpAddr,
    /// True: it carries traffic (best path, or equal to it under multipath).
    pub selected: bool,
    /// Why it is or is not selected, for a person.
    pub reason: String,
    /// AS_PATH as text.
    pub as_path: String,
}

/// Paths by prefix.
pub type PathNotes = HashMap<IpNet, Vec<PathNote>>;

impl Handle {
    /// The usable paths of these prefixes; nothing once BGP is stopped.
    pub async fn paths(&self, prefixes: &[IpNet]) -> PathNotes {
        let mut notes = PathNotes::new();
        for page in prefixes.chunks(PAGE) {
            let (answer, answered) = oneshot::channel();
            if self.commands.send(Command::Paths(page.to_vec(), answer)).await.is_err() {
                break;
            }
            notes.extend(answered.await.unwrap_or_default());
        }
        notes
    }
}

/// The driver's answer.
pub(super) fn answer(speaker: &Speaker, prefixes: Vec<IpNet>) -> PathNotes {
    prefixes.into_iter().map(|prefix| (prefix, notes(speaker, &prefix))).collect()
}

fn notes(speaker: &Speaker, prefix: &IpNet) -> Vec<PathNote> {
    let usable = speaker.paths(prefix).iter().filter(|path| path.verdict.ineligible().is_none());
    usable.filter_map(|path| note(speaker, path)).collect()
}

fn note(speaker: &Speaker, path: &Path) -> Option<PathNote> {
    Some(PathNote {
        neighbor: Arc::clone(speaker.peer_name(path.source.peer()?)?),
        next_hop: path.attributes.next_hop,
        selected: matches!(path.verdict, Verdict::Best | Verdict::Equal),
        reason: path.verdict.to_string(),
        as_path: path.attributes.as_path.to_string(),
    })
}
