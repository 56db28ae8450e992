//! The kubelet's side played by a real HTTPS server.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use isthmus_pki::{Authority, Curve, Key, Profile, Serial, TrustDomain, bundle};
use rustls::ServerConfig;
use rustls_pki_types::PrivatePkcs8KeyDer;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::*;
use crate::identity::{
    attest::{cgroup::Container, pods::Pods},
    config::KubeletTrust,
};

const ID: &str = "aa11bb22cc33dd44ee55ff6600778899aa11bb22cc33dd44ee55ff6600778899";
const NODE: &str = "node-1.example";

type Reply = Box<dyn Fn(usize) -> Vec<u8> + Send + Sync>;

/// A server with a certificate of its own CA, and what it was asked.
struct Stub {
    dir: TempDir,
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    count: Arc<AtomicUsize>,
}

impl Stub {
    /// `reply` makes the bytes of the answer to the n-th request; nothing: it says nothing and waits.
    async fn start(reply: Reply) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tls = server(dir.path());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stub = Self { dir, port, asked: Arc::default(), count: Arc::default() };
        let (asked, count, reply) = (stub.asked.clone(), stub.count.clone(), Arc::new(reply));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, asked, count, reply) = (tls.clone(), asked.clone(), count.clone(), reply.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let n = count.fetch_add(1, Ordering::SeqCst);
                    answer(stream, &asked, &reply(n)).await;
                });
            }
        });
        stub
    }

    fn config(&self) -> KubernetesConfig {
        KubernetesConfig {
            host: "127.0.0.1".into(),
            port: self.port,
            token_file: Some(self.dir.path().join("token")),
            trust: KubeletTrust::Ca(self.dir.path().join("ca.pem")),
            client: None,
            node_name: Some(NODE.into()),
        }
    }

    async fn list(&self) -> Result<Containers, Error> {
        Kubelet::new(self.config()).list().await
    }
}

/// Certificate and CA by our own PKI: a leaf for the DNS name that a kubelet has.
fn server(dir: &Path) -> TlsAcceptor {
    let (domain, now) = (TrustDomain::parse("cluster.example").unwrap(), SystemTime::now().into());
    let serial = || Serial::from_random(rand::random());
    let root =
        Authority::root(&domain, Key::generate(Curve::P256).unwrap(), time::Duration::days(1), serial(), now)
            .unwrap();
    let key = Key::generate(Curve::P256).unwrap();
    let site_key = Key::generate(Curve::P256).unwrap();
    let profile = Profile::SiteCa { site: "kube".into(), lifetime: time::Duration::days(1) };
    let site = root.issue(&profile, &site_key.public(), serial(), now).unwrap();
    let site = Authority::load(site.certificate, site_key).unwrap();
    let id = domain.member("/kubelet").unwrap();
    let profile = Profile::Svid { id, dns_names: vec![NODE.into()], lifetime: time::Duration::hours(1) };
    let leaf = site.issue(&profile, &key.public(), serial(), now).unwrap();
    std::fs::write(dir.join("ca.pem"), bundle::to_pem([root.certificate()])).unwrap();
    std::fs::write(dir.join("token"), "first\n").unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = vec![leaf.certificate, site.certificate().clone()];
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivatePkcs8KeyDer::from(key.to_pkcs8().to_vec()).into())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn answer(mut stream: TlsStream<TcpStream>, asked: &Mutex<Vec<String>>, reply: &[u8]) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    asked.lock().unwrap().push(String::from_utf8(request).unwrap());
    if reply.is_empty() {
        // Until the other side has had enough.
        let _ = stream.read_u8().await;
        return;
    }
    // The other side may hang up when it has read enough.
    let _ = stream.write_all(reply).await;
    let _ = stream.shutdown().await;
}

fn ok(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn pod(uid: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"api-0","namespace":"payments","uid":"{uid}"}},"spec":{{"nodeName":"{NODE}","serviceAccountName":"api"}},
            "status":{{"containerStatuses":[{{"name":"c","containerID":"containerd://{ID}"}}]}}}}"#
    )
}

