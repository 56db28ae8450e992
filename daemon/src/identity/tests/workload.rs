//! The Workload API by the letter of its specification: every call, what is in each message, and when there is one.

use isthmus_proto::{codec::LeanCodec, workload::JwtBundlesResponse};
use tokio_stream::StreamExt as _;
use tonic_reflection::pb::{v1, v1alpha};

use super::*;

fn foreign(name: &str) -> (TrustDomain, Bundle) {
    let domain = TrustDomain::parse(name).unwrap();
    let key = Key::generate(Curve::P256).unwrap();
    let root =
        Authority::root(&domain, key, time::Duration::days(9), serial(), SystemTime::now().into()).unwrap();
    let bundle = Bundle::parse(root.certificate()).unwrap();
    (domain, bundle)
}

/// A bundle whose domain has withdrawn everything.
fn withdrawn(domain: &TrustDomain) -> Bundle {
    Bundle::from_jwks(domain, br#"{"keys":[],"spiffe_sequence":1}"#).unwrap().bundle
}

fn federating(path: &str, domains: &[&TrustDomain]) -> Entry {
    Entry { federates_with: domains.iter().map(|domain| (*domain).clone()).collect(), ..hour(path) }
}

impl Node {
    fn trust(&self) -> Trust {
        self.handle.trust().unwrap().as_ref().clone()
    }

    /// The own bundle with one root more.
    fn add_root(&self) {
        let key = Key::generate(Curve::P256).unwrap();
        let life = time::Duration::days(9);
        let root = Authority::root(&domain(), key, life, serial(), SystemTime::now().into()).unwrap();
        let both = [self.trust().own().to_der(), root.certificate().to_vec()].concat();
        self.handle.set_trust(self.trust().with_own(Bundle::parse(&both).unwrap()));
    }

    async fn jwt_bundles(&self) -> Streaming<JwtBundlesResponse> {
        let request = with_header(JwtBundlesRequest {});
        self.client().await.fetch_jwt_bundles(request).await.unwrap().into_inner()
    }

    async fn jwt(
        &self,
        audience: &[&str],
        spiffe_id: &str,
    ) -> Result<Vec<isthmus_proto::workload::Jwtsvid>, tonic::Status> {
        let audience = audience.iter().map(ToString::to_string).collect();
        let request = with_header(JwtsvidRequest { audience, spiffe_id: spiffe_id.into() });
        Ok(self.client().await.fetch_jwtsvid(request).await?.into_inner().svids)
    }

    async fn validate(
        &self,
        audience: &str,
        svid: &str,
    ) -> Result<isthmus_proto::workload::ValidateJwtsvidResponse, tonic::Status> {
        let request = ValidateJwtsvidRequest { audience: audience.into(), svid: svid.into() };
        Ok(self.client().await.validate_jwtsvid(with_header(request)).await?.into_inner())
    }
}

async fn next<T>(stream: &mut Streaming<T>) -> T {
    stream.message().await.unwrap().unwrap()
}

// spiffe/go-spiffe#288: a partner that has withdrawn all its roots must not cost a workload its own SVID.
#[tokio::test]
async fn federated_bundles_are_those_of_the_entry_even_an_empty_one() {
    let (a, a_bundle) = foreign("a.example");
    let (b, _) = foreign("b.example");
    let (c, c_bundle) = foreign("c.example");
    let (unknown, _) = foreign("unknown.example");
    let node = Node::new(vec![federating("/w", &[&a, &b, &unknown])]).await;
    node.handle.set_trust(node.trust().with_federated([a_bundle.clone(), withdrawn(&b), c_bundle]));
    let first = next(&mut node.fetch().await.unwrap()).await;
    assert_eq!(check(&node.files, &first).len(), 1);
    let expected = [(a.id().to_string(), a_bundle.to_der()), (b.id().to_string(), Vec::new())];
    assert_eq!(first.federated_bundles, expected.clone().into());

    let request = with_header(X509BundlesRequest {});
    let mut stream = node.client().await.fetch_x509_bundles(request).await.unwrap().into_inner();
    let own = (domain().id().to_string(), node.files.bundle().to_der());
    assert_eq!(next(&mut stream).await.bundles, expected.into_iter().chain([own]).collect());

    let bundles = next(&mut node.jwt_bundles().await).await.bundles;
    let mut names: Vec<&str> = bundles.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["spiffe://a.example", "spiffe://b.example", "spiffe://fabric.example"]);
    assert!(!bundles.contains_key(&c.id().to_string()));
}

