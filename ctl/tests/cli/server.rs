//! A control server on a unix socket of its own, answering what a test gave it.

use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use isthmus_proto::bgp::bgp_server::{Bgp, BgpServer};
use isthmus_proto::bgp::{
    BgpNeighborDetail, ClearBgpRequest, ClearBgpResponse, DumpMrtRequest, ExplainBgpRequest,
    ExplainBgpResponse, ListRibRequest, MrtPart, RibPage, ShowBgpNeighborRequest,
};
use isthmus_proto::control::control_server::{Control, ControlServer};
use isthmus_proto::control::*;
use isthmus_proto::events::events_server::{Events, EventsServer};
use isthmus_proto::events::{EventBatch, ListEventsRequest};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server as TonicServer;
use tonic::{Request, Response, Status};

/// What the server answers, one field for each request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) status: GetStatusResponse,
    pub(crate) peers: ListPeersResponse,
    pub(crate) tunnel: GetTunnelResponse,
    pub(crate) offload: SetOffloadResponse,
    pub(crate) routes: ListRoutesResponse,
    pub(crate) why: ExplainRouteResponse,
    pub(crate) neighbors: ListBgpNeighborsResponse,
    pub(crate) bfd: ListBfdSessionsResponse,
    pub(crate) certificates: ListCertificatesResponse,
    /// In order; the last one again and again.
    pub(crate) drain: Vec<DrainResponse>,
    pub(crate) neighbor: BgpNeighborDetail,
    /// In order.
    pub(crate) rib: Vec<RibPage>,
    /// In order.
    pub(crate) mrt: Vec<MrtPart>,
    /// What comes after the parts of an MRT file.
    pub(crate) broken_off: Option<Status>,
    pub(crate) cleared: ClearBgpResponse,
    pub(crate) explained: ExplainBgpResponse,
    pub(crate) events: EventBatch,
    /// Answers every request with this instead.
    pub(crate) refusal: Option<Status>,
}

/// A running server; dropping it stops it and removes its socket.
pub(crate) struct Server {
    runtime: Option<Runtime>,
    directory: TempDir,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts in a directory of its own.
    pub(crate) fn start(answers: Answers) -> Self {
        Self::start_in(TempDir::new().expect("a temporary directory"), answers)
    }