fn list(pods: &[String]) -> String {
    format!(r#"{{"kind":"PodList","items":[{}]}}"#, pods.join(","))
}

fn container() -> Container {
    Container { id: ID.into(), pod_uid: Some("u-1".into()) }
}

#[tokio::test]
async fn pods_come_over_https_with_the_token_of_the_day() {
    let stub = Stub::start(Box::new(|_| ok(&list(&[pod("u-1")])))).await;
    let facts = stub.list().await.unwrap().find(&container()).unwrap().unwrap();
    assert_eq!((facts.namespace.as_str(), facts.service_account.as_str()), ("payments", "api"));
    std::fs::write(stub.dir.path().join("token"), "second").unwrap();
    stub.list().await.unwrap();
    let asked = stub.asked.lock().unwrap().join("");
    assert!(asked.starts_with("GET /pods HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains(&format!("host: 127.0.0.1:{}\r\n", stub.port)), "{asked}");
    let token = |token: &str| asked.matches(&format!("authorization: Bearer {token}\r\n")).count();
    assert_eq!((token("first"), token("second")), (1, 1));
}

#[tokio::test]
async fn an_answer_in_chunks_is_read() {
    let reply = || {
        let body = list(&[pod("u-1")]);
        let (one, two) = body.split_at(7);
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
            one.len(),
            two.len()
        )
    };
    let stub = Stub::start(Box::new(move |_| reply().into_bytes())).await;
    assert!(stub.list().await.unwrap().find(&container()).unwrap().is_some());
}

#[tokio::test]
async fn a_kubelet_that_is_not_ours_gets_no_token() {
    let stub = Stub::start(Box::new(|_| ok(&list(&[])))).await;
    let other = Stub::start(Box::new(|_| ok(&list(&[])))).await;
    let strange =
        KubernetesConfig { trust: KubeletTrust::Ca(other.dir.path().join("ca.pem")), ..stub.config() };
    let misnamed = KubernetesConfig { node_name: Some("node-2.example".into()), ..stub.config() };
    // Its certificate has no address of the loopback.
    let unnamed = KubernetesConfig { node_name: None, ..stub.config() };
    for config in [strange, misnamed, unnamed] {
        let error = Kubelet::new(config).list().await.unwrap_err();
        assert!(matches!(error, Error::Tls { .. }), "{error}");
    }
    assert!(stub.asked.lock().unwrap().is_empty());
    // On the loopback, it may be said that it need not be known.
    let unverified = KubernetesConfig { trust: KubeletTrust::Unverified, node_name: None, ..stub.config() };
    Kubelet::new(unverified).list().await.unwrap();
}

#[tokio::test]
async fn refusals_and_nonsense_are_told_apart() {
    for (reply, expected) in [
        (
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 12\r\n\r\nUnauthorized",
            "answers 401; the token in token_file needs",
        ),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "answers 403"),
        (
            "HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/pods\r\nContent-Length: 0\r\n\r\n",
            "status is 302",
        ),
        ("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "status is 500"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "not a list of pods"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"items\":[", "not a list of pods"),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "not a list of pods"),
        ("\r\n", "not a list of pods"),
    ] {
        let stub = Stub::start(Box::new(move |_| reply.as_bytes().to_vec())).await;
        let error = stub.list().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{reply:?}: {error}");
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let declared = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{{", 1u64 << 40);
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        chunk.repeat((MAX_ANSWER >> 20) + 2)
    );
    for reply in [declared, chunked] {
        let stub = Stub::start(Box::new(move |_| reply.clone().into_bytes())).await;
        let error = stub.list().await.unwrap_err().to_string();
        assert!(
            error.contains(&format!("longer than {MAX_ANSWER} bytes"))
                || error.contains("not a list of pods"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_kubelet_that_says_nothing_or_is_not_there() {
    let stub = Stub::start(Box::new(|_| Vec::new())).await;
    assert!(matches!(stub.list().await.unwrap_err(), Error::Slow));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error = Kubelet::new(KubernetesConfig { port, ..stub.config() }).list().await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}

#[tokio::test]
async fn files_that_are_not_right_are_named() {
    let stub = Stub::start(Box::new(|_| ok(&list(&[])))).await;
    for (text, reason) in [
        ("", "no token"),
        ("\n", "no token"),
        ("a\nb", "one line"),
        ("a\0", "one line"),
        ("\u{1}", "one line"),
    ] {
        std::fs::write(stub.dir.path().join("token"), text).unwrap();
        let error = stub.list().await.unwrap_err().to_string();
        assert!(error.contains("/token: ") && error.contains(reason), "{text:?}: {error}");
    }
    let missing = KubernetesConfig { token_file: Some("/nonexistent/token".into()), ..stub.config() };
    let error = Kubelet::new(missing).list().await.unwrap_err().to_string();
    assert!(error.contains("/nonexistent/token: "), "{error}");
    let wrong = KubernetesConfig {
        token_file: None,
        trust: KubeletTrust::Ca(stub.dir.path().join("token")),
        ..stub.config()
    };
    assert!(matches!(Kubelet::new(wrong).list().await.unwrap_err(), Error::File { .. }));
    assert!(stub.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_pod_that_appears_later_is_found_and_one_request_serves_many() {
    let stub = Stub::start(Box::new(|n| match n {
        0 => ok(&list(&[])),
        1 => b"HTTP/1.1 503 Starting\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok(&list(&[pod("u-1")])),
    }))
    .await;
    let pods = Arc::new(Pods::new(Box::new(Kubelet::new(stub.config()))));
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let pods = pods.clone();
            tokio::spawn(async move { pods.find(&container()).await.unwrap().uid.clone() })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), "u-1");
    }
    assert_eq!(stub.count.load(Ordering::SeqCst), 3);
    assert_eq!(pods.trouble(), None);
}

#[tokio::test]
async fn two_pods_with_one_container_prove_nothing() {
    let stub = Stub::start(Box::new(|_| ok(&list(&[pod("u-1"), pod("u-2")])))).await;
    let pods = Pods::new(Box::new(Kubelet::new(stub.config())));
    assert!(pods.find(&container()).await.unwrap_err().to_string().contains("do not agree"));
}
