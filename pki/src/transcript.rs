//! The transcript of a ceremony: what was done, by whom, with which program, sealed with the CA's key.
//!
//! One JSON object a line, only ever appended: `{"seq":0,"time":"…","prev":"…","event":{"kind":"…",…}}`. `prev` is the SHA-256 of the
//! line before, of its bytes without the line break; that of the first line is 64 zeros. An event of kind "seal" signs its own `seq`,
//! `time` and `prev`, and through that everything before. The head, the SHA-256 of the last line, is what witnesses write down: a transcript
//! that lost its end still verifies, but has another head.
//!
//! [`Log::resume`] takes what is there, [`Log::push`] and [`Log::seal`] add to it, [`Log::fresh`] is what to append to the file.
//! [`verify`] needs nothing but the file and the CA's public key.

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::{
    authority::{self, Authority, statement},
    facts::utc,
    key::PublicKey,
};

/// Longest transcript that is read, in bytes.
pub const MAX_LEN: usize = 16 << 20;
const CONTEXT: &str = "transcript seal 1";
const SEAL: &str = "seal";

/// What happened: "kind" and whatever belongs to it.
pub type Event = Map<String, Value>;

/// Why a transcript is not to be believed. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Beyond [`MAX_LEN`].
    #[error("{0} bytes; more than {MAX_LEN} are not read: begin a new transcript")]
    TooLong(usize),
    /// Nothing in it.
    #[error("the transcript is empty")]
    Empty,
    /// The last write did not end.
    #[error("line {0} does not end: the last write was cut off, or the file was")]
    CutOff(usize),
    /// Not such a line.
    #[error("line {line} is not a line of a transcript: {reason}")]
    Line {
        /// Which.
        line: usize,
        /// What the parser says.
        reason: String,
    },
    /// A line was changed, removed, added or moved.
    #[error(
        "line {0} does not follow from the one before: one of the two was changed, or lines were taken out or put in"
    )]
    Chain(usize),
    /// A seal by an unknown key.
    #[error(
        "line {line} is sealed with the key {key} (SHA-256), which is neither the root's nor one of the CAs given"
    )]
    Signer {
        /// Which.
        line: usize,
        /// Whose it says it is.
        key: String,
    },
    /// A seal that does not verify.
    #[error("line {0}: the seal's signature does not verify")]
    Seal(usize),
    /// Lines after the last seal.
    #[error("the last {0} lines are not sealed: nobody vouches for them")]
    Unsealed(usize),
}

/// The members in the order in which they are written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    seq: u64,
    time: String,
    prev: String,
    event: Event,
}

/// A transcript that is being written.
#[derive(Debug)]
pub struct Log {
    head: [u8; 32],
    seq: u64,
    fresh: String,
}

impl Log {
    /// Goes on after what is there, which may be nothing; its chain is checked, its seals are not.
    pub fn resume(existing: &[u8]) -> Result<Self, Error> {
        let (head, seq) = walk(existing, |_, _| Ok(()))?;
        Ok(Self { head, seq, fresh: String::new() })
    }

    /// Adds an event.
    pub fn push(&mut self, now: OffsetDateTime, event: Event) {
        let line =
            Line { seq: self.seq, time: utc(now.unix_timestamp()), prev: hex::encode(self.head), event };
        let text = serde_json::to_string(&line).expect("strings and numbers are always JSON");
        self.head = sha256(text.as_bytes());
        self.seq += 1;
        self.fresh.push_str(&text);
        self.fresh.push('\n');
    }

    /// Signs everything so far.
    pub fn seal(&mut self, now: OffsetDateTime, by: &Authority) -> Result<(), authority::Error> {
        let time = utc(now.unix_timestamp());
        let signature = by.sign_statement(CONTEXT, &sealed(self.seq, &time, &hex::encode(self.head)))?;
        let mut event = Event::new();
        event.insert("kind".into(), SEAL.into());
        event.insert("key_sha256".into(), by.facts().key_sha256.clone().into());
        event.insert("signature".into(), hex::encode(signature).into());
        self.push(now, event);
        Ok(())
    }

    /// Lines that are not in the file yet.
    pub fn fresh(&self) -> &str {
        &self.fresh
    }

    /// SHA-256 of the last line.
    pub fn head(&self) -> [u8; 32] {
        self.head
    }
}

/// What a sound transcript says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// SHA-256 of the last line: compare it with what the witnesses wrote down.
    pub head: [u8; 32],
    /// How many lines there are.
    pub lines: u64,
    /// How many of them are seals.
    pub seals: usize,
    /// Everything, in order, with its time.
    pub events: Vec<(String, Event)>,
}

/// Checks every link and every seal; the last line must be a seal. `signers` are the keys that may seal.
pub fn verify(bytes: &[u8], signers: &[PublicKey]) -> Result<Verified, Error> {
    let (mut events, mut seals, mut unsealed) = (Vec::new(), 0, 0);
    let (head, lines) = walk(bytes, |number, line| {
        unsealed += 1;
        if line.event.get("kind").and_then(Value::as_str) == Some(SEAL) {
            check_seal(number, &line, signers)?;
            (seals, unsealed) = (seals + 1, 0);
        }
        events.push((line.time, line.event));
        Ok(())
    })?;
    match (lines, unsealed) {
        (0, _) => Err(Error::Empty),
        (_, 0) => Ok(Verified { head, lines, seals, events }),
        _ => Err(Error::Unsealed(unsealed)),
    }
}

