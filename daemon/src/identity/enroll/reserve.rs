//! SVIDs that were issued elsewhere and are held here for whoever is entitled to them: which may be handed out, which are to be fetched
//! anew. Pure.
//!
//! Ask [`Reserve::fresh`] first; what was fetched goes into [`Reserve::keep`]; where nobody answers, [`Reserve::valid`] has what still
//! serves. Nothing comes out that is of a tainted CA. Tell of an issuer's word with [`Reserve::hasten`], and do what
//! [`Reserve::next_left`] names at its moment until it names nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use isthmus_pki::{Key, KeyHash, SpiffeId, renewal::RenewWithin, verify::Policy};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

use crate::identity::{
    certificates::CertificateInfo,
    issuing::{Error, Svid},
};

/// Most SVIDs in reserve.
const MAX_HELD: usize = 4096;
/// When what could not be fetched may be asked for again.
pub(super) const RETRY: Duration = Duration::seconds(15);
/// The same of one that came from a CA that was left: an issuer may have signed one more while it changed over.
const AGAIN: Duration = RETRY;

/// What an entitlement comes down to for the certificate.
pub(super) type Wanted = (SpiffeId, Vec<String>, std::time::Duration);

/// An SVID in reserve.
pub(super) struct Held {
    pub(super) chain: [CertificateDer<'static>; 2],
    pub(super) key: Zeroizing<Vec<u8>>,
    /// Hash of the key of the CA that issued it.
    pub(super) ca: Arc<str>,
    pub(super) info: CertificateInfo,
    pub(super) not_after: OffsetDateTime,
    pub(super) renew_at: OffsetDateTime,
}

impl Held {
    /// As it is handed out; whoever has it comes again at `renew_at`.
    pub(super) fn svid(&self, id: &SpiffeId, renew_at: OffsetDateTime) -> Result<Svid, Error> {
        let (chain, key) = (self.chain.clone(), Key::from_pkcs8(&self.key)?);
        let (info, ca) = (self.info.clone(), self.ca.clone());
        Ok(Svid { id: id.clone(), chain, key, ca, info, not_after: self.not_after, renew_at })
    }
}

/// All of them, and what an issuer said last of CAs that were left.
#[derive(Default)]
pub(super) struct Reserve {
    held: BTreeMap<Wanted, Held>,
    left: BTreeSet<KeyHash>,
}

impl Reserve {
    /// One that need not be renewed yet.
    pub(super) fn fresh(&self, wanted: &Wanted, policy: &Policy, now: OffsetDateTime) -> Option<&Held> {
        self.valid(wanted, policy, now).filter(|held| now < held.renew_at)
    }

    /// One that still serves.
    pub(super) fn valid(&self, wanted: &Wanted, policy: &Policy, now: OffsetDateTime) -> Option<&Held> {
        self.held.get(wanted).filter(|held| now < held.not_after && !policy.is_tainted(&held.ca))
    }

    /// Takes one in; those that have ended go. One that was under way when its CA was left is asked for again soon.
    pub(super) fn keep(&mut self, wanted: Wanted, mut new: Held, now: OffsetDateTime) {
        self.held.retain(|_, held| now < held.not_after);
        if is_of(&self.left, &new) {
            new.renew_at = new.renew_at.min(now + AGAIN);
        }
        if self.held.len() < MAX_HELD || self.held.contains_key(&wanted) {
            self.held.insert(wanted, new);
        }
    }

    /// An issuer's word: what is of a CA that was left is renewed at a random moment within the span. `draw` gives those moments, each
    /// from 0 to `u16::MAX`.
    pub(super) fn hasten(&mut self, order: &RenewWithin, now: OffsetDateTime, mut draw: impl FnMut() -> u16) {
        self.left = order.cas.iter().cloned().collect();
        let left = &self.left;
        for held in self.held.values_mut().filter(|held| is_of(left, held)) {
            let moment = order.moment(now.unix_timestamp(), draw());
            let moment = OffsetDateTime::from_unix_timestamp(moment).unwrap_or(now);
            held.renew_at = held.renew_at.min(moment);
        }
    }

    /// The next of those that is to be fetched, and when; those that have ended go.
    pub(super) fn next_left(&mut self, now: OffsetDateTime) -> Option<(Wanted, OffsetDateTime)> {
        self.held.retain(|_, held| now < held.not_after);
        let left = self.held.iter().filter(|(_, held)| is_of(&self.left, held));
        let next = left.min_by_key(|(_, held)| held.renew_at)?;
        Some((next.0.clone(), next.1.renew_at))
    }

    /// It could not be fetched now.
    pub(super) fn put_off(&mut self, wanted: &Wanted, until: OffsetDateTime) {
        if let Some(held) = self.held.get_mut(wanted) {
            held.renew_at = held.renew_at.max(until);
        }
    }
}

fn is_of(left: &BTreeSet<KeyHash>, held: &Held) -> bool {
    left.iter().any(|ca| ca.as_str() == &*held.ca)
}

#[cfg(test)]
mod tests {
    use isthmus_pki::TrustDomain;

    use super::*;
    use crate::identity::certificates::Kind;

    fn key(digit: char) -> KeyHash {
        KeyHash::parse(&digit.to_string().repeat(64)).unwrap()
    }

