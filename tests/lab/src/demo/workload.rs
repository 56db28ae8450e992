//! Two workloads that know nothing but a Workload API socket: a server and a client of mutual TLS by SPIFFE ID.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use isthmus_lab::node::unix_channel;
use isthmus_pki::{Bundle, Key, SpiffeId, bundle::certificates};
use isthmus_proto::workload::{
    X509svid, X509svidRequest, spiffe_workload_api_client::SpiffeWorkloadApiClient,
};
use isthmusd::identity::tls::{Allow, client_config, peer_id, server_config};
use rustls::CertificateError;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic::{Request, metadata::MetadataValue};

const LIMIT: Duration = Duration::from_secs(10);
/// Ends each line that the server prints about a client it let in, or did not.
pub(super) const ACCEPTED: &str = "accepted ";
pub(super) const REFUSED: &str = "refused ";
/// Begins the line that says the server is up.
pub(super) const LISTENING: &str = "listening ";

/// Arguments of the server.
#[derive(clap::Args)]
pub(crate) struct Server {
    /// Workload API socket.
    #[arg(long)]
    socket: PathBuf,
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// The only client that is welcome.
    #[arg(long)]
    client: SpiffeId,
}

/// Arguments of the client.
#[derive(clap::Args)]
pub(crate) struct Client {
    /// Workload API socket.
    #[arg(long, required_unless_present = "files")]
    socket: Option<PathBuf>,
    /// Directory with chain.pem, key.pem and bundle.pem, instead of a Workload API.
    #[arg(long, conflicts_with = "socket")]
    files: Option<PathBuf>,
    /// Where the server listens.
    #[arg(long)]
    connect: SocketAddr,
    /// Who the server must be.
    #[arg(long)]
    server: SpiffeId,
}

/// An X.509-SVID with its key and the roots to judge others by.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    bundle: Bundle,
}

/// Serves until it is killed.
pub(crate) fn serve(arguments: &Server) -> Result<ExitCode> {
    runtime()?.block_on(async {
        let identity = fetch(&arguments.socket).await?;
        let welcome = Allow::Ids(vec![arguments.client.clone()]);
        let acceptor = TlsAcceptor::from(Arc::new(server_config(
            identity.chain,
            identity.key,
            identity.bundle.into(),
            welcome,
        )?));
        let listener = TcpListener::bind(arguments.listen).await?;
        print(&format!("{LISTENING}{}", arguments.listen))?;
        loop {
            let (stream, _) = listener.accept().await?;
            match timeout(LIMIT, answer(&acceptor, stream)).await.context("too slow").flatten() {
                Ok(client) => print(&format!("{ACCEPTED}{client}"))?,
                Err(why) => print(&format!("{REFUSED}{}", reason(&why)))?,
            }
        }
    })
}

async fn answer(acceptor: &TlsAcceptor, stream: TcpStream) -> Result<SpiffeId> {
    let stream = acceptor.accept(stream).await?;
    let client = peer_id(stream.get_ref().1.peer_certificates()).context("the client has no identity")?;
    let mut stream = BufReader::new(stream);
    let mut question = String::new();
    stream.read_line(&mut question).await?;
    stream.write_all(format!("heard: {question}").as_bytes()).await?;
    stream.shutdown().await?;
    Ok(client)
}

/// The verifier's own words, where it was the verifier who refused.
fn reason(error: &anyhow::Error) -> String {
    let tls =
        error.downcast_ref::<io::Error>().and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref());
    match tls {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(reason))) => reason.0.to_string(),
        _ => format!("{error:#}"),
    }
}

/// Asks once and prints the answer.
pub(crate) fn dial(arguments: &Client) -> Result<ExitCode> {
    runtime()?.block_on(async {
        let identity = match (&arguments.socket, &arguments.files) {
            (Some(socket), _) => fetch(socket).await?,
            (None, Some(directory)) => load(directory)?,
            (None, None) => unreachable!("clap asks for one of them"),
        };
        let expected = Allow::Ids(vec![arguments.server.clone()]);
        let config = client_config(identity.chain, identity.key, identity.bundle.into(), expected)?;
        let connector = TlsConnector::from(Arc::new(config));
        let answer = timeout(LIMIT, ask(&connector, arguments.connect)).await.context("too slow")??;
        print(answer.trim_end())?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn ask(connector: &TlsConnector, server: SocketAddr) -> Result<String> {
    let stream = TcpStream::connect(server).await.with_context(|| format!("connecting to {server}"))?;
    // SPIFFE judges by ID; the name is only what TLS wants to send.
    let stream = connector.connect(ServerName::IpAddress(server.ip().into()), stream).await?;
    let mut stream = BufReader::new(stream);
    stream.write_all(b"hello from AWS\n").await?;
    // With TLS 1.3 a client learns only here that it was refused.
    let mut answer = String::new();
    stream.read_line(&mut answer).await?;
    ensure!(answer == "heard: hello from AWS\n", "the server said {answer:?}");
    Ok(answer)
}

async fn fetch(socket: &Path) -> Result<Identity> {
    let first = async {
        let mut client = SpiffeWorkloadApiClient::new(unix_channel(socket)?);
        let mut request = Request::new(X509svidRequest {});
        request.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("true"));
        let mut stream = client.fetch_x509svid(request).await?.into_inner();
        let response = stream.message().await?.context("the stream ended")?;
        response.svids.into_iter().next().context("no identity")
    };
    let svid = timeout(LIMIT, first).await.context("no answer").flatten();
    svid.and_then(take).with_context(|| format!("fetching an X.509-SVID from {}", socket.display()))
}

fn take(svid: X509svid) -> Result<Identity> {
    Ok(Identity {
        chain: certificates(&svid.x509_svid)?,
        key: PrivatePkcs8KeyDer::from(svid.x509_svid_key).into(),
        bundle: Bundle::parse(&svid.bundle)?,
    })
}

fn load(directory: &Path) -> Result<Identity> {
    let read = |name: &str| std::fs::read(directory.join(name)).with_context(|| format!("reading {name}"));
    let key = Key::from_pem(&read("key.pem")?, None)?;
    Ok(Identity {
        chain: certificates(&read("chain.pem")?)?,
        key: PrivatePkcs8KeyDer::from(key.to_pkcs8().to_vec()).into(),
        bundle: Bundle::parse(&read("bundle.pem")?)?,
    })
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn print(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}
