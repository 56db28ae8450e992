//! A list of pods as the kubelet writes it (Kubernetes API, v1 PodList): what we need of it, by container. Pure.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
};

use serde::Deserialize;

use crate::identity::attest::{PodFacts, cgroup::Container};

/// The containers of a node, by id.
#[derive(Debug, Default)]
pub struct Containers(HashMap<String, Known>);

/// What is known of an id.
#[derive(Debug)]
enum Known {
    One(Owner),
    /// More than one pod claims it: it proves nothing.
    Disputed,
}

#[derive(Debug)]
struct Owner {
    facts: Arc<PodFacts>,
    /// What the cgroup of a static pod has in place of its UID.
    config_hash: Option<String>,
}

/// Two pods claim one container, or the cgroup names another pod than the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kubelet and the cgroup do not agree on the pod of its container")]
pub struct Disputed;

impl Containers {
    /// The facts of a container; `None`: the kubelet does not know it.
    pub fn find(&self, container: &Container) -> Result<Option<Arc<PodFacts>>, Disputed> {
        match self.0.get(&container.id) {
            None => Ok(None),
            Some(Known::One(owner)) if owner.agrees(container.pod_uid.as_deref()) => {
                Ok(Some(owner.facts.clone()))
            }
            Some(_) => Err(Disputed),
        }
    }

    fn add(&mut self, id: &str, owner: Owner) {
        match self.0.entry(id.to_ascii_lowercase()) {
            Entry::Vacant(free) => drop(free.insert(Known::One(owner))),
            Entry::Occupied(mut taken) => drop(taken.insert(Known::Disputed)),
        }
    }
}

impl Owner {
    fn agrees(&self, uid: Option<&str>) -> bool {
        let is = |own: &str| uid.is_none_or(|uid| own.eq_ignore_ascii_case(uid));
        is(&self.facts.uid) || self.config_hash.as_deref().is_some_and(is)
    }
}

#[derive(Deserialize)]
struct PodList {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "kubernetes.io/config.hash")]
    config_hash: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    service_account_name: Option<String>,
    node_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    ephemeral_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    image: String,
    #[serde(default, rename = "imageID")]
    image_id: String,
    /// `RUNTIME://ID`, once there is one.
    #[serde(default, rename = "containerID")]
    container_id: Option<String>,
}

/// Parses a list of pods; those that are said to be on another node are left out.
pub fn parse(json: &[u8], node_name: Option<&str>) -> Result<Containers, serde_json::Error> {
    let list: PodList = serde_json::from_slice(json)?;
    let mut containers = Containers::default();
    let here = |pod: &Pod| pod.spec.node_name.as_deref().zip(node_name).is_none_or(|(its, ours)| its == ours);
    list.items.into_iter().filter(here).for_each(|pod| add(pod, &mut containers));
    Ok(containers)
}

fn add(pod: Pod, containers: &mut Containers) {
    let Pod { metadata, spec, status } = pod;
    let config_hash = metadata.annotations.and_then(|annotations| annotations.config_hash);
    let base = PodFacts {
        namespace: metadata.namespace,
        service_account: spec.service_account_name.unwrap_or_default(),
        name: metadata.name,
        uid: metadata.uid,
        node_name: spec.node_name.unwrap_or_default(),
        labels: Arc::new(metadata.labels.unwrap_or_default()),
        ..PodFacts::default()
    };
    let all =
        [status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses];
    for container in all.into_iter().flatten().flatten() {
        let Some((_, id)) = container.container_id.as_deref().and_then(|id| id.split_once("://")) else {
            continue;
        };
        let facts = Arc::new(PodFacts {
            container_name: container.name,
            images: images(container.image, &container.image_id),
            ..base.clone()
        });
        containers.add(id, Owner { facts, config_hash: config_hash.clone() });
    }
}

