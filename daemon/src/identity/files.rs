//! Reading certificate and key files; every error names the file and what to do.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use isthmus_pki::{Bundle, Key, bundle};
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::{
    config,
    secret_file::{self, Refusal, Rule},
};

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
    /// A private key that is not safe where it is.
    #[error("{path}: a private key: {reason}; {}", reason.remedy(path))]
    Secret {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Refusal,
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

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let fail = |source| FileError::Read { path: path.to_owned(), source };
    let file = config::open(path).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    if length > MAX_LEN {
        return Err(FileError::TooLong { path: path.to_owned(), length });
    }
    let mut bytes = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

/// Reads a file that holds a secret.
pub(super) fn secret(path: &Path, rule: Rule) -> Result<Zeroizing<Vec<u8>>, FileError> {
    secret_file::read(path, rule).map_err(|reason| FileError::Secret { path: path.to_owned(), reason })
}

pub(super) fn key(path: &Path) -> Result<Key, FileError> {
    Key::from_pem(&secret(path, Rule::Private)?, None)
        .map_err(|reason| FileError::Key { path: path.to_owned(), reason })
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let bytes = read(path)?;
    bundle::certificates(&bytes).map_err(|reason| FileError::Certificates { path: path.to_owned(), reason })
}

pub(super) fn bundle(path: &Path) -> Result<Bundle, FileError> {
    Bundle::parse(&read(path)?).map_err(|reason| FileError::Certificates { path: path.to_owned(), reason })
}
