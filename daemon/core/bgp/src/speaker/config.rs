//! What the speaker is told to do.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ipnet::IpNet;

use super::Multipath;
pub use crate::rib::{Guards, NextHopMode};
use crate::{Families, fsm::Offer, policy::Policy};

/// The speaker's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Own AS number, not 0 and not AS_TRANS.
    pub asn: u32,
    /// Own BGP identifier, not 0.0.0.0 (RFC 6286).
    pub router_id: Ipv4Addr,
    /// What the clients of this route reflector have in common; the same on reflectors that share their clients (RFC 4456 section 7).
    /// `None`: the BGP identifier.
    pub cluster_id: Option<Ipv4Addr>,
    /// Prefixes that start here.
    pub announce: Vec<IpNet>,
    /// How many equal paths are used together.
    pub multipath: Multipath,
    /// Unique by name and by address.
    pub peers: Vec<PeerConfig>,
}

/// One peer's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Unique name.
    pub name: Arc<str>,
    /// Its end of the session.
    pub address: IpAddr,
    /// Index of the interface that a link-local address belongs to; `None` for every other address.
    pub scope: Option<u32>,
    /// TCP port to dial.
    pub port: u16,
    /// Its AS number; ours makes it an internal peer.
    pub asn: u32,
    /// Hold time offered, in seconds: 0 or at least 3.
    pub hold_time: u16,
    /// It connects to us, we never dial.
    pub passive: bool,
    /// There is to be no session, and this is what the peer is told about it (RFC 9003), at most 255 octets, perhaps none.
    pub shutdown: Option<Arc<str>>,
    /// Families offered.
    pub families: Families,
    /// Capabilities offered, the role among them.
    pub offer: Offer,
    /// What is used of what it sends.
    pub import: Arc<Policy>,
    /// What it is sent.
    pub export: Arc<Policy>,
    /// What it is allowed to send.
    pub guards: Guards,
    /// Prefixes of one family after which it is sent no more; `None`: no limit.
    pub max_prefixes_out: Option<u32>,
    /// We reflect its routes to other internal peers, and theirs to it (RFC 4456). For internal peers only.
    pub route_reflector_client: bool,
    /// Which next hop it is sent, where the export policy does not say.
    pub next_hop: NextHopMode,
    /// Private AS numbers are taken off the paths that it is sent (RFC 6996). For external peers only.
    pub remove_private_as: bool,
    /// Which paths it is sent where several were agreed on (RFC 7911).
    pub add_path: AddPathSelection,
}

/// Which of several paths a peer is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AddPathSelection {
    /// Every one that may be used.
    #[default]
    All,
    /// The best, and at most this many others.
    Best(u8),
}

impl Config {
    /// A speaker without prefixes and peers.
    pub fn new(asn: u32, router_id: Ipv4Addr) -> Self {
        let multipath = Multipath::default();
        Self { asn, router_id, cluster_id: None, announce: Vec::new(), multipath, peers: Vec::new() }
    }

    /// The cluster identifier in force.
    pub fn cluster_id(&self) -> Ipv4Addr {
        self.cluster_id.unwrap_or(self.router_id)
    }
}

impl PeerConfig {
    /// Limit for a peer without one: a peer cannot take all memory, and no fabric comes near it.
    pub const PREFIX_CEILING: u32 = 250_000;
    /// The port of BGP.
    pub const PORT: u16 = 179;
    /// Hold time in seconds for peers over a tunnel; cloud gateways want 30 or more.
    pub const HOLD_TIME: u16 = 9;

    /// A peer with cautious settings: no route passes in either direction before there are policies (RFC 8212).
    pub fn new(name: impl Into<Arc<str>>, address: IpAddr, asn: u32) -> Self {
        Self {
            name: name.into(),
            address,
            scope: None,
            port: Self::PORT,
            asn,
            hold_time: Self::HOLD_TIME,
            passive: false,
            shutdown: None,
            families: Families::ALL,
            offer: Offer::default(),
            import: Policy::none(),
            export: Policy::none(),
            guards: Guards::default(),
            max_prefixes_out: None,
            route_reflector_client: false,
            next_hop: NextHopMode::default(),
            remove_private_as: false,
            add_path: AddPathSelection::default(),
        }
    }

    /// The limit in force.
    pub fn prefix_limit(&self) -> u32 {
        self.guards.max_prefixes.unwrap_or(Self::PREFIX_CEILING)
    }
}