// spiffe/spire#428, #3923, #5280, #3101: exactly one message for a change, with the new bundle in it, and none without.
#[tokio::test]
async fn one_message_for_each_change_that_concerns_the_stream() {
    let (a, a_bundle) = foreign("a.example");
    let (_, c_bundle) = foreign("c.example");
    let node = Node::new(vec![federating("/w", &[&a])]).await;
    let mut stream = node.fetch().await.unwrap();
    let first = next(&mut stream).await;
    // Another domain, the same again, and new JWT keys: nothing that is in these messages.
    let with_c = node.trust().with_federated([c_bundle.clone()]);
    node.handle.set_trust(with_c.clone());
    tokio::task::yield_now().await;
    node.handle.set_trust(with_c);
    node.handle.republish(SystemTime::now() + Duration::from_secs(12 * 3600)).await;
    tokio::task::yield_now().await;
    node.handle.set_trust(node.trust().with_federated([c_bundle, a_bundle.clone()]));
    let second = next(&mut stream).await;
    assert_eq!(second.federated_bundles, [(a.id().to_string(), a_bundle.to_der())].into());
    // Only a bundle is new: the SVID and its key are the same (decision 013).
    assert_eq!(first.svids, second.svids);
    node.add_root();
    let third = next(&mut stream).await;
    assert_eq!(third.svids[0].bundle, node.trust().own().to_der());
    assert_ne!(third.svids[0].bundle, first.svids[0].bundle);
    assert_eq!(third.svids[0].x509_svid_key, first.svids[0].x509_svid_key);
    // Taken away again: absence is what says so.
    node.handle.set_trust(node.trust().with_federated([]));
    assert!(next(&mut stream).await.federated_bundles.is_empty());
}

#[tokio::test]
async fn jwt_bundles_change_with_keys_and_only_then() {
    let node = Node::new(vec![hour("/w")]).await;
    let mut stream = node.jwt_bundles().await;
    let keys = |response: &JwtBundlesResponse| {
        let jwks: serde_json::Value =
            serde_json::from_slice(&response.bundles["spiffe://fabric.example"]).unwrap();
        // Plain: nothing of SPIFFE, and no certificates of the X.509 profile.
        assert_eq!(jwks.as_object().unwrap().keys().collect::<Vec<_>>(), ["keys"]);
        let keys = jwks["keys"].as_array().unwrap().clone();
        assert!(keys.iter().all(|key| key["kid"].is_string() && key.get("x5c").is_none()));
        keys.len()
    };
    assert_eq!(keys(&next(&mut stream).await), 1);
    // A domain that this workload has nothing to do with.
    node.handle.set_trust(node.trust().with_federated([foreign("c.example").1]));
    tokio::task::yield_now().await;
    node.handle.republish(SystemTime::now() + Duration::from_secs(12 * 3600)).await;
    assert_eq!(keys(&next(&mut stream).await), 2);
}

#[tokio::test]
async fn an_identity_that_comes_costs_the_others_nothing() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut stream = node.fetch().await.unwrap();
    let first = next(&mut stream).await;
    node.apply(vec![hour("/b"), hour("/a")]).await;
    let second = next(&mut stream).await;
    let ids: Vec<String> = check(&node.files, &second).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["spiffe://fabric.example/b", "spiffe://fabric.example/a"], "the first is the default");
    assert_eq!(second.svids[1], first.svids[0]);
    // And one that goes is not in the next.
    node.apply(vec![hour("/a")]).await;
    assert_eq!(next(&mut stream).await.svids, first.svids);
}

#[tokio::test]
async fn hints_are_unique_in_a_response() {
    let hinted = |path: &str, hint: &str| Entry { hint: hint.into(), ..hour(path) };
    let node = Node::new(vec![hinted("/a", "in"), hinted("/b", "out")]).await;
    let first = next(&mut node.fetch().await.unwrap()).await;
    let hints: Vec<&str> = first.svids.iter().map(|svid| svid.hint.as_str()).collect();
    assert_eq!(hints, ["in", "out"]);
    let tokens = node.jwt(&["x"], "").await.unwrap();
    assert_eq!(tokens.iter().map(|token| token.hint.as_str()).collect::<Vec<_>>(), ["in", "out"]);
}

