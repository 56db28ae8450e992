//! Which site CA may vouch for which IDs of our own trust domain.
//!
//! One root signs all site CAs, so a chain alone would let any site issue any ID. X.509 name constraints can't bind them: rustls, and with
//! it Istio's ambient mode, refuses every chain that constrains URIs. So the rule is ours, and every verifier of ours applies it:
//!
//! 1. a CA whose key is tainted vouches for nobody;
//! 2. where a site's keys are pinned, only a CA with one of them is that site's;
//! 3. `/site/SITE/...` is vouched for by SITE's CA alone;
//! 4. any other path by every site CA; once there are rules, only by a CA whose site's rule has a prefix of the path.
//!
//! A CA's site is the OU of its subject, which the ceremony wrote and the root signed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    facts::Facts,
    id::{self, SpiffeId},
};

/// The rules of one trust domain. The default has none: sites own their `/site/SITE/`, and all share the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Path prefixes by site; `None`: no rules.
    rules: Option<BTreeMap<String, Vec<String>>>,
    /// Keys by site, lower-case hex SHA-256 of the SubjectPublicKeyInfo.
    pins: BTreeMap<String, BTreeSet<String>>,
    /// The same form.
    tainted: BTreeSet<String>,
}

/// Why a CA may not vouch for an ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its key is no longer to be believed.
    #[error("its key {0} is tainted; what it issued must be issued anew by another CA")]
    Tainted(String),
    /// Not one of the keys that its site may have.
    #[error("its key {key} is not pinned for site {site:?}")]
    NotPinned {
        /// From the CA's subject.
        site: String,
        /// Of the CA.
        key: String,
    },
    /// An ID of another site.
    #[error("only the CA of site {owner:?} vouches for {id}, and this is {}", site.as_ref().map_or("of no site (no OU)".into(), |s| format!("that of {s:?}")))]
    OtherSite {
        /// What was claimed.
        id: SpiffeId,
        /// Whose it is.
        owner: String,
        /// Of the CA.
        site: Option<String>,
    },
    /// No rule for the path.
    #[error("no rule lets the CA of {} vouch for {id}", site.as_ref().map_or("no site (no OU)".into(), |s| format!("site {s:?}")))]
    NoRule {
        /// What was claimed.
        id: SpiffeId,
        /// Of the CA.
        site: Option<String>,
    },
}

impl Policy {
    /// With rules: pairs of a site and path prefixes. A prefix ends at a segment: `/ns/a` stands for `/ns/a` and `/ns/a/...`, not for
    /// `/ns/ab`; `/` stands for every path outside `/site/`.
    pub fn new(rules: impl IntoIterator<Item = (String, Vec<String>)>) -> Result<Self, id::Error> {
        let mut map: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (site, prefixes) in rules {
            id::check_segment(&site)?;
            prefixes.iter().try_for_each(|prefix| check_prefix(prefix))?;
            map.entry(site).or_default().extend(prefixes);
        }
        Ok(Self { rules: Some(map), ..Self::default() })
    }

    /// Pins the keys that a site's CAs may have: lower-case hex SHA-256 of their SubjectPublicKeyInfo. None: that site has no CA.
    #[must_use]
    pub fn with_pins(mut self, site: &str, keys: impl IntoIterator<Item = String>) -> Self {
        self.pins.insert(site.to_owned(), keys.into_iter().collect());
        self
    }

    /// Adds keys that are no longer to be believed, in the same form.
    #[must_use]
    pub fn with_tainted(mut self, keys: impl IntoIterator<Item = String>) -> Self {
        self.tainted.extend(keys);
        self
    }

    /// Is this key, in the same form, one of those?
    pub fn is_tainted(&self, key: &str) -> bool {
        self.tainted.contains(key)
    }

    /// The tainted keys.
    pub fn tainted(&self) -> impl Iterator<Item = &str> {
        self.tainted.iter().map(String::as_str)
    }

