//! SPIFFE IDs and trust domains, by the letter of the SPIFFE-ID standard, sections 2.1 to 2.4.
//!
//! Scheme and trust domain compare without regard to case there, and are written in lower case. Only the written form is
//! accepted here: two spellings of one identity in one system is how allow-lists are bypassed.

use std::{fmt, str::FromStr};

/// Longest SPIFFE ID that must be handled, in bytes (SPIFFE-ID section 2.3); longer ones are refused.
pub const MAX_ID_LEN: usize = 2048;
/// Longest trust domain name, in bytes (SPIFFE-ID section 2.1).
pub const MAX_TRUST_DOMAIN_LEN: usize = 255;

const SCHEME: &str = "spiffe://";

/// Why a text is not a SPIFFE ID, a trust domain or a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another scheme, or none.
    #[error("a SPIFFE ID starts with \"spiffe://\"")]
    Scheme,
    /// Longer than [`MAX_ID_LEN`].
    #[error("a SPIFFE ID has at most {MAX_ID_LEN} bytes, this one has {0}")]
    TooLong(usize),
    /// No trust domain.
    #[error("the trust domain is empty")]
    EmptyTrustDomain,
    /// Longer than [`MAX_TRUST_DOMAIN_LEN`].
    #[error("a trust domain has at most {MAX_TRUST_DOMAIN_LEN} bytes, this one has {0}")]
    TrustDomainTooLong(usize),
    /// Outside `a-z 0-9 . - _`; covers port, user information, percent-encoding and upper case.
    #[error("{0:?} is not allowed in a trust domain: use lower-case letters, digits, '.', '-' and '_'")]
    TrustDomainChar(char),
    /// Two slashes in a row, or a slash at the end.
    #[error("a path segment is empty: no \"//\" and no slash at the end")]
    EmptySegment,
    /// `.` or `..`.
    #[error("a path segment is \".\" or \"..\"")]
    DotSegment,
    /// Outside letters, digits, `.`, `-`, `_`; covers query, fragment and percent-encoding.
    #[error("{0:?} is not allowed in a path: use letters, digits, '.', '-' and '_'")]
    PathChar(char),
    /// A path that does not start with a slash.
    #[error("a path starts with '/'")]
    NoSlash,
}

/// A trust domain name, such as `fabric.example`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrustDomain(String);

impl TrustDomain {
    /// Parses the bare name.
    pub fn parse(name: &str) -> Result<Self, Error> {
        match name {
            "" => return Err(Error::EmptyTrustDomain),
            _ if name.len() > MAX_TRUST_DOMAIN_LEN => return Err(Error::TrustDomainTooLong(name.len())),
            _ => {}
        }
        match name.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '.' | '-' | '_')) {
            Some(c) => Err(Error::TrustDomainChar(c)),
            None => Ok(Self(name.to_owned())),
        }
    }

    /// The bare name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The trust domain's own ID, which has no path: `spiffe://fabric.example`.
    pub fn id(&self) -> SpiffeId {
        SpiffeId { trust_domain: self.clone(), path: String::new() }
    }

    /// An ID in this trust domain; `path` is empty or starts with a slash.
    pub fn member(&self, path: &str) -> Result<SpiffeId, Error> {
        check_path(path)?;
        let length = SCHEME.len() + self.0.len() + path.len();
        if length > MAX_ID_LEN {
            return Err(Error::TooLong(length));
        }
        Ok(SpiffeId { trust_domain: self.clone(), path: path.to_owned() })
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TrustDomain {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::parse(name)
    }
}

/// A SPIFFE ID: `spiffe://TRUST-DOMAIN/PATH`, the path empty for the trust domain itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpiffeId {
    trust_domain: TrustDomain,
    path: String,
}

impl SpiffeId {
    /// Parses the canonical form.
    pub fn parse(id: &str) -> Result<Self, Error> {
        if id.len() > MAX_ID_LEN {
            return Err(Error::TooLong(id.len()));
        }
        let rest = id.strip_prefix(SCHEME).ok_or(Error::Scheme)?;
        let (domain, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        TrustDomain::parse(domain)?.member(path)
    }

    /// The trust domain.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// Empty, or a slash and segments.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// True for the trust domain's own ID, which no workload may carry (X509-SVID section 2).
    pub fn is_trust_domain(&self) -> bool {
        self.path.is_empty()
    }

    /// Site and name of a node ID, `/site/SITE/node/NAME`.
    pub fn node(&self) -> Option<(&str, &str)> {
        let (site, name) = self.path.strip_prefix("/site/")?.split_once("/node/")?;
        (!site.contains('/') && !name.contains('/')).then_some((site, name))
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}{}", self.trust_domain, self.path)
    }
}

impl FromStr for SpiffeId {
    type Err = Error;

    fn from_str(id: &str) -> Result<Self, Error> {
        Self::parse(id)
    }
}

