//! Leaf, site CA and root change hands under a real daemon while a workload holds a stream open: at every push and every second, all that
//! it was given and that lives shake hands with each other in both directions, under the bundle that came last.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use isthmus_lab::{bins::Bins, files::write_secret, netns::Netns, node::Node, pki::identity_config, sandbox};
use isthmus_pki::{
    Authority, Bundle, Charter, Curve, Facts, Key, KeyHash, Profile, PublicKey, Serial, TrustDomain,
    TrustStore,
    bundle::{certificates, to_pem},
    charter::{CaState, PinnedCa, Root, RootState, Site, sealed},
    csr,
};
use isthmus_proto::workload::{
    X509svidRequest, X509svidResponse, spiffe_workload_api_client::SpiffeWorkloadApiClient,
};
use isthmusd::identity::tls::{self, Allow};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::Value;
use time::OffsetDateTime;
use tonic::{Request, Streaming, metadata::MetadataValue, transport::Channel};

const LIMIT: Duration = Duration::from_secs(20);
const SITE: &str = "s1";
const TD: &str = "test.example";

/// In a thread of its own: the caller may be a future, and the lab has runtimes of its own.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap()
}

fn serial() -> Serial {
    Serial::from_random(rand::random())
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// An offline root.
fn root() -> Authority {
    let (domain, key) = (TrustDomain::parse(TD).unwrap(), Key::generate(Curve::P384).unwrap());
    Authority::root(&domain, key, time::Duration::days(30), serial(), now()).unwrap()
}

fn sign_ca(root: &Authority, key: &PublicKey) -> String {
    let profile = Profile::SiteCa { site: SITE.into(), lifetime: time::Duration::days(20) };
    to_pem([&root.issue(&profile, key, serial(), now()).unwrap().certificate])
}

/// One daemon that issues, and the people around it.
struct Rig {
    node: Node,
    roots: Vec<Authority>,
    sequence: u64,
    _files: tempfile::TempDir,
}

impl Rig {
    fn start(bins: &Bins) -> Self {
        let files = tempfile::tempdir().unwrap();
        let node = Node::new("gw1", &Netns::create("issuer").unwrap(), files.path(), bins).unwrap();
        let mut rig = Self { node, roots: vec![root()], sequence: 0, _files: files };
        let key = Key::generate(Curve::P256).unwrap();
        let dir = rig.node.dir().to_owned();
        fs::write(dir.join("root.pem"), to_pem([rig.roots[0].certificate()])).unwrap();
        fs::write(dir.join("site-ca.pem"), sign_ca(&rig.roots[0], &key.public())).unwrap();
        write_secret(&dir.join("site-ca.key"), &key.to_pem()).unwrap();
        rig.write_node(&dir.join("site-ca.pem"), &dir.join("site-ca.key"));
        rig.node.start(&rig.config()).unwrap();
        aside(|| rig.node.wait_ready(LIMIT)).unwrap();
        rig
    }

    fn config(&self) -> String {
        let socket = self.node.workload_socket();
        format!(
            "{}[issuer]\ncertificate = \"site-ca.pem\"\nkey = \"site-ca.key\"\n[fabric]\nlongest_leaf = \"1m\"\n\
             [workload_api]\nsocket = {socket:?}\n[[workload_api.entry]]\nspiffe_id = \"/sa/app\"\n\
             selectors = [\"unix:uid:0\"]\nttl = \"1m\"\n",
            identity_config(&self.node, SITE)
        )
    }

    /// The node's own certificate, signed by the CA in these files.
    fn write_node(&self, certificate: &Path, key: &Path) {
        let certificate = certificates(&fs::read(certificate).unwrap()).unwrap().swap_remove(0);
        let ca = Authority::load(certificate, Key::from_pem(&fs::read(key).unwrap(), None).unwrap()).unwrap();
        let id = TrustDomain::parse(TD).unwrap().member(&format!("/site/{SITE}/node/gw1")).unwrap();
        let profile = Profile::Svid { id, dns_names: Vec::new(), lifetime: time::Duration::days(1) };
        let key = Key::generate(Curve::P256).unwrap();
        let leaf = ca.issue(&profile, &key.public(), serial(), now()).unwrap().certificate;
        let dir = self.node.dir();
        fs::write(dir.join("node.pem"), to_pem([&leaf, ca.certificate()])).unwrap();
        fs::remove_file(dir.join("node.key")).ok();
        write_secret(&dir.join("node.key"), &key.to_pem()).unwrap();
    }

    /// The node's own certificate follows the CA that issues.
    fn wait_node(&mut self, ca: &KeyHash) {
        let short = ca.short().to_owned();
        let renewed = |node: &Node| {
            let line = find(&status(node)?, "fleet", "gw1")?;
            anyhow::ensure!(line["detail"].as_str().unwrap_or_default().contains(&short), "{line}");
            Ok(())
        };
        self.node.wait_until("the node's renewal", LIMIT, renewed).unwrap();
    }

    fn ok(&self, arguments: &str) -> Value {
        let words: Vec<&str> = ["rotate", "-o", "json"].into_iter().chain(arguments.split(' ')).collect();
        let text = self.node.ctl_ok(&words).map_err(|e| self.node.blame(e)).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// What stands in the way.
    fn refused(&self, arguments: &[&str]) -> String {
        let words: Vec<&str> = ["rotate"].iter().chain(arguments).copied().collect();
        let output = self.node.ctl(&words).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
    }

    /// Makes a key at the node, has it signed, brings the certificate back.
    fn prepare(&self, root: usize) -> KeyHash {
        let made = self.ok("intermediate prepare");
        let request = csr::parse(made["request"].as_str().unwrap().as_bytes()).unwrap();
        let file = self.node.dir().join("signed.pem");
        fs::write(&file, sign_ca(&self.roots[root], &request.public_key)).unwrap();
        self.ok(&format!("intermediate install {}", file.display()));
        KeyHash::of_spki(request.public_key.spki())
    }

    /// The next charter: these roots, these CAs; signed by every root that there is.
    fn charter(&mut self, roots: &[usize], cas: &[(&KeyHash, usize, CaState)]) -> PathBuf {
        self.sequence += 1;
        let known = |index: &usize| Root {
            certificate: self.roots[*index].certificate().clone(),
            key: KeyHash::of(self.roots[*index].facts()),
            state: RootState::Active,
        };
        let pin = |(key, root, state): &(&KeyHash, usize, CaState)| PinnedCa {
            key: (*key).clone(),
            root: Some(KeyHash::of(self.roots[*root].facts())),
            state: *state,
        };
        let site = Site { name: SITE.into(), ids: vec!["/sa".into()], cas: cas.iter().map(pin).collect() };
        let charter = Charter {
            trust_domain: TrustDomain::parse(TD).unwrap(),
            sequence: self.sequence,
            issued_at: now().unix_timestamp(),
            refresh_hint: 1,
            roots: roots.iter().map(known).collect(),
            sites: vec![site],
            crls: Vec::new(),
        };
        let file = self.node.dir().join(format!("charter-{}.jws", self.sequence));
        let signers: Vec<&Authority> = self.roots.iter().collect();
        fs::write(&file, sealed::seal(&charter, &signers).unwrap()).unwrap();
        file
    }

    fn configured(&self) -> KeyHash {
        let chain = certificates(&fs::read(self.node.dir().join("site-ca.pem")).unwrap()).unwrap();
        KeyHash::of(&Facts::parse(&chain[0]).unwrap())
    }

    /// The daemon itself destroys the key of a CA whose last leaf is dead.
    async fn until_gone(&self, workload: &mut Workload, ca: &KeyHash) {
        let (begun, step) = (Instant::now(), format!("{} gone", ca.short()));
        while find(&status(&self.node).unwrap(), "intermediate", &step).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(120), "{ca} is still there");
            workload.watch(Duration::from_secs(1)).await;
        }
    }

    /// Waits until the command can be ordered, and orders it; the watch checks handshakes meanwhile.
    async fn when_ready(&self, workload: &mut Workload, arguments: &str) {
        let begun = Instant::now();
        loop {
            let words: Vec<&str> = ["rotate"].into_iter().chain(arguments.split(' ')).collect();
            let output = self.node.ctl(&words).unwrap();
            if output.status.success() {
                return;
            }
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                said.contains("too early") && begun.elapsed() < Duration::from_secs(120),
                "{arguments}: {said}"
            );
            workload.watch(Duration::from_secs(1)).await;
        }
    }
}

