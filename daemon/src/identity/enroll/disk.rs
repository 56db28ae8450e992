//! Files that are replaced whole and are on disk when the call returns.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// A file that could not be written; the old one, if there was one, is as it was.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}; the disk may be full, or isthmusd may not write there")]
pub struct WriteError {
    path: PathBuf,
    source: io::Error,
}

/// Replaces `path` with `bytes`, 0600, and its directory (0700) is made if missing. After `Ok` a crash or a power cut keeps the new
/// file, before it the old one; nothing in between is ever seen.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    write(path, bytes, 0o600).map_err(|source| WriteError { path: path.to_owned(), source })
}

/// The same for what is no secret: 0644.
pub(super) fn replace_public(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    write(path, bytes, 0o644).map_err(|source| WriteError { path: path.to_owned(), source })
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let next = directory.join(name);
    // One left by a crash may have another mode.
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let result = fill(&next, bytes, mode).and_then(|()| fs::rename(&next, path));
    if let Err(error) = result {
        // What can't be removed either is replaced by the next attempt.
        let _ = fs::remove_file(&next);
        return Err(error);
    }
    // The name is on disk only when the directory is.
    File::open(directory)?.sync_all()
}

fn fill(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_old_or_the_new_and_for_nobody_else_to_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/file");
        replace(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        // A crash left its half behind, readable by all.
        fs::write(dir.path().join("a/b/file.new"), "ha").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        replace_public(&path, b"three").unwrap();
        assert_eq!(mode(&path) & !0o044, 0o600, "as the umask lets it be");
        assert_eq!(fs::read_dir(dir.path().join("a/b")).unwrap().count(), 1);
    }

    #[test]
    fn what_fails_leaves_the_old() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        replace(&path, b"one").unwrap();
        fs::create_dir(dir.path().join("file.new")).unwrap();
        let error = replace(&path, b"two").unwrap_err().to_string();
        assert!(error.contains("file: "), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }
}
