//! Nodes of one site in namespaces of their own: joining, renewal, and what is left when the issuer is not there.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{fs, time::Duration};

use anyhow::{Context as _, ensure};
use isthmus_lab::{
    bins::Bins,
    files::write_secret,
    mesh::{self, Mesh, node_section},
    node::Node,
    peers::{FAKETIME, installed},
    pki::{Pki, TRUST_DOMAIN, issuer_config},
    sandbox,
};
use isthmus_pki::{Facts, bundle::certificates};
use isthmus_proto::control::{Health, Subsystem};
use time::OffsetDateTime;

const LIMIT: Duration = Duration::from_secs(30);
const SITE: &str = "s1";
/// Renewed after 15 to 20 seconds, overdue after 30, over after 60.
const SHORT: &str = "node_ttl = \"1m\"\n";

/// Gateway 1 is the issuer, the others join.
struct Site {
    mesh: Mesh,
    pki: Pki,
}

impl Site {
    /// Starts the issuer; `rules` are more lines of its `[issuer]`.
    fn start(count: u8, rules: &str, bins: &Bins) -> Self {
        let mut mesh = Mesh::new(count, bins).unwrap();
        let pki = Pki::new(SITE, OffsetDateTime::now_utc()).unwrap();
        pki.write_site(mesh.node(1).dir()).unwrap();
        for n in 2..=count {
            let root = mesh.node(1).dir().join("root.pem");
            fs::copy(root, mesh.node(n).dir().join("root.pem")).unwrap();
        }
        // No certificate from a ceremony: an issuer makes its own.
        let issuer = format!(
            "{}[identity]\ntrust_bundle = \"root.pem\"\n[issuer]\ncertificate = \"site-ca.pem\"\n\
             key = \"site-ca.key\"\nlisten = \"[::]:51820\"\n{rules}{}",
            node_section(mesh.node(1), Some(SITE)),
            mesh::metrics_section()
        );
        mesh.node_mut(1).start(&issuer).unwrap();
        mesh.node_mut(1).wait_ready(LIMIT).unwrap();
        let mut this = Self { mesh, pki };
        this.wait_id(1);
        this
    }

    fn member(&self, n: u8) -> String {
        format!(
            "{}[identity]\ntrust_bundle = \"root.pem\"\njoin_token_file = \"join.token\"\n\
             issuers = [\"192.0.2.1:51820\"]\n{}",
            node_section(self.mesh.node(n), Some(SITE)),
            mesh::metrics_section()
        )
    }

    fn token(&self, name: &str) -> String {
        self.mesh.node(1).ctl_ok(&["token", "create", "--node", name]).unwrap()
    }

    fn join(&mut self, n: u8, token: &str) {
        write_secret(&self.mesh.node(n).dir().join("join.token"), token).unwrap();
        let config = self.member(n);
        self.mesh.node_mut(n).start(&config).unwrap();
        self.mesh.node_mut(n).wait_ready(LIMIT).unwrap();
    }

    fn wait_id(&mut self, n: u8) {
        let wanted = format!("spiffe://{TRUST_DOMAIN}/site/{SITE}/node/{}", mesh::name(n));
        let has = |node: &Node| {
            let id = node.status()?.spiffe_id;
            ensure!(id == wanted, "its ID is {id:?}");
            Ok(())
        };
        self.mesh.node_mut(n).wait_until("its SVID", LIMIT, has).unwrap();
    }

    /// Makes the next CA at the issuer and has the root sign it; the hash of its key.
    fn next_ca(&self) -> String {
        let (node, request) = (self.mesh.node(1), self.mesh.node(1).dir().join("next.csr"));
        let out = request.to_str().unwrap();
        node.ctl_ok(&["rotate", "intermediate", "prepare", "--out", out]).unwrap();
        let pem = self.pki.sign_site(&fs::read_to_string(&request).unwrap()).unwrap();
        let file = node.dir().join("next.pem");
        fs::write(&file, &pem).unwrap();
        node.ctl_ok(&["rotate", "intermediate", "install", file.to_str().unwrap()]).unwrap();
        Facts::parse(&certificates(pem.as_bytes()).unwrap()[0]).unwrap().key_sha256
    }

    fn wait_told(&mut self, name: &str, ca: &str) {
        let has = |node: &Node| {
            let line = told(node, name)?;
            ensure!(line.contains(&ca[..16]), "{line}");
            Ok(())
        };
        self.mesh.node_mut(1).wait_until("a report with the new CA", LIMIT * 2, has).unwrap();
    }

