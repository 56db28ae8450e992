//! Reading a log from front to back: the first line that is wrong is named, and nothing behind it is believed.

use super::{
    chain::Chain,
    hash::Hash,
    head::Head,
    record::{Malformed, Record},
};

/// Where a log is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Broken {
    /// Line of the file, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Not a record.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Records are missing, or there twice.
    #[error("record {found} is where record {expected} belongs: records were removed, added or moved")]
    Sequence {
        /// What belongs here.
        expected: u64,
        /// What is here.
        found: u64,
    },
    /// The record was made for another predecessor.
    #[error("the record before was exchanged: this one follows {found}, that one is {expected}")]
    Previous {
        /// Hash of the record before.
        expected: Hash,
        /// What this one says it is.
        found: Hash,
    },
    /// A file that does not begin with an opening record.
    #[error(
        "a file of the log begins with a record that carries the tree's peaks: lines before this one were removed"
    )]
    NotOpened,
    /// The tree was forged.
    #[error("the tree's peaks in this record are not those of the records before it")]
    Peaks,
    /// The log differs from what was signed.
    #[error(
        "the tree over the first {size} records has root {found}, the signed head says {expected}: records up to here were exchanged"
    )]
    Head {
        /// How many records the head covers.
        size: u64,
        /// Of the head.
        expected: Hash,
        /// Of the records.
        found: Hash,
    },
    /// Less than what was signed.
    #[error("the log ends after {found} records, the signed head covers {expected}: the last {} were removed", expected - found)]
    Shorter {
        /// How many the head covers.
        expected: u64,
        /// How many there are.
        found: u64,
    },
}

/// Give it every line of every file of a log, the oldest file first: [`Verifier::file`], [`Verifier::line`]..., [`Verifier::finish`].
#[derive(Debug, Default)]
pub struct Verifier {
    chain: Option<Chain>,
    first: u64,
    line: u64,
    heads: Vec<Head>,
}

impl Verifier {
    /// `heads`: signed ones, which the log must agree with.
    pub fn new(heads: impl IntoIterator<Item = Head>) -> Self {
        Self { heads: heads.into_iter().collect(), ..Self::default() }
    }

    /// The next line is the first of a file.
    pub fn file(&mut self) {
        self.line = 0;
    }

    /// Takes a line without its end. After an error the log is broken: stop.
    pub fn line(&mut self, line: &[u8]) -> Result<Record, Broken> {
        self.line += 1;
        self.take(line).map_err(|reason| Broken { line: self.line, reason })
    }

    fn take(&mut self, line: &[u8]) -> Result<Record, Reason> {
        let record = Record::parse(line)?;
        if self.line == 1 && record.peaks.is_none() {
            return Err(Reason::NotOpened);
        }
        let chain = match &mut self.chain {
            Some(chain) => chain,
            None => {
                self.first = record.seq;
                self.chain.insert(Chain::before(&record).ok_or(Reason::Peaks)?)
            }
        };
        chain.follow(&record)?;
        self.check_heads()?;
        Ok(record)
    }

    fn check_heads(&self) -> Result<(), Reason> {
        let Some(chain) = &self.chain else { return Ok(()) };
        for head in self.heads.iter().filter(|head| head.size == chain.size()) {
            let found = chain.tree().root();
            if found != head.root {
                return Err(Reason::Head { size: head.size, expected: head.root, found });
            }
        }
        Ok(())
    }

    /// After the last line: are all records there that were signed for?
    pub fn finish(&self) -> Result<(), Broken> {
        let found = self.size();
        match self.heads.iter().map(|head| head.size).max() {
            Some(expected) if expected > found => {
                Err(Broken { line: self.line, reason: Reason::Shorter { expected, found } })
            }
            _ => Ok(()),
        }
    }

    /// The chain after the last line; `None` before the first one.
    pub fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    /// Sequence number of the first record that was read; 0 before.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Sequence number of the last record that was read; 0 before.
    pub fn size(&self) -> u64 {
        self.chain.as_ref().map_or(0, Chain::size)
    }

    /// Is the last record of this head among those that were read, so that it was held against them?
    pub fn met(&self, head: &Head) -> bool {
        self.chain.is_some() && self.first <= head.size && head.size <= self.size()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;
    use crate::audit::{Entry, Kind};

    fn entry(kind: Kind) -> Entry<'static> {
        Entry {
            time: datetime!(2026-06-01 12:00 UTC),
            kind,
            id: "spiffe://td/w",
            serial: "4a",
            not_after: None,
            requester: "",
            reason: "",
        }
    }

    /// Two files of a log, three and two records; and the chain at its end.
    fn log() -> ([Vec<Vec<u8>>; 2], Chain) {
        let mut chain = Chain::default();
        let mut lines = |count: usize| -> Vec<Vec<u8>> {
            (0..count)
                .map(|at| {
                    let mut out = Vec::new();
                    if at == 0 {
                        chain.open(&entry(Kind::Opened), &mut out);
                    } else {
                        chain.append(&entry(Kind::X509), &mut out);
                    }
                    out.pop();
                    out
                })
                .collect()
        };
        let files = [lines(3), lines(2)];
        (files, chain)
    }

