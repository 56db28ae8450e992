//! Unix sockets that take over from a dead predecessor, never from a live one, and are gone after a clean stop.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use thiserror::Error;
use tokio::net::UnixListener;

/// A listening socket with the file that names it; dropping the file part removes it.
pub struct Bound {
    /// Accepts connections.
    pub listener: UnixListener,
    /// Removes the socket file when dropped.
    pub file: SocketFile,
}

/// The name of a socket in the file system.
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, so that a successor's socket of the same name is not removed.
    identity: (u64, u64),
}

/// Why a socket could not be made.
#[derive(Debug, Error)]
pub enum Error {
    /// Another process answers there.
    #[error("{path}: another process serves this socket; stop it, or configure another path")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path is taken by something that is no socket.
    #[error("{path} exists and is not a socket; remove it, or configure another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{path}: {source}; the directory must exist and be writable for the daemon, and the path at most 107 bytes")]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Binds `path` with these permission bits, making its directory (0755) if there is none. A socket that nobody serves is replaced.
pub fn bind(path: &Path, mode: u32) -> Result<Bound, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    let meta = fs::symlink_metadata(path).map_err(failed)?;
    let file = SocketFile { path: path.to_owned(), identity: (meta.dev(), meta.ino()) };
    Ok(Bound { listener, file })
}

fn remove_stale(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(meta) if !meta.file_type().is_socket() => return Err(Error::NotASocket { path: path.to_owned() }),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(failed(error)),
        _ => Err(Error::InUse { path: path.to_owned() }),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = |meta: &fs::Metadata| (meta.dev(), meta.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).as_ref().is_ok_and(ours) {
            // Nothing is left to do about a file that cannot be removed: the next start replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stale_is_replaced_live_is_not_and_drop_removes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/x.sock");
        let first = bind(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
        assert!(matches!(bind(&path, 0o660), Err(Error::InUse { .. })));

        // A process that was killed leaves the file and no listener.
        drop(first.listener);
        let second = bind(&path, 0o660).unwrap();
        drop(first.file);
        assert!(path.exists(), "the successor's socket stays");
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_file_in_the_way_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(matches!(bind(&path, 0o600), Err(Error::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }
}
