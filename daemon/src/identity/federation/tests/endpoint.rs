//! Our endpoint, with both profiles, and what it is not started with.

use super::*;

#[tokio::test]
async fn https_web_end_to_end() {
    let (web, other) = (WebPki::new(), partner("other"));
    let (federation, stop, tasks) = federation();
    let proof = EndpointProof::Web { certificate: web.path("web.pem"), key: web.path("web.key") };
    let address = serve(&federation, &other, proof).await;
    let mut reader = Reader::new(&other.domain(), at(address), web.profile());
    assert_eq!(reader.client.poll().await.unwrap(), Outcome::Updated);
    let bundle = reader.bundles.get(&other.domain()).unwrap();
    assert_eq!((bundle.anchors(), bundle.sequence()), (other.bundle().anchors(), Some(7)));
    assert_eq!(bundle.refresh_hint(), Some(Duration::from_secs(60)));
    assert_eq!(reader.client.poll().await.unwrap(), Outcome::Unchanged);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(reader.client.file()), 0o600);
    // Not a CA that this reader believes.
    let mut stranger = Reader::new(&other.domain(), at(address), WebPki::new().profile_kept());
    assert!(stranger.refused().await.contains("TLS"));
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

#[tokio::test]
async fn https_spiffe_end_to_end() {
    let (other, files) = (partner("other"), tempfile::tempdir().unwrap());
    let (federation, _stop, _tasks) = federation();
    let address = serve(&federation, &other, EndpointProof::Spiffe).await;
    let profile = spiffe(other.id("/site/s/node/gw1"), files.path(), &other.bundle());
    let mut reader = Reader::new(&other.domain(), at(address), profile);
    assert_eq!(reader.client.poll().await.unwrap(), Outcome::Updated);
    assert_eq!(reader.sequence(), Some(7));
    // Somebody else of the same domain, and somebody of that name under another root.
    let wrong = spiffe(other.id("/site/s/node/gw2"), files.path(), &other.bundle());
    let mut wrong = Reader::new(&other.domain(), at(address), wrong);
    assert!(wrong.refused().await.contains("not allowed"));
    let impostor = spiffe(other.id("/site/s/node/gw1"), files.path(), &partner("other").bundle());
    let mut impostor = Reader::new(&other.domain(), at(address), impostor);
    assert!(impostor.refused().await.contains("no valid path"));
    assert!(impostor.bundles.get(&other.domain()).is_none());
}

#[tokio::test]
async fn the_endpoint_answers_get_and_nothing_else() {
    let (web, other) = (WebPki::new(), partner("other"));
    let (federation, _stop, _tasks) = federation();
    let proof = EndpointProof::Web { certificate: web.path("web.pem"), key: web.path("web.key") };
    let address = serve(&federation, &other, proof).await;
    for (method, path, status) in [
        (Method::GET, "/bundle", StatusCode::OK),
        (Method::GET, "/bundle?x=1", StatusCode::OK),
        (Method::GET, "/", StatusCode::NOT_FOUND),
        (Method::POST, "/bundle", StatusCode::METHOD_NOT_ALLOWED),
        (Method::DELETE, "/bundle", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let tls = TlsConnector::from(Arc::new(web::client(Some(&web.path("ca.pem"))).unwrap()));
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = tls.connect(ServerName::from(address.ip()), stream).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let request =
            Request::builder().method(&method).uri(path).header("host", "x").body(Empty::<Bytes>::new());
        let response = sender.send_request(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
        assert_eq!(response.headers()["cache-control"], "no-store");
        if status == StatusCode::OK {
            assert_eq!(response.headers()["content-type"], "application/json");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let document = Bundle::from_jwks(&other.domain(), &body).unwrap();
            assert_eq!(document.bundle.sequence(), Some(7));
        } else if status == StatusCode::METHOD_NOT_ALLOWED {
            assert_eq!(response.headers()["allow"], "GET");
        }
        connection.abort();
    }
}

#[tokio::test]
async fn what_can_not_be_is_refused_before_anything_changes() {
    let (web, other, files) = (WebPki::new(), partner("other"), tempfile::tempdir().unwrap());
    let (federation, _stop, _tasks) = federation();
    serve(&federation, &other, EndpointProof::Spiffe).await;
    let url: Uri = "https://127.0.0.1:1/".parse().unwrap();
    let prepare = |trust_domain: TrustDomain, profile: Profile| {
        let domains = vec![DomainConfig { trust_domain, url: url.clone(), profile }];
        let config = FederationConfig { state_dir: files.path().into(), endpoint: None, domains };
        let federation = federation.clone();
        async move { federation.prepare(Some(&config)).await.err().map(|error| error.to_string()) }
    };
    let third = TrustDomain::parse("third").unwrap();
    assert!(prepare(other.domain(), web.profile()).await.unwrap().contains("own trust domain"));
    assert_eq!(prepare(third.clone(), web.profile()).await, None);
    let no_ca = Profile::Web { ca_file: Some(web.path("web.key")) };
    assert!(prepare(third.clone(), no_ca).await.unwrap().contains("no CA certificate"));
    // A bootstrap bundle of another domain than the endpoint's.
    let foreign = spiffe(third.member("/e").unwrap(), files.path(), &other.bundle());
    assert!(prepare(third, foreign).await.unwrap().contains("made for"));
    assert!(federation.listens().is_some());
    // A new configuration without an endpoint ends it.
    let prepared = federation.prepare(None).await.unwrap();
    assert_eq!(federation.install(prepared), ["federation: our bundle is no longer served"]);
    assert_eq!(federation.listens(), None);
}