// spiffe/spire#711: a caller whose right is gone must not go on over a connection that it opened before.
#[tokio::test]
async fn an_open_connection_is_no_right() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut client = node.client().await;
    let mut stream = client.fetch_x509svid(with_header(X509svidRequest {})).await.unwrap().into_inner();
    next(&mut stream).await;
    node.apply(vec![]).await;
    let denied = |status: tonic::Status| assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    denied(stream.message().await.unwrap_err());
    let mut again = client.fetch_x509svid(with_header(X509svidRequest {})).await.unwrap().into_inner();
    denied(again.message().await.unwrap_err());
    let request = JwtsvidRequest { audience: vec!["x".into()], ..Default::default() };
    denied(client.fetch_jwtsvid(with_header(request)).await.unwrap_err());
    let request = ValidateJwtsvidRequest { audience: "x".into(), svid: "x".into() };
    denied(client.validate_jwtsvid(with_header(request)).await.unwrap_err());
    let mut bundles = client.fetch_jwt_bundles(with_header(JwtBundlesRequest {})).await.unwrap().into_inner();
    denied(bundles.message().await.unwrap_err());
    // Back again on the same connection.
    node.apply(vec![hour("/a")]).await;
    let mut again = client.fetch_x509svid(with_header(X509svidRequest {})).await.unwrap().into_inner();
    next(&mut again).await;
}

#[tokio::test]
async fn nobody_is_left_with_an_expired_svid() {
    let node = Node::new(vec![entry("/a", own_uid(), Duration::from_secs(2))]).await;
    let mut stream = node.fetch().await.unwrap();
    let first = next(&mut stream).await;
    let not_after = bundle::certificates(&first.svids[0].x509_svid).unwrap();
    let not_after = isthmus_pki::Facts::parse(&not_after[0]).unwrap().not_after;
    let disk = audit::tests::Faulty::under(node.handle.current_issuer().unwrap().audit());
    disk.leave(0);
    // What could not be renewed serves to its end; then the stream ends.
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(time::OffsetDateTime::now_utc().unix_timestamp() >= not_after);
    while node.handle.certificates().iter().any(|c| c.kind == Kind::WorkloadSvid) {
        tokio::task::yield_now().await;
    }
    disk.leave(u64::MAX);
    next(&mut node.fetch().await.unwrap()).await;
}

#[tokio::test]
async fn tokens_for_all_identities_or_the_one_that_is_asked_for() {
    let node =
        Node::new(vec![hour("/a"), hour("/b"), entry("/c", own_uid() + 1, Duration::from_secs(60))]).await;
    let all = node.jwt(&["db", "cache"], "").await.unwrap();
    let ids: Vec<&str> = all.iter().map(|token| token.spiffe_id.as_str()).collect();
    assert_eq!(ids, ["spiffe://fabric.example/a", "spiffe://fabric.example/b"]);
    for token in &all {
        for audience in ["db", "cache"] {
            let valid = node.validate(audience, &token.svid).await.unwrap();
            assert_eq!(valid.spiffe_id, token.spiffe_id);
            let claims = valid.claims.unwrap().fields;
            let text = |name: &str| match claims[name].kind.clone().unwrap() {
                prost_types::value::Kind::StringValue(text) => text,
                other => panic!("{other:?}"),
            };
            assert_eq!(text("sub"), token.spiffe_id);
            assert!(claims.contains_key("aud") && claims.contains_key("exp"));
        }
    }
    let one = node.jwt(&["db"], "spiffe://fabric.example/b").await.unwrap();
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].spiffe_id, "spiffe://fabric.example/b");
    let refused = |result: Result<_, tonic::Status>| result.map(|_: Vec<_>| ()).unwrap_err();
    for other in ["spiffe://fabric.example/c", "spiffe://fabric.example/none", "spiffe://other.example/a"] {
        let status = refused(node.jwt(&["db"], other).await);
        assert_eq!(
            (status.code(), status.message()),
            (Code::PermissionDenied, "no identity issued"),
            "{other}"
        );
    }
    for (audience, id) in
        [(&[][..], ""), (&[""], ""), (&["db", ""], ""), (&["db"], "https://fabric.example/a")]
    {
        assert_eq!(refused(node.jwt(audience, id).await).code(), Code::InvalidArgument, "{audience:?} {id}");
    }
}

