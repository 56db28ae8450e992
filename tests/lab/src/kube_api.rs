//! As much of a Kubernetes API server as `kubectl get`, `create` and `replace` need: real HTTPS, objects in memory.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};
use serde_json::{Value, json};

use crate::files::write_secret;

/// Largest body that is taken, in bytes.
const MAX_BODY: u64 = 4 << 20;
/// The token that clients must send.
const TOKEN: &str = "stub-token";

/// A server on 127.0.0.1 that lives until the process ends.
pub struct KubeApi {
    port: u16,
    root_pem: String,
    store: Arc<Mutex<Store>>,
}

#[derive(Default)]
struct Store {
    /// Objects by path, such as /api/v1/namespaces/x/secrets/y.
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Method and path of every request.
    requests: Vec<String>,
}

impl KubeApi {
    /// Starts one.
    ///
    /// # Errors
    /// When no port or no certificate can be had.
    pub fn start() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        let certificate = params.self_signed(&key)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let store = Arc::new(Mutex::new(Store::default()));
        let (config, ours) = (Arc::new(config), Arc::clone(&store));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(std::result::Result::ok) {
                let (config, store) = (Arc::clone(&config), Arc::clone(&ours));
                // A client that goes away ends its own connection only.
                thread::spawn(move || serve(stream, config, &store).ok());
            }
        });
        Ok(Self { port, root_pem: certificate.pem(), store })
    }

    /// A kubeconfig (0600) with one context for each name and server.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn kubeconfig(dir: &Path, contexts: &[(&str, &Self)]) -> Result<PathBuf> {
        let named = |what: &str, each: &dyn Fn(&str, &Self) -> Value| -> Vec<Value> {
            contexts.iter().map(|(name, api)| json!({"name": name, what: each(name, api)})).collect()
        };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": named("cluster", &|_, api| json!({
                "server": format!("https://127.0.0.1:{}", api.port),
                "certificate-authority-data": BASE64_STANDARD.encode(&api.root_pem),
            })),
            "users": named("user", &|_, _| json!({"token": TOKEN})),
            "contexts": named("context", &|name, _| json!({"cluster": name, "user": name})),
        });
        let path = dir.join("kubeconfig");
        write_secret(&path, &config.to_string())?;
        Ok(path)
    }

    /// Puts an object of the core group there.
    pub fn put(&self, namespace: &str, resource: &str, object: Value) {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("").to_owned();
        self.put_at(&format!("/api/v1/namespaces/{namespace}/{resource}/{name}"), namespace, object);
    }

    /// Puts an object at its whole path.
    pub fn put_at(&self, path: &str, namespace: &str, mut object: Value) {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        object["metadata"]["namespace"] = namespace.into();
        store.insert(path, object);
    }

    /// An object as it is now.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).objects.get(path).cloned()
    }

    /// Method and path of every request so far.
    pub fn requests(&self) -> Vec<String> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }
}

impl Store {
    fn insert(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(path.to_owned(), object.clone());
        object
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    authorized: bool,
    body: Vec<u8>,
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>, store: &Mutex<Store>) -> Result<()> {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config)?, stream));
    while let Some(request) = read(&mut stream)? {
        let (status, answer) = answer(&request, store);
        let body = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.get_mut().write_all((head + &body).as_bytes())?;
        stream.get_mut().flush()?;
    }
    Ok(())
}

