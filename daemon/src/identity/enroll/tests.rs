//! An issuer and the nodes of its site in one process, over loopback TLS.

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration};

use isthmus_pki::{Curve, Key, csr};
use isthmus_proto::issuance::{
    EnrollRequest, IssueJwtRequest, IssueX509Request, RenewRequest, SyncRequest,
    issuance_client::IssuanceClient,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, transport::Channel};

mod keys;

use super::{
    client::{self, As},
    *,
};
use crate::identity::{
    Condition, Config, Handle, NodeRules, rotation, start,
    tests::{Files, NODE, domain},
};

const TTL: Duration = Duration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(20);

/// An issuer: node gw1, with its files, serving on a port of its own.
struct Issuer {
    files: Files,
    handle: Handle,
    address: SocketAddr,
    shutdown: CancellationToken,
}

impl Issuer {
    async fn start(rules: NodeRules) -> Self {
        Self::of(Files::new(), NODE.0, Vec::new(), rules).await
    }

    /// The issuer of another site of the same fabric, which asks these peers.
    async fn beside(&self, site: &str, peers: Vec<String>) -> Self {
        Self::of(self.files.other_site(site), site, peers, NodeRules::default()).await
    }

    async fn of(files: Files, site: &str, peers: Vec<String>, rules: NodeRules) -> Self {
        let shutdown = CancellationToken::new();
        let issuer = crate::identity::IssuerConfig {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            nodes: rules,
            ..files.issuer()
        };
        let config = Config { peers, ..files.config() };
        let node = Some((site.to_owned(), NODE.1.to_owned()));
        let handle = start(Some(config), Some(issuer), None, node, shutdown.clone()).await.unwrap();
        let address = handle.listens().await.unwrap();
        // It has a key to sign tokens with, and tells of it.
        let mut told = handle.fleet().state();
        drop(told.wait_for(|state| !state.jwt_endorsements.is_empty()).await.unwrap());
        Self { files, handle, address, shutdown }
    }

    async fn rules(&self, rules: NodeRules) {
        let listen = Some("127.0.0.1:0".parse().unwrap());
        let issuer = crate::identity::IssuerConfig { listen, nodes: rules, ..self.files.issuer() };
        self.handle.apply(Some(self.files.config()), Some(issuer), None).await.unwrap();
    }

    fn token(&self, node: &str) -> Token {
        let (tokens, site) = self.handle.tokens().unwrap();
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        tokens.create(rand::random(), (&site, node), TTL, now).unwrap().token
    }

    /// A node that has nothing but the root and a token.
    async fn member(&self, name: &str, token: Option<&Token>) -> Member {
        self.member_of(NODE.0, name, token).await
    }

    async fn member_of(&self, site: &str, name: &str, token: Option<&Token>) -> Member {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            trust_bundle: self.files.path("root.pem"),
            files: None,
            join_token_file: Some(dir.path().join("join.token")),
            issuers: vec![self.address.to_string()],
            state_dir: dir.path().join("state"),
            rotation: rotation::Config {
                charter: None,
                longest_leaf: Duration::from_secs(86_400),
                dir: dir.path().join("state/identity/rotation"),
            },
            peers: Vec::new(),
        };
        if let Some(token) = token {
            let path = config.join_token_file.as_ref().unwrap();
            fs::write(path, format!("{}\n", *token.reveal())).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (handle, shutdown) = start_node(&config, site, name).await;
        Member { dir, config, handle, shutdown }
    }
}

async fn start_member(config: &Config, name: &str) -> (Handle, CancellationToken) {
    start_node(config, NODE.0, name).await
}

async fn start_node(config: &Config, site: &str, name: &str) -> (Handle, CancellationToken) {
    let shutdown = CancellationToken::new();
    let node = Some((site.to_owned(), name.to_owned()));
    let handle = start(Some(config.clone()), None, None, node, shutdown.clone()).await.unwrap();
    (handle, shutdown)
}

struct Member {
    dir: tempfile::TempDir,
    config: Config,
    handle: Handle,
    shutdown: CancellationToken,
}

impl Member {
    async fn joined(&self) -> Arc<crate::identity::Own> {
        let mut live = self.handle.live();
        let joined = live.wait_for(|standing| standing.as_ref().is_some_and(|s| s.own.is_some()));
        let standing = tokio::time::timeout(LIMIT, joined).await.expect("joins in time").unwrap().clone();
        standing.unwrap().own.unwrap()
    }

