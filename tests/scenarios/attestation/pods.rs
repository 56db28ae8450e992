//! Pods, by cgroups that look as a kubelet's do.

use isthmus_lab::{peers::skipped, sandbox};

use super::{
    cgroups::Cgroup,
    kubelet::Kubelet,
    rig::{LIMIT, Rig, entry},
};

const KUBELET: &str =
    "[workload_api.kubernetes]\ntoken_file = \"token\"\nca_file = \"kubelet-ca.pem\"\nnode_name = \"gw1\"\n";

/// A pod with one container, as the kernel and the kubelet have it.
struct Pod {
    uid: String,
    id: String,
    cgroup: Cgroup,
}

impl Pod {
    fn new(n: u32) -> Option<Self> {
        let (process, uid) = (rand::random::<u32>(), 0x1000 + n);
        let uid = format!("{process:08x}-0000-4000-8000-{uid:012x}");
        let id = format!("{:064x}", u64::from(process) << 16 | u64::from(n));
        let cgroup = Cgroup::new(&format!("isthmus-lab-{process:08x}/kubepods/besteffort/pod{uid}/{id}"))?;
        Some(Self { uid, id, cgroup })
    }

    fn json(&self, namespace: &str, label: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"api-0","namespace":"{namespace}","uid":"{}","labels":{{"app":"{label}"}}}},"spec":{{"serviceAccountName":"api","nodeName":"gw1"}},
                "status":{{"containerStatuses":[{{"name":"main","image":"r.example/api:1","imageID":"r.example/api@sha256:0","containerID":"containerd://{}"}}]}}}}"#,
            self.uid, self.id
        )
    }
}

fn list(pods: &[String]) -> String {
    format!(r#"{{"kind":"PodList","items":[{}]}}"#, pods.join(","))
}

#[test]
fn a_pod_gets_what_its_namespace_and_account_say() {
    let name = "pods::a_pod_gets_what_its_namespace_and_account_say";
    sandbox::run_with_bins(name, |bins| {
        let (Some(one), Some(two)) = (Pod::new(1), Pod::new(2)) else {
            return skipped(name, "no cgroup can be made here");
        };
        let mut rig = Rig::new(bins);
        let kubelet = Kubelet::start(rig.node.netns(), rig.node.dir());
        let entries = entry("/ns/{k8s:ns}/sa/{k8s:sa}", &["k8s:pod"])
            + &entry(
                "/main",
                &["k8s:container-name:main", "k8s:container-image:r.example/api:1", "k8s:pod-label:app:api"],
            );
        rig.start(&format!("{KUBELET}{entries}"));
        let fetch = |pod: &Pod| rig.fetch_by("isthmusctl", &pod.cgroup.enter());

        // Nobody has told of it yet; then it is there.
        fetch(&one).is_denied();
        kubelet.says("200 OK", &list(&[one.json("payments", "api")]));
        fetch(&one).has(&["/ns/payments/sa/api", "/main"]);
        rig.fetch().is_denied();
        // A name that would be another's path is none.
        kubelet.says("200 OK", &list(&[one.json("payments", "api"), two.json("a/../payments", "api")]));
        fetch(&two).has(&["/main"]);
        let log = rig.node.log_text();
        assert!(!log.contains("k8s:") && !log.contains("lab-token") && !log.contains("api-0"), "{log}");
    });
}

#[test]
fn a_kubelet_that_is_away_shows_and_takes_nothing_away() {
    let name = "pods::a_kubelet_that_is_away_shows_and_takes_nothing_away";
    sandbox::run_with_bins(name, |bins| {
        let (Some(one), Some(two)) = (Pod::new(3), Pod::new(4)) else {
            return skipped(name, "no cgroup can be made here");
        };
        let mut rig = Rig::new(bins);
        let kubelet = Kubelet::start(rig.node.netns(), rig.node.dir());
        kubelet.says("200 OK", &list(&[one.json("payments", "api")]));
        rig.start(&format!("{KUBELET}{}", entry("/ns/{k8s:ns}/sa/{k8s:sa}", &["k8s:pod"])));
        rig.fetch_by("isthmusctl", &one.cgroup.enter()).has(&["/ns/payments/sa/api"]);

        kubelet.says("403 Forbidden", "");
        rig.fetch_by("isthmusctl", &two.cgroup.enter()).is_put_off();
        rig.fetch_by("isthmusctl", &one.cgroup.enter()).has(&["/ns/payments/sa/api"]);
        let shown = String::from_utf8(rig.node.ctl(&["status"]).unwrap().stdout).unwrap();
        assert!(shown.contains("pods can't be attested") && shown.contains("403"), "{shown}");

        kubelet.says("200 OK", &list(&[two.json("shop", "web")]));
        rig.fetch_by("isthmusctl", &two.cgroup.enter()).has(&["/ns/shop/sa/api"]);
        let fine = |node: &isthmus_lab::node::Node| {
            let shown = String::from_utf8(node.ctl(&["status"])?.stdout)?;
            anyhow::ensure!(!shown.contains("can't be attested"), "{shown}");
            Ok(())
        };
        rig.node.wait_until("the kubelet's return", LIMIT, fine).unwrap();
        // Two pods claim one container: it is nobody's.
        let claimed = list(&[two.json("shop", "web"), two.json("payments", "web")]);
        kubelet.says("200 OK", &claimed);
        rig.reload(&format!("{KUBELET}{}", entry("/again/{k8s:ns}", &["k8s:pod", "unix:user:root"])));
        rig.fetch_by("isthmusctl", &two.cgroup.enter()).is_denied();
    });
}
