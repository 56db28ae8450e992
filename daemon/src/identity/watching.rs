//! Files that somebody replaced and told nobody: a Secret that Kubernetes mounts is swapped without a signal.
//!
//! Every [`PERIOD`] the files of `[identity]`, `[issuer]` and `[fabric]` are looked at by what is in them: a swap changes no name and
//! perhaps no length and no time, and what watches directories has missed it. What differs from what was loaded is loaded as on
//! SIGHUP, all of it or nothing, once two looks in a row saw the same: a file that is being written is a file that was cut, and a
//! bundle that was cut behind its first root is a bundle too.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{
    changing::blocking,
    config::{KeySource, PassphraseSource},
    error::Error,
    files::{self, FileError},
    handle::{Handle, Sections},
};
use crate::secret_file::Rule;

/// Between two looks; a change is in force after two of them at the latest.
pub(super) const PERIOD: Duration = Duration::from_secs(15);
/// What was refused is tried again: perhaps it was the time, or the disk.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the files held, so that two of these tell whether anything has changed. Nothing of a key can be had from it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen([u8; 32]);

impl Seen {
    /// Reads every file that these sections name.
    pub(super) fn of(sections: &Sections) -> Self {
        let mut hash = Sha256::new();
        for path in open_files(sections) {
            add(&mut hash, path, files::read(path));
        }
        for path in secret_files(sections) {
            add(&mut hash, path, files::secret(path, Rule::Private));
        }
        Self(hash.finalize().into())
    }
}

/// One that can't be read counts by why, as it would for whoever loads it.
fn add<T: AsRef<[u8]>>(hash: &mut Sha256, path: &Path, content: Result<T, FileError>) {
    let digest = match content {
        Ok(content) => Sha256::digest(content),
        Err(error) => Sha256::digest(error.to_string()),
    };
    hash.update(Sha256::digest(path.as_os_str().as_encoded_bytes()));
    hash.update(digest);
}

fn open_files((config, issuer, _): &Sections) -> impl Iterator<Item = &PathBuf> {
    let identity = config.iter().flat_map(|config| {
        let svid = config.files.as_ref().map(|files| &files.svid);
        [Some(&config.trust_bundle), svid, config.rotation.charter.as_ref()].into_iter().flatten()
    });
    identity.chain(issuer.iter().map(|issuer| &issuer.certificate))
}

/// Credentials of systemd are not among them: it lays them down at the start of the service, and never again.
fn secret_files((config, issuer, _): &Sections) -> impl Iterator<Item = &PathBuf> {
    let own = config.iter().filter_map(|config| config.files.as_ref().map(|files| &files.key));
    let issuing = issuer.iter().flat_map(|issuer| match &issuer.key {
        KeySource::File { path, passphrase } => [Some(path), file_of(passphrase)],
        KeySource::Credential { passphrase, .. } => [file_of(passphrase), None],
        KeySource::Token { pin_file, .. } => [Some(pin_file), None],
    });
    own.chain(issuing.flatten())
}

fn file_of(passphrase: &Option<PassphraseSource>) -> Option<&PathBuf> {
    match passphrase {
        Some(PassphraseSource::File(path)) => Some(path),
        Some(PassphraseSource::Credential(_)) | None => None,
    }
}

/// Until the shutdown.
pub(super) async fn run(handle: Handle, period: Duration) {
    let (shutdown, mut watch) = (handle.shutdown().clone(), Watch::default());
    while shutdown.run_until_cancelled(tokio::time::sleep(period)).await.is_some() {
        watch.look(&handle, Instant::now()).await;
    }
}

/// What the looks before have told.
#[derive(Default)]
pub(super) struct Watch {
    last: Option<Seen>,
    /// What could not be loaded, and when that was tried.
    refused: Option<(Seen, Instant)>,
}

impl Watch {
    /// Looks, and loads what has changed and changes no more.
    pub(super) async fn look(&mut self, handle: &Handle, now: Instant) {
        let sections = handle.sections().clone();
        let Ok(seen) = blocking("looking at files", move || Seen::of(&sections)).await else { return };
        let steady = self.last.replace(seen) == Some(seen);
        if !steady || seen == handle.loaded().seen || self.waits_with(seen, now) {
            return;
        }
        match handle.take_changed_files().await {
            Ok(()) => self.refused = None,
            Err(error) => self.refuse(seen, now, &error),
        }
    }

    fn waits_with(&self, seen: Seen, now: Instant) -> bool {
        self.refused.is_some_and(|(refused, at)| refused == seen && now < at + PATIENCE)
    }

    /// Said once for each state of the files.
    fn refuse(&mut self, seen: Seen, now: Instant, error: &Error) {
        if self.refused.is_none_or(|(refused, _)| refused != seen) {
            tracing::warn!(
                %error,
                "files of [identity] or [issuer] have changed and can't be used; what was loaded before stays in force until they fit"
            );
        }
        self.refused = Some((seen, now));
    }
}

impl Handle {
    /// As a reload of the same configuration.
    async fn take_changed_files(&self) -> Result<(), Error> {
        let _servers = self.0.servers.lock().await;
        let handle = self.clone();
        let loaded = blocking("loading changed files", move || {
            let (sections, now) = (handle.sections().clone(), SystemTime::now());
            handle.load(&sections, now).and_then(|prepared| handle.keep(&sections, prepared, now))
        });
        self.install_and_tell(loaded.await??);
        self.mark_fresh();
        tracing::info!("files of [identity] or [issuer] have changed, and were read again");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_refused_is_tried_again_after_a_while() {
        let (mut watch, now) = (Watch::default(), Instant::now());
        let (bad, other) = (Seen([1; 32]), Seen([2; 32]));
        watch.refuse(bad, now, &Error::NoIdentity);
        assert!(watch.waits_with(bad, now + PATIENCE - PERIOD));
        assert!(!watch.waits_with(bad, now + PATIENCE), "perhaps it was the disk");
        assert!(!watch.waits_with(other, now), "others are tried at once");
    }
}
