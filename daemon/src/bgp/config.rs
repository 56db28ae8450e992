//! `[bgp]`: from the file's words to a configuration that cannot be wrong.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use ipnet::IpNet;

/// A validated `[bgp]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Own autonomous system number, 1..=4294967294, not 23456.
    pub asn: u32,
    /// BGP identifier, not 0.0.0.0 (RFC 6286).
    pub router_id: Ipv4Addr,
    /// Addresses to listen on; empty: dial only.
    pub listen: Vec<SocketAddr>,
    /// How long routes that an earlier run left in the kernel are kept while sessions come back.
    pub graceful_restart: Duration,
    /// Prefixes this node originates.
    pub announce: Vec<IpNet>,
    /// Configured neighbors, unique by name and by address.
    pub neighbors: Vec<NeighborConfig>,
}

/// A validated `[[bgp.neighbor]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighborConfig {
    /// Unique name.
    pub name: String,
    /// Address of the neighbor's end of the session.
    pub address: IpAddr,
    /// TCP port to dial, default 179.
    pub port: u16,
    /// The neighbor's autonomous system number; equal to ours: iBGP.
    pub asn: u32,
    /// What is accepted from it.
    pub import: Policy,
    /// What is announced to it.
    pub export: Policy,
    /// Hold time offered, 3 s..=65535 s, or zero for none (RFC 4271 section 4.2).
    pub hold_time: Duration,
    /// Session is closed with Cease/1 when the neighbor announces more prefixes than this (RFC 4486).
    pub max_prefixes: Option<u32>,
}

/// Built-in policies. eBGP without a policy is `None` (RFC 8212).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every route.
    All,
    /// No route.
    None,
}
