//! How the Workload API's socket is served: bounds on connections, and what Envoy calls its secrets.

use serde::Deserialize;
use toml::Spanned;

use crate::{
    config::Checker,
    identity::{Limits, sds::Names},
};

/// Each takes two descriptors, and a process has a million at most.
const MAX_CONNECTIONS: usize = 400_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSds {
    default_svid_name: Option<Spanned<String>>,
    default_bundle_name: Option<Spanned<String>>,
    default_all_bundles_name: Option<Spanned<String>>,
}

pub(super) fn check_limits(
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
    pub(super) fn check(self, c: &mut Checker<'_>) -> Option<Names> {
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