fn status(node: &Node) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&node.ctl_ok(&["rotate", "status", "-o", "json"])?)?)
}

fn find(status: &Value, track: &str, step: &str) -> anyhow::Result<Value> {
    let mut lines = status["lines"].as_array().into_iter().flatten();
    let fits =
        |line: &&Value| line["track"] == track && line["step"].as_str().unwrap_or_default().contains(step);
    lines.rfind(fits).cloned().ok_or_else(|| anyhow::anyhow!("no {track} {step} in {status}"))
}

/// What a workload was given at one time: chain, key and bundle.
struct Given {
    chain: Vec<rustls_pki_types::CertificateDer<'static>>,
    key: Vec<u8>,
    store: TrustStore,
    issuer: KeyHash,
    not_after: i64,
}

impl Given {
    fn new(message: &X509svidResponse) -> Self {
        let svid = &message.svids[0];
        let chain = certificates(&svid.x509_svid).unwrap();
        let (leaf, ca) = (Facts::parse(&chain[0]).unwrap(), Facts::parse(&chain[1]).unwrap());
        Self {
            store: TrustStore::from(Bundle::parse(&svid.bundle).unwrap()),
            key: svid.x509_svid_key.clone(),
            issuer: KeyHash::of(&ca),
            not_after: leaf.not_after,
            chain,
        }
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }
}

