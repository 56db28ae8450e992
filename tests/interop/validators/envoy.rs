//! One Envoy that judges every case twice: as a server that is shown the chain by a client, and as a client that is shown it by a server.
//!
//! Listeners and clusters come from files that it watches, so that one with a certificate it can't load is refused alone.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use isthmus_lab::{corpus::Case, netns::Netns, peers::ENVOY, wait};
use isthmus_pki::{bundle::to_pem, x509};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection, SignatureScheme,
    Stream,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::aws_lc_rs,
    sign::{CertifiedKey, SingleCertAndKey},
    version::TLS13,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _};
use serde_json::{Value, json};

use crate::programs::Verdicts;

const LIMIT: Duration = Duration::from_secs(60);
const ADMIN: u16 = 9901;
/// First port of: listeners that are shown a client's chain, listeners before the clusters, servers that show a chain.
const PORTS: [u16; 3] = [20_000, 21_000, 22_000];

/// A running Envoy with a listener and a cluster for each case.
pub(crate) struct Envoy {
    child: Child,
    netns: Netns,
    log: PathBuf,
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The verdicts in the order of the cases. `sound` is a chain with key that the proxy itself shows.
pub(crate) fn judge(dir: &Path, cases: &[Case], sound: &Case) -> Vec<Verdicts> {
    let netns = Netns::create("judge").unwrap();
    for (index, case) in cases.iter().enumerate() {
        write(dir, index, case);
    }
    fs::write(dir.join("own.pem"), to_pem(&sound.chain)).unwrap();
    fs::write(dir.join("own.key"), &sound.key).unwrap();
    let envoy = Envoy::start(dir, cases.len(), &netns);
    envoy.wait_until_ready();
    netns.run(|| cases.iter().enumerate().map(|(index, case)| both(index, case)).collect()).unwrap()
}

/// As it is to be shown to us: as a server's chain, then as a client's.
fn both(index: usize, case: &Case) -> Verdicts {
    [complaint(as_server(index, case)), complaint(as_client(index, case))]
}

fn complaint(result: Result<()>) -> String {
    result.err().map(|error| format!("{error:#}")).unwrap_or_default()
}

fn port(kind: usize, index: usize) -> u16 {
    PORTS[kind] + u16::try_from(index).unwrap()
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// We are a client with this chain; the listener's validation context has the case's roots and lists.
fn as_client(index: usize, case: &Case) -> Result<()> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_client_cert_resolver(certified(case)?);
    let mut connection = ClientConnection::new(Arc::new(config), ServerName::try_from("judge")?)?;
    let mut socket = connect(port(0, index))?;
    let mut stream = Stream::new(&mut connection, &mut socket);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: judge\r\nConnection: close\r\n\r\n")?;
    served(&mut stream)
}

/// We are a server with this chain, and ask the proxy to fetch something from us.
fn as_server(index: usize, case: &Case) -> Result<()> {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(certified(case)?);
    let listener = TcpListener::bind(loopback(port(2, index)))?;
    let server = thread::spawn(move || answer(&listener, config));
    let asked = connect(port(1, index)).and_then(|mut socket| {
        socket.write_all(b"GET / HTTP/1.1\r\nHost: judge\r\nConnection: close\r\n\r\n")?;
        served(&mut socket)
    });
    // Whoever waits for a connection that never came is woken by one that says nothing.
    drop(TcpStream::connect(loopback(port(2, index))));
    let answered = server.join().unwrap();
    asked.with_context(|| format!("the server saw {answered:?}"))
}

fn answer(listener: &TcpListener, config: ServerConfig) -> Result<()> {
    let mut socket = patient(listener.accept()?.0)?;
    let mut connection = ServerConnection::new(Arc::new(config))?;
    let mut stream = Stream::new(&mut connection, &mut socket);
    let mut request = [0; 1024];
    ensure!(stream.read(&mut request)? > 0, "nothing was asked");
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nserved")?;
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(())
}

fn served(stream: &mut impl std::io::Read) -> Result<()> {
    let mut answer = Vec::new();
    // A connection that is cut behind its answer has answered.
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    if answer.starts_with("HTTP/1.1 200") && answer.ends_with("served") {
        return Ok(());
    }
    read?;
    anyhow::bail!("{answer}")
}

fn connect(port: u16) -> Result<TcpStream> {
    patient(TcpStream::connect(loopback(port)).context("this listener was refused")?)
}

fn patient(socket: TcpStream) -> Result<TcpStream> {
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(socket)
}

/// Whatever the chain is worth: it is not looked at here.
fn certified(case: &Case) -> Result<Arc<SingleCertAndKey>> {
    let key = PrivateKeyDer::from_pem_slice(case.key.as_bytes())?;
    let key = aws_lc_rs::sign::any_supported_type(&key)?;
    Ok(Arc::new(SingleCertAndKey::from(CertifiedKey::new(case.chain.clone(), key))))
}

/// Takes every server: it is not the one that is judged.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn write(dir: &Path, index: usize, case: &Case) {
    fs::write(dir.join(format!("{index}.roots.pem")), to_pem(&case.roots)).unwrap();
    if !case.crls.is_empty() {
        let lists: String = case.crls.iter().map(|der| x509::to_pem("X509 CRL", der)).collect();
        fs::write(dir.join(format!("{index}.crl.pem")), lists).unwrap();
    }
}

