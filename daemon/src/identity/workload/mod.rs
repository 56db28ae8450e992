//! The SPIFFE Workload API on a unix socket (SPIFFE Workload Endpoint section 3 to 7, Workload API section 4 to 6), and beside it Envoy's
//! secret discovery service and gRPC reflection.
//!
//! `connection` attests whoever connects, within the bounds of `admission`. `exchange` speaks HTTP/2 with one of them (isthmus-http2),
//! with a `call` for each stream and an `inbox` for what it is sent. `service` checks each call's header, `sds` has none to check. `feed`
//! keeps one caller supplied: it pushes when what the caller has changed or ages. `keeper` owns its SVIDs, made in the `workshop`;
//! `documents` is what the node believes, encoded once for all streams.

mod admission;
mod call;
mod claims;
mod connection;
mod documents;
mod exchange;
mod feed;
mod frames;
mod inbox;
mod jwt;
mod keeper;
mod sds;
mod service;
mod workshop;
mod x509;

use std::{path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use isthmus_proto::{
    sds::{
        self as sds_proto,
        envoy::service::secret::v3::secret_discovery_service_server::SecretDiscoveryServiceServer,
    },
    workload::{self as workload_proto, spiffe_workload_api_server::SpiffeWorkloadApiServer},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::Routes;

use crate::{
    descriptors::make_room,
    unix_socket::{self, Socket},
};

use super::{
    attest::Attestor, certificates::Ledger, registration::Registry, rotation::ReissueOrder, sds::Names,
    supplier::Supplier, trust::Trust,
};
pub use admission::Limits;
use connection::Reception;
use feed::Shared;
use sds::Secrets;
use service::Service;

/// Most bytes of a request: a token to be validated, or the names of many secrets.
const MAX_MESSAGE: usize = 64 << 10;

/// Of a connection: the socket, and what stands for the process behind it.
const DESCRIPTORS: usize = 2;

/// How long connections may take to close when the server stops.
const PATIENCE: Duration = Duration::from_secs(1);

/// What callers are answered from. Replaced as a whole, never changed.
#[derive(Clone)]
pub(super) struct Supply {
    pub(super) trust: Arc<Trust>,
    pub(super) issuer: Supplier,
    pub(super) registry: Arc<Registry>,
    /// The last order to give every caller a new SVID.
    pub(super) reissue: ReissueOrder,
    /// Gathers what the registry asks about.
    pub(super) attestor: Arc<Attestor>,
}

/// How the socket is served; a reload may change it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Bounds on connections.
    pub limits: Limits,
    /// What Envoy calls its secrets.
    pub names: Names,
}

impl Settings {
    /// No more connections than there are descriptors for: they must not shut out the control API, BGP or the metrics.
    fn that_fit(mut self) -> Self {
        self.limits.connections = make_room(self.limits.connections, DESCRIPTORS);
        self
    }
}

/// Everybody may connect: who gets an identity is decided by attestation, not by the file's mode.
const SOCKET_MODE: u32 = 0o777;

/// A Workload API that serves. Its socket file goes when it is stopped.
pub(super) struct Server {
    path: PathBuf,
    settings: Arc<ArcSwap<Settings>>,
    cancel: CancellationToken,
}

impl Server {
    /// Binds the socket and serves until `shutdown`, in a task of `tasks`.
    pub(super) async fn start(
        path: PathBuf,
        settings: Settings,
        supply: watch::Receiver<Option<Supply>>,
        ledger: Ledger,
        shutdown: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Result<Self, unix_socket::Error> {
        let (socket, listener) = Socket::bind(&path, SOCKET_MODE).await?;
        let cancel = shutdown.child_token();
        let settings = Arc::new(ArcSwap::from_pointee(settings.that_fit()));
        let service = Service::new(supply, Shared::new(ledger), cancel.clone());
        let routes = routes(service, settings.clone());
        let server = Reception::new(listener, settings.clone(), routes).serve(cancel.clone());
        let stop = cancel.clone();
        tasks.spawn(async move {
            let patience = async { stop.cancelled().await; tokio::time::sleep(PATIENCE).await };
            tokio::select! {
                () = server => {}
                () = patience => tracing::info!("connections to the Workload API were open at its end and are cut"),
            }
            drop(socket);
        });
        tracing::info!(socket = %path.display(), "the Workload API serves");
        Ok(Self { path, settings, cancel })
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// From now on: true if that is another setting than before.
    pub(super) fn configure(&self, settings: &Settings) -> bool {
        let settings = settings.clone().that_fit();
        let before = self.settings.swap(Arc::new(settings.clone()));
        *before != settings
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

fn routes(service: Service, settings: Arc<ArcSwap<Settings>>) -> Routes {
    let secrets = Secrets::new(service.clone(), settings);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(workload_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(sds_proto::FILE_DESCRIPTOR_SET)
    };
    let sound = "the committed descriptors are the compiler's own, and a test proves them fresh";
    Routes::new(SpiffeWorkloadApiServer::new(service).max_decoding_message_size(MAX_MESSAGE))
        .add_service(SecretDiscoveryServiceServer::new(secrets).max_decoding_message_size(MAX_MESSAGE))
        .add_service(reflection().build_v1().expect(sound))
        .add_service(reflection().build_v1alpha().expect(sound))
        .prepare()
}
