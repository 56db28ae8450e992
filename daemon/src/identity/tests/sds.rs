//! Envoy's secret discovery as Envoy sees it: a real socket and a real gRPC client.

use isthmus_proto::sds::envoy::{
    config::core::v3::{DataSource, Node as EnvoyNode, data_source::Specifier},
    extensions::transport_sockets::tls::v3::{Secret, SpiffeCertValidatorConfig, secret::Type},
    service::{
        discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse},
        secret::v3::secret_discovery_service_client::SecretDiscoveryServiceClient,
    },
};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{super::sds::TYPE_URL, *};

/// One stream of an Envoy.
struct Envoy {
    requests: mpsc::Sender<DiscoveryRequest>,
    answers: Streaming<DiscoveryResponse>,
}

fn ask(names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        resource_names: names.iter().map(ToString::to_string).collect(),
        type_url: TYPE_URL.into(),
        node: Some(EnvoyNode { id: "envoy-1".into(), ..Default::default() }),
        ..Default::default()
    }
}

fn reply(names: &[&str], to: &DiscoveryResponse) -> DiscoveryRequest {
    let (version_info, response_nonce) = (to.version_info.clone(), to.nonce.clone());
    DiscoveryRequest { version_info, response_nonce, node: None, ..ask(names) }
}

impl Node {
    async fn sds(&self) -> SecretDiscoveryServiceClient<Channel> {
        let address = format!("unix:{}", self.files.path("workload.sock").display());
        SecretDiscoveryServiceClient::new(Endpoint::try_from(address).unwrap().connect().await.unwrap())
    }

    async fn envoy(&self, names: &[&str]) -> Envoy {
        let (requests, outgoing) = mpsc::channel(4);
        requests.send(ask(names)).await.unwrap();
        let answers = self.sds().await.stream_secrets(ReceiverStream::new(outgoing)).await.unwrap();
        Envoy { requests, answers: answers.into_inner() }
    }
}

impl Envoy {
    async fn next(&mut self) -> DiscoveryResponse {
        self.answers.message().await.unwrap().unwrap()
    }
}

fn bytes(source: Option<DataSource>) -> Vec<u8> {
    let Some(Specifier::InlineBytes(bytes)) = source.unwrap().specifier else { panic!("not inline") };
    assert!(!bytes.is_empty(), "an empty secret");
    bytes
}

