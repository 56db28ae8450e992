//! Real TLS over loopback: our endpoint and our client against each other, and the client against servers that misbehave.

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

#[tokio::test]
async fn https_web_end_to_end() {
    let (web, other) = (WebPki::new(), partner("other"));
    let (federation, stop, tasks) = federation();
    let proof = EndpointProof::Web { certificate: web.path("web.pem"), key: web.path("web.key") };
    let address = serve(&federation, &other, proof).await;
    let mut reader = Reader::new(&other.domain(), at(address), web.profile());
    assert_eq!(reader.client.poll().await.unwrap(), Outcome::Updated);
    let bundle = reader.bundles.get(&other.domain()).unwrap();
    assert_eq!((bundle.anchors(), bundle.sequence()), (other.bundle().anchors(), Some(7)));
    assert_eq!(bundle.refresh_hint(), Some(Duration::from_secs(60)));
    assert_eq!(reader.client.poll().await.unwrap(), Outcome::Unchanged);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(reader.client.file()), 0o600);
    // Not a CA that this reader believes.
    let mut stranger = Reader::new(&other.domain(), at(address), WebPki::new().profile_kept());
    assert!(stranger.refused().await.contains("TLS"));
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

impl WebPki {
    /// The profile of a CA whose files outlive this value.
    fn profile_kept(self) -> Profile {
        let profile = self.profile();
        let _ = self.dir.keep();
        profile
    }
}

#[tokio::test]
async fn https_spiffe_end_to_end() {
    let (other, files) = (partner("other"), tempfile::tempdir().unwrap());
    let (federation, _stop, _tasks) = federation();
    let address = serve(&federation, &other, EndpointProof::Spiffe).await;
    let profile = spiffe(other.id("/site/s/node/gw1"), files.path(), &other.bundle());
    let mut reader = Reader::new(&other.domain(), at(address), profile);
    assert_eq!(reader.client.poll().await.unwrap(), Outcome::Updated);
    assert_eq!(reader.sequence(), Some(7));
    // Somebody else of the same domain, and somebody of that name under another root.
    let wrong = spiffe(other.id("/site/s/node/gw2"), files.path(), &other.bundle());
    let mut wrong = Reader::new(&other.domain(), at(address), wrong);
    assert!(wrong.refused().await.contains("not allowed"));
    let impostor = spiffe(other.id("/site/s/node/gw1"), files.path(), &partner("other").bundle());
    let mut impostor = Reader::new(&other.domain(), at(address), impostor);
    assert!(impostor.refused().await.contains("no valid path"));
    assert!(impostor.bundles.get(&other.domain()).is_none());
}

