//! JWT keys that others sign with: endorsements that came over the network, each held against what this node trusts. Pure.
//!
//! ```text
//!  heard --hear--> [believed now] --review, with every change of trust and of time--> [believed] or forgotten
//!  file  --parse-> [not looked at]--review------------------------------------------> [believed] or forgotten
//! ```
//!
//! Who brought an endorsement does not matter: a live site CA of our own trust domain must have signed it. What is not said again stays
//! until it ends, and while the clock may be wrong it is kept beyond that, without being believed. No site can crowd out another: each has a number of places, and all of them together have one.

mod file;
mod keeper;
#[cfg(test)]
mod tests;

use isthmus_pki::{
    facts::{Facts, utc},
    jwt::{Endorsed, Endorsement, Error},
    key::sha256_hex,
    verify,
};
use time::{Duration, OffsetDateTime};

use crate::identity::trust::{Trust, next_sequence};
pub use file::Error as FileError;
pub(in crate::identity) use keeper::{Keeper, Taken};

/// Most endorsements: with those of our own and every root still a bundle that others read (SPIFFE bundle documents end at 256 keys).
pub(super) const MAX_KEYS: usize = 160;
/// Most of them of one site: five issuers, each with the key that signs and the next one, endorsed by the CA of before and by this one, and
/// some more.
const MAX_PER_SITE: usize = 24;
/// How much longer an endorsement must last to take the place of another. Each new one is a file to sync and something to tell everybody:
/// no CA can keep a fabric busy by adding a second at a time.
const LONGER: Duration = Duration::HOUR;
/// How far ahead one may end. A key signs for a day: one that ends later is none of ours.
const LONGEST: Duration = Duration::hours(48);
/// Most texts of one answer that are looked at.
const MAX_HEARD: usize = 2 * MAX_KEYS;

/// Why something that was heard is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Not signed by a CA that is believed now, out of its time, or no endorsement at all.
    #[error("an endorsement of a JWT key does not hold: {0}")]
    Endorsement(#[from] Error),
    /// Not text.
    #[error("an endorsement of a JWT key is not UTF-8")]
    NotText,
    /// Beyond [`LONGEST`].
    #[error("a JWT key was endorsed until {0}, and none signs for longer than two days")]
    EndsLate(String),
    /// Of somebody else's keys: those come by federation.
    #[error("a JWT key of trust domain {0} was endorsed, which is not ours; its keys come with its bundle")]
    OtherDomain(String),
    /// [`MAX_KEYS`], or [`MAX_PER_SITE`] of different keys that all end later.
    #[error(
        "no room for another JWT key of site {site:?}: {MAX_KEYS} are kept, {MAX_PER_SITE} of them of one site"
    )]
    Full {
        /// Whose CA endorsed it.
        site: String,
    },
    /// Another CA of the site had endorsed the same key and is tainted: both lay on one disk.
    #[error("key {0} has fallen with a tainted CA of its site that had endorsed it as well")]
    Fallen(String),
    /// More texts than anybody can have to say.
    #[error("{0} endorsements in one answer; only the first {MAX_HEARD} are looked at")]
    TooMany(usize),
}

/// One endorsement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    endorsement: Endorsement,
    /// `None`: not believed at this moment, and may be at another.
    endorsed: Option<Endorsed>,
}

/// Keys of others. [`Keyring::hear`] takes what somebody says, [`Keyring::review`] holds all of it against what is trusted now; both have
/// to be called with the latest trust before [`Keyring::endorsed`] is asked. [`Keyring::to_text`] and [`Keyring::parse`] are its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring {
    held: Vec<Held>,
    sequence: u64,
    /// What the keys were when the sequence rose last; empty: none yet.
    content: String,
    /// Keys that fell with a tainted CA: those who have not heard of the taint yet go on to tell them.
    fallen: Vec<Fallen>,
}

/// A key of a site that nobody's word brings back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fallen {
    site: String,
    key_id: String,
    /// By then every endorsement of it has ended.
    until: OffsetDateTime,
}

impl Keyring {
    /// An empty one, of a node that is new or has lost its file: it can't know which, so it numbers its keys from above what it may have
    /// told before.
    pub fn beginning(now: OffsetDateTime) -> Self {
        Self { sequence: next_sequence(0, now), ..Self::default() }
    }

