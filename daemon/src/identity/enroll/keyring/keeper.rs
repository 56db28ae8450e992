//! The node's keyring with its file: what was heard outlives a restart, also one with every issuer dead.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime},
};

use isthmus_pki::jwt::Endorsed;
use time::OffsetDateTime;

use super::{Keyring, file::MAX_LEN};
use crate::{
    identity::{enroll::disk, trust::Trust},
    log_limit::Limit,
    wall_clock::Steady,
};

/// Clones share it.
#[derive(Clone, Default)]
pub(in crate::identity) struct Keeper(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// `None`: nothing is kept, because there is no identity to keep it for.
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ring: Keyring,
    /// What is in the file.
    written: String,
    /// Of what is refused.
    log: Limit,
    clock: Steady,
}

/// What came of something that was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::identity) struct Taken {
    /// Some of it was new.
    pub(in crate::identity) news: bool,
    /// Some of it is not taken, and may be another time.
    pub(in crate::identity) refused: bool,
}

impl Keeper {
    /// Reads what an earlier run left. A file that can't be used is said aloud and is no reason not to start: issuers tell it all again.
    pub(in crate::identity) fn open(path: PathBuf) -> Self {
        let read = match read(&path).map(|bytes| bytes.map(|bytes| Keyring::parse(&bytes))) {
            Ok(None) => None,
            Ok(Some(Ok(ring))) => Some(ring),
            Ok(Some(Err(error))) => refused(&path, &error),
            Err(error) => refused(&path, &error),
        };
        let written = read.as_ref().map(Keyring::to_text).unwrap_or_default();
        let ring = read.unwrap_or_else(|| Keyring::beginning(OffsetDateTime::now_utc()));
        let state = Mutex::new(State { written, ring, ..State::default() });
        Self(Arc::new(Inner { path: Some(path), state }))
    }

    /// Takes what somebody says; `again`: not for the first time. `own`: IDs of the keys that this node signs with. Blocks: signatures
    /// are verified and a file is written.
    pub(in crate::identity) fn hear(
        &self,
        texts: &[Vec<u8>],
        own: &[String],
        trust: &Trust,
        now: SystemTime,
        again: bool,
    ) -> Taken {
        let mut state = self.lock();
        let before = state.ring.to_text();
        let refused = state.ring.hear(texts, own, trust, now.into());
        if let Some(error) = refused.first()
            && !again
            && let Some(not_shown) = state.log.pass(Instant::now())
        {
            tracing::warn!(%error, refused = refused.len(), not_shown, "something that another node said of JWT keys is not taken");
        }
        let news = state.ring.to_text() != before;
        self.keep(&mut state);
        Taken { news, refused: !refused.is_empty() }
    }

    /// The same trust, with the keys of others that hold under it. Forgets those that do not, but for what has ended by a clock
    /// that was set minutes ago.
    pub(in crate::identity) fn complete(&self, trust: &Arc<Trust>, now: SystemTime) -> Arc<Trust> {
        let mut state = self.lock();
        if state.clock.is(now, Instant::now()) {
            state.ring.review(trust, now.into());
        } else {
            state.ring.review_unsure(trust, now.into());
        }
        // Before anybody sees it: a sequence never stands for two contents. It is seldom, and short.
        self.keep(&mut state);
        let keys: Vec<Endorsed> = state.ring.endorsed().cloned().collect();
        metrics::gauge!("isthmus_jwt_keys_heard").set(u32::try_from(keys.len()).unwrap_or(u32::MAX));
        if state.ring.sequence() == 0 {
            return trust.clone();
        }
        let own = trust.own().clone().and_jwt_authorities(keys);
        // Counters that only grow: so does their sum, whichever of them changes.
        let sequence = own.sequence().unwrap_or(0).saturating_add(state.ring.sequence());
        Arc::new(trust.with_own(own.with_sequence(sequence)))
    }

    /// Has time alone changed something?
    pub(in crate::identity) fn is_due(&self, now: SystemTime) -> bool {
        self.lock().ring.is_due(now.into())
    }

    /// What is believed, for others: JWS each.
    pub(in crate::identity) fn texts(&self) -> Vec<Vec<u8>> {
        self.lock().ring.texts().map(|text| text.as_bytes().to_vec()).collect()
    }

    /// On an error the keys serve all the same, and the next change is another attempt.
    fn keep(&self, state: &mut State) {
        let Some(path) = &self.0.path else { return };
        let text = state.ring.to_text();
        if text == state.written {
            return;
        }
        match disk::replace_public(path, text.as_bytes()) {
            Ok(()) => state.written = text,
            Err(error) => tracing::warn!(%error, "JWT keys of others could not be written down"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The ring is whole after each of its calls.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(path: &Path, error: &dyn std::error::Error) -> Option<Keyring> {
    let file = path.display();
    tracing::warn!(%file, %error, "the file of endorsed JWT keys can't be used and is written anew; issuers tell what was in it");
    None
}

/// `None`: there is none yet. Of one that is too long no more is read than shows that it is.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match crate::config::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_LEN as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_is_none_is_no_reason_not_to_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        let long = " ".repeat(MAX_LEN + 1);
        for text in ["", "{}", "[]", "{\"sequence\":-1,\"content\":\"\",\"endorsements\":[]}", &long] {
            fs::write(&path, text).unwrap();
            let keeper = Keeper::open(path.clone());
            assert!(keeper.texts().is_empty() && !keeper.is_due(SystemTime::now()));
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(Keeper::open(path).texts().is_empty());
    }
}