    async fn connect(&self, issuer: &Issuer, appear: As) -> IssuanceClient<Channel> {
        let standing = self.handle.live().borrow().clone().unwrap();
        client::connect(&issuer.address.to_string(), &self.handle.live(), &standing, appear, None)
            .await
            .unwrap()
    }

    /// Until the state of the agent is what is wanted: what `status` says of it.
    async fn says(&self, wanted: &str) -> Condition {
        for _ in 0..200 {
            let (condition, summary) = self.handle.summary();
            if summary.contains(wanted) {
                return condition;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{:?} lacks {wanted:?}", self.handle.summary());
    }
}

fn csr_of(name: &str) -> Vec<u8> {
    let key = Key::generate(Curve::P256).unwrap();
    // What it calls itself counts for nothing.
    csr::to_der(&csr::create(&key, name, &domain().id()).unwrap()).unwrap().to_vec()
}

fn enroll_request(token: &Token, site: &str, node: &str) -> EnrollRequest {
    let token = token.reveal().to_string();
    EnrollRequest { token, site: site.into(), node: node.into(), csr: csr_of(node) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_with_a_token_and_keeps_what_it_got() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let token = issuer.token("gw2");
    let member = issuer.member("gw2", Some(&token)).await;
    let own = member.joined().await;
    assert_eq!(own.id.to_string(), "spiffe://fabric.example/site/aws-use1/node/gw2");
    assert_eq!(member.says("node/gw2 until").await, Condition::Well);
    assert!(!member.config.join_token_file.as_ref().unwrap().exists(), "a used token is removed");
    let path = state::path(&member.config.state_dir);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    // Started again, with no issuer alive, it is who it was.
    issuer.shutdown.cancel();
    issuer.handle.stopped().await;
    member.shutdown.cancel();
    member.handle.stopped().await;
    let (again, _shutdown) = start_member(&member.config, "gw2").await;
    let standing = again.live().borrow().clone().unwrap();
    assert_eq!(standing.own.unwrap().serial, own.serial);
    assert_eq!(again.summary().0, Condition::Well);
    drop(member.dir);
}

/// SPIRE 1.14.6: concurrent use of one join token succeeded twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_parallel_redeems_of_one_token_exactly_one_gets_a_certificate() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let token = issuer.token("gw2");
    let member = issuer.member("gw2", None).await;
    let channels = [member.connect(&issuer, As::Stranger).await, member.connect(&issuer, As::Stranger).await];
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..50 {
        let (mut client, request) = (channels[n % 2].clone(), enroll_request(&token, NODE.0, "gw2"));
        calls.spawn(async move { client.enroll(request).await });
    }
    let answers: Vec<Result<_, Status>> = calls.join_all().await;
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    for status in lost.into_iter().map(Result::unwrap_err) {
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        assert!(status.message().contains("not accepted"), "a stranger is told nothing more: {status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_for_one_node_of_one_site_and_bad_requests_do_not_use_it_up() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let (token, member) = (issuer.token("gw2"), issuer.member("gw3", None).await);
    let mut client = member.connect(&issuer, As::Stranger).await;
    for (site, node) in [(NODE.0, "gw3"), ("other", "gw2"), ("", ""), (NODE.0, "../gw2")] {
        let refused = client.enroll(enroll_request(&token, site, node)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    }
    let other = Token::from_random([1; 32]);
    let refused = client.enroll(enroll_request(&other, NODE.0, "gw2")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut nonsense = enroll_request(&token, NODE.0, "gw2");
    nonsense.csr.pop();
    let refused = client.enroll(nonsense).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let mut huge = enroll_request(&token, NODE.0, "gw2");
    huge.csr = vec![0x30; 100 << 10];
    client.enroll(huge).await.unwrap_err();
    // The right one still may, once.
    client.enroll(enroll_request(&token, NODE.0, "gw2")).await.unwrap();
    let replay = client.enroll(enroll_request(&token, NODE.0, "gw2")).await.unwrap_err();
    assert_eq!(replay.code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_may_call_nothing_but_enroll() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let member = issuer.member("gw2", None).await;
    let mut client = member.connect(&issuer, As::Stranger).await;
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
        client.renew(RenewRequest { csr: csr_of("gw2") }).await.unwrap_err();
    }
    // Nor does a new connection help it.
    let standing = member.handle.live().borrow().clone().unwrap();
    let (address, live) = (issuer.address.to_string(), member.handle.live());
    if let Ok(mut client) = client::connect(&address, &live, &standing, As::Node, None).await {
        client.renew(RenewRequest { csr: csr_of("gw2") }).await.unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_report_and_hear_what_is_trusted_as_it_changes() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    let own = member.joined().await;
    let mut heard = member.handle.heard();
    let first = tokio::time::timeout(LIMIT, heard.wait_for(Option::is_some)).await.unwrap().unwrap().clone();
    let first = first.unwrap();
    assert_eq!(
        *first,
        TrustState { jwt_endorsements: first.jwt_endorsements.clone(), ..TrustState::default() }
    );
    let seen = &issuer.handle.fleet().nodes()[&own.id];
    assert_eq!((&seen.report.svid_serial, seen.report.svid_not_after), (&own.serial, own.life.not_after));

    let taint = TrustState { taints: vec![b"jws".to_vec()], ..TrustState::default() };
    issuer.handle.fleet().publish(taint.clone());
    let told = |state: &Option<Arc<TrustState>>| state.as_deref() == Some(&taint);
    tokio::time::timeout(Duration::from_secs(5), heard.wait_for(told))
        .await
        .expect("within seconds")
        .unwrap();
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
async fn a_node_that_can_not_join_runs_and_says_why() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let without = issuer.member("gw2", None).await;
    assert_eq!(without.says("no join token").await, Condition::Failed);
    let wrong = issuer.member("gw3", Some(&Token::from_random([9; 32]))).await;
    assert_eq!(wrong.says("join token is not accepted").await, Condition::Failed);
    assert!(wrong.config.join_token_file.as_ref().unwrap().exists(), "it was not used");
}

/// The issuer's address leads to somebody else: a node of another fabric, who would like our token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_shown_to_nobody_but_a_node_of_the_site() {
    let (ours, impostor) =
        (Issuer::start(NodeRules::default()).await, Issuer::start(NodeRules::default()).await);
    let member = ours.member("gw2", None).await;
    let standing = member.handle.live().borrow().clone().unwrap();
    let address = impostor.address.to_string();
    let refused = client::connect(&address, &member.handle.live(), &standing, As::Stranger, None).await;
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("another root"), "{refused}");
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

/// spiffe/spire#5585: a node that comes back after the fabric has another root joins by the new bundle file that a person gave it,
/// and by nothing that the network says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_comes_back_by_a_new_bundle_file_and_a_token() {
    let (old, new) = (Issuer::start(NodeRules::default()).await, Issuer::start(NodeRules::default()).await);
    let member = old.member("gw2", Some(&old.token("gw2"))).await;
    let before = member.joined().await;
    member.shutdown.cancel();
    member.handle.stopped().await;

    // With the old bundle file the new issuer is nobody.
    let token_file = member.config.join_token_file.clone().unwrap();
    let give = |token: &Token| {
        fs::write(&token_file, token.reveal().as_str()).unwrap();
        fs::set_permissions(&token_file, fs::Permissions::from_mode(0o600)).unwrap();
    };
    give(&new.token("gw2"));
    let mut config = Config { issuers: vec![new.address.to_string()], ..member.config.clone() };
    let (handle, shutdown) = start_member(&config, "gw2").await;
    assert_eq!(handle.live().borrow().clone().unwrap().own.unwrap().serial, before.serial);
    shutdown.cancel();
    handle.stopped().await;
    assert!(token_file.exists());

    config.trust_bundle = new.files.path("root.pem");
    let (handle, _shutdown) = start_member(&config, "gw2").await;
    let mut live = handle.live();
    let joined = live.wait_for(|standing| standing.as_ref().is_some_and(|s| s.own.is_some()));
    let standing = tokio::time::timeout(LIMIT, joined).await.expect("joins in time").unwrap().clone();
    let own = standing.unwrap().own.unwrap();
    assert!(own.serial != before.serial && own.id == before.id);
}

fn workload(path: &str) -> crate::identity::Identity {
    let (id, ttl) = (domain().member(path).unwrap(), Duration::from_secs(3600));
    let (dns_names, federates_with) = (Vec::new(), Vec::new());
    crate::identity::Identity { id, ttl, jwt_ttl: ttl, dns_names, hint: String::new(), federates_with }
}

/// A node without a site CA: keys are its own, certificates its issuer's, and what it has in reserve outlives the issuer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_supplies_its_workloads_and_goes_on_when_its_issuer_is_dead() {
    let paths = vec![crate::identity::Pattern::parse("/ns/pay/*").unwrap()];
    let issuer = Issuer::start(NodeRules { paths, ..NodeRules::default() }).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    member.joined().await;
    let remote = Remote::new(member.handle.live(), domain());
    let issue = async |path: &str, later: u64| {
        let (remote, identity) = (remote.clone(), workload(path));
        let at = std::time::SystemTime::now() + Duration::from_secs(later);
        let issued = tokio::task::spawn_blocking(move || remote.issue(&identity, at)).await.unwrap();
        issued.map_err(|error| error.to_string()).map(|svid| (svid, time::OffsetDateTime::from(at)))
    };
    let (first, now) = issue("/ns/pay/api", 0).await.unwrap();
    assert_eq!(first.id.path(), "/ns/pay/api");
    assert!(first.renew_at > now && first.renew_at < first.not_after);
    let (second, _) = issue("/ns/pay/api", 0).await.unwrap();
    assert_eq!((&first.chain, first.key.public()), (&second.chain, second.key.public()), "from the reserve");
    let refused = issue("/ns/other", 0).await.map(drop).unwrap_err();
    assert!(refused.contains("node_paths"), "{refused}");

    let minted = {
        let (remote, identity) = (remote.clone(), workload("/ns/pay/api"));
        let mint = move || remote.mint(&identity, &["orders".into()], std::time::SystemTime::now());
        tokio::task::spawn_blocking(mint).await.unwrap().map_err(|error| error.to_string())
    };
    let minted = minted.unwrap();
    assert_eq!((minted.id.path(), minted.token.split('.').count()), ("/ns/pay/api", 3));
    assert!(minted.expires_at > minted.issued_at);

    issuer.shutdown.cancel();
    issuer.handle.stopped().await;
    let refused = issue("/ns/pay/other", 0).await.map(drop).unwrap_err();
    assert!(refused.contains("no issuer of this site gave a certificate"), "{refused}");
    // It is time to renew, and nobody answers: the old one serves, and is not asked about without end.
    let (old, now) = issue("/ns/pay/api", 40 * 60).await.unwrap();
    assert_eq!(old.chain, first.chain);
    assert!(old.renew_at > now && old.renew_at <= old.not_after);
    let refused = issue("/ns/pay/api", 61 * 60).await.map(drop).unwrap_err();
    assert!(refused.contains("no issuer"), "{refused}");
}

fn order(verb: rotation::Verb, reason: Option<&str>) -> rotation::Request {
    let override_reason = reason.map(str::to_owned);
    rotation::Request { verb, override_reason, istio_checked: None, by: "a test".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_waited_for_and_hears_of_a_taint_within_seconds() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let member = issuer.member("gw2", Some(&issuer.token("gw2"))).await;
    let own = member.joined().await;
    let rotation = issuer.handle.rotation().unwrap();
    let ca = rotation.state().active().unwrap().key.clone();
    let known = async {
        loop {
            let report = rotation.fleet().nodes().find(|(name, _)| *name == "gw2").map(|(_, r)| r.clone());
            if let Some(report) = report.filter(|report| report.svid_issuer.is_some()) {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let report = tokio::time::timeout(LIMIT, known).await.expect("a report in time");
    assert_eq!((report.svid_issuer.as_ref(), &report.svid_serial), (Some(&ca), &own.serial));
    // Its certificate is of the CA in use: that can't be revoked under it.
    let taint = rotation::Verb::Taint(ca.as_str().to_owned(), "stolen".into());
    let lonely = issuer.handle.rotate(&order(taint.clone(), None), false).await.unwrap();
    assert!(!lonely.applied && lonely.refusal.is_some());

    let mut live = member.handle.live();
    let begun = std::time::Instant::now();
    assert!(issuer.handle.rotate(&order(taint, Some("thief")), false).await.unwrap().applied);
    let refuses = live.wait_for(|standing| {
        let store = standing.as_ref().map(|standing| standing.trust.store().clone());
        store.is_some_and(|store| store.policy().tainted().any(|key| key == ca.as_str()))
    });
    drop(tokio::time::timeout(LIMIT, refuses).await.expect("hears in time").unwrap());
    assert!(begun.elapsed() < Duration::from_secs(10), "seconds, not minutes");
    assert_eq!(member.handle.rotation().unwrap().taints(), rotation.taints());
    // And whoever shows a certificate of that CA is refused by both.
    for handle in [&issuer.handle, &member.handle] {
        let standing = handle.live().borrow().clone().unwrap();
        assert!(own.believed(standing.trust.store(), std::time::SystemTime::now()).is_err());
    }
    issuer.shutdown.cancel();
    member.shutdown.cancel();
}