/// The name, and the digest without the word that docker puts before it.
fn images(name: String, id: &str) -> Vec<String> {
    let id = id.rsplit_once("://").map_or(id, |(_, id)| id).to_owned();
    let mut images = vec![name, id];
    images.retain(|image| !image.is_empty());
    images.dedup();
    images
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "aa11bb22cc33dd44ee55ff6600778899aa11bb22cc33dd44ee55ff6600778899";

    fn container(uid: Option<&str>) -> Container {
        Container { id: ID.into(), pod_uid: uid.map(str::to_owned) }
    }

    fn pod(uid: &str, node: &str, ids: &[String]) -> String {
        let statuses: Vec<_> = ids
            .iter()
            .enumerate()
            .map(|(n, id)| format!(r#"{{"name":"c{n}","image":"r.example/api:1","imageID":"docker-pullable://r.example/api@sha256:aa","containerID":"containerd://{id}","ready":true}}"#))
            .collect();
        format!(
            r#"{{"metadata":{{"name":"api-0","namespace":"payments","uid":"{uid}","labels":{{"app":"api"}},"annotations":{{"kubernetes.io/config.hash":"hash-1","x":"y"}}}},
               "spec":{{"serviceAccountName":"api","nodeName":"{node}","containers":[]}},"status":{{"phase":"Running","containerStatuses":[{}]}}}}"#,
            statuses.join(",")
        )
    }

    fn list(pods: &[String]) -> Vec<u8> {
        format!(r#"{{"kind":"PodList","apiVersion":"v1","items":[{}]}}"#, pods.join(",")).into_bytes()
    }

    #[test]
    fn a_container_is_found_with_its_pod() {
        let containers = parse(&list(&[pod("u-1", "n1", &[ID.to_uppercase()])]), Some("n1")).unwrap();
        let facts = containers.find(&container(Some("U-1"))).unwrap().unwrap();
        assert_eq!((facts.namespace.as_str(), facts.service_account.as_str()), ("payments", "api"));
        assert_eq!(
            (facts.name.as_str(), facts.uid.as_str(), facts.node_name.as_str()),
            ("api-0", "u-1", "n1")
        );
        assert_eq!((facts.container_name.as_str(), facts.labels["app"].as_str()), ("c0", "api"));
        assert_eq!(facts.images, ["r.example/api:1", "r.example/api@sha256:aa"]);
        // Our own pod's path begins below the pod; a static pod's cgroup has the hash of its file.
        assert!(containers.find(&container(None)).unwrap().is_some());
        assert!(containers.find(&container(Some("hash-1"))).unwrap().is_some());
        assert_eq!(containers.find(&container(Some("u-2"))), Err(Disputed));
        assert_eq!(containers.find(&Container { id: "bb".into(), pod_uid: None }), Ok(None));
    }

    #[test]
    fn a_container_of_two_pods_is_nobodys() {
        let ids = [ID.to_owned()];
        let containers =
            parse(&list(&[pod("u-1", "n1", &ids), pod("u-2", "n1", &ids), pod("u-1", "n1", &ids)]), None)
                .unwrap();
        assert_eq!(containers.find(&container(Some("u-1"))), Err(Disputed));
        let twice = parse(&list(&[pod("u-1", "n1", &[ID.into(), ID.into()])]), None).unwrap();
        assert_eq!(twice.find(&container(Some("u-1"))), Err(Disputed));
    }

    #[test]
    fn other_nodes_pods_and_containers_to_come_are_left_out() {
        let containers = parse(&list(&[pod("u-1", "n2", &[ID.into()])]), Some("n1")).unwrap();
        assert_eq!(containers.find(&container(None)), Ok(None));
        let bare = r#"{"items":[{"metadata":{"name":"a","namespace":"b","uid":"c","labels":null}},
            {"metadata":{"name":"a","namespace":"b","uid":"c"},"status":{"containerStatuses":[{"name":"x"},{"name":"y","containerID":""}],"initContainerStatuses":null}}]}"#;
        assert!(parse(bare.as_bytes(), Some("n1")).unwrap().0.is_empty());
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for text in [
            "",
            "[]",
            "{}",
            "null",
            "Unauthorized",
            r#"{"items":null}"#,
            r#"{"items":[{}]}"#,
            r#"{"items":[{"metadata":{"name":1}}]}"#,
        ] {
            assert!(parse(text.as_bytes(), None).is_err(), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(format!("{{\"items\":{deep}").as_bytes(), None).is_err());
        assert!(parse(format!("{{\"x\":{deep}").as_bytes(), None).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..600) {
            let _ = parse(&bytes, None);
            let mut text = list(&[pod("u-1", "n1", &[ID.into()])]);
            let at = at % text.len();
            text.splice(at..(at + 3).min(text.len()), bytes.iter().copied().take(3));
            let _ = parse(&text, None);
        }
    }
}
