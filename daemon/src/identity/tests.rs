//! The subsystem as a workload sees it: a real socket, a real gRPC client, certificates made by the PKI library.

mod sds;
mod swapped;
mod workload;

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use isthmus_pki::{
    Authority, Bundle, Curve, Key, Profile, Serial, TrustDomain, TrustStore, bundle, id,
    verify::{self, Purpose},
};
use isthmus_proto::workload::{
    JwtBundlesRequest, JwtsvidRequest, ValidateJwtsvidRequest, X509BundlesRequest, X509svidRequest,
    X509svidResponse, spiffe_workload_api_client::SpiffeWorkloadApiClient,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Streaming,
    transport::{Channel, Endpoint},
};

use super::*;

pub(super) const NODE: (&str, &str) = ("aws-use1", "gw1");

/// A node's files in a directory of their own, as the ceremony leaves them.
pub(super) struct Files {
    pub(super) dir: TempDir,
    pub(super) root: Authority,
}

fn serial() -> Serial {
    Serial::from_random(rand::random())
}

pub(super) fn domain() -> TrustDomain {
    TrustDomain::parse("fabric.example").unwrap()
}

impl Files {
    pub(super) fn new() -> Self {
        let key = Key::generate(Curve::P384).unwrap();
        let now = SystemTime::now().into();
        let root = Authority::root(&domain(), key, time::Duration::days(3650), serial(), now).unwrap();
        let this = Self { dir: tempfile::tempdir().unwrap(), root };
        this.write("root.pem", &bundle::to_pem([this.root.certificate()]), 0o644);
        this.new_site(NODE.0);
        this.new_node(NODE.0, NODE.1);
        this
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str, mode: u32) {
        fs::remove_file(self.path(name)).ok();
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(super) fn new_site(&self, site: &str) {
        let key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: site.into(), lifetime: time::Duration::days(90) };
        let issued = self.root.issue(&profile, &key.public(), serial(), SystemTime::now().into()).unwrap();
        self.write("site-ca.pem", &bundle::to_pem([&issued.certificate]), 0o644);
        self.write("site-ca.key", &key.to_pem(), 0o600);
    }

    pub(super) fn site(&self) -> Authority {
        let key = Key::from_pem(&fs::read(self.path("site-ca.key")).unwrap(), None).unwrap();
        let certificate =
            bundle::certificates(&fs::read(self.path("site-ca.pem")).unwrap()).unwrap().remove(0);
        Authority::load(certificate, key).unwrap()
    }

    pub(super) fn svid(&self, path: &str) -> (Vec<CertificateDer<'static>>, Key) {
        let (site, key) = (self.site(), Key::generate(Curve::P256).unwrap());
        let id = domain().member(path).unwrap();
        let profile = Profile::Svid { id, dns_names: vec![], lifetime: time::Duration::days(1) };
        let issued = site.issue(&profile, &key.public(), serial(), SystemTime::now().into()).unwrap();
        (vec![issued.certificate, site.certificate().clone()], key)
    }

    pub(super) fn new_node(&self, site: &str, name: &str) {
        let (chain, key) = self.svid(id::node_id(&domain(), site, name).unwrap().path());
        self.write("node.pem", &bundle::to_pem(&chain), 0o644);
        self.write("node.key", &key.to_pem(), 0o600);
    }

    pub(super) fn config(&self) -> Config {
        Config {
            trust_bundle: self.path("root.pem"),
            files: Some(SvidFiles { svid: self.path("node.pem"), key: self.path("node.key") }),
            join_token_file: None,
            issuers: Vec::new(),
            state_dir: self.path("state"),
            rotation: rotation::Config {
                charter: None,
                longest_leaf: Duration::from_secs(86_400),
                dir: self.path("state/identity/rotation"),
            },
        }
    }

    pub(super) fn issuer(&self) -> IssuerConfig {
        IssuerConfig::new(self.path("site-ca.pem"), self.path("site-ca.key"), self.dir.path())
    }

    pub(super) fn workload_api(&self, entries: Vec<Entry>) -> WorkloadApiConfig {
        let settings = Settings::default();
        WorkloadApiConfig { socket: self.path("workload.sock"), kubernetes: None, entries, settings }
    }

    pub(super) fn bundle(&self) -> Bundle {
        Bundle::parse(self.root.certificate()).unwrap()
    }

