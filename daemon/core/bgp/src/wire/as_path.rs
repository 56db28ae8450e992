//! AS_PATH (RFC 4271 section 5.1.2) and its passage through speakers that know two octets only (RFC 6793).

use std::fmt;

use super::reader::Reader;
use crate::AS_TRANS;

const AS_SET: u8 = 1;
const AS_SEQUENCE: u8 = 2;
const CONFED_SEQUENCE: u8 = 3;
const CONFED_SET: u8 = 4;

/// The ASes a route passed, nearest first. Only sequences: a route with an AS_SET is withdrawn (RFC 9774), and so a path is a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AsPath(Box<[u32]>);

impl AsPath {
    /// A path of these ASes, nearest first.
    pub fn new(asns: Vec<u32>) -> Self {
        Self(asns.into())
    }

    /// The ASes, nearest first.
    pub fn asns(&self) -> &[u32] {
        &self.0
    }

    /// The neighbor that sent the route.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// Number of ASes, as the decision process counts them.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True for a route that never left its AS.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the AS is on the path.
    pub fn contains(&self, asn: u32) -> bool {
        self.0.contains(&asn)
    }

    /// The path as it leaves `asn`.
    #[must_use]
    pub fn prepended(&self, asn: u32) -> Self {
        Self([&[asn], &*self.0].concat().into())
    }

    /// Decodes AS_PATH or AS4_PATH.
    ///
    /// # Errors
    /// What is wrong: unknown or empty or truncated segment, a set, a confederation, AS 0 (RFC 7606 section 7.2, 7607, 9774).
    pub(super) fn decode(value: &[u8], four_octet: bool) -> Result<Self, PathFault> {
        let mut reader = Reader::new(value);
        let mut asns = Vec::new();
        while let Some(kind) = reader.u8() {
            let count = reader.u8().ok_or(PathFault::Truncated)?;
            match kind {
                AS_SEQUENCE => {}
                AS_SET | CONFED_SET => return Err(PathFault::Set),
                CONFED_SEQUENCE => return Err(PathFault::Confederation),
                _ => return Err(PathFault::UnknownSegment),
            }
            if count == 0 {
                return Err(PathFault::EmptySegment);
            }
            for _ in 0..count {
                let asn = if four_octet { reader.u32() } else { reader.u16().map(u32::from) };
                asns.push(asn.ok_or(PathFault::Truncated)?);
            }
        }
        if asns.contains(&0) {
            return Err(PathFault::Zero);
        }
        Ok(Self(asns.into()))
    }

    /// Appends the attribute's value.
    pub(super) fn encode(&self, four_octet: bool, out: &mut Vec<u8>) {
        for segment in self.0.chunks(usize::from(u8::MAX)) {
            // A chunk has at most 255 members.
            out.extend([AS_SEQUENCE, u8::try_from(segment.len()).unwrap_or(u8::MAX)]);
            for asn in segment {
                if four_octet {
                    out.extend(asn.to_be_bytes());
                } else {
                    out.extend(two_octets(*asn).to_be_bytes());
                }
            }
        }
    }

    /// Octets of the attribute's value.
    pub(super) fn wire_length(&self, four_octet: bool) -> usize {
        2 * self.0.len().div_ceil(usize::from(u8::MAX)) + self.0.len() * if four_octet { 4 } else { 2 }
    }

    /// True if a two-octet speaker needs AS4_PATH beside AS_PATH.
    pub(super) fn needs_four_octets(&self) -> bool {
        self.0.iter().any(|asn| u16::try_from(*asn).is_err())
    }

    /// The true path from what a two-octet speaker sent (RFC 6793 section 4.2.3).
    #[must_use]
    pub(super) fn merged(self, four: Option<Self>) -> Self {
        let Some(four) = four.filter(|four| four.len() <= self.len()) else { return self };
        let leading = self.len() - four.len();
        Self([&self.0[..leading], &*four.0].concat().into())
    }
}

/// An AS number for a two-octet field.
pub(super) fn two_octets(asn: u32) -> u16 {
    u16::try_from(asn).or_else(|_| u16::try_from(AS_TRANS)).unwrap_or(u16::MAX)
}

/// Why an AS_PATH is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathFault {
    #[error("a segment runs past the end")]
    Truncated,
    #[error("a segment type is unknown")]
    UnknownSegment,
    #[error("a segment is empty")]
    EmptySegment,
    #[error("an AS_SET is deprecated (RFC 9774)")]
    Set,
    #[error("a confederation segment from outside a confederation")]
    Confederation,
    #[error("AS 0 is reserved (RFC 7607)")]
    Zero,
}

impl fmt::Display for AsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, asn) in self.0.iter().enumerate() {
            write!(f, "{}{asn}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments() {
        let decode = |value: &[u8], four| AsPath::decode(value, four).map(|path| path.to_string());
        let cases: &[(&[u8], bool, Result<&str, PathFault>)] = &[
            (&[], true, Ok("")),
            // the capability says how wide a number is, never the bytes: {100 200}{300}
            (&[2, 2, 0, 100, 0, 200, 2, 1, 1, 44], false, Ok("100 200 300")),
            (&[2, 1, 0, 1, 0, 0], true, Ok("65536")),
            (&[2, 2, 0, 1, 0, 0], true, Err(PathFault::Truncated)),
            (&[2, 2, 0, 100, 0], false, Err(PathFault::Truncated)),
            (&[2], false, Err(PathFault::Truncated)),
            (&[2, 0], false, Err(PathFault::EmptySegment)),
            (&[1, 1, 0, 100], false, Err(PathFault::Set)),
            (&[4, 1, 0, 100], false, Err(PathFault::Set)),
            (&[3, 1, 0, 100], false, Err(PathFault::Confederation)),
            (&[5, 1, 0, 100], false, Err(PathFault::UnknownSegment)),
            (&[0, 1, 0, 100], false, Err(PathFault::UnknownSegment)),
            (&[2, 2, 0, 100, 0, 0], false, Err(PathFault::Zero)),
        ];
        for (value, four, expected) in cases {
            assert_eq!(decode(value, *four), expected.map(str::to_string), "{value:?}");
        }
    }

    #[test]
    fn merge_follows_rfc_6793() {
        let path = |asns: &[u32]| AsPath::new(asns.to_vec());
        let merged = |two: &[u32], four: Option<&[u32]>| path(two).merged(four.map(path)).asns().to_vec();
        assert_eq!(merged(&[100, 23456], Some(&[70000])), [100, 70000]);
        assert_eq!(merged(&[23456, 23456], Some(&[70000, 80000])), [70000, 80000]);
        assert_eq!(merged(&[23456], Some(&[70000, 80000])), [23456], "a longer AS4_PATH is ignored");
        assert_eq!(merged(&[100, 200], None), [100, 200]);
    }

    #[test]
    fn long_paths_take_several_segments() {
        let path = AsPath::new((1..=600).collect());
        for four in [false, true] {
            let mut bytes = Vec::new();
            path.encode(four, &mut bytes);
            assert_eq!(AsPath::decode(&bytes, four).unwrap(), path);
        }
    }
}