fn secrets(answer: &DiscoveryResponse) -> Vec<(String, Type)> {
    assert_eq!(answer.type_url, TYPE_URL);
    let read = |any: &prost_types::Any| {
        assert_eq!(any.type_url, TYPE_URL);
        let secret = Secret::decode(&any.value[..]).unwrap();
        (secret.name, secret.r#type.unwrap())
    };
    answer.resources.iter().map(read).collect()
}

/// The PEM that a validation context has.
fn trusted(secret: &Type) -> String {
    let Type::ValidationContext(context) = secret else { panic!("no validation context") };
    String::from_utf8(bytes(context.trusted_ca.clone())).unwrap()
}

/// Checks certificate and key against the fabric's root; the ID.
fn identity_of(files: &Files, secret: &Type) -> String {
    let Type::TlsCertificate(certificate) = secret else { panic!("no certificate") };
    let chain = bundle::certificates(&bytes(certificate.certificate_chain.clone())).unwrap();
    let store = TrustStore::from(files.bundle());
    let verified = verify::verify(&chain, &store, Purpose::Server, SystemTime::now().into()).unwrap();
    let key = Key::from_pem(&bytes(certificate.private_key.clone()), None).unwrap();
    isthmus_pki::authority::check_key(&verified.leaf, &key).unwrap();
    verified.id.to_string()
}

#[tokio::test]
async fn envoy_gets_what_it_asks_for_and_then_what_changes() {
    let node = Node::new(vec![hour("/a"), hour("/b")]).await;
    // No header: Envoy sends none.
    let mut envoy = node.envoy(&["default"]).await;
    let first = envoy.next().await;
    let [(name, svid)] = &secrets(&first)[..] else { panic!("one secret") };
    assert_eq!(
        (name.as_str(), identity_of(&node.files, svid).as_str()),
        ("default", "spiffe://fabric.example/a")
    );
    envoy.requests.send(reply(&["default"], &first)).await.unwrap();

    // Another name: answered at once, with a higher version and a fresh nonce.
    envoy.requests.send(reply(&["spiffe://fabric.example/b", "ROOTCA"], &first)).await.unwrap();
    let second = envoy.next().await;
    assert!(second.version_info.parse::<u64>().unwrap() > first.version_info.parse().unwrap());
    assert_ne!(second.nonce, first.nonce);
    let both = secrets(&second);
    assert_eq!(identity_of(&node.files, &both[0].1), "spiffe://fabric.example/b");
    assert_eq!(trusted(&both[1].1), bundle::to_pem([node.files.root.certificate()]));

    // Something that Envoy does not have is no reason to send; a new site CA is one.
    envoy.requests.send(reply(&["ROOTCA"], &first)).await.unwrap();
    node.files.new_site(NODE.0);
    node.files.new_node(NODE.0, NODE.1);
    node.apply(vec![hour("/a"), hour("/b")]).await;
    let third = envoy.next().await;
    assert_eq!(secrets(&third).len(), 2, "the stale request changed nothing");
    assert_ne!(secrets(&third)[0], both[0]);
    assert_eq!(secrets(&third)[1], both[1]);
}

#[tokio::test]
async fn what_envoy_refuses_is_not_sent_in_a_loop() {
    let node = Node::new(vec![hour("/a")]).await;
    let mut envoy = node.envoy(&["ROOTCA"]).await;
    let first = envoy.next().await;
    for _ in 0..3 {
        let error_detail = Some(isthmus_proto::sds::google::rpc::Status { code: 13, message: "no".into() });
        let refusal =
            DiscoveryRequest { version_info: String::new(), error_detail, ..reply(&["ROOTCA"], &first) };
        envoy.requests.send(refusal).await.unwrap();
    }
    // The next answer is that to other names, not the same once more.
    envoy.requests.send(reply(&["ALL"], &first)).await.unwrap();
    assert_eq!(secrets(&envoy.next().await)[0].0, "ALL");
}

#[tokio::test]
async fn all_bundles_are_kept_apart_and_an_empty_one_is_left_out() {
    let partner = TrustDomain::parse("a.example").unwrap();
    let gone = TrustDomain::parse("b.example").unwrap();
    let key = Key::generate(Curve::P256).unwrap();
    let life = time::Duration::days(9);
    let root = Authority::root(&partner, key, life, serial(), SystemTime::now().into()).unwrap();
    let entry = Entry { federates_with: vec![partner.clone(), gone.clone()], ..hour("/a") };
    let node = Node::new(vec![entry]).await;
    let bundles = [
        Bundle::parse(root.certificate()).unwrap(),
        Bundle::from_jwks(&gone, br#"{"keys":[],"spiffe_sequence":1}"#).unwrap().bundle,
    ];
    node.handle.set_trust(node.handle.trust().unwrap().with_federated(bundles));

    let mut envoy = node.envoy(&["ALL", "spiffe://a.example"]).await;
    let both = secrets(&envoy.next().await);
    let Type::ValidationContext(context) = &both[0].1 else { panic!() };
    assert_eq!(context.trusted_ca, None);
    let config = context.custom_validator_config.clone().unwrap().typed_config.unwrap();
    let config = SpiffeCertValidatorConfig::decode(&config.value[..]).unwrap();
    let domains: Vec<_> =
        config.trust_domains.into_iter().map(|domain| (domain.name, bytes(domain.trust_bundle))).collect();
    let pem = |authority: &Authority| bundle::to_pem([authority.certificate()]).into_bytes();
    let expected =
        [("fabric.example".to_owned(), pem(&node.files.root)), ("a.example".to_owned(), pem(&root))];
    assert_eq!(domains, expected);
    assert_eq!(trusted(&both[1].1).into_bytes(), pem(&root));

    // One that would let everybody in is never sent.
    let mut envoy = node.envoy(&["spiffe://b.example"]).await;
    let status = envoy.answers.message().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("spiffe://b.example"), "{status}");
}

#[tokio::test]
async fn only_the_entitled_get_secrets() {
    let node = Node::new(vec![hour("/a")]).await;
    for wrong in ["spiffe://fabric.example/b", "nonsense"] {
        let status = node.envoy(&["default", wrong]).await.answers.message().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(wrong), "{status}");
    }
    let mut envoy = node.envoy(&["default"]).await;
    envoy.next().await;
    node.apply(vec![]).await;
    let status = envoy.answers.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "no identity issued"));
    let status = node.sds().await.fetch_secrets(ask(&["default"])).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn secrets_can_be_fetched_once_and_everything_has_a_name() {
    let node = Node::new(vec![hour("/a")]).await;
    let answer = node.sds().await.fetch_secrets(ask(&[])).await.unwrap().into_inner();
    let names: Vec<String> = secrets(&answer).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["default", "ROOTCA", "ALL", "spiffe://fabric.example/a", "spiffe://fabric.example"]);
    let other = DiscoveryRequest { type_url: "type.googleapis.com/envoy.x".into(), ..ask(&[]) };
    assert_eq!(node.sds().await.fetch_secrets(other).await.unwrap_err().code(), Code::InvalidArgument);
    let delta = tokio_stream::iter([DeltaDiscoveryRequest {}]);
    assert_eq!(node.sds().await.delta_secrets(delta).await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn only_what_envoy_asks_for_is_issued() {
    let node = Node::new(vec![hour("/a"), hour("/b")]).await;
    let issued = || node.handle.certificates().iter().filter(|c| c.kind == Kind::WorkloadSvid).count();
    let mut roots = node.envoy(&["ROOTCA"]).await;
    roots.next().await;
    assert_eq!(issued(), 0);
    let mut one = node.envoy(&["spiffe://fabric.example/b"]).await;
    one.next().await;
    assert_eq!(issued(), 1);
}

#[tokio::test]
async fn names_are_configurable() {
    let node = Node::new(vec![hour("/a")]).await;
    let files = &node.files;
    let names = super::super::sds::Names { default_svid: "cert".into(), ..Default::default() };
    let settings = Settings { names, ..Settings::default() };
    let api = WorkloadApiConfig { settings, ..files.workload_api(vec![hour("/a")]) };
    node.handle.apply(Some(files.config()), Some(files.issuer()), Some(api)).await.unwrap();
    let mut envoy = node.envoy(&["cert"]).await;
    assert_eq!(secrets(&envoy.next().await)[0].0, "cert");
}
