//! Mutual TLS between SPIFFE identities: rustls with our verifier, TLS 1.3, no resumption.
//!
//! A resumed session would skip the certificate check, and with it every revocation since the first handshake. For the same reason
//! the node's own connections are [`Guarded`]: they end when their peer, or this node, is not believed any more. Keys are agreed by
//! X25519MLKEM768 where the peer has it.

mod guard;
#[cfg(test)]
mod tests;
mod verifier;

use std::sync::Arc;

use isthmus_pki::{SpiffeId, TrustDomain, TrustStore, verify};
use rustls::{
    ClientConfig, Error, ServerConfig, client::Resumption, crypto::aws_lc_rs, server::NoServerSessionStorage,
    version::TLS13,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

pub use guard::{Check, Guarded};
use verifier::{Source, SpiffeVerifier};

use super::standing::{Live, Standing};

/// gRPC is HTTP/2, and nothing else is spoken here (RFC 9113 section 3.2).
const ALPN: &[u8] = b"h2";

/// Which peers are welcome, once their chain has held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    /// Every identity of a trust domain.
    TrustDomain(TrustDomain),
    /// These identities only.
    Ids(Vec<SpiffeId>),
    /// The nodes of one site: `/site/SITE/node/` and a name.
    NodesOf(TrustDomain, String),
    /// The nodes of all sites of a trust domain.
    Nodes(TrustDomain),
}

impl Allow {
    /// Is this one welcome?
    pub fn admits(&self, id: &SpiffeId) -> bool {
        match self {
            Self::TrustDomain(domain) => id.trust_domain() == domain,
            Self::Ids(ids) => ids.contains(id),
            Self::NodesOf(domain, site) => {
                id.trust_domain() == domain && id.node().is_some_and(|(of, _)| of == site)
            }
            Self::Nodes(domain) => id.trust_domain() == domain && id.node().is_some(),
        }
    }
}

/// Configuration of a TLS client: own chain (leaf first) and key, whom to trust, whom to talk to. The server name is not looked at.
pub fn client_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    trust: TrustStore,
    allow: Allow,
) -> Result<ClientConfig, Error> {
    client(Some((chain, key)), SpiffeVerifier::new(Source::Fixed(trust), allow, true))
}

/// Configuration of a TLS client that shows no certificate: for servers that everybody may read from.
pub(super) fn anonymous_client_config(trust: TrustStore, allow: Allow) -> Result<ClientConfig, Error> {
    client(None, SpiffeVerifier::new(Source::Fixed(trust), allow, true))
}

/// Configuration of a TLS server that asks every client for its certificate.
pub fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    trust: TrustStore,
    allow: Allow,
) -> Result<ServerConfig, Error> {
    server(chain, key, SpiffeVerifier::new(Source::Fixed(trust), allow, true))
}

/// A client of the node itself, for one connection: it believes what the node believes when the handshake is made. `anonymous`: it
/// shows no certificate, because it has none.
pub(super) fn node_client(
    standing: &Standing,
    live: Live,
    allow: Allow,
    anonymous: bool,
) -> Result<ClientConfig, Error> {
    let own = standing.own.as_ref().filter(|_| !anonymous);
    let own = own.map(|own| (own.chain.clone(), own.tls_key()));
    let mut config = client(own, SpiffeVerifier::new(Source::Live(live), allow, true))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// A server of the node itself, with the SVID it has now. A client need not show a certificate; one that it shows must hold.
pub(super) fn node_server(own: &super::own::Own, live: Live, allow: Allow) -> Result<ServerConfig, Error> {
    let verifier = SpiffeVerifier::new(Source::Live(live), allow, false);
    let mut config = server(own.chain.clone(), own.tls_key(), verifier)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

fn client(
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    verifier: SpiffeVerifier,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match own {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    // Names of SPIFFE peers are in their certificates: none to tell a listener on the way.
    config.enable_sni = false;
    Ok(config)
}

fn server(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    verifier: SpiffeVerifier,
) -> Result<ServerConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let mut config = builder.with_client_cert_verifier(Arc::new(verifier)).with_single_cert(chain, key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The identity of a peer whose handshake is over, from the certificate it proved.
pub fn peer_id(certificates: Option<&[CertificateDer<'_>]>) -> Option<SpiffeId> {
    let facts = isthmus_pki::Facts::parse(certificates?.first()?).ok()?;
    verify::check_leaf(&facts).ok()
}
