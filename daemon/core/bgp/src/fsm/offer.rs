//! Our OPEN: what we say that we can do.

use super::{AddPath, RestartOffer, SessionConfig};
use crate::{
    Families, Family,
    wire::{AddPathMode, Capability, Open, RestartFamily},
};

/// (AFI, SAFI, AFI of the next hop) of IPv4 unicast with IPv6 next hops (RFC 8950).
pub(super) const IPV4_OVER_IPV6: (u16, u16, u16) = (1, 1, 2);

/// How much of what we can do is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wording {
    /// Everything.
    Full,
    /// Only families and 4-octet AS numbers, for a peer that refused more (RFC 5492 section 3).
    Plain,
}

/// The OPEN for a new connection. `first`: no session has stood since the start, so this node may still be restarting.
pub(super) fn offer(config: &SessionConfig, wording: Wording, first: bool) -> Open {
    let mut open = Open::new(config.local_asn, config.hold_time, config.router_id, config.families);
    if wording == Wording::Full {
        open.capabilities.extend(optional(config, first));
    }
    open
}

fn optional(config: &SessionConfig, first: bool) -> impl Iterator<Item = Capability> {
    let (offer, families) = (&config.offer, config.families);
    let next_hop = (offer.extended_next_hop && families.contains(Family::Ipv4Unicast))
        .then(|| Capability::ExtendedNextHop(vec![IPV4_OVER_IPV6]));
    // Roles are for external peers only (RFC 9234 section 4.1).
    let role = offer.role.filter(|_| !config.remote_asn.contains(config.local_asn));
    [Capability::RouteRefresh, Capability::EnhancedRouteRefresh]
        .into_iter()
        .chain(next_hop)
        .chain(role.map(|role| Capability::Role(role.code())))
        .chain(offer.restart.map(|restart| graceful_restart(restart, families, first)))
        .chain(add_path(offer.add_path, families))
}

/// After the first session nothing restarts here, and what this process forwards it went on forwarding (RFC 8538 section 3).
fn graceful_restart(offer: RestartOffer, families: Families, first: bool) -> Capability {
    let forwarding = if first { offer.forwarding } else { families };
    let family = |family: Family| RestartFamily {
        afi: family.afi(),
        safi: family.safi(),
        forwarding: forwarding.contains(family),
    };
    Capability::GracefulRestart {
        restarting: first && offer.restarting,
        notification: true,
        time: offer.time.min(RestartOffer::LONGEST),
        families: families.iter().map(family).collect(),
    }
}

fn add_path(offer: AddPath, families: Families) -> Option<Capability> {
    let mode = |family: Family| match (offer.send.contains(family), offer.receive.contains(family)) {
        (true, true) => Some(AddPathMode::Both),
        (true, false) => Some(AddPathMode::Send),
        (false, true) => Some(AddPathMode::Receive),
        (false, false) => None,
    };
    let entry = |family: Family| Some((family.afi(), family.safi(), mode(family)?));
    let entries: Vec<_> = families.iter().filter_map(entry).collect();
    (!entries.is_empty()).then_some(Capability::AddPath(entries))
}