    pub(super) fn load(&self) -> Result<Material, MaterialError> {
        Material::load(&self.config(), Some(NODE), SystemTime::now())
    }
}

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn entry(path: &str, uid: u32, ttl: Duration) -> Entry {
    Entry {
        path: path.into(),
        selectors: vec![Selector::Uid(uid)],
        ttl,
        jwt_ttl: Duration::from_secs(300),
        dns_names: vec!["api.example".into()],
        hint: String::new(),
        federates_with: Vec::new(),
    }
}

fn hour(path: &str) -> Entry {
    entry(path, own_uid(), Duration::from_secs(3600))
}

/// A daemon's identity subsystem with its files.
struct Node {
    files: Files,
    handle: Handle,
    shutdown: CancellationToken,
}

impl Drop for Node {
    fn drop(&mut self) {
        log_watch::check();
    }
}

impl Node {
    async fn new(entries: Vec<Entry>) -> Self {
        log_watch::begin();
        let (files, shutdown) = (Files::new(), CancellationToken::new());
        let node = Some((NODE.0.to_string(), NODE.1.to_string()));
        let api = Some(files.workload_api(entries));
        let handle =
            start(Some(files.config()), Some(files.issuer()), api, node, shutdown.clone()).await.unwrap();
        Self { files, handle, shutdown }
    }

    async fn client(&self) -> SpiffeWorkloadApiClient<Channel> {
        let address = format!("unix:{}", self.files.path("workload.sock").display());
        SpiffeWorkloadApiClient::new(Endpoint::try_from(address).unwrap().connect().await.unwrap())
    }

    async fn fetch(&self) -> Result<Streaming<X509svidResponse>, tonic::Status> {
        Ok(self.client().await.fetch_x509svid(with_header(X509svidRequest {})).await?.into_inner())
    }

    async fn apply(&self, entries: Vec<Entry>) -> Vec<String> {
        let files = &self.files;
        let api = Some(files.workload_api(entries));
        self.handle.apply(Some(files.config()), Some(files.issuer()), api).await.unwrap()
    }
}

fn with_header<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("workload.spiffe.io", "true".parse().unwrap());
    request
}

/// Splits concatenated DER and verifies it against the fabric's root; gives the ID and the serial number.
fn check(files: &Files, response: &X509svidResponse) -> Vec<(String, String)> {
    let one = |svid: &isthmus_proto::workload::X509svid| {
        let chain = bundle::certificates(&svid.x509_svid).unwrap();
        let store = TrustStore::from(Bundle::parse(&svid.bundle).unwrap());
        assert_eq!(Bundle::parse(&svid.bundle).unwrap(), files.bundle());
        let verified = verify::verify(&chain, &store, Purpose::Client, SystemTime::now().into()).unwrap();
        let key = Key::from_pkcs8(&svid.x509_svid_key).unwrap();
        isthmus_pki::authority::check_key(&verified.leaf, &key).unwrap();
        assert_eq!(verified.id.to_string(), svid.spiffe_id);
        (svid.spiffe_id.clone(), verified.leaf.serial)
    };
    response.svids.iter().map(one).collect()
}

#[tokio::test]
async fn a_workload_gets_its_identities_at_once() {
    let node =
        Node::new(vec![hour("/a"), entry("/b", own_uid() + 1, Duration::from_secs(60)), hour("/c")]).await;
    let first = node.fetch().await.unwrap().message().await.unwrap().unwrap();
    let ids: Vec<String> = check(&node.files, &first).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["spiffe://fabric.example/a", "spiffe://fabric.example/c"]);
}

#[tokio::test]
async fn bundles_come_alone_too() {
    let node = Node::new(vec![hour("/a")]).await;
    let request = with_header(X509BundlesRequest {});
    let mut stream = node.client().await.fetch_x509_bundles(request).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!(first.bundles["spiffe://fabric.example"], node.files.bundle().to_der());
}