    /// Takes what holds now and is new. Keys that this node signs with itself (`own`: their IDs) are no news.
    pub fn hear(
        &mut self,
        texts: &[Vec<u8>],
        own: &[String],
        trust: &Trust,
        now: OffsetDateTime,
    ) -> Vec<Refused> {
        let mut refused = Vec::new();
        if texts.len() > MAX_HEARD {
            refused.push(Refused::TooMany(texts.len()));
        }
        for text in texts.iter().take(MAX_HEARD) {
            let known = |held: &Held| held.endorsement.as_str().as_bytes() == text;
            if !self.held.iter().any(known) {
                refused.extend(self.take(text, own, trust, now).err());
            }
        }
        self.number(now);
        refused
    }

    fn take(
        &mut self,
        text: &[u8],
        own: &[String],
        trust: &Trust,
        now: OffsetDateTime,
    ) -> Result<(), Refused> {
        let text = str::from_utf8(text).map_err(|_| Refused::NotText)?;
        let endorsement = Endorsement::from_text(text)?;
        let endorsed = verified(&endorsement, trust, now)?;
        if own.contains(&endorsed.authority().key_id) {
            return Ok(());
        }
        let new = Held { endorsement, endorsed: Some(endorsed) };
        if self.has_fallen(&new) {
            return Err(Refused::Fallen(new.key_id().into()));
        }
        self.insert(new)
    }

    /// In place of one of the same key by the same CA that ends [`LONGER`] before, else where there is room for its site.
    fn insert(&mut self, new: Held) -> Result<(), Refused> {
        if let Some(same) = self.held.iter_mut().find(|held| held.is_same(&new)) {
            if new.outlives(same) {
                *same = new;
            }
            return Ok(());
        }
        self.make_room(&new)?;
        let at = self.held.partition_point(|held| held.order() < new.order());
        self.held.insert(at, new);
        Ok(())
    }

    fn make_room(&mut self, new: &Held) -> Result<(), Refused> {
        let full = || Refused::Full { site: new.site().into() };
        if self.held.iter().filter(|held| held.site() == new.site()).count() >= MAX_PER_SITE {
            let at = self.least_needed(new).ok_or_else(full)?;
            self.held.remove(at);
        }
        if self.held.len() >= MAX_KEYS {
            // What is not believed is only kept for the case that the clock is wrong.
            let idle = self.held.iter().position(|held| held.endorsed.is_none()).ok_or_else(full)?;
            self.held.remove(idle);
        }
        Ok(())
    }

    /// The place of the site that goes to a new key: of one that another CA endorses as well, so that its tokens stay good; else of the one
    /// that ends first, if the new one ends [`LONGER`] after. One more word for a key that is here takes nobody's.
    fn least_needed(&self, new: &Held) -> Option<usize> {
        let of_site = || self.held.iter().enumerate().filter(|(_, held)| held.site() == new.site());
        let times = |key| of_site().filter(|(_, held)| held.key_id() == key).count();
        if times(new.key_id()) > 0 {
            return None;
        }
        let twice = of_site().filter(|(_, held)| times(held.key_id()) > 1);
        let first = || of_site().min_by_key(|(_, held)| held.ends()).filter(|(_, held)| new.outlives(held));
        twice.min_by_key(|(_, held)| held.ends()).or_else(first).map(|(at, _)| at)
    }

    /// Forgets what does not hold any more: ended, or its CA is tainted, revoked, ended or under no root of ours. What seems to come from
    /// the future is not believed and not forgotten: a clock may be wrong for a moment after a start.
    pub fn review(&mut self, trust: &Trust, now: OffsetDateTime) {
        self.look(trust, now, |held, _| held.endorsement.is_early(now));
    }

    /// The same by a clock that may be wrong: what has ended by it is not believed, and not forgotten either.
    pub fn review_unsure(&mut self, trust: &Trust, now: OffsetDateTime) {
        self.look(trust, now, |held, refused| refused.is_of_time() || held.endorsement.is_early(now));
    }

    /// Holds all against what is trusted now; of what does not hold `stays` is kept. A key that one CA of a site has endorsed and that is
    /// tainted falls for all CAs of the site: the machine that had the one had the other.
    fn look(&mut self, trust: &Trust, now: OffsetDateTime, stays: impl Fn(&Held, &Refused) -> bool) {
        self.fallen.retain(|fallen| now < fallen.until);
        let fallen = &mut self.fallen;
        self.held.retain_mut(|held| {
            let (site, key_id) = (held.site().to_owned(), held.key_id().to_owned());
            let Some(refused) = held.look(trust, now) else { return true };
            if refused.is_taint() && !key_id.is_empty() && fallen.len() < MAX_KEYS {
                fallen.push(Fallen { site, key_id, until: now.saturating_add(LONGEST) });
            }
            stays(held, &refused)
        });
        let held = std::mem::take(&mut self.held);
        self.held = held.into_iter().filter(|held| !self.has_fallen(held)).collect();
        self.number(now);
    }