/// The ID of a node: `spiffe://TD/site/SITE/node/NAME`.
pub fn node_id(trust_domain: &TrustDomain, site: &str, name: &str) -> Result<SpiffeId, Error> {
    check_segment(site)?;
    check_segment(name)?;
    trust_domain.member(&format!("/site/{site}/node/{name}"))
}

/// Checks one path segment: a site's or a node's name.
pub fn check_segment(segment: &str) -> Result<(), Error> {
    match segment {
        "" => return Err(Error::EmptySegment),
        "." | ".." => return Err(Error::DotSegment),
        _ => {}
    }
    match segment.chars().find(|c| !matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_')) {
        Some(c) => Err(Error::PathChar(c)),
        None => Ok(()),
    }
}

fn check_path(path: &str) -> Result<(), Error> {
    if path.is_empty() {
        return Ok(());
    }
    path.strip_prefix('/').ok_or(Error::NoSlash)?.split('/').try_for_each(check_segment)
}

/// True for what can name a site or a node: 1 to 63 of a-z, 0-9 and -, not at the ends. Names become segments of SPIFFE IDs and
/// labels of DNS names (RFC 1123 section 2.1), so they obey the stricter of the two.
pub fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn accepts_what_the_standard_allows() {
        for id in [
            "spiffe://a",
            "spiffe://a.b-c_d/x",
            "spiffe://127.0.0.1/A.b-C_9/...",
            "spiffe://td/site/s/node/n",
        ] {
            assert_eq!(SpiffeId::parse(id).map(|i| i.to_string()), Ok(id.to_string()));
        }
        let longest = format!("spiffe://a/{}", "x".repeat(MAX_ID_LEN - 11));
        assert!(SpiffeId::parse(&longest).is_ok());
    }

    #[test]
    fn refuses_everything_else() {
        let long = format!("spiffe://a/{}", "x".repeat(MAX_ID_LEN - 10));
        let domain = format!("spiffe://{}", "a".repeat(256));
        let cases = [
            ("", Error::Scheme),
            ("https://a/b", Error::Scheme),
            ("SPIFFE://a/b", Error::Scheme),
            ("spiffe:///b", Error::EmptyTrustDomain),
            ("spiffe://A/b", Error::TrustDomainChar('A')),
            ("spiffe://a:80/b", Error::TrustDomainChar(':')),
            ("spiffe://u@a/b", Error::TrustDomainChar('@')),
            ("spiffe://a%20/b", Error::TrustDomainChar('%')),
            ("spiffe://a?q", Error::TrustDomainChar('?')),
            ("spiffe://a/", Error::EmptySegment),
            ("spiffe://a/b/", Error::EmptySegment),
            ("spiffe://a//b", Error::EmptySegment),
            ("spiffe://a/./b", Error::DotSegment),
            ("spiffe://a/b/..", Error::DotSegment),
            ("spiffe://a/b?c", Error::PathChar('?')),
            ("spiffe://a/b#c", Error::PathChar('#')),
            ("spiffe://a/%2e%2e", Error::PathChar('%')),
            ("spiffe://a/ü", Error::PathChar('ü')),
            (&long, Error::TooLong(MAX_ID_LEN + 1)),
            (&domain, Error::TrustDomainTooLong(256)),
        ];
        for (id, want) in cases {
            assert_eq!(SpiffeId::parse(id), Err(want), "{id}");
        }
    }

    #[test]
    fn node_shape() {
        let domain = TrustDomain::parse("td").unwrap();
        let id = node_id(&domain, "aws-use1", "gw1").unwrap();
        assert_eq!(
            (id.to_string().as_str(), id.node()),
            ("spiffe://td/site/aws-use1/node/gw1", Some(("aws-use1", "gw1")))
        );
        for other in [
            "spiffe://td",
            "spiffe://td/site/a/node",
            "spiffe://td/site/a/b/node/c",
            "spiffe://td/site/a/node/b/c",
        ] {
            assert_eq!(SpiffeId::parse(other).unwrap().node(), None, "{other}");
        }
        assert_eq!(node_id(&domain, "a/b", "gw1"), Err(Error::PathChar('/')));
        assert_eq!(node_id(&domain, "..", "gw1"), Err(Error::DotSegment));
    }

    proptest! {
        #[test]
        fn any_text_parses_to_itself_or_fails(text in "(spiffe://)?\\PC{0,80}") {
            if let Ok(id) = SpiffeId::parse(&text) {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        #[test]
        fn every_legal_id_is_accepted(
            domain in "[a-z0-9._-]{1,60}",
            segments in proptest::collection::vec("[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,20}", 0..8),
        ) {
            let path: String = segments.iter().map(|s| format!("/{s}")).collect();
            let id = SpiffeId::parse(&format!("spiffe://{domain}{path}")).unwrap();
            prop_assert_eq!(id.path(), path);
            prop_assert_eq!(id.trust_domain().as_str(), domain);
        }
    }
}
