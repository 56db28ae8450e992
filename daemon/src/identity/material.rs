//! What the node itself is: SVID, key and trust bundle, loaded from files and checked before anything uses them.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use isthmus_pki::{
    Bundle, Facts, Key, SpiffeId, TrustStore, authority,
    verify::{self, Purpose, Verified},
};
use rustls_pki_types::CertificateDer;

use super::{
    certificates::{CertificateInfo, Kind},
    config::Config,
    files::{self, FileError},
};

/// Why the node's identity can't be used. Every message names the file, whose fault it is and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The SVID is refused by our own verifier.
    #[error(
        "{svid}: {reason} (checked against {bundle}); sign a new certificate with `isthmus-ca node sign`"
    )]
    Refused {
        /// File of the SVID.
        svid: PathBuf,
        /// File of the trust bundle.
        bundle: PathBuf,
        /// The verifier's verdict.
        reason: verify::Error,
    },
    /// Key and certificate don't belong together.
    #[error("{svid} and {key}: {reason}; use the key that the certificate was requested with")]
    KeyMismatch {
        /// File of the SVID.
        svid: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// Which keys they are.
        reason: Box<authority::Error>,
    },
    /// The SVID is somebody else's.
    #[error(
        "{svid}: the certificate belongs to {found}, but [node] says site {site:?}, name {name:?}; fix [node] or sign a certificate for it"
    )]
    NotThisNode {
        /// File of the SVID.
        svid: PathBuf,
        /// Whose it is.
        found: SpiffeId,
        /// From [node].
        site: String,
        /// From [node].
        name: String,
    },
    /// The SVID is not a node's.
    #[error("{svid}: {found} is not a node's ID, spiffe://TRUST-DOMAIN/site/SITE/node/NAME")]
    NotANode {
        /// File of the SVID.
        svid: PathBuf,
        /// Whose it is.
        found: SpiffeId,
    },
}

/// The node's identity: checked, immutable. A reload makes a new one.
#[derive(Clone, Debug)]
pub struct Material {
    /// Roots of the trust domain.
    pub bundle: Bundle,
    /// The bundle as the verifier wants it.
    pub store: TrustStore,
    /// Own certificate, then the site CA.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key of the first certificate.
    pub key: Arc<Key>,
    /// Who we are.
    pub id: SpiffeId,
    certificates: Vec<CertificateInfo>,
}

impl Material {
    /// Reads and checks the files of `[identity]`; `expected` is site and name of `[node]`.
    pub fn load(config: &Config, expected: Option<(&str, &str)>, now: SystemTime) -> Result<Self, Error> {
        Self::load_under(config, files::bundle(&config.trust_bundle)?, expected, now)
    }

    /// The same, under these roots instead of the trust bundle's.
    pub(super) fn load_under(
        config: &Config,
        bundle: Bundle,
        expected: Option<(&str, &str)>,
        now: SystemTime,
    ) -> Result<Self, Error> {
        let chain = files::certificates(&config.svid)?;
        let key = files::key(&config.key)?;
        let store = TrustStore::from(bundle.clone());
        let verified = check_chain(config, &chain, &store, now)?;
        authority::check_key(&verified.leaf, &key).map_err(|reason| Error::KeyMismatch {
            svid: config.svid.clone(),
            key: config.key.clone(),
            reason: Box::new(reason),
        })?;
        check_name(config, &verified.id, expected)?;
        let certificates = infos(config, &bundle, &chain);
        Ok(Self { bundle, store, chain, key: Arc::new(key), id: verified.id, certificates })
    }

    /// Facts of the roots, the node's certificate and the CAs after it.
    pub fn certificates(&self) -> &[CertificateInfo] {
        &self.certificates
    }
}

fn check_chain(
    config: &Config,
    chain: &[CertificateDer<'static>],
    store: &TrustStore,
    now: SystemTime,
) -> Result<Verified, Error> {
    let refused =
        |reason| Error::Refused { svid: config.svid.clone(), bundle: config.trust_bundle.clone(), reason };
    verify::verify(chain, store, Purpose::Server, now.into()).map_err(refused)?;
    verify::verify(chain, store, Purpose::Client, now.into()).map_err(refused)
}

fn check_name(config: &Config, id: &SpiffeId, expected: Option<(&str, &str)>) -> Result<(), Error> {
    let svid = || config.svid.clone();
    match (id.node(), expected) {
        (None, _) => Err(Error::NotANode { svid: svid(), found: id.clone() }),
        (Some(found), Some((site, name))) if found != (site, name) => {
            Err(Error::NotThisNode { svid: svid(), found: id.clone(), site: site.into(), name: name.into() })
        }
        _ => Ok(()),
    }
}

fn infos(config: &Config, bundle: &Bundle, chain: &[CertificateDer<'static>]) -> Vec<CertificateInfo> {
    let info = |kind, der: &CertificateDer<'_>, path: &PathBuf| {
        Facts::parse(der).ok().map(|facts| CertificateInfo::new(kind, &facts, Some(path.clone())))
    };
    let roots = bundle.anchors().iter().filter_map(|der| info(Kind::Root, der, &config.trust_bundle));
    let own = chain.iter().enumerate().filter_map(|(index, der)| {
        let kind = if index == 0 { Kind::NodeSvid } else { Kind::SiteCa };
        info(kind, der, &config.svid)
    });
    roots.chain(own).collect()
}
