//! Endpoints: what an operator may write for a peer's outer address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use toml::Spanned;

use super::RawPeer;
use crate::config::Checker;

/// A peer's outer address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Literal address and port.
    Address(SocketAddr),
    /// DNS name, or link-local address with the name of an interface (`fe80::1%eth0`), and port; resolved in the background.
    Name(String, u16),
}

/// What the kernel sends to an overlay address enters the tunnel; a peer cannot be found there.
pub(super) fn check_endpoints(c: &mut Checker<'_>, peers: &[RawPeer], overlay: &[IpNet]) {
    for raw in peers.iter().filter_map(|peer| peer.endpoint.as_ref()) {
        let Some(Endpoint::Address(address)) = parse_endpoint(raw.get_ref()) else { continue };
        let Some(net) = overlay.iter().find(|net| net.contains(&address.ip().to_canonical())) else {
            continue;
        };
        let message =
            format!("this endpoint lies inside the overlay {}: the tunnel would carry itself", net.trunc());
        let help =
            "write the peer's address in the network that the tunnel runs over, or correct `addresses`";
        c.problem(raw.span(), message, help);
    }
}

pub(super) fn check_endpoint(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Endpoint> {
    let endpoint = parse_endpoint(raw.get_ref());
    if endpoint.is_none() {
        let message = format!("\"{}\" is not an endpoint", raw.get_ref().escape_debug());
        c.problem(
            raw.span(),
            message,
            "write ADDRESS:PORT, [V6ADDRESS]:PORT, [fe80::1%INTERFACE]:PORT or NAME:PORT",
        );
    }
    endpoint
}

fn parse_endpoint(text: &str) -> Option<Endpoint> {
    if let Ok(mut address) = text.parse::<SocketAddr>() {
        // An IPv4 address in IPv6 clothes: the IPv6 socket would not send to it.
        if let IpAddr::V4(v4) = address.ip().to_canonical() {
            address.set_ip(v4.into());
        }
        let usable = address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast();
        return usable.then_some(Endpoint::Address(address));
    }
    let (name, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    if let Some(scoped) = scoped(name) {
        return Some(Endpoint::Name(scoped.to_owned(), port));
    }
    let label = |l: &str| {
        (1..=63).contains(&l.len()) && l.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    // A last label of digits would be a mistyped address (RFC 3696 section 2).
    let top_is_name = name.trim_end_matches('.').rsplit('.').next()?.bytes().any(|b| b.is_ascii_alphabetic());
    let good = name.len() <= 253 && name.trim_end_matches('.').split('.').all(label) && top_is_name;
    good.then(|| Endpoint::Name(name.to_owned(), port))
}

/// `[fe80::1%eth0]` without its brackets: an address that means something on one interface only.
fn scoped(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let (address, interface) = inner.split_once('%')?;
    let local = address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local());
    let named = (1..=super::INTERFACE_NAME_MAX).contains(&interface.len())
        && interface.bytes().all(|b| b.is_ascii_graphic() && !b"/:%".contains(&b));
    (local && named).then_some(inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Endpoint;
    use crate::config::{Error, Problem, parse};

    /// What is wrong with a peer at this endpoint, on a node whose overlay is 10.99.0.0/24 and fd7a::/64.
    fn problems(endpoint: &str) -> Vec<String> {
        let text = format!(
            "[tunnel]\naddresses = [\"10.99.0.1/24\", \"fd7a::1/64\"]\n[[tunnel.peer]]\nname = \"b\"\n\
             public_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\nendpoint = \"{endpoint}\"\n"
        );
        match parse(Path::new("/nonexistent/c.toml"), &text) {
            Ok(_) => vec![],
            Err(Error::Invalid { problems, .. }) => problems.iter().map(Problem::one_line).collect(),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn an_endpoint_in_the_overlay_is_refused() {
        for (endpoint, net) in [
            ("10.99.0.2:51820", "10.99.0.0/24"),
            ("[::ffff:10.99.0.2]:51820", "10.99.0.0/24"),
            ("[fd7a::2]:51820", "fd7a::/64"),
        ] {
            let said = problems(endpoint);
            assert!(
                said.len() == 1
                    && said[0].starts_with(&format!(
                        "/nonexistent/c.toml:6: this endpoint lies inside the overlay {net}"
                    ))
                    && said[0].contains("`addresses`"),
                "{said:?}"
            );
        }
        for endpoint in ["10.99.1.2:51820", "[fd7b::2]:51820", "gw.example:51820"] {
            assert_eq!(problems(endpoint), [""; 0], "{endpoint}");
        }
    }

    #[test]
    fn what_an_endpoint_may_be() {
        let name = |host: &str| Some(Endpoint::Name(host.into(), 7));
        let address = |text: &str| Some(Endpoint::Address(text.parse().unwrap()));
        for (text, expected) in [
            ("192.0.2.1:7", address("192.0.2.1:7")),
            ("[::ffff:192.0.2.1]:7", address("192.0.2.1:7")),
            ("[2001:db8::1]:7", address("[2001:db8::1]:7")),
            ("[fe80::1%3]:7", address("[fe80::1%3]:7")),
            ("[fe80::1%eth0]:7", name("fe80::1%eth0")),
            ("gw.example:7", name("gw.example")),
            ("[2001:db8::1%eth0]:7", None),
            ("[fe80::1%]:7", None),
            ("[fe80::1%a/b]:7", None),
            ("[fe80::1%eth0]:0", None),
            ("fe80::1%eth0:7", None),
            ("192.0.2.1:0", None),
            ("192.0.2.1", None),
            ("0.0.0.0:7", None),
            ("[ff02::1]:7", None),
            ("300.1.1.1:7", None),
        ] {
            assert_eq!(super::parse_endpoint(text), expected, "{text}");
        }
    }
}
