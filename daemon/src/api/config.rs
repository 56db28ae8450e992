//! `[api]`: from the file's words to a configuration that cannot be wrong.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use crate::config::Checker;

const DEFAULT_SOCKET: &str = "/run/isthmus/isthmusd.sock";

/// A validated `[api]` section; the API is served also where the section is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Unix socket that isthmusctl dials.
    pub socket: PathBuf,
    /// False: the section is absent, so a socket that cannot be made is no reason to stop.
    pub required: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    socket: Option<Spanned<PathBuf>>,
}

impl RawConfig {
    pub(crate) fn check(self, c: &mut Checker<'_>) -> Config {
        let required = self.socket.is_some();
        Config { socket: self.socket.map_or(DEFAULT_SOCKET.into(), |socket| c.socket(&socket)), required }
    }
}
