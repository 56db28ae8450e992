//! Reading certificate and key files; every error names the file and what to do.

use std::{
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use isthmus_pki::{Bundle, Key, bundle};
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::config;

/// Longest file that is read, in bytes.
const MAX_LEN: u64 = 1 << 20;

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Missing, or not ours to read.
    #[error("{path}: {source}; check that the file is there and that isthmusd may read it")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Too long for what it should hold.
    #[error("{path}: {length} bytes; more than {MAX_LEN} are not read")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        length: u64,
    },
    /// Others may read the key.
    #[error("{path}: a private key that others may read or change (mode {mode:04o}); run `chmod 600 {path}`")]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not a key.
    #[error("{path}: {reason}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: isthmus_pki::key::Error,
    },
    /// Not certificates, or not a trust bundle.
    #[error("{path}: {reason}; `isthmus-ca inspect {path}` shows what is in it")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: bundle::Error,
    },
}

pub(super) fn read(path: &Path, secret: bool) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let fail = |source| FileError::Read { path: path.to_owned(), source };
    let file = config::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if secret && mode & 0o077 != 0 {
        return Err(FileError::Mode { path: path.to_owned(), mode });
    }
    if metadata.len() > MAX_LEN {
        return Err(FileError::TooLong { path: path.to_owned(), length: metadata.len() });
    }
    // Room for all of it at once: a growing buffer leaves copies of a secret behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1));
    file.take(MAX_LEN).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

pub(super) fn key(path: &Path) -> Result<Key, FileError> {
    Key::from_pem(&read(path, true)?, None).map_err(|reason| FileError::Key { path: path.to_owned(), reason })
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let bytes = read(path, false)?;
    bundle::certificates(&bytes).map_err(|reason| FileError::Certificates { path: path.to_owned(), reason })
}

pub(super) fn bundle(path: &Path) -> Result<Bundle, FileError> {
    Bundle::parse(&read(path, false)?)
        .map_err(|reason| FileError::Certificates { path: path.to_owned(), reason })
}