    fn wait_given(&mut self, ca: &str) {
        let has = |node: &Node| {
            let (said, given) = given(node);
            ensure!(given.as_deref() == Some(ca), "{given:?}: {said}");
            Ok(())
        };
        self.mesh.node_mut(2).wait_until("a workload's SVID of the new CA", LIMIT * 2, has).unwrap();
    }

    fn wait_says(&mut self, n: u8, limit: Duration, health: Health, words: &str) {
        let says = |node: &Node| {
            let identity = identity(node)?;
            ensure!(identity.health() == health && identity.summary.contains(words), "{identity:?}");
            Ok(())
        };
        self.mesh.node_mut(n).wait_until(words, limit, says).unwrap();
    }
}

fn identity(node: &Node) -> anyhow::Result<Subsystem> {
    let subsystems = node.status()?.subsystems;
    subsystems.into_iter().find(|s| s.name == "identity").context("no identity")
}

fn serial(node: &Node) -> anyhow::Result<String> {
    let svid = node.certificates()?.into_iter().find(|c| c.kind == "node-svid");
    Ok(svid.context("no SVID")?.serial)
}

#[test]
fn a_node_joins_once_and_nobody_else_with_its_token() {
    sandbox::run_with_bins("a_node_joins_once_and_nobody_else_with_its_token", |bins| {
        let mut site = Site::start(4, "", bins);
        let token = site.token("gw2");
        // Another node has got hold of it: refused, and the token is as good as before.
        site.join(3, &token);
        site.wait_says(3, LIMIT, Health::Failed, "this join token is not accepted");
        site.join(2, &token);
        site.wait_id(2);
        assert!(!site.mesh.node(2).dir().join("join.token").exists());
        // A replay, by one that calls itself gw2.
        let replayer = site.member(4).replace("name = \"gw4\"", "name = \"gw2\"");
        write_secret(&site.mesh.node(4).dir().join("join.token"), &token).unwrap();
        site.mesh.node_mut(4).start(&replayer).unwrap();
        site.wait_says(4, LIMIT, Health::Failed, "this join token is not accepted");

        let list = site.mesh.node(1).ctl_ok(&["token", "list"]).unwrap();
        assert!(list.contains("gw2") && list.contains("used"), "{list}");
        let joined = mesh::metrics(site.mesh.node(1)).unwrap();
        assert_eq!(joined.count("isthmus_enroll_total", &[("result", "joined")]), 1.0);
        assert!(joined.count("isthmus_enroll_total", &[("result", "other_node")]) >= 1.0);
        assert!(joined.count("isthmus_enroll_total", &[("result", "used_token")]) >= 1.0);
        for n in 1..=4 {
            let log = site.mesh.node(n).log_text();
            assert!(!log.contains(token.trim()) && !log.contains("PRIVATE KEY"), "gw{n} logged a secret");
        }

        // Who made it is in the audit log, as the kernel knows them.
        let log = site.mesh.node(1).state_dir().join("audit.jsonl");
        let orders = ["audit", "search", "--kind", "operator", "-o", "json", log.to_str().unwrap()];
        let orders = site.mesh.node(1).ctl_ok(&orders).unwrap();
        assert!(orders.contains("token create: done") && orders.contains("operator uid=0 pid="), "{orders}");
        assert!(orders.contains("/node/gw2\"") && !orders.contains("isthmus-join_"), "{orders}");

        // A token that was taken back, and a command to a node that has none to give.
        let again = site.token("gw3");
        let list = site.mesh.node(1).ctl_ok(&["token", "list", "-o", "json"]).unwrap();
        let id = list.rsplit_once("\"id\": \"").unwrap().1.split('"').next().unwrap().to_owned();
        site.mesh.node(1).ctl_ok(&["token", "revoke", &id]).unwrap();
        site.mesh.node_mut(3).stop().unwrap();
        site.join(3, &again);
        site.wait_says(3, LIMIT, Health::Failed, "this join token is not accepted");
        let refused = site.mesh.node(2).ctl(&["token", "create", "--node", "gw9"]).unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("this node is no issuer"));
    });
}

