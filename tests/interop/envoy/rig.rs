//! One issuer with its socket, and two Envoys in the same namespace.

use std::time::Duration;

use isthmus_lab::{
    bins::Bins,
    issuer::{API, Issuer},
    netns::Netns,
    wait,
};

use crate::{
    config::{self, Ports},
    process::{Envoy, get},
};

const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Rig {
    issuer: Issuer,
    ttl: u32,
}

impl Rig {
    pub(crate) fn start(bins: &Bins) -> Self {
        Self { issuer: Issuer::start(&entry(60), bins).unwrap(), ttl: 60 }
    }

    pub(crate) fn netns(&self) -> &Netns {
        self.issuer.netns()
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
        self.issuer.socket().display().to_string()
    }

    /// An Envoy with a configuration of one's own.
    pub(crate) fn envoy(&self, name: &str, config: &str, admin: u16) -> Envoy {
        Envoy::start(name, self.netns(), self.issuer.files(), config, admin)
    }

    pub(crate) fn get(&self, port: u16) -> (u16, String) {
        self.netns().run(|| get(port, "/")).unwrap().unwrap()
    }

    /// Leaves of another lifetime; returns how the admin page tells them from the old.
    pub(crate) fn new_leaves(&mut self) -> Leaf {
        let old = self.serials();
        self.ttl += 1;
        self.issuer.reload(&entry(self.ttl)).unwrap();
        Leaf(old)
    }

    /// Another site CA under the same root.
    pub(crate) fn new_site_ca(&mut self) -> Leaf {
        let old = self.serials();
        self.issuer.renew_site_ca().unwrap();
        Leaf(old)
    }

    pub(crate) fn add_root(&mut self) {
        self.issuer.add_root().unwrap();
    }

    pub(crate) fn issue_under_the_new_root(&mut self) -> Leaf {
        let old = self.serials();
        self.issuer.switch_root().unwrap();
        Leaf(old)
    }

    pub(crate) fn remove_the_old_root(&mut self) {
        self.issuer.remove_other_root().unwrap();
    }

    /// Certificates that the daemon says workloads hold now.
    fn serials(&self) -> Vec<String> {
        let all = self.issuer.node().certificates().unwrap();
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
}

/// Serial numbers of leaves that are to vanish.
pub(crate) struct Leaf(Vec<String>);

/// `ttl` in minutes.
fn entry(ttl: u32) -> String {
    isthmus_lab::issuer::entry("/ns/payments/sa/api", "unix:uid:0") + &format!("ttl = \"{ttl}m\"\n")
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
