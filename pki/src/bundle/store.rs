//! All that a verifier goes by: bundles of several trust domains, never pooled, and for our own domain its policy and revocations.

use std::collections::BTreeMap;

use super::Bundle;
use crate::{
    crl::{Crl, CrlError},
    facts::Facts,
    id::TrustDomain,
    verify::Policy,
};

/// Bundles by trust domain. Made from a bundle, that one's domain is our own: its site CAs are held to the [`Policy`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustStore {
    bundles: BTreeMap<TrustDomain, Bundle>,
    own: Option<TrustDomain>,
    policy: Policy,
    /// Each with the trust domain whose root signed it.
    crls: Vec<(TrustDomain, Crl)>,
}

impl TrustStore {
    /// Adds a bundle, or replaces that of the same trust domain. A root that went takes its revocation lists with it.
    pub fn insert(&mut self, bundle: Bundle) {
        self.crls.retain(|(domain, crl)| domain != bundle.trust_domain() || is_signer(&bundle, crl));
        self.bundles.insert(bundle.trust_domain().clone(), bundle);
    }

    /// Takes a trust domain's bundle out: nobody vouches for its IDs any more.
    pub fn remove(&mut self, trust_domain: &TrustDomain) {
        self.bundles.remove(trust_domain);
    }

    /// The bundle that may vouch for IDs of this trust domain.
    pub fn bundle(&self, trust_domain: &TrustDomain) -> Option<&Bundle> {
        self.bundles.get(trust_domain)
    }

    /// All bundles, by trust domain.
    pub fn bundles(&self) -> impl Iterator<Item = &Bundle> {
        self.bundles.values()
    }

    /// Replaces the policy of our own trust domain.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The policy of our own trust domain.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The policy, if it is this trust domain that it speaks of. How others lay out their IDs is their affair.
    pub(crate) fn policy_of(&self, trust_domain: &TrustDomain) -> Option<&Policy> {
        (self.own.as_ref() == Some(trust_domain)).then_some(&self.policy)
    }

    /// Adds revocation lists; each must be signed by a root of a bundle here. Of one issuer's lists the newest counts.
    pub fn with_crls(mut self, crls: impl IntoIterator<Item = Crl>) -> Result<Self, CrlError> {
        for crl in crls {
            let signer = self.bundles.values().find(|bundle| is_signer(bundle, &crl));
            let unknown = || CrlError::UnknownIssuer { issuer: crl.issuer().to_owned() };
            let domain = signer.ok_or_else(unknown)?.trust_domain().clone();
            let same =
                |(of, known): &&mut (TrustDomain, Crl)| *of == domain && known.issuer() == crl.issuer();
            match self.crls.iter_mut().find(same) {
                Some((_, known)) if crl.is_newer_than(known) => *known = crl,
                Some(_) => {}
                None => self.crls.push((domain, crl)),
            }
        }
        Ok(self)
    }

    /// The revocation lists in force.
    pub fn crls(&self) -> impl Iterator<Item = &Crl> {
        self.crls.iter().map(|(_, crl)| crl)
    }

    /// Those that a root of this trust domain signed.
    pub(crate) fn crls_of<'a>(&'a self, trust_domain: &'a TrustDomain) -> impl Iterator<Item = &'a Crl> {
        self.crls.iter().filter(move |(of, _)| of == trust_domain).map(|(_, crl)| crl)
    }
}

fn is_signer(bundle: &Bundle, crl: &Crl) -> bool {
    bundle.anchors().iter().any(|der| Facts::parse(der).is_ok_and(|facts| crl.is_signed_by(der, &facts)))
}

impl From<Bundle> for TrustStore {
    fn from(bundle: Bundle) -> Self {
        let mut store = Self { own: Some(bundle.trust_domain().clone()), ..Self::default() };
        store.insert(bundle);
        store
    }
}
