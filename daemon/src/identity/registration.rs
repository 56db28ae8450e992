//! Registration entries applied to what is known of a caller: which identities it gets. Pure.

use std::time::Duration;

use isthmus_pki::{SpiffeId, TrustDomain, id};

use super::{attest::Facts, config::Entry};

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
    pub reason: id::Error,
}

/// The entries of a node, in the file's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    trust_domain: TrustDomain,
    entries: Vec<Entry>,
}

impl Registry {
    /// Checks that each entry stands for an ID in the trust domain.
    pub fn new(trust_domain: TrustDomain, entries: Vec<Entry>) -> Result<Self, Error> {
        let registry = Self { trust_domain, entries };
        registry.entries.iter().try_for_each(|entry| registry.identity(entry).map(|_| ()))?;
        Ok(registry)
    }

    /// What a caller gets, the default identity first; empty: nothing.
    pub fn identities(&self, caller: &Facts) -> Vec<Identity> {
        let matching = self.entries.iter().filter(|entry| caller.matches(&entry.selectors));
        matching.filter_map(|entry| self.identity(entry).ok()).collect()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without entries: nobody gets anything.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn identity(&self, entry: &Entry) -> Result<Identity, Error> {
        let refuse = |reason| Error { path: entry.path.clone(), reason };
        let id = self.trust_domain.member(&entry.path).map_err(refuse)?;
        if id.is_trust_domain() {
            return Err(refuse(id::Error::EmptySegment));
        }
        Ok(Identity {
            id,
            ttl: entry.ttl,
            jwt_ttl: entry.jwt_ttl,
            dns_names: entry.dns_names.clone(),
            hint: entry.hint.clone(),
            federates_with: entry.federates_with.clone(),
        })
    }
}
