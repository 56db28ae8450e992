//! Revocation lists that came by `rotate revoke`, or from other nodes: of each issuer the newest, as verifiers go by it.

use isthmus_pki::{Crl, signed_by};

use super::{Error, store::Store};

/// Most that are kept beside the charter's; each is signed by a root.
const MAX_CRLS: usize = 64;
/// Most bytes of all of them.
pub(in crate::identity) const MAX_CRL_BYTES: usize = 1 << 20;

impl Store {
    /// Keeps a list that a root in force signed, in the place of older ones of the same root. False if one that is as new is in force.
    pub(super) fn add_crl(&mut self, der: &[u8]) -> Result<bool, Error> {
        if self.crls().iter().any(|known| known == der) {
            return Ok(false);
        }
        let list = self.read_crl(der)?;
        if !self.is_newest(&list) {
            return Ok(false);
        }
        let mut kept = self.crls.clone();
        kept.retain(|known| !Crl::parse(known).is_ok_and(|known| list.replaces(&known)));
        if !has_room(&kept, der) {
            kept.retain(|known| self.is_signed(known));
        }
        if !has_room(&kept, der) {
            return Err(Error::Crl(
                "there is no room for it beside those of other roots; publish a charter that has all lists",
            ));
        }
        kept.push(der.to_vec());
        self.crls = kept;
        Ok(true)
    }

    /// A whole list that a root in force signed.
    pub(super) fn read_crl(&self, der: &[u8]) -> Result<Crl, Error> {
        if !self.is_signed(der) {
            return Err(Error::Crl("no root in force signed it, or it is not one CRL in DER"));
        }
        Crl::parse(der).map_err(|_| {
            Error::Crl("it is a part of a list, or too long, or does not say when the next one is due; issue a whole one")
        })
    }

    /// False if one of the same root that is in force is as new.
    pub(super) fn is_newest(&self, list: &Crl) -> bool {
        let in_force = self.crls();
        let mut of_same = in_force.iter().filter_map(|known| Crl::parse(known).ok());
        of_same.all(|known| known.issuer() != list.issuer() || list.replaces(&known))
    }

    /// Did a root in force sign it?
    pub(super) fn is_signed(&self, crl: &[u8]) -> bool {
        self.roots.iter().any(|root| signed_by::crl(crl, root))
    }
}

fn has_room(kept: &[Vec<u8>], next: &[u8]) -> bool {
    let bytes: usize = kept.iter().map(Vec::len).sum();
    kept.len() < MAX_CRLS && bytes + next.len() <= MAX_CRL_BYTES
}

#[cfg(test)]
mod tests {
    use isthmus_pki::{Authority, Curve, Key, Serial, TrustDomain, authority::Revoked};
    use time::{Duration, OffsetDateTime};

    use super::*;

    fn root() -> Authority {
        let key = Key::generate(Curve::P256).unwrap();
        let (serial, now) = (Serial::from_random(rand::random()), OffsetDateTime::now_utc());
        Authority::root(&TrustDomain::parse("td").unwrap(), key, Duration::days(3650), serial, now).unwrap()
    }

    /// With this many entries.
    fn list(root: &Authority, number: u64, entries: usize) -> Vec<u8> {
        let now = OffsetDateTime::now_utc();
        let reason = isthmus_pki::authority::Reason::CaCompromise;
        let entry =
            |n: usize| Revoked { serial: [vec![1], n.to_be_bytes().to_vec()].concat(), at: now, reason };
        let revoked: Vec<Revoked> = (0..entries).map(entry).collect();
        root.sign_crl(&revoked, number, now, now + Duration::DAY).unwrap().to_vec()
    }

    fn store(roots: &[&Authority]) -> Store {
        let mut store = Store::open(std::path::Path::new("/nonexistent")).unwrap();
        store.roots = roots.iter().map(|root| root.certificate().clone()).collect();
        store
    }

    #[test]
    fn the_newest_of_each_root_is_kept() {
        let (one, two) = (root(), root());
        let mut store = store(&[&one, &two]);
        let (old, new, other) = (list(&one, 1, 0), list(&one, 300, 0), list(&two, 2, 0));
        for crl in [&old, &other, &new] {
            assert!(store.add_crl(crl).unwrap());
            assert!(!store.add_crl(crl).unwrap(), "known");
        }
        assert_eq!(store.crls, [other.clone(), new.clone()]);
        assert!(!store.add_crl(&old).unwrap() && !store.add_crl(&list(&one, 299, 1)).unwrap());
        assert_eq!(store.crls, [other, new]);
    }

    #[test]
    fn what_no_root_in_force_signed_is_refused_and_makes_room() {
        let (gone, here) = (root(), root());
        let mut store = store(&[&gone]);
        let big = list(&gone, 1, 18_000);
        assert!(big.len() > MAX_CRL_BYTES / 2 && big.len() < MAX_CRL_BYTES, "{} bytes", big.len());
        assert!(store.add_crl(&big).unwrap());
        store.roots.push(here.certificate().clone());
        let full = store.add_crl(&list(&here, 1, 18_000)).unwrap_err().to_string();
        assert!(full.contains("no room"), "{full}");
        assert_eq!(store.crls, std::slice::from_ref(&big));
        store.roots.remove(0);
        let next = list(&here, 1, 18_000);
        assert!(store.add_crl(&next).unwrap());
        assert_eq!(store.crls, [next]);
        let stranger = store.add_crl(&big).unwrap_err().to_string();
        assert!(stranger.contains("no root in force signed it"), "{stranger}");
    }
}
