//! Who gets which identities and bundles, when the next message comes, and when the stream ends.

use super::*;

#[tokio::test]
async fn a_workload_gets_its_identities_at_once() {
    let node =
        Node::new(vec![hour("/a"), entry("/b", own_uid() + 1, Duration::from_secs(60)), hour("/c")]).await;
    let first = node.fetch().await.unwrap().message().await.unwrap().unwrap();
    let ids: Vec<String> = check(&node.files, &first).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["spiffe://fabric.example/a", "spiffe://fabric.example/c"]);
}

#[tokio::test]
async fn bundles_come_alone_too() {
    let node = Node::new(vec![hour("/a")]).await;
    let request = with_header(X509BundlesRequest {});
    let mut stream = node.client().await.fetch_x509_bundles(request).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!(first.bundles["spiffe://fabric.example"], node.files.bundle().to_der());
}

#[tokio::test]
async fn the_header_is_demanded_of_every_call() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut client = node.client().await;
    let code = |status: tonic::Status| status.code();
    assert_eq!(
        client.fetch_x509svid(X509svidRequest {}).await.map_err(code).unwrap_err(),
        Code::InvalidArgument
    );
    let mut twice = with_header(X509svidRequest {});
    twice.metadata_mut().append("workload.spiffe.io", "true".parse().unwrap());
    assert_eq!(client.fetch_x509svid(twice).await.map_err(code).unwrap_err(), Code::InvalidArgument);
    let bundles = client.fetch_x509_bundles(X509BundlesRequest {}).await.map_err(code);
    assert_eq!(bundles.unwrap_err(), Code::InvalidArgument);
    let jwt = client.fetch_jwtsvid(JwtsvidRequest::default()).await.map_err(code);
    assert_eq!(jwt.unwrap_err(), Code::InvalidArgument);
    let jwt = client.fetch_jwt_bundles(JwtBundlesRequest {}).await.map_err(code);
    assert_eq!(jwt.unwrap_err(), Code::InvalidArgument);
    let jwt = client.validate_jwtsvid(ValidateJwtsvidRequest::default()).await.map_err(code);
    assert_eq!(jwt.unwrap_err(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_stranger_gets_the_text_that_clients_know() {
    let node = Node::new(vec![entry("/a", own_uid() + 1, Duration::from_secs(60))]).await;
    let status = node.fetch().await.unwrap().message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "no identity issued"));
    let request = with_header(X509BundlesRequest {});
    let mut stream = node.client().await.fetch_x509_bundles(request).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn renewal_is_pushed_with_a_new_key() {
    let node = Node::new(vec![entry("/a", own_uid(), Duration::from_secs(2))]).await;
    let mut stream = node.fetch().await.unwrap();
    let first = stream.message().await.unwrap().unwrap();
    let second = stream.message().await.unwrap().unwrap();
    assert_ne!(check(&node.files, &first), check(&node.files, &second));
    assert_ne!(first.svids[0].x509_svid_key, second.svids[0].x509_svid_key);
}

#[tokio::test]
async fn changes_are_pushed_and_nothing_else() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    let first = stream.message().await.unwrap().unwrap();
    assert!(node.apply(vec![hour("/a")]).await.is_empty());
    // An entry of another user changes nothing for this one.
    let stranger = entry("/z", own_uid() + 1, Duration::from_secs(60));
    assert_eq!(node.apply(vec![hour("/a"), stranger]).await, ["workload_api: 2 entries"]);
    node.apply(vec![hour("/a"), hour("/b")]).await;
    // The next message is that of the last change: none was sent for the two before.
    let second = stream.message().await.unwrap().unwrap();
    assert_eq!((first.svids.len(), second.svids.len()), (1, 2));
    // A new site CA: reissued under it.
    node.files.new_site(NODE.0);
    node.files.new_node(NODE.0, NODE.1);
    let changes = node.apply(vec![hour("/a"), hour("/b")]).await;
    assert!(changes.iter().any(|change| change.contains("site-ca")), "{changes:?}");
    let third = stream.message().await.unwrap().unwrap();
    assert_eq!(check(&node.files, &third).len(), 2);
}

#[tokio::test]
async fn a_stream_ends_when_the_right_is_gone() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    assert_eq!(node.handle.certificates().iter().filter(|c| c.kind == Kind::WorkloadSvid).count(), 1);
    node.apply(vec![]).await;
    let status = stream.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "no identity issued"));
    while node.handle.certificates().iter().any(|c| c.kind == Kind::WorkloadSvid) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn shows_what_it_holds() {
    let node = Node::new(vec![hour("/a")]).await;
    let kinds: Vec<Kind> = node.handle.certificates().iter().map(|c| c.kind).collect();
    assert_eq!(kinds, [Kind::Root, Kind::NodeSvid, Kind::SiteCa]);
    assert_eq!(node.handle.spiffe_id().unwrap(), "spiffe://fabric.example/site/aws-use1/node/gw1");
    let (fine, summary) = node.handle.summary();
    assert!(fine == Condition::Well && summary.contains("0 workload SVIDs"), "{summary}");
}