impl Envoy {
    fn start(dir: &Path, cases: usize, netns: &Netns) -> Self {
        let all = |make: &dyn Fn(usize) -> Value| -> Vec<Value> { (0..cases).map(make).collect() };
        let judging = all(&|index| judging_listener(dir, index));
        let passing = all(&passing_listener);
        let clusters = all(&|index| cluster(dir, index));
        let file = |name: &str, resources: Vec<Value>| {
            let path = dir.join(name);
            fs::write(&path, json!({ "version_info": "1", "resources": resources }).to_string()).unwrap();
            json!({ "resource_api_version": "V3", "path_config_source": { "path": path } })
        };
        let config = json!({
            "node": { "id": "judge", "cluster": "lab" },
            "admin": { "address": address(ADMIN) },
            "dynamic_resources": {
                "lds_config": file("listeners.json", [judging, passing].concat()),
                "cds_config": file("clusters.json", clusters),
            },
        });
        fs::write(dir.join("envoy.json"), config.to_string()).unwrap();
        let log = dir.join("envoy.log");
        let output = File::create(&log).unwrap();
        let mut command = netns.command(ENVOY).unwrap();
        command.arg("-c").arg(dir.join("envoy.json"));
        command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "warning"]);
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        Self { child: command.spawn().unwrap(), netns: netns.clone(), log }
    }

    /// The first case is a sound one: its listener is there once the file was read.
    fn wait_until_ready(&self) {
        let there = wait::until("Envoy's listeners", LIMIT, || {
            self.netns.run(|| connect(port(1, 0)).and_then(|_| connect(port(0, 0)))).flatten()
        });
        there.with_context(|| fs::read_to_string(&self.log).unwrap_or_default()).unwrap();
    }
}

fn address(port: u16) -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
}

fn context(dir: &Path, index: usize, own: bool) -> Value {
    let file = |name: String| json!({ "filename": dir.join(name) });
    let mut validation = json!({ "trusted_ca": file(format!("{index}.roots.pem")) });
    if dir.join(format!("{index}.crl.pem")).exists() {
        validation["crl"] = file(format!("{index}.crl.pem"));
    }
    let mut context = json!({
        "tls_params": { "tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3" },
        "validation_context": validation,
    });
    if own {
        let chain =
            json!({ "certificate_chain": file("own.pem".into()), "private_key": file("own.key".into()) });
        context["tls_certificates"] = json!([chain]);
    }
    context
}

fn listener(name: String, port: u16, route: &Value, transport: Option<Value>) -> Value {
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }] },
        "http_filters": [{
            "name": "router",
            "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
        }],
    });
    let mut chain = json!({ "filters": [{ "name": "http", "typed_config": manager }] });
    if let Some(transport) = transport {
        chain["transport_socket"] = json!({ "name": "tls", "typed_config": transport });
    }
    json!({
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": name,
        "address": address(port),
        "filter_chains": [chain],
    })
}

fn judging_listener(dir: &Path, index: usize) -> Value {
    let transport = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": context(dir, index, true),
        "require_client_certificate": true,
    });
    let served = json!({ "status": 200, "body": { "inline_string": "served" } });
    let route = json!({ "match": { "prefix": "/" }, "direct_response": served });
    listener(format!("client {index}"), port(0, index), &route, Some(transport))
}

fn passing_listener(index: usize) -> Value {
    let route = json!({ "match": { "prefix": "/" }, "route": { "cluster": format!("server {index}") } });
    listener(format!("server {index}"), port(1, index), &route, None)
}

fn cluster(dir: &Path, index: usize) -> Value {
    let name = format!("server {index}");
    let transport = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": context(dir, index, false),
    });
    let endpoint = json!({ "endpoint": { "address": address(port(2, index)) } });
    json!({
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": [endpoint] }] },
        "transport_socket": { "name": "tls", "typed_config": transport },
    })
}
