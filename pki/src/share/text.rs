//! The text of a share file, written strictly and read with a scanner's and a typist's usual mistakes in mind.
//!
//! ```text
//! -----BEGIN ISTHMUS KEY SHARE-----
//! Version:   1
//! Set:       9c41-77d0-0b12-3f2a
//! Threshold: 2
//! Total:     3
//! Index:     1
//! Data 1:    3f2a 9c41 77d0 0b12 = 5e1c
//! Data 2:    ...
//! Data 3:    ...
//! Data 4:    ...
//! Checksum:  8a31 c0de 44f1 90ab
//! -----END ISTHMUS KEY SHARE-----
//! ```

use std::{collections::BTreeMap, fmt::Write as _};

use aws_lc_rs::digest;
use zeroize::Zeroizing;

use super::{SetId, Share};
use crate::shamir::{Quorum, SECRET_LEN, Secret};

/// Longest share file that is read, in bytes: room for what a custodian notes beside it.
pub const MAX_LEN: usize = 16 << 10;
/// What stands after BEGIN and END.
pub const LABEL: &str = "ISTHMUS KEY SHARE";
const VERSION: &str = "1";
const BEGIN: &str = "BEGIN ISTHMUS KEY SHARE";
const END: &str = "END ISTHMUS KEY SHARE";
const ROW: usize = 8;
const FIELDS: [&str; 10] =
    ["version", "set", "threshold", "total", "index", "data 1", "data 2", "data 3", "data 4", "checksum"];

/// Why a file is not a sound share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Beyond [`MAX_LEN`].
    #[error("{0} bytes are too many for a share")]
    TooLong(usize),
    /// Not UTF-8.
    #[error("not a text")]
    NotText,
    /// No share, or several.
    #[error("{0} key shares in it; a share file has one, from BEGIN to END ISTHMUS KEY SHARE")]
    Count(usize),
    /// A line that says nothing we know.
    #[error(
        "line {0} can't be read; it should be one of Version, Set, Threshold, Total, Index, Data 1 to 4, Checksum"
    )]
    Line(usize),
    /// A field twice.
    #[error("line {0} is there twice")]
    Twice(usize),
    /// A field that is not there.
    #[error("the line {0:?} is missing")]
    Missing(&'static str),
    /// A field that can't be right.
    #[error("the line {0:?} can't be read; compare it with the print")]
    Field(&'static str),
    /// Made by a later version.
    #[error("version {0:?} of the format is not known here; a newer isthmus-ca wrote it")]
    Version(String),
    /// A line of data against its own check.
    #[error(
        "the line {0:?} was mangled: its check, after the =, does not fit; compare it with the print digit by digit"
    )]
    Mangled(&'static str),
    /// All of it against the checksum.
    #[error(
        "the checksum does not fit: one of Set, Threshold, Total, Index or Checksum was mangled; compare them with the print"
    )]
    Checksum,
}

impl Share {
    /// The file's text.
    pub fn to_text(&self) -> Zeroizing<String> {
        // Room for all of it at once: a growing buffer leaves copies of a secret behind.
        let mut text = Zeroizing::new(String::with_capacity(1024));
        let _ = writeln!(text, "-----{BEGIN}-----");
        for (name, value) in [
            ("Version", VERSION.to_owned()),
            ("Set", self.set.to_string()),
            ("Threshold", self.quorum.threshold().to_string()),
            ("Total", self.quorum.total().to_string()),
            ("Index", self.index.to_string()),
        ] {
            let _ = writeln!(text, "{:<10} {value}", format!("{name}:"));
        }
        for (number, row) in (1..).zip(self.data.chunks(ROW)) {
            let _ = write!(text, "Data {number}:    ");
            groups(&mut text, row);
            let _ = write!(text, "= ");
            groups(&mut text, &row_check(number, row));
            end_line(&mut text);
        }
        let _ = write!(text, "Checksum:  ");
        groups(&mut text, &self.checksum());
        end_line(&mut text);
        let _ = writeln!(text, "-----{END}-----");
        text
    }

