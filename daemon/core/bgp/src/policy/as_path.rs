//! Conditions on AS_PATH.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use crate::wire::AsPath;

/// Everything that is given must hold; within a list one entry is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AsPathCondition {
    /// One of these is on the path.
    pub contains: Vec<u32>,
    /// The last AS, where the route started, is one of these.
    pub origin: Vec<u32>,
    /// The first AS, that of the neighbor, is one of these.
    pub neighbor: Vec<u32>,
    /// How many ASes are on the path, prepended ones counted each time; `0..=0`: none.
    pub length: Option<RangeInclusive<u32>>,
    /// The whole path looks like one of these.
    pub patterns: Vec<AsPathPattern>,
}

impl AsPathCondition {
    pub(super) fn entries(&self) -> usize {
        let patterns = self.patterns.iter().map(|pattern| pattern.0.len()).sum::<usize>();
        self.contains.len() + self.origin.len() + self.neighbor.len() + patterns
    }

    pub(super) fn matches(&self, path: &AsPath) -> bool {
        let asns = path.asns();
        let length = || u32::try_from(asns.len()).unwrap_or(u32::MAX);
        let is_one_of = |wanted: &[u32], asn: Option<&u32>| {
            wanted.is_empty() || asn.is_some_and(|asn| wanted.contains(asn))
        };
        (self.contains.is_empty() || self.contains.iter().any(|asn| path.contains(*asn)))
            && is_one_of(&self.origin, asns.last())
            && is_one_of(&self.neighbor, asns.first())
            && self.length.as_ref().is_none_or(|range| range.contains(&length()))
            && (self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.matches(asns)))
    }
}

/// A pattern for a whole AS_PATH, as words: an AS number, a range `64512-65534`, `?` for any one AS, `*` for any number of them, none
/// too. `65001 * 65002` is a path from AS 65002 that we heard from AS 65001.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AsPathPattern(Box<[Word]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    /// One AS with a number from the first to the second, both included.
    One(u32, u32),
    Any,
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AsPathPatternError {
    /// A word is none of the four kinds.
    #[error("{0:?} is no AS number, no range of them, no \"?\" and no \"*\"")]
    Word(String),
    /// It has too many words.
    #[error("more than {} words", AsPathPattern::MAX_WORDS)]
    Long,
}

impl AsPathPattern {
    /// Most words of a pattern.
    pub const MAX_WORDS: usize = 64;

    /// True if the whole path looks like this. What a `*` took is given back step by step, to the last `*` only, which is enough: an
    /// earlier one need never take more than it has to.
    fn matches(&self, path: &[u32]) -> bool {
        let (mut word, mut at) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while at < path.len() {
            match self.0.get(word) {
                Some(Word::Any) => {
                    word += 1;
                    retry = Some((word, at));
                    continue;
                }
                Some(Word::One(first, last)) if (*first..=*last).contains(&path[at]) => {
                    (word, at) = (word + 1, at + 1);
                    continue;
                }
                _ => {}
            }
            let Some((after, taken)) = retry else { return false };
            (word, at) = (after, taken + 1);
            retry = Some((after, taken + 1));
        }
        self.0[word..].iter().all(|rest| *rest == Word::Any)
    }
}

impl FromStr for AsPathPattern {
    type Err = AsPathPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<_> =
            text.split_whitespace().take(Self::MAX_WORDS + 1).map(word).collect::<Result<_, _>>()?;
        if words.len() > Self::MAX_WORDS {
            return Err(AsPathPatternError::Long);
        }
        Ok(Self(words.into()))
    }
}

fn word(text: &str) -> Result<Word, AsPathPatternError> {
    let number = |digits: &str| digits.parse::<u32>().ok();
    let found = match (text, text.split_once('-')) {
        ("*", _) => Some(Word::Any),
        ("?", _) => Some(Word::One(0, u32::MAX)),
        (_, Some((first, last))) => number(first)
            .zip(number(last))
            .filter(|(first, last)| first <= last)
            .map(|(a, b)| Word::One(a, b)),
        (_, None) => number(text).map(|asn| Word::One(asn, asn)),
    };
    found.ok_or_else(|| AsPathPatternError::Word(text.chars().take(40).collect()))
}

impl fmt::Display for AsPathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            match word {
                Word::Any => write!(f, "{space}*")?,
                Word::One(0, u32::MAX) => write!(f, "{space}?")?,
                Word::One(first, last) if first == last => write!(f, "{space}{first}")?,
                Word::One(first, last) => write!(f, "{space}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> AsPathPattern {
        text.parse().unwrap()
    }

    #[test]
    fn patterns() {
        let cases: &[(&str, &[u32], bool)] = &[
            ("", &[], true),
            ("", &[1], false),
            ("*", &[], true),
            ("*", &[1, 2, 3], true),
            ("?", &[], false),
            ("?", &[7], true),
            ("65001 * 65002", &[65_001, 65_002], true),
            ("65001 * 65002", &[65_001, 1, 2, 65_002], true),
            ("65001 * 65002", &[65_001, 1, 65_002, 2], false),
            ("65001 * 65002", &[65_001], false),
            ("* 5 *", &[1, 5, 2], true),
            ("* 5 *", &[5], true),
            ("* 5 *", &[1, 2], false),
            ("* 5 5 6 *", &[5, 5, 5, 6], true),
            ("64512-65534", &[64_512], true),
            ("64512-65534", &[65_535], false),
            ("* 1 * 2 *", &[2, 1], false),
        ];
        for (text, path, expected) in cases {
            assert_eq!(pattern(text).matches(path), *expected, "{text:?} on {path:?}");
            assert_eq!(pattern(text).to_string(), *text);
        }
        for wrong in ["x", "1-", "3-2", "-", "4294967296", "1 ** 2", "65001:1"] {
            assert!(wrong.parse::<AsPathPattern>().is_err(), "{wrong}");
        }
        assert_eq!("1 ".repeat(65).parse::<AsPathPattern>(), Err(AsPathPatternError::Long));
    }

    /// The definition, word by word.
    fn naive(words: &[Word], path: &[u32]) -> bool {
        match (words, path) {
            ([], []) => true,
            ([Word::Any, rest @ ..], _) => (0..=path.len()).any(|taken| naive(rest, &path[taken..])),
            ([Word::One(a, b), rest @ ..], [asn, tail @ ..]) => (a..=b).contains(&asn) && naive(rest, tail),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matches_as_defined(
            words in prop::collection::vec(prop::sample::select(vec!["*", "?", "1", "2", "2-3"]), 0..7),
            path in prop::collection::vec(1u32..4, 0..8),
        ) {
            let pattern = pattern(&words.join(" "));
            prop_assert_eq!(pattern.matches(&path), naive(&pattern.0, &path));
        }
    }
}
