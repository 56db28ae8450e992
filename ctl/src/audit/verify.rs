//! `isthmusctl audit verify`: is the log whole?

use std::path::Path;

use serde::Serialize;

use super::{files, head::HeadFacts};
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
}

/// # Errors
/// The first break, by file and line.
pub(super) fn verify(path: &Path, bundle: Option<&Path>) -> Result<VerifiedDocument, Failure> {
    // The head first: what is written meanwhile is behind it.
    let head = files::head(path)?;
    let facts = head.as_ref().map(|(signed, _)| HeadFacts::new(signed, bundle)).transpose()?;
    let verifier = files::read(path, head.map(|(signed, _)| signed.head), |_| ())?;
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
        head_met: verifier.met_head(),
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
    }
}
