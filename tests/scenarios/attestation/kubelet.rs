//! A kubelet: HTTPS, one path, and whatever pods it is told of.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Sender, channel},
    },
    thread,
    time::SystemTime,
};

use isthmus_lab::netns::Netns;
use isthmus_pki::{Authority, Curve, Key, Profile, Serial, TrustDomain, bundle};
use rustls::ServerConfig;
use rustls_pki_types::PrivatePkcs8KeyDer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// What the kubelet says from now on: status line and body. Clones share it.
#[derive(Clone)]
pub(crate) struct Kubelet(Arc<Mutex<(&'static str, String)>>);

impl Kubelet {
    /// Serves on 127.0.0.1:10250 of that namespace until this process ends; writes `kubelet-ca.pem` and `token`.
    pub(crate) fn start(netns: &Netns, dir: &Path) -> Self {
        let kubelet = Self(Arc::new(Mutex::new(("200 OK", r#"{"items":[]}"#.into()))));
        let (tls, netns, said, (bound, ready)) =
            (certificates(dir), netns.clone(), kubelet.clone(), channel());
        thread::spawn(move || netns.block_on(move || serve(tls, said, bound)).unwrap());
        ready.recv().unwrap();
        kubelet
    }

    pub(crate) fn says(&self, status: &'static str, body: &str) {
        *self.0.lock().unwrap() = (status, body.to_owned());
    }
}

async fn serve(tls: TlsAcceptor, said: Kubelet, bound: Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:10250").await.unwrap();
    bound.send(()).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // Whoever does not trust us hangs up.
        if let Ok(stream) = tls.accept(stream).await {
            answer(stream, &said).await;
        }
    }
}

async fn answer(mut stream: TlsStream<TcpStream>, said: &Kubelet) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        request.push(byte);
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let known = request.starts_with("GET /pods HTTP/1.1\r\n") && request.contains("Bearer lab-token\r\n");
    let (status, body) =
        if known { said.0.lock().unwrap().clone() } else { ("401 Unauthorized", String::new()) };
    let reply = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let _ = stream.write_all(reply.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn certificates(dir: &Path) -> TlsAcceptor {
    let (domain, now) = (TrustDomain::parse("cluster.example").unwrap(), SystemTime::now().into());
    let key = || Key::generate(Curve::P256).unwrap();
    let serial = || Serial::from_random(rand::random());
    let root = Authority::root(&domain, key(), time::Duration::days(1), serial(), now).unwrap();
    let (site_key, leaf_key) = (key(), key());
    let profile = Profile::SiteCa { site: "kube".into(), lifetime: time::Duration::days(1) };
    let site = root.issue(&profile, &site_key.public(), serial(), now).unwrap();
    let site = Authority::load(site.certificate, site_key).unwrap();
    let id = domain.member("/kubelet").unwrap();
    let profile = Profile::Svid { id, dns_names: vec!["gw1".into()], lifetime: time::Duration::hours(1) };
    let leaf = site.issue(&profile, &leaf_key.public(), serial(), now).unwrap();
    fs::write(dir.join("kubelet-ca.pem"), bundle::to_pem([root.certificate()])).unwrap();
    fs::write(dir.join("token"), "lab-token\n").unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.certificate, site.certificate().clone()],
            PrivatePkcs8KeyDer::from(leaf_key.to_pkcs8().to_vec()).into(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
