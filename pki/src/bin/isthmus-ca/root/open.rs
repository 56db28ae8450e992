//! The root's key, wherever it is: in a file under a passphrase, in a file under a split key, or in a token.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use isthmus_pki::{
    Authority, Facts, Key, bundle,
    share::{self, Named, SetId, Share},
};
use isthmus_token::Uri;
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::{certificate_path, key_path, token_path};
use crate::{files, secret, token};

/// What opens the root's key.
#[derive(clap::Args)]
pub(crate) struct Unlock {
    /// File (mode 0600) with the root key's passphrase; without it, it is asked for.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// A share of the root key's wrapping key; once for each share, as many as the set needs.
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase_file")]
    share: Vec<PathBuf>,
    /// File (mode 0600) with the PIN of the root's token; without it, it is asked for.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["passphrase_file", "share"])]
    pin_file: Option<PathBuf>,
    /// The token's PKCS#11 module, if it is not where it was at `root init`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["passphrase_file", "share"])]
    module: Option<PathBuf>,
}

/// What opens the keys of several roots.
#[derive(clap::Args)]
pub(crate) struct UnlockEach {
    /// File (mode 0600) with a root key's passphrase, in the order of the roots that have one; without it, it is asked for.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Vec<PathBuf>,
    /// A share of a root key's wrapping key, of whichever root.
    #[arg(long, value_name = "FILE")]
    share: Vec<PathBuf>,
    /// File (mode 0600) with the PIN of the roots' token; without it, it is asked for.
    #[arg(long, value_name = "FILE")]
    pin_file: Option<PathBuf>,
    /// The token's PKCS#11 module, if it is not where it was at `root init`.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
}

impl UnlockEach {
    /// Opens all of them, or none: each share and passphrase goes to the root that it is for.
    pub(crate) fn open(&self, dirs: &[PathBuf]) -> anyhow::Result<Vec<Authority>> {
        let mut passphrases = self.passphrase_file.iter();
        let shares = read_shares(&self.share)?;
        let unlock = |dir: &PathBuf| {
            let mut unlock = Unlock { passphrase_file: None, share: vec![], pin_file: None, module: None };
            match source(dir)? {
                Source::Passphrase => unlock.passphrase_file = passphrases.next().cloned(),
                Source::Shares(set) => {
                    let of_the_set = shares.iter().filter(|named| named.share.set() == set);
                    unlock.share = of_the_set.map(|named| named.file.clone().into()).collect();
                }
                Source::Token(_) => {
                    (unlock.pin_file, unlock.module) = (self.pin_file.clone(), self.module.clone());
                }
            }
            open(dir, &unlock)
        };
        dirs.iter().map(unlock).collect()
    }
}

/// Where a root's key is.
pub(crate) enum Source {
    /// In root.key under a passphrase.
    Passphrase,
    /// In root.key under a wrapping key that is split.
    Shares(SetId),
    /// In the token that root.token names.
    Token(Box<Uri>),
}

/// Looks where the key is; asks for nothing.
pub(crate) fn source(dir: &Path) -> anyhow::Result<Source> {
    let (key, token) = (key_path(dir), token_path(dir));
    match (fs::symlink_metadata(&key).is_ok(), fs::symlink_metadata(&token).is_ok()) {
        (true, true) => {
            bail!(
                "{} and {} are both there; which is the root's key? Move the other away",
                key.display(),
                token.display()
            )
        }
        (false, true) => {
            let uri = token::parse(&files::read(&token)?).with_context(|| token.display().to_string())?;
            Ok(Source::Token(Box::new(uri)))
        }
        _ => Ok(share::marked(&files::read_secret(&key)?).map_or(Source::Passphrase, Source::Shares)),
    }
}

/// The root's certificate.
pub(crate) fn certificate(dir: &Path) -> anyhow::Result<CertificateDer<'static>> {
    let path = certificate_path(dir);
    let list = bundle::certificates(&files::read(&path)?).with_context(|| path.display().to_string())?;
    Ok(list.into_iter().next().expect("an empty list is an error"))
}

/// What it says, without the key.
pub(crate) fn facts(dir: &Path) -> anyhow::Result<Facts> {
    Ok(Facts::parse(&certificate(dir)?)?)
}

/// Opens the root for signing.
pub(crate) fn open(dir: &Path, unlock: &Unlock) -> anyhow::Result<Authority> {
    let (key, path) = open_key(dir, unlock)?;
    files::authority(&certificate_path(dir), key, &path)
}

/// Opens it with these shares.
pub(crate) fn open_with(dir: &Path, share: &[PathBuf]) -> anyhow::Result<Authority> {
    open(dir, &Unlock { passphrase_file: None, share: share.to_vec(), pin_file: None, module: None })
}

/// The key, and the file that holds it or says where it is.
pub(crate) fn open_key(dir: &Path, unlock: &Unlock) -> anyhow::Result<(Key, PathBuf)> {
    let (source, path) = (source(dir)?, key_path(dir));
    let given = !unlock.share.is_empty();
    let key = match source {
        Source::Token(_) if given => {
            bail!("{}: the key is in a token; no share opens it", token_path(dir).display())
        }
        Source::Token(uri) => {
            let key = token::open(&uri, unlock.module.as_deref(), unlock.pin_file.as_deref());
            return Ok((key.with_context(|| token_path(dir).display().to_string())?, token_path(dir)));
        }
        Source::Passphrase if given => {
            bail!("{}: is under a passphrase, not under shares; say --passphrase-file", path.display())
        }
        Source::Passphrase => {
            decrypt(&path, &secret::passphrase(unlock.passphrase_file.as_deref(), "the root key")?)
        }
        Source::Shares(set) if !given && unlock.passphrase_file.is_none() => {
            bail!(
                "{}: is wrapped by the shares of set {set}; give --share FILE for each one needed",
                path.display()
            )
        }
        // The combined key in a file: the way of someone who recovered it by other means.
        Source::Shares(_) if !given => {
            decrypt(&path, &secret::passphrase(unlock.passphrase_file.as_deref(), "the root key")?)
        }
        Source::Shares(set) => {
            let words = format!("{} is wrapped by the shares", path.display());
            decrypt(&path, &combine(&unlock.share, Some((set, &words)))?)
        }
    };
    Ok((key?, path))
}

fn decrypt(path: &Path, passphrase: &[u8]) -> anyhow::Result<Key> {
    Key::from_pem(&files::read_secret(path)?, Some(passphrase)).with_context(|| path.display().to_string())
}

/// Reads share files; each is checked alone first.
pub(crate) fn read_shares(paths: &[PathBuf]) -> anyhow::Result<Vec<Named>> {
    let read = |path: &PathBuf| {
        let file = path.display().to_string();
        let share = Share::parse(&files::read_secret(path)?).with_context(|| file.clone())?;
        Ok(Named { file, share })
    };
    paths.iter().map(read).collect()
}

/// The passphrase that the shares make.
pub(crate) fn combine(
    paths: &[PathBuf],
    wanted: Option<(SetId, &str)>,
) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    Ok(share::passphrase(&share::combine(&read_shares(paths)?, wanted)?))
}