    /// Checks that a CA is one that may vouch at all.
    pub fn check_ca(&self, ca: &Facts) -> Result<(), Refusal> {
        if self.tainted.contains(&ca.key_sha256) {
            return Err(Refusal::Tainted(ca.key_sha256.clone()));
        }
        let site = ca.site().unwrap_or_default();
        match self.pins.get(site) {
            Some(keys) if !keys.contains(&ca.key_sha256) => {
                Err(Refusal::NotPinned { site: site.into(), key: ca.key_sha256.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Checks that a CA may vouch for an ID.
    pub fn check(&self, ca: &Facts, id: &SpiffeId) -> Result<(), Refusal> {
        self.check_ca(ca)?;
        let site = ca.site();
        match owner(id) {
            Some(owner) if site == Some(owner) => Ok(()),
            Some(owner) => {
                Err(Refusal::OtherSite { id: id.clone(), owner: owner.into(), site: site.map(str::to_owned) })
            }
            None if self.has_rule(site, id) => Ok(()),
            None => Err(Refusal::NoRule { id: id.clone(), site: site.map(str::to_owned) }),
        }
    }

    fn has_rule(&self, site: Option<&str>, id: &SpiffeId) -> bool {
        let Some(rules) = &self.rules else { return true };
        let prefixes = site.and_then(|site| rules.get(site));
        prefixes.is_some_and(|prefixes| prefixes.iter().any(|prefix| covers(prefix, id.path())))
    }
}

/// The site whose own an ID is: `/site/SITE` and all below it.
fn owner(id: &SpiffeId) -> Option<&str> {
    id.path().strip_prefix("/site/").and_then(|rest| rest.split('/').next())
}

fn covers(prefix: &str, path: &str) -> bool {
    prefix == "/" || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check_prefix(prefix: &str) -> Result<(), id::Error> {
    match prefix.strip_prefix('/') {
        None => Err(id::Error::NoSlash),
        Some("") => Ok(()),
        Some(rest) => rest.split('/').try_for_each(id::check_segment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fabric, domain};

    fn site_ca(site: &str) -> Facts {
        Facts { organizational_units: vec![site.into()], ..Fabric::shared().site.facts().clone() }
    }

    fn allowed(policy: &Policy, ca: &Facts, path: &str) -> bool {
        policy.check(ca, &domain("td").member(path).unwrap()).is_ok()
    }

    #[test]
    fn sites_own_their_paths_and_share_the_rest() {
        let (a, b) = (site_ca("a"), site_ca("b"));
        let nobody = Facts { organizational_units: vec![], ..a.clone() };
        let both = Facts { organizational_units: vec!["a".into(), "b".into()], ..a.clone() };
        let policy = Policy::default();
        for (path, by_a, by_b, by_nobody) in [
            ("/site/a/node/gw1", true, false, false),
            ("/site/a", true, false, false),
            ("/site/ab/x", false, false, false),
            ("/ns/x/sa/y", true, true, true),
            ("/sites/a", true, true, true),
            ("/site", true, true, true),
        ] {
            let found = [&a, &b, &nobody].map(|ca| allowed(&policy, ca, path));
            assert_eq!(found, [by_a, by_b, by_nobody], "{path}");
            assert_eq!(allowed(&policy, &both, path), by_nobody, "two OUs name no site: {path}");
        }
    }

    #[test]
    fn rules_bind_the_paths_that_sites_share() {
        let policy = Policy::new([
            ("a".into(), vec!["/ns/pay".into()]),
            ("a".into(), vec!["/batch".into()]),
            ("b".into(), vec!["/".into()]),
        ])
        .unwrap();
        for (path, by_a, by_b, by_c) in [
            ("/ns/pay", true, true, false),
            ("/ns/pay/sa/x", true, true, false),
            ("/ns/payments", false, true, false),
            ("/batch/1", true, true, false),
            ("/other", false, true, false),
            ("/site/a/w", true, false, false),
            ("/site/c/w", false, false, true),
        ] {
            let found = ["a", "b", "c"].map(|site| allowed(&policy, &site_ca(site), path));
            assert_eq!(found, [by_a, by_b, by_c], "{path}");
        }
        for bad in ["", "ns", "/ns/", "/ns/..", "/n s"] {
            assert!(Policy::new([("a".into(), vec![bad.into()])]).is_err(), "{bad}");
        }
    }

    #[test]
    fn tainted_and_unpinned_keys_vouch_for_nobody() {
        let ca = site_ca("a");
        let key = ca.key_sha256.clone();
        let tainted = Policy::default().with_tainted([key.clone()]);
        assert!(tainted.is_tainted(&key) && !Policy::default().is_tainted(&key));
        assert_eq!(tainted.check_ca(&ca), Err(Refusal::Tainted(key.clone())));
        let pinned = Policy::default().with_pins("a", [key]);
        assert!(allowed(&pinned, &ca, "/w"));
        let other = Policy::default().with_pins("a", ["00".into()]);
        assert!(matches!(other.check_ca(&ca), Err(Refusal::NotPinned { .. })));
        assert!(Policy::default().with_pins("b", ["00".into()]).check_ca(&ca).is_ok());
    }
}
