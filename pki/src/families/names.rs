//! URI name constraints (RFC 5280 section 4.2.1.10) as Go and the C libraries evaluate them: against the host of the URI.

use crate::x509::Certificate;

/// Why a URI of `below` is not allowed by a CA above it; `None` if all are.
pub(super) fn violation(below: &Certificate, ca: &Certificate) -> Option<String> {
    let constraints = ca.constraints.as_ref()?;
    let hosts: Vec<&str> = below.facts.uris.iter().map(|uri| host(uri)).collect();
    let excluded = hosts.iter().find(|h| constraints.excluded_uris.iter().any(|c| matches(h, c)));
    let stray = hosts.iter().find(|h| {
        !constraints.permitted_uris.is_empty() && !constraints.permitted_uris.iter().any(|c| matches(h, c))
    });
    let host = excluded.or(stray)?;
    Some(format!("{} constrains URIs, and {} has the host {host:?}", ca.label(), below.label()))
}

/// "td" of "spiffe://td/a".
fn host(uri: &str) -> &str {
    let rest = uri.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or("")
}

/// ".td" is every host below td, "td" is that host alone.
fn matches(host: &str, constraint: &str) -> bool {
    match constraint.strip_prefix('.') {
        Some(domain) => host.len() > domain.len() && ends_with(host, constraint),
        None => host.eq_ignore_ascii_case(constraint),
    }
}

fn ends_with(host: &str, suffix: &str) -> bool {
    host.len()
        .checked_sub(suffix.len())
        .and_then(|at| host.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_as_the_standard_says() {
        assert_eq!((host("spiffe://td/a"), host("spiffe://td"), host("urn:x")), ("td", "td", ""));
        assert!(matches("TD", "td") && matches("a.td", ".td"));
        assert!(
            !matches("td", ".td") && !matches("a.td", "td") && !matches("xtd", ".td") && !matches("", "td")
        );
    }
}
