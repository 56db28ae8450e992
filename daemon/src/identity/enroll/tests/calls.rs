//! Who may make which call, and what comes of it.

use isthmus_proto::issuance::{IssueJwtRequest, IssueX509Request, RenewRequest, SyncRequest};
use tonic::Code;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_may_call_nothing_but_enroll() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let member = issuer.member("gw2", None).await;
    let mut client = member.connect(&issuer, As::Stranger(&gw1())).await;
    let refused = client.renew(RenewRequest { csr: csr_of("gw2") }).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let refused = client.issue_x509(IssueX509Request::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let refused = client.issue_jwt(IssueJwtRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let refused = client.sync(SyncRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

/// Whatever a request asks for, the certificate is what the caller is entitled to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_gets_its_own_id_and_the_paths_that_its_site_allows() {
    let rules = NodeRules {
        paths: vec![crate::identity::Pattern::parse("/ns/pay/*").unwrap()],
        dns_names: vec!["pay.example".into()],
        ..NodeRules::default()
    };
    let issuer = Issuer::start(rules).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    let own = member.joined().await;
    let mut client = member.connect(&issuer, As::Node).await;
    let leaf = |certificates: &[Vec<u8>]| isthmus_pki::Facts::parse(&certificates[0]).unwrap();

    let renewed = client.renew(RenewRequest { csr: csr_of("gw1") }).await.unwrap().into_inner();
    assert_eq!(leaf(&renewed.certificates).uris, [own.id.to_string()]);

    let ask = |path: &str, dns_names: &[&str], ttl_seconds| IssueX509Request {
        csr: csr_of("x"),
        path: path.into(),
        dns_names: dns_names.iter().map(|name| (*name).to_owned()).collect(),
        ttl_seconds,
    };
    let issued = client.issue_x509(ask("/ns/pay/sa/api", &["api.pay.example"], 600)).await.unwrap();
    let issued = leaf(&issued.into_inner().certificates);
    assert_eq!(issued.uris, ["spiffe://fabric.example/ns/pay/sa/api"]);
    assert_eq!(issued.dns_names, ["api.pay.example"]);
    assert_eq!(issued.not_after - issued.not_before, 600 + 60);
    let forever = client.issue_x509(ask("/ns/pay/sa/api", &[], u32::MAX)).await.unwrap();
    let forever = leaf(&forever.into_inner().certificates);
    assert_eq!(forever.not_after - forever.not_before, 86_400 + 60);

    for (path, dns, code) in [
        ("/ns/payments", "pay.example", Code::PermissionDenied),
        ("/ns/pay/x", "evil.example", Code::PermissionDenied),
        ("/ns/pay", "pay.example", Code::PermissionDenied),
        ("/site/aws-use1/node/gw1", "pay.example", Code::PermissionDenied),
        ("/ns/pay/../../site", "pay.example", Code::InvalidArgument),
        ("/ns/pay/%2e%2e", "pay.example", Code::InvalidArgument),
        ("", "pay.example", Code::PermissionDenied),
    ] {
        let refused = client.issue_x509(ask(path, &[dns], 600)).await.unwrap_err();
        assert_eq!(refused.code(), code, "{path}: {refused}");
    }
}

/// spiffe/spire#711: the next call on the same channel is refused, and the channel does not last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_banned_node_is_refused_on_the_channel_that_it_has() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    member.joined().await;
    let mut client = member.connect(&issuer, As::Node).await;
    client.renew(RenewRequest { csr: csr_of("gw2") }).await.unwrap();
    issuer.rules(NodeRules { banned: vec!["gw2".into()], ..NodeRules::default() }).await;
    // Either the answer is a refusal or the connection is gone already.
    for _ in 0..3 {
        refused_or_cut(&client.renew(RenewRequest { csr: csr_of("gw2") }).await.unwrap_err());
    }
    // Nor does a new connection help it.
    let standing = member.handle.live().borrow().clone().unwrap();
    let (address, live) = (issuer.address.to_string(), member.handle.live());
    if let Ok(mut client) = client::connect(&address, &live, &standing, As::Node, None).await {
        refused_or_cut(&client.renew(RenewRequest { csr: csr_of("gw2") }).await.unwrap_err());
    }
}

/// What the issuer answers is `PermissionDenied`; what came of a connection that is gone is the client's own word, not an answer.
fn refused_or_cut(status: &tonic::Status) {
    let own =
        std::error::Error::source(status).is_some() || status.message().starts_with("Service was not ready");
    assert!(own || status.code() == Code::PermissionDenied, "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_needs_no_certificate_from_a_ceremony_and_renews_itself() {
    let (files, shutdown) = (Files::new(), CancellationToken::new());
    let node = Some((NODE.0.to_owned(), NODE.1.to_owned()));
    let config = Config { files: None, ..files.config() };
    let handle = start(Some(config), Some(files.issuer()), None, node, shutdown).await.unwrap();
    let mut live = handle.live();
    let has_one = live.wait_for(|standing| standing.as_ref().is_some_and(|s| s.own.is_some()));
    tokio::time::timeout(LIMIT, has_one).await.unwrap().unwrap();
    let node = |c: &&crate::identity::CertificateInfo| c.kind == crate::identity::Kind::NodeSvid;
    let certificates = handle.certificates();
    let svid = certificates.iter().find(node).unwrap();
    let (length, renews) =
        (svid.not_after - svid.not_before - 60, svid.renew_at.unwrap() - svid.not_before - 60);
    assert_eq!(length, 86_400);
    assert!((length / 4 - 1..=length / 3 + 1).contains(&renews), "{renews}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_handshake_is_dropped_and_others_are_served() {
    use tokio::io::AsyncWriteExt as _;
    let issuer = Issuer::start(NodeRules::default()).await;
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0xff, 0xff], &[0; 4096]] {
        let mut stream = tokio::net::TcpStream::connect(issuer.address).await.unwrap();
        let _ = stream.write_all(bytes).await;
    }
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    member.joined().await;
}
