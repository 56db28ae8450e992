//! Real TLS over loopback: our endpoint and our client against each other, and the client against servers that misbehave.

mod endpoint;
mod fetching;
mod keeping;

use std::{
    convert::Infallible,
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http_body_util::{BodyExt as _, Empty, Full};
use hyper::{Method, Request, Response, StatusCode, Uri, body::Bytes, service::service_fn};
use hyper_util::rt::TokioIo;
use isthmus_pki::{Authority, Curve, Profile as CertificateProfile, Serial, SpiffeId, bundle};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{
    client::{Client, Outcome},
    config::Profile,
    *,
};

type Svid = (Vec<CertificateDer<'static>>, Key);

/// Another trust domain: its root, and an SVID for its endpoint.
struct Partner {
    root: Authority,
    site: Authority,
}

fn serial() -> Serial {
    Serial::from_random(rand::random())
}

fn partner(domain: &str) -> Partner {
    aged(domain, time::Duration::ZERO)
}

/// As old as that, with a root that lives for a day.
fn aged(domain: &str, age: time::Duration) -> Partner {
    let domain = TrustDomain::parse(domain).unwrap();
    let now = OffsetDateTime::now_utc() - age;
    let key = Key::generate(Curve::P384).unwrap();
    let root = Authority::root(&domain, key, time::Duration::days(1), serial(), now).unwrap();
    let key = Key::generate(Curve::P256).unwrap();
    let profile = CertificateProfile::SiteCa { site: "s".into(), lifetime: time::Duration::days(1) };
    let site = root.issue(&profile, &key.public(), serial(), now).unwrap().certificate;
    Partner { root, site: Authority::load(site, key).unwrap() }
}

impl Partner {
    fn domain(&self) -> TrustDomain {
        self.root.trust_domain().clone()
    }

    fn id(&self, path: &str) -> SpiffeId {
        self.domain().member(path).unwrap()
    }

    fn svid(&self, path: &str) -> Svid {
        let key = Key::generate(Curve::P256).unwrap();
        let profile = CertificateProfile::Svid {
            id: self.id(path),
            dns_names: vec![],
            lifetime: time::Duration::hours(1),
        };
        let leaf = self.site.issue(&profile, &key.public(), serial(), OffsetDateTime::now_utc()).unwrap();
        (vec![leaf.certificate, self.site.certificate().clone()], key)
    }

    fn tls(&self, path: &str) -> ServerConfig {
        let (chain, key) = self.svid(path);
        web::server_with(chain, PrivateKeyDer::Pkcs8(key.to_pkcs8().to_vec().into())).unwrap()
    }

    fn bundle(&self) -> Bundle {
        Bundle::parse(self.root.certificate()).unwrap()
    }

    fn document(&self, sequence: u64) -> String {
        self.bundle().with_sequence(sequence).to_jwks()
    }
}

/// A CA of the web and a server certificate for the loopback address, in files.
struct WebPki {
    dir: TempDir,
}

impl WebPki {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let mut ca = rcgen::CertificateParams::default();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let key = rcgen::KeyPair::generate().unwrap();
        let leaf = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &rcgen::Issuer::from_params(&ca, &ca_key)).unwrap();
        fs::write(dir.path().join("ca.pem"), ca_pem).unwrap();
        fs::write(dir.path().join("web.pem"), leaf.pem()).unwrap();
        fs::write(dir.path().join("web.key"), key.serialize_pem()).unwrap();
        fs::set_permissions(dir.path().join("web.key"), fs::Permissions::from_mode(0o600)).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn tls(&self) -> ServerConfig {
        web::server(&self.path("web.pem"), &self.path("web.key")).unwrap()
    }

    fn profile(&self) -> Profile {
        Profile::Web { ca_file: Some(self.path("ca.pem")) }
    }
}

/// What a stub answers: status, headers, body.
type Reply = (u16, Vec<(&'static str, String)>, String);

fn ok(body: impl Into<String>) -> Reply {
    (200, vec![], body.into())
}

/// A real TLS server that answers as it is told, and counts.
struct Stub {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stub {
    async fn new(tls: ServerConfig, reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::slow(tls, Duration::ZERO, reply).await
    }

    async fn slow(
        tls: ServerConfig,
        wait: Duration,
        reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let (counter, reply, tls) = (asked.clone(), Arc::new(reply), TlsAcceptor::from(Arc::new(tls)));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = tls.accept(stream).await else { continue };
                assert!(stream.get_ref().1.peer_certificates().is_none());
                let (counter, reply) = (counter.clone(), reply.clone());
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    counter.fetch_add(1, Ordering::SeqCst);
                    let (status, headers, body) = reply(request.uri().path());
                    let mut response = Response::builder().status(status);
                    for (name, value) in headers {
                        response = response.header(name, value);
                    }
                    async move {
                        tokio::time::sleep(wait).await;
                        Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap())
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { address, asked, task }
    }

    fn url(&self, path: &str) -> Uri {
        format!("https://{}{path}", self.address).parse().unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// A client of a partner's bundle, and where its bundles go.
struct Reader {
    client: Client,
    bundles: Bundles,
    dir: TempDir,
}

fn open(dir: &Path, bundles: &Bundles, domain: &TrustDomain, url: Uri, profile: Profile) -> Client {
    let config = DomainConfig { trust_domain: domain.clone(), url, profile };
    let client = Client::open(config, dir, bundles.clone()).unwrap();
    client.hurried(Duration::from_millis(20), Duration::from_secs(5))
}

impl Reader {
    fn new(domain: &TrustDomain, url: Uri, profile: Profile) -> Self {
        let (dir, bundles) = (tempfile::tempdir().unwrap(), Bundles::default());
        Self { client: open(dir.path(), &bundles, domain, url, profile), bundles, dir }
    }

    async fn refused(&mut self) -> String {
        self.client.poll().await.unwrap_err().to_string()
    }

    fn sequence(&self) -> Option<u64> {
        self.bundles.get(&self.client.config().trust_domain).and_then(|bundle| bundle.sequence())
    }
}

fn spiffe(id: SpiffeId, dir: &Path, bootstrap: &Bundle) -> Profile {
    let path = dir.join("bootstrap.pem");
    fs::write(&path, bundle::to_pem(bootstrap.anchors())).unwrap();
    Profile::Spiffe { endpoint_id: id, bootstrap_bundle: path }
}

fn federation() -> (Federation, CancellationToken, TaskTracker) {
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    (Federation::new(&stop, &tasks), stop, tasks)
}

/// Starts our endpoint with what a partner's node would show.
async fn serve(federation: &Federation, of: &Partner, proof: EndpointProof) -> SocketAddr {
    let (chain, key) = of.svid("/site/s/node/gw1");
    let shown = Shown { bundle: of.bundle().with_sequence(7), chain, key: Arc::new(key) };
    federation.0.shown.send_replace(Some(Arc::new(shown)));
    let endpoint = EndpointConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        proof,
        path: "/bundle".into(),
        refresh_hint: Duration::from_secs(60),
    };
    let config =
        FederationConfig { state_dir: "/nonexistent".into(), endpoint: Some(endpoint), domains: vec![] };
    let prepared = federation.prepare(Some(&config)).await.unwrap();
    assert_eq!(federation.install(prepared).len(), 1);
    federation.listens().unwrap()
}

fn at(address: SocketAddr) -> Uri {
    format!("https://{address}/bundle").parse().unwrap()
}

impl WebPki {
    /// The profile of a CA whose files outlive this value.
    fn profile_kept(self) -> Profile {
        let profile = self.profile();
        let _ = self.dir.keep();
        profile
    }
}
