//! The real `kubectl` between our commands and an API server: the Secret is made and replaced, read back, and judged.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "kubernetes/page.rs"]
mod page;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use isthmus_lab::{
    bins::Bins,
    forge::{Forged, ca_params, leaf_params},
    kube_api::KubeApi,
    peers::installed,
};
use isthmus_pki::{
    bundle::to_pem,
    kubernetes::objects,
    x509::{PemFile, read_crls, to_pem as block},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;

const CACERTS: &str = "/api/v1/namespaces/istio-system/secrets/cacerts";

/// Two clusters and what an operator has on disk.
struct Rig {
    bins: Bins,
    dir: TempDir,
    apis: [KubeApi; 2],
    now: OffsetDateTime,
}

impl Rig {
    fn new() -> Option<Self> {
        if !installed("the tests with kubectl", &["kubectl"]) {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let apis = [KubeApi::start().unwrap(), KubeApi::start().unwrap()];
        KubeApi::kubeconfig(dir.path(), &[("a", &apis[0]), ("b", &apis[1])]).unwrap();
        Some(Self { bins: Bins::build().unwrap(), dir, apis, now: OffsetDateTime::now_utc() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, program: &PathBuf, arguments: &str) -> Output {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace()).current_dir(self.dir.path());
        command.env("KUBECONFIG", self.path("kubeconfig")).env("HOME", self.dir.path()).output().unwrap()
    }

    fn ca(&self, arguments: &str) -> Output {
        self.run(&self.bins.isthmus_ca, arguments)
    }

    #[track_caller]
    fn ok(&self, arguments: &str) -> String {
        let output = self.ca(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, arguments: &str, words: &str) {
        let output = self.ca(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{arguments}: {said}");
    }

    /// Exit code and document of `certs doctor`.
    fn doctor(&self, arguments: &str) -> (i32, Value) {
        let output = self.run(&self.bins.isthmusctl, &format!("certs doctor -o json {arguments}"));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let document =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments}: {e}: {stderr}"));
        (output.status.code().unwrap(), document)
    }

    /// A root and a site CA by that name, in NAME-root.pem, NAME.pem and NAME.key.
    fn site(&self, name: &str) -> (Forged, Forged) {
        let mut params = ca_params(&format!("{name} root"), Some(1), self.now).unwrap();
        params.not_after = self.now + time::Duration::days(3650);
        let root = Forged::root(params).unwrap();
        let ca = root.issue(ca_params(name, Some(0), self.now).unwrap()).unwrap();
        fs::write(self.path(&format!("{name}-root.pem")), to_pem([&root.der])).unwrap();
        fs::write(self.path(&format!("{name}.pem")), to_pem([&ca.der])).unwrap();
        let key = ca.key.serialize_pem();
        isthmus_lab::files::write_secret(&self.path(&format!("{name}.key")), &key).unwrap();
        (root, ca)
    }

    fn roots_in(&self, cluster: usize) -> Vec<String> {
        let secret = self.apis[cluster].get(CACERTS).unwrap();
        let [object] = objects(secret.to_string().as_bytes()).unwrap().try_into().ok().unwrap();
        let roots = PemFile::read("", &object.data["root-cert.pem"]);
        roots.certificates.iter().map(|c| c.facts.subject.clone()).collect()
    }
}

fn errors(document: &Value, check: u8) -> Vec<&Value> {
    let all = document["findings"].as_array().unwrap().iter();
    all.filter(|f| f["check"] == check && f["severity"] == "error").collect()
}

const EXPORT: &str =
    "export istio --ca site.pem --ca-key site.key --root site-root.pem --context a --context b";

#[test]
fn a_new_mesh_gets_its_ca_in_every_cluster() {
    let Some(rig) = Rig::new() else { return };
    rig.site("site");
    rig.ok(&format!("{EXPORT} --dry-run"));
    assert!(rig.apis[0].get(CACERTS).is_none(), "a dry run writes nothing");
    rig.ok(EXPORT);
    for api in &rig.apis {
        let secret = api.get(CACERTS).unwrap();
        let names: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"]);
        assert!(secret["metadata"].get("annotations").is_none(), "apply would leave the key in one");
    }
    let (code, document) = rig.doctor("--context a --context b");
    assert_eq!((code, document["errors"].as_u64()), (0, Some(0)), "{document:#}");
    assert_eq!(document["schema"], "isthmus.v1/certs-doctor");
    // A renewal replaces the version that was looked at.
    rig.ok(EXPORT);
    assert!(rig.apis[0].requests().iter().any(|r| *r == format!("PUT {CACERTS}")));
}

/// The key is in no argument, file of kubectl or output.
#[test]
fn the_key_leaks_nowhere() {
    let Some(rig) = Rig::new() else { return };
    let (_, ca) = rig.site("site");
    let said = rig.ca(EXPORT);
    let secret: String = ca.key.serialize_pem().lines().nth(1).unwrap().to_owned();
    let said = [said.stdout, said.stderr].concat();
    assert!(!String::from_utf8_lossy(&said).contains(&secret));
    let mut folders = vec![rig.path(".kube")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert!(
                    !String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(&secret),
                    "{}",
                    path.display()
                );
            }
        }
    }
}

/// istio/istio#53961, #57853 and #59909.
#[test]
fn a_mesh_with_istiods_own_ca_comes_under_our_root_in_steps() {
    let Some(rig) = Rig::new() else { return };
    rig.site("site");
    for api in &rig.apis {
        let mut params = ca_params("cluster.local", None, rig.now).unwrap();
        params.subject_alt_names.clear();
        let own = Forged::root(params).unwrap();
        let data = json!({"ca-cert.pem": to_pem([&own.der]), "ca-key.pem": own.key.serialize_pem(), "istio-generated": ""});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "istio-ca-secret"}, "stringData": data});
        api.put("istio-system", "secrets", secret);
    }
    rig.fails(EXPORT, "add-root, switch and drop-old");
    rig.fails(&format!("{EXPORT} --step switch"), "add-root first");
    rig.ok(&format!("{EXPORT} --step add-root"));
    assert_eq!(rig.roots_in(0), ["CN=cluster.local", "CN=site root"]);
    rig.fails(&format!("{EXPORT} --step drop-old"), "switch first");
    rig.ok(&format!("{EXPORT} --step switch"));
    assert_eq!(rig.roots_in(1), ["CN=site root", "CN=cluster.local"]);
    rig.ok(&format!("{EXPORT} --step drop-old"));
    assert_eq!(rig.roots_in(0), ["CN=site root"]);
    let secret = rig.apis[0].get(CACERTS).unwrap();
    assert!(secret["data"].get("istio-generated").is_none());
}

