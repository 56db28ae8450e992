//! Requests as they are brought: a file, what is in it, and its digest in words to read aloud.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use isthmus_pki::{csr, words};

use crate::files;

/// A request and the file that it came in.
pub(crate) struct Brought {
    pub(crate) path: PathBuf,
    pub(crate) request: csr::Request,
    digest: [u8; 32],
}

impl Brought {
    /// Reads and checks a request.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let bytes = files::read(path)?;
        let request = csr::parse(&bytes).with_context(name)?;
        let digest = csr::sha256(&bytes).with_context(name)?;
        Ok(Self { path: path.to_owned(), request, digest })
    }

    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Hex SHA-256 of the request's DER.
    pub(crate) fn sha256(&self) -> String {
        hex::encode(self.digest)
    }

    /// The same in words.
    pub(crate) fn words(&self) -> Vec<String> {
        words::lines(&self.digest)
    }
}
