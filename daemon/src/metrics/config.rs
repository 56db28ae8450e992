//! `[metrics]`: from the file's words to a configuration that cannot be wrong.

use std::net::SocketAddr;

use serde::Deserialize;
use toml::Spanned;

use crate::config::Checker;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9587);

/// A validated `[metrics]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address of `/metrics`, `/healthz` and `/readyz`.
    pub listen: SocketAddr,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    listen: Option<Spanned<String>>,
}

impl RawConfig {
    pub(crate) fn check(self, c: &mut Checker<'_>) -> Option<Config> {
        let Some(raw) = self.listen else { return Some(Config { listen: DEFAULT_LISTEN }) };
        let listen = raw.get_ref().parse().ok();
        if listen.is_none() {
            c.problem(
                raw.span(),
                "this is not an address to listen on",
                "write ADDRESS:PORT: \"127.0.0.1:9587\"",
            );
        }
        listen.map(|listen| Config { listen })
    }
}
