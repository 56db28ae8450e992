//! `docs/how-to/istio.md`, command by command, less those that need a cluster's controllers or a running mesh.

use std::{fs, os::unix::fs::symlink, process::Command};

use isthmus_lab::{
    forge::{Forged, ca_params, leaf_params},
    kube_api::KubeApi,
    page::Page,
};
use isthmus_pki::bundle::to_pem;
use serde_json::json;

use super::{CACERTS, Rig};

/// The clusters of the page, and the files where it has them: `root/root.pem`, and `site-ca.pem` and `site-ca.key` of each cluster.
fn operator(rig: &Rig) -> Page {
    KubeApi::kubeconfig(rig.dir.path(), &[("west", &rig.apis[0]), ("east", &rig.apis[1])]).unwrap();
    for dir in ["root", "west", "east", "bin"] {
        fs::create_dir(rig.path(dir)).unwrap();
    }
    let (root, west) = rig.site("west");
    let east = root.issue(ca_params("east", Some(0), rig.now).unwrap()).unwrap();
    fs::write(rig.path("root/root.pem"), to_pem([&root.der])).unwrap();
    for (name, ca) in [("west", &west), ("east", &east)] {
        fs::write(rig.path(&format!("{name}/site-ca.pem")), to_pem([&ca.der])).unwrap();
        let key = rig.path(&format!("{name}/site-ca.key"));
        isthmus_lab::files::write_secret(&key, &ca.key.serialize_pem()).unwrap();
    }
    let leaf = west.issue(leaf_params("spiffe://test.example/ns/shop/sa/web", rig.now).unwrap()).unwrap();
    fs::write(rig.path("leaf.pem"), to_pem([&leaf.der, &west.der])).unwrap();
    symlink(&rig.bins.isthmus_ca, rig.path("bin/isthmus-ca")).unwrap();
    symlink(&rig.bins.isthmusctl, rig.path("bin/isthmusctl")).unwrap();
    Page::read("how-to/istio.md").unwrap()
}

/// Code and output of a line as it is typed.
fn typed(rig: &Rig, line: &str) -> (Option<i32>, String) {
    let path = format!("{}:{}", rig.path("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(rig.dir.path()).env("PATH", path);
    command.env("KUBECONFIG", rig.path("kubeconfig")).env("HOME", rig.dir.path());
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// Each line of a block; the doctor may find something, all else must succeed. Returns what the doctor's codes were.
fn block(rig: &Rig, block: &str) -> Vec<Option<i32>> {
    let mut judged = Vec::new();
    // A namespace is created in a form that the small server does not read, and it restarts nothing.
    let here =
        |line: &&str| !["create namespace", "rollout restart"].iter().any(|words| line.contains(words));
    for line in block.lines().filter(here) {
        let (code, said) = typed(rig, line);
        if line.starts_with("isthmusctl certs doctor") {
            assert!(matches!(code, Some(0 | 1 | 5)) && said.contains("CHECK"), "{line}: {code:?}: {said}");
            judged.push(code);
        } else {
            assert_eq!(code, Some(0), "{line}: {said}");
        }
    }
    judged
}

#[test]
fn the_page_on_istio_works_as_written_for_a_new_mesh() {
    let Some(rig) = Rig::new() else { return };
    let page = operator(&rig);
    assert_eq!(block(&rig, &page.block("sh", "create namespace").unwrap()), [Some(0)]);
    assert!(rig.apis[0].get(CACERTS).is_some() && rig.apis[1].get(CACERTS).is_none());
    // The other two forms, as the text below the block names them.
    let export =
        "isthmus-ca export istio --ca west/site-ca.pem --ca-key west/site-ca.key --root root/root.pem";
    for form in ["--manifest secret.yaml", "--out cacerts"] {
        assert!(page.says(form), "{form}");
        let (code, said) = typed(&rig, &format!("{export} {form}"));
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn the_page_on_istio_works_as_written_for_a_mesh_that_runs() {
    let Some(rig) = Rig::new() else { return };
    let page = operator(&rig);
    for api in &rig.apis {
        let mut params = ca_params("cluster.local", None, rig.now).unwrap();
        params.subject_alt_names.clear();
        let own = Forged::root(params).unwrap();
        let data = json!({"ca-cert.pem": to_pem([&own.der]), "ca-key.pem": own.key.serialize_pem(), "istio-generated": ""});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "istio-ca-secret"}, "stringData": data});
        api.put("istio-system", "secrets", secret);
    }
    let add = page.block("sh", "--step add-root").unwrap();
    for step in ["add-root", "switch", "drop-old"] {
        assert!(page.says(&format!("--step {step}")), "{step}");
        let west = add.replace("--step add-root", &format!("--step {step}"));
        // "In every cluster before the next step in any."
        let east = west
            .replace("west/site-ca", "east/site-ca")
            .replace("--context west --step", "--context east --step");
        for lines in [west, east] {
            block(&rig, &lines);
        }
    }
    for cluster in [0, 1] {
        assert_eq!(rig.roots_in(cluster), ["CN=west root"]);
    }
    wrong(&rig, &page);
}

/// The commands for when something is wrong find nothing wrong in the end.
fn wrong(rig: &Rig, page: &Page) {
    for name in ["west", "east"] {
        let export = format!(
            "isthmus-ca export istio --ca {name}/site-ca.pem --ca-key {name}/site-ca.key --root root/root.pem --out cacerts-{name}"
        );
        assert_eq!(typed(rig, &export).0, Some(0));
    }
    fs::write(rig.path("certs.json"), r#"{"certificates":[{"cert_chain":[{"subject_alt_names":[{"uri":"spiffe://test.example/a"}],"valid_from":"2026-06-01T11:59:00Z"}]}]}"#).unwrap();
    fs::write(rig.path("stats.txt"), "cluster.sds-grpc.update_rejected: 0\n").unwrap();
    let judged = block(rig, &page.block("sh", "--envoy-admin").unwrap());
    assert_eq!(judged.len(), 3);
    assert_eq!(judged[1..], [Some(0), Some(0)], "files and proxies");
}
