//! `isthmusctl audit prove`: that a certificate is in the log, for somebody who has the signed head and not the log.

use std::path::Path;

use isthmus_pki::audit::{Hash, Query, Record, proof};
use serde::Serialize;

use super::files;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::Page;

/// Schema `isthmus.v1/audit-proof`: RFC 6962 section 2.1.1 has the rule that turns leaf and path into the root.
#[derive(Debug, Serialize)]
pub(super) struct ProofDocument {
    schema: &'static str,
    record: Record,
    /// Of the leaf, from 0. The leaf's hash is the record's.
    index: u64,
    /// Leaves of the tree.
    size: u64,
    root: Hash,
    path: Vec<Hash>,
    /// The head with this root, as the site CA signed it.
    signed_head: String,
}

/// # Errors
/// No head, no such record, or a head that does not cover it yet.
pub(super) fn prove(path: &Path, serial: &str) -> Result<ProofDocument, Failure> {
    let (signed, text) = files::head(path)?
        .ok_or_else(|| Failure::failed(format!("there is no {}.head to prove it under", path.display())))?;
    let (head, query) = (signed.head, Query { serial: Some(serial.to_owned()), ..Query::default() });
    let mut found = None;
    let verifier = files::read(path, Some(head.clone()), |record| {
        if found.is_none() && query.matches(&record) {
            found = Some(record);
        }
    })?;
    let record = found.ok_or_else(|| Failure::failed(format!("no record has serial {serial}")))?;
    if verifier.first() != 1 {
        return Err(files::beginning_is_missing(verifier.first()));
    }
    let index = record.seq - 1;
    let ranges = proof::inclusion(index, head.size).ok_or_else(|| {
        Failure::failed("the signed head does not cover this record yet; try again in a second")
    })?;
    let mut gather = proof::Gather::new(ranges);
    files::read(path, None, |record| gather.push(record.hash))?;
    let hashes = gather
        .finish()
        .filter(|hashes| proof::verify_inclusion(record.hash, index, head.size, hashes, head.root));
    let hashes = hashes.ok_or_else(|| Failure::failed("the log changed while it was read; try again"))?;
    Ok(ProofDocument {
        schema: "isthmus.v1/audit-proof",
        record,
        index,
        size: head.size,
        root: head.root,
        path: hashes,
        signed_head: text,
    })
}

impl Document for ProofDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        page.facts([
            ("Record", self.record.seq.to_string().into()),
            ("ID", self.record.id.as_str().into()),
            ("Serial", self.record.serial.as_str().into()),
            ("Leaf", self.record.hash.to_string().into()),
            ("Index", format!("{} of {}", self.index, self.size).into()),
            ("Root", self.root.to_string().into()),
        ]);
        page.line("Path from the leaf to the root:");
        self.path.iter().for_each(|hash| page.line(format!("  {hash}")));
        page.line("-o json has all of it with the signed head");
    }
}
