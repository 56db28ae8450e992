//! The subsystem as a workload sees it: a real socket, a real gRPC client, certificates made by the PKI library.

mod again;
mod changing;
mod handshake;
mod logs;
mod material;
mod sds;
mod socket;
mod streams;
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
    pub(super) root: Arc<Authority>,
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
        Self::under(Arc::new(root), NODE.0)
    }

    fn under(root: Arc<Authority>, site: &str) -> Self {
        let this = Self { dir: tempfile::tempdir().unwrap(), root };
        this.write("root.pem", &bundle::to_pem([this.root.certificate()]), 0o644);
        this.new_site(site);
        this.new_node(site, NODE.1);
        this
    }

    /// Those of a node of another site, under the same root.
    pub(super) fn other_site(&self, site: &str) -> Self {
        Self::under(self.root.clone(), site)
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
            peers: Vec::new(),
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
