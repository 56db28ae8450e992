//! Unix sockets that take over from a dead predecessor, never from a live one, and are gone after a clean stop; and what gRPC clients
//! send over them that HTTP/2 does not allow.

pub(crate) mod authority;
mod mended;

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::net::{UnixListener, UnixStream};

pub(crate) use mended::Mended;

/// Why the socket can't be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody answers there.
    #[error("another process serves {0}; stop it, or configure another socket")]
    InUse(PathBuf),
    /// Something else lies there.
    #[error("{0} exists and is not a socket; move it away, or configure another socket")]
    NotASocket(PathBuf),
    /// The kernel refuses.
    #[error("{path}: {action}: {source}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The name of a socket in the file system: removes the file when dropped, if it is still ours.
pub struct Socket {
    path: PathBuf,
    identity: Identity,
}

impl Socket {
    /// Makes the directory (0755) if it is missing, replaces the socket of a dead process, and sets the permission bits.
    pub async fn bind(path: &Path, mode: u32) -> Result<(Self, UnixListener), Error> {
        let fail = |action| move |source| Error::Io { path: path.to_owned(), action, source };
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o755).create(parent).map_err(fail("make its directory"))?;
        }
        clear(path).await?;
        let listener = UnixListener::bind(path).map_err(fail("bind"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fail("set its mode"))?;
        let identity = identity(path).map_err(fail("look at"))?;
        Ok((Self { path: path.to_owned(), identity }, listener))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // Gone already, or not ours to remove any more: nothing left to do.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Device, inode and change time: inode numbers alone are given to the next file at once.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> io::Result<Identity> {
    fs::symlink_metadata(path).map(|m| (m.dev(), m.ino(), m.ctime(), m.ctime_nsec()))
}

/// Removes the socket of a process that is no more.
async fn clear(path: &Path) -> Result<(), Error> {
    let fail = |action| move |source| Error::Io { path: path.to_owned(), action, source };
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(fail("look at")(e)),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(Error::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    // No answer in a second is a full queue, thus a living owner.
    match tokio::time::timeout(Duration::from_secs(1), UnixStream::connect(path)).await {
        Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(socket = %path.display(), "replacing the socket of a process that is gone");
            fs::remove_file(path).map_err(fail("remove the stale socket"))
        }
        Ok(Err(e)) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(Err(e)) if e.kind() != io::ErrorKind::WouldBlock => Err(fail("see who serves it")(e)),
        _ => Err(Error::InUse(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn replaces_the_dead_but_not_the_living() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/x.sock");
        let (first, listener) = Socket::bind(&path, 0o660).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(fs::metadata(dir.path().join("a/b")).unwrap().permissions().mode() & 0o022, 0);
        assert!(matches!(Socket::bind(&path, 0o660).await, Err(Error::InUse(_))));
        drop(listener);
        // Another name for it keeps its inode number from being used again.
        fs::hard_link(&path, dir.path().join("first")).unwrap();
        let (second, _listener) = Socket::bind(&path, 0o660).await.unwrap();
        // The first owner is late with its clean-up: the file is the second's.
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn leaves_other_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "x").unwrap();
        assert!(matches!(Socket::bind(&path, 0o660).await, Err(Error::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
    }
}
