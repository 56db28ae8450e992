//! What `[issuer]` allows the nodes of its site.

use std::{net::SocketAddr, time::Duration};

use isthmus_pki::{SpiffeId, id::is_name, profile::is_dns_name};
use toml::Spanned;

use super::paths::{Pattern, check_pattern};
use crate::config::Checker;

/// How long a node's SVID lives by default: it is renewed after at most 8 hours, so every issuer may be dead for 16.
const DEFAULT_NODE_TTL: Duration = Duration::from_secs(24 * 3600);
const NODE_TTL_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(7 * 24 * 3600);

/// The rules of an issuer for the nodes of its site. The default lets them renew themselves and ask for nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRules {
    /// Lifetime of a node's SVID.
    pub ttl: Duration,
    /// Paths that nodes may ask for on behalf of workloads.
    pub paths: Vec<Pattern>,
    /// DNS names that nodes may ask for beside those: each stands for itself and all names that end in it.
    pub dns_names: Vec<String>,
    /// Names of nodes of this site that get nothing and may not stay connected.
    pub banned: Vec<String>,
}

impl Default for NodeRules {
    fn default() -> Self {
        Self { ttl: DEFAULT_NODE_TTL, paths: Vec::new(), dns_names: Vec::new(), banned: Vec::new() }
    }
}

impl NodeRules {
    /// May a node ask for this identity of a workload? Never for a node's, whatever the rules say.
    pub fn allow_workload(&self, id: &SpiffeId, dns_names: &[String]) -> bool {
        let name = |name: &String| self.dns_names.iter().any(|rule| ends_in(name, rule));
        !is_reserved(id.path())
            && self.paths.iter().any(|pattern| pattern.matches(id))
            && dns_names.iter().all(name)
    }

    /// True for a node of `site` that is banned.
    pub fn bans(&self, id: &SpiffeId, site: &str) -> bool {
        id.node().is_some_and(|(of, name)| of == site && self.banned.iter().any(|banned| banned == name))
    }
}

/// `/site` and all below it belongs to nodes.
fn is_reserved(path: &str) -> bool {
    path.split('/').nth(1) == Some("site")
}

