//! `[bgp]`: from the file's words to a configuration that cannot be wrong.

mod address;
mod neighbor;
mod password;
mod policy;
mod preset;
mod rule;
mod template;
#[cfg(test)]
mod tests;
mod transport;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use ipnet::IpNet;
use isthmus_bgp::{Multipath, PeerConfig};
use serde::Deserialize;
use toml::Spanned;

use crate::config::Checker;
pub use address::Place;
pub use neighbor::{GracefulRestart, NeighborConfig};
use neighbor::{RawNeighbor, Section};
pub use password::Password;
use policy::{Policies, RawPolicy};
pub use preset::Preset;
pub use template::TemplateConfig;
pub use transport::{Reach, Transport};

/// A validated `[bgp]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Own autonomous system number, 1..=4294967294, not 23456.
    pub asn: u32,
    /// BGP identifier, not 0.0.0.0 (RFC 6286).
    pub router_id: Ipv4Addr,
    /// What reflectors of the same clients have in common (RFC 4456 section 7); `None`: the BGP identifier.
    pub cluster_id: Option<Ipv4Addr>,
    /// Addresses to listen on; empty: dial only.
    pub listen: Vec<SocketAddr>,
    /// How long routes that an earlier run left in the kernel are kept while sessions come back, and how long neighbors are asked to
    /// keep theirs; zero: not at all.
    pub graceful_restart: Duration,
    /// How many equal paths are used together.
    pub multipath: Multipath,
    /// Prefixes this node originates.
    pub announce: Vec<IpNet>,
    /// Configured neighbors, unique by name and by place.
    pub neighbors: Vec<NeighborConfig>,
    /// Who else may become a neighbor, unique by name among these and the neighbors, and by prefix.
    pub templates: Vec<TemplateConfig>,
}

const DEFAULT_HOLD_TIME: Duration = Duration::from_secs(9);
const DEFAULT_GRACEFUL_RESTART: Duration = Duration::from_secs(120);
/// What fits into the capability (RFC 4724 section 3): 12 bits.
const LONGEST_GRACEFUL_RESTART: Duration = Duration::from_secs(4095);
/// More paths than this side by side are no use, and Linux takes no more than 256 next hops.
const MAX_PATHS: i64 = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    asn: Spanned<i64>,
    router_id: Option<Spanned<String>>,
    cluster_id: Option<Spanned<String>>,
    listen: Option<Vec<Spanned<String>>>,
    hold_time: Option<Spanned<String>>,
    graceful_restart: Option<Spanned<String>>,
    multipath: Option<RawMultipath>,
    #[serde(default)]
    announce: Vec<Spanned<String>>,
    #[serde(default)]
    neighbor: Vec<RawNeighbor>,
    #[serde(default)]
    policy: Vec<RawPolicy>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMultipath {
    maximum: Option<Spanned<i64>>,
    relax_as_path: Option<bool>,
}

impl RawConfig {
    /// `overlay`: the node's own tunnel addresses, whose first IPv4 one serves as router ID where none is given.
    pub(crate) fn check(self, c: &mut Checker<'_>, overlay: &[IpNet]) -> Option<Config> {
        let asn = check_asn(c, &self.asn);
        let router_id = check_router_id(c, self.router_id.as_ref(), self.asn.span(), overlay);
        let cluster_id =
            self.cluster_id.map_or(Some(None), |raw| check_id(c, &raw, "a cluster ID").map(Some));
        let listen = check_listen(c, self.listen);
        let hold_time = self.hold_time.map_or(Some(DEFAULT_HOLD_TIME), |raw| check_hold_time(c, &raw));
        let graceful_restart = self.graceful_restart.map_or(Some(DEFAULT_GRACEFUL_RESTART), |raw| {
            c.duration(&raw, Duration::ZERO..=LONGEST_GRACEFUL_RESTART)
        });
        let multipath = self.multipath.map_or(Some(Multipath::default()), |raw| raw.check(c));
        let announce: Vec<_> = self.announce.iter().filter_map(|raw| c.prefix(raw)).collect();
        address::check_unique(c, &self.neighbor);
        let (templates, neighbors): (Vec<_>, Vec<_>) =
            self.neighbor.into_iter().partition(|neighbor| neighbor.prefix.is_some());
        let names = neighbors.iter().map(|neighbor| neighbor.name.get_ref().clone()).collect();
        let policies = Policies::check(c, self.policy, &names);
        let (asn, hold_time, graceful_restart) = (asn?, hold_time?, graceful_restart?);
        let announced = announce.len();
        let section = Section { asn, hold_time, graceful_restart, announced, policies: &policies };
        let count = (self.announce.len(), neighbors.len(), templates.len());
        let neighbors: Vec<_> = neighbors.into_iter().filter_map(|raw| raw.check(c, &section)).collect();
        let templates: Vec<_> =
            templates.into_iter().filter_map(|raw| raw.check_template(c, &section)).collect();
        ((announce.len(), neighbors.len(), templates.len()) == count).then_some(())?;
        policies.warn_unused(c);
        template::check_names(c, self.asn.span(), &neighbors, &templates)?;
        password::check_shared(c, self.asn.span(), &neighbors, &templates)?;
        let (router_id, cluster_id, listen, multipath) = (router_id?, cluster_id?, listen?, multipath?);
        Some(Config {
            asn,
            router_id,
            cluster_id,
            listen,
            graceful_restart,
            multipath,
            announce,
            neighbors,
            templates,
        })
    }
}

impl RawMultipath {
    fn check(self, c: &mut Checker<'_>) -> Option<Multipath> {
        let default = Multipath::default();
        let maximum = self.maximum.map_or(Some(default.maximum), |raw| {
            let maximum = usize::try_from(*raw.get_ref()).ok();
            let possible = (1..=MAX_PATHS).contains(raw.get_ref());
            let help = format!("write 1, for one path only, to {MAX_PATHS}");
            c.require(possible, &raw, "this is no number of paths", &help).then_some(maximum)?
        });
        let relax_as_path = self.relax_as_path.unwrap_or(default.relax_as_path);
        Some(Multipath { maximum: maximum?, relax_as_path })
    }
}

fn check_asn(c: &mut Checker<'_>, raw: &Spanned<i64>) -> Option<u32> {
    let asn = u32::try_from(*raw.get_ref())
        .ok()
        .filter(|asn| ![0, isthmus_bgp::AS_TRANS, 65535, u32::MAX].contains(asn));
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
    check_id(c, raw, "a router ID")
}

fn check_id(c: &mut Checker<'_>, raw: &Spanned<String>, what: &str) -> Option<Ipv4Addr> {
    let id = raw.get_ref().parse::<Ipv4Addr>().ok().filter(|id| !id.is_unspecified());
    let help = "write an IPv4 address other than 0.0.0.0: \"10.99.0.1\"";
    c.require(id.is_some(), raw, &format!("this is not {what}"), help).then_some(id)?
}

fn check_listen(c: &mut Checker<'_>, raw: Option<Vec<Spanned<String>>>) -> Option<Vec<SocketAddr>> {
    let Some(raw) = raw else { return Some(vec![(Ipv6Addr::UNSPECIFIED, PeerConfig::PORT).into()]) };
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
