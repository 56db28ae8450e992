//! The control API on a unix socket: translation only, it owns no state.
//!
//! Who may ask is decided by the socket's permissions (0660, the daemon's user and group): every answer is about this node.
//! Whoever may ask may also change what can be changed: `SetOffload` costs speed at most, until the next start; `Tokens` lets nodes join;
//! `Bgp` starts sessions again; `Drain` takes the node out of service; `Rotation` is for those who are trusted with the site's CA, and refuses what would cut a node off. Orders to these four are in the audit
//! log, with who gave them, before they are carried out.

mod bfd;
mod bgp;
mod certificates;
mod config;
mod contradictions;
mod drain;
mod events;
mod fabric;
mod incoming;
mod operator;
mod orders;
mod peers;
mod rotation;
mod routes;
mod status;
#[cfg(test)]
mod tests;
mod tokens;
mod tunnel;

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use isthmus_proto::bgp::bgp_server::BgpServer;
use isthmus_proto::control::{
    DrainRequest, DrainResponse, ExplainRouteRequest, ExplainRouteResponse, GetStatusRequest,
    GetStatusResponse, GetTunnelRequest, GetTunnelResponse, ListBfdSessionsRequest, ListBfdSessionsResponse,
    ListBgpNeighborsRequest, ListBgpNeighborsResponse, ListCertificatesRequest, ListCertificatesResponse,
    ListPeersRequest, ListPeersResponse, ListRoutesRequest, ListRoutesResponse, SetOffloadRequest,
    SetOffloadResponse,
    control_server::{Control, ControlServer},
};
use isthmus_proto::events::events_server::EventsServer;
use isthmus_proto::fabric::fabric_server::FabricServer;
use isthmus_proto::rotation::rotation_server::RotationServer;
use isthmus_proto::tokens::tokens_server::TokensServer;
use tokio::{sync::watch, task::JoinHandle};
use tonic::{Request, Response, Status};

pub use config::*;

use crate::{
    events::Journal,
    fib, identity,
    lifecycle::{self, CancellationToken, Readiness},
    routes::Board,
    unix_socket::{self, Socket},
};

/// Requests are a few bytes; anything larger is not from isthmusctl.
const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// Calls that one connection may have under way.
const MAX_CONCURRENT_CALLS: usize = 16;
/// Root and the daemon's group may ask.
const SOCKET_MODE: u32 = 0o660;
/// How long calls under way may take to end after a stop.
const PATIENCE: Duration = Duration::from_secs(1);

/// The subsystems that the API asks; `None`: not configured.
#[derive(Clone)]
pub struct Parts {
    /// `[node]`
    pub node: Arc<crate::config::Node>,
    /// Start of this process.
    pub started_at: SystemTime,
    /// What the node still waits for.
    pub readiness: Readiness,
    /// Whether the node carries traffic, or goes.
    pub service: lifecycle::Service,
    /// All routes.
    pub board: Board,
    /// Tunnels.
    pub tunnel: Option<crate::tunnel::Handle>,
    /// BGP sessions.
    pub bgp: Option<crate::bgp::Handle>,
    /// Watched paths.
    pub bfd: Option<crate::bfd::Handle>,
    /// Who we are to BGP neighbors.
    pub speaker: Option<Speaker>,
    /// Kernel routes.
    pub fib: Option<fib::Handle>,
    /// Certificates.
    pub identity: Option<identity::Handle>,
    /// What happened so far.
    pub events: Journal,
    /// The configuration file's fate.
    pub config: watch::Receiver<ConfigState>,
}

/// Our side of every BGP session; only a restart changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// AS number.
    pub asn: u32,
    /// BGP identifier.
    pub router_id: Ipv4Addr,
}

/// Which configuration is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigState {
    path: PathBuf,
    loaded_at: SystemTime,
    generation: u64,
    last_error: String,
}

impl ConfigState {
    /// The state after a start.
    pub fn first(path: &Path, now: SystemTime) -> Self {
        Self { path: path.to_owned(), loaded_at: now, generation: 1, last_error: String::new() }
    }

    /// Records how a reload ended: `error` is why it was refused.
    pub fn reloaded(&mut self, error: Option<String>, now: SystemTime) {
        match error {
            Some(error) => self.last_error = error,
            None => {
                self.last_error.clear();
                self.generation += 1;
                self.loaded_at = now;
            }
        }
    }
}

