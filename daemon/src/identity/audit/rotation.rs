//! A new file once the old one is long enough. The chain goes on; files are never deleted here.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use isthmus_pki::audit::{Kind, names};
use time::OffsetDateTime;

use super::{
    disk,
    writer::{Writer, note},
};

/// Where the file that begins with this record is kept once it is full.
pub(super) fn kept(path: &Path, first: u64) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(names::full_file(&name, first))
}

/// The file that will become the log, until it is whole.
pub(super) fn draft(path: &Path) -> PathBuf {
    beside(path, "new")
}

/// `path.suffix`
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// On a failure the old file goes on growing, and it is tried again a tenth later.
pub(super) fn rotate(writer: &mut Writer, now: OffsetDateTime) {
    if let Err(error) = try_rotate(writer, now) {
        tracing::warn!(file = %writer.path.display(), %error, "the audit log could not begin a new file and goes on in the old one");
        writer.rotate = writer.length + writer.length / 10;
    }
}

/// The old file is on the disk before the new one exists; the new one is whole before it has the name.
fn try_rotate(writer: &mut Writer, now: OffsetDateTime) -> io::Result<()> {
    writer.disk.sync()?;
    writer.synced(writer.length);
    let draft = draft(&writer.path);
    remove(&draft)?;
    let file = disk::open(&draft)?;
    let mut next = writer.chain.clone();
    let mut line = Vec::new();
    next.open(&note(now, Kind::Opened, "the file before was full"), &mut line);
    disk::Disk::write_at(&file, &line, 0)?;
    file.sync_all()?;
    fs::rename(&writer.path, kept(&writer.path, writer.first))?;
    fs::rename(&draft, &writer.path)?;
    disk::sync_directory(&writer.path)?;
    writer.disk = Arc::new(file);
    writer.length = line.len() as u64;
    writer.synced = writer.length;
    writer.first = writer.chain.size() + 1;
    writer.chain = next;
    Ok(())
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The full files of a log, the oldest first.
pub(super) fn all_kept(path: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let file = entry?.file_name();
        if let Some(first) = names::first_of_full_file(&name, &file.to_string_lossy()) {
            found.push((first, directory.join(file)));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, file)| file).collect())
}
