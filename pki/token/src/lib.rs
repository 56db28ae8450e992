//! ECDSA keys in PKCS#11 tokens (smart cards, HSMs): find one or make one, sign digests with it. Knows nothing of certificates.
//!
//! [`Uri::parse`] reads a `pkcs11:` URI (RFC 7512), [`Location::new`] adds the module and the PIN to it, [`Location::open`] finds the
//! key, [`Location::generate`] makes it, [`Location::destroy`] ends it. A [`TokenKey`] may be shared by threads: its one session does one thing after another.

#![forbid(unsafe_code)]

mod der;
mod key;
mod module;
mod uri;

use std::{fmt, path::PathBuf};

pub use key::TokenKey;
pub use uri::{Uri, UriError};

/// The curve of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// NIST P-256, signed with SHA-256.
    P256,
    /// NIST P-384, signed with SHA-384.
    P384,
}

/// Why a key in a token can't be had or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody said which library speaks to the token.
    #[error(
        "no PKCS#11 module is named; give its path, such as /usr/lib/softhsm/libsofthsm2.so, or module-path in the URI"
    )]
    NoModule,
    /// The library can't be loaded or started.
    #[error("PKCS#11 module {}: {reason}", module.display())]
    Module {
        /// The library.
        module: PathBuf,
        /// What it said.
        reason: String,
    },
    /// No token, or several, match.
    #[error("{count} tokens match {uri}; name exactly one by token= or serial=")]
    Tokens {
        /// How many.
        count: usize,
        /// What was looked for.
        uri: String,
    },
    /// The PIN is wrong. Tokens count such attempts and lock.
    #[error("the token refuses the PIN ({0}); tokens lock after a few wrong ones")]
    Pin(String),
    /// No key, or several, match.
    #[error("{count} EC private keys match {uri}; name exactly one by object= or id=")]
    Keys {
        /// How many.
        count: usize,
        /// What was looked for.
        uri: String,
    },
    /// Keys are never overwritten.
    #[error("{0} exists in the token and is not overwritten; choose another object=")]
    Exists(String),
    /// A new key needs a name.
    #[error("a new key needs a name: put object=NAME into the URI")]
    NoName,
    /// The public half is not there or not of a curve we do.
    #[error("the key's public half can't be read as P-256 or P-384: {0}")]
    Public(String),
    /// A digest of the wrong length for the curve.
    #[error("a {0:?} key does not sign a digest of {1} bytes")]
    Digest(Curve, usize),
    /// The token failed.
    #[error("the token failed to {what}: {reason}")]
    Token {
        /// What it was asked for.
        what: &'static str,
        /// What it said.
        reason: String,
    },
}

/// Where a key is, and what opens it.
pub struct Location {
    uri: Uri,
    module: PathBuf,
    pin: cryptoki::types::AuthPin,
}

impl Location {
    /// `module` is the PKCS#11 library; without it the URI's module-path is taken.
    ///
    /// # Errors
    /// If neither names a module, or the PIN is not UTF-8.
    pub fn new(uri: Uri, module: Option<PathBuf>, pin: &[u8]) -> Result<Self, Error> {
        let module = module.or_else(|| uri.module_path().map(Into::into)).ok_or(Error::NoModule)?;
        let pin = std::str::from_utf8(pin).map_err(|_| Error::Pin("it is not UTF-8".into()))?;
        Ok(Self { uri, module, pin: cryptoki::types::AuthPin::new(pin.into()) })
    }

    /// Finds the key.
    ///
    /// # Errors
    /// If the module, the token or the key is not there, or the PIN is wrong.
    pub fn open(&self) -> Result<TokenKey, Error> {
        TokenKey::find(module::session(&self.module, &self.uri, &self.pin)?, &self.uri)
    }

    /// Makes a key that never leaves the token.
    ///
    /// # Errors
    /// If there is one of that name, or as [`Location::open`].
    pub fn generate(&self, curve: Curve) -> Result<TokenKey, Error> {
        TokenKey::generate(module::session(&self.module, &self.uri, &self.pin)?, &self.uri, curve)
    }

    /// Destroys the key with its public half; none is fine.
    ///
    /// # Errors
    /// If several match, or as [`Location::open`].
    pub fn destroy(&self) -> Result<(), Error> {
        TokenKey::destroy(&module::session(&self.module, &self.uri, &self.pin)?, &self.uri)
    }

    /// Fails if [`Location::generate`] would; makes nothing.
    ///
    /// # Errors
    /// As [`Location::generate`].
    pub fn check_free(&self) -> Result<(), Error> {
        TokenKey::check_free(&module::session(&self.module, &self.uri, &self.pin)?, &self.uri)
    }
}

/// Without the PIN.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({} by {})", self.uri, self.module.display())
    }
}
