//! One peer as the speaker keeps it.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{ConnectionId, PeerConfig, PeerId};
use crate::{
    Families,
    adj_out::AdjOut,
    fsm::{Negotiated, Session, State},
    rib::{Counts, ExportTarget, ImportRules, Neighbor, NextHopRule, NextHops, Topology},
};

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) config: PeerConfig,
    pub(super) session: Session,
    pub(super) links: Vec<Link>,
    pub(super) up: Option<Up>,
    pub(super) out: AdjOut,
    pub(super) messages_received: u64,
    pub(super) messages_sent: u64,
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
    /// Families whose End-of-RIB has come.
    pub(super) end_of_rib: Families,
    /// Since it came up it has led over the tunnel, perhaps not now.
    pub(super) over_tunnel: bool,
}

/// A peer's state, for showing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Configured name.
    pub name: Arc<str>,
    /// Its end of the session.
    pub address: IpAddr,
    /// Its AS number.
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
    /// Prefixes that it was told.
    pub prefixes_sent: usize,
    /// The last NOTIFICATION or transport error.
    pub last_error: Option<String>,
    /// How often the session reached Established.
    pub established_count: u64,
    /// Since the peer was configured.
    pub messages_received: u64,
    /// Since the peer was configured.
    pub messages_sent: u64,
    /// Connection of the established session.
    pub connection: Option<ConnectionId>,
}

impl Peer {
    pub(super) fn link(&mut self, connection: ConnectionId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.id == connection)
    }

    pub(super) fn pending(&self) -> impl Iterator<Item = ConnectionId> {
        let routes = self.up.as_ref().filter(|_| self.out.is_pending()).map(|up| up.connection);
        self.links
            .iter()
            .filter(move |link| !link.control.is_empty() || routes == Some(link.id))
            .map(|link| link.id)
    }

    /// Moves what waits for a connection to `out`; returns what could not be encoded.
    pub(super) fn transmit(
        &mut self,
        connection: ConnectionId,
        batch: usize,
        out: &mut Vec<u8>,
    ) -> Option<String> {
        let control = self.link(connection).map(|link| std::mem::take(&mut link.control));
        out.extend(control.unwrap_or_default());
        let mut failed = None;
        if let Some(up) = self.up.as_ref().filter(|up| up.connection == connection) {
            while out.len() < batch {
                match self.out.encode_next(&up.negotiated.encoding(), out) {
                    Ok(true) => self.messages_sent += 1,
                    Ok(false) => break,
                    Err(error) => failed = Some(error.to_string()),
                }
            }
        }
        self.session.handle_sent(connection);
        failed
    }

    pub(super) fn synchronized(&self) -> bool {
        self.up.as_ref().is_some_and(|up| up.end_of_rib == up.negotiated.families)
    }

    pub(super) fn import_rules(
        &self,
        local_asn: u32,
        router_id: Ipv4Addr,
        topology: &Arc<Topology>,
    ) -> Option<ImportRules> {
        let up = self.up.as_ref()?;
        let (address, external) = (self.config.address, up.neighbor.external);
        let next_hops = NextHopRule::new(Arc::clone(topology), address, external, up.over_tunnel);
        Some(ImportRules {
            next_hops,
            local_asn,
            router_id,
            own: up.own,
            peer: self.config.address,
            policy: self.config.import,
        })
    }

    pub(super) fn export_target(&self, local_asn: u32) -> Option<ExportTarget> {
        let up = self.up.as_ref()?;
        Some(ExportTarget {
            peer: self.id,
            address: self.config.address,
            external: up.neighbor.external,
            local_asn,
            own: up.own,
            families: up.negotiated.families,
            policy: self.config.export,
        })
    }

    pub(super) fn status(&self, counts: Counts) -> PeerStatus {
        let negotiated = self.up.as_ref().map(|up| &up.negotiated);
        PeerStatus {
            name: Arc::clone(&self.config.name),
            address: self.config.address,
            asn: self.config.asn,
            state: self.session.state(),
            reason: self.session.reason(),
            since: self.session.since(),
            hold_time: negotiated.map_or(Duration::ZERO, |negotiated| negotiated.hold_time),
            keepalive: negotiated.map_or(Duration::ZERO, |negotiated| negotiated.keepalive),
            remote_router_id: negotiated.map(|negotiated| negotiated.remote_router_id),
            families: negotiated.map_or(Families::NONE, |negotiated| negotiated.families),
            end_of_rib: self.up.as_ref().map_or(Families::NONE, |up| up.end_of_rib),
            prefixes_received: counts.received.iter().sum(),
            prefixes_accepted: counts.accepted,
            prefixes_sent: self.out.advertised(),
            last_error: self.session.last_error().map(str::to_string),
            established_count: self.session.established_count(),
            messages_received: self.messages_received,
            messages_sent: self.messages_sent,
            connection: self.up.as_ref().map(|up| up.connection),
        }
    }
}
