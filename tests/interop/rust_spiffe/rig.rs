//! One issuer whose files and entries change while a client watches.

use std::{sync::Arc, time::Duration};

use isthmus_lab::{
    bins::Bins,
    netns::Netns,
    node::Node,
    pki::{Pki, issuer_config},
};
use time::OffsetDateTime;

const LIMIT: Duration = Duration::from_secs(20);
/// The one identity.
pub(crate) const API: &str = "spiffe://test.example/ns/payments/sa/api";
/// Nobody's.
pub(crate) const OTHER: &str = "spiffe://test.example/ns/payments/sa/other";

pub(crate) struct Rig {
    inner: Arc<std::sync::Mutex<Inner>>,
    endpoint: String,
    netns: Netns,
}

struct Inner {
    node: Node,
    pki: Pki,
    entries: String,
    _files: tempfile::TempDir,
}

pub(crate) fn entry(path: &str, selector: &str) -> String {
    format!("[[workload_api.entry]]\nspiffe_id = {path:?}\nselectors = [{selector:?}]\n")
}

impl Rig {
    pub(crate) fn start(bins: &Bins) -> Self {
        let files = tempfile::tempdir().unwrap();
        let netns = Netns::create("issuer").unwrap();
        let mut node = Node::new("gw1", &netns, files.path(), bins).unwrap();
        let pki = Pki::new("s1", OffsetDateTime::now_utc()).unwrap();
        pki.write_all(node.dir(), "gw1").unwrap();
        let entries = entry("/ns/payments/sa/api", "unix:uid:0");
        node.start(&(issuer_config(&node, "s1") + &entries)).unwrap();
        node.wait_ready(LIMIT).unwrap();
        let endpoint = format!("unix://{}", node.workload_socket().display());
        let inner = Inner { node, pki, entries, _files: files };
        Self { inner: Arc::new(std::sync::Mutex::new(inner)), endpoint, netns }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(crate) fn netns(&self) -> Netns {
        self.netns.clone()
    }

    /// In a thread of its own: the lab has runtimes of its own, and the caller is a future.
    async fn change(&self, change: impl FnOnce(&mut Inner) + Send + 'static) {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || {
            let mut inner = inner.lock().unwrap();
            change(&mut inner);
            let config = issuer_config(&inner.node, "s1") + &inner.entries;
            let (_, error) = inner.node.reload(&config, LIMIT).unwrap();
            assert_eq!(error, "");
        })
        .await
        .unwrap();
    }

    /// Other entries.
    pub(crate) async fn reload(&mut self, entries: &str) {
        let entries = entries.to_owned();
        self.change(|inner| inner.entries = entries).await;
    }

    /// Another site CA under the same root.
    pub(crate) async fn renew_site_ca(&mut self) {
        self.change(|inner| {
            inner.pki.renew_site(OffsetDateTime::now_utc()).unwrap();
            inner.pki.write_all(inner.node.dir(), "gw1").unwrap();
        })
        .await;
    }
}
