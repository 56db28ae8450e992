//! Registration entries applied to what is known of a caller: which identities it gets. Pure.

use std::{collections::HashSet, time::Duration};

use isthmus_pki::{SpiffeId, TrustDomain, id};

use super::{
    attest::{Facts, Wants},
    config::{Entry, Selector},
    template::{self, Template},
};

/// Most identities of one caller. Beyond some thousands an answer would be longer than what gRPC clients take (4 MiB).
pub const MAX_IDENTITIES: usize = 64;

/// An identity that a caller is entitled to, as an entry describes it. Two equal ones are the same entitlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Whose; in the node's trust domain.
    pub id: SpiffeId,
    /// Lifetime of an X.509-SVID.
    pub ttl: Duration,
    /// Lifetime of a JWT-SVID.
    pub jwt_ttl: Duration,
    /// DNS names put beside the SPIFFE ID.
    pub dns_names: Vec<String>,
    /// Tells the identities of one workload apart; empty: none.
    pub hint: String,
    /// Trust domains whose bundles it gets beside its own.
    pub federates_with: Vec<TrustDomain>,
}

/// An entry whose ID is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[[workload_api.entry]] spiffe_id {path:?}: {reason}")]
pub struct Error {
    /// From the entry.
    pub path: String,
    /// What is wrong with it.
    pub reason: template::Error,
}

/// The entries of a node, in the file's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    trust_domain: TrustDomain,
    entries: Vec<(Template, Entry)>,
}

impl Registry {
    /// Checks that each entry stands for an ID in the trust domain.
    pub fn new(trust_domain: TrustDomain, entries: Vec<Entry>) -> Result<Self, Error> {
        let entries = entries.into_iter().map(|entry| Ok((template(&trust_domain, &entry)?, entry)));
        let entries = entries.collect::<Result<_, _>>()?;
        Ok(Self { trust_domain, entries })
    }

