//! `[workload_api]` and its entries.

use std::{path::PathBuf, time::Duration};

use isthmus_pki::{TrustDomain, id::SpiffeId, profile::is_dns_name};
use serde::Deserialize;
use toml::Spanned;

use super::selector::{Selector, check_selector};
use crate::{
    config::Checker,
    identity::{Limits, Settings, sds::Names},
};

/// A validated `[workload_api]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadApiConfig {
    /// Unix socket, default `/run/isthmus/workload.sock`.
    pub socket: PathBuf,
    /// Registration entries.
    pub entries: Vec<Entry>,
    /// How the socket is served.
    pub settings: Settings,
}

/// A validated `[[workload_api.entry]]`: who gets which identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path within the trust domain, for example `/ns/payments/sa/api`.
    pub path: String,
    /// All of them must hold.
    pub selectors: Vec<Selector>,
    /// Lifetime of an SVID, 1 min..=24 h.
    pub ttl: Duration,
    /// Lifetime of a JWT-SVID, 30 s..=1 h.
    pub jwt_ttl: Duration,
    /// DNS names put beside the SPIFFE ID.
    pub dns_names: Vec<String>,
    /// Tells the identities of one workload apart; empty: none.
    pub hint: String,
    /// Trust domains whose bundles it gets beside its own.
    pub federates_with: Vec<TrustDomain>,
}