    fn verify(files: &[Vec<Vec<u8>>], heads: impl IntoIterator<Item = Head>) -> Result<Verifier, Broken> {
        let mut verifier = Verifier::new(heads);
        for file in files {
            verifier.file();
            for line in file {
                verifier.line(line)?;
            }
        }
        verifier.finish()?;
        Ok(verifier)
    }

    fn broken(files: &[Vec<Vec<u8>>]) -> (u64, Reason) {
        let Broken { line, reason } = verify(files, []).unwrap_err();
        (line, reason)
    }

    fn head(chain: &Chain) -> Head {
        Head::of(chain.tree(), datetime!(2026-06-01 12:00 UTC))
    }

    #[test]
    fn a_whole_log_verifies_and_so_does_its_last_file_alone() {
        let (files, chain) = log();
        let whole = verify(&files, [head(&chain)]).unwrap();
        assert_eq!(
            (whole.chain(), whole.first(), whole.size(), whole.met(&head(&chain))),
            (Some(&chain), 1, 5, true)
        );
        let last = verify(&files[1..], [head(&chain)]).unwrap();
        assert_eq!((last.chain(), last.first(), last.met(&head(&chain))), (Some(&chain), 4, true));
        let earlier = head(verify(&files[..1], []).unwrap().chain().unwrap());
        assert!(!verify(&files[1..], [earlier.clone()]).unwrap().met(&earlier));
        // Each of several heads counts.
        assert!(verify(&files, [earlier.clone(), head(&chain)]).unwrap().met(&earlier));
        let other = Head { root: Hash::empty(), ..earlier };
        let error = verify(&files, [head(&chain), other]).unwrap_err();
        assert!(matches!(error, Broken { line: 3, reason: Reason::Head { size: 3, .. } }), "{error}");
    }

    #[test]
    fn the_first_wrong_line_is_named() {
        let (files, _) = log();
        let mut changed = files.clone();
        changed[0][1][10] ^= 1;
        assert!(matches!(broken(&changed), (2, Reason::Malformed(Malformed::Changed { .. }))));
        let mut removed = files.clone();
        removed[0].remove(1);
        assert_eq!(broken(&removed), (2, Reason::Sequence { expected: 2, found: 3 }));
        let mut beheaded = files.clone();
        beheaded[0].remove(0);
        assert_eq!(broken(&beheaded), (1, Reason::NotOpened));
        let mut lost = files.clone();
        lost[0].pop();
        assert_eq!(broken(&lost), (1, Reason::Sequence { expected: 3, found: 4 }));
        let mut twice = files;
        let again = twice[1][1].clone();
        twice[1].push(again);
        assert_eq!(broken(&twice), (3, Reason::Sequence { expected: 6, found: 5 }));
    }

    #[test]
    fn a_log_rewritten_from_a_record_on_breaks_at_the_seam() {
        let (files, _) = log();
        let mut forged = Chain::default();
        let mut out = Vec::new();
        forged.open(&entry(Kind::Opened), &mut out);
        out.clear();
        forged.append(&entry(Kind::Jwt), &mut out);
        out.pop();
        let mut changed = files.clone();
        changed[0][1] = out;
        assert!(matches!(broken(&changed), (3, Reason::Previous { .. })));
    }

    #[test]
    fn what_the_chain_cannot_show_the_signed_head_does() {
        let (files, chain) = log();
        let head = head(&chain);
        let mut short = files.clone();
        short[1].pop();
        let error = verify(&short, [head.clone()]).unwrap_err();
        assert_eq!(error.reason, Reason::Shorter { expected: 5, found: 4 });
        assert!(error.to_string().contains("the last 1 were removed"), "{error}");
        let other = Head { root: Hash::empty(), ..head };
        let error = verify(&files, [other]).unwrap_err();
        assert!(matches!(error, Broken { line: 2, reason: Reason::Head { size: 5, .. } }));
    }

    /// Written by another program, by the description alone.
    #[test]
    fn a_log_of_another_hand_verifies() {
        let text = include_str!("../../../tests/fuzz/seeds/audit_log/three");
        let lines = text.lines().map(|line| line.as_bytes().to_vec()).collect();
        assert_eq!(verify(&[lines], []).unwrap().size(), 3);
    }

    #[test]
    fn a_number_at_its_end_is_no_record() {
        let mut line =
            format!(r#"{{"seq":{},"time":"","kind":"opened","peaks":[],"prev":"{}""#, u64::MAX, Hash::NONE);
        let hash = Hash::leaf(line.as_bytes());
        line.push_str(&format!(r#","hash":"{hash}"}}"#));
        assert!(matches!(broken(&[vec![line.into_bytes()]]), (1, Reason::Malformed(Malformed::Json(_)))));
    }

    proptest! {
        #[test]
        fn random_lines_never_panic(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8)) {
            prop_assert!(lines.is_empty() || verify(&[lines], []).is_err());
        }
    }
}
