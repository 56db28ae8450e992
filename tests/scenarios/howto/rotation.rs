//! `docs/how-to/rotation.md`

use std::{fs, time::Duration};

use isthmus_lab::{bins::Bins, node::Node, page::Page, sandbox};
use serde_json::Value;

use crate::{
    fabric::{AWS, AZURE, Fabric, LIMIT, SITES, Site, line},
    workload::Workload,
};

/// Leaves live for a minute, and the last one of a CA is waited for twice.
const LAST_LEAF: Duration = Duration::from_secs(150);

/// Both sites with a charter, and a workload at each node that watches all of it.
struct Rotation {
    fabric: Fabric,
    page: Page,
    workloads: [Workload; 4],
}

impl Rotation {
    fn start(bins: &Bins) -> Self {
        let mut fabric = Fabric::start(bins, "1m");
        let workloads = [AWS.issuer, AWS.member, AZURE.issuer, AZURE.member]
            .map(|n| Workload::connect(&fabric.mesh.node(n).workload_socket()));
        fabric.draft(1, &["root"], &[(&AWS, "aws", "active"), (&AZURE, "azure", "active")], &[]);
        fabric
            .desk
            .ok(None, "isthmus-ca charter sign --charter charter.toml --root root --out charter-1.jws");
        fabric.publish(1, "isthmusctl rotate root publish charter-1.jws");
        Self { fabric, page: Page::read("how-to/rotation.md").unwrap(), workloads }
    }

    /// The block of commands that has these words in it.
    fn block(&self, words: &str) -> String {
        self.page.block("sh", words).unwrap()
    }

    /// Types it at a site's issuer, whose machine is the root's too.
    fn at(&self, site: &Site, script: &str) -> String {
        self.fabric.desk.ok(Some(self.fabric.mesh.node(site.issuer)), script)
    }

    /// A block that ends in a command for each site's issuer: all of it at one, the last line at the other.
    fn at_each(&self, block: &str) -> [String; 2] {
        let last = block.trim_end().lines().last().unwrap();
        [self.at(&AWS, block), self.at(&AZURE, last)]
    }

    /// Types it again and again while it is said to be too early.
    fn once_it_is_time(&mut self, site: &Site, script: &str) {
        let (fabric, desk) = (&mut self.fabric.mesh, &self.fabric.desk);
        let ordered = |node: &Node| {
            let output = desk.types(Some(node), script);
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() || said.contains("too early"), "{script}: {said}");
            anyhow::ensure!(output.status.success(), "{said}");
            Ok(())
        };
        fabric.node_mut(site.issuer).wait_until(script, LAST_LEAF, ordered).unwrap();
    }

    /// Workloads and nodes of these sites have certificates of the CAs in these directories.
    fn follow(&mut self, heirs: &[(Site, &str)]) {
        for (site, dir) in heirs {
            let (key, first) = (self.fabric.key(dir), usize::from(site.issuer) - 1);
            for workload in &self.workloads[first..first + 2] {
                workload.until_issued_by(&key, LAST_LEAF);
            }
            for node in [site.issuer, site.member] {
                self.fabric.wait_line(site.issuer, "fleet", &isthmus_lab::mesh::name(node), key.short());
            }
        }
    }

    fn wait_charter(&mut self, sequence: u64) {
        for site in SITES {
            let has = format!("charter {sequence} of {sequence}");
            self.fabric.wait_line(site.issuer, "fleet", &isthmus_lab::mesh::name(site.member), &has);
        }
    }
}

/// Each block of the page in its order, while every workload has a certificate that holds.
#[test]
fn the_page_on_rotation_works_as_written() {
    let limit = Duration::from_secs(540);
    sandbox::run_with_bins_for(limit, "rotation::the_page_on_rotation_works_as_written", |bins| {
        let mut rotation = Rotation::start(bins);
        leaves(&mut rotation);
        a_site_ca(&mut rotation);
        the_root(&mut rotation);
        for workload in &rotation.workloads {
            workload.is_well();
            workload.was_never_sent_away();
        }
        a_node_that_never_comes_back(&mut rotation);
    });
}

/// Serial numbers of what the workloads of a node have.
fn serials(node: &Node) -> anyhow::Result<Vec<String>> {
    let listed: Value = serde_json::from_str(&node.ctl_ok(&["certs", "-o", "json"])?)?;
    let all = listed["certificates"].as_array().into_iter().flatten();
    let theirs = all.filter(|one| one["spiffe_id"].as_str().unwrap_or_default().contains("/ns/pay/"));
    Ok(theirs.map(|one| one["serial"].as_str().unwrap_or_default().to_owned()).collect())
}

fn leaves(rotation: &mut Rotation) {
    let before = serials(rotation.fabric.mesh.node(AWS.issuer)).unwrap();
    assert_eq!(before.len(), 1, "{before:?}");
    rotation.at(&AWS, &rotation.block("rotate leaf"));
    let others = |node: &Node| {
        let after = serials(node)?;
        anyhow::ensure!(after.len() == 1 && after != before, "{after:?}");
        Ok(())
    };
    rotation.fabric.mesh.node_mut(AWS.issuer).wait_until("another leaf", LIMIT, others).unwrap();
}