fn read(stream: &mut BufReader<StreamOwned<ServerConnection, TcpStream>>) -> Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_ascii_whitespace();
    let (method, target) =
        (words.next().context("method")?.to_owned(), words.next().context("path")?.to_owned());
    let (mut length, mut authorized) = (0u64, false);
    loop {
        let mut header = String::new();
        stream.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse()?,
            "authorization" => authorized = value.trim() == format!("Bearer {TOKEN}"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    stream.take(length.min(MAX_BODY)).read_to_end(&mut body)?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Ok(Some(Request { method, path: path.to_owned(), query: query.to_owned(), authorized, body }))
}

fn answer(request: &Request, store: &Mutex<Store>) -> (u16, Value) {
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    store.requests.push(format!("{} {}", request.method, request.path));
    if !request.authorized {
        return status(401, "Unauthorized", "no token");
    }
    match (request.method.as_str(), discovery(&request.path)) {
        ("GET", Some(document)) => (200, document),
        ("GET", None) => get(request, &store),
        ("POST", _) => post(request, &mut store),
        ("PUT", _) => put(request, &mut store),
        _ => status(405, "MethodNotAllowed", "not here"),
    }
}

fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let object = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code});
    (code, object)
}

/// What `kubectl` asks first: which kinds there are.
fn discovery(path: &str) -> Option<Value> {
    let list = |group: &str, resources: &[(&str, &str)]| {
        let verbs = ["get", "list", "create", "update"];
        let resources: Vec<Value> = resources
            .iter()
            .map(|(name, kind)| json!({"name": name, "singularName": name.trim_end_matches('s'), "namespaced": true, "kind": kind, "verbs": verbs}))
            .collect();
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources})
    };
    let group = |name: &str| {
        let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
        json!({"name": name, "versions": [version], "preferredVersion": version})
    };
    Some(match path {
        "/version" => json!({"major": "1", "minor": "32", "gitVersion": "v1.32.0"}),
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
        "/apis" => {
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group("apps"), group("coordination.k8s.io")]})
        }
        "/api/v1" => list("v1", &[("secrets", "Secret"), ("configmaps", "ConfigMap")]),
        "/apis/apps/v1" => list("apps/v1", &[("deployments", "Deployment"), ("daemonsets", "DaemonSet")]),
        "/apis/coordination.k8s.io/v1" => list("coordination.k8s.io/v1", &[("leases", "Lease")]),
        _ => return None,
    })
}

fn get(request: &Request, store: &Store) -> (u16, Value) {
    if let Some(object) = store.objects.get(&request.path) {
        return (200, object.clone());
    }
    let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    let of_one = parts.iter().rev().nth(2) == Some(&"namespaces");
    let resource = parts.last().copied().unwrap_or("");
    let known = ["secrets", "configmaps", "deployments", "daemonsets", "leases"].contains(&resource);
    if !known {
        return status(404, "NotFound", &format!("{} not found", request.path));
    }
    let named = request.query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector=metadata.name%3D"));
    let fits = |path: &str, object: &Value| {
        let in_place = if of_one {
            path.starts_with(&format!("{}/", request.path))
        } else {
            path.contains(&format!("/{resource}/"))
        };
        in_place && named.is_none_or(|name| object["metadata"]["name"] == name)
    };
    let items: Vec<&Value> =
        store.objects.iter().filter(|(path, object)| fits(path, object)).map(|(_, o)| o).collect();
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
}

fn post(request: &Request, store: &mut Store) -> (u16, Value) {
    let Ok(object) = serde_json::from_slice::<Value>(&request.body) else {
        return status(400, "BadRequest", "not JSON");
    };
    let path = format!("{}/{}", request.path, object["metadata"]["name"].as_str().unwrap_or(""));
    if store.objects.contains_key(&path) {
        return status(409, "AlreadyExists", "it is there");
    }
    (201, store.insert(&path, object))
}

fn put(request: &Request, store: &mut Store) -> (u16, Value) {
    let Ok(object) = serde_json::from_slice::<Value>(&request.body) else {
        return status(400, "BadRequest", "not JSON");
    };
    let Some(old) = store.objects.get(&request.path) else {
        return status(404, "NotFound", "it is not there");
    };
    let version = &object["metadata"]["resourceVersion"];
    if version.is_string() && *version != old["metadata"]["resourceVersion"] {
        return status(409, "Conflict", "the object has been modified");
    }
    (200, store.insert(&request.path, object))
}
