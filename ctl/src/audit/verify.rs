//! `isthmusctl audit verify`: is the log whole?

use std::path::{Path, PathBuf};

use isthmus_pki::audit::Head;
use serde::Serialize;

use super::{consistency, files, head::HeadFacts};
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::Page;

/// Schema `isthmus.v1/audit-verified`.
#[derive(Debug, Serialize)]
pub(super) struct VerifiedDocument {
    schema: &'static str,
    files: Vec<String>,
    first: u64,
    last: u64,
    root: String,
    /// The signed head beside the log; nothing if there is none.
    head: Option<HeadFacts>,
    /// The head is among the records that were read, so the log was held against it.
    head_met: bool,
    /// Heads that were kept elsewhere.
    kept: Vec<Kept>,
}

/// One of them: the log does not contradict it, or there would be no document.
#[derive(Debug, Serialize)]
struct Kept {
    file: String,
    records: u64,
    /// Its last record was read, so the log was held against it.
    met: bool,
}

/// # Errors
/// The first break, by file and line.
pub(super) fn verify(
    path: &Path,
    bundle: Option<&Path>,
    since: &[PathBuf],
) -> Result<VerifiedDocument, Failure> {
    // The head first: what is written meanwhile is behind it.
    let head = files::head(path)?;
    let facts = head.as_ref().map(|(signed, _)| HeadFacts::new(signed, bundle)).transpose()?;
    let head = head.map(|(signed, _)| signed.head);
    let kept: Vec<Head> =
        since.iter().map(|file| consistency::kept(file).map(|kept| kept.head)).collect::<Result<_, _>>()?;
    let verifier = files::read(path, head.clone().into_iter().chain(kept.clone()), |_| ())?;
    let Some(chain) = verifier.chain() else {
        return Err(Failure::failed(format!("{}: there is no record in it", path.display())));
    };
    Ok(VerifiedDocument {
        schema: "isthmus.v1/audit-verified",
        files: files::all(path)?.iter().map(|file| file.display().to_string()).collect(),
        first: verifier.first(),
        last: verifier.size(),
        root: chain.tree().root().to_string(),
        head: facts,
        head_met: head.is_some_and(|head| verifier.met(&head)),
        kept: since
            .iter()
            .zip(&kept)
            .map(|(file, head)| Kept {
                file: file.display().to_string(),
                records: head.size,
                met: verifier.met(head),
            })
            .collect(),
    })
}

impl Document for VerifiedDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let Self { files, first, last, root, .. } = self;
        page.line(format!("Records {first} to {last} in {} files are whole", files.len()));
        page.facts([("Root", root.as_str().into())]);
        match &self.head {
            None => page.line("There is no signed head beside the log: a cut at its end would not show"),
            Some(head) => {
                head.lay_out(now, page);
                page.line(match self.head_met {
                    true => "The log agrees with the signed head",
                    false => "The records of the signed head are not among these files",
                });
            }
        }
        for Kept { file, records, met } in &self.kept {
            page.line(match met {
                true => format!("The log still has records 1 to {records} as {file} has them"),
                false => format!("Record {records}, the last that {file} covers, is not among these files"),
            });
        }
    }
}