    fn has_fallen(&self, held: &Held) -> bool {
        self.fallen.iter().any(|fallen| fallen.site == held.site() && fallen.key_id == held.key_id())
    }

    /// True if time alone has changed something: one has ended, or one is from the future.
    pub fn is_due(&self, now: OffsetDateTime) -> bool {
        self.held.iter().any(|held| held.ends().is_none_or(|end| end < now))
    }

    /// Raises the sequence with each change of the keys.
    fn number(&mut self, now: OffsetDateTime) {
        let mut keys: Vec<String> = self.held.iter().filter_map(Held::name).collect();
        keys.sort_unstable();
        let content = if keys.is_empty() { String::new() } else { sha256_hex(keys.concat().as_bytes()) };
        if content != self.content {
            (self.content, self.sequence) = (content, next_sequence(self.sequence, now));
        }
    }

    /// The keys that are believed, site by site.
    pub fn endorsed(&self) -> impl Iterator<Item = &Endorsed> {
        self.held.iter().filter_map(|held| held.endorsed.as_ref())
    }

    /// The same as they came, for others.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let believed = self.held.iter().filter(|held| held.endorsed.is_some());
        believed.map(|held| held.endorsement.as_str())
    }

    /// Rises with every change of the keys that are believed.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

fn verified(endorsement: &Endorsement, trust: &Trust, now: OffsetDateTime) -> Result<Endorsed, Refused> {
    let endorsed = endorsement.verify(trust.store(), now)?;
    if endorsed.trust_domain() != trust.domain() {
        return Err(Refused::OtherDomain(endorsed.trust_domain().to_string()));
    }
    match endorsed.authority().expires_at.filter(|end| *end > now.saturating_add(LONGEST)) {
        Some(end) => Err(Refused::EndsLate(utc(end.unix_timestamp()))),
        None => Ok(endorsed),
    }
}

impl Refused {
    fn is_taint(&self) -> bool {
        match self {
            Self::Endorsement(Error::EarlierTainted(_)) => true,
            Self::Endorsement(Error::Refused(ca)) => {
                matches!(&**ca, verify::Error::Policy { reason, .. } if matches!(**reason, verify::Refusal::Tainted(_)))
            }
            _ => false,
        }
    }

    /// Only the date is in the way, so another clock might see it otherwise.
    fn is_of_time(&self) -> bool {
        match self {
            Self::Endorsement(Error::Expired { .. } | Error::NotYet { .. }) => true,
            Self::Endorsement(Error::Refused(ca)) => matches!(**ca, verify::Error::OutOfDate(_)),
            _ => false,
        }
    }
}

impl Held {
    /// Whether it holds now; why not.
    fn look(&mut self, trust: &Trust, now: OffsetDateTime) -> Option<Refused> {
        let found = verified(&self.endorsement, trust, now);
        let (endorsed, refused) =
            found.map_or_else(|refused| (None, Some(refused)), |held| (Some(held), None));
        self.endorsed = endorsed;
        refused
    }

    fn ca(&self) -> Option<&Facts> {
        self.endorsed.as_ref().and_then(|endorsed| endorsed.authority().endorser())
    }

    fn site(&self) -> &str {
        self.ca().and_then(Facts::site).unwrap_or_default()
    }

    fn key_id(&self) -> &str {
        self.endorsed.as_ref().map_or("", |endorsed| endorsed.authority().key_id.as_str())
    }

    fn ends(&self) -> Option<OffsetDateTime> {
        self.endorsed.as_ref().and_then(|endorsed| endorsed.authority().expires_at)
    }

    fn outlives(&self, other: &Self) -> bool {
        match (self.ends(), other.ends()) {
            (Some(own), Some(other)) => own >= other.saturating_add(LONGER),
            (own, None) => own.is_some(),
            (None, Some(_)) => false,
        }
    }

    /// Site, key and CA; what several have alike comes in the order of its arrival.
    fn order(&self) -> (&str, &str, &str) {
        (self.site(), self.key_id(), self.ca().map_or("", |ca| ca.key_sha256.as_str()))
    }

    /// Which key of which CA, if it is believed.
    fn name(&self) -> Option<String> {
        let endorsed = self.endorsed.as_ref()?;
        Some(format!("{} {}\n", endorsed.authority().key_id, self.ca()?.key_sha256))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.name().is_some_and(|name| Some(name) == other.name())
    }
}