#[test]
fn a_ca_that_istiod_would_refuse_is_written_nowhere() {
    let Some(rig) = Rig::new() else { return };
    let (_, ca) = rig.site("site");
    let leaf = ca.issue(leaf_params("spiffe://test.example/a", rig.now).unwrap()).unwrap();
    fs::write(rig.path("site.pem"), to_pem([&leaf.der, &ca.der])).unwrap();
    isthmus_lab::files::write_secret(&rig.path("site.key"), &leaf.key.serialize_pem()).unwrap();
    rig.fails(EXPORT, "is a leaf, not a CA");
    rig.site("site");
    isthmus_lab::files::write_secret(&rig.path("site.key"), &leaf.key.serialize_pem()).unwrap();
    rig.fails(EXPORT, "does not belong to the certificate");
    // Lists of some of the CAs only.
    let ((root, _), (other, _)) = (rig.site("site"), rig.site("other"));
    let write = |name: &str, list: Vec<u8>| fs::write(rig.path(name), block("X509 CRL", &list)).unwrap();
    write("other-crl.pem", other.crl(&[], rig.now).unwrap());
    rig.fails(&format!("{EXPORT} --crl other-crl.pem"), "no list of CN=site root");
    assert!(rig.apis.iter().all(|api| api.get(CACERTS).is_none()));
    // With that of the root it is whole: the signing CA's own is made on the way.
    write("crl.pem", root.crl(&[], rig.now).unwrap());
    rig.ok(&format!("{EXPORT} --crl crl.pem"));
    let secret = rig.apis[0].get(CACERTS).unwrap();
    let [object] = objects(secret.to_string().as_bytes()).unwrap().try_into().ok().unwrap();
    assert_eq!(read_crls(&object.data["ca-crl.pem"]).0.len(), 2);
}

