//! What this node believes: the bundle of its own trust domain and those it federates with.

use isthmus_pki::{Bundle, TrustDomain, TrustStore};

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

    /// For the verifier.
    pub fn store(&self) -> &TrustStore {
        &self.store
    }
}
