//! The control API of a node, one short connection a question.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use hyper_util::rt::TokioIo;
use isthmus_proto::control::{
    self, BfdSession, BgpNeighbor, Certificate, GetStatusResponse, Peer, Route, control_client::ControlClient,
};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::Node;

const LIMIT: Duration = Duration::from_secs(5);

/// A gRPC channel over a unix socket; made lazily, so a missing socket shows as an error of the first call.
///
/// # Errors
/// None with a well-formed path.
pub fn unix_channel(socket: &Path) -> Result<Channel> {
    let socket = socket.to_owned();
    let connect = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    // The address is never dialled: the connector above ignores it.
    let endpoint = Endpoint::try_from("http://localhost").context("the placeholder address")?;
    Ok(endpoint.timeout(LIMIT).connect_with_connector_lazy(connect))
}

impl Node {
    /// `GetStatus`.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn status(&self) -> Result<GetStatusResponse> {
        self.status_within(LIMIT)
    }

    /// `GetStatus` of a daemon that may hang.
    ///
    /// # Errors
    /// When the daemon does not answer within `limit`, or within 5 s.
    pub fn status_within(&self, limit: Duration) -> Result<GetStatusResponse> {
        self.ask_within(limit, async |mut client| {
            Ok(client.get_status(control::GetStatusRequest {}).await?.into_inner())
        })
    }

    /// `ListPeers`.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn peers(&self) -> Result<Vec<Peer>> {
        self.ask(async |mut client| {
            Ok(client.list_peers(control::ListPeersRequest {}).await?.into_inner().peers)
        })
    }

    /// The peer of this name, as [`Node::peers`] tells it.
    ///
    /// # Errors
    /// When the daemon does not answer, or has none.
    pub fn peer(&self, name: &str) -> Result<Peer> {
        let found = self.peers()?.into_iter().find(|peer| peer.name == name);
        found.with_context(|| format!("{} has no peer {name}", self.name()))
    }

    /// Packets to or from this peer that were dropped for this reason.
    ///
    /// # Errors
    /// As [`Node::peer`].
    pub fn drops(&self, peer: &str, reason: &str) -> Result<u64> {
        Ok(self.peer(peer)?.drops.get(reason).copied().unwrap_or(0))
    }

    /// `ListRoutes`, all of them.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn routes(&self) -> Result<Vec<Route>> {
        let request = control::ListRoutesRequest { prefix: String::new() };
        self.ask(async |mut client| Ok(client.list_routes(request).await?.into_inner().routes))
    }

    /// `ListBgpNeighbors`.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn bgp_neighbors(&self) -> Result<Vec<BgpNeighbor>> {
        let request = control::ListBgpNeighborsRequest {};
        self.ask(async |mut client| Ok(client.list_bgp_neighbors(request).await?.into_inner().neighbors))
    }

    /// `ListBfdSessions`.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn bfd_sessions(&self) -> Result<Vec<BfdSession>> {
        let request = control::ListBfdSessionsRequest {};
        self.ask(async |mut client| Ok(client.list_bfd_sessions(request).await?.into_inner().sessions))
    }

    /// `ListCertificates`.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub fn certificates(&self) -> Result<Vec<Certificate>> {
        let request = control::ListCertificatesRequest {};
        self.ask(async |mut client| Ok(client.list_certificates(request).await?.into_inner().certificates))
    }

    fn ask<T>(&self, question: impl AsyncFnOnce(ControlClient<Channel>) -> Result<T>) -> Result<T> {
        self.ask_within(LIMIT, question)
    }

    fn ask_within<T>(
        &self,
        limit: Duration,
        question: impl AsyncFnOnce(ControlClient<Channel>) -> Result<T>,
    ) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(async {
            let client = ControlClient::new(unix_channel(&self.socket())?);
            let answer = tokio::time::timeout(limit, question(client)).await;
            answer.with_context(|| format!("no answer within {limit:?}"))?
        });
        answer.with_context(|| format!("asking {} at {}", self.name(), self.socket().display()))
    }
}
