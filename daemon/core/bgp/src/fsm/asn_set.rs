//! Which AS numbers a peer may have.

use std::{fmt, ops::RangeInclusive, sync::Arc};

/// AS numbers that a peer may have: one for a peer by name, any of several for one that a template admits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsnSet(Arc<[RangeInclusive<u32>]>);

impl AsnSet {
    /// From ranges, in any order.
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<u32>>) -> Self {
        Self(ranges.into_iter().collect())
    }

    /// True if the number is in the set. Zero never is: it is nobody's (RFC 7607).
    pub fn contains(&self, asn: u32) -> bool {
        asn != 0 && self.0.iter().any(|range| range.contains(&asn))
    }
}

impl From<u32> for AsnSet {
    fn from(asn: u32) -> Self {
        Self::new([asn..=asn])
    }
}

impl fmt::Display for AsnSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, range) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_or_several() {
        let one = AsnSet::from(65_001);
        assert!(one.contains(65_001) && !one.contains(65_002));
        let several = AsnSet::new([1..=3, 65_001..=65_001]);
        assert!(several.contains(2) && several.contains(65_001) && !several.contains(4));
        assert_eq!((one.to_string(), several.to_string()), ("65001".into(), "1-3, 65001".into()));
        assert!(!AsnSet::new([0..=u32::MAX]).contains(0));
    }
}
