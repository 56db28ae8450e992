//! What holds in every charter, whoever wrote it.

use std::collections::BTreeSet;

use super::{Charter, Error, PinnedCa, Root, RootState, Site};
use crate::{bundle::Bundle, facts::MAX_CERTIFICATE_LEN, id, signed_by};

/// Most roots in force at once.
pub const MAX_ROOTS: usize = 16;
/// Most sites.
pub const MAX_SITES: usize = 1024;
/// Most CAs of one site, dead ones included.
pub const MAX_CAS: usize = 32;
/// Most ID paths of one site.
pub const MAX_IDS: usize = 256;
/// Most CRLs, each as long as a certificate may be.
pub const MAX_CRLS: usize = 64;
/// Largest sequence: what every JSON reader holds exactly (RFC 8259 section 6).
pub const MAX_SEQUENCE: u64 = (1 << 53) - 1;
/// From the first second of 1970 to the last of 9999.
const TIMES: std::ops::Range<i64> = 0..253_402_300_800;
const HINTS: std::ops::RangeInclusive<u32> = 1..=86_400;

impl Charter {
    /// Every rule that one charter must obey by itself.
    pub(super) fn check(&self) -> Result<(), Error> {
        let fits = (1..=MAX_SEQUENCE).contains(&self.sequence);
        require(fits, "sequence", || format!("{} is not within 1 to {MAX_SEQUENCE}", self.sequence))?;
        require(TIMES.contains(&self.issued_at), "issued_at", || {
            "not a moment before the year 10000".into()
        })?;
        require(HINTS.contains(&self.refresh_hint), "refresh_hint", || "write 1 s to 1 day".into())?;
        self.check_roots()?;
        require(self.sites.len() <= MAX_SITES, "site", || format!("more than {MAX_SITES}"))?;
        let mut names = BTreeSet::new();
        let mut keys = BTreeSet::new();
        for site in &self.sites {
            let place = format!("site {:?}", site.name);
            require(names.insert(&site.name), &place, || "it is there twice".into())?;
            self.check_site(site, &place)?;
            for ca in &site.cas {
                let place = format!("{place}, CA {}", ca.key.short());
                require(keys.insert(&ca.key), &place, || {
                    "its key is pinned twice; a key serves one site".into()
                })?;
                self.check_ca(ca, &place)?;
            }
        }
        require(self.crls.len() <= MAX_CRLS, "crls", || format!("more than {MAX_CRLS}"))?;
        self.crls.iter().enumerate().try_for_each(|(index, crl)| self.check_crl(index, crl))
    }

    fn check_roots(&self) -> Result<(), Error> {
        let count = self.roots.len();
        require((1..=MAX_ROOTS).contains(&count), "root", || {
            format!("{count} of them; 1 to {MAX_ROOTS} will do")
        })?;
        let active = self.roots.iter().any(|root| root.state == RootState::Active);
        require(active, "root", || "none is active; then nothing could be made live: name one".into())?;
        let mut seen = BTreeSet::new();
        for root in &self.roots {
            let place = format!("root {}", root.key.short());
            require(seen.insert(&root.key), &place, || "it is there twice".into())?;
            self.check_root(root, &place)?;
        }
        Ok(())
    }

    fn check_root(&self, root: &Root, place: &str) -> Result<(), Error> {
        let bundle = Bundle::parse(&root.certificate).map_err(|e| rule(place, e.to_string()))?;
        require(bundle.anchors() == [root.certificate.clone()], place, || "one certificate each".into())?;
        require(*bundle.trust_domain() == self.trust_domain, place, || {
            format!("it is of trust domain {}, not {}", bundle.trust_domain(), self.trust_domain)
        })?;
        let signed = signed_by::certificate(&root.certificate, &root.certificate);
        require(signed, place, || "it did not sign itself: not a root".into())
    }

    fn check_site(&self, site: &Site, place: &str) -> Result<(), Error> {
        require(id::is_name(&site.name), place, || "use 1 to 63 of a-z, 0-9 and -, not at the ends".into())?;
        require(site.cas.len() <= MAX_CAS, place, || format!("more than {MAX_CAS} CAs"))?;
        require(site.ids.len() <= MAX_IDS, place, || format!("more than {MAX_IDS} ID paths"))?;
        site.ids.iter().try_for_each(|path| self.check_path(path, place))
    }

    fn check_path(&self, path: &str, place: &str) -> Result<(), Error> {
        // Every path that is no site's own.
        if path == "/" {
            return Ok(());
        }
        let refuse =
            |reason: String| rule(place, format!("ids: {:?}: {reason}", path.escape_debug().to_string()));
        let id = self.trust_domain.member(path).map_err(|e| refuse(e.to_string()))?;
        if id.is_trust_domain() {
            return Err(refuse("empty: that would be every ID".into()));
        }
        let of_a_site = path == "/site" || path.starts_with("/site/");
        if of_a_site {
            return Err(refuse("/site/NAME belongs to the site of that name alone; leave it out".into()));
        }
        Ok(())
    }

    fn check_ca(&self, ca: &PinnedCa, place: &str) -> Result<(), Error> {
        let known = ca.root.as_ref().is_some_and(|root| self.roots.iter().any(|known| known.key == *root));
        require(known || !ca.state.is_believed(), place, || {
            format!(
                "{} but the root that signed it is not in this charter; keep that root until the CA is gone, or mark the CA revoked",
                ca.state.as_str()
            )
        })?;
        let a_root = self.roots.iter().any(|root| root.key == ca.key);
        require(!a_root, place, || "it is a root's key".into())
    }

    fn check_crl(&self, index: usize, crl: &[u8]) -> Result<(), Error> {
        let place = format!("CRL {}", index + 1);
        require(crl.len() <= MAX_CERTIFICATE_LEN, &place, || {
            format!("longer than {MAX_CERTIFICATE_LEN} bytes")
        })?;
        let signed = self.roots.iter().any(|root| signed_by::crl(crl, &root.certificate));
        require(signed, &place, || "none of this charter's roots signed it, or it can't be read".into())
    }
}

fn rule(place: &str, reason: String) -> Error {
    Error::Rule { place: place.to_owned(), reason }
}

fn require(ok: bool, place: &str, reason: impl FnOnce() -> String) -> Result<(), Error> {
    if ok { Ok(()) } else { Err(rule(place, reason())) }
}
