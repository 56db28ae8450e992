//! TLS to the kubelet. Its certificate is the cluster's, not a SPIFFE one: CA and name are checked as on the web.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

use super::Error;
use crate::identity::{
    config::{KubeletTrust, KubernetesConfig},
    files,
};

/// From the files as they are now. Reads files: not for threads that others wait for.
pub(super) fn config(config: &KubernetesConfig) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match &config.trust {
        KubeletTrust::Ca(file) => web_verifier(file, provider.clone())?,
        KubeletTrust::Unverified => Arc::new(Unverified(provider.clone())),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites for both versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut tls = match &config.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let (chain, der) = identity(certificate, key)?;
            builder.with_client_auth_cert(chain, der).map_err(|error| bad_file(certificate, error))?
        }
    };
    tls.resumption = Resumption::disabled();
    Ok(tls)
}

/// The name that the certificate must carry. A kubelet's has the node's name and addresses; the loopback is not among them.
pub(super) fn name(config: &KubernetesConfig) -> Result<ServerName<'static>, Error> {
    let loopback = config.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let name = config.node_name.as_ref().filter(|_| loopback).unwrap_or(&config.host);
    ServerName::try_from(name.clone())
        .map_err(|error| Error::Tls { address: config.host.clone(), reason: error.to_string() })
}

fn bad_file(path: &Path, reason: impl std::fmt::Display) -> Error {
    Error::File { path: path.to_owned(), reason: reason.to_string() }
}

fn web_verifier(file: &Path, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    let certificates = files::certificates(file).map_err(|error| bad_file(file, error))?;
    // What can't be an anchor is left out, as long as one is left.
    roots.add_parsable_certificates(certificates);
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(verifier.map_err(|error| bad_file(file, error))?)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(certificate: &Path, key: &Path) -> Result<Identity, Error> {
    let chain = files::certificates(certificate).map_err(|error| bad_file(certificate, error))?;
    let key = files::key(key).map_err(|error| bad_file(key, error))?;
    Ok((chain, PrivatePkcs8KeyDer::from(key.to_pkcs8().to_vec()).into()))
}

/// Takes any certificate. The configuration allows it on the loopback only, where whoever could answer in the kubelet's place is root.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