#[tokio::test]
async fn tokens_that_are_not_valid_are_an_invalid_argument() {
    let node = Node::new(vec![hour("/a")]).await;
    let token = node.jwt(&["db"], "").await.unwrap().remove(0).svid;
    let (head, rest) = token.split_once('.').unwrap();
    let stranger = Node::new(vec![hour("/a")]).await;
    let foreign = stranger.jwt(&["db"], "").await.unwrap().remove(0).svid;
    for (audience, svid) in [
        ("", token.as_str()),
        ("db", ""),
        ("other", &token),
        ("db", "nonsense"),
        ("db", &format!("{head}.{head}.{rest}")),
        ("db", &token[..token.len() - 4]),
        ("db", &foreign),
        ("db", &format!("{}.", token.rsplit_once('.').unwrap().0)),
    ] {
        let status = node.validate(audience, svid).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{svid}");
        assert!(svid.is_empty() || !status.message().contains(svid), "the token is repeated: {status}");
    }
}

#[tokio::test]
async fn the_services_describe_themselves() {
    let node = Node::new(vec![hour("/a")]).await;
    let address = format!("unix:{}", node.files.path("workload.sock").display());
    let channel = Endpoint::try_from(address).unwrap().connect().await.unwrap();
    let expected = [
        "SpiffeWorkloadAPI",
        "envoy.service.secret.v3.SecretDiscoveryService",
        "grpc.reflection.v1.ServerReflection",
    ];

    use v1::{server_reflection_request::MessageRequest, server_reflection_response::MessageResponse};
    let ask =
        |question| v1::ServerReflectionRequest { message_request: Some(question), ..Default::default() };
    let questions = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol("SpiffeWorkloadAPI".into())),
        ask(MessageRequest::FileContainingSymbol("envoy.service.secret.v3.SecretDiscoveryService".into())),
    ];
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let answers = client.server_reflection_info(tokio_stream::iter(questions)).await.unwrap().into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
    let MessageResponse::ListServicesResponse(list) = &answers[0] else { panic!("{answers:?}") };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(expected.iter().all(|name| names.contains(name)), "{names:?}");
    for answer in &answers[1..] {
        assert!(
            matches!(answer, MessageResponse::FileDescriptorResponse(files) if !files.file_descriptor_proto.is_empty())
        );
    }

    // The older version of reflection, which many tools still speak.
    use v1alpha::server_reflection_request::MessageRequest as OldRequest;
    let question = v1alpha::ServerReflectionRequest {
        message_request: Some(OldRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let mut answers =
        client.server_reflection_info(tokio_stream::iter([question])).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
}

#[tokio::test]
async fn calls_of_profiles_that_are_not_served_are_unimplemented() {
    let node = Node::new(vec![hour("/a")]).await;
    let address = format!("unix:{}", node.files.path("workload.sock").display());
    let channel = Endpoint::try_from(address).unwrap().connect().await.unwrap();
    for call in ["FetchWITSVID", "FetchWITBundles", "Nonsense"] {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.unwrap();
        let path = format!("/SpiffeWorkloadAPI/{call}").parse().unwrap();
        let codec = LeanCodec::<X509svidRequest, X509svidResponse>::default();
        let result = client.server_streaming(with_header(X509svidRequest {}), path, codec).await;
        assert_eq!(result.map(|_| ()).unwrap_err().code(), Code::Unimplemented, "{call}");
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_a_reload_makes_room() {
    let node = Node::new(vec![hour("/a")]).await;
    let settings =
        |connections| Settings { limits: Limits { connections, per_user: 1_000 }, ..Settings::default() };
    let files = &node.files;
    let apply = async |connections| {
        let api =
            WorkloadApiConfig { settings: settings(connections), ..files.workload_api(vec![hour("/a")]) };
        node.handle.apply(Some(files.config()), Some(files.issuer()), Some(api)).await.unwrap()
    };
    let changes = apply(1).await;
    assert_eq!(changes, ["workload_api: other limits, or other names for Envoy's secrets"]);
    let mut stream = node.fetch().await.unwrap();
    next(&mut stream).await;
    let mut second = tokio::net::UnixStream::connect(files.path("workload.sock")).await.unwrap();
    assert_eq!(second.read(&mut [0; 64]).await.unwrap_or(0), 0, "closed at once");
    assert!(!apply(100).await.is_empty());
    next(&mut node.fetch().await.unwrap()).await;
    assert!(apply(100).await.is_empty(), "nothing has changed");
}
