//! `[bgp]`: from the file's words to a configuration that cannot be wrong.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use crate::config::{Bfd, Checker, RawBfd, check_name, unsupported};

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
    /// Watches the path: when it fails the session ends with Cease/10 (RFC 9384).
    pub bfd: Option<Bfd>,
}

/// Built-in policies. eBGP without a policy is `None` (RFC 8212).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every route.
    All,
    /// No route.
    None,
}

const PORT: u16 = 179;
const DEFAULT_HOLD_TIME: Duration = Duration::from_secs(9);
const DEFAULT_GRACEFUL_RESTART: Duration = Duration::from_secs(120);
/// AS_TRANS stands for "a number that does not fit", so nobody may own it (RFC 6793 section 9).
const AS_TRANS: u32 = 23456;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    asn: Spanned<i64>,
    router_id: Option<Spanned<String>>,
    listen: Option<Vec<Spanned<String>>>,
    hold_time: Option<Spanned<String>>,
    graceful_restart: Option<Spanned<String>>,
    #[serde(default)]
    announce: Vec<Spanned<String>>,
    #[serde(default)]
    neighbor: Vec<RawNeighbor>,
    policy: Option<Vec<Spanned<toml::Table>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNeighbor {
    name: Spanned<String>,
    address: Spanned<String>,
    port: Option<u16>,
    asn: Spanned<i64>,
    import: Option<Spanned<String>>,
    export: Option<Spanned<String>>,
    hold_time: Option<Spanned<String>>,
    max_prefixes: Option<Spanned<u32>>,
    bfd: Option<RawBfd>,
}

impl RawConfig {
    /// `overlay`: the node's own tunnel addresses, whose first IPv4 one serves as router ID where none is given.
    pub(crate) fn check(self, c: &mut Checker<'_>, overlay: &[IpNet]) -> Option<Config> {
        for policy in self.policy.iter().flatten() {
            unsupported(c, Some(policy.span()), "[[bgp.policy]]");
        }
        let asn = check_asn(c, &self.asn);
        let router_id = check_router_id(c, self.router_id.as_ref(), self.asn.span(), overlay);
        let listen = check_listen(c, self.listen);
        let hold_time = self.hold_time.map_or(Some(DEFAULT_HOLD_TIME), |raw| check_hold_time(c, &raw));
        let day = Duration::ZERO..=Duration::from_secs(86_400);
        let graceful_restart =
            self.graceful_restart.map_or(Some(DEFAULT_GRACEFUL_RESTART), |raw| c.duration(&raw, day));
        let announce: Vec<_> = self.announce.iter().filter_map(|raw| c.prefix(raw)).collect();
        check_unique(c, &self.neighbor);
        let (asn, hold_time) = (asn?, hold_time?);
        let count = (self.announce.len(), self.neighbor.len());
        let neighbors: Vec<_> =
            self.neighbor.into_iter().filter_map(|raw| raw.check(c, asn, hold_time)).collect();
        ((announce.len(), neighbors.len()) == count).then_some(())?;
        let graceful_restart = graceful_restart?;
        Some(Config { asn, router_id: router_id?, listen: listen?, graceful_restart, announce, neighbors })
    }
}

fn check_asn(c: &mut Checker<'_>, raw: &Spanned<i64>) -> Option<u32> {
    let asn = u32::try_from(*raw.get_ref()).ok().filter(|asn| ![0, AS_TRANS, 65535, u32::MAX].contains(asn));
    if asn.is_none() {
        let help = "use your own number, or a private one: 64512 to 65534, 4200000000 to 4294967294";
        c.problem(raw.span(), format!("{} cannot be an autonomous system's number", raw.get_ref()), help);
    }
    asn
}

