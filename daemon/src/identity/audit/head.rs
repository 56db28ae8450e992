//! The signed head beside the log.

use std::{fs, io, path::Path};

use super::{disk, rotation::beside};

/// Replaces the head file as a whole. It says nothing secret: whoever may look can keep it, to hold the log against it later.
pub(super) fn write(path: &Path, signed: &str) -> io::Result<()> {
    let (head, draft) = (beside(path, "head"), beside(path, "head.new"));
    super::rotation::remove(&draft)?;
    let file = disk::open(&draft)?;
    disk::Disk::write_at(&file, format!("{signed}\n").as_bytes(), 0)?;
    file.sync_all()?;
    fs::rename(draft, head)
}
