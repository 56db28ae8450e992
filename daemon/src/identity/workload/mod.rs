//! The SPIFFE Workload API on a unix socket (SPIFFE Workload Endpoint section 3 to 7, Workload API section 5).
//!
//! `connection` attests whoever connects, `authority` mends what some clients send there, `service` checks each call's header, `stream`
//! keeps one caller supplied: it owns what that caller was given and pushes when it changes or ages.

mod authority;
mod connection;
mod service;
mod stream;

use std::{path::PathBuf, sync::Arc, time::Duration};

use isthmus_proto::workload::spiffe_workload_api_server::SpiffeWorkloadApiServer;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::Server as GrpcServer;

use crate::unix_socket::{self, Socket};

use super::{
    certificates::Ledger, issuing::Issuer, registration::Registry, rotation::ReissueOrder, trust::Trust,
};
use connection::Incoming;
use service::Service;

/// Most calls that one connection may have open.
const MAX_STREAMS: u32 = 16;
/// Most bytes of a request; those of the X.509 profile are empty.
const MAX_MESSAGE: usize = 64 << 10;
/// Most bytes of metadata in a call.
const MAX_HEADERS: u32 = 16 << 10;

/// How long connections may take to close when the server stops.
const PATIENCE: Duration = Duration::from_secs(1);

/// What callers are answered from. Replaced as a whole, never changed.
#[derive(Clone)]
pub(super) struct Supply {
    pub(super) trust: Arc<Trust>,
    pub(super) issuer: Arc<Issuer>,
    pub(super) registry: Arc<Registry>,
    /// The last order to give every caller a new SVID.
    pub(super) reissue: ReissueOrder,
}

/// Everybody may connect: who gets an identity is decided by attestation, not by the file's mode.
const SOCKET_MODE: u32 = 0o777;

/// A Workload API that serves. Its socket file goes when it is stopped.
pub(super) struct Server {
    path: PathBuf,
    cancel: CancellationToken,
}

impl Server {
    /// Binds the socket and serves until `shutdown`, in a task of `tasks`.
    pub(super) async fn start(
        path: PathBuf,
        supply: watch::Receiver<Option<Supply>>,
        ledger: Ledger,
        shutdown: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Result<Self, unix_socket::Error> {
        let (socket, listener) = Socket::bind(&path, SOCKET_MODE).await?;
        let cancel = shutdown.child_token();
        let service = Service::new(supply, ledger, cancel.clone(), tasks.clone());
        let server = GrpcServer::builder()
            .max_concurrent_streams(MAX_STREAMS)
            .http2_max_header_list_size(MAX_HEADERS)
            .add_service(SpiffeWorkloadApiServer::new(service).max_decoding_message_size(MAX_MESSAGE))
            .serve_with_incoming_shutdown(Incoming::new(listener), cancel.clone().cancelled_owned());
        let stop = cancel.clone();
        tasks.spawn(async move {
            let patience = async { stop.cancelled().await; tokio::time::sleep(PATIENCE).await };
            tokio::select! {
                result = server => if let Err(error) = result {
                    tracing::error!(%error, "the Workload API has failed; restart isthmusd");
                },
                () = patience => tracing::info!("connections to the Workload API were open at its end and are cut"),
            }
            drop(socket);
        });
        tracing::info!(socket = %path.display(), "the Workload API serves");
        Ok(Self { path, cancel })
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
