//! `[workload_api]` and its entries.

use std::{ops::Range, path::PathBuf, time::Duration};

use isthmus_pki::{TrustDomain, profile::is_dns_name};
use serde::Deserialize;
use toml::Spanned;

use super::{
    kubernetes::{KubernetesConfig, RawKubernetesConfig},
    selector::{Selector, check_selector},
    serving::{RawSds, check_limits},
};
use crate::{
    config::Checker,
    identity::{Settings, sds::Names, template::Template},
};

/// A validated `[workload_api]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadApiConfig {
    /// Unix socket, default `/run/isthmus/workload.sock`.
    pub socket: PathBuf,
    /// Whom to ask about pods; `None`: no caller is in one.
    pub kubernetes: Option<KubernetesConfig>,
    /// Registration entries.
    pub entries: Vec<Entry>,
    /// How the socket is served.
    pub settings: Settings,
}

/// A validated `[[workload_api.entry]]`: who gets which identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path within the trust domain, for example `/ns/payments/sa/api`, or a template for one: `/ns/{k8s:ns}/sa/{k8s:sa}`.
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
    kubernetes: Option<Spanned<RawKubernetesConfig>>,
    #[serde(default)]
    entry: Vec<RawEntry>,
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
        let asks_kubelet = self.kubernetes.is_some();
        let kubernetes = match self.kubernetes {
            Some(raw) => {
                let span = raw.span();
                Some(raw.into_inner().check(c, span)?)
            }
            None => None,
        };
        let count = self.entry.len();
        let limits = check_limits(c, self.max_connections, self.max_per_user);
        let names = self.sds.map_or(Some(Names::default()), |raw| raw.check(c));
        let spans: Vec<_> = self.entry.iter().map(RawEntry::spans).collect();
        let entries: Vec<_> = self.entry.into_iter().filter_map(|raw| raw.check(c)).collect();
        (entries.len() == count).then_some(())?;
        let whole = check_pods(c, &entries, &spans, asks_kubelet) & check_hints(c, &entries, &spans);
        let settings = Settings { limits: limits?, names: names? };
        whole.then_some(WorkloadApiConfig { socket, kubernetes, entries, settings })
    }
}

/// Where in the file an entry's ID and hint are.
struct Spans {
    id: Range<usize>,
    hint: Range<usize>,
}

/// Selectors and templates about pods need somebody who knows them.
fn check_pods(c: &mut Checker<'_>, entries: &[Entry], spans: &[Spans], asks_kubelet: bool) -> bool {
    let is_about_pods = |entry: &Entry| {
        entry.selectors.iter().any(Selector::is_of_a_pod)
            || Template::parse(&entry.path).is_ok_and(|template| template.wants().pod)
    };
    let first = entries.iter().zip(spans).find(|(entry, _)| !asks_kubelet && is_about_pods(entry));
    if let Some((_, spans)) = first {
        let help = "add [workload_api.kubernetes] with token_file and ca_file, or remove the k8s selectors";
        c.problem(spans.id.clone(), "this entry is about pods, and nobody is named who knows them", help);
    }
    first.is_none()
}

/// Two entries with one hint must not meet in one answer. That they will is seen here if whoever matches one matches the other too.
fn check_hints(c: &mut Checker<'_>, entries: &[Entry], spans: &[Spans]) -> bool {
    let within =
        |one: &Entry, other: &Entry| one.selectors.iter().all(|selector| other.selectors.contains(selector));
    let meets = |one: &Entry, other: &Entry| {
        !one.hint.is_empty() && one.hint == other.hint && (within(one, other) || within(other, one))
    };
    let mut good = true;
    for (at, (entry, spans)) in entries.iter().zip(spans).enumerate() {
        if entries[..at].iter().any(|earlier| meets(earlier, entry)) {
            let message = format!(
                "the hint \"{}\" is another entry's, and some workload gets both",
                entry.hint.escape_debug()
            );
            c.problem(spans.hint.clone(), message, "give each identity of a workload a hint of its own");
            good = false;
        }
    }
    good
}

impl RawEntry {
    fn spans(&self) -> Spans {
        let id = self.spiffe_id.span();
        Spans { hint: self.hint.as_ref().map_or(id.clone(), Spanned::span), id }
    }

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

/// The path of a SPIFFE ID, or a template for one; the trust domain is the node's and is not written here.
fn check_path(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<String> {
    let path = raw.get_ref();
    if let Err(reason) = Template::parse(path) {
        let message = format!("\"{}\" is not the path of a SPIFFE ID: {reason}", path.escape_debug());
        let help = "write the path within the trust domain: \"/ns/payments/sa/api\", or \"/ns/{k8s:ns}/sa/{k8s:sa}\"";
        c.problem(raw.span(), message, help);
        return None;
    }
    Some(path.clone())
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
