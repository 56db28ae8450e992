//! What the speaker is told to do.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ipnet::IpNet;

use super::Multipath;

/// Which routes pass. `None` is what an external peer gets when nothing is said (RFC 8212).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Every route.
    All,
    /// No route.
    #[default]
    None,
}

/// The speaker's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Own AS number, not 0 and not AS_TRANS.
    pub asn: u32,
    /// Own BGP identifier, not 0.0.0.0 (RFC 6286).
    pub router_id: Ipv4Addr,
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
    /// TCP port to dial.
    pub port: u16,
    /// Its AS number; ours makes it an internal peer.
    pub asn: u32,
    /// Hold time offered, in seconds: 0 or at least 3.
    pub hold_time: u16,
    /// What is used of what it sends.
    pub import: Policy,
    /// What it is sent.
    pub export: Policy,
    /// Prefixes of one family after which the session is ended with Cease/1; `None`: [`PeerConfig::PREFIX_CEILING`].
    pub max_prefixes: Option<u32>,
}

impl PeerConfig {
    /// Limit for a peer without one: a peer cannot take all memory, and no fabric comes near it.
    pub const PREFIX_CEILING: u32 = 250_000;

    /// The limit in force.
    pub fn prefix_limit(&self) -> u32 {
        self.max_prefixes.unwrap_or(Self::PREFIX_CEILING)
    }
}
