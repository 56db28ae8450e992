//! The node's own SVID: checked, immutable. A renewal makes a new one.

use std::{path::Path, sync::Arc, time::SystemTime};

use isthmus_pki::{
    Facts, Key, SpiffeId, TrustStore, authority,
    renewal::{Life, Renewal},
    verify::{self, Purpose, Verified},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;

use super::certificates::{CertificateInfo, Kind};

/// Why a chain and a key are not this node's SVID.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Refused by our own verifier, and not for the time alone.
    #[error("{0}")]
    Refused(Box<verify::Error>),
    /// Key and certificate don't belong together.
    #[error("{0}; use the key that the certificate was requested with")]
    KeyMismatch(Box<authority::Error>),
    /// Somebody else's.
    #[error(
        "the certificate belongs to {found}, but [node] says site {site:?}, name {name:?}; fix [node] or sign a certificate for it"
    )]
    NotThisNode {
        /// Whose it is.
        found: SpiffeId,
        /// From [node].
        site: String,
        /// From [node].
        name: String,
    },
    /// Not a node's.
    #[error("{0} is not a node's ID, spiffe://TRUST-DOMAIN/site/SITE/node/NAME")]
    NotANode(SpiffeId),
}

/// Certificate, key and what follows from them.
#[derive(Clone, Debug)]
pub struct Own {
    /// Own certificate, then the site CA.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key of the first certificate.
    pub key: Arc<Key>,
    /// Who we are.
    pub id: SpiffeId,
    /// How long the certificate is valid.
    pub life: Life,
    /// Of the certificate, lower-case hex.
    pub serial: String,
    /// Who signed it.
    pub issuer: String,
    /// Where within its window this one is renewed: drawn once.
    jitter: u16,
    infos: Vec<CertificateInfo>,
}

impl Own {
    /// Checks everything but the time: an SVID that has expired is still ours, and is renewed or replaced while the daemon runs.
    /// `path` is the file that it came from.
    pub fn check(
        chain: Vec<CertificateDer<'static>>,
        key: Key,
        path: &Path,
        store: &TrustStore,
        expected: Option<(&str, &str)>,
        now: SystemTime,
    ) -> Result<Self, Error> {
        let Verified { id, leaf } =
            verified_once(&chain, store, now.into()).map_err(|reason| Error::Refused(Box::new(reason)))?;
        authority::check_key(&leaf, &key).map_err(|reason| Error::KeyMismatch(Box::new(reason)))?;
        check_name(&id, expected)?;
        let life = Life::of_svid(leaf.not_before, leaf.not_after);
        let infos = infos(&chain, path);
        let (serial, issuer) = (leaf.serial, leaf.issuer);
        Ok(Self { chain, key: Arc::new(key), id, life, serial, issuer, jitter: rand::random(), infos })
    }

    /// Would a peer that trusts `store` believe it now? If not, why.
    pub fn believed(&self, store: &TrustStore, now: SystemTime) -> Result<(), verify::Error> {
        believed(&self.chain, store, now.into()).map(drop)
    }

    /// Hash of the key of the CA that signed it.
    pub fn ca_key(&self) -> Option<String> {
        self.chain.get(1).and_then(|ca| Facts::parse(ca).ok()).map(|ca| ca.key_sha256)
    }

    /// Its renewal, not yet tried.
    pub fn renewal(&self) -> Renewal {
        Renewal::new(self.life, self.jitter)
    }

    /// The key as rustls takes it.
    pub fn tls_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.to_pkcs8().to_vec()).into()
    }

    /// Facts of the certificate and of the CAs after it.
    pub fn certificates(&self) -> &[CertificateInfo] {
        &self.infos
    }
}

fn believed(
    chain: &[CertificateDer<'_>],
    store: &TrustStore,
    now: OffsetDateTime,
) -> Result<Verified, verify::Error> {
    verify::verify(chain, store, Purpose::Server, now)?;
    verify::verify(chain, store, Purpose::Client, now)
}

/// Valid now, or at the end or the beginning of its own life: what is wrong beside the time does not go away with it.
fn verified_once(
    chain: &[CertificateDer<'_>],
    store: &TrustStore,
    now: OffsetDateTime,
) -> Result<Verified, verify::Error> {
    let reason = match believed(chain, store, now) {
        Ok(verified) => return Ok(verified),
        Err(reason) => reason,
    };
    let leaf = chain.first().and_then(|der| Facts::parse(der).ok());
    let moments = leaf.into_iter().flat_map(|leaf| [leaf.not_after, leaf.not_before]);
    let at = |moment| OffsetDateTime::from_unix_timestamp(moment).ok();
    moments.filter_map(at).find_map(|moment| believed(chain, store, moment).ok()).ok_or(reason)
}

fn check_name(id: &SpiffeId, expected: Option<(&str, &str)>) -> Result<(), Error> {
    match (id.node(), expected) {
        (None, _) => Err(Error::NotANode(id.clone())),
        (Some(found), Some((site, name))) if found != (site, name) => {
            Err(Error::NotThisNode { found: id.clone(), site: site.into(), name: name.into() })
        }
        _ => Ok(()),
    }
}

fn infos(chain: &[CertificateDer<'static>], path: &Path) -> Vec<CertificateInfo> {
    let info = |(index, der): (usize, &CertificateDer<'_>)| {
        let kind = if index == 0 { Kind::NodeSvid } else { Kind::SiteCa };
        Facts::parse(der).ok().map(|facts| CertificateInfo::new(kind, &facts, Some(path.to_owned())))
    };
    chain.iter().enumerate().filter_map(info).collect()
}