#[tokio::test]
async fn the_header_is_demanded_of_every_call() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut client = node.client().await;
    let code = |status: tonic::Status| status.code();
    assert_eq!(
        client.fetch_x509svid(X509svidRequest {}).await.map_err(code).unwrap_err(),
        Code::InvalidArgument
    );
    let mut twice = with_header(X509svidRequest {});
    twice.metadata_mut().append("workload.spiffe.io", "true".parse().unwrap());
    assert_eq!(client.fetch_x509svid(twice).await.map_err(code).unwrap_err(), Code::InvalidArgument);
    let bundles = client.fetch_x509_bundles(X509BundlesRequest {}).await.map_err(code);
    assert_eq!(bundles.unwrap_err(), Code::InvalidArgument);
    let jwt = client.fetch_jwtsvid(JwtsvidRequest::default()).await.map_err(code);
    assert_eq!(jwt.unwrap_err(), Code::InvalidArgument);
    let jwt = client.fetch_jwt_bundles(JwtBundlesRequest {}).await.map_err(code);
    assert_eq!(jwt.unwrap_err(), Code::InvalidArgument);
    let jwt = client.validate_jwtsvid(ValidateJwtsvidRequest::default()).await.map_err(code);
    assert_eq!(jwt.unwrap_err(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_stranger_gets_the_text_that_clients_know() {
    let node = Node::new(vec![entry("/a", own_uid() + 1, Duration::from_secs(60))]).await;
    let status = node.fetch().await.unwrap().message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "no identity issued"));
    let request = with_header(X509BundlesRequest {});
    let mut stream = node.client().await.fetch_x509_bundles(request).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn renewal_is_pushed_with_a_new_key() {
    let node = Node::new(vec![entry("/a", own_uid(), Duration::from_secs(2))]).await;
    let mut stream = node.fetch().await.unwrap();
    let first = stream.message().await.unwrap().unwrap();
    let second = stream.message().await.unwrap().unwrap();
    assert_ne!(check(&node.files, &first), check(&node.files, &second));
    assert_ne!(first.svids[0].x509_svid_key, second.svids[0].x509_svid_key);
}

#[tokio::test]
async fn changes_are_pushed_and_nothing_else() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    let first = stream.message().await.unwrap().unwrap();
    assert!(node.apply(vec![hour("/a")]).await.is_empty());
    // An entry of another user changes nothing for this one.
    let stranger = entry("/z", own_uid() + 1, Duration::from_secs(60));
    assert_eq!(node.apply(vec![hour("/a"), stranger]).await, ["workload_api: 2 entries"]);
    node.apply(vec![hour("/a"), hour("/b")]).await;
    // The next message is that of the last change: none was sent for the two before.
    let second = stream.message().await.unwrap().unwrap();
    assert_eq!((first.svids.len(), second.svids.len()), (1, 2));
    // A new site CA: reissued under it.
    node.files.new_site(NODE.0);
    node.files.new_node(NODE.0, NODE.1);
    let changes = node.apply(vec![hour("/a"), hour("/b")]).await;
    assert!(changes.iter().any(|change| change.contains("site-ca")), "{changes:?}");
    let third = stream.message().await.unwrap().unwrap();
    assert_eq!(check(&node.files, &third).len(), 2);
}

#[tokio::test]
async fn a_stream_ends_when_the_right_is_gone() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    assert_eq!(node.handle.certificates().iter().filter(|c| c.kind == Kind::WorkloadSvid).count(), 1);
    node.apply(vec![]).await;
    let status = stream.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "no identity issued"));
    while node.handle.certificates().iter().any(|c| c.kind == Kind::WorkloadSvid) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn shows_what_it_holds() {
    let node = Node::new(vec![hour("/a")]).await;
    let kinds: Vec<Kind> = node.handle.certificates().iter().map(|c| c.kind).collect();
    assert_eq!(kinds, [Kind::Root, Kind::NodeSvid, Kind::SiteCa]);
    assert_eq!(node.handle.spiffe_id().unwrap(), "spiffe://fabric.example/site/aws-use1/node/gw1");
    let (fine, summary) = node.handle.summary();
    assert!(fine == Condition::Well && summary.contains("0 workload SVIDs"), "{summary}");
}

