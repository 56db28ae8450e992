//! What is known of a caller, and whether selectors hold for it. Pure.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use super::cgroup::Unit;
use crate::identity::config::Selector;

/// What is known of a caller: what selectors are held against. Only what some entry asks for is gathered; the rest stays empty and
/// matches nothing. `Debug` shows user and group alone: facts are not for logs.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Effective user when it connected.
    pub uid: u32,
    /// Effective group when it connected.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Name of the user.
    pub user: Option<String>,
    /// Name of the effective group.
    pub group: Option<String>,
    /// Names of the supplementary groups.
    pub group_names: Vec<String>,
    /// The executable in our mount namespace; `None`: it is not there (any more), or another file is.
    pub path: Option<PathBuf>,
    /// SHA-256 of the executable.
    pub sha256: Option<[u8; 32]>,
    /// The systemd unit that it belongs to.
    pub unit: Option<Unit>,
    /// The pod and container that it runs in.
    pub pod: Option<Arc<PodFacts>>,
}

/// What the kubelet says of the container that a caller runs in. Shared by all callers of that container.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Namespace.
    pub namespace: String,
    /// Service account.
    pub service_account: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Name of its node.
    pub node_name: String,
    /// Labels of the pod.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Name of the container in the pod.
    pub container_name: String,
    /// Name and digest of the container's image, as the pod's status has them.
    pub images: Vec<String>,
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").field("uid", &self.uid).field("gid", &self.gid).finish_non_exhaustive()
    }
}

impl fmt::Debug for PodFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodFacts").finish_non_exhaustive()
    }
}

impl Facts {
    /// True if all selectors hold.
    pub fn matches(&self, selectors: &[Selector]) -> bool {
        // Without a selector an entry would be everybody's.
        !selectors.is_empty() && selectors.iter().all(|selector| self.holds(selector))
    }

    /// True if this one holds.
    pub(crate) fn holds(&self, selector: &Selector) -> bool {
        match selector {
            Selector::Uid(uid) => *uid == self.uid,
            Selector::Gid(gid) => *gid == self.gid,
            Selector::SupplementaryGid(gid) => self.groups.contains(gid),
            Selector::User(name) => self.user.as_ref() == Some(name),
            Selector::Group(name) => self.group.as_ref() == Some(name) || self.group_names.contains(name),
            Selector::Path(path) => self.path.as_ref() == Some(path),
            Selector::Sha256(digest) => self.sha256.as_ref() == Some(digest),
            Selector::Unit(name) => {
                self.unit.as_ref().is_some_and(|unit| !unit.of_user && unit.name == *name)
            }
            Selector::UserUnit(name) => {
                self.unit.as_ref().is_some_and(|unit| unit.of_user && unit.name == *name)
            }
            _ => self.pod.as_ref().is_some_and(|pod| pod.holds(selector)),
        }
    }
}

impl PodFacts {
    fn holds(&self, selector: &Selector) -> bool {
        match selector {
            Selector::Pod => true,
            Selector::Namespace(name) => *name == self.namespace,
            Selector::ServiceAccount(name) => *name == self.service_account,
            Selector::PodName(name) => *name == self.name,
            Selector::PodUid(uid) => *uid == self.uid,
            Selector::PodLabel(key, value) => self.labels.get(key) == Some(value),
            Selector::ContainerName(name) => *name == self.container_name,
            Selector::ContainerImage(image) => self.images.contains(image),
            Selector::NodeName(name) => *name == self.node_name,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> Selector {
        Selector::parse(text).unwrap()
    }

    fn pod() -> PodFacts {
        PodFacts {
            namespace: "payments".into(),
            service_account: "api".into(),
            name: "api-0".into(),
            uid: "u-1".into(),
            node_name: "n1".into(),
            labels: Arc::new([("app".to_owned(), "api".to_owned())].into()),
            container_name: "main".into(),
            images: vec!["r.example/api:1".into(), "r.example/api@sha256:aa".into()],
        }
    }

    fn facts() -> Facts {
        Facts {
            uid: 1000,
            gid: 100,
            groups: vec![4, 27],
            user: Some("app".into()),
            group: Some("users".into()),
            group_names: vec!["adm".into()],
            path: Some("/usr/bin/api".into()),
            sha256: Some([7; 32]),
            unit: Some(Unit { name: "api.service".into(), of_user: false }),
            pod: Some(Arc::new(pod())),
        }
    }

    const HOLD: [&str; 22] = [
        "unix:uid:1000",
        "unix:gid:100",
        "unix:supplementary_gid:27",
        "unix:user:app",
        "unix:group:users",
        "unix:group:adm",
        "unix:path:/usr/bin/api",
        "unix:sha256:0707070707070707070707070707070707070707070707070707070707070707",
        "systemd:unit:api.service",
        "k8s:pod",
        "k8s:ns:payments",
        "k8s:sa:api",
        "k8s:pod-name:api-0",
        "k8s:pod-uid:u-1",
        "k8s:pod-label:app:api",
        "k8s:container-name:main",
        "k8s:container-image:r.example/api:1",
        "k8s:container-image:r.example/api@sha256:aa",
        "k8s:node-name:n1",
        "unix:supplementary_gid:4",
        "unix:path:/usr/bin/api",
        "unix:uid:1000",
    ];

    #[test]
    fn all_of_them_must_hold() {
        let facts = facts();
        let all: Vec<_> = HOLD.iter().map(|text| selector(text)).collect();
        assert!(facts.matches(&all));
        assert!(!facts.matches(&[]));
        for wrong in [
            "unix:uid:100",
            "unix:gid:4",
            "unix:supplementary_gid:100",
            "unix:user:users",
            "unix:group:app",
            "unix:path:/usr/bin/ap",
            "unix:sha256:0707070707070707070707070707070707070707070707070707070707070708",
            "systemd:unit:ap.service",
            "systemd:user-unit:api.service",
            "k8s:ns:payment",
            "k8s:sa:API",
            "k8s:pod-name:api-1",
            "k8s:pod-uid:u-2",
            "k8s:pod-label:app:ap",
            "k8s:pod-label:other:api",
            "k8s:container-name:api",
            "k8s:container-image:r.example/api",
            "k8s:node-name:n2",
        ] {
            let mut with = all.clone();
            with.push(selector(wrong));
            assert!(!facts.matches(&with), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_known_matches_nothing() {
        let bare = Facts { uid: 1000, gid: 100, ..Facts::default() };
        for text in HOLD {
            let is_bare = matches!(selector(text), Selector::Uid(_) | Selector::Gid(_));
            assert_eq!(bare.matches(&[selector(text)]), is_bare, "{text}");
        }
        let of_user = Facts { unit: Some(Unit { name: "api.service".into(), of_user: true }), ..bare };
        assert!(of_user.matches(&[selector("systemd:user-unit:api.service")]));
        assert!(!of_user.matches(&[selector("systemd:unit:api.service")]));
    }

    #[test]
    fn debug_output_has_no_selector_values() {
        let shown = format!("{:?} {:?}", facts(), pod());
        assert!(shown.contains("1000"), "{shown}");
        for secret in ["payments", "api", "users", "/usr"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
