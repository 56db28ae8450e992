//! Conditions on communities (RFC 1997) and large communities (RFC 8092), and how both are written.

use std::{fmt, str::FromStr};

use crate::wire::{Community, LargeCommunity};

/// Communities with a name of their own (IANA registry of well-known communities).
const WELL_KNOWN: [(&str, Community); 5] = [
    ("graceful-shutdown", Community::GRACEFUL_SHUTDOWN),
    ("blackhole", Community(0xffff_029a)),
    ("no-export", Community::NO_EXPORT),
    ("no-advertise", Community::NO_ADVERTISE),
    ("no-export-subconfed", Community::NO_EXPORT_SUBCONFED),
];

/// A condition on a list. What is given must hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListCondition<P> {
    /// One of these is there; empty: nothing is asked.
    pub any: Vec<P>,
    /// Each of these is there.
    pub all: Vec<P>,
}

impl<P> Default for ListCondition<P> {
    fn default() -> Self {
        Self { any: Vec::new(), all: Vec::new() }
    }
}

impl<P: Pattern> ListCondition<P> {
    pub(super) fn entries(&self) -> usize {
        self.any.len() + self.all.len()
    }

    pub(super) fn matches(&self, list: &[P::Value]) -> bool {
        let is_there = |pattern: &P| list.iter().any(|value| pattern.matches(value));
        (self.any.is_empty() || self.any.iter().any(is_there)) && self.all.iter().all(is_there)
    }
}

/// What stands for some values of a list.
pub trait Pattern {
    /// What it stands for.
    type Value;
    /// True if it stands for this one, too.
    fn matches(&self, value: &Self::Value) -> bool;
}

/// A community, or with `*` in one of its places many: `65001:100`, `65001:*`, `*:100`, `*:*`, or a name such as `no-export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommunityPattern {
    /// Upper half, usually an AS number; `None`: any.
    pub administrator: Option<u16>,
    /// Lower half; `None`: any.
    pub value: Option<u16>,
}

/// A large community with `*` in any of its places: `4200000001:1:*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LargeCommunityPattern(pub [Option<u32>; 3]);

/// A text that is no community, or no pattern of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct CommunityError {
    /// It, shortened.
    text: String,
    /// What it should be.
    expected: &'static str,
}

impl Pattern for CommunityPattern {
    type Value = Community;

    fn matches(&self, community: &Community) -> bool {
        let [a, b, c, d] = community.0.to_be_bytes();
        self.administrator.is_none_or(|wanted| wanted == u16::from_be_bytes([a, b]))
            && self.value.is_none_or(|wanted| wanted == u16::from_be_bytes([c, d]))
    }
}

impl Pattern for LargeCommunityPattern {
    type Value = LargeCommunity;

    fn matches(&self, community: &LargeCommunity) -> bool {
        let parts = [community.0, community.1, community.2];
        self.0.iter().zip(parts).all(|(wanted, part)| wanted.is_none_or(|wanted| wanted == part))
    }
}

impl From<Community> for CommunityPattern {
    fn from(community: Community) -> Self {
        let [a, b, c, d] = community.0.to_be_bytes();
        Self { administrator: Some(u16::from_be_bytes([a, b])), value: Some(u16::from_be_bytes([c, d])) }
    }
}

impl FromStr for CommunityPattern {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, CommunityError> {
        if let Some((_, community)) = WELL_KNOWN.iter().find(|(name, _)| *name == text) {
            return Ok((*community).into());
        }
        parts(text)
            .map(|[administrator, value]| Self { administrator, value })
            .ok_or_else(|| error(text, "a community like 65001:100, 65001:* or no-export"))
    }
}

impl FromStr for Community {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, CommunityError> {
        let pattern = CommunityPattern::from_str(text).ok();
        let parts = pattern.and_then(|pattern| pattern.administrator.zip(pattern.value));
        parts
            .map(|(administrator, value)| Self(u32::from(administrator) << 16 | u32::from(value)))
            .ok_or_else(|| error(text, "a community like 65001:100 or no-export"))
    }
}

