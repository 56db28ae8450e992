//! Names of secrets, and what they stand for.

/// The names that are not IDs, as this node's configuration has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The caller's default SVID.
    pub default_svid: String,
    /// The bundle of the node's own trust domain.
    pub default_bundle: String,
    /// All bundles that the caller may have, each for its own trust domain only.
    pub all_bundles: String,
}

impl Default for Names {
    /// As other SPIFFE implementations have them.
    fn default() -> Self {
        Self { default_svid: "default".into(), default_bundle: "ROOTCA".into(), all_bundles: "ALL".into() }
    }
}

/// What a caller may ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// SPIFFE IDs of its identities, the default one first.
    pub identities: Vec<String>,
    /// SPIFFE IDs of the trust domains whose bundles it may have and that have a root, the node's own first.
    pub bundles: Vec<String>,
}

/// What a secret consists of; the numbers are places in the [`Offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Certificate and key of this identity.
    Svid(usize),
    /// Anchors of this trust domain alone.
    Bundle(usize),
    /// The anchors of each trust domain, for the validator that keeps them apart.
    AllBundles,
}

/// A secret to be sent, under the name that it was asked for by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// As the client calls it.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// A name that stands for nothing the caller may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("workload is not authorized for the secret {0:?}")]
pub struct NotEntitled(pub String);

impl Names {
    /// The secrets that these names stand for, in their order and each name once; without names everything that has one.
    pub fn plan(&self, wanted: &[String], offer: &Offer) -> Result<Vec<Item>, NotEntitled> {
        let all = self.everything(offer);
        if wanted.is_empty() {
            return Ok(all);
        }
        let mut items: Vec<Item> = Vec::with_capacity(wanted.len());
        for name in wanted {
            if items.iter().any(|item| item.name == *name) {
                continue;
            }
            // The first that has the name: a configured name goes before an ID.
            let item = all.iter().find(|item| item.name == *name);
            items.push(item.ok_or_else(|| NotEntitled(name.clone()))?.clone());
        }
        Ok(items)
    }

    fn everything(&self, offer: &Offer) -> Vec<Item> {
        let item = |name: &str, kind| Item { name: name.to_owned(), kind };
        let mut all = Vec::new();
        all.extend((!offer.identities.is_empty()).then(|| item(&self.default_svid, Kind::Svid(0))));
        if !offer.bundles.is_empty() {
            all.push(item(&self.default_bundle, Kind::Bundle(0)));
            all.push(item(&self.all_bundles, Kind::AllBundles));
        }
        let ids = offer.identities.iter().enumerate();
        all.extend(ids.map(|(at, id)| item(id, Kind::Svid(at))));
        let domains = offer.bundles.iter().enumerate();
        all.extend(domains.map(|(at, id)| item(id, Kind::Bundle(at))));
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|item| seen.insert(item.name.clone()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        let list = |ids: &[&str]| ids.iter().map(ToString::to_string).collect();
        Offer {
            identities: list(&["spiffe://a/one", "spiffe://a/two"]),
            bundles: list(&["spiffe://a", "spiffe://b"]),
        }
    }

    fn plan(names: &Names, wanted: &[&str]) -> Result<Vec<(String, Kind)>, NotEntitled> {
        let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        Ok(names.plan(&wanted, &offer())?.into_iter().map(|item| (item.name, item.kind)).collect())
    }

    #[test]
    fn each_name_has_its_secret() {
        for (name, kind) in [
            ("default", Kind::Svid(0)),
            ("ROOTCA", Kind::Bundle(0)),
            ("ALL", Kind::AllBundles),
            ("spiffe://a/one", Kind::Svid(0)),
            ("spiffe://a/two", Kind::Svid(1)),
            ("spiffe://a", Kind::Bundle(0)),
            ("spiffe://b", Kind::Bundle(1)),
        ] {
            assert_eq!(plan(&Names::default(), &[name]), Ok(vec![(name.to_owned(), kind)]));
        }
    }

    #[test]
    fn no_name_is_every_name() {
        let all = plan(&Names::default(), &[]).unwrap();
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["default", "ROOTCA", "ALL", "spiffe://a/one", "spiffe://a/two", "spiffe://a", "spiffe://b"]
        );
    }

    #[test]
    fn a_stranger_s_name_is_refused_by_name() {
        for wrong in ["spiffe://a/three", "spiffe://c", "Default", "spiffe://a/", ""] {
            assert_eq!(plan(&Names::default(), &["ROOTCA", wrong]), Err(NotEntitled(wrong.into())));
        }
        // Without any root there is nothing to validate with, so nothing is sent that would let everybody in.
        let empty = Offer { bundles: Vec::new(), ..offer() };
        for name in ["ROOTCA", "ALL"] {
            assert!(Names::default().plan(&[name.to_owned()], &empty).is_err());
        }
    }

    #[test]
    fn a_name_asked_for_twice_comes_once_and_order_is_kept() {
        let twice = plan(&Names::default(), &["ALL", "default", "ALL"]).unwrap();
        assert_eq!(twice, [("ALL".to_owned(), Kind::AllBundles), ("default".to_owned(), Kind::Svid(0))]);
    }

    #[test]
    fn names_are_the_operator_s() {
        let names = Names {
            default_svid: "cert".into(),
            default_bundle: "spiffe://b".into(),
            all_bundles: "roots".into(),
        };
        assert!(plan(&names, &["default"]).is_err());
        assert_eq!(plan(&names, &["cert"]).unwrap()[0].1, Kind::Svid(0));
        assert_eq!(
            plan(&names, &["spiffe://b"]).unwrap()[0].1,
            Kind::Bundle(0),
            "a configured name goes first"
        );
    }
}