/// A member without the site's CA serves the Workload API; its issuer may die.
#[test]
fn a_member_serves_workloads_with_certificates_of_its_issuer() {
    sandbox::run_with_bins("a_member_serves_workloads_with_certificates_of_its_issuer", |bins| {
        let mut site = Site::start(2, "node_paths = [\"/ns/pay/*\"]\n", bins);
        let token = site.token("gw2");
        write_secret(&site.mesh.node(2).dir().join("join.token"), &token).unwrap();
        let socket = site.mesh.node(2).workload_socket();
        let entry = |path: &str| {
            format!("[[workload_api.entry]]\nspiffe_id = \"{path}\"\nselectors = [\"unix:uid:0\"]\n")
        };
        let config = format!("{}[workload_api]\nsocket = {socket:?}\n", site.member(2));
        site.mesh.node_mut(2).start(&(config.clone() + &entry("/ns/pay/api"))).unwrap();
        site.wait_id(2);
        let fetch = |node: &Node| {
            let socket = format!("unix://{}", node.workload_socket().display());
            node.ctl(&["svid", "fetch", "--workload-socket", &socket]).unwrap()
        };
        let said = |output: &std::process::Output| {
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        };
        let first = fetch(site.mesh.node(2));
        assert!(first.status.success() && said(&first).contains("/ns/pay/api"), "{}", said(&first));
        site.mesh.node_mut(1).kill().unwrap();
        let second = fetch(site.mesh.node(2));
        assert!(second.status.success() && said(&second).contains("/ns/pay/api"), "{}", said(&second));

        // What its site does not allow it can't have, whatever its own file says.
        site.mesh.node_mut(1).restart().unwrap();
        site.mesh.node_mut(1).wait_ready(LIMIT).unwrap();
        site.wait_id(1);
        site.mesh.node_mut(2).reload(&(config + &entry("/ns/other/api")), LIMIT).unwrap();
        let refused = fetch(site.mesh.node(2));
        assert!(!refused.status.success() && !said(&refused).contains("/ns/pay/api"), "{}", said(&refused));
    });
}

/// What a workload of the node gets now: the words of the command that fetches it, and the hash of its CA's key, if it got one.
fn given(node: &Node) -> (String, Option<String>) {
    let socket = format!("unix://{}", node.workload_socket().display());
    let dir = tempfile::tempdir().unwrap();
    let write = ["svid", "fetch", "--workload-socket", &socket, "--write", dir.path().to_str().unwrap()];
    let output = node.ctl(&write).unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let chain = fs::read(dir.path().join("svid.pem")).ok().map(|pem| certificates(&pem).unwrap());
    (said, chain.map(|chain| Facts::parse(&chain[1]).unwrap().key_sha256))
}

/// The CA of the node's own SVID, as it told its issuer.
fn told(issuer: &Node, name: &str) -> anyhow::Result<String> {
    let text = issuer.ctl_ok(&["rotate", "status"])?;
    let line = text.lines().find(|line| line.contains("fleet") && line.contains(name));
    Ok(line.with_context(|| format!("no {name} in {text}"))?.to_owned())
}

/// A site CA gives way to another, and that one is stolen: hours before any renewal, nodes and workloads follow within seconds.
#[test]
fn a_member_and_its_workloads_follow_the_site_ca_and_get_nothing_of_a_tainted_one() {
    let name = "a_member_and_its_workloads_follow_the_site_ca_and_get_nothing_of_a_tainted_one";
    sandbox::run_with_bins_for(Duration::from_secs(240), name, |bins| {
        let rules = "node_paths = [\"/ns/pay/*\"]\n[fabric]\nlongest_leaf = \"5m\"\n";
        let mut site = Site::start(2, rules, bins);
        let token = site.token("gw2");
        write_secret(&site.mesh.node(2).dir().join("join.token"), &token).unwrap();
        let socket = site.mesh.node(2).workload_socket();
        let workloads = format!(
            "[workload_api]\nsocket = {socket:?}\n[[workload_api.entry]]\nspiffe_id = \"/ns/pay/api\"\n\
             selectors = [\"unix:uid:0\"]\n"
        );
        let config = site.member(2) + &workloads;
        site.mesh.node_mut(2).start(&config).unwrap();
        site.wait_id(2);
        let (said, first) = given(site.mesh.node(2));
        let first = first.expect(&said);

        let two = site.next_ca();
        site.mesh.node(1).ctl_ok(&["rotate", "intermediate", "activate"]).unwrap();
        site.wait_told("gw2", &two);
        site.wait_given(&two);
        assert_ne!(first, two);
        let waits = site.mesh.node(1).ctl(&["rotate", "intermediate", "retire", "--dry-run"]).unwrap();
        let waits = String::from_utf8_lossy(&waits.stdout).into_owned();
        assert!(waits.contains("last leaf") && !waits.contains("lags"), "{waits}");

        let three = site.next_ca();
        site.mesh.node(1).ctl_ok(&["rotate", "taint", &two[..16], "--reason", "stolen"]).unwrap();
        // The member's own SVID is of that CA as well, so it gets no other for its workloads; nor do they get the old one.
        let refuses = |node: &Node| {
            let (said, ca) = given(node);
            ensure!(ca.is_none(), "it still has {ca:?}: {said}");
            Ok(())
        };
        site.mesh.node_mut(2).wait_until("the end of what is tainted", LIMIT, refuses).unwrap();
        let again = site.token("gw2");
        write_secret(&site.mesh.node(2).dir().join("join.token"), &again).unwrap();
        site.wait_told("gw2", &three);
        site.wait_given(&three);
        let orders = site.mesh.node(1).state_dir().join("audit.jsonl");
        let orders = ["audit", "search", "--kind", "operator", "--serial", &two, orders.to_str().unwrap()];
        let orders = site.mesh.node(1).ctl_ok(&orders).unwrap();
        assert!(orders.contains("rotate taint: done") && orders.contains("operator uid=0"), "{orders}");
    });
}