/// Mutual TLS, each side with its own certificate.
async fn shake_hands(client: &Given, server: &Given, trust: &TrustStore) -> Result<(), String> {
    let allow = || Allow::TrustDomain(TrustDomain::parse(TD).unwrap());
    let dial = tls::client_config(client.chain.clone(), client.key(), trust.clone(), allow()).unwrap();
    let serve = tls::server_config(server.chain.clone(), server.key(), trust.clone(), allow()).unwrap();
    let (near, far) = tokio::io::duplex(64 << 10);
    let dialing =
        tokio_rustls::TlsConnector::from(Arc::new(dial)).connect(ServerName::try_from("peer").unwrap(), near);
    let serving = tokio_rustls::TlsAcceptor::from(Arc::new(serve)).accept(far);
    let (dialed, served) = tokio::join!(dialing, serving);
    dialed.map_err(|e| format!("the client refuses: {e}"))?;
    served.map(drop).map_err(|e| format!("the server refuses: {e}"))
}

/// A workload with its stream, and everything that it was given so far and that lives.
struct Workload {
    stream: Streaming<X509svidResponse>,
    given: Vec<Given>,
    shaken: usize,
}

impl Workload {
    async fn connect(socket: &Path) -> Self {
        let socket = socket.to_owned();
        let connect = tower::service_fn(move |_: tonic::transport::Uri| {
            let socket = socket.clone();
            async move { tokio::net::UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
        });
        let endpoint = tonic::transport::Endpoint::try_from("http://localhost").unwrap();
        let channel: Channel = endpoint.connect_with_connector(connect).await.unwrap();
        let mut request = Request::new(X509svidRequest {});
        request.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("true"));
        let stream =
            SpiffeWorkloadApiClient::new(channel).fetch_x509svid(request).await.unwrap().into_inner();
        let mut this = Self { stream, given: Vec::new(), shaken: 0 };
        this.next(LIMIT).await;
        this
    }

