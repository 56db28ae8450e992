//! One peer as the speaker keeps it.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Config, ConnectionId, Messages, PeerConfig, PeerId};
use crate::{
    Families,
    adj_out::{AdjOut, Changes},
    dynamic::Remote,
    fsm::{Negotiated, Session, State},
    refresh::Refresh,
    restart::{Keeper, KeeperConfig},
    rib::{Counts, ExportCache, ExportTarget, ImportRules, Neighbor, NextHopRule, NextHops, Topology},
    wire::Role,
};

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) config: PeerConfig,
    /// A template made it.
    pub(super) dynamic: bool,
    pub(super) session: Session,
    pub(super) links: Vec<Link>,
    pub(super) up: Option<Up>,
    /// What becomes of its routes when its session ends.
    pub(super) keeper: Keeper,
    /// Where the routes that outlive its session come from.
    pub(super) away: Option<Origin>,
    /// What its paths are judged by; made when the session comes up, and again when anything of it changes.
    pub(super) rules: Option<Arc<ImportRules>>,
    pub(super) received: Messages,
    pub(super) sent: Messages,
    /// UPDATEs with a fault that did not end the session.
    pub(super) update_faults: u64,
}

/// A connection's buffers.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: ConnectionId,
    /// Own addresses on it.
    pub(super) own: NextHops,
    /// Bytes of a message that is not complete yet.
    pub(super) input: Vec<u8>,
    /// OPEN and KEEPALIVE to send: they never wait behind routes.
    pub(super) control: Vec<u8>,
}

impl Link {
    pub(super) fn new(id: ConnectionId, own: NextHops) -> Self {
        Self { id, own, input: Vec::new(), control: Vec::new() }
    }
}

/// What an established session has.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) connection: ConnectionId,
    pub(super) neighbor: Arc<Neighbor>,
    pub(super) negotiated: Arc<Negotiated>,
    pub(super) own: NextHops,
    /// What it was told and has to be told.
    pub(super) out: AdjOut,
    pub(super) exports: ExportCache,
    /// Families whose End-of-RIB has come.
    pub(super) end_of_rib: Families,
    /// Families that it is sending once more.
    pub(super) refresh: Refresh,
    /// Families that it has asked for once more, and will be sent when its messages that are here have been looked at.
    pub(super) asked: Families,
    /// Since it came up it has led over the tunnel, perhaps not now.
    pub(super) over_tunnel: bool,
}

/// What rules for import need to know of the session that brought the routes, and still need when it is gone.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) neighbor: Arc<Neighbor>,
    own: NextHops,
    role: Option<Role>,
    pub(super) over_tunnel: bool,
}

impl Up {
    pub(super) fn origin(&self) -> Origin {
        Origin {
            neighbor: Arc::clone(&self.neighbor),
            own: self.own,
            role: self.negotiated.role,
            over_tunnel: self.over_tunnel,
        }
    }
}

/// A peer's state, for showing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Configured name.
    pub name: Arc<str>,
    /// Its end of the session.
    pub address: IpAddr,
    /// Its AS number, as configured while it is not established.
    pub asn: u32,
    /// State of the session.
    pub state: State,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Instant,
    /// Agreed hold time; zero while not established, or when there is none.
    pub hold_time: Duration,
    /// Interval between KEEPALIVEs; zero likewise.
    pub keepalive: Duration,
    /// The peer's BGP identifier, while established.
    pub remote_router_id: Option<Ipv4Addr>,
    /// Agreed families, while established.
    pub families: Families,
    /// Families whose End-of-RIB has come.
    pub end_of_rib: Families,
    /// Prefixes it announced.
    pub prefixes_received: u32,
    /// Of these, usable.
    pub prefixes_accepted: u32,
    /// Of these, not usable.
    pub prefixes_filtered: u32,
    /// Of these, kept from a session that is gone.
    pub prefixes_stale: u32,
    /// Of these, the best way there is.
    pub prefixes_best: u32,
    /// Prefixes that it was told.
    pub prefixes_sent: usize,
    /// The last NOTIFICATION or transport error.
    pub last_error: Option<String>,
    /// How often the session reached Established.
    pub established_count: u64,
    /// How often a session ended that was established.
    pub flaps: u64,
    /// Messages of every type since the peer was configured.
    pub messages_received: u64,
    /// Messages of every type since the peer was configured.
    pub messages_sent: u64,
    /// UPDATEs since the peer was configured with a fault that did not end the session (RFC 7606).
    pub update_faults: u64,
    /// A template made this peer when it connected.
    pub dynamic: bool,
    /// Connection of the established session.
    pub connection: Option<ConnectionId>,
}