fn check_seal(number: usize, line: &Line, signers: &[PublicKey]) -> Result<(), Error> {
    let text = |name: &str| line.event.get(name).and_then(Value::as_str).unwrap_or_default();
    let key = text("key_sha256");
    let signer = signers.iter().find(|signer| signer.sha256() == key);
    let signer = signer.ok_or_else(|| Error::Signer { line: number, key: key.chars().take(64).collect() })?;
    let signature = hex::decode(text("signature")).map_err(|_| Error::Seal(number))?;
    // Nothing beside what is signed, and one spelling only.
    let plain = line.event.len() == 3 && hex::encode(&signature) == text("signature");
    let message = statement(CONTEXT, &sealed(line.seq, &line.time, &line.prev));
    if plain && signer.verifies(&message, &signature) { Ok(()) } else { Err(Error::Seal(number)) }
}

fn sealed(seq: u64, time: &str, prev: &str) -> Vec<u8> {
    format!("{seq} {time} {prev}").into_bytes()
}

/// Checks the links, shows each line to `visit`, returns the head and the number of lines.
fn walk(
    bytes: &[u8],
    mut visit: impl FnMut(usize, Line) -> Result<(), Error>,
) -> Result<([u8; 32], u64), Error> {
    if bytes.len() > MAX_LEN {
        return Err(Error::TooLong(bytes.len()));
    }
    let (mut head, mut seq) = ([0; 32], 0);
    for (number, text) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
        let text = text.strip_suffix(b"\n").ok_or(Error::CutOff(number))?;
        let line: Line =
            serde_json::from_slice(text).map_err(|e| Error::Line { line: number, reason: e.to_string() })?;
        if line.seq != seq || line.prev != hex::encode(head) {
            return Err(Error::Chain(number));
        }
        (head, seq) = (sha256(text), seq + 1);
        visit(number, line)?;
    }
    Ok((head, seq))
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, bytes);
    std::array::from_fn(|at| digest.as_ref()[at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        key::{Curve, Key},
        testing::{Fabric, NOW},
    };

    fn event(kind: &str) -> Event {
        Event::from_iter([("kind".to_owned(), kind.into())])
    }

    /// Two sittings: begin, certificate, seal, then begin, seal.
    fn transcript() -> (String, Vec<PublicKey>) {
        let root = &Fabric::shared().root;
        let mut text = String::new();
        for kinds in [&["begin", "certificate"][..], &["begin"]] {
            let mut log = Log::resume(text.as_bytes()).unwrap();
            kinds.iter().for_each(|kind| log.push(NOW, event(kind)));
            log.seal(NOW, root).unwrap();
            text += log.fresh();
        }
        (text, vec![PublicKey::from_spki(&root.facts().spki).unwrap()])
    }

    #[test]
    fn what_was_written_verifies() {
        let (text, signers) = transcript();
        let verified = verify(text.as_bytes(), &signers).unwrap();
        assert_eq!((verified.lines, verified.seals), (5, 2));
        let kinds: Vec<_> =
            verified.events.iter().map(|(_, event)| event["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["begin", "certificate", "seal", "begin", "seal"]);
        assert_eq!(verified.head, sha256(text.lines().last().unwrap().as_bytes()));
        let json: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!((&json["prev"], &json["time"]), (&"0".repeat(64).into(), &"2026-06-01T12:00:00Z".into()));
    }

    #[test]
    fn every_change_is_found() {
        let (text, signers) = transcript();
        let lines: Vec<_> = text.split_inclusive('\n').collect();
        let check = |text: &str| verify(text.as_bytes(), &signers).unwrap_err();
        assert_eq!(check(&text.replacen("certificate", "certificates", 1)), Error::Chain(3));
        assert_eq!(check(&[lines[0], lines[2]].concat()), Error::Chain(2));
        assert_eq!(check(&[lines[1], lines[0]].concat()), Error::Chain(1));
        assert_eq!(check(&lines[..2].concat()), Error::Unsealed(2));
        assert_eq!(check(text.trim_end()), Error::CutOff(5));
        assert_eq!(check(""), Error::Empty);
        assert!(matches!(
            check(&text.replacen("\"seq\":0", "\"seq\":0,\"x\":1", 1)),
            Error::Line { line: 1, .. }
        ));
        let stranger = Key::generate(Curve::P384).unwrap().public();
        assert!(matches!(verify(text.as_bytes(), &[stranger]), Err(Error::Signer { line: 3, .. })));
        let shorter = verify(lines[..3].concat().as_bytes(), &signers).unwrap();
        assert_ne!(shorter.head, verify(text.as_bytes(), &signers).unwrap().head);
    }

    #[test]
    fn a_seal_of_another_place_does_not_fit() {
        let (text, signers) = transcript();
        let lines: Vec<_> = text.lines().collect();
        let signature =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"]["signature"].clone();
        let (first, last) = (signature(lines[2]), signature(lines[4]));
        let forged = text.replace(last.as_str().unwrap(), first.as_str().unwrap());
        assert_eq!(verify(forged.as_bytes(), &signers), Err(Error::Seal(5)));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = verify(&bytes, &[]);
            let _ = Log::resume(&bytes);
        }

        #[test]
        fn a_flipped_bit_never_passes(at in any::<prop::sample::Index>(), bit in 0u8..7) {
            let (text, signers) = transcript();
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(verify(&bytes, &signers).is_err());
        }
    }
}
