//! `[issuer]`: the site CA, where its key is, what it issues and how fast.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::Spanned;

use super::{
    audit::AuditConfig,
    enroll::{NodeRules, RawNodeRules},
    key_source::{KeySource, RawKeySource},
    paths::{Paths, check_paths},
    rate::{Rate, check_rate},
};
use crate::config::Checker;

/// A validated `[issuer]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerConfig {
    /// PEM file: the site CA's certificate.
    pub certificate: PathBuf,
    /// Where the site CA's key is.
    pub key: KeySource,
    /// Which IDs it issues to workloads.
    pub paths: Paths,
    /// Most that it issues to all; `None`: no limit.
    pub rate: Option<Rate>,
    /// Most that it issues to one requester; `None`: no limit.
    pub requester_rate: Option<Rate>,
    /// Where the keys that sign tokens are kept.
    pub state_dir: PathBuf,
    /// Where it says what it did.
    pub audit: AuditConfig,
    /// Where other nodes of the site ask; `None`: this issuer serves its own node alone.
    pub listen: Option<SocketAddr>,
    /// What they may ask for.
    pub nodes: NodeRules,
}

impl IssuerConfig {
    /// A site CA in two PEM files, and everything else as it is by default.
    pub fn new(certificate: PathBuf, key: PathBuf, state_dir: &Path) -> Self {
        Self {
            certificate,
            key: KeySource::file(key),
            paths: Paths::default(),
            rate: Some(DEFAULT_RATE),
            requester_rate: Some(DEFAULT_REQUESTER_RATE),
            state_dir: state_dir.to_owned(),
            audit: AuditConfig::new(state_dir),
            listen: None,
            nodes: NodeRules::default(),
        }
    }
}

const DEFAULT_RATE: Rate = Rate::per_second(5000);
const DEFAULT_REQUESTER_RATE: Rate = Rate::per_second(500);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawIssuerConfig {
    certificate: Spanned<PathBuf>,
    key: Option<Spanned<String>>,
    key_passphrase_file: Option<Spanned<PathBuf>>,
    key_credential: Option<Spanned<String>>,
    pin_file: Option<Spanned<PathBuf>>,
    module: Option<Spanned<PathBuf>>,
    paths: Option<Spanned<Vec<Spanned<String>>>>,
    rate: Option<Spanned<String>>,
    requester_rate: Option<Spanned<String>>,
    listen: Option<Spanned<String>>,
    node_ttl: Option<Spanned<String>>,
    #[serde(default)]
    node_paths: Vec<Spanned<String>>,
    #[serde(default)]
    node_dns_names: Vec<Spanned<String>>,
    #[serde(default)]
    banned_nodes: Vec<Spanned<String>>,
}

impl RawIssuerConfig {
    pub(crate) fn check(
        self,
        c: &mut Checker<'_>,
        state_dir: &Path,
        audit: Option<AuditConfig>,
    ) -> Option<IssuerConfig> {
        let certificate = c.readable_file(&self.certificate, "site CA certificate");
        let source = RawKeySource {
            key: self.key,
            passphrase_file: self.key_passphrase_file,
            credential: self.key_credential,
            pin_file: self.pin_file,
            module: self.module,
        };
        let key = source.check(c, self.certificate.span());
        let paths = check_paths(c, self.paths);
        let rate = check_rate(c, self.rate, DEFAULT_RATE);
        let requester_rate = check_rate(c, self.requester_rate, DEFAULT_REQUESTER_RATE);
        let nodes = RawNodeRules {
            listen: self.listen,
            node_ttl: self.node_ttl,
            node_paths: self.node_paths,
            node_dns_names: self.node_dns_names,
            banned_nodes: self.banned_nodes,
        };
        let (listen, nodes) = nodes.check(c)?;
        Some(IssuerConfig {
            certificate: certificate?,
            key: key?,
            paths: paths?,
            rate: rate?,
            requester_rate: requester_rate?,
            state_dir: state_dir.to_owned(),
            audit: audit.unwrap_or_else(|| AuditConfig::new(state_dir)),
            listen,
            nodes,
        })
    }
}