    fn last(&self) -> &Given {
        self.given.last().unwrap()
    }

    /// The next push.
    async fn next(&mut self, limit: Duration) {
        let message = tokio::time::timeout(limit, self.stream.message()).await.expect("a push in time");
        self.given.push(Given::new(&message.unwrap().expect("a stream ends with a status")));
        self.check().await;
    }

    /// The next push with a leaf of this CA; others may come before it.
    async fn until_issued_by(&mut self, ca: &KeyHash) {
        let begun = Instant::now();
        while self.last().issuer != *ca {
            assert!(begun.elapsed() < LIMIT, "no leaf of {ca}");
            self.next(LIMIT).await;
        }
    }

    /// Time passes; pushes are taken, everybody keeps shaking hands.
    async fn watch(&mut self, time: Duration) {
        if let Ok(message) = tokio::time::timeout(time, self.stream.message()).await {
            self.given.push(Given::new(&message.unwrap().unwrap()));
        }
        self.check().await;
    }

    async fn check(&mut self) {
        self.given.retain(|given| given.not_after > now().unix_timestamp() + 1);
        let trust = &self.last().store;
        for one in &self.given {
            for other in &self.given {
                let shaken = shake_hands(one, other, trust).await;
                assert_eq!(shaken, Ok(()), "{} -> {}", one.issuer.short(), other.issuer.short());
            }
        }
        self.shaken += self.given.len().pow(2);
    }
}

fn in_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn leaf_site_ca_and_root_change_hands_and_no_workload_notices() {
    // Leaves live for a minute, and twice the last one of a CA is waited for.
    let limit = Duration::from_secs(300);
    sandbox::run_with_bins_for(limit, "leaf_site_ca_and_root_change_hands_and_no_workload_notices", |bins| {
        let mut rig = Rig::start(bins);
        in_runtime(async {
            let mut workload = Workload::connect(&rig.node.workload_socket()).await;
            let one = rig.configured();

            // Leaves.
            let before = workload.last().chain[0].clone();
            rig.ok("leaf");
            while workload.last().chain[0] == before {
                workload.next(LIMIT).await;
            }

            // Site CA, under the same root.
            let charter = rig.charter(&[0], &[(&one, 0, CaState::Active)]);
            rig.ok(&format!("root publish {}", charter.display()));
            let two = rig.prepare(0);
            let unpinned = rig.refused(&["intermediate", "activate"]);
            assert!(unpinned.contains("not pinned"), "{unpinned}");
            let charter = rig.charter(&[0], &[(&one, 0, CaState::Active), (&two, 0, CaState::Prepared)]);
            rig.ok(&format!("root publish {}", charter.display()));
            let dry = rig.ok("intermediate activate --dry-run");
            assert_eq!((&dry["applied"], dry["effects"].as_array().unwrap().len()), (&Value::Bool(false), 2));
            rig.ok("intermediate activate");
            workload.until_issued_by(&two).await;
            rig.wait_node(&two);
            rig.until_gone(&mut workload, &one).await;

            // Root: both, then a CA under the new one, then the new one alone.
            rig.roots.push(root());
            let charter = rig.charter(&[0, 1], &[(&two, 0, CaState::Active)]);
            rig.ok(&format!("root publish {}", charter.display()));
            let three = rig.prepare(1);
            let charter = rig.charter(&[0, 1], &[(&two, 0, CaState::Active), (&three, 1, CaState::Prepared)]);
            rig.ok(&format!("root publish {}", charter.display()));
            let unchecked = rig.refused(&["root", "activate"]);
            assert!(unchecked.contains("--istio-checked"), "{unchecked}");
            rig.when_ready(&mut workload, "root activate --istio-checked no-istio-here").await;
            workload.until_issued_by(&three).await;
            rig.wait_node(&three);
            let charter = rig.charter(&[1], &[(&three, 1, CaState::Active)]);
            let early = rig.refused(&["root", "retire", charter.to_str().unwrap()]);
            assert!(early.contains("too early") && early.contains("last leaf"), "{early}");
            rig.when_ready(&mut workload, &format!("root retire {}", charter.display())).await;
            workload.watch(Duration::from_secs(2)).await;
            while workload.last().store.bundle(&TrustDomain::parse(TD).unwrap()).unwrap().anchors().len() > 1
            {
                workload.next(LIMIT).await;
            }
            assert!(workload.shaken > 20, "{}", workload.shaken);

            // It is all there after a restart.
            rig.node.stop().unwrap();
            rig.node.restart().unwrap();
            aside(|| rig.node.wait_ready(LIMIT)).unwrap();
            let after = Workload::connect(&rig.node.workload_socket()).await;
            assert_eq!(after.last().issuer, three);
            assert_eq!(status(&rig.node).unwrap()["charter_sequence"], rig.sequence);
        });
    });
}

