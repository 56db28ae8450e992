//! Keys that a rotation makes are kept as the key of `[issuer]` is: plain, encrypted with its passphrase, or in its token.
//!
//! [`check`] says whether that can be done, [`make`] makes one, [`Made::keep`] puts it down; [`open`], [`source`] and [`destroy`] go by the
//! file that it left, `ca-KEY.key`: PKCS#8 or, for a key in a token, one line with the `pkcs11:` URI that names it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use isthmus_pki::{
    Curve, Key,
    token::{self, Location, Uri},
};
use zeroize::Zeroizing;

use super::{Error, disk};
use crate::identity::{
    config::{KeySource, PassphraseSource},
    issuing,
};

/// A new key, not put down yet.
pub(super) struct Made {
    pub(super) key: Key,
    text: Zeroizing<String>,
    /// Where it is, if it is in a token.
    location: Option<Location>,
}

/// Fails where [`make`] would, or would have to put a key down in a worse way than the one that is `like` it; makes nothing.
pub(super) fn check(like: &KeySource) -> Result<(), Error> {
    match like {
        KeySource::Credential { name, passphrase: None } => Err(Error::Sealed(name.clone())),
        KeySource::File { passphrase, .. } | KeySource::Credential { passphrase, .. } => {
            passphrase.as_ref().map_or(Ok(()), |source| passphrase_of(source).map(drop))
        }
        KeySource::Token { uri, module, pin_file } => {
            let (_, location) = fresh(uri, module, pin_file)?;
            location.check_free().map_err(|reason| in_token(uri, &reason))
        }
    }
}

/// Makes the key of a site CA.
pub(super) fn make(like: &KeySource) -> Result<Made, Error> {
    check(like)?;
    let passphrase = match like {
        KeySource::File { passphrase, .. } | KeySource::Credential { passphrase, .. } => passphrase,
        KeySource::Token { uri, module, pin_file } => return make_in_token(uri, module, pin_file),
    };
    let key = Key::generate(Curve::P256)?;
    let text = match passphrase {
        None => key.to_pem(),
        Some(source) => key
            .to_encrypted_pem(&passphrase_of(source)?, &rand::random(), &rand::random())
            .map(Zeroizing::new)?,
    };
    Ok(Made { key, text, location: None })
}

fn make_in_token(like: &str, module: &Path, pin_file: &Path) -> Result<Made, Error> {
    let (uri, location) = fresh(like, module, pin_file)?;
    let key = location.generate(token::Curve::P256).map_err(|reason| in_token(like, &reason))?;
    let text = Zeroizing::new(format!("{uri}\n"));
    Ok(Made { key: Key::external(Arc::new(key))?, text, location: Some(location) })
}

impl Made {
    /// Writes the file; where that fails, nothing stays behind in the token.
    pub(super) fn keep(self, file: &Path) -> Result<(), Error> {
        let kept = disk::replace(file, self.text.as_bytes());
        if let (Err(_), Some(location)) = (&kept, &self.location) {
            let _ = location.destroy();
        }
        kept
    }
}

/// Where the key is that `file` holds or names.
pub(super) fn source(like: &KeySource, file: PathBuf) -> KeySource {
    match like {
        KeySource::Token { module, pin_file, .. } => match reference(&file) {
            Some(uri) => KeySource::Token { uri, module: module.clone(), pin_file: pin_file.clone() },
            // Made before the key of `[issuer]` moved into a token.
            None => KeySource::file(file),
        },
        KeySource::File { passphrase, .. } | KeySource::Credential { passphrase, .. } => {
            KeySource::File { path: file, passphrase: passphrase.clone() }
        }
    }
}

/// Opens the key that `file` holds or names; `None`: there is no such file.
pub(super) fn open(like: &KeySource, file: &Path) -> Result<Option<Key>, Error> {
    match disk::read(file)? {
        None => Ok(None),
        Some(_) => Ok(Some(issuing::open_key(&source(like, file.to_owned())).map_err(Box::new)?)),
    }
}

/// The key and its file; what is gone already is fine.
pub(super) fn destroy(like: &KeySource, file: &Path) -> Result<(), Error> {
    if let KeySource::Token { uri, module, pin_file } = source(like, file.to_owned()) {
        let location = issuing::token_location(&uri, &module, &pin_file).map_err(Box::new)?;
        location.destroy().map_err(|reason| in_token(&uri, &reason))?;
    }
    disk::remove(file)
}

/// The URI in a file that names a key in a token.
fn reference(file: &Path) -> Option<String> {
    let bytes = disk::read(file).ok()??;
    let text = std::str::from_utf8(&bytes).ok()?.trim();
    text.starts_with("pkcs11:").then(|| text.to_owned())
}

/// A place for one more key in the token of the one that is `like` it.
fn fresh(like: &str, module: &Path, pin_file: &Path) -> Result<(Uri, Location), Error> {
    let uri = Uri::parse(like).map_err(|reason| in_token(like, &reason))?;
    let uri = uri.renamed(&format!("site-ca-{}", hex::encode(rand::random::<[u8; 8]>())));
    let location = issuing::token_location(&uri.to_string(), module, pin_file).map_err(Box::new)?;
    Ok((uri, location))
}

fn passphrase_of(source: &PassphraseSource) -> Result<Zeroizing<Vec<u8>>, Error> {
    let passphrase = issuing::passphrase(source).map_err(Box::new)?;
    if passphrase.is_empty() { Err(Error::NoPassphrase) } else { Ok(passphrase) }
}

fn in_token(place: &str, reason: &impl ToString) -> Error {
    let (place, reason) = (place.to_owned(), reason.to_string());
    Error::Issuer(Box::new(issuing::Error::KeySource { place, reason }))
}
