//! What this node believes: the bundle of its own trust domain and those it federates with.

use isthmus_pki::{Bundle, Crl, Facts, TrustDomain, TrustStore, verify::Policy};
use time::OffsetDateTime;

use super::certificates::{CertificateInfo, Kind};

/// Highest of the numbers that a bundle's sequence is the sum of: far from where that could overflow, or JSON readers lose digits.
pub(super) const MAX_SEQUENCE: u64 = 1 << 50;

/// The number after `last`, of a change at `now`. Never back, and about the time of the change, so that a node which lost its state goes
/// on above what it told before.
pub(super) fn next_sequence(last: u64, now: OffsetDateTime) -> u64 {
    let clock = u64::try_from(now.unix_timestamp()).unwrap_or(0);
    last.saturating_add(1).max(clock).min(MAX_SEQUENCE)
}

/// Whole, and replaced as a whole: whoever holds one sees no mixture of old and new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    own: TrustDomain,
    store: TrustStore,
}

impl Trust {
    /// The node's own bundle alone.
    pub fn new(own: Bundle) -> Self {
        Self { own: own.trust_domain().clone(), store: own.into() }
    }

    /// The node's own bundle, what its site CAs may vouch for, and whom roots have revoked.
    pub fn under(own: Bundle, policy: Policy, crls: Vec<Crl>) -> Self {
        let domain = own.trust_domain().clone();
        let mut store = TrustStore::from(own).with_policy(policy);
        for crl in crls {
            match store.clone().with_crls([crl]) {
                Ok(with) => store = with,
                Err(error) => tracing::warn!(%error, "a revocation list is left out"),
            }
        }
        Self { own: domain, store }
    }

    /// With another state of the node's own bundle; what it federates with stays.
    #[must_use]
    pub fn with_own(&self, own: Bundle) -> Self {
        let mut store = self.store.clone();
        store.insert(own);
        Self { own: self.own.clone(), store }
    }

    /// The node's own trust domain.
    pub fn domain(&self) -> &TrustDomain {
        &self.own
    }

    /// The bundle of the node's own trust domain.
    pub fn own(&self) -> &Bundle {
        self.store.bundle(&self.own).expect("put there by the constructor, and nothing takes it out")
    }

    /// The bundle of a trust domain that the node federates with, if it has one now.
    pub fn federated(&self, trust_domain: &TrustDomain) -> Option<&Bundle> {
        (*trust_domain != self.own).then(|| self.store.bundle(trust_domain)).flatten()
    }

    /// The same with these bundles of others, and no others. One of the node's own trust domain is left out: its own comes from its root.
    #[must_use]
    pub fn with_federated(&self, bundles: impl IntoIterator<Item = Bundle>) -> Self {
        let mut store = self.store.clone();
        let known: Vec<TrustDomain> = store.bundles().map(|bundle| bundle.trust_domain().clone()).collect();
        known.iter().filter(|domain| **domain != self.own).for_each(|domain| store.remove(domain));
        let others = bundles.into_iter().filter(|bundle| *bundle.trust_domain() != self.own);
        others.for_each(|bundle| store.insert(bundle));
        Self { own: self.own.clone(), store }
    }

    /// Facts of the roots of those that the node federates with. Each goes by its domain's ID, whatever its own SAN says.
    pub(super) fn federated_roots(&self) -> Vec<CertificateInfo> {
        let others = self.store.bundles().filter(|bundle| *bundle.trust_domain() != self.own);
        others.flat_map(roots).collect()
    }

    /// For the verifier.
    pub fn store(&self) -> &TrustStore {
        &self.store
    }
}

fn roots(bundle: &Bundle) -> Vec<CertificateInfo> {
    let info = |facts: Facts| {
        let spiffe_id = bundle.trust_domain().id().to_string();
        CertificateInfo { spiffe_id, ..CertificateInfo::new(Kind::FederatedRoot, &facts, None) }
    };
    bundle.anchors().iter().filter_map(|der| Facts::parse(der).ok().map(info)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(name: &str, sequence: u64) -> Bundle {
        let document = format!(r#"{{"keys":[],"spiffe_sequence":{sequence}}}"#);
        Bundle::from_jwks(&TrustDomain::parse(name).unwrap(), document.as_bytes()).unwrap().bundle
    }

    #[test]
    fn bundles_of_others_are_replaced_as_a_whole_and_never_ours() {
        let domain = |name: &str| TrustDomain::parse(name).unwrap();
        let trust = Trust::new(empty("own", 1));
        let first = trust.with_federated([empty("a", 1), empty("b", 1), empty("own", 9)]);
        assert_eq!(first.own().sequence(), Some(1));
        assert!(first.federated(&domain("a")).is_some() && first.federated(&domain("own")).is_none());
        let second = first.with_federated([empty("b", 2)]);
        assert_eq!(second.federated(&domain("a")), None);
        assert_eq!(second.federated(&domain("b")).and_then(Bundle::sequence), Some(2));
        assert_eq!(second.with_federated([]), trust);
    }
}
