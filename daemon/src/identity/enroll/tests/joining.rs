//! A token lets one node in, once.

use tonic::{Code, Status};

use super::*;

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
    let channels = [
        member.connect(&issuer, As::Stranger(&gw1())).await,
        member.connect(&issuer, As::Stranger(&gw1())).await,
    ];
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
    let mut client = member.connect(&issuer, As::Stranger(&gw1())).await;
    for (site, node) in [(NODE.0, "gw3"), ("other", "gw2"), ("", ""), (NODE.0, "../gw2")] {
        let refused = client.enroll(enroll_request(&token, site, node)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    }
    let other = Token::new(Zeroizing::new([1; 32]), gw1()).unwrap();
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
async fn a_node_that_can_not_join_runs_and_says_why() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let without = issuer.member("gw2", None).await;
    assert_eq!(without.says("no join token").await, Condition::Failed);
    let wrong = issuer.member("gw3", Some(&Token::new(Zeroizing::new([9; 32]), gw1()).unwrap())).await;
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
    let refused =
        client::connect(&address, &member.handle.live(), &standing, As::Stranger(&gw1()), None).await;
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("another root"), "{refused}");
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

/// A token that another issuer made stays with the node: the one that is asked never sees the secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_shown_to_the_issuer_that_made_it_and_to_no_other() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let made_by = |site: &str, name: &str| {
        let id = isthmus_pki::id::node_id(&domain(), site, name).unwrap();
        Token::new(Zeroizing::new([7; 32]), id).unwrap()
    };
    let twin = issuer.member("gw2", Some(&made_by(NODE.0, "gw9"))).await;
    assert_eq!(twin.says("/node/gw9, which made the join token").await, Condition::Failed);
    let (_, summary) = twin.handle.summary();
    assert!(summary.contains("/node/gw1, which is not allowed here"), "{summary}");
    let other = issuer.member("gw3", Some(&made_by("azure-eu", "gw1"))).await;
    assert_eq!(other.says("shown to nobody").await, Condition::Failed);
    let text = fs::read_to_string(issuer.files.issuer().audit.file).unwrap();
    assert!(!text.contains("join token from"), "nothing was asked: {text}");
    // Whoever shows one all the same is told as little as of any other, and the log says why.
    let mut client = twin.connect(&issuer, As::Stranger(&gw1())).await;
    let refused = client.enroll(enroll_request(&made_by(NODE.0, "gw9"), NODE.0, "gw2")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("not accepted"), "{refused}");
    let text = fs::read_to_string(issuer.files.issuer().audit.file).unwrap();
    assert!(text.contains("was made by spiffe://fabric.example/site/aws-use1/node/gw9"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_lost_something_on_its_way_is_told_apart_and_is_still_good() {
    let issuer = Issuer::start(NodeRules::default()).await;
    let token = issuer.token("gw2");
    let member = issuer.member("gw2", Some(&token)).await;
    member.joined().await;
    let other = issuer.member("gw3", None).await;
    let (path, whole) = (other.config.join_token_file.clone().unwrap(), issuer.token("gw3").reveal());
    let give = |text: &str| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    give(&whole[..whole.len() - 3]);
    other.shutdown.cancel();
    other.handle.stopped().await;
    let (handle, shutdown) = start_member(&other.config, "gw3").await;
    let other = Member { handle, shutdown, ..other };
    assert_eq!(other.says("cut off or has a mistake in it").await, Condition::Failed);
    give(&whole);
    other.shutdown.cancel();
    other.handle.stopped().await;
    let (handle, _shutdown) = start_member(&other.config, "gw3").await;
    let mut live = handle.live();
    let joined = live.wait_for(|standing| standing.as_ref().is_some_and(|s| s.own.is_some()));
    drop(tokio::time::timeout(LIMIT, joined).await.expect("joins in time").unwrap());
}
