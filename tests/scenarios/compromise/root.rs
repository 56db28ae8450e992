//! The root's key is stolen.

use std::{fs, time::Duration};

use isthmus_lab::{mesh, sandbox};
use isthmus_pki::{
    Authority, Charter, Key, KeyHash, TrustDomain,
    bundle::certificates,
    charter::{CaState, PinnedCa, Root, RootState, sealed},
};

use super::{
    desk::{PASSPHRASE, Page},
    fabric::{AWS, AZURE, Fabric, LIMIT, SITES, Site, TD},
    thief::Thief,
    workload::Workload,
};

const OVERRIDE: &str = "--override \"the root is stolen\"";

#[test]
fn a_stolen_root_is_worth_nothing_after_its_last_charter() {
    let limit = Duration::from_secs(300);
    let name = "compromise::root::a_stolen_root_is_worth_nothing_after_its_last_charter";
    sandbox::run_with_bins_for(limit, name, |bins| {
        let mut page = Page::section("The root");
        let mut fabric = Fabric::start(bins, "1m");
        let stolen = stolen_root(&fabric);
        let thief = Thief::with_root(&stolen, AWS.name);
        let call = thief.call(&AWS);
        call.is_served();
        fabric.mesh.node_mut(AZURE.member).stop().unwrap();
        let workloads = [AWS.issuer, AWS.member, AZURE.issuer]
            .map(|n| Workload::connect(&fabric.mesh.node(n).workload_socket()));

        // Both roots, and the CAs that are ours.
        let old = [(&AWS, "aws", "active"), (&AZURE, "azure", "active")];
        fabric.draft(1, &["root", "root-2"], &old, &[]);
        fabric.desk.ok(None, &page.next().join("\n"));
        let publish = page.next().remove(0);
        each(&fabric, |_| publish.clone());
        assert!(!call.ends(Duration::from_secs(10)).is_empty());
        thief.call(&AWS).ends(LIMIT);
        fabric.wait_line(AWS.issuer, "fleet", "gw2", "charter 1 of 1");
        // Until the old root is gone it still has a word.
        thiefs_charter(&fabric, &stolen, &thief, &["root", "root-2"], 50);
        fabric.desk.ok(
            Some(fabric.mesh.node(AZURE.issuer)),
            "isthmusctl rotate root publish thief-50.jws --dry-run --override dry",
        );

        // A new CA at every site, pinned as prepared.
        let steps = [page.next().remove(0), page.next().remove(0), page.next().remove(0)];
        for site in SITES {
            let [prepare, sign, install] = steps.clone().map(|step| of_site(&step, &site));
            fabric.desk.ok(Some(fabric.mesh.node(site.issuer)), &prepare);
            fabric.desk.ok(None, &sign);
            fabric.desk.ok(Some(fabric.mesh.node(site.issuer)), &install);
        }
        let new = [(&AWS, "aws-2", "prepared"), (&AZURE, "azure-2", "prepared")];
        fabric.draft(2, &["root", "root-2"], &[&old[..], &new[..]].concat(), &[]);
        fabric.desk.ok(None, &page.next().join("\n"));
        let [publish, activate, status] = &page.next()[..] else { panic!("three commands") };
        let lags = fabric.desk.refused(Some(fabric.mesh.node(AWS.issuer)), publish);
        assert!(lags.contains("node gw9 lags") && !lags.contains("gw2"), "{lags}");
        fabric.desk.ok(Some(fabric.mesh.node(AWS.issuer)), "isthmusctl rotate forget gw9");
        let lags = fabric.desk.refused(Some(fabric.mesh.node(AZURE.issuer)), publish);
        assert!(lags.contains("node gw4 lags"), "{lags}");
        each(&fabric, |site| {
            if site.issuer == AZURE.issuer { format!("{publish} {OVERRIDE}") } else { publish.clone() }
        });
        fabric.wait_line(AWS.issuer, "fleet", "gw2", "charter 2 of 2");
        each(&fabric, |_| activate.clone());

        // Everybody who is awake follows, and then the old root goes.
        for (site, node) in [(&AWS, AWS.issuer), (&AWS, AWS.member), (&AZURE, AZURE.issuer)] {
            let heir = fabric.digits(&format!("{}-2", site.dir));
            fabric.wait_line(site.issuer, "fleet", &mesh::name(node), &heir);
        }
        for (workload, dir) in workloads.iter().zip(["aws-2", "aws-2", "azure-2"]) {
            workload.until_issued_by(&fabric.key(dir), Duration::from_secs(60));
        }
        assert!(fabric.desk.ok(Some(fabric.mesh.node(AWS.issuer)), status).contains(&fabric.digits("aws-2")));
        fabric.draft(3, &["root-2"], &[(&AWS, "aws-2", "active"), (&AZURE, "azure-2", "active")], &[]);
        fabric.desk.ok(None, &page.next().join("\n"));
        let retire = page.next().remove(0);
        each(&fabric, |_| retire.clone());
        workloads.iter().for_each(|workload| workload.until_roots(1, LIMIT));
        for (site, node) in [(AWS, AWS.issuer), (AWS, AWS.member), (AZURE, AZURE.issuer)] {
            fabric.wait_well(&site, node);
        }

        nothing_is_left_to_the_thief(&fabric, &stolen, thief);
        take_the_old_root_out_of_files(&fabric);
        let audit = page.next().join("\n");
        let log = fabric.mesh.node(AWS.issuer).state_dir().join("audit.jsonl");
        let whole = fabric.desk.ok(
            Some(fabric.mesh.node(AWS.issuer)),
            &audit.replace("/var/lib/isthmus/audit.jsonl", &log.display().to_string()),
        );
        assert!(whole.contains("agrees with the signed head"), "{whole}");
        assert!(page.is_over(), "the page has commands that nobody typed");
        a_sleeper_comes_back(&mut fabric);
        workloads.iter().for_each(Workload::is_well);
        workloads.iter().for_each(Workload::was_never_sent_away);
    });
}

