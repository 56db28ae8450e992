//! The journal of orders: one JSON object a line, on disk before anything is done.

use std::{
    fs::{DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use isthmus_pki::facts::utc;
use serde::Serialize;

use super::Error;

/// A line.
#[derive(Serialize)]
pub(super) struct Entry<'a> {
    /// RFC 3339.
    pub(super) time: String,
    /// "root activate".
    pub(super) command: &'a str,
    /// Who ordered it.
    pub(super) by: &'a str,
    /// "ordered", "done", "refused", "failed".
    pub(super) outcome: &'a str,
    /// What is, or was, to be done, or why not.
    pub(super) details: Vec<String>,
    /// Why guards were passed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) override_reason: Option<&'a str>,
    /// What the operator says of Istio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) istio_checked: Option<&'a str>,
}

/// Appends a line and waits until it is on disk.
pub(super) fn append(directory: &Path, entry: &Entry<'_>) -> Result<(), Error> {
    let path = directory.join("journal.jsonl");
    write(directory, &path, entry).map_err(|source| Error::Io { path, source })
}

fn write(directory: &Path, path: &Path, entry: &Entry<'_>) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(&line)?;
    file.sync_all()
}

/// The time of a line.
pub(super) fn stamp(now: i64) -> String {
    utc(now)
}
