//! Our bundle endpoint: one document over HTTPS, for everybody. What an anonymous reader can cost us is bounded: connections, the time
//! of each, the length of a request.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Shown, config::EndpointConfig, web};
use crate::connections::Room;

/// Most connections at a time; the oldest leaves first.
const PLACES: usize = 64;
/// Longest request head, in bytes; what hyper allows at least.
const MAX_HEAD: usize = 8192;
/// For a whole connection: a document of some kilobytes.
const LONGEST: Duration = Duration::from_secs(30);
/// How long to wait when accepting fails, out of descriptors most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// How the endpoint is to answer; a reload replaces it.
pub(super) struct Serving {
    pub(super) config: EndpointConfig,
    /// `https_web`; otherwise the node's SVID of the moment.
    pub(super) web: Option<Arc<ServerConfig>>,
}

/// A bound endpoint.
pub(super) struct Endpoint {
    asked: SocketAddr,
    bound: SocketAddr,
    serving: watch::Sender<Arc<Serving>>,
    stop: CancellationToken,
}

impl Endpoint {
    pub(super) fn start(
        listener: TcpListener,
        bound: SocketAddr,
        serving: Serving,
        shown: watch::Receiver<Option<Arc<Shown>>>,
        shutdown: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        let (asked, stop) = (serving.config.listen, shutdown.child_token());
        let (serving, receiver) = watch::channel(Arc::new(serving));
        tasks.spawn(accept(listener, receiver, shown, stop.clone()));
        Self { asked, bound, serving, stop }
    }

    pub(super) fn asked(&self) -> SocketAddr {
        self.asked
    }

    pub(super) fn bound(&self) -> SocketAddr {
        self.bound
    }

    pub(super) fn replace(&self, serving: Serving) {
        self.serving.send_replace(Arc::new(serving));
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    serving: watch::Receiver<Arc<Serving>>,
    shown: watch::Receiver<Option<Arc<Shown>>>,
    stop: CancellationToken,
) {
    let room = Room::new(PLACES);
    let connections = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "federation: accept failed; trying again in a moment");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
            () = stop.cancelled() => break,
        };
        let (serving, shown) = (serving.borrow().clone(), shown.borrow().clone());
        let (room, stop) = (room.clone(), stop.clone());
        connections.spawn(async move {
            tokio::select! {
                _ = tokio::time::timeout(LONGEST, serve(stream, &room, &serving, shown)) => {}
                () = stop.cancelled() => {}
            }
        });
    }
    connections.close();
    connections.wait().await;
}

/// What goes wrong with a stranger's connection is the stranger's to see.
async fn serve(stream: TcpStream, room: &Room, serving: &Serving, shown: Option<Arc<Shown>>) -> Option<()> {
    let tls = match &serving.web {
        Some(tls) => tls.clone(),
        None => spiffe(shown.as_deref()?)?,
    };
    let stream = room.admit(stream).await;
    let stream = TlsAcceptor::from(tls).accept(stream).await.ok()?;
    let service = service_fn(|request| {
        let response = answer(&request, &serving.config, shown.as_deref());
        async move { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok()
}

/// For each connection anew: an SVID is renewed while we run.
fn spiffe(shown: &Shown) -> Option<Arc<ServerConfig>> {
    let key = PrivateKeyDer::Pkcs8(shown.key.to_pkcs8().to_vec().into());
    match web::server_with(shown.chain.clone(), key) {
        Ok(config) => Some(Arc::new(config)),
        Err(error) => {
            tracing::warn!(%error, "federation: the node's SVID can't be shown");
            None
        }
    }
}

fn answer(
    request: &Request<Incoming>,
    config: &EndpointConfig,
    shown: Option<&Shown>,
) -> Response<Full<Bytes>> {
    if request.uri().path() != config.path {
        return plain(StatusCode::NOT_FOUND);
    }
    if request.method() != Method::GET {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET"));
        return response;
    }
    let Some(shown) = shown else { return plain(StatusCode::SERVICE_UNAVAILABLE) };
    let bundle = shown.bundle.clone();
    let hint = bundle.refresh_hint().unwrap_or(config.refresh_hint);
    let mut response = Response::new(Full::from(bundle.with_refresh_hint(hint).to_jwks()));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    no_cache(response)
}

fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    no_cache(response)
}

/// A cache between us and a reader would hold back a revocation.
fn no_cache(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}
