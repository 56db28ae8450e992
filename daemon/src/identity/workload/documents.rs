//! What this node believes, in the forms that messages carry: encoded once for each state of it, and shared by all streams.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use isthmus_pki::{Bundle, TrustDomain, bundle};

use crate::identity::{registration::Identity, trust::Trust};

/// The bundle of one trust domain. Two equal ones say the same in every form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Encoded {
    /// SPIFFE ID of the trust domain.
    pub(super) id: Arc<str>,
    /// Its bare name.
    pub(super) name: Arc<str>,
    /// Concatenated DER; empty: the domain has withdrawn all its roots, and nobody in it is to be believed.
    pub(super) der: Bytes,
    /// The same as PEM.
    pub(super) pem: Bytes,
    /// A plain JWK set with the keys of JWT-SVIDs alone.
    pub(super) jwks: Bytes,
}

impl Encoded {
    fn new(bundle: &Bundle) -> Self {
        Self {
            id: bundle.trust_domain().id().to_string().into(),
            name: bundle.trust_domain().as_str().into(),
            der: bundle.to_der().into(),
            pem: bundle::to_pem(bundle.anchors()).into(),
            jwks: bundle.jwt_jwks().into(),
        }
    }
}

/// One state of what this node believes.
pub(super) struct Documents {
    trust: Arc<Trust>,
    own: Encoded,
    crls: Arc<[Bytes]>,
    foreign: Mutex<BTreeMap<TrustDomain, Option<Encoded>>>,
}

impl Documents {
    fn new(trust: &Arc<Trust>) -> Self {
        let crls = trust.store().crls().map(|crl| Bytes::copy_from_slice(crl.der()));
        Self {
            trust: trust.clone(),
            own: Encoded::new(trust.own()),
            crls: crls.collect(),
            foreign: Mutex::default(),
        }
    }

    /// The node's own trust domain.
    pub(super) fn own(&self) -> &Encoded {
        &self.own
    }

    /// DER-encoded certificate revocation lists.
    pub(super) fn crls(&self) -> &Arc<[Bytes]> {
        &self.crls
    }

    /// The trust domains beside the own one whose bundles somebody with these identities gets, each once, in order of their names. One
    /// whose bundle this node does not have now is left out.
    pub(super) fn federated(&self, identities: &[Identity]) -> Vec<Encoded> {
        let mut domains: Vec<&TrustDomain> = identities.iter().flat_map(|i| &i.federates_with).collect();
        domains.sort_unstable();
        domains.dedup();
        domains.into_iter().filter_map(|domain| self.foreign(domain)).collect()
    }

    fn foreign(&self, domain: &TrustDomain) -> Option<Encoded> {
        // Only ever complete entries are put in.
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let encode = || self.trust.federated(domain).map(Encoded::new);
        foreign.entry(domain.clone()).or_insert_with(encode).clone()
    }
}

/// The documents of the latest state, for all streams of a server.
#[derive(Default)]
pub(super) struct Library(Mutex<Option<Arc<Documents>>>);

impl Library {
    /// Those of this state.
    pub(super) fn of(&self, trust: &Arc<Trust>) -> Arc<Documents> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match latest.as_ref().filter(|documents| Arc::ptr_eq(&documents.trust, trust)) {
            Some(documents) => documents.clone(),
            None => latest.insert(Arc::new(Documents::new(trust))).clone(),
        }
    }
}
