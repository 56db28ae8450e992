//! One peer's session in detail, for showing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Messages, Peer, PeerId, PeerStatus, Speaker};
use crate::{
    Families, Family, Policy,
    fsm::LastError,
    wire::{Capability, Role},
};

/// One peer in detail.
#[derive(Clone, Debug)]
pub struct PeerDetail {
    /// What is told of every peer.
    pub status: PeerStatus,
    /// Hold time that we offer.
    pub hold_time_offered: Duration,
    /// What last ended or prevented a session: when, by which NOTIFICATION of whom, and whose fault that is.
    pub last_error: Option<LastError>,
    /// What we say in our OPEN; while there is no connection, what we would say now.
    pub sent: Vec<Capability>,
    /// What the peer said in its OPEN, while established.
    pub received: Vec<Capability>,
    /// Timers that run: when they end, and their names. Those of the session, "stale routes" and "route refresh".
    pub timers: Vec<(Instant, &'static str)>,
    /// Families that are configured.
    pub families: Vec<FamilyDetail>,
    /// Graceful restart with it.
    pub restart: RestartDetail,
    /// Our role towards it, while it is in force (RFC 9234).
    pub role: Option<Role>,
    /// What is used of what it sends.
    pub import: Arc<Policy>,
    /// What it is sent.
    pub export: Arc<Policy>,
    /// Messages that it sent, since it was configured.
    pub messages_in: Messages,
    /// Messages that it was sent, since it was configured.
    pub messages_out: Messages,
    /// A family in which prefixes are held back from it, because it has been sent as many as it may be.
    pub held_back: Option<Family>,
}

/// One family of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyDetail {
    /// It.
    pub family: Family,
    /// Both sides carry it now.
    pub agreed: bool,
    /// End-of-RIB has come.
    pub end_of_rib: bool,
    /// Paths in the table.
    pub received: u32,
    /// Paths after which the session ends.
    pub limit: u32,
    /// Of the received ones, usable.
    pub accepted: u32,
    /// Of the received ones, the best to their prefix.
    pub best: u32,
    /// Of the received ones, kept from a session that is gone.
    pub stale: u32,
    /// Paths that it was told.
    pub sent: usize,
    /// It sends us several paths to a prefix.
    pub several_in: bool,
    /// We send it several.
    pub several_out: bool,
    /// When the routes that are kept of an earlier session go at the latest; `None`: there are none.
    pub stale_until: Option<Instant>,
}

/// Graceful restart with a peer (RFC 4724, RFC 8538), as agreed for the session that stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestartDetail {
    /// Both sides do it.
    pub agreed: bool,
    /// How long the peer's routes are to be kept when its session ends, as it asks.
    pub time: Duration,
    /// Families of which its routes are kept.
    pub families: Families,
    /// Families that it had gone on forwarding when the session came up.
    pub forwarding: Families,
    /// Routes are kept through a NOTIFICATION that is no Hard Reset, too.
    pub notification: bool,
    /// This session is its first after a restart of its own.
    pub restarting: bool,
    /// Families of which routes of an earlier session may be there; counts without a session, too.
    pub stale: Families,
    /// This node has restarted and waits for what the peer has to tell; counts without a session, too.
    pub waiting: bool,
}

impl Speaker {
    /// The peer of this name in detail.
    pub fn detail_of(&self, peer: &str) -> Option<PeerDetail> {
        self.detail(self.id_of(peer)?)
    }

    /// One peer in detail.
    pub fn detail(&self, peer: PeerId) -> Option<PeerDetail> {
        let peer = self.peers.get(&peer)?;
        let negotiated = peer.up.as_ref().map(|up| &up.negotiated);
        Some(PeerDetail {
            status: peer.status(self.rib.counts(peer.id)),
            hold_time_offered: Duration::from_secs(peer.config.hold_time.into()),
            last_error: peer.session.last_error().cloned(),
            sent: peer.session.capabilities(),
            received: negotiated.map(|negotiated| negotiated.capabilities.clone()).unwrap_or_default(),
            timers: peer.timers().collect(),
            families: peer.config.families.iter().map(|family| self.family_detail(peer, family)).collect(),
            restart: self.restart_detail(peer),
            role: negotiated.and_then(|negotiated| negotiated.role),
            import: Arc::clone(&peer.config.import),
            export: Arc::clone(&peer.config.export),
            messages_in: peer.received,
            messages_out: peer.sent,
            held_back: peer.up.as_ref().and_then(|up| up.out.held_back()),
        })
    }

    fn family_detail(&self, peer: &Peer, family: Family) -> FamilyDetail {
        let up = peer.up.as_ref();
        let agreed = |families: fn(&crate::fsm::Negotiated) -> Families| {
            up.is_some_and(|up| families(&up.negotiated).contains(family))
        };
        let (counts, index) = (self.rib.counts(peer.id), family.index());
        FamilyDetail {
            family,
            agreed: agreed(|negotiated| negotiated.families),
            end_of_rib: up.is_some_and(|up| up.end_of_rib.contains(family)),
            received: counts.received[index],
            limit: peer.config.prefix_limit(),
            accepted: counts.accepted[index],
            best: counts.best[index],
            stale: counts.stale[index],
            sent: up.map_or(0, |up| up.out.advertised_of(family)),
            several_in: agreed(|negotiated| negotiated.add_path.receive),
            several_out: agreed(|negotiated| negotiated.add_path.send),
            stale_until: peer.keeper.until(family),
        }
    }

    fn restart_detail(&self, peer: &Peer) -> RestartDetail {
        let (stale, waiting) = (peer.keeper.stale(), self.deferral.waiting_for().any(|id| id == peer.id));
        let absent = RestartDetail { stale, waiting, ..RestartDetail::default() };
        let agreed = peer.up.as_ref().and_then(|up| up.negotiated.restart);
        agreed.map_or(absent, |restart| RestartDetail {
            agreed: true,
            time: restart.time,
            families: restart.families,
            forwarding: restart.forwarding,
            notification: restart.notification,
            restarting: restart.restarting,
            ..absent
        })
    }
}

impl Peer {
    /// Every timer that runs: when it ends, and its name.
    pub(super) fn timers(&self) -> impl Iterator<Item = (Instant, &'static str)> {
        let kept = self.keeper.poll_timeout().map(|at| (at, "stale routes"));
        let refresh = self.up.as_ref().and_then(|up| up.refresh.poll_timeout());
        self.session.timers().chain(kept).chain(refresh.map(|at| (at, "route refresh")))
    }
}
