//! That the log's head continues one that somebody has kept: `isthmusctl audit prove --since` makes the proof where the log is,
//! `isthmusctl audit check` holds it against the head that was kept, where that is.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use isthmus_pki::audit::{Consistency, Head, MAX_PROOF, SignedHead, proof};
use serde::{Deserialize, Serialize};

use super::{files, head::HeadFacts};
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::Page;

/// # Errors
/// No head, one that is no continuation of the kept one, or a log without its beginning.
pub(super) fn prove(path: &Path, since: &Path) -> Result<Consistency, Failure> {
    let kept = kept(since)?.head;
    let (signed, text) = files::head(path)?.ok_or_else(|| {
        Failure::failed(format!("there is no {}.head to prove anything of", path.display()))
    })?;
    let head = signed.head;
    let ranges = proof::consistency(kept.size, head.size).ok_or_else(|| shorter(&kept, &head, since))?;
    let mut gather = proof::Gather::new(ranges);
    // The reader holds the log against both heads, and names what differs.
    let verifier = files::read(path, [kept.clone(), head.clone()], |record| gather.push(record.hash))?;
    if verifier.first() != 1 {
        return Err(files::beginning_is_missing(verifier.first()));
    }
    let proven = gather.finish().and_then(|hashes| Consistency::new(&kept, &head, hashes, text));
    proven.ok_or_else(|| Failure::failed("the log changed while it was read; try again"))
}

fn shorter(kept: &Head, head: &Head, since: &Path) -> Failure {
    let what = format!(
        "{} covers {} records, the log's own head {}: it does not continue it",
        since.display(),
        kept.size,
        head.size
    );
    Failure::failed(what).with_help(
        "the log was cut or begun anew since, or the head is another issuer's: docs/reference/audit.md",
    )
}

/// A head that somebody has put aside: the head file, or what `isthmusctl audit head -o json` prints.
///
/// # Errors
/// A file that cannot be read, or a signature that does not hold.
pub(super) fn kept(file: &Path) -> Result<SignedHead, Failure> {
    #[derive(Deserialize)]
    struct Printed {
        signed: String,
    }

    let text = read(file)?;
    let text = serde_json::from_slice(&text).map_or(text, |printed: Printed| printed.signed.into_bytes());
    SignedHead::parse(&String::from_utf8_lossy(&text))
        .map_err(|error| Failure::failed(format!("{}: {error}", file.display())))
}

/// At most a byte more than any proof or head has.
fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let most = u64::try_from(MAX_PROOF + 1).expect("a length fits 64 bits");
    let read = File::open(file).and_then(|opened| opened.take(most).read_to_end(&mut text));
    read.map_err(|error| files::unreadable(file, &error))?;
    Ok(text)
}

/// Schema `isthmus.v1/audit-checked`.
#[derive(Debug, Serialize)]
pub(super) struct CheckedDocument {
    schema: &'static str,
    /// Records that the head that was kept covers.
    first: u64,
    /// The later head, which continues it.
    head: HeadFacts,
}

/// # Errors
/// What is wrong with the proof, or with who signed its head.
pub(super) fn check(proof: &Path, since: &Path, bundle: Option<&Path>) -> Result<CheckedDocument, Failure> {
    let kept = kept(since)?.head;
    let refuse = |reason: String| Failure::failed(format!("{}: {reason}", proof.display()));
    let read = Consistency::parse(&read(proof)?).map_err(|error| refuse(error.to_string()))?;
    let signed = read.check(&kept).map_err(|error| refuse(error.to_string()))?;
    Ok(CheckedDocument {
        schema: "isthmus.v1/audit-checked",
        first: kept.size,
        head: HeadFacts::new(&signed, bundle)?,
    })
}

impl Document for Consistency {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        page.line(format!("Records 1 to {} are as the head that was kept has them", self.first));
        page.facts([
            ("Root then", self.first_root.to_string().into()),
            ("Head covers", format!("records 1 to {}", self.size).into()),
            ("Root", self.root.to_string().into()),
        ]);
        page.line("Path from the one root to the other:");
        self.path.iter().for_each(|hash| page.line(format!("  {hash}")));
        page.line("-o json has all of it, for `isthmusctl audit check` where the head was kept");
    }
}

impl Document for CheckedDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        page.line(format!("Proven: the log still has records 1 to {} as they were", self.first));
        self.head.lay_out(now, page);
    }
}
