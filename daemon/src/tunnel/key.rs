//! The tunnel's private key: from the configuration, or made at first start.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use isthmus_tunnel::x25519::StaticSecret;
use rand::{TryRng, rngs::SysRng};
use zeroize::Zeroizing;

use super::{Config, Error};
use crate::secret::Secret32;

/// The configured key, or a new one that is in its file before anything uses it.
pub(super) fn load_or_create(config: &Config) -> Result<StaticSecret, Error> {
    let secret = match &config.private_key {
        Some(secret) => secret.clone(),
        None => create(&config.private_key_file)?,
    };
    Ok(StaticSecret::from(*secret.expose()))
}

fn create(path: &Path) -> Result<Secret32, Error> {
    let secret = generate().map_err(|reason| failure(path, reason))?;
    write_new(path, &secret).map_err(|reason| failure(path, reason))?;
    tracing::info!(file = %path.display(), "made a new private key for the tunnel");
    Ok(secret)
}

fn failure(path: &Path, reason: io::Error) -> Error {
    let remedy = match reason.kind() {
        io::ErrorKind::AlreadyExists => "It appeared while we started; start again to use it",
        io::ErrorKind::PermissionDenied => {
            "Let isthmusd write to the directory, or point private_key_file elsewhere"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "Point private_key_file to a writable place, or put a key there yourself"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Make room there, or point private_key_file elsewhere"
        }
        _ => "Make it yourself: `wg genkey`, mode 0600",
    };
    Error::Key { path: path.to_owned(), reason, remedy }
}

/// 32 random bytes, clamped (RFC 7748 section 5) so that the file reads like one of `wg genkey`.
fn generate() -> io::Result<Secret32> {
    let mut bytes = Zeroizing::new([0; 32]);
    SysRng.try_fill_bytes(&mut *bytes).map_err(io::Error::other)?;
    bytes[0] &= 248;
    bytes[31] = bytes[31] & 127 | 64;
    Ok(Secret32::new(*bytes))
}

/// Writes the whole file under another name first, then links it into place, which fails if something is there: a reader never
/// sees half a key, and a key that exists is never replaced.
fn write_new(path: &Path, secret: &Secret32) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let draft = draft_name(path)?;
    let written = write_draft(&draft, secret).and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    // Where there was no writing there may be nothing to remove: the first failure is the one to tell.
    written.and(removed)?;
    File::open(directory)?.sync_all()
}

fn draft_name(path: &Path) -> io::Result<PathBuf> {
    let mut suffix = [0; 8];
    SysRng.try_fill_bytes(&mut suffix).map_err(io::Error::other)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", u64::from_ne_bytes(suffix)));
    Ok(name.into())
}

fn write_draft(draft: &Path, secret: &Secret32) -> io::Result<()> {
    let mut line = Zeroizing::new(BASE64_STANDARD.encode(secret.expose()));
    line.push('\n');
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn new_key_is_private_and_reads_like_wg_genkey() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/tunnel.key");
        let secret = create(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.len(), 45);
        let bytes = BASE64_STANDARD.decode(text.trim_end()).unwrap();
        assert_eq!(bytes, secret.expose());
        assert_eq!((bytes[0] & 7, bytes[31] & 0xc0), (0, 0x40));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn existing_key_is_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tunnel.key");
        fs::write(&path, "precious").unwrap();
        let error = create(&path).unwrap_err().to_string();
        assert!(error.contains("tunnel.key") && error.contains("start again"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_os_error_is_told_once() {
        // A file in the way: not even root makes a key behind it.
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("state"), "").unwrap();
        let error = create(&directory.path().join("state/tunnel.key")).unwrap_err();
        let whole = format!("{:#}", anyhow::Error::from(error));
        assert_eq!(whole.matches("os error").count(), 1, "{whole}");
    }

    #[test]
    fn the_first_failure_is_the_one_told() {
        // No file can be made here, so there is none to remove after it.
        let error = write_new(Path::new("/proc/self/tunnel.key"), &Secret32::new([1; 32])).unwrap_err();
        let made = OpenOptions::new().write(true).create_new(true).open("/proc/self/other").unwrap_err();
        assert_eq!(error.raw_os_error(), made.raw_os_error());
        let full = failure(Path::new("/k"), io::Error::from_raw_os_error(libc::ENOSPC)).to_string();
        assert!(full.contains("No space left") && full.contains("Make room"), "{full}");
    }
}
