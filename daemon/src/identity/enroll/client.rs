//! Calls to issuers: each over a connection of its own to a node that proves to be one of this site's, or for a peer one of any site's.

use std::{
    error::Error as _,
    sync::{Arc, OnceLock},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use isthmus_pki::{SpiffeId, verify::Purpose};
use isthmus_proto::issuance::issuance_client::IssuanceClient;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::{
    Status,
    transport::{Channel, Endpoint, Uri},
};

use crate::identity::{
    standing::{Live, Standing},
    tls::{self, Allow, Check, Guarded},
};

/// How long it may take to connect, handshake included.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of an answer: more than a charter, CRLs, endorsements and taint statements have together, each at its bound. Else who
/// brings one of them to its bound would keep nodes from hearing all the others.
const MAX_ANSWER: usize = 8 << 20;

/// Why an issuer gave nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Not reached, or it did not prove to be an issuer of ours.
    #[error("{address}: {reason}")]
    Connect {
        /// From `[identity] issuers` or `[fabric] peers`.
        address: String,
        /// The root cause.
        reason: String,
    },
    /// Its answer.
    #[error("{address}: {}", .status.message())]
    Refused {
        /// From `[identity] issuers` or `[fabric] peers`.
        address: String,
        /// What it said.
        status: Box<Status>,
    },
}

/// How to appear, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As<'a> {
    /// With our SVID, to any issuer of the site.
    Node,
    /// With nothing, because we have nothing yet, to this issuer: what we say is for its ears alone.
    Stranger(&'a SpiffeId),
}

/// A connection, and who is at its other end.
type Connected = (IssuanceClient<Channel>, Option<SpiffeId>);

/// Connects to one issuer of the site. The connection ends when either side's certificate does, or is not believed any more.
pub(super) async fn connect(
    address: &str,
    live: &Live,
    standing: &Standing,
    appear: As<'_>,
    answer_limit: Option<Duration>,
) -> Result<IssuanceClient<Channel>, Error> {
    let allow = match appear {
        As::Node => Allow::NodesOf(standing.trust.domain().clone(), standing.node.0.clone()),
        As::Stranger(issuer) => Allow::Ids(vec![issuer.clone()]),
    };
    let limit = answer_limit.unwrap_or(ANSWER_LIMIT);
    connect_to(address, live, standing, appear, (allow, limit)).await.map(|(client, _)| client)
}

/// Connects to an issuer of any site, and says who it is.
pub(super) async fn connect_peer(
    address: &str,
    live: &Live,
    standing: &Standing,
    answer_limit: Duration,
) -> Result<Connected, Error> {
    let allow = Allow::Nodes(standing.trust.domain().clone());
    connect_to(address, live, standing, As::Node, (allow, answer_limit)).await
}

async fn connect_to(
    address: &str,
    live: &Live,
    standing: &Standing,
    appear: As<'_>,
    (allow, answer_limit): (Allow, Duration),
) -> Result<Connected, Error> {
    let fail = |reason: String| Error::Connect { address: address.to_owned(), reason };
    let config = tls::node_client(standing, live.clone(), allow.clone(), appear != As::Node)
        .map_err(|error| fail(error.to_string()))?;
    let own_end = standing.own.as_ref().filter(|_| appear == As::Node).map(|own| own.life.not_after);
    let peer = Arc::new(OnceLock::new());
    let dial = Dial { config: Arc::new(config), live: live.clone(), allow, own_end, peer: peer.clone() };
    let (target, dial) = (address.to_owned(), Arc::new(dial));
    let connector = tower::service_fn(move |_: Uri| {
        let (target, dial) = (target.clone(), dial.clone());
        async move { dial.dial(&target).await.map(TokioIo::new) }
    });
    // The address is never looked up: the connector above ignores it.
    let endpoint = Endpoint::from_static("http://issuer");
    let endpoint = endpoint.connect_timeout(CONNECT_LIMIT).timeout(answer_limit);
    let channel = tokio::time::timeout(CONNECT_LIMIT, endpoint.connect_with_connector(connector)).await;
    let channel = channel.map_err(|_| fail(format!("no connection within {CONNECT_LIMIT:?}")))?;
    let channel = channel.map_err(|error| fail(root_cause(&error)))?;
    let client = IssuanceClient::new(channel).max_decoding_message_size(MAX_ANSWER);
    Ok((client, peer.get().cloned()))
}

/// The words for an answer that is an error.
pub(super) fn refused(address: &str, status: Status) -> Error {
    // A status that was made here from a broken connection has a cause that says more.
    let reason = status.source().map(root_cause);
    match reason {
        Some(reason) => Error::Connect { address: address.to_owned(), reason },
        None => Error::Refused { address: address.to_owned(), status: Box::new(status) },
    }
}

struct Dial {
    config: Arc<rustls::ClientConfig>,
    live: Live,
    allow: Allow,
    own_end: Option<i64>,
    /// Who answered.
    peer: Arc<OnceLock<SpiffeId>>,
}

type Stream = Guarded<tokio_rustls::client::TlsStream<TcpStream>>;

impl Dial {
    async fn dial(&self, address: &str) -> std::io::Result<Stream> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        // A name has to be given and is not looked at: the verifier goes by the SPIFFE ID.
        let name = ServerName::try_from("issuer").expect("a DNS name");
        let stream = TlsConnector::from(self.config.clone()).connect(name, tcp).await?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain: Vec<CertificateDer<'static>> = chain.iter().map(|der| der.clone().into_owned()).collect();
        let check = Check::new(self.live.clone(), chain, Purpose::Server, self.allow.clone(), self.own_end);
        // The first connection's: a channel that connects again does so to the same address.
        check.now().ok().map(|id| self.peer.set(id).ok());
        Ok(Guarded::new(stream, Arc::new(check)))
    }
}

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use isthmus_pki::{charter::sealed, jwt::Endorsement, rotation::taint};
    use prost::Message as _;

    use super::*;
    use crate::identity::{
        enroll::{TrustState, View, keyring::MAX_KEYS},
        rotation::{MAX_CRL_BYTES, MAX_TAINTS},
    };

    #[test]
    fn an_answer_with_everything_at_its_bound_is_read() {
        const ENDORSEMENT: usize = 16 << 10;
        /// Of the keys that the issuer itself has.
        const OWN: usize = 16;
        let bytes = |length: usize| vec![0; length];
        let longest = |length: usize| Endorsement::from_text("x".repeat(length));
        assert!(longest(ENDORSEMENT).is_ok() && longest(ENDORSEMENT + 1).is_err());
        let state = TrustState {
            charter: bytes(sealed::MAX_LEN),
            jwt_endorsements: vec![bytes(ENDORSEMENT); MAX_KEYS + OWN],
            // What a charter has in it is told once more, by itself.
            crls: vec![bytes(MAX_CRL_BYTES), bytes(sealed::MAX_LEN)],
            taints: vec![bytes(taint::MAX_LEN); MAX_TAINTS],
            renew: None,
        };
        let length = View::new(state).answer().encoded_len();
        assert!(length < MAX_ANSWER, "{length} bytes");
    }
}