#[tokio::test]
async fn random_bytes_at_the_socket_harm_nothing() {
    let node = Node::new(vec![hour("/a")]).await;
    let path = node.files.path("workload.sock");
    for round in 0..64u32 {
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let mut junk: Vec<u8> =
            if round % 2 == 0 { b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec() } else { vec![] };
        junk.extend((0..256).map(|_| rand::random::<u8>()));
        // The server may hang up at any time.
        let _ = stream.write_all(&junk).await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert!(node.fetch().await.unwrap().message().await.unwrap().is_some());
}

/// Frames of a call whose `:authority` is the socket's path, as gRPC for Python writes it (RFC 7541 section 6, no Huffman code).
fn call_with_a_path_as_authority() -> Vec<u8> {
    let literal =
        |head: &[u8], value: &str| [head, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    let named = |name: &str, value: &str| literal(&literal(&[0], name), value);
    let block = [
        vec![0x83, 0x86],
        literal(&[0x04], "/SpiffeWorkloadAPI/FetchX509SVID"),
        literal(&[0x41], "%2Ftmp%2Fworkload.sock"),
        named("content-type", "application/grpc"),
        named("te", "trailers"),
        named("workload.spiffe.io", "true"),
    ]
    .concat();
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    [preface, frame(4, 0, 0, &[]), frame(1, 4, 1, &block), frame(0, 1, 1, &[0; 5])].concat()
}

#[tokio::test]
async fn a_path_as_authority_is_no_obstacle() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = tokio::net::UnixStream::connect(node.files.path("workload.sock")).await.unwrap();
    stream.write_all(&call_with_a_path_as_authority()).await.unwrap();
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.unwrap();
        let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        match header[3] {
            // DATA: the first message, after its five bytes of gRPC header.
            0 => {
                let id = b"spiffe://fabric.example/a";
                assert!(payload.windows(id.len()).any(|window| window == id));
                return;
            }
            3 => panic!("RST_STREAM {payload:?}"),
            7 => panic!("GOAWAY {payload:?}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_clean_stop_tells_the_streams_and_removes_the_socket() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    // A client that neither speaks nor reads does not hold the daemon up.
    let _mute = tokio::net::UnixStream::connect(node.files.path("workload.sock")).await.unwrap();
    node.shutdown.cancel();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unavailable);
    node.handle.stopped().await;
    assert!(!node.files.path("workload.sock").exists());
}

#[tokio::test]
async fn a_bad_reload_changes_nothing() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    let before = node.handle.certificates();
    let files = &node.files;
    let apply = |entries| {
        node.handle.apply(Some(files.config()), Some(files.issuer()), Some(files.workload_api(entries)))
    };
    assert!(matches!(apply(vec![hour("/a"), hour("/..")]).await, Err(Error::Entry(EntryError { .. }))));
    files.write("node.pem", "nonsense", 0o644);
    assert!(matches!(apply(vec![]).await, Err(Error::Material(MaterialError::File(_)))));
    assert!(matches!(node.handle.apply(None, Some(files.issuer()), None).await, Err(Error::IssuerAlone)));
    assert_eq!(node.handle.certificates(), before);
    assert!(node.fetch().await.unwrap().message().await.unwrap().is_some());
}

#[tokio::test]
async fn the_socket_can_be_moved() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    let files = &node.files;
    let mut api = files.workload_api(vec![hour("/a")]);
    api.socket = files.path("other.sock");
    node.handle.apply(Some(files.config()), Some(files.issuer()), Some(api)).await.unwrap();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unavailable);
    assert!(files.path("other.sock").exists());
    node.shutdown.cancel();
    node.handle.stopped().await;
    assert!(!files.path("other.sock").exists() && !files.path("workload.sock").exists());
}

fn error(result: Result<impl Sized, impl std::fmt::Display>) -> String {
    match result {
        Ok(_) => panic!("must be refused"),
        Err(e) => e.to_string(),
    }
}

fn has(message: &str, wanted: &[&str]) {
    for want in wanted {
        assert!(message.contains(want), "{message:?} lacks {want:?}");
    }
}

#[test]
fn material_is_refused_with_file_and_remedy() {
    let files = Files::new();
    files.load().unwrap();
    files.write("node.key", &fs::read_to_string(files.path("node.key")).unwrap(), 0o640);
    has(&error(files.load()), &["node.key", "0640", "chmod 600"]);
    files.write("node.key", &Key::generate(Curve::P256).unwrap().to_pem(), 0o600);
    has(&error(files.load()), &["node.pem", "node.key", "does not belong"]);
    fs::remove_file(files.path("node.key")).unwrap();
    has(&error(files.load()), &["node.key", "no such file"]);

    let files = Files::new();
    files.new_node("aws-use1", "gw2");
    has(&error(files.load()), &["node.pem", "node/gw2", "name \"gw1\""]);
    let (chain, key) = files.svid("/ns/a/sa/b");
    files.write("node.pem", &bundle::to_pem(&chain), 0o644);
    files.write("node.key", &key.to_pem(), 0o600);
    has(&error(files.load()), &["node.pem", "not a node's ID"]);

    let (files, foreign) = (Files::new(), Files::new());
    files.write("root.pem", &bundle::to_pem([foreign.root.certificate()]), 0o644);
    has(&error(files.load()), &["node.pem", "root.pem", "another root"]);
    symlink("/dev/zero", files.path("endless")).unwrap();
    let config = Config { trust_bundle: files.path("endless"), ..files.config() };
    has(&error(Material::load(&config, None, SystemTime::now())), &["endless"]);
}