    fn at(second: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000 + second).unwrap()
    }

    fn wanted(path: &str) -> Wanted {
        let id = TrustDomain::parse("td").unwrap().member(path).unwrap();
        (id, Vec::new(), std::time::Duration::from_secs(3600))
    }

    /// Of the CA with this key, issued at 0 for an hour.
    fn held(ca: char) -> Held {
        let info = CertificateInfo {
            kind: Kind::WorkloadSvid,
            spiffe_id: String::new(),
            subject: String::new(),
            issuer: String::new(),
            serial: String::new(),
            not_before: 0,
            not_after: at(3600).unix_timestamp(),
            sha256: String::new(),
            path: None,
            renew_at: None,
        };
        let chain = [CertificateDer::from(vec![1]), CertificateDer::from(vec![2])];
        let ca = key(ca).as_str().into();
        Held { chain, key: Zeroizing::default(), ca, info, not_after: at(3600), renew_at: at(1800) }
    }

    fn order(cas: &[char], seconds: u32) -> RenewWithin {
        RenewWithin { cas: cas.iter().map(|ca| key(*ca)).collect(), seconds }
    }

    #[test]
    fn fresh_until_half_life_and_valid_until_the_end() {
        let (mut reserve, policy) = (Reserve::default(), Policy::default());
        reserve.keep(wanted("/a"), held('a'), at(0));
        let is = |second| {
            let now = at(second);
            (
                reserve.fresh(&wanted("/a"), &policy, now).is_some(),
                reserve.valid(&wanted("/a"), &policy, now).is_some(),
            )
        };
        assert_eq!(
            [is(0), is(1799), is(1800), is(3599), is(3600)],
            [(true, true), (true, true), (false, true), (false, true), (false, false),]
        );
        assert!(reserve.valid(&wanted("/b"), &policy, at(0)).is_none());
        reserve.keep(wanted("/b"), held('a'), at(3600));
        assert_eq!(reserve.held.len(), 1, "what has ended is forgotten");
    }

    #[test]
    fn what_a_tainted_ca_issued_never_comes_out_again() {
        let mut reserve = Reserve::default();
        reserve.keep(wanted("/a"), held('a'), at(0));
        reserve.keep(wanted("/b"), held('b'), at(0));
        let policy = Policy::default().with_tainted([key('a').to_string()]);
        assert!(reserve.fresh(&wanted("/a"), &policy, at(1)).is_none());
        assert!(reserve.valid(&wanted("/a"), &policy, at(1)).is_none());
        assert!(reserve.fresh(&wanted("/b"), &policy, at(1)).is_some());
        // It is named for renewal all the same: somebody wanted it.
        reserve.hasten(&order(&['a'], 5), at(1), || u16::MAX);
        assert_eq!(reserve.next_left(at(1)), Some((wanted("/a"), at(6))));
    }

    #[test]
    fn an_issuers_word_concerns_what_is_of_a_ca_that_was_left() {
        let mut reserve = Reserve::default();
        for (path, ca) in [("/a", 'a'), ("/b", 'b'), ("/c", 'a')] {
            reserve.keep(wanted(path), held(ca), at(0));
        }
        assert_eq!(reserve.next_left(at(0)), None);
        let mut moments = [u16::MAX, 0].into_iter();
        reserve.hasten(&order(&['a'], 60), at(100), || moments.next().unwrap());
        assert_eq!(reserve.next_left(at(100)), Some((wanted("/c"), at(100))));
        let policy = Policy::default();
        assert!(reserve.fresh(&wanted("/c"), &policy, at(100)).is_none());
        assert!(
            reserve.valid(&wanted("/c"), &policy, at(100)).is_some(),
            "it serves until the new one is here"
        );
        assert!(reserve.fresh(&wanted("/b"), &policy, at(100)).is_some());
        // Nobody answers: later again, and the others have their turn.
        reserve.put_off(&wanted("/c"), at(200));
        assert_eq!(reserve.next_left(at(100)), Some((wanted("/a"), at(160))));
        reserve.keep(wanted("/a"), held('b'), at(160));
        assert_eq!(reserve.next_left(at(160)), Some((wanted("/c"), at(200))));
        reserve.keep(wanted("/c"), held('b'), at(200));
        assert_eq!(reserve.next_left(at(200)), None);
        // One that was under way when the issuer spoke comes late and is asked for again.
        reserve.keep(wanted("/d"), held('a'), at(200));
        assert_eq!(reserve.next_left(at(200)), Some((wanted("/d"), at(215))));
        // An order never makes anything later.
        reserve.hasten(&order(&['b'], 86_400), at(200), || u16::MAX);
        assert_eq!(reserve.next_left(at(200)).unwrap().1, at(1800));
    }

    #[test]
    fn the_reserve_is_bounded() {
        let mut reserve = Reserve::default();
        (0..=MAX_HELD).for_each(|n| reserve.keep(wanted(&format!("/{n}")), held('a'), at(0)));
        assert_eq!(reserve.held.len(), MAX_HELD);
        reserve.keep(wanted("/0"), held('b'), at(0));
        assert_eq!(&*reserve.held[&wanted("/0")].ca, key('b').as_str());
    }
}
