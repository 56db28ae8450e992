//! Passphrases and PINs: from files that nobody else may read, or asked for at the terminal; never from arguments or environment.

use std::path::Path;

use anyhow::{Context as _, bail};
use isthmus_pki::{Key, key};
use zeroize::Zeroizing;

use crate::files;

/// Shortest passphrase for a new key, in bytes.
const MIN_PASSPHRASE: usize = 12;

/// The PIN of a token.
pub(crate) fn pin(file: Option<&Path>) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    match file {
        Some(path) => from_file(path),
        None => ask("PIN of the token: "),
    }
}

/// The passphrase of an existing key, which is `whose`: from a file, or asked for at the terminal.
pub(crate) fn passphrase(file: Option<&Path>, whose: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    match file {
        Some(path) => from_file(path),
        None => ask(&format!("Passphrase of {whose}: ")),
    }
}

/// A key in PEM; only of an encrypted one the passphrase is read or asked for.
pub(crate) fn open_key(pem: &[u8], file: Option<&Path>, whose: &str) -> anyhow::Result<Key> {
    match Key::from_pem(pem, None) {
        Err(key::Error::Encrypted) => Ok(Key::from_pem(pem, Some(&passphrase(file, whose)?))?),
        other => Ok(other?),
    }
}

/// The passphrase of a new key; at the terminal it is asked for twice.
pub(crate) fn new_passphrase(file: Option<&Path>, whose: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let passphrase = match file {
        Some(path) => from_file(path)?,
        None => ask(&format!("New passphrase for {whose}: "))?,
    };
    if passphrase.len() < MIN_PASSPHRASE {
        bail!("the passphrase has {} bytes; {whose} needs at least {MIN_PASSPHRASE}", passphrase.len());
    }
    if file.is_none() && *ask("The same again: ")? != *passphrase {
        bail!("the two passphrases differ; nothing was made");
    }
    Ok(passphrase)
}

/// A secret in a file (mode 0600), without the line break at its end.
pub(crate) fn from_file(path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = files::read_secret(path)?;
    while bytes.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        bytes.pop();
    }
    if bytes.is_empty() {
        bail!("{}: the file is empty", path.display());
    }
    Ok(bytes)
}

fn ask(prompt: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let answer = rpassword::prompt_password(prompt)
        .context("no terminal to ask for it; give --passphrase-file FILE (or --pin-file FILE for a token)")?;
    Ok(Zeroizing::new(answer.into_bytes()))
}