#[tokio::test]
async fn the_endpoint_answers_get_and_nothing_else() {
    let (web, other) = (WebPki::new(), partner("other"));
    let (federation, _stop, _tasks) = federation();
    let proof = EndpointProof::Web { certificate: web.path("web.pem"), key: web.path("web.key") };
    let address = serve(&federation, &other, proof).await;
    for (method, path, status) in [
        (Method::GET, "/bundle", StatusCode::OK),
        (Method::GET, "/bundle?x=1", StatusCode::OK),
        (Method::GET, "/", StatusCode::NOT_FOUND),
        (Method::POST, "/bundle", StatusCode::METHOD_NOT_ALLOWED),
        (Method::DELETE, "/bundle", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let tls = TlsConnector::from(Arc::new(web::client(Some(&web.path("ca.pem"))).unwrap()));
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = tls.connect(ServerName::from(address.ip()), stream).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let request =
            Request::builder().method(&method).uri(path).header("host", "x").body(Empty::<Bytes>::new());
        let response = sender.send_request(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
        assert_eq!(response.headers()["cache-control"], "no-store");
        if status == StatusCode::OK {
            assert_eq!(response.headers()["content-type"], "application/json");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let document = Bundle::from_jwks(&other.domain(), &body).unwrap();
            assert_eq!(document.bundle.sequence(), Some(7));
        } else if status == StatusCode::METHOD_NOT_ALLOWED {
            assert_eq!(response.headers()["allow"], "GET");
        }
        connection.abort();
    }
}

#[tokio::test]
async fn a_bundle_of_another_domain_is_refused() {
    let (web, other, third) = (WebPki::new(), partner("other"), partner("third"));
    let document = third.document(1);
    let stub = Stub::new(web.tls(), move |_| ok(document.clone())).await;
    let mut reader = Reader::new(&other.domain(), stub.url("/"), web.profile());
    assert!(reader.refused().await.contains("made for"));
    assert!(reader.bundles.0.borrow().is_empty() && fs::read_dir(reader.dir.path()).unwrap().count() == 0);
}

#[tokio::test]
async fn redirects_are_followed_and_not_remembered() {
    let (web, other) = (WebPki::new(), partner("other"));
    let document = other.document(1);
    let target = Stub::new(web.tls(), move |_| ok(document.clone())).await;
    let to = target.url("/there").to_string();
    let first = Stub::new(web.tls(), move |path| match path {
        "/" => (302, vec![("location", "/next".into())], String::new()),
        "/next" => (307, vec![("location", to.clone())], String::new()),
        "/loop" => (302, vec![("location", "/loop".into())], String::new()),
        "/plain" => (302, vec![("location", "http://127.0.0.1:1/".into())], String::new()),
        "/user" => (302, vec![("location", "https://u:p@127.0.0.1:1/".into())], String::new()),
        "/nowhere" => (302, vec![], String::new()),
        _ => (404, vec![], String::new()),
    })
    .await;
    let mut reader = Reader::new(&other.domain(), first.url("/"), web.profile());
    for round in 1..=2 {
        reader.client.poll().await.unwrap();
        assert_eq!((first.asked(), target.asked()), (2 * round, round));
    }
    for (path, why) in [
        ("/loop", "redirects"),
        ("/plain", "https"),
        ("/user", "user information"),
        ("/nowhere", "can't be read"),
        ("/gone", "404"),
    ] {
        let mut reader = Reader::new(&other.domain(), first.url(path), web.profile());
        let refused = reader.refused().await;
        assert!(refused.contains(why), "{path}: {refused}");
    }
}

#[tokio::test]
async fn a_redirect_must_lead_to_the_same_spiffe_id() {
    let (other, files) = (partner("other"), tempfile::tempdir().unwrap());
    let document = other.document(1);
    let (same, also) = (document.clone(), document);
    let right = Stub::new(other.tls("/bundles"), move |_| ok(same.clone())).await;
    let wrong = Stub::new(other.tls("/someone"), move |_| ok(also.clone())).await;
    let (to_right, to_wrong) = (right.url("/").to_string(), wrong.url("/").to_string());
    let first = Stub::new(other.tls("/bundles"), move |path| {
        let to = if path == "/right" { &to_right } else { &to_wrong };
        (301, vec![("location", to.clone())], String::new())
    })
    .await;
    let profile = spiffe(other.id("/bundles"), files.path(), &other.bundle());
    let mut reader = Reader::new(&other.domain(), first.url("/right"), profile.clone());
    assert_eq!(reader.client.poll().await.unwrap(), Outcome::Updated);
    let mut reader = Reader::new(&other.domain(), first.url("/wrong"), profile);
    assert!(reader.refused().await.contains("not allowed"));
}

#[tokio::test]
async fn slow_huge_and_broken_answers_are_refused_and_the_last_good_one_stays() {
    let (web, other) = (WebPki::new(), partner("other"));
    let answers = Arc::new(Mutex::new(ok(other.document(5))));
    let shared = answers.clone();
    let stub = Stub::new(web.tls(), move |_| shared.lock().unwrap().clone()).await;
    let mut reader = Reader::new(&other.domain(), stub.url("/"), web.profile());
    reader.client.poll().await.unwrap();
    let huge = " ".repeat(bundle::MAX_DOCUMENT_LEN) + &other.document(6);
    for (reply, why) in [
        (ok(huge), "more than"),
        (ok("{"), "can't be read"),
        (ok(""), "can't be read"),
        (ok(r#"{"keys":[],"keys":[]}"#), "twice"),
        ((500, vec![], String::new()), "500"),
        ((204, vec![], String::new()), "204"),
        (ok(other.document(4)), "went back from 5 to 4"),
    ] {
        *answers.lock().unwrap() = reply;
        let refused = reader.refused().await;
        assert!(refused.contains(why), "{why}: {refused}");
        assert_eq!(reader.sequence(), Some(5));
    }
    let slow = Stub::slow(web.tls(), Duration::from_secs(60), |_| ok("")).await;
    let (dir, bundles) = (tempfile::tempdir().unwrap(), Bundles::default());
    let client = open(dir.path(), &bundles, &other.domain(), slow.url("/"), web.profile());
    let mut client = client.hurried(Duration::ZERO, Duration::from_millis(300));
    assert!(client.poll().await.unwrap_err().to_string().contains("no complete answer"));
}

#[tokio::test]
async fn an_empty_set_makes_the_domain_untrusted() {
    // spiffe/go-spiffe#288: it must get through like any other.
    let (web, other) = (WebPki::new(), partner("other"));
    let answers = Arc::new(Mutex::new(ok(other.document(1))));
    let shared = answers.clone();
    let stub = Stub::new(web.tls(), move |_| shared.lock().unwrap().clone()).await;
    let mut reader = Reader::new(&other.domain(), stub.url("/"), web.profile());
    reader.client.poll().await.unwrap();
    *answers.lock().unwrap() = ok(r#"{"keys":[],"spiffe_sequence":2}"#);
    assert_eq!(reader.client.poll().await.unwrap(), Outcome::Updated);
    assert!(reader.bundles.get(&other.domain()).unwrap().is_empty());
}

#[tokio::test]
async fn the_last_good_bundle_outlives_a_restart_and_other_settings_begin_anew() {
    let (web, other) = (WebPki::new(), partner("other"));
    let document = other.document(3);
    let stub = Stub::new(web.tls(), move |_| ok(document.clone())).await;
    let mut reader = Reader::new(&other.domain(), stub.url("/"), web.profile());
    reader.client.poll().await.unwrap();
    let url = stub.url("/");
    drop(stub);
    let again = |url: Uri| {
        let bundles = Bundles::default();
        (open(reader.dir.path(), &bundles, &other.domain(), url, web.profile()), bundles)
    };
    let (mut client, bundles) = again(url);
    assert!(client.poll().await.unwrap_err().to_string().contains("cannot connect"));
    assert_eq!(bundles.get(&other.domain()).unwrap().sequence(), Some(3));
    let (mut client, bundles) = again("https://127.0.0.1:1/".parse().unwrap());
    assert!(client.poll().await.is_err() && bundles.get(&other.domain()).is_none());
    // What no configured domain stands for goes.
    store::prune(reader.dir.path(), &[]);
    assert_eq!(fs::read_dir(reader.dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_bundle_of_expired_roots_is_not_trusted_and_the_operators_file_leads_back() {
    // spiffe/spire#1305, #5585: an agent that was away for long trusted its old bundle for ever.
    let (dead, fresh) = (aged("other", time::Duration::days(3)), partner("other"));
    let files = tempfile::tempdir().unwrap();
    let document = fresh.document(9);
    let stub = Stub::new(fresh.tls("/bundles"), move |_| ok(document.clone())).await;
    for (bootstrap, comes_back) in [(&dead, false), (&fresh, true)] {
        let profile = spiffe(fresh.id("/bundles"), files.path(), &bootstrap.bundle());
        let mut reader = Reader::new(&fresh.domain(), stub.url("/"), profile.clone());
        store::save(reader.client.file(), dead.document(1).as_bytes()).unwrap();
        reader.client = open(reader.dir.path(), &reader.bundles, &fresh.domain(), stub.url("/"), profile);
        assert_eq!(reader.client.poll().await.is_ok(), comes_back);
        assert_eq!(reader.sequence(), comes_back.then_some(9));
    }
}

#[tokio::test]
async fn a_running_client_follows_the_hint_and_stops_when_it_is_let_go() {
    let (web, other) = (WebPki::new(), partner("other"));
    let hint = other.bundle().with_sequence(1).with_refresh_hint(Duration::ZERO).to_jwks();
    let stub = Stub::new(web.tls(), move |_| ok(hint.clone())).await;
    let (dir, bundles, stop) = (tempfile::tempdir().unwrap(), Bundles::default(), CancellationToken::new());
    let client =
        open(dir.path(), &bundles, &other.domain(), stub.url("/"), web.profile()).until(stop.clone());
    let task = tokio::spawn(client.run());
    while stub.asked() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(bundles.get(&other.domain()).is_some());
    stop.cancel();
    task.await.unwrap();
    bundles.set(&other.domain(), None, &stop);
    assert!(bundles.get(&other.domain()).is_some(), "a stopped client changes nothing");
}

#[tokio::test]
async fn what_can_not_be_is_refused_before_anything_changes() {
    let (web, other, files) = (WebPki::new(), partner("other"), tempfile::tempdir().unwrap());
    let (federation, _stop, _tasks) = federation();
    serve(&federation, &other, EndpointProof::Spiffe).await;
    let url: Uri = "https://127.0.0.1:1/".parse().unwrap();
    let prepare = |trust_domain: TrustDomain, profile: Profile| {
        let domains = vec![DomainConfig { trust_domain, url: url.clone(), profile }];
        let config = FederationConfig { state_dir: files.path().into(), endpoint: None, domains };
        let federation = federation.clone();
        async move { federation.prepare(Some(&config)).await.err().map(|error| error.to_string()) }
    };
    let third = TrustDomain::parse("third").unwrap();
    assert!(prepare(other.domain(), web.profile()).await.unwrap().contains("own trust domain"));
    assert_eq!(prepare(third.clone(), web.profile()).await, None);
    let no_ca = Profile::Web { ca_file: Some(web.path("web.key")) };
    assert!(prepare(third.clone(), no_ca).await.unwrap().contains("no CA certificate"));
    // A bootstrap bundle of another domain than the endpoint's.
    let foreign = spiffe(third.member("/e").unwrap(), files.path(), &other.bundle());
    assert!(prepare(third, foreign).await.unwrap().contains("made for"));
    assert!(federation.listens().is_some());
    // A new configuration without an endpoint ends it.
    let prepared = federation.prepare(None).await.unwrap();
    assert_eq!(federation.install(prepared), ["federation: our bundle is no longer served"]);
    assert_eq!(federation.listens(), None);
}
