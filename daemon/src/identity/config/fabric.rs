//! `[fabric]`, as far as identity goes: the charter, and how long leaves may live.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use toml::{Spanned, Value};

use crate::{
    config::{Checker, unsupported},
    identity::rotation,
};

/// As `node_ttl` and entries may be: no leaf of ours lives longer.
const DEFAULT_LONGEST_LEAF: Duration = Duration::from_secs(86_400);
const LONGEST_LEAF: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 86_400);

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFabricConfig {
    charter: Option<Spanned<PathBuf>>,
    longest_leaf: Option<Spanned<String>>,
    listen: Option<Spanned<Value>>,
    advertise: Option<Spanned<Value>>,
    role: Option<Spanned<Value>>,
    prefixes: Option<Spanned<Value>>,
    outbound_only: Option<Spanned<Value>>,
}

impl RawFabricConfig {
    /// Where the charter is; its signature is checked by who loads it.
    pub(crate) fn check(self, c: &mut Checker<'_>, state_dir: &Path) -> Option<rotation::Config> {
        let unserved = [
            (self.listen, "listen"),
            (self.advertise, "advertise"),
            (self.role, "role"),
            (self.prefixes, "prefixes"),
            (self.outbound_only, "outbound_only"),
        ];
        for (value, name) in unserved {
            unsupported(c, value.map(|value| value.span()), &format!("[fabric] {name}"));
        }
        let charter = match self.charter {
            Some(raw) => Some(c.readable_file(&raw, "charter")?),
            None => None,
        };
        let longest_leaf =
            self.longest_leaf.map_or(Some(DEFAULT_LONGEST_LEAF), |raw| c.duration(&raw, LONGEST_LEAF))?;
        Some(rotation::Config { charter, longest_leaf, dir: state_dir.join("identity/rotation") })
    }
}
