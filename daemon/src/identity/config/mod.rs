//! `[identity]`, `[issuer]`, `[audit]`, `[workload_api]`: from the file's words to configurations that cannot be wrong.

mod audit;
mod fabric;
mod issuer;
mod key_source;
mod paths;
mod rate;
mod selector;
mod workload;

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::rotation::Config as RotationConfig;
use crate::config::{Checker, unsupported};

pub(crate) use audit::RawAuditConfig;
pub use audit::{AuditConfig, Sync};
pub(crate) use fabric::RawFabricConfig;
pub use issuer::IssuerConfig;
pub(crate) use issuer::RawIssuerConfig;
pub use key_source::{KeySource, PassphraseSource};
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
    /// PEM file: node certificate, then its site CA.
    pub svid: PathBuf,
    /// PEM file, PKCS#8: the node certificate's key.
    pub key: PathBuf,
    /// `[fabric]`, as far as identity goes.
    pub rotation: RotationConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    trust_bundle: Spanned<PathBuf>,
    svid: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    join_token_file: Option<Spanned<PathBuf>>,
}

impl RawConfig {
    pub(crate) fn check(self, c: &mut Checker<'_>, rotation: RotationConfig) -> Option<Config> {
        unsupported(c, self.join_token_file.map(|raw| raw.span()), "join_token_file");
        let trust_bundle = c.readable_file(&self.trust_bundle, "trust bundle");
        let (Some(svid), Some(key)) = (self.svid, self.key) else {
            let help = "add svid = \"node.pem\" and key = \"node.key\", made with `isthmus-ca node sign`";
            c.problem(self.trust_bundle.span(), "[identity] needs both svid and key", help);
            return None;
        };
        let svid = c.readable_file(&svid, "SVID file");
        c.secret_file(&key, "key file")?;
        Some(Config { trust_bundle: trust_bundle?, svid: svid?, key: c.path(key.get_ref()), rotation })
    }
}
