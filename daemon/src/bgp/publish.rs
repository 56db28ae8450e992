//! From the speaker's table to the board.

use ipnet::IpNet;
use isthmus_bgp::{
    Speaker,
    rib::{Path, Verdict},
};

use crate::routes::{Candidate, NextHop};

/// What the board should know about a prefix: the peers' paths that may be used. Those that may not are no feasible sources either, and
/// a prefix that starts here has no candidate of its own.
pub(super) fn candidates(speaker: &Speaker, prefix: &IpNet) -> Vec<Candidate> {
    let usable = speaker.paths(prefix).iter().filter(|path| path.verdict().ineligible().is_none());
    usable.filter_map(|path| candidate(speaker, path)).collect()
}

fn candidate(speaker: &Speaker, path: &Path) -> Option<Candidate> {
    let peer = path.source().peer()?;
    Some(Candidate {
        next_hop: NextHop::Address(path.attributes().next_hop),
        neighbor: speaker.peer_name(peer).cloned(),
        selected: matches!(path.verdict(), Verdict::Best | Verdict::Equal),
        reason: path.verdict().to_string(),
        as_path: path.attributes().as_path.to_string(),
    })
}
