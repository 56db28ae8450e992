//! Identities as PEM files: each whole or not at all, keys for the owner only.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::svid::Identity;

/// Bytes of DER in a full line of PEM: 64 characters (RFC 7468, section 2).
const LINE: usize = 48;

/// Writes key.pem, svid.pem and bundle.pem of the first identity, key.1.pem and so on of the next. Makes the directory (0700) if it is not there.
/// Returns the files in the order in which they were put in place: a reader that waits for bundle.pem to change finds the others new.
///
/// # Errors
/// What cannot be written, and why.
pub(crate) fn write(directory: &Path, identities: &[Identity]) -> Result<Vec<PathBuf>, Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| not_written(directory, &error))?;
    let mut written = Vec::new();
    for (index, identity) in identities.iter().enumerate() {
        let files = [
            ("key", 0o600, pem("PRIVATE KEY", [&identity.key[..]])),
            ("svid", 0o644, pem("CERTIFICATE", identity.chain.iter().map(Vec::as_slice))),
            ("bundle", 0o644, pem("CERTIFICATE", identity.bundle.iter().map(Vec::as_slice))),
        ];
        for (stem, mode, content) in files {
            let path = place(directory, stem, index);
            replace(&path, mode, content.as_bytes()).map_err(|error| not_written(&path, &error))?;
            written.push(path);
        }
    }
    remove_from(directory, identities.len().max(1))?;
    Ok(written)
}

fn place(directory: &Path, stem: &str, index: usize) -> PathBuf {
    let infix = if index == 0 { String::new() } else { format!(".{index}") };
    directory.join(format!("{stem}{infix}.pem"))
}

/// Removes what an earlier call wrote of identities that are no longer given: a key that is not renewed is only there to be stolen.
fn remove_from(directory: &Path, first: usize) -> Result<(), Failure> {
    for index in first.. {
        let mut found = false;
        for path in ["key", "svid", "bundle"].map(|stem| place(directory, stem, index)) {
            match fs::remove_file(&path) {
                Ok(()) => found = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Failure::failed(format!("cannot remove {}: {error}", path.display())));
                }
            }
        }
        if !found {
            break;
        }
    }
    Ok(())
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

/// Puts a file in place in one step, so that a reader finds the old or the new, never a part.
fn replace(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("pem.{}.new", std::process::id()));
    let result = create(&temporary, mode)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// A new file of ours; what an interrupted run of the same process id left is removed, never written into.
fn create(path: &Path, mode: u32) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// PEM text (RFC 7468) of DER items, wiped when dropped and never grown, so that no copy of a key stays behind.
fn pem<'a>(label: &str, items: impl IntoIterator<Item = &'a [u8]> + Clone) -> Zeroizing<String> {
    let room =
        items.clone().into_iter().map(|der| der.len().div_ceil(LINE) * 65 + 2 * (label.len() + 18)).sum();
    let mut text = Zeroizing::new(String::with_capacity(room));
    for der in items {
        text.push_str("-----BEGIN ");
        text.push_str(label);
        text.push_str("-----\n");
        for line in der.chunks(LINE) {
            STANDARD.encode_string(line, &mut text);
            text.push('\n');
        }
        text.push_str("-----END ");
        text.push_str(label);
        text.push_str("-----\n");
    }
    debug_assert!(text.len() <= room, "the text grew");
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn pem_reads_back_at_every_length() {
        for length in 0..200_u8 {
            let der = (0..length).collect::<Vec<_>>();
            let text = pem("PRIVATE KEY", [&der[..], &der[..]]);
            let blocks = pem::parse_many(text.as_bytes()).expect("valid PEM");
            assert_eq!(blocks.len(), 2);
            assert!(blocks.iter().all(|block| block.contents() == der && block.tag() == "PRIVATE KEY"));
        }
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_a_link_is_not_followed() {
        let directory = tempfile::TempDir::new().expect("a temporary directory");
        let (target, path) = (directory.path().join("target"), directory.path().join("key.pem"));
        fs::write(&target, "untouched").expect("writable");
        std::os::unix::fs::symlink(&target, &path).expect("a link");
        replace(&path, 0o600, b"new").expect("replaced");
        assert_eq!(fs::read_to_string(&path).expect("there"), "new");
        assert_eq!(path.symlink_metadata().expect("there").permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&target).expect("there"), "untouched");
        assert_eq!(fs::read_dir(directory.path()).expect("there").count(), 2, "no temporary file stays");
    }
}
