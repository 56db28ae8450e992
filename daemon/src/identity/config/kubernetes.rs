//! `[workload_api.kubernetes]`: whom to ask about pods.

use std::{net::IpAddr, path::PathBuf};

use serde::Deserialize;
use toml::Spanned;

use crate::config::Checker;

/// A validated `[workload_api.kubernetes]` section. Files are read at each request: Kubernetes replaces them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// Host name or address of the kubelet, IPv6 without brackets.
    pub host: String,
    /// TCP port, default 10250.
    pub port: u16,
    /// File with the bearer token.
    pub token_file: Option<PathBuf>,
    /// How the kubelet is known.
    pub trust: KubeletTrust,
    /// PEM files with our certificate and its key, for a kubelet that asks.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Name of this node in Kubernetes: pods of others are not looked at, and a kubelet on the loopback is known by it.
    pub node_name: Option<String>,
}

/// How the kubelet is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeletTrust {
    /// PEM file with the CAs of its certificate.
    Ca(PathBuf),
    /// By nothing; on the loopback only.
    Unverified,
}

const DEFAULT_KUBELET: &str = "https://127.0.0.1:10250";
const DEFAULT_PORT: u16 = 10250;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawKubernetesConfig {
    kubelet: Option<Spanned<String>>,
    token_file: Option<Spanned<PathBuf>>,
    ca_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    insecure: bool,
    client_certificate: Option<Spanned<PathBuf>>,
    client_key: Option<Spanned<PathBuf>>,
    node_name: Option<Spanned<String>>,
}

impl RawKubernetesConfig {
    /// `span` is the section's, for what is missing.
    pub(crate) fn check(self, c: &mut Checker<'_>, span: std::ops::Range<usize>) -> Option<KubernetesConfig> {
        let url = self.kubelet.unwrap_or_else(|| Spanned::new(span.clone(), DEFAULT_KUBELET.to_owned()));
        let address = check_url(c, &url);
        let is_local = address.as_ref().is_none_or(|(host, _)| is_loopback(host));
        let ca_file = self.ca_file.map(|file| c.readable_file(&file, "the kubelet's CA file"));
        let trust = match ca_file {
            Some(file) if !self.insecure => file.map(KubeletTrust::Ca),
            None if self.insecure && is_local => Some(KubeletTrust::Unverified),
            _ => {
                c.problem(span, "it is not said how the kubelet is known", TRUST_HELP);
                None
            }
        };
        let token_file = self.token_file.map(|file| c.readable_file(&file, "token file"));
        let client = check_client(c, self.client_certificate, self.client_key);
        let node_name = self.node_name.map(|name| check_name(c, name));
        let ((host, port), trust, client) = (address?, trust?, client?);
        let (token_file, node_name) = (
            token_file.map_or(Some(None), |file| file.map(Some))?,
            node_name.map_or(Some(None), |name| name.map(Some))?,
        );
        Some(KubernetesConfig { host, port, token_file, trust, client, node_name })
    }
}

const TRUST_HELP: &str = "name the CA of the kubelet's certificate: ca_file = \"FILE\"; or, for a kubelet on the loopback only and without ca_file, insecure = true";

/// `Some(None)`: none is wanted.
#[expect(clippy::option_option, reason = "outside: is it right; inside: is it there")]
fn check_client(
    c: &mut Checker<'_>,
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
) -> Option<Option<(PathBuf, PathBuf)>> {
    match (certificate, key) {
        (None, None) => Some(None),
        (Some(certificate), Some(key)) => {
            let certificate = c.readable_file(&certificate, "client certificate");
            c.secret_file(&key, "client key")?;
            Some(Some((certificate?, c.path(key.get_ref()))))
        }
        (Some(one), None) | (None, Some(one)) => {
            let help = "set both client_certificate and client_key, or neither";
            c.problem(one.span(), "a client certificate needs its key, and a key its certificate", help);
            None
        }
    }
}

fn check_name(c: &mut Checker<'_>, raw: Spanned<String>) -> Option<String> {
    let name = raw.get_ref();
    let good = isthmus_pki::profile::is_dns_name(name);
    let message = format!("\"{}\" is not the name of a Kubernetes node", name.escape_debug());
    c.require(good, &raw, &message, "write it as `kubectl get nodes` shows it").then(|| raw.into_inner())
}

/// Host and port of `https://HOST[:PORT]`.
fn check_url(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<(String, u16)> {
    let parsed = parse_url(raw.get_ref());
    if parsed.is_none() {
        let message = format!("\"{}\" is not the address of a kubelet", raw.get_ref().escape_debug());
        c.problem(
            raw.span(),
            message,
            "write https, host and port and nothing else: \"https://127.0.0.1:10250\"",
        );
    }
    parsed
}

fn parse_url(url: &str) -> Option<(String, u16)> {
    let authority = url.strip_prefix("https://")?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let (host, port) = match authority.rsplit_once(':') {
        // The colon of an IPv6 address is no separator.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port = port.map_or(Some(DEFAULT_PORT), |port| port.parse().ok().filter(|port| *port != 0))?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok())?,
        None => Some(host).filter(|host| host.parse::<std::net::Ipv4Addr>().is_ok() || is_host_name(host))?,
    };
    Some((host.to_owned(), port))
}

/// A last label of digits alone would be a mistyped IPv4 address.
fn is_host_name(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or(host);
    isthmus_pki::profile::is_dns_name(host) && !last.bytes().all(|b| b.is_ascii_digit())
}

/// A name may lead anywhere: only an address is the loopback for sure.
fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_kubelets() {
        for (url, expected) in [
            ("https://127.0.0.1:10250", Some(("127.0.0.1", 10250))),
            ("https://127.0.0.1", Some(("127.0.0.1", 10250))),
            ("https://[::1]:1/", Some(("::1", 1))),
            ("https://[::1]", Some(("::1", 10250))),
            ("https://node-1.example:10250", Some(("node-1.example", 10250))),
            ("https://node1:10250", Some(("node1", 10250))),
            ("http://127.0.0.1:10255", None),
            ("https://", None),
            ("https://user@127.0.0.1:10250", None),
            ("https://127.0.0.1:10250/pods", None),
            ("https://127.0.0.1:0", None),
            ("https://127.0.0.1:65536", None),
            ("https://127.0.0:1", None),
            ("https://::1", None),
            ("https://[127.0.0.1]", None),
            ("https://a b", None),
            ("127.0.0.1:10250", None),
        ] {
            let expected = expected.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(parse_url(url), expected, "{url}");
        }
        assert!(is_loopback("127.0.0.2") && is_loopback("::1"));
        assert!(!is_loopback("localhost") && !is_loopback("10.0.0.1"));
    }
}