    /// Reads a share file. What stands before BEGIN and after END is the custodian's business.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_LEN {
            return Err(Error::TooLong(bytes.len()));
        }
        let fields = fields(std::str::from_utf8(bytes).map_err(|_| Error::NotText)?)?;
        let field = |name: &'static str| fields.get(name).copied().ok_or(Error::Missing(name));
        match field("version")? {
            VERSION => {}
            other => return Err(Error::Version(other.chars().take(20).collect())),
        }
        let number = |name| field(name)?.parse::<u8>().map_err(|_| Error::Field(name));
        let quorum =
            Quorum::new(number("threshold")?, number("total")?).map_err(|_| Error::Field("threshold"))?;
        let index = number("index")?;
        if index == 0 || index > quorum.total() {
            return Err(Error::Field("index"));
        }
        let set = set(field("set")?).ok_or(Error::Field("set"))?;
        let share = Self { set, quorum, index, data: data(field)? };
        let checksum = hex::<ROW>(field("checksum")?).ok_or(Error::Field("checksum"))?;
        if *checksum == share.checksum() { Ok(share) } else { Err(Error::Checksum) }
    }

    fn checksum(&self) -> [u8; ROW] {
        let head = [self.quorum.threshold(), self.quorum.total(), self.index];
        digest_of(b"isthmus key share 1", &[&self.set.0, &head, self.data.as_slice()])
    }
}

fn data<'a>(field: impl Fn(&'static str) -> Result<&'a str, Error>) -> Result<Secret, Error> {
    let mut data = Secret::default();
    for (number, (name, into)) in (1..).zip(FIELDS[5..9].iter().zip(data.chunks_mut(ROW))) {
        let row = hex::<{ ROW + 2 }>(field(name)?).ok_or(Error::Field(name))?;
        let (row, check) = row.split_at(ROW);
        if check != row_check(number, row) {
            return Err(Error::Mangled(name));
        }
        into.copy_from_slice(row);
    }
    debug_assert_eq!(data.len(), SECRET_LEN);
    Ok(data)
}

/// Lines between BEGIN and END by their name, in lower case.
fn fields(text: &str) -> Result<BTreeMap<&'static str, &str>, Error> {
    let (begins, ends) = (text.matches(BEGIN).count(), text.matches(END).count());
    if (begins, ends) != (1, 1) {
        return Err(Error::Count(begins.max(ends) * usize::from(begins == ends)));
    }
    let mut fields = BTreeMap::new();
    let lines = text.lines().enumerate().skip_while(|(_, line)| !line.contains(BEGIN)).skip(1);
    for (at, line) in lines.take_while(|(_, line)| !line.contains(END)).filter(|(_, l)| !l.trim().is_empty())
    {
        let (name, value) = line.split_once(':').ok_or(Error::Line(at + 1))?;
        let name = known(name).ok_or(Error::Line(at + 1))?;
        if fields.insert(name, value.trim()).is_some() {
            return Err(Error::Twice(at + 1));
        }
    }
    Ok(fields)
}

fn known(name: &str) -> Option<&'static str> {
    let words: Vec<_> = name.split_whitespace().map(str::to_ascii_lowercase).collect();
    let name = words.join(" ");
    FIELDS.into_iter().find(|field| *field == name)
}

/// A set's name as people write it.
pub(super) fn set(text: &str) -> Option<SetId> {
    hex::<8>(text).map(|bytes| SetId(*bytes))
}

/// Exactly N bytes of hex. Spaces and marks between groups don't count, and letters that are no hex digits but look like one do.
fn hex<const N: usize>(text: &str) -> Option<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    let mut count = 0;
    for c in text.chars().filter(|c| !(c.is_whitespace() || matches!(c, '-' | '–' | '=' | '.' | '_'))) {
        let digit = u8::try_from(lookalike(c).to_digit(16)?).ok()?;
        let byte = bytes.get_mut(count / 2)?;
        *byte = *byte << 4 | digit;
        count += 1;
    }
    (count == N * 2).then_some(bytes)
}

fn lookalike(c: char) -> char {
    match c {
        'o' | 'O' | 'Q' => '0',
        'i' | 'I' | 'l' | 'L' | '|' => '1',
        'z' | 'Z' => '2',
        's' | 'S' => '5',
        other => other,
    }
}

/// Two bytes in each group.
fn groups(text: &mut String, bytes: &[u8]) {
    for pair in bytes.chunks(2) {
        for byte in pair {
            let _ = write!(text, "{byte:02x}");
        }
        text.push(' ');
    }
}

fn end_line(text: &mut String) {
    text.truncate(text.trim_end().len());
    text.push('\n');
}

/// Does not depend on the set: a custodian who compares rows of two prints compares data.
fn row_check(number: u8, row: &[u8]) -> [u8; 2] {
    digest_of(b"isthmus key share row 1", &[&[number], row])
}

fn digest_of<const N: usize>(context: &[u8], parts: &[&[u8]]) -> [u8; N] {
    let mut digest = digest::Context::new(&digest::SHA256);
    digest.update(context);
    parts.iter().for_each(|part| digest.update(part));
    let digest = digest.finish();
    std::array::from_fn(|at| digest.as_ref()[at])
}
