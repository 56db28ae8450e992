//! Taint statements, own and heard: one of each CA, and no site's crowd out another's. Pure.
//!
//! Whoever holds the key of one CA can sign any number of them; they would be kept and told on by every node of the fabric. One that says
//! nothing any more, because its CA has ended or is under no root in force, stays until its place is needed: a clock that is ahead for a
//! moment must not bring a tainted CA back.

use isthmus_pki::{
    Bundle, KeyHash,
    rotation::taint::{self, Taint},
};
use time::OffsetDateTime;

/// Most that are kept; each is of a CA that a root signed.
pub(in crate::identity) const MAX_TAINTS: usize = 256;
/// Most of them of one site: more than it has CAs alive.
const MAX_OF_SITE: usize = 16;

/// Why one is not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no room for another taint statement of site {site:?}: {MAX_TAINTS} are kept, {MAX_OF_SITE} of them of one site; publish a charter that marks the CA tainted"
)]
pub struct Full {
    /// Whose CA it is about; empty: its certificate names none.
    pub site: String,
}

/// All that are kept. [`Statements::add`] takes what [`taint::open`] has believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statements(Vec<Kept>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    /// As it was signed.
    text: String,
    taint: Taint,
}

impl Statements {
    /// From a file of ours: each was believed when it came. The error says what is wrong with it.
    pub(super) fn parse(texts: Vec<String>) -> Result<Self, String> {
        if texts.len() > MAX_TAINTS {
            return Err(format!("more than {MAX_TAINTS} taint statements"));
        }
        let mut all = Self::default();
        for text in texts {
            let taint = taint::look(&text).map_err(|error| format!("a taint statement: {error}"))?;
            if !all.names(&taint.key) {
                all.0.push(Kept { text, taint });
            }
        }
        Ok(all)
    }

    /// As they were signed.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|kept| kept.text.as_str())
    }

    /// The CA that this statement is about, if it is one of them.
    pub(super) fn about(&self, text: &str) -> Option<&KeyHash> {
        self.0.iter().find(|kept| kept.text == text).map(|kept| &kept.taint.key)
    }

    /// Is there one of this CA?
    pub(super) fn names(&self, key: &KeyHash) -> bool {
        self.0.iter().any(|kept| kept.taint.key == *key)
    }

    /// Takes one that was believed; false if it is nothing new.
    pub(super) fn add(
        &mut self,
        text: String,
        taint: Taint,
        bundle: &Bundle,
        now: OffsetDateTime,
    ) -> Result<bool, Full> {
        let over = taint.is_over(now);
        if let Some(known) = self.0.iter_mut().find(|kept| kept.taint.key == taint.key) {
            // The CA's certificate was renewed with the key that it had, or another root signed it.
            let more = taint.not_after > known.taint.not_after || (!over && known.is_idle(bundle, now));
            if more {
                *known = Kept { text, taint };
            }
            return Ok(more);
        }
        if !self.has_room(&taint) {
            // Nothing of it can be alive: no place is taken from anybody for it.
            if over {
                return Ok(false);
            }
            self.make_room(&taint, bundle, now);
        }
        if !self.has_room(&taint) {
            return Err(Full { site: taint.site.unwrap_or_default() });
        }
        self.0.push(Kept { text, taint });
        Ok(true)
    }

    fn has_room(&self, taint: &Taint) -> bool {
        let of_site = self.0.iter().filter(|kept| kept.taint.site == taint.site).count();
        of_site < MAX_OF_SITE && self.0.len() < MAX_TAINTS
    }

    /// Forgets what says nothing any more.
    fn make_room(&mut self, taint: &Taint, bundle: &Bundle, now: OffsetDateTime) {
        let everybody = self.0.len() >= MAX_TAINTS;
        self.0.retain(|kept| {
            let in_the_way = everybody || kept.taint.site == taint.site;
            !(in_the_way && kept.is_idle(bundle, now))
        });
    }
}

impl Kept {
    /// True if nothing is refused because of it.
    fn is_idle(&self, bundle: &Bundle, now: OffsetDateTime) -> bool {
        self.taint.is_over(now) || taint::open(&self.text, bundle).is_err()
    }
}

#[cfg(test)]
mod tests {
    use isthmus_pki::{Authority, Curve, Key, Profile, Serial, TrustDomain};
    use time::Duration;

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH.saturating_add(Duration::days(20_000));

    fn serial() -> Serial {
        Serial::from_random(rand::random())
    }

    fn root() -> Authority {
        let key = Key::generate(Curve::P256).unwrap();
        Authority::root(&TrustDomain::parse("td").unwrap(), key, Duration::days(3650), serial(), NOW).unwrap()
    }

    fn bundle(root: &Authority) -> Bundle {
        Bundle::parse(root.certificate()).unwrap()
    }

    /// A CA with this key, or a copy of it.
    fn ca(root: &Authority, site: &str, key: &Key, days: i64) -> Authority {
        let profile = Profile::SiteCa { site: site.into(), lifetime: Duration::days(days) };
        let certificate = root.issue(&profile, &key.public(), serial(), NOW).unwrap().certificate;
        Authority::load(certificate, Key::from_pkcs8(&key.to_pkcs8()).unwrap()).unwrap()
    }

    fn new_ca(root: &Authority, site: &str, days: i64) -> Authority {
        ca(root, site, &Key::generate(Curve::P256).unwrap(), days)
    }

    fn add(
        all: &mut Statements,
        ca: &Authority,
        since: i64,
        at: (&Bundle, OffsetDateTime),
    ) -> Result<bool, Full> {
        let text = taint::seal(ca, since, "").unwrap();
        let taint = taint::look(&text).unwrap();
        all.add(text, taint, at.0, at.1)
    }

