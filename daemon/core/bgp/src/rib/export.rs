//! What a peer is told about a path (RFC 4271 sections 5.1 and 9.1.3, RFC 1997, RFC 4456, RFC 8212, RFC 9234).
//!
//! In this order: is the path for this peer at all, by where it comes from and what its communities say; the export policy; the
//! communities again, since a policy may have added one; what BGP itself demands of attributes that go to such a peer.

mod cache;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ipnet::IpNet;

use super::{Bundle, NextHops, Source};
use crate::{
    Families, Family, PeerId,
    policy::{self, NextHopChange, Outcome, Policy, Trace},
    wire::{AsPath, Attributes, Community, Role},
};
pub use cache::ExportCache;

/// LOCAL_PREF of a route that has none.
pub(super) const DEFAULT_LOCAL_PREF: u32 = 100;

/// The peer that is told.
#[derive(Clone, Debug)]
pub struct ExportTarget {
    /// Its number.
    pub peer: PeerId,
    /// Its end of the session.
    pub address: IpAddr,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// Its AS number.
    pub asn: u32,
    /// Its AS is not ours.
    pub external: bool,
    /// We reflect routes to it (RFC 4456).
    pub client: bool,
    /// Own AS number.
    pub local_asn: u32,
    /// The cluster that we reflect routes for.
    pub cluster_id: Ipv4Addr,
    /// Own addresses on the session.
    pub own: NextHops,
    /// Families of the session.
    pub families: Families,
    /// IPv4 prefixes may have an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
    /// What we are to it (RFC 9234).
    pub role: Option<Role>,
    /// The peer's export policy.
    pub policy: Arc<Policy>,
    /// Which next hop it is sent, where the policy does not say.
    pub next_hop: NextHopMode,
    /// Private AS numbers are taken off the paths.
    pub remove_private_as: bool,
    /// We are about to go: nobody should prefer our paths (RFC 8326).
    pub shutting_down: bool,
}

/// Which next hop a peer is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NextHopMode {
    /// An external peer our own address; an internal one what we were told (RFC 4271 section 5.1.3).
    #[default]
    Standard,
    /// Our own address. What we only reflect keeps its next hop (RFC 4456 section 10).
    SelfAddress,
    /// What we were told.
    Unchanged,
}

/// Why a peer is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The export policy says so; without one an external peer is told nothing (RFC 8212).
    Policy,
    /// The peer told us, or brought the route into our AS.
    LearnedFromIt,
    /// From one internal peer to another, and none of them is a client of this route reflector.
    InternalToInternal,
    /// The session does not carry the family.
    Family,
    /// NO_ADVERTISE.
    NoAdvertise,
    /// NO_EXPORT or NO_EXPORT_SUBCONFED, and the peer is external.
    NoExport,
    /// It is for customers only (RFC 9234 section 5), and the peer is none.
    OnlyToCustomer,
    /// We have no address on the session that could be its next hop.
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
            Self::OnlyToCustomer => "it is for customers only, and this peer is none (OTC attribute)",
            Self::NoNextHop => "we have no address on this session that could be its next hop",
            Self::NextHopIsPeer => "its next hop is this peer",
        })
    }
}

/// The attributes that the peer is sent for a path.
///
/// # Errors
/// Why it is sent nothing: then it must not keep what it was sent before.
pub fn export(prefix: IpNet, bundle: &Bundle, target: &ExportTarget) -> Result<Attributes, Withheld> {
    check_source(prefix, bundle, target)?;
    check_communities(bundle.attributes(), target)?;
    check_only_to_customer(bundle.attributes(), target)?;
    let offered = offered(bundle, target);
    let outcome = target.policy.evaluate(&subject(prefix, bundle, &offered, target));
    let Outcome::Accept(accepted) = outcome else { return Err(Withheld::Policy) };
    let mut sent = accepted.attributes.unwrap_or(offered);
    check_communities(&sent, target)?;
    sent.next_hop = next_hop(prefix, bundle, target, accepted.next_hop)?;
    if target.external {
        to_external(&mut sent, target)
    } else {
        to_internal(&mut sent, bundle, target)
    }
    Ok(sent)
}

/// What the export policy did to a path, rule by rule.
pub fn explain_export(prefix: IpNet, bundle: &Bundle, target: &ExportTarget) -> Trace {
    let offered = offered(bundle, target);
    target.policy.explain(&subject(prefix, bundle, &offered, target))
}

fn subject<'a>(
    prefix: IpNet,
    bundle: &'a Bundle,
    attributes: &'a Attributes,
    target: &ExportTarget,
) -> policy::Route<'a> {
    let neighbor = bundle.source().neighbor().map(|neighbor| &*neighbor.name);
    policy::Route { prefix, attributes, neighbor, local_asn: target.local_asn }
}

/// What the policy starts with. The metric of one AS is not for another (RFC 4271 section 5.1.4).
fn offered(bundle: &Bundle, target: &ExportTarget) -> Attributes {
    let mut offered = Attributes::clone(bundle.attributes());
    if target.external && *bundle.source() != Source::Local {
        offered.med = None;
    }
    offered
}

