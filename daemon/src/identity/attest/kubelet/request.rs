//! One `GET /pods` on a connection of its own.

use std::{io::Read as _, path::Path, sync::Arc};

use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::{
    Request, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use zeroize::Zeroizing;

use super::{Error, MAX_ANSWER, MAX_TOKEN, tls};
use crate::{config, identity::config::KubernetesConfig};

/// The body of a 200.
pub(super) async fn get_pods(config: &KubernetesConfig) -> Result<Bytes, Error> {
    let address = address(config);
    let (connector, token) = read_files(config).await?;
    let stream = connect(config, connector, &address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(garbled)?;
    // Ends with the answer, or when `sender` and the answer are dropped.
    let driver = tokio::spawn(connection);
    let result = exchange(&mut sender, request(&address, token)?).await;
    driver.abort();
    result
}

type Sender = http1::SendRequest<Empty<Bytes>>;

async fn exchange(sender: &mut Sender, request: Request<Empty<Bytes>>) -> Result<Bytes, Error> {
    let answer = sender.send_request(request).await.map_err(garbled)?;
    match answer.status() {
        StatusCode::OK => body(answer.into_body()).await,
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Err(Error::Denied { status: status.as_u16() })
        }
        status => Err(Error::Answer(format!("its status is {status}"))),
    }
}

async fn body(body: Incoming) -> Result<Bytes, Error> {
    let collected = Limited::new(body, MAX_ANSWER).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
        let too_long = error.is::<LengthLimitError>();
        Error::Answer(if too_long {
            format!("it is longer than {MAX_ANSWER} bytes")
        } else {
            error.to_string()
        })
    })
}

fn garbled(error: hyper::Error) -> Error {
    Error::Answer(error.to_string())
}

/// As a URL has it.
fn address(config: &KubernetesConfig) -> String {
    let KubernetesConfig { host, port, .. } = config;
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

async fn connect(
    config: &KubernetesConfig,
    tls: TlsConnector,
    address: &str,
) -> Result<TlsStream<TcpStream>, Error> {
    let name = tls::name(config)?;
    let tcp = TcpStream::connect((config.host.as_str(), config.port)).await;
    let tcp =
        tcp.map_err(|error| Error::Connect { address: address.to_owned(), reason: error.to_string() })?;
    let stream = tls.connect(name, tcp).await;
    stream.map_err(|error| Error::Tls { address: address.to_owned(), reason: error.to_string() })
}

fn request(address: &str, token: Option<HeaderValue>) -> Result<Request<Empty<Bytes>>, Error> {
    let mut request = Request::get("/pods").header(HOST, address).header(ACCEPT, "application/json");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token);
    }
    request.body(Empty::new()).map_err(|error| Error::Answer(error.to_string()))
}

async fn read_files(config: &KubernetesConfig) -> Result<(TlsConnector, Option<HeaderValue>), Error> {
    let config = config.clone();
    let read = move || {
        let token = config.token_file.as_deref().map(token).transpose()?;
        Ok((TlsConnector::from(Arc::new(tls::config(&config)?)), token))
    };
    tokio::task::spawn_blocking(read).await.map_err(|error| Error::Answer(error.to_string()))?
}

/// `Bearer TOKEN`, marked as secret.
fn token(path: &Path) -> Result<HeaderValue, Error> {
    let bad = |reason: String| Error::File { path: path.to_owned(), reason };
    let file = config::open(path).map_err(|error| bad(error.to_string()))?;
    // Room for all of it at once: a growing buffer leaves copies of a secret behind.
    let mut text = Zeroizing::new(String::with_capacity(usize::try_from(MAX_TOKEN + 8).unwrap_or(0)));
    text.push_str("Bearer ");
    file.take(MAX_TOKEN).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    let trimmed = text.trim_end();
    if trimmed.len() <= "Bearer".len() {
        return Err(bad("there is no token in it".into()));
    }
    let mut value =
        HeaderValue::from_str(trimmed).map_err(|_| bad("it is not a token: one line of text".into()))?;
    value.set_sensitive(true);
    Ok(value)
}
