//! The node's half of getting a certificate: a key made here, a request for it, and a look at what came back.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use isthmus_pki::{Curve, Key, TrustStore, csr, id, key};
use rustls_pki_types::CertificateDer;

use super::{disk, state};
use crate::identity::{
    own::{self, Own},
    standing::Standing,
};

/// Most certificates that an issuer may answer with, and most bytes of all of them.
const MAX_CHAIN: (usize, usize) = (8, 64 << 10);

/// Why a certificate that we asked for can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the cryptographic library failed: {0}")]
    Key(#[from] key::Error),
    #[error(transparent)]
    Request(#[from] csr::Error),
    #[error("[node] makes no node's ID: {0}")]
    Id(#[from] id::Error),
    #[error("the issuer's answer is not this node's certificate: {0}")]
    Answer(Box<own::Error>),
    #[error("the issuer answered with {0} certificates of {1} bytes, which is out of bounds")]
    Bounds(usize, usize),
    #[error("the issuer's certificate is not believed now: {0}")]
    Unbelieved(Box<isthmus_pki::verify::Error>),
    #[error(transparent)]
    Write(#[from] disk::WriteError),
}

/// A key and the request for its certificate. The key leaves memory only together with the certificate.
pub(super) struct Pending {
    key: Key,
    /// PKCS#10 in DER.
    pub(super) csr: Vec<u8>,
}

impl Pending {
    /// With a fresh key.
    pub(super) fn new(standing: &Standing) -> Result<Self, Error> {
        let key = Key::generate(Curve::P256)?;
        let (site, node) = &*standing.node;
        let id = id::node_id(standing.trust.domain(), site, node)?;
        let csr = csr::to_der(&csr::create(&key, node, &id)?)?.to_vec();
        Ok(Self { key, csr })
    }

    /// Takes the answer if it is this node's certificate for this key and peers will believe it, and keeps it on disk. Blocks.
    pub(super) fn accept(
        self,
        certificates: Vec<Vec<u8>>,
        standing: &Standing,
        now: SystemTime,
    ) -> Result<Arc<Own>, Error> {
        let bytes = certificates.iter().map(Vec::len).sum();
        if certificates.len() > MAX_CHAIN.0 || bytes > MAX_CHAIN.1 {
            return Err(Error::Bounds(certificates.len(), bytes));
        }
        let chain: Vec<_> = certificates.into_iter().map(CertificateDer::from).collect();
        let path: PathBuf = state::path(&standing.config.state_dir);
        let store: &TrustStore = standing.trust.store();
        let expected = Some((standing.node.0.as_str(), standing.node.1.as_str()));
        let own = Own::check(chain, self.key, &path, store, expected, now)
            .map_err(|reason| Error::Answer(Box::new(reason)))?;
        own.believed(store, now).map_err(|reason| Error::Unbelieved(Box::new(reason)))?;
        state::write(&path, &own.chain, &own.key)?;
        Ok(Arc::new(own))
    }
}
