//! Capabilities that two OPENs have in common.

use std::time::Duration;

use super::{AddPath, PeerRestart, offer::IPV4_OVER_IPV6};
use crate::{
    Families, Family,
    wire::{AddPathMode, Capability, Open},
};

/// The two OPENs of a connection.
#[derive(Clone, Copy)]
pub(super) struct Exchange<'a> {
    pub(super) ours: &'a Open,
    pub(super) theirs: &'a Open,
}

impl Exchange<'_> {
    /// Both have this very capability.
    pub(super) fn both(&self, capability: &Capability) -> bool {
        self.ours.capabilities.contains(capability) && self.theirs.capabilities.contains(capability)
    }

    /// Families that both carry.
    pub(super) fn families(&self) -> Families {
        self.ours.families().intersection(self.theirs.families())
    }

    /// One side sends several paths where the other receives them (RFC 7911 section 4).
    pub(super) fn add_path(&self) -> AddPath {
        let families = self.families();
        AddPath {
            send: families.intersection(senders(self.ours)).intersection(receivers(self.theirs)),
            receive: families.intersection(receivers(self.ours)).intersection(senders(self.theirs)),
        }
    }

    /// Both take IPv4 prefixes with IPv6 next hops (RFC 8950 section 4).
    pub(super) fn extended_next_hop(&self) -> bool {
        self.families().contains(Family::Ipv4Unicast)
            && [self.ours, self.theirs].into_iter().all(has_extended_next_hop)
    }

    /// The peer's side of graceful restart, if both offer it.
    pub(super) fn restart(&self) -> Option<PeerRestart> {
        let (_, we_keep) = last_restart(self.ours)?;
        let (restart, they_keep) = last_restart(self.theirs)?;
        let families = restart.families.intersection(self.families());
        let forwarding = restart.forwarding.intersection(families);
        Some(PeerRestart { notification: we_keep && they_keep, families, forwarding, ..restart })
    }
}

fn senders(open: &Open) -> Families {
    modes(open).filter(|(_, mode)| *mode != AddPathMode::Receive).map(|(family, _)| family).collect()
}

fn receivers(open: &Open) -> Families {
    modes(open).filter(|(_, mode)| *mode != AddPathMode::Send).map(|(family, _)| family).collect()
}

fn modes(open: &Open) -> impl Iterator<Item = (Family, AddPathMode)> {
    let entries = open.capabilities.iter().filter_map(|capability| match capability {
        Capability::AddPath(entries) => Some(entries),
        _ => None,
    });
    entries.flatten().filter_map(|(afi, safi, mode)| Some((Family::from_codes(*afi, *safi)?, *mode)))
}

fn has_extended_next_hop(open: &Open) -> bool {
    open.capabilities.iter().any(|capability| match capability {
        Capability::ExtendedNextHop(entries) => entries.contains(&IPV4_OVER_IPV6),
        _ => false,
    })
}

/// Of several such capabilities the last counts (RFC 4724 section 3). With it the N bit.
fn last_restart(open: &Open) -> Option<(PeerRestart, bool)> {
    open.capabilities.iter().rev().find_map(|capability| match capability {
        Capability::GracefulRestart { restarting, notification, time, families } => {
            let known =
                families.iter().filter_map(|f| Some((Family::from_codes(f.afi, f.safi)?, f.forwarding)));
            let restart = PeerRestart {
                restarting: *restarting,
                notification: *notification,
                time: Duration::from_secs((*time).into()),
                families: known.clone().map(|(family, _)| family).collect(),
                forwarding: known.filter(|(_, forwarding)| *forwarding).map(|(family, _)| family).collect(),
            };
            Some((restart, *notification))
        }
        _ => None,
    })
}
