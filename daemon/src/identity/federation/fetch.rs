//! One HTTPS request: GET a document of bounded size within a bounded time, following redirects without remembering them.

use std::{io, sync::Arc, time::Duration};

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, StatusCode, Uri, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use isthmus_pki::bundle::MAX_DOCUMENT_LEN;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Most redirects of one fetch.
const MAX_REDIRECTS: usize = 5;
/// Longest head of a response, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// Why a document could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Url(String),
    #[error("cannot connect to {0}: {1}")]
    Connect(String, io::Error),
    #[error("TLS with {0} failed: {1}")]
    Tls(String, io::Error),
    #[error("{0} does not speak HTTP as it should: {1}")]
    Http(String, hyper::Error),
    #[error("{0} answered {1}")]
    Status(String, StatusCode),
    #[error("{0} redirects to a place that can't be read")]
    Location(String),
    #[error("more than {MAX_REDIRECTS} redirects")]
    TooManyRedirects,
    #[error("{0}: the document can't be read, or has more than {MAX_DOCUMENT_LEN} bytes: {1}")]
    Body(String, Box<dyn std::error::Error + Send + Sync>),
    #[error("no complete answer within {0:?}")]
    Timeout(Duration),
}

/// SPIFFE Federation section 5.2.1: https, a host, and no user information.
pub(super) fn check_url(url: &Uri) -> Result<(), String> {
    if url.scheme_str() != Some("https") {
        return Err("its scheme is not https".into());
    }
    let authority = url.authority().ok_or("it has no host")?;
    if authority.as_str().contains('@') {
        return Err("it holds user information".into());
    }
    if authority.host().is_empty() { Err("it has no host".into()) } else { Ok(()) }
}

/// Fetches a document. Every place that it is sent on to must satisfy the same `tls`.
pub(super) async fn fetch(url: &Uri, tls: Arc<ClientConfig>, longest: Duration) -> Result<Bytes, Error> {
    tokio::time::timeout(longest, follow(url, tls)).await.map_err(|_| Error::Timeout(longest))?
}

async fn follow(url: &Uri, tls: Arc<ClientConfig>) -> Result<Bytes, Error> {
    let mut url = url.clone();
    for _ in 0..=MAX_REDIRECTS {
        match get(&url, tls.clone()).await? {
            Answer::Document(bytes) => return Ok(bytes),
            Answer::Elsewhere(next) => url = next,
        }
    }
    Err(Error::TooManyRedirects)
}

enum Answer {
    Document(Bytes),
    Elsewhere(Uri),
}

async fn get(url: &Uri, tls: Arc<ClientConfig>) -> Result<Answer, Error> {
    check_url(url).map_err(|reason| Error::Url(format!("{url}: {reason}")))?;
    let place = url.authority().map(ToString::to_string).unwrap_or_default();
    let stream = connect(url, &place, tls).await?;
    let http = |e| Error::Http(place.clone(), e);
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await.map_err(http)?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(header::HOST, &place)
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|e| Error::Url(e.to_string()))?;
    // The connection lives as long as this future: dropping it (a timeout, a stop) closes the socket.
    let exchange = async {
        let response = sender.send_request(request).await.map_err(http)?;
        match response.status() {
            StatusCode::OK => {
                let body = Limited::new(response.into_body(), MAX_DOCUMENT_LEN).collect().await;
                body.map(|body| Answer::Document(body.to_bytes())).map_err(|e| Error::Body(place.clone(), e))
            }
            status if status.is_redirection() => {
                let next = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
                next.and_then(|to| resolve(url, to))
                    .map(Answer::Elsewhere)
                    .ok_or(Error::Location(place.clone()))
            }
            status => Err(Error::Status(place.clone(), status)),
        }
    };
    tokio::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        ended = connection => match ended {
            Err(e) => Err(http(e)),
            Ok(()) => exchange.await,
        },
    }
}

async fn connect(url: &Uri, place: &str, tls: Arc<ClientConfig>) -> Result<TlsStream<TcpStream>, Error> {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|e| Error::Url(format!("{host}: {e}")))?;
    let address = (host, url.port_u16().unwrap_or(443));
    let stream = TcpStream::connect(address).await.map_err(|e| Error::Connect(place.to_owned(), e))?;
    TlsConnector::from(tls).connect(name, stream).await.map_err(|e| Error::Tls(place.to_owned(), e))
}

/// An absolute URL, or a path on the same host (RFC 9110 section 10.2.2).
fn resolve(from: &Uri, to: &str) -> Option<Uri> {
    let to: Uri = to.parse().ok()?;
    if to.scheme().is_some() {
        return Some(to);
    }
    let path =
        to.path_and_query().filter(|path| path.as_str().starts_with('/') && to.authority().is_none())?;
    Uri::builder()
        .scheme("https")
        .authority(from.authority()?.clone())
        .path_and_query(path.clone())
        .build()
        .ok()
}
