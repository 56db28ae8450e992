//! `[fabric]`, as far as identity goes: the charter, how long leaves may live, and which other issuers are asked for their JWT keys.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use toml::{Spanned, Value};

use super::enroll::check_address;
use crate::{
    config::{Checker, unsupported},
    identity::rotation,
};

/// As `node_ttl` and entries may be: no leaf of ours lives longer.
const DEFAULT_LONGEST_LEAF: Duration = Duration::from_secs(86_400);
const LONGEST_LEAF: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 86_400);
/// Most issuers that are asked: each takes a connection and a task.
const MAX_PEERS: usize = 64;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFabricConfig {
    charter: Option<Spanned<PathBuf>>,
    longest_leaf: Option<Spanned<String>>,
    #[serde(default)]
    peers: Vec<Spanned<String>>,
    listen: Option<Spanned<Value>>,
    advertise: Option<Spanned<Value>>,
    role: Option<Spanned<Value>>,
    prefixes: Option<Spanned<Value>>,
    outbound_only: Option<Spanned<Value>>,
}

/// A validated `[fabric]` section, as far as identity goes.
pub(crate) struct FabricConfig {
    pub(super) rotation: rotation::Config,
    /// `HOST:PORT` each.
    pub(super) peers: Vec<String>,
}

impl RawFabricConfig {
    /// Where the charter is; its signature is checked by who loads it.
    pub(crate) fn check(self, c: &mut Checker<'_>, state_dir: &Path) -> Option<FabricConfig> {
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
        let peers = check_peers(c, &self.peers);
        let charter = match self.charter {
            Some(raw) => Some(c.readable_file(&raw, "charter")?),
            None => None,
        };
        let longest_leaf =
            self.longest_leaf.map_or(Some(DEFAULT_LONGEST_LEAF), |raw| c.duration(&raw, LONGEST_LEAF))?;
        let rotation = rotation::Config { charter, longest_leaf, dir: state_dir.join("identity/rotation") };
        Some(FabricConfig { rotation, peers: peers? })
    }
}

fn check_peers(c: &mut Checker<'_>, raw: &[Spanned<String>]) -> Option<Vec<String>> {
    if let Some(first) = raw.get(MAX_PEERS) {
        let message = format!("[fabric] peers names more than {MAX_PEERS} issuers");
        c.problem(first.span(), message, "name one or two of each site: they tell of each other's keys");
        return None;
    }
    let mut peers = Vec::new();
    for one in raw {
        let text = one.get_ref();
        let bare = text.strip_prefix("https://").map_or(text.as_str(), |rest| rest.trim_end_matches('/'));
        let address = check_address(c, one, bare)?;
        let new = !peers.contains(&address);
        let message = format!("the peer \"{address}\" is named twice");
        c.require(new, one, &message, "name each issuer once").then(|| peers.push(address))?;
    }
    Some(peers)
}
