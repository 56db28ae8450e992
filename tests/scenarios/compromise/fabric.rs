//! Two sites, each an issuer and a member that joined by token, with a ceremony's files on the desk.

use std::{fmt::Write as _, fs, io::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use isthmus_lab::{
    bins::Bins,
    files::write_secret,
    mesh::{self, Mesh, node_section},
    node::Node,
};
use isthmus_pki::{Facts, KeyHash, bundle::certificates};
use serde_json::Value;

use super::desk::Desk;

pub(super) const LIMIT: Duration = Duration::from_secs(30);
pub(super) const TD: &str = "fabric.example";

/// A site of the fabric.
#[derive(Clone, Copy)]
pub(super) struct Site {
    /// As in `[node] site`.
    pub(super) name: &'static str,
    /// Its directory on the desk.
    pub(super) dir: &'static str,
    /// Number of the node that issues, and of the one that joins.
    pub(super) issuer: u8,
    pub(super) member: u8,
}

pub(super) const AWS: Site = Site { name: "aws-use1", dir: "aws", issuer: 1, member: 2 };
pub(super) const AZURE: Site = Site { name: "azure-eastus", dir: "azure", issuer: 3, member: 4 };
pub(super) const SITES: [Site; 2] = [AWS, AZURE];

pub(super) struct Fabric {
    pub(super) mesh: Mesh,
    pub(super) desk: Desk,
    _dir: tempfile::TempDir,
}

impl Fabric {
    /// Ceremony, issuers, members; everybody has an identity when this returns. `longest`: life of a node's certificate.
    pub(super) fn start(bins: &Bins, longest: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let desk = Desk::new(dir.path().join("desk"), bins);
        desk.ok(
            None,
            &format!("isthmus-ca root init --trust-domain {TD} --out root --transcript transcript.jsonl"),
        );
        let mut fabric = Self { mesh: Mesh::new(4, bins).unwrap(), desk, _dir: dir };
        for site in SITES {
            fabric.sign(&site);
            fabric.issuer(&site, longest);
            fabric.member(&site);
        }
        fabric
    }

    /// The site's CA, as `ceremony.md` has it made.
    fn sign(&self, site: &Site) {
        let Site { name, dir, .. } = site;
        self.desk.ok(None, &format!("isthmus-ca site csr --site {name} --trust-domain {TD} --out {dir}"));
        self.desk.ok(
            None,
            &format!(
                "isthmus-ca site sign --csr {dir}/site-ca.csr --root root --site {name} --transcript transcript.jsonl"
            ),
        );
    }

    fn issuer(&mut self, site: &Site, longest: &str) {
        let others = SITES.iter().filter(|other| other.issuer != site.issuer);
        let peers: Vec<String> = others.map(|other| format!("192.0.2.{}:51820", other.issuer)).collect();
        let (node, desk) = (self.mesh.node(site.issuer), &self.desk);
        for (from, to) in
            [("root/root.pem".to_owned(), "root.pem"), (format!("{}/site-ca.pem", site.dir), "site-ca.pem")]
        {
            fs::copy(desk.path(&from), node.dir().join(to)).unwrap();
        }
        let key = fs::read_to_string(desk.path(&format!("{}/site-ca.key", site.dir))).unwrap();
        write_secret(&node.dir().join("site-ca.key"), &key).unwrap();
        let config = format!(
            "{}[identity]\ntrust_bundle = \"root.pem\"\n[fabric]\nlongest_leaf = \"{longest}\"\npeers = {peers:?}\n[issuer]\n\
             certificate = \"site-ca.pem\"\nkey = \"site-ca.key\"\nlisten = \"[::]:51820\"\nnode_ttl = \"{longest}\"\n\
             node_paths = [\"/ns/*\"]\n{}{}",
            node_section(node, Some(site.name)),
            workload_section(node),
            mesh::metrics_section()
        );
        self.start_node(site, site.issuer, &config);
    }

    fn member(&mut self, site: &Site) {
        let node = self.mesh.node(site.member);
        fs::copy(self.desk.path("root/root.pem"), node.dir().join("root.pem")).unwrap();
        let config = format!(
            "{}[identity]\ntrust_bundle = \"root.pem\"\njoin_token_file = \"join.token\"\n\
             issuers = [\"192.0.2.{}:51820\"]\n{}{}",
            node_section(node, Some(site.name)),
            site.issuer,
            workload_section(node),
            mesh::metrics_section()
        );
        let token = format!("isthmusctl token create --node {} --ttl 10m", node.name());
        let token = self.desk.ok(Some(self.mesh.node(site.issuer)), &token);
        self.carry(site, &token);
        self.start_node(site, site.member, &config);
    }

    /// A join token goes to where the site's member looks for it.
    pub(super) fn carry(&self, site: &Site, token: &str) {
        write_secret(&self.mesh.node(site.member).dir().join("join.token"), token).unwrap();
    }

    fn start_node(&mut self, site: &Site, n: u8, config: &str) {
        self.mesh.node_mut(n).start(config).unwrap();
        self.mesh.node_mut(n).wait_ready(LIMIT).unwrap();
        self.wait_well(site, n);
    }

    /// Until peers believe it, as far as it knows.
    pub(super) fn wait_well(&mut self, site: &Site, n: u8) {
        let wanted = format!("spiffe://{TD}/site/{}/node/{} until", site.name, mesh::name(n));
        let well = |node: &Node| {
            let identity = identity(node)?;
            ensure!(identity.contains(&wanted) && !identity.contains("not believed"), "{identity}");
            Ok(())
        };
        self.mesh.node_mut(n).wait_until("an identity", LIMIT, well).unwrap();
    }

    /// Until `isthmusctl rotate status` there has such a line; what it says.
    pub(super) fn wait_line(&mut self, n: u8, track: &str, step: &str, words: &str) -> Value {
        let has = |node: &Node| {
            let line = line(node, track, step)?;
            ensure!(line["detail"].as_str().unwrap_or_default().contains(words), "{line} lacks {words:?}");
            Ok(line)
        };
        self.mesh.node_mut(n).wait_until(&format!("{track} {step}"), LIMIT, has).unwrap()
    }

    /// Writes `charter.toml` as a person would.
    pub(super) fn draft(&self, sequence: u64, roots: &[&str], cas: &[(&Site, &str, &str)], crls: &[&str]) {
        let mut text = format!(
            "trust_domain = \"{TD}\"\nsequence = {sequence}\nrefresh_hint = \"1s\"\ncrls = {crls:?}\n"
        );
        for root in roots {
            write!(text, "[[root]]\ncertificate = \"{root}/root.pem\"\nstate = \"active\"\n").unwrap();
        }
        for site in SITES {
            write!(text, "[[site]]\nname = \"{}\"\nids = [\"/ns\"]\n", site.name).unwrap();
            for (_, dir, state) in cas.iter().filter(|(of, ..)| of.name == site.name) {
                write!(text, "[[site.ca]]\ncertificate = \"{dir}/site-ca.pem\"\nstate = \"{state}\"\n")
                    .unwrap();
            }
        }
        self.desk.write("charter.toml", &text);
    }

    /// Publishes a charter at every site's issuer, and waits until every node has it.
    pub(super) fn publish(&mut self, sequence: u64, command: &str) {
        for site in SITES {
            self.desk.ok(Some(self.mesh.node(site.issuer)), command);
        }
        for site in SITES {
            self.wait_line(
                site.issuer,
                "fleet",
                &mesh::name(site.member),
                &format!("charter {sequence} of {sequence}"),
            );
        }
    }

    /// The first digits of the key of the CA in this directory, as the view shows them.
    pub(super) fn digits(&self, dir: &str) -> String {
        self.key(dir).short().to_owned()
    }

    pub(super) fn key(&self, dir: &str) -> KeyHash {
        let file = fs::read(self.desk.path(&format!("{dir}/site-ca.pem"))).unwrap();
        KeyHash::of(&Facts::parse(&certificates(&file).unwrap()[0]).unwrap())
    }
}

fn workload_section(node: &Node) -> String {
    let socket = node.workload_socket();
    format!(
        "[workload_api]\nsocket = {socket:?}\n[[workload_api.entry]]\nspiffe_id = \"/ns/pay/sa/{}\"\n\
         selectors = [\"unix:uid:0\"]\nttl = \"1m\"\n",
        node.name()
    )
}

/// What `isthmusctl status` says of the identity.
pub(super) fn identity(node: &Node) -> Result<String> {
    let subsystems = node.status()?.subsystems;
    Ok(subsystems.into_iter().find(|s| s.name == "identity").context("no identity")?.summary)
}

/// The last line of `isthmusctl rotate status` with this track and step.
pub(super) fn line(node: &Node, track: &str, step: &str) -> Result<Value> {
    let status: Value = serde_json::from_str(&node.ctl_ok(&["rotate", "status", "-o", "json"])?)?;
    let mut lines = status["lines"].as_array().into_iter().flatten();
    let fits =
        |line: &&Value| line["track"] == track && line["step"].as_str().unwrap_or_default().contains(step);
    lines.rfind(fits).cloned().with_context(|| format!("no {track} {step} in {status}"))
}

impl Fabric {
    /// A CA for an Istio cluster, from a ceremony of before.
    pub(super) fn sign_cluster(&self) {
        self.desk.ok(
            None,
            &format!(
                "isthmus-ca site csr --site west --trust-domain {TD} --out west\n\
                 isthmus-ca site sign --csr west/site-ca.csr --root root --site west --transcript transcript.jsonl"
            ),
        );
    }
}

/// A failure at one node has its reason at another.
impl Drop for Fabric {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let nodes = (1..=4).map(|n| self.mesh.node(n));
            let tail =
                |node: &Node| format!("--- the end of {}:\n{}\n", node.log().display(), node.log_tail());
            let text: String = nodes.map(tail).collect();
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }
}
