//! The `spiffe` and `spiffe-rustls` crates at the Workload API of a real `isthmusd`: the strictest client that is published.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "rust_spiffe/rig.rs"]
mod rig;

use std::{sync::Arc, time::Duration};

use isthmus_lab::{
    issuer::{API, Issuer, OTHER, entry},
    sandbox,
};
use rustls_pki_types::ServerName;
use spiffe::{JwtSource, WorkloadApiClient, WorkloadApiError, X509Source};
use spiffe_rustls::{authorizer, mtls_client, mtls_server};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use rig::Rig;

const LIMIT: Duration = Duration::from_secs(20);

fn run<F: Future<Output = ()>>(test: &str, body: impl FnOnce(Rig) -> F + Send) {
    sandbox::run_with_bins(test, |bins| {
        let rig = Rig::start(bins);
        // The body is a future of the namespace's own runtime, so what it holds need not be Send.
        let netns = rig.netns();
        netns.run(|| runtime().block_on(body(rig))).unwrap();
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn the_source_follows_renewal_withdrawal_and_return() {
    run("the_source_follows_renewal_withdrawal_and_return", |rig| async move {
        let source = X509Source::builder().endpoint(rig.endpoint()).build().await.unwrap();
        let mut updates = source.updated();
        let first = source.svid().unwrap();
        assert_eq!((first.spiffe_id().to_string().as_str(), first.cert_chain().len()), (API, 2));
        let roots = source.bundle_set().unwrap();
        assert_eq!(roots.iter().map(|(_, bundle)| bundle.authorities().len()).sum::<usize>(), 1);

        rig.change(Issuer::renew_site_ca).await;
        timeout(LIMIT, updates.changed()).await.unwrap().unwrap();
        let second = source.svid().unwrap();
        assert_ne!(first.leaf().as_bytes(), second.leaf().as_bytes());

        rig.change(|issuer| issuer.reload(&entry("/other", "unix:uid:4242"))).await;
        timeout(LIMIT, updates.changed()).await.unwrap().unwrap();
        assert!(source.svid().is_err(), "an identity that was withdrawn must not be used");
        let client = WorkloadApiClient::connect_to(rig.endpoint()).await.unwrap();
        let refused = client.fetch_x509_svid().await.unwrap_err();
        assert!(matches!(refused, WorkloadApiError::NoIdentityIssued), "{refused}");

        rig.change(|issuer| issuer.reload(&entry("/ns/payments/sa/api", "unix:uid:0"))).await;
        timeout(LIMIT, updates.wait_for(|_| source.svid().is_ok())).await.unwrap().unwrap();
        source.shutdown().await;
    });
}

#[test]
fn tokens_and_their_bundles_are_accepted() {
    run("tokens_and_their_bundles_are_accepted", |rig| async move {
        let source = JwtSource::builder().endpoint(rig.endpoint()).build().await.unwrap();
        let svid = source.fetch_jwt_svid(["reports"]).await.unwrap();
        assert_eq!(svid.spiffe_id().to_string(), API);
        let bundles = source.bundle_set().unwrap();
        assert!(bundles.iter().any(|(domain, _)| domain.to_string() == "test.example"));
        let client = WorkloadApiClient::connect_to(rig.endpoint()).await.unwrap();
        let valid = client.validate_jwt_token("reports", svid.token()).await.unwrap();
        assert_eq!(valid.spiffe_id().to_string(), API);
        assert!(client.validate_jwt_token("others", svid.token()).await.is_err());
        source.shutdown().await;
    });
}

#[test]
fn mutual_tls_by_the_crate_admits_the_right_peer_only() {
    run("mutual_tls_by_the_crate_admits_the_right_peer_only", |rig| async move {
        let source = X509Source::builder().endpoint(rig.endpoint()).build().await.unwrap();
        settled(&source).await;
        exchange(&source, API).await.unwrap();
        let refused = exchange(&source, OTHER).await.unwrap_err();
        assert!(refused.contains("UnauthorizedSpiffeId"), "{refused}");
        source.shutdown().await;
    });
}

/// The source asks once and then again to follow: until it has worked off the second answer, which has an SVID of its own, it refuses all
/// handshakes as pending.
async fn settled(source: &X509Source) {
    let waiting = async {
        while exchange(source, API).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, waiting).await.unwrap();
}

/// A byte there and back between two ends that are both this source's, the client expecting this peer; an error has the words of both.
async fn exchange(source: &X509Source, expected: &str) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = mtls_server(source.clone()).authorize(authorizer::any()).build().unwrap();
    let echo = tokio::spawn(async move {
        let (socket, _) = listener.accept().await?;
        let mut stream = TlsAcceptor::from(Arc::new(server)).accept(socket).await?;
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        stream.write_all(&byte).await?;
        stream.shutdown().await
    });
    let client =
        mtls_client(source.clone()).authorize(authorizer::exact([expected]).unwrap()).build().unwrap();
    let ask = async {
        let socket = TcpStream::connect(address).await?;
        let name = ServerName::try_from("unused.example").unwrap();
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, socket).await?;
        stream.write_all(b"7").await?;
        stream.read_u8().await
    };
    match (ask.await, echo.await.unwrap()) {
        (Ok(b'7'), Ok(())) => Ok(()),
        (client, server) => Err(format!("the client says {client:?}, the server {server:?}")),
    }
}