const DEFAULT_SOCKET: &str = "/run/isthmus/workload.sock";
/// Each takes two descriptors, and a process has a million at most.
const MAX_CONNECTIONS: usize = 400_000;
const DEFAULT_TTL: Duration = Duration::from_secs(3600);
const DEFAULT_JWT_TTL: Duration = Duration::from_secs(300);
const JWT_TTL_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_secs(30)..=Duration::from_secs(3600);
/// Workload API section 5.2.1: a hint has at most 1024 bytes.
const MAX_HINT: usize = 1024;
const TTL_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(86_400);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawWorkloadApiConfig {
    socket: Option<Spanned<PathBuf>>,
    max_connections: Option<Spanned<usize>>,
    max_per_user: Option<Spanned<usize>>,
    sds: Option<RawSds>,
    #[serde(default)]
    entry: Vec<RawEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSds {
    default_svid_name: Option<Spanned<String>>,
    default_bundle_name: Option<Spanned<String>>,
    default_all_bundles_name: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    spiffe_id: Spanned<String>,
    selectors: Spanned<Vec<Spanned<String>>>,
    ttl: Option<Spanned<String>>,
    jwt_ttl: Option<Spanned<String>>,
    #[serde(default)]
    dns_names: Vec<Spanned<String>>,
    hint: Option<Spanned<String>>,
    #[serde(default)]
    federates_with: Vec<Spanned<String>>,
}

impl RawWorkloadApiConfig {
    pub(crate) fn check(self, c: &mut Checker<'_>) -> Option<WorkloadApiConfig> {
        let socket = self.socket.map_or(DEFAULT_SOCKET.into(), |socket| c.socket(&socket));
        let count = self.entry.len();
        let limits = check_limits(c, self.max_connections, self.max_per_user);
        let names = self.sds.map_or(Some(Names::default()), |raw| raw.check(c));
        let entries: Vec<_> = self.entry.into_iter().filter_map(|raw| raw.check(c)).collect();
        let settings = Settings { limits: limits?, names: names? };
        (entries.len() == count).then_some(WorkloadApiConfig { socket, entries, settings })
    }
}

fn check_limits(
    c: &mut Checker<'_>,
    connections: Option<Spanned<usize>>,
    per_user: Option<Spanned<usize>>,
) -> Option<Limits> {
    let default = Limits::default();
    let mut bound = |raw: Option<Spanned<usize>>, default: usize| match raw {
        None => Some(default),
        Some(raw) => {
            let message = format!("{} connections are not between 1 and {MAX_CONNECTIONS}", raw.get_ref());
            let good = (1..=MAX_CONNECTIONS).contains(raw.get_ref());
            c.require(good, &raw, &message, "leave the key out for a limit that serves 10,000 workloads")
                .then(|| *raw.get_ref())
        }
    };
    let connections = bound(connections, default.connections);
    let per_user = bound(per_user, default.per_user);
    Some(Limits { connections: connections?, per_user: per_user? })
}

impl RawSds {
    fn check(self, c: &mut Checker<'_>) -> Option<Names> {
        let default = Names::default();
        let mut seen: Vec<String> = Vec::new();
        let mut name = |raw: Option<Spanned<String>>, default: String| {
            let Some(raw) = raw else {
                seen.push(default.clone());
                return Some(default);
            };
            let text = raw.get_ref().clone();
            let message = format!("\"{}\" is no name for a secret", text.escape_debug());
            let help = "use 1 to 256 characters, and another name than the others have";
            let good = (1..=256).contains(&text.chars().count()) && !seen.contains(&text);
            seen.push(text.clone());
            c.require(good, &raw, &message, help).then_some(text)
        };
        let default_svid = name(self.default_svid_name, default.default_svid);
        let default_bundle = name(self.default_bundle_name, default.default_bundle);
        let all_bundles = name(self.default_all_bundles_name, default.all_bundles);
        Some(Names {
            default_svid: default_svid?,
            default_bundle: default_bundle?,
            all_bundles: all_bundles?,
        })
    }
}

impl RawEntry {
    fn check(self, c: &mut Checker<'_>) -> Option<Entry> {
        let path = check_path(c, &self.spiffe_id);
        let any = !self.selectors.get_ref().is_empty();
        c.require(
            any,
            &self.selectors,
            "an entry without selectors would match everyone",
            "add one: \"unix:uid:1000\"",
        );
        let selectors: Vec<_> =
            self.selectors.get_ref().iter().filter_map(|raw| check_selector(c, raw)).collect();
        let ttl = self.ttl.map_or(Some(DEFAULT_TTL), |raw| c.duration(&raw, TTL_RANGE));
        let dns_names: Vec<_> = self.dns_names.iter().filter_map(|raw| check_dns_name(c, raw)).collect();
        let jwt_ttl = self.jwt_ttl.map_or(Some(DEFAULT_JWT_TTL), |raw| c.duration(&raw, JWT_TTL_RANGE));
        let hint = self.hint.map_or(Some(String::new()), |raw| check_hint(c, raw));
        let domains = self.federates_with.iter();
        let federates_with: Vec<_> = domains.filter_map(|raw| check_trust_domain(c, raw)).collect();
        let whole = any
            && selectors.len() == self.selectors.get_ref().len()
            && dns_names.len() == self.dns_names.len()
            && federates_with.len() == self.federates_with.len();
        whole.then_some(())?;
        let (path, ttl, jwt_ttl, hint) = (path?, ttl?, jwt_ttl?, hint?);
        Some(Entry { path, selectors, ttl, jwt_ttl, dns_names, hint, federates_with })
    }
}

/// The path of a SPIFFE ID; the trust domain is the node's and is not written here.
fn check_path(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<String> {
    let path = raw.get_ref();
    let id = SpiffeId::parse(&format!("spiffe://trust-domain{path}"));
    let reason = match &id {
        Ok(id) if id.node().is_some() => "it is a node's own, and nodes are no workloads".to_owned(),
        Ok(id) if path.starts_with('/') && !id.is_trust_domain() => return Some(path.clone()),
        Ok(_) => "it does not begin with a slash".to_owned(),
        Err(error) => error.to_string(),
    };
    let message = format!("\"{}\" is not the path of a SPIFFE ID: {reason}", path.escape_debug());
    c.problem(raw.span(), message, "write the path within the trust domain: \"/ns/payments/sa/api\"");
    None
}

fn check_dns_name(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<String> {
    let name = raw.get_ref();
    let message = format!("\"{}\" is not a DNS name", name.escape_debug());
    let help = "write it without a dot at the end: \"api.payments.example\"";
    c.require(is_dns_name(name), raw, &message, help).then(|| name.clone())
}

fn check_hint(c: &mut Checker<'_>, raw: Spanned<String>) -> Option<String> {
    let good = (1..=MAX_HINT).contains(&raw.get_ref().len());
    let message = format!("a hint has 1 to {MAX_HINT} bytes, this one has {}", raw.get_ref().len());
    c.require(good, &raw, &message, "write a short name for this identity, or leave the key out")
        .then(|| raw.into_inner())
}

/// The bare name of a trust domain.
fn check_trust_domain(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<TrustDomain> {
    match TrustDomain::parse(raw.get_ref()) {
        Ok(domain) => Some(domain),
        Err(reason) => {
            let message = format!("\"{}\" is not a trust domain: {reason}", raw.get_ref().escape_debug());
            c.problem(raw.span(), message, "write the bare name: \"partner.example\"");
            None
        }
    }
}
