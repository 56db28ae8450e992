//! `[identity]`, `[issuer]`, `[workload_api]`: from the file's words to configurations that cannot be wrong.

use std::{path::PathBuf, time::Duration};

use isthmus_pki::{id::SpiffeId, profile::is_dns_name};
use serde::Deserialize;
use toml::Spanned;

use crate::config::{Checker, unsupported};

/// A validated `[identity]` section. Files are loaded by [`super::Material`], so that a reload re-reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// PEM file with the root certificate(s).
    pub trust_bundle: PathBuf,
    /// PEM file: node certificate, then its site CA.
    pub svid: PathBuf,
    /// PEM file, PKCS#8: the node certificate's key.
    pub key: PathBuf,
}

/// A validated `[issuer]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerConfig {
    /// PEM file: the site CA's certificate.
    pub certificate: PathBuf,
    /// PEM file, PKCS#8: the site CA's key.
    pub key: PathBuf,
}

/// A validated `[workload_api]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadApiConfig {
    /// Unix socket, default `/run/isthmus/workload.sock`.
    pub socket: PathBuf,
    /// Registration entries.
    pub entries: Vec<Entry>,
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
    /// DNS names put beside the SPIFFE ID.
    pub dns_names: Vec<String>,
}

/// What can be known of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `unix:uid:N`
    Uid(u32),
    /// `unix:gid:N`
    Gid(u32),
}

const DEFAULT_SOCKET: &str = "/run/isthmus/workload.sock";
const DEFAULT_TTL: Duration = Duration::from_secs(3600);
const TTL_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(86_400);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    trust_bundle: Spanned<PathBuf>,
    svid: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    join_token_file: Option<Spanned<PathBuf>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawIssuerConfig {
    certificate: Spanned<PathBuf>,
    key: Spanned<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawWorkloadApiConfig {
    socket: Option<Spanned<PathBuf>>,
    #[serde(default)]
    entry: Vec<RawEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    spiffe_id: Spanned<String>,
    selectors: Spanned<Vec<Spanned<String>>>,
    ttl: Option<Spanned<String>>,
    #[serde(default)]
    dns_names: Vec<Spanned<String>>,
}

impl RawConfig {
    pub(crate) fn check(self, c: &mut Checker<'_>) -> Option<Config> {
        unsupported(c, self.join_token_file.map(|raw| raw.span()), "join_token_file");
        let trust_bundle = c.readable_file(&self.trust_bundle, "trust bundle");
        let (Some(svid), Some(key)) = (self.svid, self.key) else {
            let help = "add svid = \"node.pem\" and key = \"node.key\", made with `isthmus-ca node sign`";
            c.problem(self.trust_bundle.span(), "[identity] needs both svid and key", help);
            return None;
        };
        let svid = c.readable_file(&svid, "SVID file");
        c.secret_file(&key, "key file")?;
        Some(Config { trust_bundle: trust_bundle?, svid: svid?, key: c.path(key.get_ref()) })
    }
}

impl RawIssuerConfig {
    pub(crate) fn check(self, c: &mut Checker<'_>) -> Option<IssuerConfig> {
        let certificate = c.readable_file(&self.certificate, "site CA certificate");
        c.secret_file(&self.key, "site CA key")?;
        Some(IssuerConfig { certificate: certificate?, key: c.path(self.key.get_ref()) })
    }
}

impl RawWorkloadApiConfig {
    pub(crate) fn check(self, c: &mut Checker<'_>) -> Option<WorkloadApiConfig> {
        let socket = self.socket.map_or(DEFAULT_SOCKET.into(), |socket| c.socket(&socket));
        let count = self.entry.len();
        let entries: Vec<_> = self.entry.into_iter().filter_map(|raw| raw.check(c)).collect();
        (entries.len() == count).then_some(WorkloadApiConfig { socket, entries })
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
        let whole = any
            && selectors.len() == self.selectors.get_ref().len()
            && dns_names.len() == self.dns_names.len();
        whole.then_some(())?;
        Some(Entry { path: path?, selectors, ttl: ttl?, dns_names })
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

fn check_selector(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Selector> {
    let number = |text: &str| text.parse::<u32>().ok();
    let selector = match raw.get_ref().split(':').collect::<Vec<_>>()[..] {
        ["unix", "uid", id] => number(id).map(Selector::Uid),
        ["unix", "gid", id] => number(id).map(Selector::Gid),
        _ => None,
    };
    if selector.is_none() {
        let message = format!("\"{}\" is not a selector", raw.get_ref().escape_debug());
        c.problem(raw.span(), message, "use \"unix:uid:NUMBER\" or \"unix:gid:NUMBER\"");
    }
    selector
}

fn check_dns_name(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<String> {
    let name = raw.get_ref();
    let message = format!("\"{}\" is not a DNS name", name.escape_debug());
    let help = "write it without a dot at the end: \"api.payments.example\"";
    c.require(is_dns_name(name), raw, &message, help).then(|| name.clone())
}
