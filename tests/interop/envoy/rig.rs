//! One issuer with its socket, and two Envoys in the same namespace.

use std::{fs, path::PathBuf, time::Duration};

use isthmus_lab::{
    bins::Bins,
    netns::Netns,
    node::Node,
    pki::{Pki, issuer_config},
    wait,
};
use time::OffsetDateTime;

use crate::{
    config::{self, Ports},
    process::{Envoy, get},
};

const LIMIT: Duration = Duration::from_secs(20);
/// What both Envoys are.
pub(crate) const API: &str = "spiffe://test.example/ns/payments/sa/api";
/// What neither is.
pub(crate) const OTHER: &str = "spiffe://test.example/ns/payments/sa/other";

pub(crate) struct Rig {
    node: Node,
    pki: Pki,
    next: Option<Pki>,
    ttl: u32,
    files: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn start(bins: &Bins) -> Self {
        let files = tempfile::tempdir().unwrap();
        let netns = Netns::create("mesh").unwrap();
        let mut node = Node::new("gw1", &netns, files.path(), bins).unwrap();
        let pki = Pki::new("s1", OffsetDateTime::now_utc()).unwrap();
        pki.write_all(node.dir(), "gw1").unwrap();
        node.start(&configuration(&node, 60)).unwrap();
        node.wait_ready(LIMIT).unwrap();
        Self { node, pki, next: None, ttl: 60, files }
    }

    pub(crate) fn netns(&self) -> &Netns {
        self.node.netns()
    }

    pub(crate) fn port(&self) -> u16 {
        10001
    }

    /// The front one, which expects its server to be `server`, and the back one, which expects its client to be `client`.
    pub(crate) fn envoys(&self, validation: &str, server: &str, client: &str) -> (Envoy, Envoy) {
        let socket = self.socket();
        let ports = |admin| Ports { front: self.port(), back: 10002, admin };
        let (front, back) = (ports(10011), ports(10012));
        (
            self.envoy("front.json", &config::front(&front, &socket, validation, server), front.admin),
            self.envoy("back.json", &config::back(&back, &socket, validation, client), back.admin),
        )
    }

    pub(crate) fn socket(&self) -> String {
        self.node.workload_socket().display().to_string()
    }

    /// An Envoy with a configuration of one's own.
    pub(crate) fn envoy(&self, name: &str, config: &str, admin: u16) -> Envoy {
        Envoy::start(name, self.netns(), self.files.path(), config, admin)
    }

    pub(crate) fn get(&self, port: u16) -> (u16, String) {
        self.netns().run(|| get(port, "/")).unwrap().unwrap()
    }

    /// Leaves of another lifetime; returns how the admin page tells them from the old.
    pub(crate) fn new_leaves(&mut self) -> Leaf {
        let old = self.serials();
        self.ttl += 1;
        self.apply();
        Leaf(old)
    }

    /// Another site CA under the same root.
    pub(crate) fn new_site_ca(&mut self) -> Leaf {
        let old = self.serials();
        self.pki.renew_site(OffsetDateTime::now_utc()).unwrap();
        self.write();
        self.apply();
        Leaf(old)
    }

    pub(crate) fn add_root(&mut self) {
        self.next = Some(Pki::new("s1", OffsetDateTime::now_utc()).unwrap());
        self.write();
        self.apply();
    }

    pub(crate) fn issue_under_the_new_root(&mut self) -> Leaf {
        let old = self.serials();
        let next = self.next.take().unwrap();
        self.next = Some(std::mem::replace(&mut self.pki, next));
        self.write();
        self.apply();
        Leaf(old)
    }

    pub(crate) fn remove_the_old_root(&mut self) {
        self.next = None;
        self.write();
        self.apply();
    }

    /// Certificates that the daemon says workloads hold now.
    fn serials(&self) -> Vec<String> {
        let all = self.node.certificates().unwrap();
        all.into_iter().filter(|c| c.kind == "workload-svid").map(|c| c.serial).collect()
    }

    /// Waits until no proxy holds a leaf of before.
    pub(crate) fn wait_for_leaf(&self, proxies: &[&Envoy], before: &Leaf) {
        for proxy in proxies {
            proxy.wait_for("the new leaf", |held| {
                held.contains(API)
                    && before.0.iter().all(|serial| !held.contains(serial.trim_start_matches('0')))
            });
        }
        wait::until_true("the old leaves are forgotten", LIMIT, || {
            self.serials().iter().all(|serial| !before.0.contains(serial))
        })
        .unwrap();
    }

    /// Waits until each proxy trusts so many roots.
    pub(crate) fn wait_for_roots(&self, proxies: &[&Envoy], count: usize) {
        for proxy in proxies {
            proxy.wait_for("the roots", |held| roots(held) == count);
        }
    }

    fn write(&self) {
        self.pki.write_all(self.node.dir(), "gw1").unwrap();
        if let Some(next) = &self.next {
            let path: PathBuf = self.node.dir().join("root.pem");
            fs::write(path, self.pki.root_pem() + &next.root_pem()).unwrap();
        }
    }

    fn apply(&mut self) {
        let config = configuration(&self.node, self.ttl);
        let (_, error) = self.node.reload(&config, LIMIT).unwrap();
        assert_eq!(error, "");
    }
}

/// Serial numbers of leaves that are to vanish.
pub(crate) struct Leaf(Vec<String>);

fn configuration(node: &Node, ttl: u32) -> String {
    issuer_config(node, "s1")
        + &format!(
            "[[workload_api.entry]]\nspiffe_id = \"/ns/payments/sa/api\"\nselectors = [\"unix:uid:0\"]\nttl = \"{ttl}m\"\n"
        )
}

/// How many different authorities the page `/certs` shows.
fn roots(held: &str) -> usize {
    let page: serde_json::Value = serde_json::from_str(held).unwrap_or_default();
    let groups = page["certificates"].as_array().cloned().unwrap_or_default();
    let authorities =
        groups.iter().flat_map(|group| group["ca_cert"].as_array().cloned().unwrap_or_default());
    let serials: std::collections::BTreeSet<String> =
        authorities.map(|ca| ca["serial_number"].as_str().unwrap_or_default().to_owned()).collect();
    serials.len()
}