    #[test]
    fn who_holds_one_key_has_one_place() {
        let root = root();
        let (bundle, thief, mut all) = (bundle(&root), new_ca(&root, "s1", 90), Statements::default());
        assert_eq!(add(&mut all, &thief, 0, (&bundle, NOW)), Ok(true));
        let first: Vec<String> = all.texts().map(str::to_owned).collect();
        for since in 1..100 {
            assert_eq!(add(&mut all, &thief, since, (&bundle, NOW)), Ok(false));
        }
        assert!(all.texts().eq(first.iter()), "the first word stays");
        assert_eq!(all.about(&first[0]), Some(&KeyHash::of(thief.facts())));
        assert!(all.names(&KeyHash::of(thief.facts())) && all.about("another").is_none());
    }

    #[test]
    fn a_site_that_fills_its_places_leaves_those_of_others() {
        let root = root();
        let (bundle, mut all) = (bundle(&root), Statements::default());
        for _ in 0..MAX_OF_SITE {
            assert_eq!(add(&mut all, &new_ca(&root, "s1", 90), 0, (&bundle, NOW)), Ok(true));
        }
        let one_more = new_ca(&root, "s1", 90);
        assert_eq!(add(&mut all, &one_more, 0, (&bundle, NOW)), Err(Full { site: "s1".into() }));
        assert_eq!(add(&mut all, &new_ca(&root, "s2", 90), 0, (&bundle, NOW)), Ok(true));
        for site in 3..=MAX_TAINTS / MAX_OF_SITE {
            for _ in 0..MAX_OF_SITE {
                add(&mut all, &new_ca(&root, &format!("s{site}"), 1), 0, (&bundle, NOW)).unwrap();
            }
        }
        for _ in all.0.len()..MAX_TAINTS {
            add(&mut all, &new_ca(&root, "s2", 1), 0, (&bundle, NOW)).unwrap();
        }
        let last = new_ca(&root, "s0", 90);
        assert_eq!(add(&mut all, &last, 0, (&bundle, NOW)), Err(Full { site: "s0".into() }));
        assert_eq!(all.0.len(), MAX_TAINTS);
        // Once those of a day have ended, they make room; what lives stays.
        assert_eq!(add(&mut all, &last, 0, (&bundle, NOW + Duration::days(2))), Ok(true));
        assert_eq!(all.0.len(), MAX_OF_SITE + 2);
    }

    #[test]
    fn what_is_over_or_under_no_root_stays_until_its_place_is_needed() {
        let (old, new) = (root(), root());
        let (before, after) = (bundle(&old), bundle(&new));
        let (mut all, late) = (Statements::default(), NOW + Duration::days(100));
        let over = new_ca(&old, "s1", 90);
        assert_eq!(add(&mut all, &over, 0, (&before, late)), Ok(true), "there is room");
        for _ in 1..MAX_OF_SITE {
            add(&mut all, &new_ca(&old, "s1", 365), 0, (&before, NOW)).unwrap();
        }
        let dead = new_ca(&old, "s1", 90);
        assert_eq!(add(&mut all, &dead, 0, (&before, late)), Ok(false), "nobody goes for it");
        assert!(all.names(&KeyHash::of(over.facts())));
        assert_eq!(add(&mut all, &new_ca(&old, "s1", 365), 0, (&before, late)), Ok(true));
        assert!(!all.names(&KeyHash::of(over.facts())) && all.0.len() == MAX_OF_SITE);
        // The root is gone, and with it all that it vouched for.
        assert_eq!(add(&mut all, &new_ca(&new, "s1", 365), 0, (&after, NOW)), Ok(true));
        assert_eq!(all.0.len(), 1);
    }

    #[test]
    fn a_renewed_certificate_of_a_tainted_key_is_tainted_for_its_whole_life() {
        let (old, new) = (root(), root());
        let (before, after, mut all) = (bundle(&old), bundle(&new), Statements::default());
        let key = Key::generate(Curve::P256).unwrap();
        let (short, long) = (ca(&old, "s1", &key, 90), ca(&old, "s1", &key, 365));
        assert_eq!(add(&mut all, &short, 0, (&before, NOW)), Ok(true));
        assert_eq!(add(&mut all, &long, 1, (&before, NOW)), Ok(true));
        assert_eq!(add(&mut all, &short, 2, (&before, NOW)), Ok(false));
        let held = all.0[0].taint.clone();
        assert_eq!((all.0.len(), held.not_after), (1, long.facts().not_after));
        // Under another root it ends earlier, and counts all the same where the first one is gone.
        let moved = ca(&new, "s1", &key, 90);
        assert_eq!(add(&mut all, &moved, 3, (&after, NOW)), Ok(true));
        assert_eq!(add(&mut all, &short, 4, (&after, NOW)), Ok(false));
        assert_eq!(all.0[0].taint.since, 3);
    }

    #[test]
    fn a_file_is_held_to_the_same_bounds() {
        let root = root();
        let text = taint::seal(&new_ca(&root, "s1", 90), 0, "").unwrap();
        let all = Statements::parse(vec![text.clone(), text.clone()]).unwrap();
        assert!(all.texts().eq([text.as_str()]));
        assert!(Statements::parse(vec!["a.b.c".into()]).unwrap_err().contains("a taint statement"));
        assert!(Statements::parse(vec![text; MAX_TAINTS + 1]).unwrap_err().contains("more than 256"));
    }
}
