//! A new place for the root's key: what is written, and what to tell about it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use isthmus_pki::{
    Key,
    shamir::{Quorum, Secret},
    share::{self, SetId, Share},
};
use zeroize::Zeroizing;

use super::key_path;
use crate::files::New;

/// A root key under a split wrapping key, not written yet.
pub(crate) struct Split {
    pem: String,
    key_file: PathBuf,
    shares: Vec<(PathBuf, Zeroizing<String>)>,
    pub(crate) set: SetId,
}

/// Where the shares of a set go.
pub(crate) fn share_files(dir: &Path, quorum: Quorum) -> Vec<PathBuf> {
    (1..=quorum.total()).map(|index| dir.join(format!("share-{index}.txt"))).collect()
}

impl Split {
    /// Encrypts the key with a fresh wrapping key and splits that.
    pub(crate) fn new(key: &Key, quorum: Quorum, dir: &Path, share_dir: &Path) -> anyhow::Result<Self> {
        let mut wrapping = Secret::default();
        crate::fill(wrapping.as_mut_slice())?;
        let mut id = [0; 8];
        crate::fill(&mut id)?;
        let set = SetId::from_random(id);
        let pem = key.to_encrypted_pem(&share::passphrase(&wrapping), &crate::random()?, &crate::random()?);
        let pem = share::mark(&pem.context("only a key that is in a file can be split")?, set, quorum);
        let shares = share::create(&wrapping, quorum, set, crate::fill)?;
        let texts = shares.iter().map(Share::to_text);
        let shares = share_files(share_dir, quorum).into_iter().zip(texts).collect();
        Ok(Self { pem, key_file: key_path(dir), shares, set })
    }

    /// root.key and the share files.
    pub(crate) fn files(&self) -> Vec<New<'_>> {
        let key = New::secret(&self.key_file, self.pem.as_bytes());
        let shares = self.shares.iter().map(|(path, text)| New::secret(path, text.as_bytes()));
        std::iter::once(key).chain(shares).collect()
    }
}
