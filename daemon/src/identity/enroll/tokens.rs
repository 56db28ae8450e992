//! The join tokens of this issuer: one owner of the register and of its file.
//!
//! The use of a token is on disk before anybody acts on it. Two that show the same token, in whatever order, meet one lock.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use isthmus_pki::id::is_name;

use super::{
    disk,
    register::{Record, Refusal, Register},
    token::{Hash, Token},
};

/// How long a token may live.
pub const TTL_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(30)..=Duration::from_secs(7 * 86_400);
/// Longest file that is read: [`super::register::MAX_TOKENS`] records have less.
const MAX_LEN: u64 = 1 << 20;

/// Why the register can't be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It can't be read.
    #[error("{path}: {reason}; move it away to start without join tokens")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It can't be written.
    #[error(transparent)]
    Write(#[from] disk::WriteError),
    /// The token admits nobody.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Too many.
    #[error(
        "{} join tokens are kept already; revoke some with `isthmusctl token revoke`",
        super::register::MAX_TOKENS
    )]
    Full,
    /// No node can be called so.
    #[error("{0:?} can't be the name of a node: use 1 to 63 of a-z, 0-9 and -, not at the ends")]
    Name(String),
    /// Lifetime out of range.
    #[error("a join token lives from 30 seconds to 7 days")]
    Ttl,
}

/// A token just made.
#[derive(Debug)]
pub struct Created {
    /// To be told once.
    pub token: Token,
    /// What is kept of it.
    pub record: Record,
}

/// Cheap to clone; all share one register.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    register: Register,
}

impl Tokens {
    /// Reads the register; without a file it is empty.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let register = read(path).map_err(|reason| Error::Read { path: path.to_owned(), reason })?;
        Ok(Self(Arc::new(Mutex::new(Inner { path: path.to_owned(), register }))))
    }

    /// Takes a token that was just made for a node: it is kept when this returns. Blocks on the disk.
    pub fn create(
        &self,
        token: Token,
        (site, node): (&str, &str),
        ttl: Duration,
        now: i64,
    ) -> Result<Created, Error> {
        if !is_name(node) {
            return Err(Error::Name(node.to_owned()));
        }
        let seconds = i64::try_from(ttl.as_secs()).map_err(|_| Error::Ttl)?;
        let expires_at = now.checked_add(seconds).filter(|_| TTL_RANGE.contains(&ttl)).ok_or(Error::Ttl)?;
        let record = Record {
            hash: token.hash().as_str().to_owned(),
            site: site.to_owned(),
            node: node.to_owned(),
            created_at: now,
            expires_at,
            used_at: None,
        };
        let mut inner = self.lock();
        let next = inner.register.with(record.clone(), now).ok_or(Error::Full)?;
        inner.keep(next, now)?;
        Ok(Created { token, record })
    }

    /// What a token may do now, without using it: for the checks that come before its use.
    pub fn check(&self, token: &Hash, (site, node): (&str, &str), now: i64) -> Result<(), Error> {
        self.lock().register.admits(token, site, node, now)?;
        Ok(())
    }

    /// Uses a token up. `Ok` to one caller ever, and only after the use is on disk. Blocks on the disk.
    pub fn redeem(&self, token: &Hash, (site, node): (&str, &str), now: i64) -> Result<(), Error> {
        let mut inner = self.lock();
        let next = inner.register.redeemed(token, site, node, now)?;
        inner.keep(next, now)
    }

    /// Takes an unused token back; false: there is none of this id. Blocks on the disk.
    pub fn revoke(&self, id: &str, now: i64) -> Result<bool, Error> {
        let mut inner = self.lock();
        let Some(next) = inner.register.revoked(id, now) else { return Ok(false) };
        inner.keep(next, now).map(|()| true)
    }

    /// Those not yet used, and for a day those that are over.
    pub fn list(&self, now: i64) -> Vec<Record> {
        self.lock().register.list(now)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A register is replaced whole: a panic leaves the old one or the new one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Disk first: what is believed here would still be believed after a crash.
    fn keep(&mut self, next: Register, now: i64) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(&next).expect("texts and numbers make JSON");
        disk::replace(&self.path, &text)?;
        self.register = next;
        let outstanding = u32::try_from(self.register.outstanding(now)).unwrap_or(u32::MAX);
        metrics::gauge!("isthmus_join_tokens").set(f64::from(outstanding));
        Ok(())
    }
}

