//! One issuer under a clock of our own, and one workload's stream.

use std::{
    fs,
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use isthmus_lab::{
    bins::Bins,
    netns::Netns,
    node::{Node, unix_channel},
    peers::FAKETIME,
    pki::{Pki, issuer_config},
};
use isthmus_pki::{
    Bundle, Facts, TrustStore,
    bundle::certificates,
    verify::{Purpose, verify},
};
use isthmus_proto::workload::{
    X509svidRequest, X509svidResponse, spiffe_workload_api_client::SpiffeWorkloadApiClient,
};
use time::{Duration as Span, OffsetDateTime};
use tonic::{Request, metadata::MetadataValue};

pub(crate) const API: &str = "spiffe://test.example/ns/payments/sa/api";
/// A stream looks at the wall clock once a minute at least.
const PATIENCE: Duration = Duration::from_secs(90);
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Rig {
    node: Node,
    pki: Pki,
    other: Option<Pki>,
    offset: Span,
    files: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new(bins: &Bins) -> Self {
        let files = tempfile::tempdir().unwrap();
        let netns = Netns::create("issuer").unwrap();
        let node = Node::new("gw1", &netns, files.path(), bins).unwrap();
        let pki = Pki::new("s1", OffsetDateTime::now_utc()).unwrap();
        pki.write_all(node.dir(), "gw1").unwrap();
        let rig = Self { node, pki, other: None, offset: Span::ZERO, files };
        rig.set_clock();
        rig
    }

    pub(crate) fn real_now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }

    /// What the daemon takes for now.
    pub(crate) fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc() + self.offset
    }

    /// Sets the daemon's clock, at once if it runs.
    pub(crate) fn pass(&mut self, span: Span) {
        self.offset += span;
        self.set_clock();
    }

    fn clock(&self) -> std::path::PathBuf {
        self.files.path().join("clock")
    }

    fn set_clock(&self) {
        let new = self.files.path().join("clock.new");
        fs::write(&new, format!("{:+}\n", self.offset.whole_seconds())).unwrap();
        fs::rename(new, self.clock()).unwrap();
    }

    pub(crate) fn start(&mut self) {
        let (clock, config) = (self.clock(), self.config());
        self.node.write_config(&config).unwrap();
        let prepare = |command: &mut std::process::Command| {
            command.env("LD_PRELOAD", FAKETIME).env("FAKETIME_TIMESTAMP_FILE", clock);
            command.env("FAKETIME_NO_CACHE", "1");
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        };
        self.node.restart_with(prepare).unwrap();
        self.node.wait_ready(LIMIT).unwrap();
    }

    fn config(&self) -> String {
        issuer_config(&self.node, "s1")
            + "[[workload_api.entry]]\nspiffe_id = \"/ns/payments/sa/api\"\nselectors = [\"unix:uid:0\"]\n"
    }

    /// A new site CA and a new node certificate of this day; under the other root if so.
    pub(crate) fn rotate(&mut self, under_the_other_root: bool) {
        if under_the_other_root && let Some(other) = self.other.take() {
            self.other = Some(std::mem::replace(&mut self.pki, other));
        }
        self.pki.renew_site(self.now()).unwrap();
        self.apply();
    }

    pub(crate) fn trust_another_root(&mut self) {
        self.other = Some(Pki::new("s1", self.now()).unwrap());
        self.apply();
    }

    pub(crate) fn forget_the_old_root(&mut self) {
        self.other = None;
        self.apply();
    }

    fn apply(&mut self) {
        let dir = self.node.dir();
        self.pki.write_site(dir).unwrap();
        self.pki.write_node(dir, "gw1", self.now(), Span::days(1)).unwrap();
        if let Some(other) = &self.other {
            fs::write(dir.join("root.pem"), self.pki.root_pem() + &other.root_pem()).unwrap();
        }
        let (_, error) = self.node.reload(&self.config(), LIMIT).unwrap();
        assert_eq!(error, "");
    }

    /// The key identifier of the site CA that issues now.
    pub(crate) fn site_ca(&self) -> String {
        let pem = fs::read(self.node.dir().join("site-ca.pem")).unwrap();
        let ca = &certificates(&pem).unwrap()[0];
        Facts::parse(ca).unwrap().subject_key_id.unwrap()
    }

    /// Until `isthmusctl status` has nothing against the node's identity.
    pub(crate) fn wait_healthy(&mut self) {
        self.node
            .wait_until("a healthy identity", PATIENCE, |node| {
                let subsystems = node.status()?.subsystems;
                let identity = subsystems.into_iter().find(|s| s.name == "identity");
                anyhow::ensure!(identity.as_ref().is_some_and(|s| s.health == 1), "{identity:?}");
                Ok(())
            })
            .unwrap();
    }
}

/// What one message held.
pub(crate) struct Svid {
    pub(crate) id: String,
    pub(crate) serial: String,
    /// Key identifier of the CA that signed it.
    pub(crate) issuer: String,
    pub(crate) roots: usize,
}

/// One open call of `FetchX509SVID`.
pub(crate) struct Stream {
    messages: Receiver<Result<X509svidResponse, String>>,
    last: Option<X509svidResponse>,
}

impl Stream {
    pub(crate) fn open(rig: &Rig) -> Self {
        let (socket, (sender, messages)) = (rig.node.workload_socket(), channel());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut client = SpiffeWorkloadApiClient::new(unix_channel(&socket).unwrap());
                let mut request = Request::new(X509svidRequest {});
                request.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("true"));
                let mut stream = client.fetch_x509svid(request).await.unwrap().into_inner();
                while let Some(message) = stream.message().await.transpose() {
                    if sender.send(message.map_err(|status| status.to_string())).is_err() {
                        return;
                    }
                }
            });
        });
        Self { messages, last: None }
    }

    /// The next message that holds at this time.
    pub(crate) fn svid_at(&mut self, now: OffsetDateTime) -> Svid {
        self.svid_where(now, |_| true)
    }

    /// The next message that holds at this time and is what the caller waits for. Others are passed over: a clock that jumps makes the
    /// daemon issue anew by itself, before or after what the test does to it.
    pub(crate) fn svid_where(&mut self, now: OffsetDateTime, wanted: impl Fn(&Svid) -> bool) -> Svid {
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("a message in time").unwrap();
            let (svid, bundle) = (message.svids[0].clone(), certificates(&message.svids[0].bundle).unwrap());
            self.last = Some(message);
            let leaf = Facts::parse(&certificates(&svid.x509_svid).unwrap()[0]).unwrap();
            let (not_after, issuer) = (leaf.not_after, leaf.authority_key_id.unwrap());
            let svid = Svid { id: svid.spiffe_id, serial: leaf.serial, issuer, roots: bundle.len() };
            if not_after >= now.unix_timestamp() && wanted(&svid) {
                self.verify_last_at(now).unwrap();
                return svid;
            }
        }
    }

    /// What our verifier says of the last message at a time.
    pub(crate) fn verify_last_at(&self, now: OffsetDateTime) -> Result<(), String> {
        let svid = &self.last.as_ref().unwrap().svids[0];
        let store = TrustStore::from(Bundle::parse(&svid.bundle).unwrap());
        let chain = certificates(&svid.x509_svid).unwrap();
        verify(&chain, &store, Purpose::Server, now).map(|_| ()).map_err(|error| error.to_string())
    }
}
