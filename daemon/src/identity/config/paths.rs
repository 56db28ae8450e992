//! `[issuer] paths`: which IDs the site CA issues to workloads.

use isthmus_pki::SpiffeId;
use toml::Spanned;

use crate::config::Checker;

/// Which paths of SPIFFE IDs workloads may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Paths {
    /// All but `/site/...`, which is where nodes and sites are named.
    #[default]
    AllButSites,
    /// Those that one of the patterns stands for.
    These(Vec<Pattern>),
}

/// A path whose segment `*` stands for any one segment, and at its end for one or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<String>);

impl Paths {
    /// May a workload have this ID? A node's never.
    pub fn allow(&self, id: &SpiffeId) -> bool {
        let named = match self {
            Self::AllButSites => id.path().split('/').nth(1) != Some("site"),
            Self::These(patterns) => patterns.iter().any(|pattern| pattern.matches(id)),
        };
        named && id.node().is_none()
    }
}

impl Pattern {
    /// `None` if it is no path.
    pub fn parse(text: &str) -> Option<Self> {
        // With a letter in each star's place it must be a path; a star within a segment is no star, but a mistake.
        let segments: Vec<&str> = text.strip_prefix('/')?.split('/').collect();
        let path: String =
            segments.iter().map(|s| if *s == "*" { "/x".into() } else { format!("/{s}") }).collect();
        SpiffeId::parse(&format!("spiffe://trust-domain{path}")).ok()?;
        Some(Self(segments.into_iter().map(str::to_owned).collect()))
    }

    /// Does it stand for the path of this ID?
    pub fn matches(&self, id: &SpiffeId) -> bool {
        let path: Vec<&str> = id.path().split('/').skip(1).collect();
        let open = self.0.last().is_some_and(|last| last == "*");
        let length = if open { path.len() >= self.0.len() } else { path.len() == self.0.len() };
        length && self.0.iter().zip(path).all(|(wanted, found)| wanted == "*" || wanted == found)
    }
}

pub(super) fn check_paths(c: &mut Checker<'_>, raw: Option<Spanned<Vec<Spanned<String>>>>) -> Option<Paths> {
    let Some(raw) = raw else { return Some(Paths::default()) };
    let some = !raw.get_ref().is_empty();
    c.require(
        some,
        &raw,
        "without a path nothing can be issued",
        "name one, such as \"/ns/payments/*\", or remove the key",
    );
    let patterns: Vec<_> = raw.get_ref().iter().filter_map(|raw| check_pattern(c, raw)).collect();
    (some && patterns.len() == raw.get_ref().len()).then_some(Paths::These(patterns))
}

pub(super) fn check_pattern(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Pattern> {
    let pattern = Pattern::parse(raw.get_ref());
    if pattern.is_none() {
        let message =
            format!("\"{}\" is not a path with `*` for whole segments", raw.get_ref().escape_debug());
        c.problem(
            raw.span(),
            message,
            "write the path of a SPIFFE ID: \"/ns/payments/sa/api\", \"/ns/payments/*\"",
        );
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(paths: &Paths, path: &str) -> bool {
        paths.allow(&SpiffeId::parse(&format!("spiffe://td{path}")).unwrap())
    }

    #[test]
    fn a_star_is_a_segment_and_at_the_end_all_that_follow() {
        let paths = Paths::These(
            ["/ns/payments/*", "/vm/*/agent", "/site/s/*"]
                .iter()
                .map(|p| Pattern::parse(p).unwrap())
                .collect(),
        );
        for (path, expected) in [
            ("/ns/payments/sa/api", true),
            ("/ns/payments/x", true),
            ("/ns/payments", false),
            ("/ns/payments-2/sa/api", false),
            ("/vm/a/agent", true),
            ("/vm/a/b/agent", false),
            ("/vm/a/agent/b", false),
            ("/site/s/db", true),
            ("/site/s/node/gw1", false),
        ] {
            assert_eq!(allowed(&paths, path), expected, "{path}");
        }
    }

    #[test]
    fn by_default_a_site_names_itself_alone() {
        assert!(allowed(&Paths::default(), "/ns/a/sa/b") && allowed(&Paths::default(), "/sites"));
        assert!(!allowed(&Paths::default(), "/site/s/db") && !allowed(&Paths::default(), "/site/s/node/gw1"));
    }

    #[test]
    fn what_is_no_path_is_no_pattern() {
        for wrong in ["", "/", "ns/a", "/ns//a", "/ns/../a", "/ns/a*", "/**", "/ns/%2e", "/a/"] {
            assert_eq!(Pattern::parse(wrong), None, "{wrong}");
        }
    }
}
