//! JWT-SVIDs and the keys that sign them.
//!
//! A key is made here and never leaves; the site CA endorses it, the bundle carries it before its first use and until the last token
//! that it signed has died (`ring` says when). It outlives a change of the CA, but falls with each CA that endorsed it and is tainted:
//! whoever has the one from this machine may have the other. `store` keeps it over restarts.

mod endorsing;
mod ring;
mod store;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use isthmus_pki::{
    Bundle, Curve, Key, SpiffeId,
    audit::{Entry, Kind},
    facts::utc,
    jwt::{self, Claims, Endorsed, SigningKey},
    key::sha256_hex,
};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::{Error, Issuer, Requester};
use crate::identity::{
    audit::Log,
    registration::Identity,
    trust::{Trust, next_sequence},
};
use endorsing::{Endorsements, Renewed};
use ring::Span;
use store::Stored;

/// A token just issued. It is a secret while it lives: `Debug` does not show it.
pub struct JwtSvid {
    /// Whose.
    pub id: SpiffeId,
    /// The token, JWS compact.
    pub token: Zeroizing<String>,
    /// When it was made, whole seconds.
    pub issued_at: OffsetDateTime,
    /// When it ends.
    pub expires_at: OffsetDateTime,
}

impl std::fmt::Debug for JwtSvid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JwtSvid").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A key and its life.
#[derive(Clone)]
pub(super) struct Held {
    key: Arc<SigningKey>,
    pkcs8: Zeroizing<Vec<u8>>,
    span: Span,
    /// Keys of the CAs that have endorsed it, lower-case hex SHA-256.
    cas: Vec<String>,
}

/// Most fallen keys that are remembered; a key lives for a day.
const MAX_FALLEN: usize = 64;

/// The keys of a node. One for each directory; a reload goes on with those it finds.
pub(super) struct Keys {
    path: PathBuf,
    stored: Mutex<Stored>,
    /// Of the last publication.
    endorsements: Mutex<Endorsements>,
    /// IDs of the last keys that fell with a tainted CA: others who have not heard of it go on to tell them.
    fallen: Mutex<VecDeque<String>>,
}

impl Keys {
    /// Reads what an earlier run left.
    pub(super) fn open(state_dir: &Path) -> Result<Arc<Self>, Error> {
        let path = store::path(state_dir);
        let stored = Mutex::new(store::read(&path)?);
        Ok(Arc::new(Self { path, stored, endorsements: Mutex::default(), fallen: Mutex::default() }))
    }

    /// Are they those of this directory?
    pub(super) fn are_of(&self, state_dir: &Path) -> bool {
        self.path == store::path(state_dir)
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        // A change is made to a copy, written, and then taken over as a whole.
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn endorsements(&self) -> MutexGuard<'_, Endorsements> {
        // It is replaced as a whole.
        self.endorsements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fallen(&self) -> MutexGuard<'_, VecDeque<String>> {
        // One more or less, whatever panicked.
        self.fallen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_fallen(&self, ids: impl Iterator<Item = String>) {
        let mut fallen = self.fallen();
        fallen.extend(ids);
        let over = fallen.len().saturating_sub(MAX_FALLEN);
        fallen.drain(..over);
    }

    fn active(&self, now: i64) -> Option<(Arc<SigningKey>, i64)> {
        let stored = self.lock();
        let spans = stored.spans();
        ring::active(&spans, now).map(|index| (stored.keys[index].key.clone(), spans[index].until))
    }
}

impl Stored {
    fn ids(&self) -> impl Iterator<Item = String> {
        self.keys.iter().map(|held| held.key.key_id().to_owned())
    }

    fn spans(&self) -> Vec<Span> {
        self.keys.iter().map(|held| held.span).collect()
    }

    /// Forgets keys that a tainted CA has endorsed.
    fn fall(&mut self, base: &Trust, audit: &Log, now: OffsetDateTime) -> Result<bool, Error> {
        let tainted: Vec<&str> = base.store().policy().tainted().collect();
        let fallen = |held: &Held| held.cas.iter().any(|ca| tainted.contains(&ca.as_str()));
        let before = self.keys.len();
        for gone in self.keys.iter().filter(|held| fallen(held)) {
            tell(audit, gone, "gone: a site CA that endorsed it is tainted", now)?;
        }
        self.keys.retain(|held| !fallen(held));
        Ok(self.keys.len() != before)
    }

    /// Notes that this CA endorses all of them.
    fn note(&mut self, ca: &str) -> bool {
        let new = self.keys.iter_mut().filter(|held| held.cas.iter().all(|known| known != ca));
        new.map(|held| held.cas.push(ca.to_owned())).count() > 0
    }