fn ends_in(name: &str, rule: &str) -> bool {
    let (name, rule) = (name.to_ascii_lowercase(), rule.to_ascii_lowercase());
    name.strip_suffix(&rule).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The keys of `[issuer]` beside its files.
pub(super) struct RawNodeRules {
    pub(super) listen: Option<Spanned<String>>,
    pub(super) node_ttl: Option<Spanned<String>>,
    pub(super) node_paths: Vec<Spanned<String>>,
    pub(super) node_dns_names: Vec<Spanned<String>>,
    pub(super) banned_nodes: Vec<Spanned<String>>,
}

impl RawNodeRules {
    pub(super) fn check(self, c: &mut Checker<'_>) -> Option<(Option<SocketAddr>, NodeRules)> {
        let listen = self.listen.map(|raw| check_listen(c, &raw));
        let ttl = self.node_ttl.map_or(Some(DEFAULT_NODE_TTL), |raw| c.duration(&raw, NODE_TTL_RANGE));
        let paths = all(c, &self.node_paths, check_rule);
        let dns_names = all(c, &self.node_dns_names, check_suffix);
        let banned = all(c, &self.banned_nodes, check_node);
        let listen = match listen {
            Some(checked) => Some(checked?),
            None => None,
        };
        Some((listen, NodeRules { ttl: ttl?, paths: paths?, dns_names: dns_names?, banned: banned? }))
    }
}

fn all<T>(
    c: &mut Checker<'_>,
    raw: &[Spanned<String>],
    check: fn(&mut Checker<'_>, &Spanned<String>) -> Option<T>,
) -> Option<Vec<T>> {
    let good: Vec<_> = raw.iter().filter_map(|one| check(c, one)).collect();
    (good.len() == raw.len()).then_some(good)
}

fn check_listen(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<SocketAddr> {
    let parsed = raw.get_ref().parse::<SocketAddr>().ok();
    let message = format!("\"{}\" is not an address with a port", raw.get_ref().escape_debug());
    c.require(parsed.is_some(), raw, &message, "write \"[::]:51820\" for all addresses, or one of this node");
    parsed
}

fn check_rule(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Pattern> {
    let message = "paths below /site belong to nodes, and nodes are no workloads";
    let help = "name the paths of workloads: \"/ns/payments/*\"";
    let free = c.require(!is_reserved(raw.get_ref()), raw, message, help);
    check_pattern(c, raw).filter(|_| free)
}

fn check_suffix(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<String> {
    let message = format!("\"{}\" is not a DNS name", raw.get_ref().escape_debug());
    let help = "write a name; it stands for itself and all that end in it: \"payments.example\"";
    c.require(is_dns_name(raw.get_ref()), raw, &message, help).then(|| raw.get_ref().clone())
}

fn check_node(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<String> {
    let message = format!("\"{}\" can't be the name of a node", raw.get_ref().escape_debug());
    c.require(is_name(raw.get_ref()), raw, &message, "write the name as in that node's [node]: \"gw2\"")
        .then(|| raw.get_ref().clone())
}

/// `HOST:PORT` of an issuer; the host is an address or a DNS name.
pub(super) fn check_issuer(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<String> {
    check_address(c, raw, raw.get_ref())
}

/// The same of a text that stands at `raw`.
pub(super) fn check_address(c: &mut Checker<'_>, raw: &Spanned<String>, text: &str) -> Option<String> {
    let named = || {
        let (host, port) = text.rsplit_once(':')?;
        (is_dns_name(host) && port.parse::<u16>().is_ok_and(|port| port != 0)).then_some(())
    };
    let good = text.parse::<SocketAddr>().is_ok_and(|a| a.port() != 0) || named().is_some();
    let message = format!("\"{}\" is not where an issuer listens", raw.get_ref().escape_debug());
    c.require(good, raw, &message, "write ADDRESS:PORT, [V6]:PORT or NAME:PORT: \"192.0.2.1:51820\"")
        .then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use isthmus_pki::TrustDomain;

    use super::*;

    fn id(path: &str) -> SpiffeId {
        TrustDomain::parse("td").unwrap().member(path).unwrap()
    }

    fn rules(paths: &[&str], dns_names: &[&str]) -> NodeRules {
        NodeRules {
            paths: paths.iter().map(|path| Pattern::parse(path).unwrap()).collect(),
            dns_names: dns_names.iter().map(|name| (*name).to_owned()).collect(),
            ..NodeRules::default()
        }
    }

    #[test]
    fn nothing_by_default_and_nodes_are_never_among_them() {
        let some = rules(&["/ns/pay/*", "/sa/x"], &[]);
        for (path, allowed) in [
            ("/ns/pay/sa/api", true),
            ("/sa/x", true),
            ("/sa/x/y", false),
            ("/ns/payments/x", false),
            ("/ns", false),
            ("/other/ns/pay/x", false),
        ] {
            assert_eq!(some.allow_workload(&id(path), &[]), allowed, "{path}");
        }
        assert!(!NodeRules::default().allow_workload(&id("/sa/x"), &[]));
        // Patterns that the checks of the file let through, and one that they don't.
        let wide = rules(&["/*", "/*/*/*/*", "/site/*"], &[]);
        assert!(wide.allow_workload(&id("/sa/x"), &[]));
        assert!(
            !wide.allow_workload(&id("/site/s1/node/gw1"), &[]) && !wide.allow_workload(&id("/site"), &[])
        );
    }

    #[test]
    fn dns_names_end_at_a_dot() {
        let some = rules(&["/sa/*"], &["pay.example"]);
        let allowed = |name: &str| some.allow_workload(&id("/sa/x"), &[name.to_owned()]);
        assert!(allowed("pay.example") && allowed("API.Pay.Example"));
        assert!(!allowed("notpay.example") && !allowed("example") && !allowed("pay.example.evil"));
        assert!(!rules(&["/sa/*"], &[]).allow_workload(&id("/sa/x"), &["a".into()]));
    }

    #[test]
    fn a_ban_is_for_a_node_of_this_site() {
        let rules = NodeRules { banned: vec!["gw2".into()], ..NodeRules::default() };
        assert!(rules.bans(&id("/site/s1/node/gw2"), "s1"));
        assert!(!rules.bans(&id("/site/s2/node/gw2"), "s1") && !rules.bans(&id("/site/s1/node/gw1"), "s1"));
        assert!(!rules.bans(&id("/sa/gw2"), "s1"));
    }
}
