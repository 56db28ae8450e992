//! Files: keys are made 0600 and never overwritten, certificates only when told to; every error names the file and the remedy.

mod staged;

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read as _},
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _},
    path::Path,
};

use anyhow::{Context as _, bail};
use isthmus_pki::{Authority, Key, bundle};
use zeroize::Zeroizing;

pub(crate) use staged::{New, Staged, sync_name, write_new_together};

/// Longest file that is read, in bytes.
const MAX_LEN: u64 = 1 << 20;

/// Reads a file of reasonable size.
pub(crate) fn read(path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    read_up_to(path, MAX_LEN)
}

/// Reads a file of at most so many bytes.
pub(crate) fn read_up_to(path: &Path, most: u64) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    read_from(&open(path)?, most).with_context(|| path.display().to_string())
}

/// Opens for reading, but no named pipe: whoever opens one waits until somebody writes. The pipes of a shell's `<(…)` have a writer.
fn open(path: &Path) -> anyhow::Result<File> {
    let name = || path.display().to_string();
    let kind = fs::metadata(path).with_context(name)?.file_type();
    if kind.is_fifo() && !path.starts_with("/dev") && !path.starts_with("/proc") {
        bail!("{}: is a named pipe, and nobody may ever write into it; give a file", name());
    }
    File::open(path).with_context(name)
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
    let file = open(path)?;
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

/// Refuses early what [`New::certificates`] would be refused for.
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

/// A CA from its certificate file (the first certificate in it) and its key.
pub(crate) fn authority(certificate: &Path, key: Key, key_path: &Path) -> anyhow::Result<Authority> {
    let name = || certificate.display().to_string();
    let first = bundle::certificates(&read(certificate)?).with_context(name)?.swap_remove(0);
    Authority::load(first, key)
        .with_context(|| format!("{} with {}", certificate.display(), key_path.display()))
}
