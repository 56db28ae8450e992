//! TLS of the profile `https_web`: the web's PKI, TLS 1.2 and 1.3 with the suites of Mozilla's "intermediate" list, which are rustls's own.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    server::NoServerSessionStorage,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use super::FederationError as Error;
use crate::{identity::files, secret_file::Rule};

/// Where operating systems keep the CAs of the web: Debian and Alpine, Fedora, openSUSE, other musl systems.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The CAs of a file, or of the operating system. Those that rustls can't read are left out, as long as one is left.
pub(super) fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, Error> {
    let path = match ca_file {
        Some(path) => path.to_owned(),
        None => SYSTEM.iter().map(PathBuf::from).find(|path| path.exists()).ok_or(Error::NoSystemRoots)?,
    };
    let wrong = |reason: String| Error::Roots { path: path.clone(), reason };
    let bytes = files::read(&path)?;
    let list: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|e| wrong(format!("not PEM: {e}")))?;
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(list) {
        (0, _) => Err(wrong("no CA certificate in it".into())),
        _ => Ok(roots),
    }
}

/// A client that believes the web's CAs and looks at the host's name.
pub(super) fn client(ca_file: Option<&Path>) -> Result<ClientConfig, Error> {
    let roots = roots(ca_file)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(Error::Tls)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// A server with the certificate and key of two files.
pub(super) fn server(certificate: &Path, key: &Path) -> Result<ServerConfig, Error> {
    let wrong =
        |reason: String| Error::Web { certificate: certificate.to_owned(), key: key.to_owned(), reason };
    let chain = files::certificates(certificate)?;
    let pem = files::secret(key, Rule::Private)?;
    let secret =
        PrivateKeyDer::from_pem_slice(&pem).map_err(|e| wrong(format!("no private key in PEM: {e}")))?;
    server_with(chain, secret).map_err(|e| wrong(e.to_string()))
}

/// A server that asks no client for a certificate (SPIFFE Federation section 5.2).
pub(super) fn server_with(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12])?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use rustls::CipherSuite as Suite;

    use super::*;

    /// Version 5.7 of the list; its suites with finite-field Diffie-Hellman are optional, and rustls has none.
    const MOZILLA: [Suite; 9] = [
        Suite::TLS13_AES_128_GCM_SHA256,
        Suite::TLS13_AES_256_GCM_SHA384,
        Suite::TLS13_CHACHA20_POLY1305_SHA256,
        Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];

    // SPIFFE Federation section 5.2.1.
    #[test]
    fn suites_are_those_of_mozillas_list() {
        let dir = tempfile::tempdir().unwrap();
        let ca = rcgen::generate_simple_self_signed(["a".into()]).unwrap();
        let file = dir.path().join("ca.pem");
        std::fs::write(&file, ca.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(ca.signing_key.serialize_der()).unwrap();
        let server = server_with(vec![ca.cert.der().clone()], key).unwrap();
        let client = client(Some(&file)).unwrap();
        for provider in [server.crypto_provider(), client.crypto_provider()] {
            let ours: Vec<_> = provider.cipher_suites.iter().map(|suite| suite.suite()).collect();
            assert!(MOZILLA.iter().all(|suite| ours.contains(suite)), "{ours:?}");
            assert!(ours.iter().all(|suite| MOZILLA.contains(suite)), "{ours:?}");
        }
    }
}
