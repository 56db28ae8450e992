//! Mutual TLS between SPIFFE identities: rustls with our verifier, TLS 1.3, no resumption.
//!
//! A resumed session would skip the certificate check, and with it every revocation since the first handshake.

use std::{fmt, sync::Arc};

use isthmus_pki::{
    SpiffeId, TrustDomain, TrustStore,
    verify::{self, Purpose, Verified},
};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    server::{
        NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use time::OffsetDateTime;

/// Which peers are welcome, once their chain has held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    /// Every identity of a trust domain.
    TrustDomain(TrustDomain),
    /// These identities only.
    Ids(Vec<SpiffeId>),
}

impl Allow {
    fn admits(&self, id: &SpiffeId) -> bool {
        match self {
            Self::TrustDomain(domain) => id.trust_domain() == domain,
            Self::Ids(ids) => ids.contains(id),
        }
    }
}

/// Why a peer is refused. rustls shows it by `Debug`, so that is a sentence too.
#[derive(thiserror::Error)]
#[error("{0}")]
struct Reason(String);

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Configuration of a TLS client: own chain (leaf first) and key, whom to trust, whom to talk to. The server name is not looked at.
pub fn client_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    trust: TrustStore,
    allow: Allow,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(SpiffeVerifier { trust, allow, provider: provider.clone() });
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(verifier).with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::disabled();
    // Names of SPIFFE peers are in their certificates: none to tell a listener on the way.
    config.enable_sni = false;
    Ok(config)
}

/// Configuration of a TLS client that shows no certificate: for servers that everybody may read from.
pub(super) fn anonymous_client_config(trust: TrustStore, allow: Allow) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(SpiffeVerifier { trust, allow, provider: provider.clone() });
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// Configuration of a TLS server that asks every client for its certificate.
pub fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    trust: TrustStore,
    allow: Allow,
) -> Result<ServerConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(SpiffeVerifier { trust, allow, provider: provider.clone() });
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let mut config = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The identity of a peer whose handshake is over, from the certificate it proved.
pub fn peer_id(certificates: Option<&[CertificateDer<'_>]>) -> Option<SpiffeId> {
    let facts = isthmus_pki::Facts::parse(certificates?.first()?).ok()?;
    verify::check_leaf(&facts).ok()
}

struct SpiffeVerifier {
    trust: TrustStore,
    allow: Allow,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for SpiffeVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpiffeVerifier").field("allow", &self.allow).finish_non_exhaustive()
    }
}

impl SpiffeVerifier {
    fn check(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<(), Error> {
        let chain: Vec<_> = std::iter::once(leaf).chain(intermediates).cloned().collect();
        let now = i64::try_from(now.as_secs()).map_err(reject)?;
        let now = OffsetDateTime::from_unix_timestamp(now).map_err(reject)?;
        let Verified { id, .. } = verify::verify(&chain, &self.trust, purpose, now).map_err(reject)?;
        if self.allow.admits(&id) {
            Ok(())
        } else {
            Err(reject(format!("the peer is {id}, which is not allowed here")))
        }
    }
}

fn reject(reason: impl fmt::Display) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Reason(reason.to_string())))))
}

impl ServerCertVerifier for SpiffeVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(leaf, intermediates, Purpose::Server, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for SpiffeVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(leaf, intermediates, Purpose::Client, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
