//! `docs/how-to/enroll.md`

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::ensure;
use isthmus_lab::{
    bins::Bins,
    mesh::Mesh,
    page::{Page, shell},
    pki::Pki,
    sandbox,
};
use time::OffsetDateTime;

use super::{LIMIT, here, own_places};

/// The site of the page.
const SITE: &str = "aws-use1";
const ID: &str = "/site/aws-use1/node/gw2";

/// Gateway 1 is the issuer, at the first address that the page names; gateway 2 is to join.
struct Site {
    mesh: Mesh,
    page: Page,
    /// The issuer's configuration, as far as the page has come.
    issuer: String,
    bins: Bins,
}

impl Site {
    fn start(bins: &Bins) -> Self {
        let (mut mesh, page) = (Mesh::new(2, bins).unwrap(), Page::read("how-to/enroll.md").unwrap());
        let node = mesh.node(1);
        Pki::new(SITE, OffsetDateTime::now_utc()).unwrap().write_site(node.dir()).unwrap();
        let places = own_places(node);
        let text = here(node, &page.block("toml", "listen = ").unwrap());
        let issuer = format!("[node]\nname = \"gw1\"\nsite = \"{SITE}\"\n{places}{text}");
        mesh.node_mut(1).start(&issuer).unwrap();
        mesh.node_mut(1).wait_ready(LIMIT).unwrap();
        Self { mesh, page, issuer, bins: bins.clone() }
    }

    /// Runs the block of commands that has these words in it.
    fn run(&self, n: u8, words: &str) -> String {
        shell(self.mesh.node(n), &self.bins, &self.page.block("sh", words).unwrap()).unwrap()
    }

    fn wait_until_said(&mut self, n: u8, command: &str, words: &str) {
        let bins = self.bins.clone();
        let node = self.mesh.node_mut(n);
        node.wait_until(words, LIMIT, |node| {
            let said = shell(node, &bins, command)?;
            ensure!(said.contains(words), "{said}");
            Ok(())
        })
        .unwrap();
    }

    /// Adds lines to `[issuer]` and reloads.
    fn allow(&mut self, lines: &str) {
        self.issuer += lines;
        let issuer = self.issuer.clone();
        assert_eq!(self.mesh.node_mut(1).reload(&issuer, LIMIT).unwrap().1, "");
    }
}

/// Each block of the page in its order, then what it says of putting a node out.
#[test]
fn the_page_on_enrolment_works_as_written() {
    sandbox::run_with_bins("enroll::the_page_on_enrolment_works_as_written", |bins| {
        let mut site = Site::start(bins);
        site.wait_until_said(1, "isthmusctl status", "/site/aws-use1/node/gw1");
        let listed = site.run(1, "token create");
        assert!(listed.contains("gw2"), "{listed}");

        let node = member(&mut site);
        site.mesh.node_mut(2).start(&node).unwrap();
        site.mesh.node_mut(2).wait_ready(LIMIT).unwrap();
        site.wait_until_said(2, "isthmusctl status", ID);
        let shown = site.run(2, "isthmusctl certs");
        assert!(shown.contains(ID) && shown.contains("RENEWS"), "{shown}");
        let (dir, state) = (site.mesh.node(2).dir(), site.mesh.node(2).state_dir());
        assert!(!dir.join("join.token").exists(), "a token that was used is removed");
        let key = fs::metadata(state.join("identity/node.pem")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);

        workloads(&mut site, &node);
        assert!(site.page.says("`banned_nodes = [\"gw2\"]` in `[issuer]`"));
        site.allow("banned_nodes = [\"gw2\"]\n");
        let banned = |node: &isthmus_lab::node::Node| {
            ensure!(node.log_text().contains("banned at this site"), "nothing of it in the log");
            Ok(())
        };
        site.mesh.node_mut(1).wait_until("the end of its connections", LIMIT, banned).unwrap();
    });
}

/// Carries root and token over, and says what the node's configuration is.
fn member(site: &mut Site) -> String {
    let (issuer, node) = (site.mesh.node(1), site.mesh.node(2));
    for file in ["root.pem", "join.token"] {
        fs::copy(issuer.dir().join(file), node.dir().join(file)).unwrap();
    }
    let text = here(node, &site.page.block("toml", "join_token_file").unwrap());
    assert!(text.starts_with("[node]\nname = \"gw2\"\nsite = \"aws-use1\"\n"), "{text}");
    text.replacen("\n\n", &format!("\n{}", own_places(node)), 1)
}

/// What `node_paths` allows, a workload of that node gets, and nothing before.
fn workloads(site: &mut Site, node: &str) {
    let api = format!(
        "[workload_api]\nsocket = {:?}\n[[workload_api.entry]]\nspiffe_id = \"/ns/payments/sa/api\"\n\
         selectors = [\"unix:uid:0\"]\ndns_names = [\"payments.example\"]\n",
        site.mesh.node(2).workload_socket()
    );
    assert_eq!(site.mesh.node_mut(2).reload(&format!("{node}{api}"), LIMIT).unwrap().1, "");
    assert!(
        shell(site.mesh.node(2), &site.bins, "isthmusctl svid fetch").is_err(),
        "by default they give none"
    );
    let rules = site.page.block("toml", "node_paths").unwrap();
    site.allow(&rules);
    let bins = site.bins.clone();
    site.mesh
        .node_mut(2)
        .wait_until("an SVID", LIMIT, |node| {
            let said = shell(node, &bins, "isthmusctl svid fetch")?;
            ensure!(said.contains("/ns/payments/sa/api"), "{said}");
            Ok(())
        })
        .unwrap();
}