/// Renewed while the issuer lives, warned of when it does not, running without an identity in the end, and
/// back with a new token.
#[test]
fn a_node_renews_outlives_its_issuer_and_comes_back() {
    let limit = Duration::from_secs(400);
    sandbox::run_with_bins_for(limit, "a_node_renews_outlives_its_issuer_and_comes_back", |bins| {
        let mut site = Site::start(2, SHORT, bins);
        let token = site.token("gw2");
        site.join(2, &token);
        site.wait_id(2);
        let first = serial(site.mesh.node(2)).unwrap();
        let renewed = |node: &Node| {
            ensure!(serial(node)? != first, "still the first one");
            Ok(())
        };
        site.mesh.node_mut(2).wait_until("a renewed SVID", LIMIT, renewed).unwrap();

        site.mesh.node_mut(1).kill().unwrap();
        site.wait_says(2, Duration::from_secs(60), Health::Degraded, "it can't be renewed");
        let metrics = mesh::metrics(site.mesh.node(2)).unwrap();
        assert_eq!(metrics.value("isthmus_node_svid_renewal_overdue", &[]).unwrap(), 1.0);
        site.wait_says(2, Duration::from_secs(60), Health::Failed, "it has expired");

        // Started anew it runs as well, and says the same.
        site.mesh.node_mut(2).stop().unwrap();
        site.mesh.node_mut(2).restart().unwrap();
        site.mesh.node_mut(2).wait_ready(LIMIT).unwrap();
        site.wait_says(2, LIMIT, Health::Failed, "no join token");

        // The issuer is back: an expired SVID renews nothing, a new token does.
        site.mesh.node_mut(1).restart().unwrap();
        site.mesh.node_mut(1).wait_ready(LIMIT).unwrap();
        site.wait_id(1);
        let again = site.token("gw2");
        write_secret(&site.mesh.node(2).dir().join("join.token"), &again).unwrap();
        site.wait_says(2, Duration::from_secs(90), Health::Ok, "node/gw2 until");
    });
}

/// The aim: every issuer dead for 16 hours, and the node is still believed; a day later it still runs.
#[test]
fn sixteen_hours_without_an_issuer() {
    sandbox::run_with_bins("sixteen_hours_without_an_issuer", |bins| {
        if !installed("sixteen_hours_without_an_issuer", &[FAKETIME]) {
            return;
        }
        let mut site = Site::start(2, "", bins);
        let token = site.token("gw2");
        site.join(2, &token);
        site.wait_id(2);
        site.mesh.node_mut(1).kill().unwrap();
        // It joined just now: the worst moment to lose the issuer is 8 hours later, and 16 hours after that are 24.
        for (later, health, words) in [
            ("+420m", Health::Ok, "node/gw2 until"),
            ("+750m", Health::Degraded, "it can't be renewed"),
            ("+1435m", Health::Degraded, "it can't be renewed"),
            ("+1500m", Health::Failed, "it has expired"),
        ] {
            site.mesh.node_mut(2).stop().unwrap();
            let at = |command: &mut std::process::Command| {
                command
                    .env("LD_PRELOAD", FAKETIME)
                    .env("FAKETIME", later)
                    .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            };
            site.mesh.node_mut(2).restart_with(at).unwrap();
            site.mesh.node_mut(2).wait_ready(LIMIT).unwrap();
            site.wait_says(2, LIMIT, health, words);
        }
    });
}