    /// Makes the key that is due and forgets those that are over; each is written to the audit log first.
    fn advance(&mut self, audit: &Log, now: OffsetDateTime) -> Result<bool, Error> {
        let clock = now.unix_timestamp();
        let spans = self.spans();
        let over: Vec<usize> = (0..spans.len()).filter(|at| ring::is_over(&spans, *at, clock)).collect();
        let made = ring::next(&spans, clock);
        for index in over.iter().rev() {
            let gone = self.keys.remove(*index);
            tell(audit, &gone, "gone: the last token that it signed has died", now)?;
        }
        if let Some(span) = made {
            let held = Held::new(Key::generate(Curve::P256)?, span).map_err(Error::Token)?;
            tell(audit, &held, &format!("made; signs from {}", utc(span.from)), now)?;
            self.keys.push(held);
        }
        Ok(made.is_some() || !over.is_empty())
    }
}

fn tell(audit: &Log, held: &Held, reason: &str, now: OffsetDateTime) -> Result<(), Error> {
    tracing::info!(key_id = held.key.key_id(), reason, "JWT key");
    audit.record(&Entry {
        time: now,
        kind: Kind::JwtKey,
        id: "",
        serial: held.key.key_id(),
        not_after: Some(held.span.until),
        requester: "isthmusd",
        reason,
    })?;
    Ok(())
}

impl Issuer {
    /// The bundle that this node publishes: the roots of `base`, and the JWT keys that its site CA endorses. Brings the keys up to date
    /// first. Its sequence number rises with each change, over restarts too.
    pub fn publish(&self, base: &Trust, now: SystemTime) -> Result<Bundle, Error> {
        let (roots, now) = (base.own(), OffsetDateTime::from(now));
        let mut stored = self.keys.lock();
        let mut next = stored.clone();
        let fell = next.fall(base, &self.audit, now)?;
        if fell {
            self.keys.note_fallen(stored.ids().filter(|id| next.ids().all(|left| left != *id)));
        }
        let advanced = next.advance(&self.audit, now)?;
        let changed = next.note(&self.ca.facts().key_sha256) || fell || advanced;
        let renewed = self.keys.endorsements().renewed(&next.keys, &self.ca.authority, base, now);
        let Renewed { endorsements, endorsed, refused } = renewed;
        let content = content(roots, &endorsed);
        let differs = next.content != content;
        if differs {
            // Once, not with every look at the keys.
            refused.iter().for_each(|error| tracing::warn!(%error, "a JWT key is not published"));
            (next.sequence, next.content) = (next_sequence(next.sequence, now), content);
        }
        if changed || differs {
            // Before anybody sees it: a number never stands for two contents, and no key signs that a restart would lose.
            store::write(&self.keys.path, &next)?;
            *stored = next;
        }
        // Others are told of no key that is not kept: they would make room for it.
        *self.keys.endorsements() = endorsements;
        metrics::gauge!("isthmus_jwt_keys").set(u32::try_from(endorsed.len()).unwrap_or(u32::MAX));
        let hint = Duration::from_secs(ring::REFRESH_HINT.unsigned_abs());
        Ok(roots
            .clone()
            .with_jwt_authorities(endorsed)
            // Two counters that only grow: so does their sum, whichever of them changes.
            .with_sequence(stored.sequence.saturating_add(roots.sequence().unwrap_or(0)))
            .with_refresh_hint(roots.refresh_hint().unwrap_or(hint)))
    }

    /// What the site CA has signed of the keys that were published last: JWS each, for other nodes.
    pub(in crate::identity) fn endorsements(&self) -> Vec<Vec<u8>> {
        self.keys.endorsements().texts().map(|text| text.as_bytes().to_vec()).collect()
    }

    /// IDs of the keys that tokens are signed with here, or were until they fell: nobody else has to tell us of those.
    pub(in crate::identity) fn key_ids(&self) -> Vec<String> {
        let fallen = self.keys.fallen().clone();
        self.keys.lock().ids().chain(fallen).collect()
    }

    /// When [`Issuer::publish`] has something to do next.
    pub(in crate::identity) fn publish_due(&self, now: SystemTime) -> SystemTime {
        let now = OffsetDateTime::from(now).unix_timestamp();
        let due = ring::due(&self.keys.lock().spans(), now);
        OffsetDateTime::from_unix_timestamp(due).map_or(SystemTime::now(), SystemTime::from)
    }

    /// Issues a JWT-SVID. Its life is `identity.jwt_ttl`, cut at the end of the site CA.
    pub fn mint(
        &self,
        identity: &Identity,
        audience: &[String],
        requester: &Requester,
        now: SystemTime,
    ) -> Result<JwtSvid, Error> {
        self.settle("jwt", &identity.id, requester, now, || {
            self.admit(&identity.id, requester, now)?;
            self.mint_admitted(identity, audience, requester, now.into())
        })
    }

    fn mint_admitted(
        &self,
        identity: &Identity,
        audience: &[String],
        requester: &Requester,
        now: OffsetDateTime,
    ) -> Result<JwtSvid, Error> {
        let iat = now.unix_timestamp();
        let (key, until) = self.keys.active(iat).ok_or(Error::NoTokenKey)?;
        let ttl = i64::try_from(identity.jwt_ttl.as_secs()).unwrap_or(i64::MAX);
        let exp = iat.saturating_add(ttl).min(until).min(self.ca.info.not_after);
        let claims = Claims { sub: identity.id.clone(), aud: audience.to_vec(), iat, exp };
        let token = Zeroizing::new(jwt::sign(&key, &claims).map_err(Error::Token)?);
        self.audit.record(&Entry {
            time: now,
            kind: Kind::Jwt,
            id: &identity.id.to_string(),
            serial: key.key_id(),
            not_after: Some(exp),
            requester: &requester.to_string(),
            reason: &format!("for {}", audience.join(", ")),
        })?;
        let time = |seconds| OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(now);
        Ok(JwtSvid { id: identity.id.clone(), token, issued_at: time(iat), expires_at: time(exp) })
    }
}

/// What a bundle holds, as one hash.
fn content(roots: &Bundle, keys: &[Endorsed]) -> String {
    let mut ids: Vec<&str> = keys.iter().map(|key| key.authority().key_id.as_str()).collect();
    ids.sort_unstable();
    let mut bytes = roots.to_der();
    ids.iter().for_each(|id| bytes.extend_from_slice(id.as_bytes()));
    sha256_hex(&bytes)
}
