//! What goes wrong around the machine.

use std::{io, path::PathBuf};

use isthmus_pki::{
    authority, bundle, charter, csr, key,
    rotation::{self, taint},
    verify,
};

use super::statements::Full;
use crate::identity::{files::FileError, issuing};

/// Why a rotation's files can't be used, or a step could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the state directory.
    #[error("{path}: {source}; the disk may be full, or isthmusd may not read and write there")]
    Io {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// State that can't be read.
    #[error(
        "{path}: {reason}; it was changed by hand or by a newer version: put a copy back, or remove it to begin anew with the files of the configuration"
    )]
    State {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A charter.
    #[error("{place}: {reason}")]
    Charter {
        /// The file, or who sent it.
        place: String,
        /// What is wrong with it.
        reason: Box<charter::Error>,
    },
    /// A charter that may not follow the one in force now.
    #[error("{place}: charter refused: {refusal}")]
    Refused {
        /// The file, or who sent it.
        place: String,
        /// What is in its way.
        refusal: rotation::Refusal,
    },
    /// Roots that are no bundle.
    #[error("the roots in force: {0}")]
    Bundle(#[from] bundle::Error),
    /// A site CA's certificate.
    #[error("the certificate: {0}")]
    Certificate(String),
    /// A site CA that may not be loaded.
    #[error("site CA: {0}")]
    Authority(#[from] authority::Error),
    /// A taint statement.
    #[error("the taint statement: {0}")]
    Taint(#[from] taint::Error),
    /// One taint statement too many.
    #[error(transparent)]
    Full(#[from] Full),
    /// No CA is meant by these digits.
    #[error(
        "{0:?} is not the beginning (8 digits or more) of the key of one CA of this site; `isthmusctl rotate status` lists them"
    )]
    Key(String),
    /// A CRL that does not do what was asked for.
    #[error("the CRL: {0}")]
    Crl(&'static str),
    /// A CA whose leaves every node would refuse.
    #[error(
        "{place}: what this CA issues would be refused: {reason}; publish a charter that pins it, or install one that is pinned"
    )]
    NotBelieved {
        /// The file of its certificate.
        place: PathBuf,
        /// The policy's verdict.
        reason: verify::Refusal,
    },
    /// A certificate file, or a key.
    #[error(transparent)]
    File(#[from] FileError),
    /// A CA that can't be loaded.
    #[error(transparent)]
    Issuer(#[from] Box<issuing::Error>),
    /// The cryptographic library.
    #[error("the cryptographic library failed: {0}")]
    Library(#[from] key::Error),
    /// A request could not be made.
    #[error(transparent)]
    Request(#[from] csr::Error),
    /// A key in the clear beside one that is sealed.
    #[error(
        "the key of [issuer] is the systemd credential {0:?}, and isthmusd can't seal another one, nor leave it in the clear; encrypt the key with a passphrase, make that the credential (key = FILE and key_credential = NAME in [issuer]), reload, and order again"
    )]
    Sealed(String),
    /// It would encrypt nothing.
    #[error(
        "the passphrase of the key of [issuer] is empty, so the next key can't be encrypted with it; write it into the first line"
    )]
    NoPassphrase,
    /// What is asked needs a site.
    #[error("this node has no [node] site, so it rotates nothing; add it to the configuration")]
    NoSite,
}