fn check_router_id(
    c: &mut Checker<'_>,
    raw: Option<&Spanned<String>>,
    section: std::ops::Range<usize>,
    overlay: &[IpNet],
) -> Option<Ipv4Addr> {
    let Some(raw) = raw else {
        let first = overlay.iter().find_map(|net| match net.addr() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        if first.is_none() {
            let help = "add router_id, an IPv4 address that no other router of this AS uses";
            c.problem(
                section,
                "[bgp] has no router_id, and no IPv4 address of [tunnel] to take it from",
                help,
            );
        }
        return first;
    };
    let id = raw.get_ref().parse::<Ipv4Addr>().ok().filter(|id| !id.is_unspecified());
    if id.is_none() {
        let help = "write an IPv4 address other than 0.0.0.0: \"10.99.0.1\"";
        c.problem(raw.span(), "this is not a router ID", help);
    }
    id
}

fn check_listen(c: &mut Checker<'_>, raw: Option<Vec<Spanned<String>>>) -> Option<Vec<SocketAddr>> {
    let Some(raw) = raw else { return Some(vec![(Ipv6Addr::UNSPECIFIED, PORT).into()]) };
    let mut listen = Vec::new();
    for address in &raw {
        match address.get_ref().parse() {
            Ok(address) => listen.push(address),
            Err(_) => {
                let help = "write ADDRESS:PORT: \"[::]:179\" listens on every IPv4 and IPv6 address";
                c.problem(address.span(), "this is not an address to listen on", help);
            }
        }
    }
    (listen.len() == raw.len()).then_some(listen)
}

fn check_hold_time(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Duration> {
    let help =
        "use whole seconds from \"3s\", or \"0s\" for a session without keepalives (RFC 4271 section 4.2)";
    let hold_time = c.duration(raw, Duration::ZERO..=Duration::from_secs(65535))?;
    let whole = hold_time.subsec_nanos() == 0 && (hold_time.is_zero() || hold_time.as_secs() >= 3);
    c.require(whole, raw, "no BGP speaker takes this hold time", help).then_some(hold_time)
}

fn check_unique(c: &mut Checker<'_>, neighbors: &[RawNeighbor]) {
    let (mut names, mut addresses) = (HashSet::new(), HashMap::new());
    let canonical = |text: &str| {
        text.parse::<IpAddr>().map_or_else(|_| text.to_owned(), |a| a.to_canonical().to_string())
    };
    for neighbor in neighbors {
        let name = neighbor.name.get_ref();
        if !names.insert(name) {
            let message = format!("a second neighbor is called \"{}\"", name.escape_debug());
            c.problem(neighbor.name.span(), message, "give each neighbor its own name");
        }
        if let Some(first) = addresses.insert(canonical(neighbor.address.get_ref()), name) {
            let message = format!("neighbor \"{}\" has this address already", first.escape_debug());
            c.problem(neighbor.address.span(), message, "there is one session to an address: merge the two");
        }
    }
}

impl RawNeighbor {
    fn check(self, c: &mut Checker<'_>, own_asn: u32, hold_time: Duration) -> Option<NeighborConfig> {
        let name = check_name(c, &self.name);
        let asn = check_asn(c, &self.asn);
        let address = check_neighbor_address(c, &self.address);
        let default = if asn == Some(own_asn) { Policy::All } else { Policy::None };
        let import = self.import.map_or(Some(default), |raw| check_policy(c, &raw));
        let export = self.export.map_or(Some(default), |raw| check_policy(c, &raw));
        let hold_time = self.hold_time.map_or(Some(hold_time), |raw| check_hold_time(c, &raw));
        let bfd = self.bfd.map(|raw| raw.check(c));
        let max_prefixes = self.max_prefixes.map(|raw| {
            c.require(
                *raw.get_ref() > 0,
                &raw,
                "no prefix would be let in",
                "use 1 or more, or import = \"none\"",
            );
            raw.into_inner()
        });
        Some(NeighborConfig {
            name: name?,
            address: address?,
            port: self.port.unwrap_or(PORT),
            asn: asn?,
            import: import?,
            export: export?,
            hold_time: hold_time?,
            max_prefixes,
            bfd: bfd.map_or(Some(None), |bfd| bfd.map(Some))?,
        })
    }
}

fn check_neighbor_address(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<IpAddr> {
    let address = raw.get_ref().parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let address = address.filter(|address| !address.is_unspecified() && !address.is_multicast());
    if address.is_none() {
        c.problem(
            raw.span(),
            "this is not a neighbor's address",
            "write an IPv4 or IPv6 address without a prefix length",
        );
    }
    address
}

fn check_policy(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Policy> {
    match raw.get_ref().as_str() {
        "all" => Some(Policy::All),
        "none" => Some(Policy::None),
        other => {
            let message = format!("there is no policy called \"{}\"", other.escape_debug());
            c.problem(raw.span(), message, "built in are \"all\" and \"none\"");
            None
        }
    }
}