    /// Starts in a directory where another has run before.
    pub(crate) fn start_in(directory: TempDir, answers: Answers) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let service = Arc::new(Canned { answers, asked: asked.clone() });
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = StdListener::bind(directory.path().join("isthmusd.sock")).expect("a free path");
        listener.set_nonblocking(true).expect("a socket");
        runtime.spawn(async move {
            let incoming = UnixListenerStream::new(UnixListener::from_std(listener).expect("non-blocking"));
            TonicServer::builder()
                .add_service(ControlServer::from_arc(service.clone()))
                .add_service(BgpServer::from_arc(service.clone()))
                .add_service(EventsServer::from_arc(service))
                .serve_with_incoming(incoming)
                .await
        });
        Self { runtime: Some(runtime), directory, asked }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("isthmusd.sock")
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What requests carried, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no test panics while it holds the lock").clone()
    }

    /// Stops and gives the directory back, without the socket.
    pub(crate) fn stop(mut self) -> TempDir {
        self.runtime.take().expect("it runs").shutdown_background();
        std::fs::remove_file(self.socket()).expect("the socket is there");
        let fresh = TempDir::new().expect("a temporary directory");
        std::mem::replace(&mut self.directory, fresh)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An answer in parts, the last of which may be that something went wrong.
type Parts<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

struct Canned {
    answers: Answers,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Canned {
    fn reply<T>(&self, asked: impl Into<String>, answer: &T) -> Result<Response<T>, Status>
    where
        T: Clone,
    {
        self.asked.lock().expect("no test panics while it holds the lock").push(asked.into());
        match &self.answers.refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(Response::new(answer.clone())),
        }
    }

    fn reply_in_parts<T: Clone + Send>(
        &self,
        asked: impl Into<String>,
        parts: &[T],
        end: Option<Status>,
    ) -> Result<Response<Parts<T>>, Status> {
        self.reply(asked, &())?;
        let parts = parts.iter().cloned().map(Ok).chain(end.map(Err)).collect::<Vec<_>>();
        Ok(Response::new(tokio_stream::iter(parts)))
    }
}

#[tonic::async_trait]
impl Control for Canned {
    async fn get_status(&self, _: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        self.reply("status", &self.answers.status)
    }

    async fn list_peers(&self, _: Request<ListPeersRequest>) -> Result<Response<ListPeersResponse>, Status> {
        self.reply("peers", &self.answers.peers)
    }

    async fn get_tunnel(&self, _: Request<GetTunnelRequest>) -> Result<Response<GetTunnelResponse>, Status> {
        self.reply("tunnel", &self.answers.tunnel)
    }

    async fn set_offload(
        &self,
        request: Request<SetOffloadRequest>,
    ) -> Result<Response<SetOffloadResponse>, Status> {
        let SetOffloadRequest { name, on } = request.into_inner();
        self.reply(format!("{name} {on}"), &self.answers.offload)
    }

    async fn list_routes(
        &self,
        request: Request<ListRoutesRequest>,
    ) -> Result<Response<ListRoutesResponse>, Status> {
        self.reply(request.into_inner().prefix, &self.answers.routes)
    }

    async fn explain_route(
        &self,
        request: Request<ExplainRouteRequest>,
    ) -> Result<Response<ExplainRouteResponse>, Status> {
        self.reply(request.into_inner().address, &self.answers.why)
    }

    async fn list_bgp_neighbors(
        &self,
        _: Request<ListBgpNeighborsRequest>,
    ) -> Result<Response<ListBgpNeighborsResponse>, Status> {
        self.reply("neighbors", &self.answers.neighbors)
    }

    async fn list_bfd_sessions(
        &self,
        _: Request<ListBfdSessionsRequest>,
    ) -> Result<Response<ListBfdSessionsResponse>, Status> {
        self.reply("bfd", &self.answers.bfd)
    }

    async fn list_certificates(
        &self,
        _: Request<ListCertificatesRequest>,
    ) -> Result<Response<ListCertificatesResponse>, Status> {
        self.reply("certificates", &self.answers.certificates)
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        let request = request.into_inner();
        let before = self.asked.lock().expect("no test panics while it holds the lock").len();
        let answer = self.answers.drain.get(before).or(self.answers.drain.last()).copied();
        self.reply(format!("{:?} {}", request.order(), request.wait_ms), &answer.unwrap_or_default())
    }
}

#[tonic::async_trait]
impl Events for Canned {
    async fn list(&self, request: Request<ListEventsRequest>) -> Result<Response<EventBatch>, Status> {
        let ListEventsRequest { since_ms, subsystem } = request.into_inner();
        self.reply(format!("{since_ms} {subsystem}"), &self.answers.events)
    }

    type FollowStream = tokio_stream::Once<Result<EventBatch, Status>>;

    async fn follow(
        &self,
        request: Request<ListEventsRequest>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let batch = self.list(request).await?.into_inner();
        Ok(Response::new(tokio_stream::once(Ok(batch))))
    }
}

#[tonic::async_trait]
impl Bgp for Canned {
    async fn show_neighbor(
        &self,
        request: Request<ShowBgpNeighborRequest>,
    ) -> Result<Response<BgpNeighborDetail>, Status> {
        self.reply(request.into_inner().neighbor, &self.answers.neighbor)
    }

    async fn clear(&self, request: Request<ClearBgpRequest>) -> Result<Response<ClearBgpResponse>, Status> {
        let request = request.into_inner();
        self.reply(format!("{:?} {}", request.kind(), request.neighbor), &self.answers.cleared)
    }

    type ListRibStream = Parts<RibPage>;

    async fn list_rib(
        &self,
        request: Request<ListRibRequest>,
    ) -> Result<Response<Self::ListRibStream>, Status> {
        let request = request.into_inner();
        let ListRibRequest { prefix, longer, neighbor, .. } = &request;
        let asked = format!("{:?} {prefix} {longer} {neighbor}", request.table());
        self.reply_in_parts(asked, &self.answers.rib, None)
    }

    type DumpMrtStream = Parts<MrtPart>;

    async fn dump_mrt(&self, _: Request<DumpMrtRequest>) -> Result<Response<Self::DumpMrtStream>, Status> {
        self.reply_in_parts("dump", &self.answers.mrt, self.answers.broken_off.clone())
    }

    async fn explain(
        &self,
        request: Request<ExplainBgpRequest>,
    ) -> Result<Response<ExplainBgpResponse>, Status> {
        self.reply(request.into_inner().address, &self.answers.explained)
    }
}