/// What the ceremony signed has ended: the daemon runs, tunnels do not need it.
#[test]
fn an_expired_certificate_does_not_keep_a_node_from_starting() {
    sandbox::run_with_bins("an_expired_certificate_does_not_keep_a_node_from_starting", |bins| {
        let mut site = Site::start(2, "", bins);
        let (node, past) = (site.mesh.node(2), OffsetDateTime::now_utc() - time::Duration::minutes(30));
        site.pki.write_node(node.dir(), "gw2", past, time::Duration::minutes(10)).unwrap();
        let tunnel = site.mesh.base(2).split_once("[tunnel]").unwrap().1.to_owned();
        let config = format!(
            "{}[identity]\ntrust_bundle = \"root.pem\"\nsvid = \"node.pem\"\nkey = \"node.key\"\n[tunnel]{tunnel}",
            node_section(node, Some(SITE))
        );
        site.mesh.node_mut(2).start(&config).unwrap();
        site.mesh.node_mut(2).wait_ready(LIMIT).unwrap();
        site.wait_says(2, LIMIT, Health::Failed, "it has expired");
        let status = site.mesh.node(2).status().unwrap();
        let tunnel = status.subsystems.iter().find(|s| s.name == "tunnel").unwrap();
        assert_eq!(tunnel.health(), Health::Ok);
    });
}

/// The fabric's root has ended while the node was off: it starts, says so and what to do, and is well with the new one.
#[test]
fn an_expired_root_does_not_keep_an_issuer_from_starting() {
    sandbox::run_with_bins("an_expired_root_does_not_keep_an_issuer_from_starting", |bins| {
        let mut mesh = Mesh::new(1, bins).unwrap();
        let then = OffsetDateTime::now_utc() - time::Duration::days(3651);
        let dead = Pki::new(SITE, then).unwrap();
        let node = mesh.node(1);
        dead.write_site(node.dir()).unwrap();
        dead.write_node(node.dir(), "gw1", then, time::Duration::days(1)).unwrap();
        let tunnel = mesh.base(1).split_once("[tunnel]").unwrap().1.to_owned();
        let entry = "[[workload_api.entry]]\nspiffe_id = \"/ns/pay/api\"\nselectors = [\"unix:uid:0\"]\n";
        let config = format!("{}{entry}[tunnel]{tunnel}", issuer_config(node, SITE));
        mesh.node_mut(1).start(&config).unwrap();
        mesh.node_mut(1).wait_ready(LIMIT).unwrap();
        let mut site = Site { mesh, pki: dead };
        site.wait_says(1, LIMIT, Health::Failed, "no root of trust domain test.example is valid now");
        site.wait_says(
            1,
            LIMIT,
            Health::Failed,
            "put the fabric's new root into the file of [identity] trust_bundle",
        );
        let subsystems = site.mesh.node(1).status().unwrap().subsystems;
        assert_eq!(subsystems.iter().find(|s| s.name == "tunnel").unwrap().health(), Health::Ok);
        let certs = site.mesh.node(1).ctl_ok(&["certs", "-o", "json"]).unwrap();
        assert!(certs.contains("\"root\""), "{certs}");
        let socket = format!("unix://{}", site.mesh.node(1).workload_socket().display());
        let refused = site.mesh.node(1).ctl(&["svid", "fetch", "--workload-socket", &socket]).unwrap();
        assert!(!refused.status.success(), "nothing is issued under a root that has ended");

        site.pki = Pki::new(SITE, OffsetDateTime::now_utc()).unwrap();
        site.pki.write_all(site.mesh.node(1).dir(), "gw1").unwrap();
        let (_, refused) = site.mesh.node_mut(1).reload(&config, LIMIT).unwrap();
        assert_eq!(refused, "");
        site.wait_says(1, LIMIT, Health::Ok, "node/gw1 until");
        let fetched = site.mesh.node(1).ctl(&["svid", "fetch", "--workload-socket", &socket]).unwrap();
        assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    });
}
