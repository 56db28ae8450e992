//! What the node is and believes now, for TLS connections, the issuance service and renewal. Replaced as a whole, never changed.

use std::{sync::Arc, time::SystemTime};

use isthmus_pki::{
    SpiffeId,
    key::sha256_hex,
    verify::{self, Purpose},
};
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;

use super::{
    config::{Config, NodeRules},
    enroll::NodeReport,
    issuing::Issuer,
    own::Own,
    tls::Allow,
    trust::Trust,
};

/// One moment's state; a change makes a new one.
#[derive(Clone)]
pub struct Standing {
    /// `[identity]`
    pub(super) config: Arc<Config>,
    /// Whom to believe.
    pub trust: Arc<Trust>,
    /// Our SVID, once we have one.
    pub own: Option<Arc<Own>>,
    /// The site CA, on nodes that hold it.
    pub(super) issuer: Option<Arc<Issuer>>,
    /// What `[issuer]` allows other nodes.
    pub(super) rules: Arc<NodeRules>,
    /// Site and name from `[node]`.
    pub(super) node: Arc<(String, String)>,
    /// Of the charter in force; 0: none.
    pub(super) charter_sequence: u64,
}

/// The latest [`Standing`], and word of each change; `None`: no identity is configured.
pub type Live = watch::Receiver<Option<Standing>>;

impl Standing {
    /// Who a peer is, if it is believed and welcome now; else why not.
    pub fn judge(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        allow: &Allow,
        now: SystemTime,
    ) -> Result<SpiffeId, String> {
        let verified = verify::verify(chain, self.trust.store(), purpose, now.into());
        let id = verified.map_err(|reason| reason.to_string())?.id;
        if !allow.admits(&id) {
            return Err(format!("the peer is {id}, which is not allowed here"));
        }
        if self.rules.bans(&id, &self.node.0) {
            return Err(format!("the peer is {id}, which is banned at this site"));
        }
        Ok(id)
    }

    /// How this node stands, for the issuers of its site.
    pub(super) fn report(&self) -> NodeReport {
        let own = self.own.as_deref();
        NodeReport {
            version: env!("CARGO_PKG_VERSION").into(),
            bundle_sequence: self.trust.own().sequence().unwrap_or(0),
            charter_sequence: self.charter_sequence,
            svid_serial: own.map(|own| own.serial.clone()).unwrap_or_default(),
            svid_issuer: own.and_then(Own::ca_key).unwrap_or_default(),
            svid_not_after: own.map_or(0, |own| own.life.not_after),
        }
    }

    /// True if our SVID is not of the CA that this node issues with now.
    pub(super) fn is_of_another_ca(&self, own: &Own) -> bool {
        let ca = own.chain.get(1).map(|ca| sha256_hex(ca));
        self.issuer.as_ref().is_some_and(|issuer| ca.as_ref() != Some(&issuer.certificate().sha256))
    }

    /// True if somebody can renew our SVID: this node itself, or others.
    pub(super) fn is_renewable(&self) -> bool {
        self.issuer.is_some() || !self.config.issuers.is_empty()
    }
}
