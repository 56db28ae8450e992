//! Share files: one custodian's part of a wrapping key, as text that survives being printed, scanned and typed.
//!
//! What is split is a random wrapping key, never the root key itself: the root key lies in a PBES2 file whose passphrase is the
//! wrapping key in hex, so OpenSSL opens it too. Each line of data carries a check of its own, so that a custodian learns which line
//! was mangled; all of it carries one more. A share names its set: shares of two sets are refused, not combined.
//!
//! [`create`] makes a set, [`Share::parse`] reads one file and checks it alone, [`combine`] needs a quorum.

mod text;

use std::fmt;

use zeroize::Zeroizing;

pub use text::{Error, LABEL, MAX_LEN};

use crate::shamir::{self, Point, Quorum, SECRET_LEN, Secret};

/// Names the set that a share belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetId([u8; 8]);

impl SetId {
    /// From fresh random bytes: two sets never have the same.
    pub fn from_random(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<_> = self.0.chunks(2).map(hex::encode).collect();
        f.write_str(&groups.join("-"))
    }
}

impl fmt::Debug for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One share. [`Share::to_text`] writes the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Share {
    set: SetId,
    quorum: Quorum,
    index: u8,
    data: Secret,
}

impl Share {
    /// The set that it belongs to.
    pub fn set(&self) -> SetId {
        self.set
    }

    /// How many shares of the set there are, and how many it takes.
    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// Which one of the set, from 1.
    pub fn index(&self) -> u8 {
        self.index
    }

    fn point(&self) -> Point {
        Point { index: self.index, values: self.data.clone() }
    }
}

/// A share's data is a secret.
impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({} {} {})", self.set, self.index, self.quorum)
    }
}

/// Splits a wrapping key; `fill` gives random bytes.
pub fn create<E>(
    key: &Secret,
    quorum: Quorum,
    set: SetId,
    fill: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<Vec<Share>, E> {
    let share = |point: Point| Share { set, quorum, index: point.index, data: point.values };
    Ok(shamir::split(key, quorum, fill)?.into_iter().map(share).collect())
}

/// Why shares can't be combined; files are named as the caller named them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// None at all.
    #[error("no share was given")]
    None,
    /// Of another set than the rest, or than the key.
    #[error("{file}: this share is of set {set}, but {other} of set {wanted}; take the shares of one set")]
    OtherSet {
        /// Whose fault.
        file: String,
        /// The file's set.
        set: SetId,
        /// What it is held against: "first.share is" or "root.key is wrapped by the shares".
        other: String,
        /// The set of that.
        wanted: SetId,
    },
    /// Two files say different things of one set: one of them was tampered with.
    #[error("{file}: says {says}, but {other} says {wanted} of the same set; one of them was changed")]
    Contradiction {
        /// Whose fault, perhaps.
        file: String,
        /// Its quorum.
        says: Quorum,
        /// The other file.
        other: String,
        /// The quorum there.
        wanted: Quorum,
    },
    /// One share twice.
    #[error("{file}: this is share {index}, which {other} is too; a share counts once")]
    Twice {
        /// The second file.
        file: String,
        /// The first.
        other: String,
        /// Which share.
        index: u8,
    },
    /// Not enough of them.
    #[error("{have} of the {need} shares that set {set} needs are here ({files}); bring {missing} more")]
    TooFew {
        /// The set.
        set: SetId,
        /// How many there are.
        have: usize,
        /// How many it takes.
        need: u8,
        /// How many are missing.
        missing: usize,
        /// Which there are.
        files: String,
    },
    /// More shares than needed, and this one does not fit the others.
    #[error(
        "{file}: does not belong to the other shares of set {set}, though it says so; take other shares to find the wrong one"
    )]
    Unfit {
        /// The file that does not fit, if the first ones are right.
        file: String,
        /// The set.
        set: SetId,
    },
}

/// A share and the file that it came from.
#[derive(Clone, Debug)]
pub struct Named {
    /// For messages.
    pub file: String,
    /// What is in it.
    pub share: Share,
}

/// The wrapping key. `wanted` is the set that the key file names, if it does, with the words for a message: "root.key is wrapped by
/// the shares". More shares than needed are checked against each other.
pub fn combine(shares: &[Named], wanted: Option<(SetId, &str)>) -> Result<Secret, Refusal> {
    let first = shares.first().ok_or(Refusal::None)?;
    let quorum = first.share.quorum;
    let against = wanted.map(|(set, words)| (set, words.to_owned()));
    let (set, other) = against.unwrap_or_else(|| (first.share.set, format!("{} is", first.file)));
    for (at, named) in shares.iter().enumerate() {
        check_set(named, set, &other)?;
        check_against(named, &shares[..at])?;
    }
    let need = usize::from(quorum.threshold());
    if shares.len() < need {
        let files: Vec<_> = shares.iter().map(|named| named.file.as_str()).collect();
        let (have, need, files) = (shares.len(), quorum.threshold(), files.join(", "));
        return Err(Refusal::TooFew { set, have, need, missing: usize::from(need) - have, files });
    }
    let points: Vec<_> = shares[..need].iter().map(|named| named.share.point()).collect();
    match shares[need..].iter().find(|n| shamir::interpolate(&points, n.share.index) != n.share.data) {
        Some(named) => Err(Refusal::Unfit { file: named.file.clone(), set }),
        None => Ok(shamir::interpolate(&points, 0)),
    }
}

fn check_set(named: &Named, wanted: SetId, other: &str) -> Result<(), Refusal> {
    if named.share.set == wanted {
        return Ok(());
    }
    let (file, set) = (named.file.clone(), named.share.set);
    Err(Refusal::OtherSet { file, set, other: other.to_owned(), wanted })
}

fn check_against(named: &Named, earlier: &[Named]) -> Result<(), Refusal> {
    let (file, says) = (named.file.clone(), named.share.quorum);
    for other in earlier {
        if other.share.quorum != says {
            let wanted = other.share.quorum;
            return Err(Refusal::Contradiction { file, says, other: other.file.clone(), wanted });
        }
        if other.share.index == named.share.index {
            return Err(Refusal::Twice { file, other: other.file.clone(), index: named.share.index });
        }
    }
    Ok(())
}

/// The wrapping key as the passphrase of the PBES2 file: 64 hex digits, lower case.
pub fn passphrase(key: &Secret) -> Zeroizing<Vec<u8>> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = Zeroizing::new(Vec::with_capacity(SECRET_LEN * 2));
    for byte in key.iter() {
        text.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    text
}

const MARK: &str = "Isthmus-Share-Set: ";

/// Writes before a PEM block which shares open it; PEM readers skip text there (RFC 7468 section 2).
pub fn mark(pem: &str, set: SetId, quorum: Quorum) -> String {
    format!("{MARK}{set} ({quorum})\n{pem}")
}

/// The set that [`mark`] named.
pub fn marked(pem: &[u8]) -> Option<SetId> {
    let text = std::str::from_utf8(pem).ok()?;
    let line =
        text.lines().take_while(|line| !line.starts_with("-----BEGIN")).find_map(|l| l.strip_prefix(MARK))?;
    text::set(line.split(' ').next()?)
}

#[cfg(test)]
mod tests;
