//! What a peer is told about a prefix (RFC 4271 sections 5.1 and 9.1.3, RFC 1997).

use std::{fmt, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{NextHops, Path, Source};
use crate::{
    Families, Family, PeerId, Policy,
    wire::{Attributes, Community},
};

/// LOCAL_PREF of a route that has none.
pub(super) const DEFAULT_LOCAL_PREF: u32 = 100;

/// The peer that is told.
#[derive(Clone, Debug)]
pub struct ExportTarget {
    /// Its number.
    pub peer: PeerId,
    /// Its end of the session.
    pub address: IpAddr,
    /// Its AS is not ours.
    pub external: bool,
    /// Own AS number.
    pub local_asn: u32,
    /// Own addresses on the session.
    pub own: NextHops,
    /// Families of the session.
    pub families: Families,
    /// The peer's export policy.
    pub policy: Arc<Policy>,
}

/// Why a peer is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The export policy says so; without one an external peer is told nothing (RFC 8212).
    Policy,
    /// The peer told us.
    LearnedFromIt,
    /// From one internal peer to another: only a route reflector does that.
    InternalToInternal,
    /// The session does not carry the family.
    Family,
    /// NO_ADVERTISE.
    NoAdvertise,
    /// NO_EXPORT or NO_EXPORT_SUBCONFED, and the peer is external.
    NoExport,
    /// We have no address of the family on the session.
    NoNextHop,
    /// The next hop is the peer itself (RFC 4271 section 5.1.3).
    NextHopIsPeer,
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Policy => "the export policy refuses it",
            Self::LearnedFromIt => "it was learned from this peer",
            Self::InternalToInternal => "it was learned from an internal peer",
            Self::Family => "the session does not carry its address family",
            Self::NoAdvertise => "it carries NO_ADVERTISE",
            Self::NoExport => "it carries NO_EXPORT",
            Self::NoNextHop => "we have no address of its family on this session",
            Self::NextHopIsPeer => "its next hop is this peer",
        })
    }
}

/// The attributes that the peer is sent for the best path of a prefix.
///
/// # Errors
/// Why it is sent nothing: then it must not keep what it was sent before.
pub fn export(prefix: &IpNet, path: &Path, target: &ExportTarget) -> Result<Attributes, Withheld> {
    check_source(prefix, path, target)?;
    check_communities(&path.attributes, target)?;
    let sent =
        if target.external { to_external(prefix, path, target)? } else { to_internal(prefix, path, target)? };
    // A policy may have added one of the communities.
    check_communities(&sent, target)?;
    Ok(sent)
}

fn check_source(prefix: &IpNet, path: &Path, target: &ExportTarget) -> Result<(), Withheld> {
    if !target.families.contains(Family::of(prefix)) {
        return Err(Withheld::Family);
    }
    match &path.source {
        Source::Peer(neighbor) if neighbor.id == target.peer => return Err(Withheld::LearnedFromIt),
        Source::Peer(neighbor) if !neighbor.external && !target.external => {
            return Err(Withheld::InternalToInternal);
        }
        _ => {}
    }
    if target.policy.rules().is_empty() { Err(Withheld::Policy) } else { Ok(()) }
}

fn check_communities(attributes: &Attributes, target: &ExportTarget) -> Result<(), Withheld> {
    let has = |community| attributes.communities.contains(&community);
    if has(Community::NO_ADVERTISE) {
        return Err(Withheld::NoAdvertise);
    }
    if target.external && (has(Community::NO_EXPORT) || has(Community::NO_EXPORT_SUBCONFED)) {
        return Err(Withheld::NoExport);
    }
    Ok(())
}

fn to_external(prefix: &IpNet, path: &Path, target: &ExportTarget) -> Result<Attributes, Withheld> {
    let next_hop = target.own.of(Family::of(prefix)).ok_or(Withheld::NoNextHop)?;
    let mut sent = Attributes::clone(&path.attributes);
    sent.as_path = sent.as_path.prepended(target.local_asn);
    sent.next_hop = next_hop;
    sent.local_pref = None;
    // A neighbor's metric is for us alone (RFC 4271 section 5.1.4).
    sent.med = sent.med.filter(|_| path.source == Source::Local);
    sent.change_rare(|rare| {
        rare.originator_id = None;
        rare.cluster_list.clear();
    });
    Ok(sent)
}

fn to_internal(prefix: &IpNet, path: &Path, target: &ExportTarget) -> Result<Attributes, Withheld> {
    let mut sent = Attributes::clone(&path.attributes);
    if path.source == Source::Local {
        sent.next_hop = target.own.of(Family::of(prefix)).ok_or(Withheld::NoNextHop)?;
    }
    if sent.next_hop == target.address {
        return Err(Withheld::NextHopIsPeer);
    }
    sent.local_pref = Some(sent.local_pref.unwrap_or(DEFAULT_LOCAL_PREF));
    Ok(sent)
}
