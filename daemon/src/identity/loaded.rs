//! What was loaded and checked, all of it or nothing, and what follows from it.

use std::sync::Arc;

use isthmus_pki::facts::utc;

use super::{
    audit::Log,
    certificates::{CertificateInfo, Kind},
    config::{Config, NodeRules},
    enroll::Remote,
    issuing::Issuer,
    material::Material,
    own::Own,
    standing::Standing,
    trust::Trust,
    watching::Seen,
    workload::Supply,
};

/// One load's outcome; a change makes a new one.
#[derive(Clone, Default)]
pub(super) struct Loaded {
    pub(super) config: Option<Arc<Config>>,
    pub(super) material: Option<Material>,
    pub(super) issuer: Option<Arc<Issuer>>,
    /// Open wherever there is an `[issuer]`, also while it issues nothing; elsewhere from the first order on.
    pub(super) audit: Option<Arc<Log>>,
    pub(super) rules: Arc<NodeRules>,
    /// Asks other nodes for the workloads of this one; goes on over reloads with what it has in reserve.
    pub(super) remote: Option<Arc<Remote>>,
    /// Where workloads are served. Its trust is put in when it is handed out.
    pub(super) supply: Option<Supply>,
    /// Roots, policy and revocations, as files and rotations have them.
    pub(super) base: Option<Arc<Trust>>,
    /// The same with our keys for tokens. Bundles of other domains come to it when it is handed out.
    pub(super) trust: Option<Arc<Trust>>,
    /// CAs of this site that do not issue now, or not any more.
    pub(super) site_cas: Vec<CertificateInfo>,
    pub(super) charter_sequence: u64,
    /// What the files held from which all of it comes.
    pub(super) seen: Seen,
}

impl Loaded {
    pub(super) fn own(&self) -> Option<&Arc<Own>> {
        self.material.as_ref()?.own.as_ref()
    }

    /// What callers are answered from, if they believe `trust`.
    pub(super) fn supply(&self, trust: Option<&Arc<Trust>>) -> Option<Supply> {
        let (supply, trust) = (self.supply.clone()?, trust?.clone());
        Some(Supply { trust, ..supply })
    }

    /// What the node is, if it believes `trust`.
    pub(super) fn standing(
        &self,
        node: Option<&(String, String)>,
        trust: Option<&Arc<Trust>>,
    ) -> Option<Standing> {
        let (config, material) = (self.config.clone()?, self.material.as_ref()?);
        Some(Standing {
            config,
            trust: trust?.clone(),
            own: material.own.clone(),
            issuer: self.issuer.clone(),
            rules: self.rules.clone(),
            node: Arc::new(node.cloned().unwrap_or_default()),
            charter_sequence: self.charter_sequence,
        })
    }

    /// A site CA may be in the node's chain, in `[issuer]` and in a rotation: it is listed once, with the file that it issues from.
    pub(super) fn certificates(&self) -> Vec<CertificateInfo> {
        let mut all = self.material.as_ref().map(Material::certificates).unwrap_or_default();
        let asks = self.config.as_ref().is_some_and(|config| !config.issuers.is_empty());
        if let Some(own) = self.own().filter(|_| asks || self.issuer.is_some()) {
            let node = all.iter_mut().filter(|c| c.kind == Kind::NodeSvid);
            node.for_each(|c| c.renew_at = Some(own.renewal().renew_at()));
        }
        let issuer = self.issuer.as_ref().map(|issuer| issuer.certificate());
        let in_chain = all.iter_mut().find(|known| issuer.is_some_and(|ca| ca.sha256 == known.sha256));
        if let Some((known, ca)) = in_chain.zip(issuer) {
            known.path.clone_from(&ca.path);
        }
        for ca in issuer.into_iter().chain(&self.site_cas) {
            if all.iter().all(|known| known.sha256 != ca.sha256) {
                all.push(ca.clone());
            }
        }
        all
    }

    /// What differs from an earlier load, in words.
    pub(super) fn changes_since(&self, old: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        let (old_list, new_list) = (old.certificates(), self.certificates());
        // One that is merely read from another file now, or renewed at another time, neither comes nor goes.
        let lacks = |list: &[CertificateInfo], one: &CertificateInfo| {
            list.iter().all(|other| (other.kind, &other.sha256) != (one.kind, &one.sha256))
        };
        for certificate in new_list.iter().filter(|c| lacks(&old_list, c)) {
            let CertificateInfo { kind, spiffe_id, not_after, .. } = certificate;
            changes.push(format!("identity: {} {spiffe_id}, valid until {}", kind.as_str(), utc(*not_after)));
        }
        for certificate in old_list.iter().filter(|c| lacks(&new_list, c)) {
            let CertificateInfo { kind, serial, .. } = certificate;
            changes.push(format!("identity: {} with serial {serial} is no longer used", kind.as_str()));
        }
        let registry = |loaded: &Self| loaded.supply.as_ref().map(|supply| supply.registry.clone());
        if registry(old) != registry(self) {
            let entries = registry(self).map_or(0, |registry| registry.len());
            changes.push(format!("workload_api: {entries} entries"));
        }
        changes
    }
}