fn check_source(prefix: IpNet, bundle: &Bundle, target: &ExportTarget) -> Result<(), Withheld> {
    if !target.families.contains(Family::of(&prefix)) {
        return Err(Withheld::Family);
    }
    let Some(neighbor) = bundle.source().neighbor() else { return Ok(()) };
    if neighbor.id == target.peer || is_originator(bundle, target) {
        return Err(Withheld::LearnedFromIt);
    }
    let internal = !neighbor.external && !target.external;
    if internal && !neighbor.client && !target.client {
        return Err(Withheld::InternalToInternal);
    }
    Ok(())
}

fn is_originator(bundle: &Bundle, target: &ExportTarget) -> bool {
    !target.external && bundle.attributes().rare().originator_id == Some(target.router_id)
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

/// RFC 9234 section 5, rule 2 of egress.
fn check_only_to_customer(attributes: &Attributes, target: &ExportTarget) -> Result<(), Withheld> {
    let upwards = matches!(target.role, Some(Role::Customer | Role::Peer | Role::RouteServerClient));
    if upwards && attributes.rare().only_to_customer.is_some() {
        return Err(Withheld::OnlyToCustomer);
    }
    Ok(())
}

fn next_hop(
    prefix: IpNet,
    bundle: &Bundle,
    target: &ExportTarget,
    change: Option<NextHopChange>,
) -> Result<IpAddr, Withheld> {
    let told = bundle.attributes().next_hop;
    let chosen = match change {
        Some(NextHopChange::Address(address)) => Some(address),
        Some(NextHopChange::PeerAddress) => Some(target.address),
        Some(NextHopChange::Unchanged) => Some(told),
        Some(NextHopChange::SelfAddress) => None,
        None => (!is_own(bundle, target)).then_some(told),
    };
    // An address that means something on one link only, or none at all, is no next hop for others.
    let passed_on = chosen.filter(|address| !is_local(*address));
    let next_hop = passed_on.or_else(|| own(prefix, target)).filter(|address| fits(prefix, *address, target));
    let next_hop = next_hop.ok_or(Withheld::NoNextHop)?;
    if next_hop == target.address { Err(Withheld::NextHopIsPeer) } else { Ok(next_hop) }
}

/// True if packets should come to us, as far as the policy does not say otherwise.
fn is_own(bundle: &Bundle, target: &ExportTarget) -> bool {
    let reflected = !target.external && bundle.source().neighbor().is_some_and(|neighbor| !neighbor.external);
    match target.next_hop {
        NextHopMode::Standard => target.external || *bundle.source() == Source::Local,
        NextHopMode::SelfAddress => !reflected,
        NextHopMode::Unchanged => *bundle.source() == Source::Local,
    }
}

fn own(prefix: IpNet, target: &ExportTarget) -> Option<IpAddr> {
    let extended = target.own.v6.filter(|_| target.extended_next_hop).map(IpAddr::V6);
    target.own.of(Family::of(&prefix)).or(extended)
}

fn is_local(address: IpAddr) -> bool {
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    link_local || address.is_unspecified()
}

/// RFC 8950: an IPv6 next hop for an IPv4 prefix only where that was agreed on; the other way round never.
fn fits(prefix: IpNet, next_hop: IpAddr, target: &ExportTarget) -> bool {
    match (Family::of(&prefix), next_hop) {
        (Family::Ipv4Unicast, IpAddr::V6(_)) => target.extended_next_hop,
        (family, _) => family == Family::of(&next_hop.into()),
    }
}

fn to_external(sent: &mut Attributes, target: &ExportTarget) {
    if target.remove_private_as {
        // The peer's own number stays: by it the peer sees its loops.
        let is_public = |asn: &u32| !is_private(*asn) || *asn == target.asn;
        sent.as_path = AsPath::new(sent.as_path.asns().iter().copied().filter(is_public).collect());
    }
    sent.as_path = sent.as_path.prepended(target.local_asn);
    sent.local_pref = None;
    let downwards = matches!(target.role, Some(Role::Provider | Role::Peer | Role::RouteServer));
    sent.change_rare(|rare| {
        rare.originator_id = None;
        rare.cluster_list.clear();
        // RFC 9234 section 5, rule 1 of egress.
        if downwards {
            rare.only_to_customer.get_or_insert(target.local_asn);
        }
    });
    if target.shutting_down && !sent.communities.contains(&Community::GRACEFUL_SHUTDOWN) {
        sent.communities = [&*sent.communities, &[Community::GRACEFUL_SHUTDOWN]].concat().into();
    }
}

fn to_internal(sent: &mut Attributes, bundle: &Bundle, target: &ExportTarget) {
    let preference = if target.shutting_down { 0 } else { sent.local_pref.unwrap_or(DEFAULT_LOCAL_PREF) };
    sent.local_pref = Some(preference);
    if let Some(neighbor) = bundle.source().neighbor().filter(|neighbor| !neighbor.external) {
        // RFC 4456 section 8.
        sent.change_rare(|rare| {
            rare.originator_id.get_or_insert(neighbor.router_id);
            rare.cluster_list.insert(0, target.cluster_id);
        });
    }
}

/// Numbers for private use (RFC 6996).
fn is_private(asn: u32) -> bool {
    matches!(asn, 64_512..=65_534 | 4_200_000_000..=4_294_967_294)
}

#[cfg(test)]
mod tests;
