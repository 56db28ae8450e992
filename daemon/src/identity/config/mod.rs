//! `[identity]`, `[issuer]`, `[audit]`, `[workload_api]`: from the file's words to configurations that cannot be wrong.

mod audit;
mod enroll;
mod fabric;
mod issuer;
mod key_source;
mod kubernetes;
mod paths;
mod rate;
mod selector;
mod serving;
mod workload;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::rotation::Config as RotationConfig;
use crate::config::Checker;

pub(crate) use audit::RawAuditConfig;
pub use audit::{AuditConfig, Sync};
pub use enroll::NodeRules;
use enroll::check_issuer;
use fabric::FabricConfig;
pub(crate) use fabric::RawFabricConfig;
pub use issuer::IssuerConfig;
pub(crate) use issuer::RawIssuerConfig;
pub use key_source::{KeySource, PassphraseSource};
pub use kubernetes::{KubeletTrust, KubernetesConfig};
pub use paths::{Paths, Pattern};
pub use rate::Rate;
pub use selector::Selector;
pub(crate) use workload::RawWorkloadApiConfig;
pub use workload::{Entry, WorkloadApiConfig};

/// A validated `[identity]` section. Files are loaded by [`super::Material`], so that a reload re-reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// PEM file with the root certificate(s).
    pub trust_bundle: PathBuf,
    /// The SVID that the ceremony signed, if there is one.
    pub files: Option<SvidFiles>,
    /// A join token, to get the first SVID with. It need not be there once that was done.
    pub join_token_file: Option<PathBuf>,
    /// Who renews the SVID: `HOST:PORT` of nodes with the site's CA.
    pub issuers: Vec<String>,
    /// Where renewed SVIDs and join tokens are kept.
    pub state_dir: PathBuf,
    /// `[fabric]`: the charter, and how long leaves may live.
    pub rotation: RotationConfig,
    /// `[fabric]`: `HOST:PORT` of issuers, of any site, that are asked for JWT keys.
    pub peers: Vec<String>,
}

/// Where the ceremony's SVID is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SvidFiles {
    /// PEM file: node certificate, then its site CA.
    pub svid: PathBuf,
    /// PEM file, PKCS#8: the node certificate's key.
    pub key: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    trust_bundle: Spanned<PathBuf>,
    svid: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    join_token_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    issuers: Vec<Spanned<String>>,
}

impl RawConfig {
    /// Can the SVIDs of workloads come from other nodes?
    pub(crate) fn has_issuers(&self) -> bool {
        !self.issuers.is_empty()
    }

    /// `is_issuer`: this node holds the site's CA.
    pub(crate) fn check(
        self,
        c: &mut Checker<'_>,
        state_dir: &Path,
        is_issuer: bool,
        fabric: FabricConfig,
    ) -> Option<Config> {
        let trust_bundle = c.readable_file(&self.trust_bundle, "trust bundle");
        let issuers: Vec<_> = self.issuers.iter().filter_map(|raw| check_issuer(c, raw)).collect();
        let whole = issuers.len() == self.issuers.len();
        let join_token_file = match self.join_token_file {
            Some(raw) => Some(check_token_file(c, &raw, !self.issuers.is_empty())?),
            None => None,
        };
        let files = match (self.svid, self.key) {
            (Some(svid), Some(key)) => Some(check_files(c, &svid, &key)?),
            (None, None) if join_token_file.is_some() || is_issuer => None,
            (None, None) => {
                let help = "add svid = \"node.pem\" and key = \"node.key\", made with `isthmus-ca node sign`, or join_token_file and issuers";
                c.problem(
                    self.trust_bundle.span(),
                    "[identity] does not say where this node's SVID comes from",
                    help,
                );
                return None;
            }
            _ => {
                let help = "add svid = \"node.pem\" and key = \"node.key\", made with `isthmus-ca node sign`";
                c.problem(self.trust_bundle.span(), "[identity] needs both svid and key, or neither", help);
                return None;
            }
        };
        let config = Config {
            trust_bundle: trust_bundle?,
            files,
            join_token_file,
            issuers,
            state_dir: state_dir.into(),
            rotation: fabric.rotation,
            peers: fabric.peers,
        };
        whole.then_some(config)
    }
}

/// The file goes once it was used, so it may be missing; while it is there nobody else may read it.
fn check_token_file(c: &mut Checker<'_>, raw: &Spanned<PathBuf>, has_issuers: bool) -> Option<PathBuf> {
    let path = c.path(raw.get_ref());
    let help = "add issuers = [\"192.0.2.1:51820\"], where a node with the site's CA listens";
    let asked = c.require(has_issuers, raw, "join_token_file is for issuers, and none is named", help);
    let readable = !path.exists() || c.secret_file(raw, "join token file").is_some();
    (asked && readable).then_some(path)
}

fn check_files(c: &mut Checker<'_>, svid: &Spanned<PathBuf>, key: &Spanned<PathBuf>) -> Option<SvidFiles> {
    let path = c.readable_file(svid, "SVID file");
    c.secret_file(key, "key file")?;
    Some(SvidFiles { svid: path?, key: c.path(key.get_ref()) })
}
