//! Files: keys are made 0600 and never overwritten, certificates only when told to; every error names the file and the remedy.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use isthmus_pki::{Authority, Key, bundle};
use zeroize::Zeroizing;

/// Longest file that is read, in bytes.
const MAX_LEN: u64 = 1 << 20;

/// Reads a file of reasonable size.
pub(crate) fn read(path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    read_up_to(path, MAX_LEN)
}

/// Reads a file of at most so many bytes.
pub(crate) fn read_up_to(path: &Path, most: u64) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    read_from(&file, most).with_context(|| path.display().to_string())
}

/// True if the file was not there.
pub(crate) fn is_absent(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::NotFound)
}

fn read_from(file: &File, most: u64) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    // Room for all of it at once: a growing buffer leaves copies of a secret behind.
    let length = file.metadata()?.len();
    if length > most {
        bail!("{length} bytes; more than {most} are not read");
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 1));
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file that nobody but its owner may read.
pub(crate) fn read_secret(path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mode = file.metadata().with_context(|| path.display().to_string())?.permissions().mode();
    if mode & 0o077 != 0 {
        let path = path.display();
        bail!("{path}: others may read or change it (mode {:04o}); run `chmod 600 {path}`", mode & 0o7777);
    }
    read_from(&file, MAX_LEN).with_context(|| path.display().to_string())
}

/// Makes the directory, 0700 if it is new; the empty path is where we are.
pub(crate) fn make_dir(path: &Path) -> anyhow::Result<()> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(|| path.display().to_string())
}

/// Refuses early if one of the files is there, so that a ceremony leaves no half of its results.
pub(crate) fn refuse_existing(paths: &[&Path]) -> anyhow::Result<()> {
    match paths.iter().find(|path| fs::symlink_metadata(path).is_ok()) {
        Some(path) => Err(exists(path)),
        None => Ok(()),
    }
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{}: exists and is not overwritten; move it away or choose another directory",
        path.display()
    )
}

/// A file to be made.
#[derive(Clone, Copy)]
pub(crate) struct New<'a> {
    /// Where.
    pub(crate) path: &'a Path,
    /// What.
    pub(crate) contents: &'a [u8],
    /// 0600 if so, 0644 else.
    pub(crate) secret: bool,
}

/// Writes files that belong together: all of them or, when one can't be written, none.
pub(crate) fn write_new_together(files: &[New<'_>]) -> anyhow::Result<()> {
    for (index, file) in files.iter().enumerate() {
        if let Err(error) = write_new(file) {
            for made in &files[..index] {
                // The failed write is what to report; what stays behind is named by the next run.
                let _ = fs::remove_file(made.path);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn write_new(file: &New<'_>) -> anyhow::Result<()> {
    match create_and_sync(file) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(exists(file.path)),
        other => other.with_context(|| file.path.display().to_string()),
    }
}

/// A file that was not there before, seen on the disk, or no file.
fn create_and_sync(new: &New<'_>) -> io::Result<()> {
    let mode = if new.secret { 0o600 } else { 0o644 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(new.path)?;
    let written = file.write_all(new.contents).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a key is worse than none; the write's own error is the one to report.
        let _ = fs::remove_file(new.path);
    }
    written
}

/// Refuses early what [`write_certificates`] would refuse.
pub(crate) fn refuse_certificates(path: &Path, replace: bool) -> anyhow::Result<()> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let name = path.display();
    if !replace {
        bail!(
            "{name}: exists and is not overwritten; to renew it add --replace, or choose another directory"
        );
    }
    if read(path)?.windows(11).any(|window| window == b"PRIVATE KEY") {
        bail!("{name}: holds a private key, and keys are never replaced; move it away");
    }
    Ok(())
}

/// Writes certificates into a new file; with `replace` also over an old one, which is whole until the new one is.
pub(crate) fn write_certificates(path: &Path, pem: &str, replace: bool) -> anyhow::Result<()> {
    refuse_certificates(path, replace)?;
    let (contents, secret) = (pem.as_bytes(), false);
    if !replace {
        return write_new(&New { path, contents, secret });
    }
    let name = || path.display().to_string();
    let temporary = beside(path).with_context(name)?;
    // What a run that was killed left there.
    let _ = fs::remove_file(&temporary);
    create_and_sync(&New { path: &temporary, contents, secret }).with_context(name)?;
    let renamed = fs::rename(&temporary, path).and_then(|()| sync_directory(path));
    renamed.with_context(name)
}

/// A name in the same directory, so that a rename is atomic.
fn beside(path: &Path) -> anyhow::Result<PathBuf> {
    let name = path.file_name().context("not the name of a file")?;
    Ok(path.with_file_name(format!(".{}.new", name.to_string_lossy())))
}

fn sync_directory(of: &Path) -> io::Result<()> {
    let directory = of.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// A CA from its certificate file (the first certificate in it) and its key.
pub(crate) fn authority(certificate: &Path, key: Key, key_path: &Path) -> anyhow::Result<Authority> {
    let name = || certificate.display().to_string();
    let first = bundle::certificates(&read(certificate)?).with_context(name)?.swap_remove(0);
    Authority::load(first, key)
        .with_context(|| format!("{} with {}", certificate.display(), key_path.display()))
}
