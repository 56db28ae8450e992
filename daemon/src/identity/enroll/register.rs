//! Which join tokens there are and what became of each: the rule that one is used once, by whom it was made for. Pure.

use isthmus_pki::SpiffeId;
use serde::{Deserialize, Serialize};

use super::token::Hash;

/// Most tokens that are kept, used and expired ones included.
pub(super) const MAX_TOKENS: usize = 1024;
/// Used and expired ones are remembered so long, in seconds: for `token list`, and for a clear word in the log about a replay.
const REMEMBER: i64 = 86_400;

/// A token as it is kept. Times are seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Hex SHA-256 of the token.
    pub hash: String,
    /// The only site whose node it admits.
    pub site: String,
    /// The only node that it admits.
    pub node: String,
    /// When it was made.
    pub created_at: i64,
    /// The last second in which it can be used.
    pub expires_at: i64,
    /// When it was used.
    pub used_at: Option<i64>,
}

impl Record {
    /// Names it without being it.
    pub fn id(&self) -> &str {
        self.hash.get(..12).unwrap_or(&self.hash)
    }
}

/// Why a token admits nobody. For the issuer's log: a stranger is told nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Never made here, revoked, or forgotten.
    #[error("no such token was made on this issuer")]
    Unknown,
    /// Another issuer's.
    #[error("token {id} was made by {issuer}, and works there alone")]
    Elsewhere {
        /// Which.
        id: String,
        /// By whom, as it says itself.
        issuer: SpiffeId,
    },
    /// Used before: a replay, or a node whose first attempt broke off.
    #[error("token {id} was used at {used_at}; make another with `isthmusctl token create`")]
    Used {
        /// Which.
        id: String,
        /// Seconds since the Unix epoch.
        used_at: i64,
    },
    /// Too late.
    #[error("token {id} expired at {expires_at}; make another with `isthmusctl token create`")]
    Expired {
        /// Which.
        id: String,
        /// Seconds since the Unix epoch.
        expires_at: i64,
    },
    /// Another node's.
    #[error("token {id} is for node {node:?} of site {site:?}, not for the one that shows it")]
    Other {
        /// Which.
        id: String,
        /// Whom it admits.
        site: String,
        /// Whom it admits.
        node: String,
    },
}

impl Refusal {
    /// Label of `isthmus_enroll_total`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown_token",
            Self::Elsewhere { .. } => "other_issuer",
            Self::Used { .. } => "used_token",
            Self::Expired { .. } => "expired_token",
            Self::Other { .. } => "other_node",
        }
    }
}

/// All tokens of an issuer. Each change makes a new register, so that the old one stands until the new one is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Register {
    tokens: Vec<Record>,
}

impl Register {
    /// Adds a token; `None` if there are [`MAX_TOKENS`] already.
    pub(super) fn with(&self, record: Record, now: i64) -> Option<Self> {
        let mut next = self.without_old(now);
        next.tokens.push(record);
        (next.tokens.len() <= MAX_TOKENS).then_some(next)
    }

    /// What a token may do now; changes nothing.
    pub(super) fn admits(&self, hash: &Hash, site: &str, node: &str, now: i64) -> Result<&Record, Refusal> {
        let record = self.tokens.iter().find(|t| hash.is(&t.hash)).ok_or(Refusal::Unknown)?;
        let id = record.id().to_owned();
        if (record.site.as_str(), record.node.as_str()) != (site, node) {
            return Err(Refusal::Other { id, site: record.site.clone(), node: record.node.clone() });
        }
        match record.used_at {
            Some(used_at) => Err(Refusal::Used { id, used_at }),
            None if now > record.expires_at => Err(Refusal::Expired { id, expires_at: record.expires_at }),
            None => Ok(record),
        }
    }

    /// The register after this token was used.
    pub(super) fn redeemed(&self, hash: &Hash, site: &str, node: &str, now: i64) -> Result<Self, Refusal> {
        self.admits(hash, site, node, now)?;
        let mut next = self.without_old(now);
        let record = next.tokens.iter_mut().find(|t| hash.is(&t.hash)).ok_or(Refusal::Unknown)?;
        record.used_at = Some(now);
        Ok(next)
    }

