//! What the node itself is: trust bundle and SVID, loaded from files and checked before anything uses them.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use isthmus_pki::{Bundle, Facts, TrustStore};

use super::{
    certificates::{CertificateInfo, Kind},
    config::{Config, SvidFiles},
    enroll::state,
    files::{self, FileError},
    own::{self, Own},
};

/// Why the node's identity can't be used. Every message names the file, whose fault it is and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The SVID is not one, or not ours.
    #[error(
        "{svid}: {reason} (checked against {bundle}); sign a new certificate with `isthmus-ca node sign`"
    )]
    Svid {
        /// File of the SVID.
        svid: PathBuf,
        /// File of the trust bundle.
        bundle: PathBuf,
        /// What is wrong with it.
        reason: Box<own::Error>,
    },
    /// Key and certificate don't belong together: perhaps only one of the two was replaced.
    #[error("{svid} and {key}: {reason}")]
    Pair {
        /// File of the SVID.
        svid: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// Which keys they are.
        reason: Box<own::Error>,
    },
}

/// The node's identity: checked, immutable. A reload makes a new one.
#[derive(Clone, Debug)]
pub struct Material {
    /// Roots of the trust domain.
    pub bundle: Bundle,
    /// The bundle as the verifier wants it.
    pub store: TrustStore,
    /// The SVID; `None` until the node has joined.
    pub own: Option<Arc<Own>>,
    roots: Vec<CertificateInfo>,
}

impl Material {
    /// Reads and checks the files of `[identity]`, and the SVID that was renewed last; the younger of the two is the node's.
    /// `expected` is site and name of `[node]`.
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
        let store = TrustStore::from(bundle.clone());
        let renewed = renewed(config, &store, expected, now);
        let signed = match config.files.as_ref().map(|files| from_files(config, files, &store, expected, now))
        {
            Some(Err(error)) if renewed.is_some() => {
                tracing::info!(%error, "the SVID of the ceremony is not used any more");
                None
            }
            other => other.transpose()?,
        };
        let own = [signed, renewed].into_iter().flatten().max_by_key(|own| own.life.not_before);
        let roots = roots(config, &bundle);
        Ok(Self { bundle, store, own: own.map(Arc::new), roots })
    }

    /// The same with another SVID.
    pub(super) fn with(&self, own: Arc<Own>) -> Self {
        Self { own: Some(own), ..self.clone() }
    }

    /// Facts of the roots, the node's certificate and the CAs after it.
    pub fn certificates(&self) -> Vec<CertificateInfo> {
        let own = self.own.iter().flat_map(|own| own.certificates());
        self.roots.iter().chain(own).cloned().collect()
    }
}

fn from_files(
    config: &Config,
    SvidFiles { svid, key }: &SvidFiles,
    store: &TrustStore,
    expected: Option<(&str, &str)>,
    now: SystemTime,
) -> Result<Own, Error> {
    let pair = (files::certificates(svid)?, files::key(key)?);
    Own::check(pair.0, pair.1, svid, store, expected, now).map_err(|reason| match reason {
        own::Error::KeyMismatch(_) => {
            Error::Pair { svid: svid.clone(), key: key.clone(), reason: Box::new(reason) }
        }
        _ => {
            Error::Svid { svid: svid.clone(), bundle: config.trust_bundle.clone(), reason: Box::new(reason) }
        }
    })
}

/// What the node wrote itself is never a reason not to start: another root, another name or a damaged disk only mean that it has to
/// be had again.
fn renewed(
    config: &Config,
    store: &TrustStore,
    expected: Option<(&str, &str)>,
    now: SystemTime,
) -> Option<Own> {
    let path = state::path(&config.state_dir);
    let (chain, key) = match state::read(&path) {
        Ok(pair) => pair?,
        Err(error) => {
            tracing::warn!(%error, "the renewed SVID can't be used");
            return None;
        }
    };
    match Own::check(chain, key, &path, store, expected, now) {
        Ok(own) => Some(own),
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "the renewed SVID can't be used");
            None
        }
    }
}

fn roots(config: &Config, bundle: &Bundle) -> Vec<CertificateInfo> {
    let info = |facts: Facts| CertificateInfo::new(Kind::Root, &facts, Some(config.trust_bundle.clone()));
    bundle.anchors().iter().filter_map(|der| Facts::parse(der).ok().map(info)).collect()
}