fn read(path: &Path) -> Result<Register, String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Register::default()),
        Err(error) => return Err(error.to_string()),
        Ok(metadata) if metadata.len() > MAX_LEN => {
            return Err(format!("{} bytes are too many", metadata.len()));
        }
        Ok(_) => {}
    }
    let text = fs::read(path).map_err(|error| error.to_string())?;
    let register: Register =
        serde_json::from_slice(&text).map_err(|error| format!("not a register: {error}"))?;
    if register.is_sound() { Ok(register) } else { Err("not a register that isthmusd wrote".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::enroll::token::tests::token;

    const NOW: i64 = 1_800_000_000;
    const GW2: (&str, &str) = ("s1", "gw2");
    const TTL: Duration = Duration::from_secs(600);

    fn open(dir: &tempfile::TempDir) -> Tokens {
        Tokens::open(&dir.path().join("state/tokens.json")).unwrap()
    }

    /// SPIRE 1.14.6: the server did not look at how many rows its delete had hit, so two at once both won.
    #[test]
    fn of_fifty_at_once_exactly_one_wins() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = open(&dir);
        let hash = tokens.create(token([1; 32]), GW2, TTL, NOW).unwrap().token.hash();
        let winners: usize = std::thread::scope(|scope| {
            let redeem = || tokens.redeem(&hash, GW2, NOW).is_ok();
            let threads: Vec<_> = (0..50).map(|_| scope.spawn(redeem)).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(winners, 1);
    }

    #[test]
    fn a_use_survives_the_process_and_the_secret_is_not_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let created = open(&dir).create(token([2; 32]), GW2, TTL, NOW).unwrap();
        let hash = created.token.hash();
        assert!(open(&dir).check(&hash, GW2, NOW).is_ok());
        open(&dir).redeem(&hash, GW2, NOW).unwrap();
        let again = open(&dir).redeem(&hash, GW2, NOW).unwrap_err();
        assert!(matches!(again, Error::Refused(Refusal::Used { .. })), "{again}");
        let text = fs::read_to_string(dir.path().join("state/tokens.json")).unwrap();
        let secret = created.token.reveal();
        let secret = secret.strip_prefix("isthmus-join_").unwrap();
        assert!(text.contains(hash.as_str()) && !text.contains(secret), "{text}");
    }

    #[test]
    fn a_use_that_can_not_be_kept_did_not_happen() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = open(&dir);
        let hash = tokens.create(token([3; 32]), GW2, TTL, NOW).unwrap().token.hash();
        // The next file can't be made where a directory is.
        let blocker = dir.path().join("state/tokens.json.new");
        fs::create_dir(&blocker).unwrap();
        assert!(matches!(tokens.redeem(&hash, GW2, NOW), Err(Error::Write(_))));
        fs::remove_dir(&blocker).unwrap();
        tokens.redeem(&hash, GW2, NOW).unwrap();
    }

    #[test]
    fn names_lifetimes_and_files_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = open(&dir);
        for name in ["", "..", "a/b", "GW", &"a".repeat(64)] {
            assert!(
                matches!(tokens.create(token([4; 32]), ("s1", name), TTL, NOW), Err(Error::Name(_))),
                "{name}"
            );
        }
        for ttl in [0, 29, 7 * 86_400 + 1, u64::MAX] {
            let refused = tokens.create(token([4; 32]), GW2, Duration::from_secs(ttl), NOW);
            assert!(matches!(refused, Err(Error::Ttl)), "{ttl}");
        }
        let id = tokens.create(token([4; 32]), GW2, TTL, NOW).unwrap().record.id().to_owned();
        assert!(tokens.revoke(&id, NOW).unwrap() && !tokens.revoke(&id, NOW).unwrap());
        assert!(open(&dir).list(NOW).is_empty());
        let path = dir.path().join("state/tokens.json");
        for text in ["", "{}", "[]", r#"{"tokens":[{}]}"#, r#"{"tokens":[],"more":1}"#] {
            fs::write(&path, text).unwrap();
            let error = Tokens::open(&path).unwrap_err().to_string();
            assert!(error.contains("tokens.json") && error.contains("move it away"), "{error}");
        }
    }
}