/// Tunnels and routes don't depend on it: the daemon runs, and says what is wrong.
#[test]
fn an_svid_out_of_its_time_is_loaded_and_not_believed() {
    let files = Files::new();
    let day = Duration::from_secs(86_400);
    let at = |now| {
        let material = Material::load(&files.config(), Some(NODE), now).unwrap();
        error(material.own.unwrap().believed(&material.store, now))
    };
    has(&at(SystemTime::now() - day), &["is valid from", "clock says", "check the clock"]);
    has(&at(SystemTime::now() + 2 * day), &["expired"]);
    // spiffe/spire#1305: long away, and every root that the node knows has ended meanwhile.
    has(&at(SystemTime::now() + 4000 * day), &["no root of trust domain", "expired"]);
}

#[test]
fn the_younger_of_the_ceremonys_and_the_renewed_svid_is_used() {
    let files = Files::new();
    let path = enroll::state::path(&files.path("state"));
    let (chain, key) = files.svid(id::node_id(&domain(), NODE.0, NODE.1).unwrap().path());
    let serial = |material: Material| material.own.unwrap().serial.clone();
    let of = |chain: &[CertificateDer<'_>]| isthmus_pki::Facts::parse(&chain[0]).unwrap().serial;
    let signed = serial(files.load().unwrap());
    // Renewed in the same second: one of the two, and it stays that one.
    std::thread::sleep(Duration::from_millis(1100));
    let (renewed, renewed_key) = files.svid(id::node_id(&domain(), NODE.0, NODE.1).unwrap().path());
    enroll::state::write(&path, &chain, &key).unwrap();
    assert!([signed.clone(), of(&chain)].contains(&serial(files.load().unwrap())));
    enroll::state::write(&path, &renewed, &renewed_key).unwrap();
    assert_eq!(serial(files.load().unwrap()), of(&renewed));
    // A ceremony after that.
    std::thread::sleep(Duration::from_millis(1100));
    files.new_node(NODE.0, NODE.1);
    assert_ne!(serial(files.load().unwrap()), of(&renewed));
    // What the node wrote is never a reason not to start.
    fs::write(&path, "half").unwrap();
    files.load().unwrap();
    let (foreign, foreign_key) = files.svid("/site/aws-use1/node/gw2");
    enroll::state::write(&path, &foreign, &foreign_key).unwrap();
    assert_eq!(files.load().unwrap().own.unwrap().id.node(), Some(NODE));
}

#[test]
fn an_issuer_is_refused_with_file_and_remedy() {
    let files = Files::new();
    let load = |files: &Files, trust: Trust, site| {
        SiteCa::load(&files.issuer(), &trust, Some(site), SystemTime::now()).map(drop)
    };
    load(&files, Trust::new(files.bundle()), NODE.0).unwrap();
    has(&error(load(&files, Trust::new(files.bundle()), "other")), &["site-ca.pem", "site \"other\""]);
    let stranger = Trust::new(Files::new().bundle());
    has(&error(load(&files, stranger, NODE.0)), &["site-ca.pem", "another root"]);
    let leaf = IssuerConfig::new(files.path("node.pem"), files.path("node.key"), files.dir.path());
    let result = SiteCa::load(&leaf, &Trust::new(files.bundle()), None, SystemTime::now());
    has(&error(result.map(drop)), &["node.pem", "not a CA"]);
}

/// One side of a handshake: whose certificate it has, whose root it trusts, whom it admits.
struct Side<'a> {
    own: &'a Files,
    trusts: &'a Files,
    path: &'a str,
    allow: tls::Allow,
}

impl Side<'_> {
    fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, TrustStore, tls::Allow) {
        let (chain, key) = self.own.svid(self.path);
        let key = PrivateKeyDer::Pkcs8(key.to_pkcs8().to_vec().into());
        (chain, key, TrustStore::from(self.trusts.bundle()), self.allow.clone())
    }
}

