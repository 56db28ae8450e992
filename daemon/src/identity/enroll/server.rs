//! The issuance service on its port.

use std::{io, net::SocketAddr, time::Duration};

use isthmus_proto::issuance::issuance_server::IssuanceServer;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::Server as GrpcServer;

use super::{accept, fleet::Fleet, service::Service, tokens::Tokens};
use crate::identity::standing::Live;

/// Most bytes of a request: a CSR with a few names has less than 2 KiB.
const MAX_MESSAGE: usize = 32 << 10;
/// Most calls that one connection may have open.
const MAX_STREAMS: u32 = 64;
/// Most bytes of metadata in a call.
const MAX_HEADERS: u32 = 8 << 10;
/// Longest call; the longest that is meant is a Sync that waits for a change.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// How often a silent connection is asked whether it is still there, and how long it may take to say so.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// How long connections may take to close when the server stops.
const PATIENCE: Duration = Duration::from_secs(1);

/// The port can't be served.
#[derive(Debug, thiserror::Error)]
#[error("[issuer] listen = \"{address}\": {source}; is the port taken, or the address another host's?")]
pub struct Error {
    address: SocketAddr,
    source: io::Error,
}

/// An issuance service that serves until it is dropped.
pub(in crate::identity) struct Server {
    asked: SocketAddr,
    bound: SocketAddr,
    cancel: CancellationToken,
}

impl Server {
    /// Binds the port and serves until `shutdown`, in a task of `tasks`.
    pub(in crate::identity) async fn start(
        address: SocketAddr,
        live: Live,
        tokens: Tokens,
        fleet: Fleet,
        shutdown: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Result<Self, Error> {
        let fail = |source| Error { address, source };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let bound = listener.local_addr().map_err(fail)?;
        let cancel = shutdown.child_token();
        let service = Service::new(live.clone(), tokens, fleet, cancel.clone());
        let service = IssuanceServer::new(service).max_decoding_message_size(MAX_MESSAGE);
        let server = GrpcServer::builder()
            .max_concurrent_streams(MAX_STREAMS)
            .http2_max_header_list_size(MAX_HEADERS)
            .http2_keepalive_interval(Some(KEEPALIVE.0))
            .http2_keepalive_timeout(Some(KEEPALIVE.1))
            .timeout(CALL_LIMIT)
            .add_service(service)
            .serve_with_incoming_shutdown(accept::incoming(listener, live), cancel.clone().cancelled_owned());
        let stop = cancel.clone();
        tasks.spawn(async move {
            let patience = async {
                stop.cancelled().await;
                tokio::time::sleep(PATIENCE).await;
            };
            tokio::select! {
                result = server => if let Err(error) = result {
                    tracing::error!(%error, "the issuance service has failed; restart isthmusd");
                },
                () = patience => tracing::debug!("connections to the issuance service were open at its end and are cut"),
            }
        });
        tracing::info!(address = %bound, "serving the nodes of this site");
        Ok(Self { asked: address, bound, cancel })
    }

    /// As configured.
    pub(in crate::identity) fn asked(&self) -> SocketAddr {
        self.asked
    }

    /// Where it listens, with the port that the kernel chose if port 0 was asked for.
    pub(in crate::identity) fn bound(&self) -> SocketAddr {
        self.bound
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