impl FromStr for LargeCommunityPattern {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, CommunityError> {
        parts(text)
            .map(Self)
            .ok_or_else(|| error(text, "a large community like 4200000001:1:2 or 4200000001:*:*"))
    }
}

impl FromStr for LargeCommunity {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, CommunityError> {
        match parts(text) {
            Some([Some(administrator), Some(first), Some(second)]) => Ok(Self(administrator, first, second)),
            _ => Err(error(text, "a large community like 4200000001:1:2")),
        }
    }
}

/// Exactly `N` places between colons, each a number or `*`.
fn parts<T: FromStr, const N: usize>(text: &str) -> Option<[Option<T>; N]> {
    let mut places = text.split(':');
    let mut found = [const { None }; N];
    for part in &mut found {
        let place = places.next()?;
        // A sign, which parse() would take, is none of our digits.
        let is_number = !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_digit());
        match place {
            "*" => {}
            _ if is_number => *part = Some(place.parse().ok()?),
            _ => return None,
        }
    }
    places.next().is_none().then_some(found)
}

fn error(text: &str, expected: &'static str) -> CommunityError {
    CommunityError { text: text.chars().take(40).collect(), expected }
}

impl fmt::Display for CommunityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = WELL_KNOWN.iter().find(|(_, community)| Self::from(*community) == *self);
        match known {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}:{}", Place(self.administrator), Place(self.value)),
        }
    }
}

impl fmt::Display for LargeCommunityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [administrator, first, second] = self.0.map(Place);
        write!(f, "{administrator}:{first}:{second}")
    }
}

/// One place of a pattern.
struct Place<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Place<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(number) => number.fmt(f),
            None => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communities_are_read_as_they_are_written() {
        for text in ["65001:100", "65001:*", "*:100", "*:*", "no-export", "graceful-shutdown", "blackhole"] {
            assert_eq!(text.parse::<CommunityPattern>().unwrap().to_string(), text);
        }
        for text in ["1:2:3", "4200000001:*:7", "*:*:*"] {
            assert_eq!(text.parse::<LargeCommunityPattern>().unwrap().to_string(), text);
        }
        assert_eq!("65535:0".parse(), Ok(Community::GRACEFUL_SHUTDOWN));
        assert_eq!("no-advertise".parse(), Ok(Community::NO_ADVERTISE));
        assert_eq!("4200000001:0:9".parse(), Ok(LargeCommunity(4_200_000_001, 0, 9)));
        for wrong in ["", "1", "1:2:3", "65536:1", "+1:2", "1:", ":", "noexport", "1:x"] {
            assert!(wrong.parse::<CommunityPattern>().is_err(), "{wrong:?}");
            assert!(wrong.parse::<Community>().is_err(), "{wrong:?}");
        }
        for wrong in ["65001:*", "*:*"] {
            assert!(wrong.parse::<Community>().is_err(), "{wrong:?}");
        }
        assert!("1:2:*".parse::<LargeCommunity>().is_err());
        assert!("1:2".parse::<LargeCommunityPattern>().is_err());
    }

    #[test]
    fn any_and_all() {
        let list: Vec<Community> = ["65001:1", "65002:7"].map(|text| text.parse().unwrap()).into();
        let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let matches = |any: &[&str], all: &[&str]| {
            ListCondition::<CommunityPattern> { any: patterns(any), all: patterns(all) }.matches(&list)
        };
        assert!(matches(&[], &[]));
        assert!(matches(&["65009:1", "65001:*"], &[]));
        assert!(!matches(&["65009:1", "65001:2"], &[]));
        assert!(matches(&[], &["*:7", "65001:1"]));
        assert!(!matches(&[], &["*:7", "65001:2"]));
        assert!(!matches(&["65009:*"], &["*:7"]));
    }
}