impl Peer {
    pub(super) fn new(
        id: PeerId,
        config: PeerConfig,
        dynamic: bool,
        session: Session,
        keeper: KeeperConfig,
    ) -> Self {
        let keeper = Keeper::new(keeper);
        let (links, up, away, rules) = Default::default();
        let (received, sent, update_faults) = Default::default();
        Self { id, config, dynamic, session, links, up, keeper, away, rules, received, sent, update_faults }
    }

    /// Whom it connects from.
    pub(super) fn remote(&self) -> Remote {
        Remote::new(self.config.address, self.config.scope)
    }

    /// A session is wanted, or stands.
    pub(super) fn is_expected(&self) -> bool {
        self.up.is_some() || (!self.dynamic && self.config.shutdown.is_none())
    }

    pub(super) fn link(&mut self, connection: ConnectionId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.id == connection)
    }

    /// `changes`: none while routes are kept back.
    pub(super) fn pending(&self, changes: Option<&Changes>) -> impl Iterator<Item = ConnectionId> {
        let has_routes = changes.is_some_and(|changes| self.has_routes(changes));
        let routes = self.up.as_ref().filter(|_| has_routes).map(|up| up.connection);
        self.links
            .iter()
            .filter(move |link| !link.control.is_empty() || routes == Some(link.id))
            .map(|link| link.id)
    }

    pub(super) fn synchronized(&self) -> bool {
        self.up.as_ref().is_some_and(|up| up.end_of_rib == up.negotiated.families)
    }

    pub(super) fn import_rules(&self, config: &Config, topology: &Arc<Topology>) -> Option<ImportRules> {
        let origin = self.up.as_ref().map(Up::origin).or_else(|| self.away.clone())?;
        let (address, external) = (self.config.address, origin.neighbor.external);
        Some(ImportRules {
            local_asn: config.asn,
            router_id: config.router_id,
            cluster_id: config.cluster_id(),
            own: origin.own,
            neighbor: Arc::clone(&origin.neighbor),
            guards: self.config.guards,
            role: origin.role,
            policy: Arc::clone(&self.config.import),
            next_hops: NextHopRule::new(Arc::clone(topology), address, external, origin.over_tunnel),
        })
    }

    pub(super) fn export_target(&self, config: &Config, shutting_down: bool) -> Option<ExportTarget> {
        let up = self.up.as_ref()?;
        Some(ExportTarget {
            peer: self.id,
            address: self.config.address,
            router_id: up.neighbor.router_id,
            asn: up.neighbor.asn,
            external: up.neighbor.external,
            client: up.neighbor.client,
            local_asn: config.asn,
            cluster_id: config.cluster_id(),
            own: up.own,
            families: up.negotiated.families,
            extended_next_hop: up.negotiated.extended_next_hop,
            role: up.negotiated.role,
            policy: Arc::clone(&self.config.export),
            next_hop: self.config.next_hop,
            remove_private_as: self.config.remove_private_as,
            shutting_down,
        })
    }

    pub(super) fn status(&self, counts: Counts) -> PeerStatus {
        let negotiated = self.up.as_ref().map(|up| &up.negotiated);
        PeerStatus {
            name: Arc::clone(&self.config.name),
            address: self.config.address,
            asn: negotiated.map_or(self.config.asn, |negotiated| negotiated.remote_asn),
            state: self.session.state(),
            reason: self.session.reason(),
            since: self.session.since(),
            hold_time: negotiated.map_or(Duration::ZERO, |negotiated| negotiated.hold_time),
            keepalive: negotiated.map_or(Duration::ZERO, |negotiated| negotiated.keepalive),
            remote_router_id: negotiated.map(|negotiated| negotiated.remote_router_id),
            families: negotiated.map_or(Families::NONE, |negotiated| negotiated.families),
            end_of_rib: self.up.as_ref().map_or(Families::NONE, |up| up.end_of_rib),
            prefixes_received: counts.total(),
            prefixes_accepted: counts.accepted.iter().sum(),
            prefixes_filtered: counts.filtered(),
            prefixes_stale: counts.stale.iter().sum(),
            prefixes_best: counts.best.iter().sum(),
            prefixes_sent: self.up.as_ref().map_or(0, |up| up.out.advertised()),
            last_error: self.session.last_error().map(|error| error.text.clone()),
            established_count: self.session.established_count(),
            flaps: self.session.established_count() - u64::from(self.up.is_some()),
            messages_received: self.received.total(),
            messages_sent: self.sent.total(),
            update_faults: self.update_faults,
            dynamic: self.dynamic,
            connection: self.up.as_ref().map(|up| up.connection),
        }
    }
}