/// Serves until `shutdown`. An error says which socket could not be made, and why.
pub async fn start(
    config: &Config,
    parts: Parts,
    shutdown: CancellationToken,
) -> Result<JoinHandle<()>, unix_socket::Error> {
    let (socket, listener) = Socket::bind(&config.socket, SOCKET_MODE).await?;
    tracing::info!(socket = %config.socket.display(), "serving the control API");
    let rotation = RotationServer::new(rotation::Service { parts: parts.clone() });
    let tokens = TokensServer::new(tokens::Service { parts: parts.clone() });
    let fabric = FabricServer::new(fabric::Service { parts: parts.clone() });
    let bgp = BgpServer::new(bgp::Service { parts: parts.clone() });
    let events =
        EventsServer::new(events::Service { journal: parts.events.clone(), shutdown: shutdown.clone() });
    let service = ControlServer::new(Service { parts }).max_decoding_message_size(MAX_REQUEST_BYTES);
    let server = tonic::transport::Server::builder()
        .concurrency_limit_per_connection(MAX_CONCURRENT_CALLS)
        .add_service(service)
        .add_service(rotation.max_decoding_message_size(rotation::MAX_ORDER_BYTES))
        .add_service(tokens.max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(bgp.max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(events.max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(fabric.max_decoding_message_size(MAX_REQUEST_BYTES))
        .serve_with_incoming_shutdown(incoming::incoming(listener), shutdown.clone().cancelled_owned());
    Ok(tokio::spawn(async move {
        let patience = async {
            shutdown.cancelled().await;
            tokio::time::sleep(PATIENCE).await;
        };
        tokio::select! {
            result = server => if let Err(error) = result {
                tracing::error!(%error, "the control API has failed");
            },
            () = patience => tracing::debug!("connections to the control API were open at its end and are cut"),
        }
        drop(socket);
    }))
}

struct Service {
    parts: Parts,
}

#[tonic::async_trait]
impl Control for Service {
    async fn get_status(&self, _: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        Ok(Response::new(status::status(&self.parts).await))
    }

    async fn list_peers(&self, _: Request<ListPeersRequest>) -> Result<Response<ListPeersResponse>, Status> {
        Ok(Response::new(peers::peers(&self.parts)))
    }

    async fn get_tunnel(&self, _: Request<GetTunnelRequest>) -> Result<Response<GetTunnelResponse>, Status> {
        Ok(Response::new(tunnel::tunnel(&self.parts)))
    }

    async fn set_offload(
        &self,
        request: Request<SetOffloadRequest>,
    ) -> Result<Response<SetOffloadResponse>, Status> {
        tunnel::set_offload(&self.parts, request.into_inner()).await.map(Response::new)
    }

    async fn list_routes(
        &self,
        request: Request<ListRoutesRequest>,
    ) -> Result<Response<ListRoutesResponse>, Status> {
        routes::routes(&self.parts, &request.into_inner().prefix).await.map(Response::new)
    }

    async fn explain_route(
        &self,
        request: Request<ExplainRouteRequest>,
    ) -> Result<Response<ExplainRouteResponse>, Status> {
        routes::explain(&self.parts, &request.into_inner().address).await.map(Response::new)
    }

    async fn list_bgp_neighbors(
        &self,
        _: Request<ListBgpNeighborsRequest>,
    ) -> Result<Response<ListBgpNeighborsResponse>, Status> {
        Ok(Response::new(bgp::neighbors(&self.parts).await))
    }

    async fn list_bfd_sessions(
        &self,
        _: Request<ListBfdSessionsRequest>,
    ) -> Result<Response<ListBfdSessionsResponse>, Status> {
        Ok(Response::new(bfd::sessions(&self.parts).await))
    }

    async fn list_certificates(
        &self,
        _: Request<ListCertificatesRequest>,
    ) -> Result<Response<ListCertificatesResponse>, Status> {
        Ok(Response::new(certificates::certificates(&self.parts)))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        drain::drain(&self.parts, request).await.map(Response::new)
    }
}

/// Seconds since the epoch, negative before it.
fn epoch(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |seconds| -seconds),
    }
}

/// Milliseconds since the epoch; 0 before it.
fn epoch_milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(milliseconds(since)).unwrap_or(i64::MAX)
}

/// Milliseconds, saturating.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