#[test]
fn a_node_that_lags_is_named_and_a_tainted_ca_gives_way_within_seconds() {
    sandbox::run_with_bins("a_node_that_lags_is_named_and_a_tainted_ca_gives_way_within_seconds", |bins| {
        let mut rig = Rig::start(bins);
        in_runtime(async {
            let one = rig.configured();
            let charter = rig.charter(&[0], &[(&one, 0, CaState::Active)]);
            rig.ok(&format!("root publish {}", charter.display()));
            // A node that reported once and sleeps since.
            rig.node.stop().unwrap();
            let file = rig.node.state_dir().join("identity/rotation/state.json");
            let mut state: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            let mut sleeper = state["fleet"]["nodes"]["gw1"].clone();
            sleeper["svid_not_after"] = 0.into();
            state["fleet"]["nodes"]["gw9"] = sleeper;
            fs::write(&file, state.to_string()).unwrap();
            rig.node.restart().unwrap();
            aside(|| rig.node.wait_ready(LIMIT)).unwrap();

            let two = rig.prepare(0);
            let charter = rig.charter(&[0], &[(&one, 0, CaState::Active), (&two, 0, CaState::Prepared)]);
            rig.ok(&format!("root publish {}", charter.display()));
            let refused = rig.refused(&["intermediate", "activate"]);
            assert!(
                refused.contains("node gw9 lags: has charter 1 of 2") && refused.contains("--override"),
                "{refused}"
            );
            assert!(!refused.contains("gw1"), "{refused}");
            let waiting = find(&status(&rig.node).unwrap(), "intermediate", "activate").unwrap();
            assert_eq!(waiting["status"], "waiting");

            // The same node holds a taint back, until the operator says why it should not.
            let mut workload = Workload::connect(&rig.node.workload_socket()).await;
            assert_eq!(workload.last().issuer, one);
            let taint = ["taint", one.short(), "--reason", "disk sold on"];
            assert!(rig.refused(&taint).contains("node gw9 lags"));
            let forced: Vec<&str> = taint.into_iter().chain(["--override", "gw9 is scrap"]).collect();
            let output = rig.node.ctl(&[&["rotate"], &forced[..]].concat()).unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && said.contains("ca-crl.pem"), "{said}");
            let begun = Instant::now();
            workload.until_issued_by(&two).await;
            assert!(begun.elapsed() < Duration::from_secs(10), "urgent is five seconds");
            let journal = fs::read_to_string(file.with_file_name("journal.jsonl")).unwrap();
            assert!(journal.contains("\"override_reason\":\"gw9 is scrap\""), "{journal}");
            assert!(!journal.contains("PRIVATE KEY"));

            // The configuration still names the tainted CA: a restart does not bring it back.
            rig.node.stop().unwrap();
            rig.node.restart().unwrap();
            aside(|| rig.node.wait_ready(LIMIT)).unwrap();
            let workload = Workload::connect(&rig.node.workload_socket()).await;
            assert_eq!(workload.last().issuer, two);
            find(&status(&rig.node).unwrap(), "intermediate", &format!("{} tainted", one.short())).unwrap();
        });
    });
}