    /// What a caller gets, the default identity first; empty: nothing. At most [`MAX_IDENTITIES`], no two with the same hint: the
    /// first keeps it.
    pub fn identities(&self, caller: &Facts) -> Vec<Identity> {
        let matching = self.entries.iter().filter(|(_, entry)| caller.matches(&entry.selectors));
        let mut found: Vec<Identity> = Vec::new();
        for identity in matching.filter_map(|(template, entry)| self.identity(template, entry, caller)) {
            if found.contains(&identity) {
                continue;
            }
            if found.len() == MAX_IDENTITIES {
                refused("identities", caller.uid, &"a caller is entitled to more identities than it can get");
                break;
            }
            found.push(identity);
        }
        unique_hints(&mut found);
        found
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without entries: nobody gets anything.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What has to be gathered of callers, for these entries.
    pub fn wants(&self) -> Wants {
        let wants = |(template, entry): &(Template, Entry)| template.wants().and(Wants::of(&entry.selectors));
        self.entries.iter().map(wants).fold(Wants::default(), Wants::and)
    }

    /// Does any entry hang on the hash of this caller's executable? Only then is it worth computing.
    pub fn asks_for_hash(&self, caller: &Facts) -> bool {
        let is_hash = |selector: &&Selector| matches!(selector, Selector::Sha256(_));
        self.entries.iter().any(|(_, Entry { selectors, .. })| {
            selectors.iter().any(|selector| is_hash(&selector))
                && selectors
                    .iter()
                    .filter(|selector| !is_hash(selector))
                    .all(|selector| caller.holds(selector))
        })
    }

    fn identity(&self, template: &Template, entry: &Entry, caller: &Facts) -> Option<Identity> {
        let path = template.path(caller).map_err(|misfit| refused("template", caller.uid, &misfit)).ok()?;
        let id =
            self.trust_domain.member(&path).map_err(|error| refused("template", caller.uid, &error)).ok()?;
        Some(Identity {
            id,
            ttl: entry.ttl,
            jwt_ttl: entry.jwt_ttl,
            dns_names: entry.dns_names.clone(),
            hint: entry.hint.clone(),
            federates_with: entry.federates_with.clone(),
        })
    }
}

/// Anybody can cause it again and again: counted, and told at DEBUG only.
fn refused(label: &'static str, uid: u32, reason: &dyn std::fmt::Display) {
    metrics::counter!("isthmus_attestation_refused_total", "reason" => label).increment(1);
    tracing::debug!(uid, %reason, "an entry gives this caller no identity");
}

fn template(trust_domain: &TrustDomain, entry: &Entry) -> Result<Template, Error> {
    let refuse = |reason| Error { path: entry.path.clone(), reason };
    let template = Template::parse(&entry.path).map_err(refuse)?;
    // What the places add comes on top: whether it fits is seen then.
    trust_domain.member(&template.shortest()).map_err(|error: id::Error| refuse(error.into()))?;
    Ok(template)
}

/// Workload API section 5.2.1: no two identities of a response have the same hint.
fn unique_hints(identities: &mut [Identity]) {
    let mut seen = HashSet::new();
    for identity in identities {
        if !identity.hint.is_empty() && !seen.insert(identity.hint.clone()) {
            identity.hint.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::identity::attest::PodFacts;

    fn entry(path: &str, selectors: &[&str]) -> Entry {
        Entry {
            path: path.into(),
            selectors: selectors.iter().map(|text| Selector::parse(text).unwrap()).collect(),
            ttl: Duration::from_secs(3600),
            jwt_ttl: Duration::from_secs(300),
            dns_names: Vec::new(),
            hint: String::new(),
            federates_with: Vec::new(),
        }
    }

    fn registry(entries: Vec<Entry>) -> Registry {
        Registry::new(TrustDomain::parse("fabric.example").unwrap(), entries).unwrap()
    }

    fn ids(registry: &Registry, caller: &Facts) -> Vec<String> {
        registry.identities(caller).iter().map(|identity| identity.id.to_string()).collect()
    }

    fn in_pod(namespace: &str) -> Facts {
        let pod =
            PodFacts { namespace: namespace.into(), service_account: "api".into(), ..PodFacts::default() };
        Facts { uid: 1000, pod: Some(Arc::new(pod)), ..Facts::default() }
    }

    #[test]
    fn a_pod_gets_its_own_id_and_nobody_elses() {
        let default = registry(vec![entry("/ns/{k8s:ns}/sa/{k8s:sa}", &["k8s:pod"])]);
        assert_eq!(ids(&default, &in_pod("payments")), ["spiffe://fabric.example/ns/payments/sa/api"]);
        assert_eq!(ids(&default, &Facts { uid: 1000, ..Facts::default() }), [""; 0]);
        for hostile in ["..", "a/sa/root", "%2e%2e", ""] {
            assert_eq!(ids(&default, &in_pod(hostile)), [""; 0], "{hostile}");
        }
    }

    #[test]
    fn one_entry_that_does_not_fit_spoils_no_other() {
        let both =
            registry(vec![entry("/ns/{k8s:ns}", &["unix:uid:1000"]), entry("/host", &["unix:uid:1000"])]);
        assert_eq!(ids(&both, &in_pod("..")), ["spiffe://fabric.example/host"]);
        assert_eq!(
            ids(&both, &in_pod("a")),
            ["spiffe://fabric.example/ns/a", "spiffe://fabric.example/host"]
        );
        let long = "a".repeat(id::MAX_ID_LEN);
        assert_eq!(ids(&both, &in_pod(&long)), ["spiffe://fabric.example/host"]);
    }

    #[test]
    fn nobody_gets_more_than_can_be_sent() {
        let many = (0..500).map(|n| entry(&format!("/n/{n}"), &["unix:uid:1000"])).collect();
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let found = metrics::with_local_recorder(&recorder, || ids(&registry(many), &in_pod("a")));
        assert_eq!(found.len(), MAX_IDENTITIES);
        assert_eq!(found[MAX_IDENTITIES - 1], format!("spiffe://fabric.example/n/{}", MAX_IDENTITIES - 1));
        let counted = recorder.handle().render();
        assert!(counted.contains("isthmus_attestation_refused_total{reason=\"identities\"} 1"), "{counted}");
    }

    #[test]
    fn the_first_keeps_a_hint_and_the_same_entitlement_counts_once() {
        let hinted = |path: &str, hint: &str| Entry { hint: hint.into(), ..entry(path, &["unix:uid:1000"]) };
        let entries = vec![
            hinted("/a", "in"),
            hinted("/b", "in"),
            hinted("/c", "out"),
            hinted("/d", ""),
            hinted("/e", ""),
            hinted("/a", "in"),
        ];
        let found = registry(entries).identities(&in_pod("x"));
        let hints: Vec<_> =
            found.iter().map(|identity| (identity.id.path(), identity.hint.as_str())).collect();
        assert_eq!(hints, [("/a", "in"), ("/b", ""), ("/c", "out"), ("/d", ""), ("/e", "")]);
    }

    #[test]
    fn only_what_entries_ask_for_is_wanted() {
        assert_eq!(registry(vec![entry("/a", &["unix:uid:1"])]).wants(), Wants::default());
        let hash = format!("unix:sha256:{}", "00".repeat(32));
        let some =
            registry(vec![entry("/a", &["unix:uid:1", &hash]), entry("/{k8s:ns}", &["unix:group:adm"])]);
        assert_eq!(some.wants(), Wants { names: true, sha256: true, pod: true, ..Wants::default() });
        // A stranger can't make us read his program.
        assert!(!some.asks_for_hash(&Facts { uid: 2, ..Facts::default() }));
        assert!(some.asks_for_hash(&Facts { uid: 1, ..Facts::default() }));
    }

    #[test]
    fn an_entry_whose_id_is_none_is_refused() {
        let domain = TrustDomain::parse("fabric.example").unwrap();
        for path in ["", "/", "/a/../b", "/site/a/node/b", "/site/{k8s:ns}", "/{nothing}"] {
            let error = Registry::new(domain.clone(), vec![entry(path, &["unix:uid:1"])]).unwrap_err();
            assert!(error.to_string().contains(&format!("{path:?}")), "{error}");
        }
    }
}
