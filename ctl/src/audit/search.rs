//! `isthmusctl audit search`: the records that somebody asks for. All others are checked on the way.

use std::collections::VecDeque;
use std::path::Path;

use isthmus_pki::audit::{Query, Record};
use serde::Serialize;

use super::{cli::Conditions, files};
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::Page;

/// Schema `isthmus.v1/audit-records`.
#[derive(Debug, Serialize)]
pub(super) struct RecordsDocument {
    schema: &'static str,
    records: VecDeque<Record>,
    /// How many more were found, before these.
    earlier: usize,
}

/// # Errors
/// A log that is broken.
pub(super) fn search(path: &Path, conditions: Conditions) -> Result<RecordsDocument, Failure> {
    let Conditions { id, serial, since, kind, limit } = conditions;
    let query = Query { id, serial, since, kind };
    let mut document =
        RecordsDocument { schema: "isthmus.v1/audit-records", records: VecDeque::new(), earlier: 0 };
    files::read(path, None, |record| {
        if query.matches(&record) {
            document.records.push_back(record);
        }
        if document.records.len() > limit {
            document.records.pop_front();
            document.earlier += 1;
        }
    })?;
    Ok(document)
}

impl Document for RecordsDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        if self.earlier > 0 {
            page.line(format!("{} earlier ones are not shown: raise --limit", self.earlier));
        }
        let rows = self.records.iter().map(|record| {
            [
                record.seq.to_string().into(),
                record.time.as_str().into(),
                record.kind.as_str().into(),
                record.id.as_str().into(),
                record.serial.as_str().into(),
                record.requester.as_str().into(),
                record.reason.as_str().into(),
            ]
        });
        page.table(["SEQ", "TIME", "KIND", "ID", "SERIAL", "REQUESTER", "REASON"], rows, "No such record");
    }
}
