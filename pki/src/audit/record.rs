//! One line of the log: written with a fixed order of members, read strictly.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::hash::Hash;
use crate::facts::utc;

/// Longest line, in bytes without its end.
pub const MAX_LINE: usize = 32 << 10;
/// Longest text of one member, in bytes; what is longer is cut. Two long and two short ones, each byte escaped to six, fit [`MAX_LINE`].
const MAX_TEXT: usize = 2048;
const MAX_SHORT: usize = 256;
/// Between the bytes that are hashed and the hash.
const MARK: &[u8] = br#","hash":""#;
/// Bytes from the mark to the end of the line.
const TAIL: usize = MARK.len() + 64 + 2;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file of the log begins.
    Opened,
    /// A certificate was issued.
    X509,
    /// A token was issued.
    Jwt,
    /// Something was asked for and not issued.
    Refused,
    /// Refusals that were not written one by one, since there were too many of them.
    Suppressed,
    /// A key that signs tokens was made, came into use or went.
    JwtKey,
    /// The last line of a file was found incomplete, and set aside.
    Torn,
    /// The log could not be written for a while.
    Resumed,
    /// Somebody ordered something, or what came of that.
    Operator,
}

impl Kind {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::X509 => "x509",
            Self::Jwt => "jwt",
            Self::Refused => "refused",
            Self::Suppressed => "suppressed",
            Self::JwtKey => "jwt-key",
            Self::Torn => "torn",
            Self::Resumed => "resumed",
            Self::Operator => "operator",
        }
    }
}

/// What is to be written. Empty texts are left out.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// When.
    pub time: OffsetDateTime,
    /// What.
    pub kind: Kind,
    /// The SPIFFE ID that it is about.
    pub id: &'a str,
    /// Serial number of a certificate, key ID of a token's key: lower-case hex.
    pub serial: &'a str,
    /// Last valid second of what was issued, since the Unix epoch.
    pub not_after: Option<i64>,
    /// Who asked.
    pub requester: &'a str,
    /// Why, or why not.
    pub reason: &'a str,
}

/// A line that was read, and whose hash is right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Counts from 1 through all files of a log.
    pub seq: u64,
    /// RFC 3339, UTC, to the second.
    pub time: String,
    /// [`Kind`]; a later version may write others.
    pub kind: String,
    /// The SPIFFE ID that it is about, or empty.
    pub id: String,
    /// Serial number or key ID, or empty.
    pub serial: String,
    /// Last valid second, since the Unix epoch.
    pub not_after: Option<i64>,
    /// Who asked, or empty.
    pub requester: String,
    /// Why, or empty.
    pub reason: String,
    /// Peaks of the tree before this record, in the first of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peaks: Option<Vec<Hash>>,
    /// Hash of the record before.
    pub prev: Hash,
    /// Own hash.
    pub hash: Hash,
}

/// Why a line is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Beyond [`MAX_LINE`].
    #[error("the line has more than {MAX_LINE} bytes")]
    TooLong,
    /// The line does not end with its hash.
    #[error("the line does not end with its hash: it is cut off, or no line of an audit log")]
    NoHash,
    /// The line was changed.
    #[error("the line was changed: it says hash {stated}, its bytes have {computed}")]
    Changed {
        /// What the line says.
        stated: Hash,
        /// What its bytes come to.
        computed: Hash,
    },
    /// The hash is right, but the line makes no record.
    #[error("not a record: {0}")]
    Json(String),
}

/// What is hashed and written.
#[derive(Serialize)]
struct Body<'a> {
    seq: u64,
    time: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    serial: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_after: Option<i64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    requester: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    peaks: Option<&'a [Hash]>,
    prev: Hash,
}

