//! Files that are replaced whole and are on disk when the call returns.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use zeroize::Zeroizing;

use super::Error;

/// Longest file that is written and read back: more than a state with everything at its bound.
const MAX_LEN: u64 = 16 << 20;

/// Replaces a file, 0600; its directory (0700) is made if missing. A crash leaves the old one or the new one.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    try_replace(path, bytes).map_err(|source| Error::Io { path: path.to_owned(), source })
}

fn try_replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // What could not be read back would stop the next start.
    check_length(bytes.len() as u64)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let next = path.with_extension("new");
    // One left by a crash may have another mode.
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&next, path))?;
    // The name is on disk only when the directory is.
    File::open(directory)?.sync_all()
}

/// Reads a file; `None`: it is not there.
pub(super) fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    match try_read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|source| Error::Io { path: path.to_owned(), source }),
    }
}

fn try_read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = crate::config::open(path)?;
    let length = file.metadata()?.len();
    check_length(length)?;
    // Room for all of it at once: a growing buffer leaves copies of a secret behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 1));
    file.take(MAX_LEN).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check_length(length: u64) -> io::Result<()> {
    if length <= MAX_LEN {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{length} bytes; files of more than {MAX_LEN} are neither written nor read"
    )))
}

/// Removes a file; one that is not there is fine.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::Io { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}