/// Runs a handshake in memory; gives the ID that the server saw, or who refused and why.
fn handshake(client: &Side<'_>, server: &Side<'_>) -> Result<String, (&'static str, String)> {
    let (chain, key, trust, allow) = client.parts();
    let config = tls::client_config(chain, key, trust, allow).unwrap();
    let name = rustls_pki_types::ServerName::try_from("unused").unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let (chain, key, trust, allow) = server.parts();
    let config = tls::server_config(chain, key, trust, allow).unwrap();
    let mut server = rustls::ServerConnection::new(Arc::new(config)).unwrap();
    for _ in 0..8 {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().map_err(|e| ("server", e.to_string()))?;
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().map_err(|e| ("client", e.to_string()))?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(tls::peer_id(server.peer_certificates()).unwrap().to_string())
}

#[test]
fn mutual_tls_between_two_svids() {
    let files = Files::new();
    let any = tls::Allow::TrustDomain(domain());
    let only = |path: &str| tls::Allow::Ids(vec![domain().member(path).unwrap()]);
    let side = |path, allow| Side { own: &files, trusts: &files, path, allow };
    let seen = handshake(&side("/client", only("/server")), &side("/server", any.clone())).unwrap();
    assert_eq!(seen, "spiffe://fabric.example/client");
    let (who, why) = handshake(&side("/client", only("/else")), &side("/server", any.clone())).unwrap_err();
    assert_eq!(who, "client");
    has(&why, &["spiffe://fabric.example/server"]);
    let (who, why) = handshake(&side("/client", any), &side("/server", only("/else"))).unwrap_err();
    assert_eq!(who, "server");
    has(&why, &["spiffe://fabric.example/client"]);
}

#[test]
fn mutual_tls_refuses_a_foreign_root_on_either_side() {
    let (files, foreign, allow) = (Files::new(), Files::new(), tls::Allow::TrustDomain(domain()));
    let ours = |path| Side { own: &files, trusts: &files, path, allow: allow.clone() };
    let intruder = |path| Side { own: &foreign, trusts: &files, path, allow: allow.clone() };
    let (who, why) = handshake(&intruder("/client"), &ours("/server")).unwrap_err();
    assert_eq!(who, "server");
    has(&why, &["another root"]);
    let (who, why) = handshake(&ours("/client"), &intruder("/server")).unwrap_err();
    assert_eq!(who, "client");
    has(&why, &["another root"]);
}

#[tokio::test]
async fn a_federated_bundle_reaches_the_streams_and_outlives_a_reload() {
    let node = Node::new(vec![hour("/a")]).await;
    let other = TrustDomain::parse("partner.example").unwrap();
    let read = |sequence: u64| {
        let document = format!(r#"{{"keys":[],"spiffe_sequence":{sequence}}}"#);
        Bundle::from_jwks(&other, document.as_bytes()).unwrap().bundle
    };
    let sequence = || node.handle.trust().unwrap().federated(&other).and_then(Bundle::sequence);
    for number in [1, 2] {
        node.handle.federation().put(&read(number));
        while sequence() != Some(number) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        node.apply(vec![hour("/a"), hour("/b")]).await;
        assert_eq!(sequence(), Some(number));
    }
    assert_eq!(node.handle.trust().unwrap().own().anchors(), node.files.bundle().anchors());
    // One of our own domain never gets in.
    node.handle.federation().put(&Bundle::from_jwks(&domain(), br#"{"keys":[]}"#).unwrap().bundle);
    node.handle.federation().put(&read(3));
    while sequence() != Some(3) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(node.handle.trust().unwrap().own().anchors(), node.files.bundle().anchors());
}

fn identity(path: &str) -> Identity {
    Identity {
        id: domain().member(path).unwrap(),
        ttl: Duration::from_secs(3600),
        jwt_ttl: Duration::from_secs(300),
        dns_names: Vec::new(),
        hint: String::new(),
        federates_with: Vec::new(),
    }
}

// spiffe/spire#6732, rust-spiffe 0.17: every test with a `Node` ends with this check; this one sees to it that there are lines.
#[tokio::test]
async fn no_log_line_holds_a_secret() {
    let selector = Entry { selectors: vec![Selector::Gid(log_watch::SELECTOR)], ..hour("/b") };
    let node = Node::new(vec![hour("/a"), selector.clone()]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    let issuer = node.handle.current_issuer().unwrap();
    let identity = identity("/a");
    let requester = Requester::Workload { uid: own_uid(), pid: 1 };
    issuer.mint(&identity, &["db".into()], &requester, SystemTime::now()).unwrap();
    issuer
        .certify(b"-----BEGIN CERTIFICATE REQUEST-----", &identity, &requester, SystemTime::now())
        .err()
        .unwrap();
    node.apply(vec![selector]).await;
    stream.message().await.unwrap_err();
    node.shutdown.cancel();
    node.handle.stopped().await;
    assert!(log_watch::lines() > 5, "the watcher hears nothing");
    log_watch::check();
}

/// A pair of files of which one was replaced: the old pair goes on issuing, and the error names both.
#[tokio::test]
async fn a_half_replaced_pair_changes_nothing() {
    let node = Node::new(vec![hour("/a")]).await;
    let before = node.handle.current_issuer().unwrap().certificate().clone();
    node.files.write("site-ca.key", &Key::generate(Curve::P256).unwrap().to_pem(), 0o600);
    let files = &node.files;
    let api = Some(files.workload_api(vec![hour("/a")]));
    let result = node.handle.apply(Some(files.config()), Some(files.issuer()), api).await;
    has(&error(result), &["site-ca.pem", "site-ca.key", "does not belong"]);
    assert_eq!(*node.handle.current_issuer().unwrap().certificate(), before);
    let first = node.fetch().await.unwrap().message().await.unwrap().unwrap();
    assert_eq!(check(&node.files, &first).len(), 1);
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_told_of_and_stops_streams_that_have_nothing() {
    let node = Node::new(vec![hour("/a")]).await;
    let issuer = node.handle.current_issuer().unwrap();
    let disk = audit::tests::Faulty::under(issuer.audit());
    disk.leave(0);
    let status = node.fetch().await.unwrap().message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("audit log"), "{status}");
    let (condition, summary) = node.handle.summary();
    assert_ne!(condition, Condition::Well);
    assert!(summary.contains("No space left") && summary.contains("nothing is issued"), "{summary}");
    disk.leave(u64::MAX);
    node.fetch().await.unwrap().message().await.unwrap().unwrap();
    assert_eq!(node.handle.summary().0, Condition::Well);
}

/// The bundle that is supplied carries the key that tokens are signed with.
#[tokio::test]
async fn tokens_are_published_before_anybody_has_one() {
    let node = Node::new(vec![hour("/a")]).await;
    let trust = node.handle.trust().unwrap();
    assert_eq!(trust.own().jwt_authorities().len(), 1);
    let issuer = node.handle.current_issuer().unwrap();
    let requester = Requester::Workload { uid: 1, pid: 1 };
    let identity = identity("/a");
    let svid = issuer.mint(&identity, &["db".into()], &requester, SystemTime::now()).unwrap();
    isthmus_pki::jwt::validate(&svid.token, "db", trust.store(), SystemTime::now().into()).unwrap();
    // Half a day later the next key is in the bundle that everybody is supplied with.
    node.handle.republish(SystemTime::now() + Duration::from_secs(12 * 3600)).await;
    let later = node.handle.trust().unwrap();
    assert_eq!(later.own().jwt_authorities().len(), 2);
    assert!(later.own().sequence() > trust.own().sequence());
}

/// What each change brings, all the others leave: bundles of partners, keys for tokens, an SVID, a charter.
#[tokio::test]
async fn no_change_loses_what_another_brought() {
    let node = Node::new(vec![hour("/a")]).await;
    let partner = TrustDomain::parse("partner.example").unwrap();
    let document = br#"{"keys":[],"spiffe_sequence":1}"#;
    node.handle.federation().put(&Bundle::from_jwks(&partner, document).unwrap().bundle);
    let live = node.handle.live();
    let standing = || live.borrow().clone().unwrap();
    while standing().trust.federated(&partner).is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let whole = |after: &str, keys: usize| {
        let (told, own) = (node.handle.trust().unwrap(), standing());
        assert_eq!(told, own.trust, "streams and connections believe the same after {after}");
        assert!(told.federated(&partner).is_some(), "the partner is lost after {after}");
        assert_eq!(told.own().jwt_authorities().len(), keys, "keys after {after}");
        assert_eq!(own.own.unwrap().chain, node.handle.material().unwrap().own.unwrap().chain);
    };
    whole("the start", 1);
    node.handle.republish(SystemTime::now() + Duration::from_secs(12 * 3600)).await;
    whole("republishing", 2);
    let (chain, key) = node.files.svid(id::node_id(&domain(), NODE.0, NODE.1).unwrap().path());
    let path = node.files.path("node.pem");
    let store = TrustStore::from(node.files.bundle());
    let renewed = Own::check(chain.clone(), key, &path, &store, Some(NODE), SystemTime::now()).unwrap();
    node.handle.adopt(Arc::new(renewed)).await;
    whole("a renewal", 2);
    assert_eq!(standing().own.unwrap().chain, chain);
    // A reload goes by the clock of now again, and keeps both keys: one of them is not due yet.
    node.apply(vec![hour("/a"), hour("/b")]).await;
    whole("a reload", 2);
    let rotate = rotation::Request {
        verb: rotation::Verb::Leaf,
        override_reason: None,
        istio_checked: None,
        by: "a test".into(),
    };
    assert!(node.handle.rotate(&rotate, false).await.unwrap().applied);
    whole("a rotation", 2);
    node.handle
        .federation()
        .put(&Bundle::from_jwks(&partner, br#"{"keys":[],"spiffe_sequence":2}"#).unwrap().bundle);
    while standing().trust.federated(&partner).and_then(Bundle::sequence) != Some(2) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    whole("the partner's next bundle", 2);
}

/// Every certificate that is known is listed, and partners' roots go by their domain.
#[tokio::test]
async fn roots_of_partners_are_listed_while_they_are_trusted() {
    let node = Node::new(vec![hour("/a")]).await;
    let foreign = TrustDomain::parse("partner.example").unwrap();
    let key = Key::generate(Curve::P256).unwrap();
    let now = SystemTime::now().into();
    let root = Authority::root(&foreign, key, time::Duration::days(9), serial(), now).unwrap();
    node.handle.federation().put(&Bundle::parse(root.certificate()).unwrap());
    let listed = || {
        let all = node.handle.certificates();
        all.into_iter().find(|c| c.kind == Kind::FederatedRoot)
    };
    while listed().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let info = listed().unwrap();
    assert_eq!(
        (info.spiffe_id.as_str(), info.not_after),
        ("spiffe://partner.example", root.facts().not_after)
    );
    assert_eq!(node.handle.summary().0, Condition::Well);
}

/// A CA and a node's SVID that have ended keep no node from starting: tunnels do not depend on them.
#[tokio::test]
async fn a_site_ca_out_of_its_time_issues_nothing_and_stops_nothing() {
    let files = Files::new();
    let past = SystemTime::now() - Duration::from_secs(100 * 86_400);
    let key = Key::generate(Curve::P256).unwrap();
    let root_key = Key::generate(Curve::P384).unwrap();
    let root =
        Authority::root(&domain(), root_key, time::Duration::days(3650), serial(), past.into()).unwrap();
    let profile = Profile::SiteCa { site: NODE.0.into(), lifetime: time::Duration::days(90) };
    let issued = root.issue(&profile, &key.public(), serial(), past.into()).unwrap();
    files.write("root.pem", &bundle::to_pem([root.certificate()]), 0o644);
    files.write("site-ca.pem", &bundle::to_pem([&issued.certificate]), 0o644);
    files.write("site-ca.key", &key.to_pem(), 0o600);
    let (site, key) = (files.site(), Key::generate(Curve::P256).unwrap());
    let id = id::node_id(&domain(), NODE.0, NODE.1).unwrap();
    let profile = Profile::Svid { id, dns_names: vec![], lifetime: time::Duration::days(1) };
    let leaf = site.issue(&profile, &key.public(), serial(), past.into()).unwrap().certificate;
    files.write("node.pem", &bundle::to_pem([&leaf, site.certificate()]), 0o644);
    files.write("node.key", &key.to_pem(), 0o600);

    let (api, shutdown) = (Some(files.workload_api(vec![hour("/a")])), CancellationToken::new());
    let node = Some((NODE.0.to_string(), NODE.1.to_string()));
    let handle =
        start(Some(files.config()), Some(files.issuer()), api, node, shutdown.clone()).await.unwrap();
    let (condition, summary) = handle.summary();
    assert_eq!(condition, Condition::Failed, "{summary}");
    has(&summary, &["is not believed", "expired", "nothing is issued", "isthmus-ca site sign"]);
    assert_eq!(handle.trust().unwrap().own().jwt_authorities(), []);
    let issuer = handle.current_issuer().unwrap();
    let requester = Requester::Workload { uid: own_uid(), pid: 1 };
    let refused = issuer.issue(&identity("/a"), &requester, SystemTime::now()).err().unwrap();
    assert!(matches!(refused, IssuerError::Idle { .. }), "{refused}");
    let refused = issuer.mint(&identity("/a"), &["db".into()], &requester, SystemTime::now()).err().unwrap();
    assert!(matches!(refused, IssuerError::Idle { .. }), "{refused}");
    shutdown.cancel();
    handle.stopped().await;
}
