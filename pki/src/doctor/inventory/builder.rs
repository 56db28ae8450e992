//! From files and objects to a [`Cluster`].

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;
use time::OffsetDateTime;

use super::{ClockReading, Cluster, EnvoyAdmin, Leaf, Mesh, Setting};
use crate::{
    blocks::blocks,
    istio::{Cacerts, Files},
    kubernetes::{self, Object},
    x509::PemFile,
};

/// How often a kubelet renews its lease, in seconds.
const LEASE_PERIOD: i64 = 10;

/// Collects what belongs to one cluster, then [`ClusterBuilder::finish`].
#[derive(Default)]
pub struct ClusterBuilder {
    cluster: Cluster,
    cacerts: Files,
    cacerts_place: String,
    /// The Secret `cacerts` was seen: `istio-ca-secret` then means nothing.
    plugged: bool,
    /// Files and objects that something could be made of, or said about.
    taken: usize,
}

impl ClusterBuilder {
    /// An empty one of that name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { cluster: Cluster { name: name.into(), ..Cluster::default() }, ..Self::default() }
    }

    /// Takes a file; `directory` is empty or ends without a slash. Names of Istio's files mean what they mean there; of others the content
    /// counts: a chain, roots, Kubernetes objects, `istioctl proxy-config secret -o json`, Envoy's `/certs` or its statistics.
    pub fn file(&mut self, directory: &str, name: &str, bytes: &[u8], now: OffsetDateTime) {
        let place = if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
        if Cacerts::knows(name) {
            self.taken += 1;
            self.cacerts_place = if directory.is_empty() { ".".to_owned() } else { directory.to_owned() };
            self.cacerts.insert(name.to_owned(), zeroize::Zeroizing::new(bytes.to_vec()));
        } else if kubernetes::seems(bytes) {
            self.document(&place, bytes, now);
        } else if !lies_beside(name, bytes) {
            self.certificates(PemFile::read(place, bytes));
        }
    }

    /// How many files, pages and objects it has looked at so far; what means nothing here does not count.
    pub fn taken(&self) -> usize {
        self.taken
    }

    fn certificates(&mut self, file: PemFile) {
        self.taken += 1;
        let Some(first) = file.certificates.first() else { return self.cluster.others.push(file) };
        if !first.facts.is_ca() {
            let (place, chain) = (file.place.clone(), file.certificates);
            self.cluster.leaves.push(Leaf { place: place.clone(), chain });
            let rejected = PemFile { place, certificates: Vec::new(), rejected: file.rejected };
            self.cluster.others.push(rejected);
        } else if file.certificates.iter().all(|c| c.facts.self_issued) {
            self.cluster.roots.push(file);
        } else {
            self.cluster.others.push(file);
        }
    }

    /// Takes a JSON or YAML document: objects, or a dump of a proxy.
    pub fn document(&mut self, place: &str, bytes: &[u8], now: OffsetDateTime) {
        let value: Option<Value> = serde_json::from_slice(bytes).ok();
        if let Some(value) = value.as_ref().filter(|v| v.get("kind").is_none()) {
            return self.dump(place, value);
        }
        match kubernetes::objects(bytes) {
            Ok(objects) => objects.iter().for_each(|object| self.object(object, now)),
            Err(why) => self.unreadable(place, &why),
        }
    }

    fn dump(&mut self, place: &str, value: &Value) {
        self.taken += 1;
        if value.get("certificates").is_some() {
            self.cluster.envoys.push(EnvoyAdmin::from_certs(place, value));
        } else if let Some(secrets) = value.get("dynamicActiveSecrets").and_then(Value::as_array) {
            secrets.iter().for_each(|secret| self.proxy_secret(place, secret));
        } else {
            self.cluster
                .unreadable
                .push((place.to_owned(), "neither Kubernetes objects nor a dump of a proxy".to_owned()));
        }
    }

    /// One secret of `istioctl proxy-config secret -o json`.
    fn proxy_secret(&mut self, place: &str, secret: &Value) {
        let name = secret.get("name").and_then(Value::as_str).unwrap_or("?");
        let inline = |pointer| {
            let bytes = secret.pointer(pointer)?.as_str()?;
            BASE64_STANDARD.decode(bytes).ok()
        };
        for pointer in [
            "/secret/tlsCertificate/certificateChain/inlineBytes",
            "/secret/validationContext/trustedCa/inlineBytes",
        ] {
            if let Some(pem) = inline(pointer) {
                self.certificates(PemFile::read(format!("{place}: {name}"), &pem));
            }
        }
    }

    /// Takes one object.
    pub fn object(&mut self, object: &Object, now: OffsetDateTime) {
        self.taken += 1;
        match (object.kind.as_str(), object.name.as_str()) {
            ("Secret", "cacerts") => self.secret(object, true),
            ("Secret", "istio-ca-secret") if self.plugged => {}
            ("Secret", "istio-ca-secret") => self.secret(object, false),
            ("ConfigMap", "istio-ca-root-cert") => self.namespace_root(object),
            ("ConfigMap", "istio") => self.mesh(object),
            ("Deployment" | "DaemonSet", name) => self.workload(object, name),
            ("Lease", _) => self.lease(object, now),
            _ => self.taken -= 1,
        }
        let bad = object.undecodable.iter().map(|key| (object.place(), format!("{key} is not base64")));
        self.cluster.unreadable.extend(bad);
    }

    fn secret(&mut self, object: &Object, plugged: bool) {
        self.plugged |= plugged;
        self.cacerts_place = object.place();
        self.cluster.cacerts_changed_at = object.changed_at;
        self.cacerts = object.data.clone();
        if !plugged {
            // Istiod's own CA is its own root and its own chain.
            for name in [crate::istio::ROOT_CERT, crate::istio::CERT_CHAIN] {
                let ca = self.cacerts.get(crate::istio::CA_CERT).cloned().unwrap_or_default();
                self.cacerts
                    .entry(name.to_owned())
                    .and_modify(|old| {
                        if old.is_empty() {
                            *old = ca.clone()
                        }
                    })
                    .or_insert(ca.clone());
            }
            self.cacerts.remove(crate::istio::ISTIO_GENERATED);
        }
    }

    fn namespace_root(&mut self, object: &Object) {
        let bytes = object.data.get("root-cert.pem").map_or(&[][..], |b| b.as_slice());
        self.cluster.roots.push(PemFile::read(format!("{}/root-cert.pem", object.place()), bytes));
    }

    fn mesh(&mut self, object: &Object) {
        let text = object.data.get("mesh").map_or(&[][..], |b| b.as_slice());
        let place = format!("{}/mesh", object.place());
        match serde_norway::from_slice::<Value>(text) {
            Ok(mesh) => {
                let aliases = mesh.get("trustDomainAliases").and_then(Value::as_array);
                let aliases = aliases.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
                let domain = mesh.get("trustDomain").and_then(Value::as_str).unwrap_or("cluster.local");
                self.cluster.mesh =
                    Some(Mesh { place, trust_domain: domain.to_owned(), aliases: aliases.collect() });
            }
            Err(_) => self.cluster.unreadable.push((place, "not YAML".to_owned())),
        }
    }

    fn workload(&mut self, object: &Object, name: &str) {
        self.cluster.ambient |= name.starts_with("ztunnel");
        let containers = object.value.pointer("/spec/template/spec/containers").and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            if name.starts_with("istiod") {
                self.environment(object, container);
            } else if name.contains("istio-csr") {
                let args =
                    ["command", "args"].iter().filter_map(|key| container.get(key)?.as_array()).flatten();
                let args = args.filter_map(Value::as_str).map(str::to_owned).collect();
                self.cluster.istio_csr = Some((object.place(), args));
            }
        }
    }

    fn environment(&mut self, object: &Object, container: &Value) {
        let variables = container.get("env").and_then(Value::as_array).into_iter().flatten();
        let text = |variable: &Value, key| variable.get(key).and_then(Value::as_str).map(str::to_owned);
        self.cluster.istiod.extend(variables.filter_map(|v| {
            Some(Setting {
                place: object.place(),
                name: text(v, "name")?,
                value: text(v, "value").unwrap_or_default(),
            })
        }));
    }

    /// A node's heartbeat is written by its own clock.
    fn lease(&mut self, object: &Object, now: OffsetDateTime) {
        let renewed = object.value.pointer("/spec/renewTime").and_then(kubernetes::timestamp);
        if let Some(theirs) = renewed.filter(|_| object.namespace == "kube-node-lease") {
            let place = format!("node {}", object.name);
            self.cluster.clocks.push(ClockReading {
                place,
                theirs,
                ours: now.unix_timestamp(),
                age: LEASE_PERIOD,
            });
        }
    }

    /// Takes a page of Envoy's admin interface: `/certs` or `/stats`.
    pub fn envoy(&mut self, place: &str, bytes: &[u8]) {
        match serde_json::from_slice::<Value>(bytes) {
            Ok(value) => self.dump(place, &value),
            Err(_) => {
                self.taken += 1;
                self.cluster.envoys.push(EnvoyAdmin::from_stats(place, bytes));
            }
        }
    }

    /// Something that could not be had, and why.
    pub fn unreadable(&mut self, place: &str, why: &str) {
        self.taken += 1;
        self.cluster.unreadable.push((place.to_owned(), why.to_owned()));
    }

    /// A clock that was read.
    pub fn clock(&mut self, reading: ClockReading) {
        self.cluster.clocks.push(reading);
    }

    /// The cluster.
    pub fn finish(mut self) -> Cluster {
        self.cluster.cacerts = Cacerts::read(self.cacerts_place, &self.cacerts);
        self.cluster
    }
}

/// Keys and requests, and settings of something else, lie beside certificates and are no part of what is examined.
fn lies_beside(name: &str, bytes: &[u8]) -> bool {
    let other = |label: &str| label.ends_with("PRIVATE KEY") || label.ends_with("CERTIFICATE REQUEST");
    let blocks = blocks(bytes);
    let settings = name.ends_with(".yaml") || name.ends_with(".yml");
    settings && blocks.is_empty() || !blocks.is_empty() && blocks.iter().all(|block| other(&block.label))
}
