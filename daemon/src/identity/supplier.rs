//! Where the SVIDs of this node's workloads come from: its own site CA, or the issuers of its site.

use std::{sync::Arc, time::SystemTime};

use isthmus_pki::{Bundle, TrustDomain};

use super::{
    enroll::Remote,
    issuing::{Error, Issuer, JwtSvid, Requester, Svid},
    registration::Identity,
    trust::Trust,
};

/// One of the two. Clones share it.
#[derive(Clone)]
pub(super) enum Supplier {
    /// The site CA is here.
    Local(Arc<Issuer>),
    /// It is elsewhere.
    Remote(Arc<Remote>),
}

impl Supplier {
    /// An SVID with a key made here. Blocks: on the disk for the audit log, or on the network.
    pub(super) fn issue(
        &self,
        identity: &Identity,
        requester: &Requester,
        now: SystemTime,
    ) -> Result<Svid, Error> {
        match self {
            Self::Local(issuer) => issuer.issue(identity, requester, now),
            Self::Remote(remote) => remote.issue(identity, now),
        }
    }

    /// A JWT-SVID. Blocks as [`Supplier::issue`].
    pub(super) fn mint(
        &self,
        identity: &Identity,
        audience: &[String],
        requester: &Requester,
        now: SystemTime,
    ) -> Result<JwtSvid, Error> {
        match self {
            Self::Local(issuer) => issuer.mint(identity, audience, requester, now),
            Self::Remote(remote) => remote.mint(identity, audience, now),
        }
    }

    /// The bundle that workloads here are told, made of the roots of `base`.
    pub(super) fn publish(&self, base: &Trust, now: SystemTime) -> Result<Bundle, Error> {
        match self {
            Self::Local(issuer) => issuer.publish(base, now),
            Self::Remote(_) => Ok(base.own().clone()),
        }
    }

    /// The trust domain of all that it gives.
    pub(super) fn trust_domain(&self) -> &TrustDomain {
        match self {
            Self::Local(issuer) => issuer.trust_domain(),
            Self::Remote(remote) => remote.trust_domain(),
        }
    }

    /// Another one of these means that what was issued before is to be issued again; empty where others decide that.
    pub(super) fn ca(&self) -> &str {
        match self {
            Self::Local(issuer) => &issuer.certificate().sha256,
            Self::Remote(_) => "",
        }
    }
}