/// The page speaks of one site.
fn of_site(command: &str, site: &Site) -> String {
    command.replace("aws-use1", site.name).replace("aws-2", &format!("{}-2", site.dir))
}

fn each(fabric: &Fabric, command: impl Fn(&Site) -> String) {
    for site in SITES {
        fabric.desk.ok(Some(fabric.mesh.node(site.issuer)), &command(&site));
    }
}

fn stolen_root(fabric: &Fabric) -> Authority {
    let file = |name: &str| fs::read(fabric.desk.path(name)).unwrap();
    let key = Key::from_pem(&file("root/root.key"), Some(PASSPHRASE.as_bytes())).unwrap();
    Authority::load(certificates(&file("root/root.pem")).unwrap().swap_remove(0), key).unwrap()
}

/// A charter that the thief wrote: his CA is the site's.
fn thiefs_charter(fabric: &Fabric, stolen: &Authority, thief: &Thief, roots: &[&str], sequence: u64) {
    let root = |dir: &&str| {
        let file = fs::read(fabric.desk.path(&format!("{dir}/root.pem"))).unwrap();
        let certificate = certificates(&file).unwrap().swap_remove(0);
        let key = KeyHash::of(&isthmus_pki::Facts::parse(&certificate).unwrap());
        Root { certificate, key, state: RootState::Active }
    };
    let pin =
        |key: KeyHash| PinnedCa { key, root: Some(KeyHash::of(stolen.facts())), state: CaState::Active };
    let site = |site: &Site, keys: Vec<KeyHash>| isthmus_pki::charter::Site {
        name: site.name.into(),
        ids: vec!["/".into()],
        cas: keys.into_iter().map(pin).collect(),
    };
    let his = KeyHash::of(thief.ca().facts());
    let charter = Charter {
        trust_domain: TrustDomain::parse(TD).unwrap(),
        sequence,
        issued_at: 0,
        refresh_hint: 60,
        roots: roots.iter().map(root).collect(),
        sites: vec![site(&AWS, vec![fabric.key("aws"), his]), site(&AZURE, vec![fabric.key("azure")])],
        crls: Vec::new(),
    };
    fabric.desk.write(&format!("thief-{sequence}.jws"), &sealed::seal(&charter, &[stolen]).unwrap());
}

fn nothing_is_left_to_the_thief(fabric: &Fabric, stolen: &Authority, mut thief: Thief) {
    thiefs_charter(fabric, stolen, &thief, &["root"], 51);
    thief.learn(&fs::read(fabric.desk.path("root-2/root.pem")).unwrap());
    for site in SITES {
        let node = Some(fabric.mesh.node(site.issuer));
        for charter in ["thief-50.jws", "thief-51.jws"] {
            let refused =
                fabric.desk.refused(node, &format!("isthmusctl rotate root publish {charter} {OVERRIDE}"));
            assert!(refused.contains("no root that this node trusts now"), "{refused}");
        }
        thief.call(&site).ends(LIMIT);
        let shown = fabric.desk.ok(node, "isthmusctl rotate status");
        let old = KeyHash::of(stolen.facts());
        assert!(!shown.contains(&format!("{} trusted", old.short())), "{shown}");
    }
}

/// Whatever is left of the old root is what a node would begin with.
fn take_the_old_root_out_of_files(fabric: &Fabric) {
    for n in [AWS.issuer, AWS.member, AZURE.issuer] {
        fs::copy(fabric.desk.path("root-2/root.pem"), fabric.mesh.node(n).dir().join("root.pem")).unwrap();
        fabric.desk.ok(Some(fabric.mesh.node(n)), "systemctl reload isthmusd");
    }
}

/// It slept through all of it: the new root by hand, and a token.
fn a_sleeper_comes_back(fabric: &mut Fabric) {
    let node = fabric.mesh.node(AZURE.member);
    fs::copy(fabric.desk.path("root-2/root.pem"), node.dir().join("root.pem")).unwrap();
    fs::remove_dir_all(node.state_dir().join("identity/rotation")).unwrap();
    let token =
        fabric.desk.ok(Some(fabric.mesh.node(AZURE.issuer)), "isthmusctl token create --node gw4 --ttl 10m");
    fabric.carry(&AZURE, &token);
    fabric.mesh.node_mut(AZURE.member).restart().unwrap();
    fabric.mesh.node_mut(AZURE.member).wait_ready(LIMIT).unwrap();
    fabric.wait_well(&AZURE, AZURE.member);
    let heir = fabric.digits("azure-2");
    fabric.wait_line(AZURE.issuer, "fleet", "gw4", &heir);
}