    /// The register without the unused token of this id; `None` if there is none.
    pub(super) fn revoked(&self, id: &str, now: i64) -> Option<Self> {
        let mut next = self.without_old(now);
        let at = next.tokens.iter().position(|t| t.used_at.is_none() && t.id() == id)?;
        next.tokens.remove(at);
        Some(next)
    }

    /// All that is remembered, the oldest first.
    pub(super) fn list(&self, now: i64) -> Vec<Record> {
        self.without_old(now).tokens
    }

    /// How many could be used now.
    pub(super) fn outstanding(&self, now: i64) -> usize {
        self.tokens.iter().filter(|t| t.used_at.is_none() && now <= t.expires_at).count()
    }

    /// False for what [`Register::with`] and its like would never have made.
    pub(super) fn is_sound(&self) -> bool {
        self.tokens.len() <= MAX_TOKENS && self.tokens.iter().all(|t| Hash::parse(&t.hash).is_some())
    }

    fn without_old(&self, now: i64) -> Self {
        let end = |t: &Record| t.used_at.unwrap_or(t.expires_at).max(t.expires_at);
        let tokens = self.tokens.iter().filter(|t| now <= end(t).saturating_add(REMEMBER)).cloned().collect();
        Self { tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::enroll::token::tests::token;

    const NOW: i64 = 1_800_000_000;

    fn hash(n: u8) -> Hash {
        token([n; 32]).hash()
    }

    fn record(n: u8) -> Record {
        Record {
            hash: hash(n).as_str().into(),
            site: "s1".into(),
            node: "gw2".into(),
            created_at: NOW,
            expires_at: NOW + 600,
            used_at: None,
        }
    }

    #[test]
    fn one_use_by_the_one_it_is_for_and_in_time() {
        let register = Register::default().with(record(1), NOW).unwrap();
        let admits =
            |hash: &Hash, site: &str, node: &str, now| register.admits(hash, site, node, now).map(|_| ());
        assert_eq!(admits(&hash(1), "s1", "gw2", NOW + 600), Ok(()));
        assert_eq!(admits(&hash(2), "s1", "gw2", NOW), Err(Refusal::Unknown));
        for (site, node) in [("s2", "gw2"), ("s1", "gw3"), ("", "")] {
            assert!(matches!(admits(&hash(1), site, node, NOW), Err(Refusal::Other { .. })));
        }
        assert!(matches!(admits(&hash(1), "s1", "gw2", NOW + 601), Err(Refusal::Expired { .. })));

        let used = register.redeemed(&hash(1), "s1", "gw2", NOW + 1).unwrap();
        let again = used.redeemed(&hash(1), "s1", "gw2", NOW + 2).unwrap_err();
        assert!(matches!(again, Refusal::Used { used_at, .. } if used_at == NOW + 1), "{again}");
        // Somebody else's mistake does not use it up.
        assert!(register.redeemed(&hash(1), "s1", "gw3", NOW).is_err());
        assert_eq!((register.outstanding(NOW), used.outstanding(NOW)), (1, 0));
        assert_eq!(register.outstanding(NOW + 601), 0);
    }

    #[test]
    fn a_revoked_one_is_gone_a_used_one_can_not_be() {
        let register = Register::default().with(record(1), NOW).unwrap().with(record(2), NOW).unwrap();
        let id = record(1).id().to_owned();
        let revoked = register.revoked(&id, NOW).unwrap();
        assert_eq!(revoked.admits(&hash(1), "s1", "gw2", NOW).unwrap_err(), Refusal::Unknown);
        assert!(revoked.admits(&hash(2), "s1", "gw2", NOW).is_ok());
        assert_eq!(revoked.revoked(&id, NOW), None);
        let used = register.redeemed(&hash(1), "s1", "gw2", NOW).unwrap();
        assert_eq!(used.revoked(&id, NOW), None);
    }

    #[test]
    fn the_register_is_bounded_and_forgets_what_is_over() {
        let mut register = Register::default();
        for n in 0..MAX_TOKENS {
            let mut one = record(0);
            one.hash = format!("{n:064x}");
            register = register.with(one, NOW).unwrap();
        }
        assert!(register.is_sound() && register.with(record(1), NOW).is_none());
        let later = NOW + 600 + REMEMBER;
        assert_eq!(register.list(later).len(), MAX_TOKENS);
        assert_eq!(
            register.with(record(1), later + 1).unwrap().list(later + 1).len(),
            0,
            "it had expired too"
        );
    }
}