/// Appends the line and its end to `out`; returns its hash.
pub(super) fn write(
    entry: &Entry<'_>,
    seq: u64,
    peaks: Option<&[Hash]>,
    prev: Hash,
    out: &mut Vec<u8>,
) -> Hash {
    let body = Body {
        seq,
        time: &utc(entry.time.unix_timestamp()),
        kind: entry.kind.as_str(),
        id: cut(entry.id, MAX_TEXT),
        serial: cut(entry.serial, MAX_SHORT),
        not_after: entry.not_after,
        requester: cut(entry.requester, MAX_TEXT),
        reason: cut(entry.reason, MAX_SHORT),
        peaks,
        prev,
    };
    let start = out.len();
    serde_json::to_writer(&mut *out, &body).expect("numbers and texts become JSON, and memory takes it");
    // The closing brace comes back behind the hash.
    out.pop();
    let hash = Hash::leaf(&out[start..]);
    out.extend_from_slice(MARK);
    out.extend_from_slice(&hash.to_hex());
    out.extend_from_slice(b"\"}\n");
    hash
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[derive(Deserialize)]
struct Raw {
    seq: u64,
    time: String,
    kind: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    serial: String,
    not_after: Option<i64>,
    #[serde(default)]
    requester: String,
    #[serde(default)]
    reason: String,
    peaks: Option<Vec<Hash>>,
    prev: Hash,
    hash: Hash,
}

impl Record {
    /// Reads a line without its end, and checks its hash.
    pub fn parse(line: &[u8]) -> Result<Self, Malformed> {
        if line.len() > MAX_LINE {
            return Err(Malformed::TooLong);
        }
        let (body, stated) = split(line).ok_or(Malformed::NoHash)?;
        let computed = Hash::leaf(body);
        if computed != stated {
            return Err(Malformed::Changed { stated, computed });
        }
        let raw: Raw = serde_json::from_slice(line).map_err(|e| Malformed::Json(e.to_string()))?;
        // No log has more than half of what the number holds: adding one to it is safe.
        if raw.seq == 0 || raw.seq > u64::MAX / 2 || raw.hash != stated {
            return Err(Malformed::Json("its members contradict each other".into()));
        }
        let Raw { seq, time, kind, id, serial, not_after, requester, reason, peaks, prev, hash } = raw;
        Ok(Self { seq, time, kind, id, serial, not_after, requester, reason, peaks, prev, hash })
    }
}

/// The bytes that are hashed, and the hash behind them.
fn split(line: &[u8]) -> Option<(&[u8], Hash)> {
    let (body, tail) = line.split_at_checked(line.len().checked_sub(TAIL)?)?;
    let hash = tail.strip_prefix(MARK)?.strip_suffix(b"\"}")?;
    Hash::from_hex(hash).map(|hash| (body, hash))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    fn line(entry: &Entry<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        write(entry, 7, None, Hash::NONE, &mut out);
        assert_eq!(out.pop(), Some(b'\n'));
        out
    }

    fn entry<'a>() -> Entry<'a> {
        Entry {
            time: datetime!(2026-06-01 12:00 UTC),
            kind: Kind::X509,
            id: "spiffe://td/w",
            serial: "4a",
            not_after: Some(12),
            requester: "workload uid=1 pid=2",
            reason: "",
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let line = line(&entry());
        let record = Record::parse(&line).unwrap();
        assert_eq!(
            (record.seq, record.time.as_str(), record.kind.as_str()),
            (7, "2026-06-01T12:00:00Z", "x509")
        );
        assert_eq!(
            (record.id.as_str(), record.serial.as_str(), record.not_after),
            ("spiffe://td/w", "4a", Some(12))
        );
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["hash"].as_str().unwrap(), record.hash.to_string());
        assert!(value.get("reason").is_none() && value.get("peaks").is_none());
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let line = line(&entry());
        for at in 0..line.len() {
            let mut changed = line.clone();
            changed[at] ^= 1;
            assert!(Record::parse(&changed).is_err(), "{at}");
            assert!(Record::parse(&line[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn a_text_can_neither_end_the_line_nor_make_it_too_long() {
        let hostile = "\u{1}".repeat(5000);
        let line =
            line(&Entry { id: &hostile, serial: &hostile, requester: &hostile, reason: &hostile, ..entry() });
        assert!(line.len() <= MAX_LINE && !line.contains(&b'\n'), "{}", line.len());
        let record = Record::parse(&line).unwrap();
        assert!(hostile.starts_with(&record.id) && record.id.len() == MAX_TEXT);
    }

    #[test]
    fn a_member_that_is_there_twice_is_refused() {
        let mut body = br#"{"seq":1,"seq":2,"time":"","kind":"x","prev":""#.to_vec();
        body.extend_from_slice(&Hash::NONE.to_hex());
        body.push(b'"');
        let hash = Hash::leaf(&body);
        let line = [body.as_slice(), MARK, &hash.to_hex(), b"\"}"].concat();
        assert!(matches!(Record::parse(&line), Err(Malformed::Json(_))));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Record::parse(&bytes);
            let hash = Hash::leaf(&bytes);
            bytes.extend_from_slice(MARK);
            bytes.extend_from_slice(&hash.to_hex());
            bytes.extend_from_slice(b"\"}");
            let by_hash = matches!(Record::parse(&bytes), Err(Malformed::Changed { .. } | Malformed::NoHash));
            prop_assert!(!by_hash);
        }
    }
}