#[test]
fn the_doctor_sees_what_differs_between_live_clusters() {
    let Some(rig) = Rig::new() else { return };
    rig.site("site");
    rig.site("other");
    rig.ok("export istio --ca site.pem --ca-key site.key --root site-root.pem --context a");
    rig.ok("export istio --ca other.pem --ca-key other.key --root other-root.pem --context b");
    let stale = fs::read_to_string(rig.path("site-root.pem")).unwrap();
    let root = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio-ca-root-cert"}, "data": {"root-cert.pem": stale}});
    rig.apis[0].put("shop", "configmaps", root);
    let mesh = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio"}, "data": {"mesh": "trustDomain: cluster.local"}});
    rig.apis[1].put("istio-system", "configmaps", mesh);
    let args = json!({"spec": {"containers": [{"args": ["--serving-port=6443"]}]}});
    let csr = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cert-manager-istio-csr"}, "spec": {"template": args}});
    rig.apis[1].put_at(
        "/apis/apps/v1/namespaces/cert-manager/deployments/cert-manager-istio-csr",
        "cert-manager",
        csr,
    );
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1"}, "spec": {"renewTime": "2099-01-01T00:00:00.000000Z"}});
    rig.apis[0].put_at(
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
        "kube-node-lease",
        lease,
    );
    let (code, document) = rig.doctor("--context a --context b");
    assert_eq!(code, 1);
    let roots = errors(&document, 2);
    assert_eq!(roots.len(), 3, "{document:#}");
    assert!(roots.iter().any(|f| f["file"] == "a: ConfigMap shop/istio-ca-root-cert/root-cert.pem"));
    assert_eq!(errors(&document, 8)[0]["field"], "trustDomain");
    assert_eq!(errors(&document, 17)[0]["file"], "Deployment cert-manager/cert-manager-istio-csr");
    assert_eq!(errors(&document, 13)[0]["file"], "node n1");
    let text = rig.run(&rig.bins.isthmusctl, "certs doctor --context a --context b");
    let (table, progress) =
        (String::from_utf8(text.stdout).unwrap(), String::from_utf8(text.stderr).unwrap());
    assert!(table.contains("Remedy") && table.contains("root-sets"), "{table}");
    assert!(progress.contains("a: reading Secrets"), "{progress}");
    let gone = rig.run(&rig.bins.isthmusctl, "certs doctor --context nowhere");
    assert_eq!(gone.status.code(), Some(2), "{}", String::from_utf8_lossy(&gone.stderr));
}

/// Files of a deployment without a cluster at hand, and the degraded exit code.
#[test]
fn the_doctor_reads_directories_files_and_dumps() {
    let Some(rig) = Rig::new() else { return };
    let (root, _) = rig.site("site");
    rig.ok("export istio --ca site.pem --ca-key site.key --root site-root.pem --out cacerts");
    assert_eq!(rig.doctor("cacerts").0, 0);
    rig.fails(
        "export istio --ca site.pem --ca-key site.key --root site-root.pem --out cacerts",
        "is not overwritten",
    );
    rig.ok("export istio --ca site.pem --ca-key site.key --root site-root.pem --manifest secret.yaml");
    let (code, document) = rig.doctor("secret.yaml cacerts");
    assert_eq!((code, document["errors"].as_u64()), (0, Some(0)), "{document:#}");
    // A CA in the second half of its life is a warning.
    let mut params = ca_params("old", Some(0), rig.now).unwrap();
    params.not_before = rig.now - time::Duration::days(60);
    params.not_after = rig.now + time::Duration::days(40);
    let old = root.issue(params).unwrap();
    fs::write(rig.path("old.pem"), to_pem([&old.der])).unwrap();
    let (code, document) = rig.doctor("old.pem");
    assert_eq!((code, document["worst"].as_str()), (5, Some("warn")), "{document:#}");
    fs::write(rig.path("certs.json"), r#"{"certificates":[]}"#).unwrap();
    let (code, document) = rig.doctor("--envoy-admin certs.json");
    assert_eq!((code, errors(&document, 7).len()), (1, 1));
}
