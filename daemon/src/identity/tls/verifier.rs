//! What rustls asks about a peer's certificate, answered by the PKI library.

use std::{fmt, sync::Arc, time::Duration, time::SystemTime};

use isthmus_pki::{
    TrustStore,
    verify::{self, Purpose, Verified},
};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::{Allow, Live};

/// Why a peer is refused. rustls shows it by `Debug`, so that is a sentence too.
#[derive(thiserror::Error)]
#[error("{0}")]
struct Reason(String);

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What peers are held against.
pub(super) enum Source {
    /// One store, for as long as the configuration is used.
    Fixed(TrustStore),
    /// What the node believes at the time of the handshake.
    Live(Live),
}

pub(super) struct SpiffeVerifier {
    source: Source,
    allow: Allow,
    mandatory: bool,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for SpiffeVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpiffeVerifier").field("allow", &self.allow).finish_non_exhaustive()
    }
}

impl SpiffeVerifier {
    /// `mandatory`: a client without a certificate is refused in the handshake.
    pub(super) fn new(source: Source, allow: Allow, mandatory: bool) -> Self {
        Self { source, allow, mandatory, provider: Arc::new(aws_lc_rs::default_provider()) }
    }

    fn check(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<(), Error> {
        let chain: Vec<_> = std::iter::once(leaf).chain(intermediates).cloned().collect();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
        match &self.source {
            Source::Fixed(store) => self.check_fixed(&chain, store, purpose, now),
            Source::Live(live) => {
                let standing = live.borrow();
                let standing = standing.as_ref().ok_or_else(|| reject("this node has no identity now"))?;
                standing.judge(&chain, purpose, &self.allow, now).map(drop).map_err(reject)
            }
        }
    }

    fn check_fixed(
        &self,
        chain: &[CertificateDer<'_>],
        store: &TrustStore,
        purpose: Purpose,
        now: SystemTime,
    ) -> Result<(), Error> {
        let Verified { id, .. } = verify::verify(chain, store, purpose, now.into()).map_err(reject)?;
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
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

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