fn a_site_ca(rotation: &mut Rotation) {
    rotation.at(&AWS, &rotation.block("--out next.csr"));
    let early = rotation.fabric.desk.refused(
        Some(rotation.fabric.mesh.node(AWS.issuer)),
        &rotation.block("rotate intermediate activate"),
    );
    assert!(early.contains("not pinned"), "nodes refuse what is in no charter: {early}");

    rotation.fabric.desk.write("charter.toml", &as_on_the_page(&rotation.page));
    let [said, _] = rotation.at_each(&rotation.block("charter-2.jws --dry-run"));
    assert!(said.contains("prepared") && said.contains(&rotation.fabric.digits("next")), "{said}");
    rotation.wait_charter(2);
    rotation.at(&AWS, &rotation.block("rotate intermediate activate"));
    rotation.follow(&[(AWS, "next")]);
    let old = rotation.fabric.digits("aws");
    let shown = line(rotation.fabric.mesh.node(AWS.issuer), "intermediate", &old).unwrap();
    assert!(shown["step"].as_str().unwrap().contains("retiring"), "{shown}");
}

/// The page's charter, of a fabric that has another site.
fn as_on_the_page(page: &Page) -> String {
    let text = page.block("toml", "trust_domain").unwrap();
    let ours = text.replace("\"5m\"", "\"1s\"").replace("/ns/payments", "/ns/pay");
    assert!(ours.contains("\"1s\"") && ours.contains("\"/ns/pay\""), "{ours}");
    ours + "[[site]]\nname = \"azure-eastus\"\nids = [\"/ns/pay\"]\n[[site.ca]]\n"
        + "certificate = \"azure/site-ca.pem\"\nstate = \"active\"\n"
}

fn the_root(rotation: &mut Rotation) {
    let old = [(&AWS, "aws", "retiring"), (&AWS, "next", "active"), (&AZURE, "azure", "active")];
    rotation.fabric.draft(3, &["root", "root-2"], &old, &[]);
    // The new root is made before the charter that names it is read: one block.
    rotation.at_each(&rotation.block("root init"));
    rotation.wait_charter(3);
    rotation.workloads.iter().for_each(|workload| workload.until_roots(2, LIMIT));

    let prepare = rotation.block("aws-2.csr");
    for site in SITES {
        let own = prepare.replace("aws-use1", site.name).replace("aws-2", &format!("{}-2", site.dir));
        rotation.at(&site, &own);
    }
    let new = [(&AWS, "aws-2", "prepared"), (&AZURE, "azure-2", "prepared")];
    rotation.fabric.draft(4, &["root", "root-2"], &[&old[..], &new[..]].concat(), &[]);
    rotation.at_each(&rotation.block("--out charter-4.jws"));
    rotation.wait_charter(4);
    let activate = rotation.block("rotate root activate");
    SITES.iter().for_each(|site| rotation.once_it_is_time(site, &activate));
    rotation.follow(&[(AWS, "aws-2"), (AZURE, "azure-2")]);

    let heirs = [(&AWS, "aws-2", "active"), (&AZURE, "azure-2", "active")];
    rotation.fabric.draft(5, &["root-2"], &heirs, &[]);
    retire(rotation);
    for (site, dir) in [(AWS, "aws"), (AWS, "next"), (AZURE, "azure")] {
        let gone = format!("{} gone", rotation.fabric.digits(dir));
        rotation.fabric.wait_line(site.issuer, "intermediate", &gone, "");
    }
    take_the_old_root_out(rotation);
}

/// Signed once, ordered when nobody has a leaf of the old root any more.
fn retire(rotation: &mut Rotation) {
    let block = rotation.block("--out charter-5.jws");
    let (sign, retire) = block.split_once('\n').unwrap();
    rotation.fabric.desk.ok(None, sign);
    let early = rotation.fabric.desk.refused(Some(rotation.fabric.mesh.node(AWS.issuer)), retire);
    assert!(early.contains("too early") && early.contains("last leaf"), "{early}");
    SITES.iter().for_each(|site| rotation.once_it_is_time(site, retire));
    rotation.workloads.iter().for_each(|workload| workload.until_roots(1, LIMIT));
    for site in SITES {
        rotation.fabric.wait_well(&site, site.issuer);
        rotation.fabric.wait_well(&site, site.member);
    }
}

/// The last step: files, and what a reload makes of them.
fn take_the_old_root_out(rotation: &mut Rotation) {
    for site in SITES {
        for n in [site.issuer, site.member] {
            let node = rotation.fabric.mesh.node(n);
            fs::copy(rotation.fabric.desk.path("root-2/root.pem"), node.dir().join("root.pem")).unwrap();
            rotation.fabric.desk.ok(Some(node), "systemctl reload isthmusd");
            rotation.fabric.wait_well(&site, n);
        }
    }
}

fn a_node_that_never_comes_back(rotation: &mut Rotation) {
    rotation.fabric.mesh.node_mut(AZURE.member).stop().unwrap();
    assert!(rotation.page.says("`isthmusctl rotate forget NODE`"));
    let node = || rotation.fabric.mesh.node(AZURE.issuer);
    line(node(), "fleet", "gw4").unwrap();
    rotation.at(&AZURE, "isthmusctl rotate forget gw4");
    let forgotten = line(node(), "fleet", "gw4").unwrap_err();
    assert!(forgotten.to_string().starts_with("no fleet gw4"), "{forgotten}");
    let journal = fs::read_to_string(node().state_dir().join("identity/rotation/journal.jsonl")).unwrap();
    assert!(journal.contains("gw4") && !journal.contains("PRIVATE KEY"), "{journal}");
}
